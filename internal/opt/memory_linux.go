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
