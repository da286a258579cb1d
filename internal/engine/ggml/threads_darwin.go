package ggml

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// defaultThreads returns the number of performance cores, as llama.cpp does:
// a barrier waits for the slowest thread, so efficiency cores only slow it.
func defaultThreads() int {
	for _, name := range []string{"hw.perflevel0.physicalcpu", "hw.physicalcpu"} {
		if n, err := unix.SysctlUint32(name); err == nil && n > 0 {
			return min(int(n), runtime.NumCPU())
		}
	}
	return runtime.NumCPU()
}
