//go:build !linux

package opt

// residentBytes returns 0: the resident memory is not known here.
func residentBytes() int64 { return 0 }
