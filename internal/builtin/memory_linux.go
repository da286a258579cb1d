package builtin

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// memoryFile returns the path of a file in memory with this text. It stays open, sealed against change, until the
// process ends.
func memoryFile(name, text string) (string, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return "", fmt.Errorf("memfd_create: %w", err)
	}
	path := fmt.Sprintf("/proc/self/fd/%d", fd)
	f := os.NewFile(uintptr(fd), name)
	if _, err = io.WriteString(f, text); err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err == nil {
		_, err = os.Stat(path) // not everywhere is there a /proc
	}
	if err != nil {
		return "", errors.Join(err, f.Close())
	}
	open = append(open, f)
	return path, nil
}

// open keeps the files from the garbage collector, which would close them.
var open []*os.File
