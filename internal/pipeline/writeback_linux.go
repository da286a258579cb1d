package pipeline

import (
	"os"
	"syscall"
)

// syncFileRangeWrite is SYNC_FILE_RANGE_WRITE (linux/fs.h): begin to write dirty pages, do not wait.
const syncFileRangeWrite = 2

// startWriteback asks the system to begin writing n bytes at off to disk. It is a hint: where it is not possible,
// Finish waits longer.
func startWriteback(f *os.File, off, n int64) {
	if conn, err := f.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { _ = syscall.SyncFileRange(int(fd), off, n, syncFileRangeWrite) })
	}
}
