package ggml

import (
	"fmt"
	"unsafe"

	"github.com/edsrzf/mmap-go"
)

// maxFloats is far above any machine's memory and keeps sizes inside int64.
const maxFloats = 1 << 44

// NewFloats returns n zeros outside the Go heap, for [Pool]. A page takes no
// memory before something is written to it. Give them back with [FreeFloats].
func NewFloats(n int) ([]float32, error) {
	if n <= 0 || n > maxFloats {
		return nil, fmt.Errorf("memory for %d values, want 1 to %d", n, maxFloats)
	}
	// COPY is a private mapping: a shared one would take memory on reads, too.
	m, err := mmap.MapRegion(nil, 4*n, mmap.COPY, mmap.ANON, 0)
	if err != nil {
		return nil, fmt.Errorf("memory for %d values: %w", n, err)
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&m[0])), n), nil
}

// FreeFloats gives back what NewFloats returned, which must not be used after.
// An empty slice is no error.
func FreeFloats(s []float32) error {
	if len(s) == 0 {
		return nil
	}
	m := mmap.MMap(Bytes(s))
	return m.Unmap()
}

// Bytes returns the memory of s as bytes, in the machine's order.
func Bytes(s []float32) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), 4*len(s))
}
