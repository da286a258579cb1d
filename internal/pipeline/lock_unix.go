//go:build linux || darwin || freebsd || netbsd || openbsd

package pipeline

import (
	"errors"
	"os"
	"syscall"
)

// Lock takes the lock on f, which ends with the file's last descriptor, and says whether it could be had. The error is
// that of a file system without locks.
func Lock(f *os.File) (held bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
