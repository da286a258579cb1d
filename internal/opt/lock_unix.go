//go:build unix

package opt

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile opens the file at path and locks it until it is closed or the
// process ends.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errors.New("another process trains in this folder")
	} else if errors.Is(err, errors.ErrUnsupported) {
		err = nil // some network file systems have no locks
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
