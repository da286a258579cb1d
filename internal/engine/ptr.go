//go:build cgo

package engine

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

func ptrOf[T any](p *T) unsafe.Pointer { return unsafe.Pointer(p) }

// waitFlag returns when the flag, in C memory, is set.
func waitFlag[T ~int32](flag *T) {
	for atomic.LoadInt32((*int32)(unsafe.Pointer(flag))) == 0 {
		runtime.Gosched()
	}
}
