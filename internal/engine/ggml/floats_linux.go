package ggml

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dropAtLeast is the size in bytes from which pages are given back: less is
// zeroed faster than it is taken again.
const dropAtLeast = 1 << 16

// ZeroFloats sets s, which lies in what [NewFloats] returned, to zeros. The
// pages that are wholly in it take no memory until they are written again.
func ZeroFloats(s []float32) {
	b, page := Bytes(s), os.Getpagesize()
	if len(b) < max(dropAtLeast, 2*page) {
		clear(s)
		return
	}
	lo := -int(uintptr(unsafe.Pointer(&s[0]))) & (page - 1)
	hi := lo + (len(b)-lo)/page*page
	if unix.Madvise(b[lo:hi], unix.MADV_DONTNEED) != nil {
		clear(s)
		return
	}
	clear(b[:lo])
	clear(b[hi:])
}
