package pipeline

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

const (
	oTmpfile        = 0x400000 | syscall.O_DIRECTORY // O_TMPFILE in open(2)
	atFdcwd         = -100                           // AT_FDCWD
	atSymlinkFollow = 0x400                          // AT_SYMLINK_FOLLOW
)

// openUnnamed opens a file without a name in dir. The kernel drops it when the
// process ends, however that happens.
func openUnnamed(dir string) (*os.File, bool) {
	f, err := os.OpenFile(dir, os.O_RDWR|oTmpfile, 0o666)
	if err != nil {
		return nil, false // not every file system has O_TMPFILE
	}
	if _, err := os.Stat(procPath(f)); err != nil {
		_ = f.Close() // without /proc the file could not get a name
		return nil, false
	}
	return f, true
}

func procPath(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// linkUnnamed gives a file of openUnnamed its first name, as open(2) describes.
func linkUnnamed(f *os.File, path string) error {
	from, err := syscall.BytePtrFromString(procPath(f))
	if err != nil {
		return err
	}
	to, err := syscall.BytePtrFromString(path)
	if err != nil {
		return err
	}
	fdcwd := atFdcwd
	_, _, errno := syscall.Syscall6(syscall.SYS_LINKAT, uintptr(fdcwd), uintptr(unsafe.Pointer(from)),
		uintptr(fdcwd), uintptr(unsafe.Pointer(to)), atSymlinkFollow, 0)
	if errno != 0 {
		return &os.PathError{Op: "linkat", Path: path, Err: errno}
	}
	return nil
}
