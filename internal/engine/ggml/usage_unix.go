//go:build unix

package ggml

import (
	"syscall"
	"time"
)

// ProcessorTime returns the processor time that this process has used, of all its threads; 0 where that cannot be told.
func ProcessorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
