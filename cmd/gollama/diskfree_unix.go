//go:build unix

package main

import "golang.org/x/sys/unix"

// diskFree returns the bytes that can be written to the file system of dir, 0 if
// it is not known.
func diskFree(dir string) int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0
	}
	return int64(st.Bavail) * int64(st.Bsize)
}
