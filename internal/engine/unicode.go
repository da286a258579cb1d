//go:build cgo

package engine

// #include "shim.h"
import "C"

import (
	"unicode"
	"unsafe"
)

// UnicodeTables returns, for every code point, the flags that the engine's
// tokenizers split text by (unicode_cpt_flags in llama.cpp's src/unicode.h) and
// its lower-case form. Its tables are of another Unicode version than Go's, so
// whoever wants to split text as the engine does needs these.
func UnicodeTables() (flags []uint16, lower []uint32, err error) {
	n := unicode.MaxRune + 1
	flags, lower = make([]uint16, n), make([]uint32, n)
	C.gl_unicode(0, C.int(n), (*C.uint16_t)(unsafe.Pointer(&flags[0])), (*C.uint32_t)(unsafe.Pointer(&lower[0])))
	return flags, lower, nil
}
