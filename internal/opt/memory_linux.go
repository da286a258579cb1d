package opt

import (
	"os"
	"strconv"
	"strings"
)

// residentBytes returns the resident memory of the process, 0 if it is not known.
func residentBytes() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0
	}
	n, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		return 0
	}
	return n * int64(os.Getpagesize())
}

// availableBytes returns the memory that can be had without swapping: what the
// system has, and what the process's cgroup leaves. 0 if it is not known.
func availableBytes() int64 {
	n := int64(0)
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "MemAvailable:" {
				kib, _ := strconv.ParseInt(f[1], 10, 64)
				n = kib << 10
			}
		}
	}
	limit, used := number("/sys/fs/cgroup/memory.max"), number("/sys/fs/cgroup/memory.current")
	if limit > 0 && (n == 0 || limit-used < n) {
		n = max(limit-used, 1)
	}
	return n
}

// number reads a file of one number, 0 if it holds none ("max").
func number(path string) int64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
