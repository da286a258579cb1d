//go:build cgo

package engine

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"runtime/cgo"
	"sync"
	"sync/atomic"
	"unsafe"

	"gollama/internal/engine/ggml"
)

var (
	initOnce sync.Once
	logger   atomic.Pointer[func(level int, text string)]
)

// initEngine sets up the C side: logs, aborts, backends.
func initEngine() { initOnce.Do(func() { C.gl_init() }) }

// SetLogger sends the log lines of llama.cpp, ggml and their common library of level most and below to h, without their line
// ends, and notices; nil discards all. Lines of other levels never leave C. h may be called from any goroutine, and several at once.
func SetLogger(most int, h func(level int, text string)) {
	initEngine()
	if h == nil {
		C.gl_log_level(0)
		logger.Store(nil)
		return
	}
	logger.Store(&h)
	C.gl_log_level(C.int(most))
}

// notice gives the logger a warning of our own.
func notice(text string) {
	if h := logger.Load(); h != nil {
		(*h)(LogNotice, text)
	}
}

//export gollamaLog
func gollamaLog(level C.int, text *C.char, n C.int) {
	// A panic must not unwind through C++, and there is no caller to give it to.
	defer func() { _ = recover() }()
	if h := logger.Load(); h != nil {
		(*h)(int(level), C.GoStringN(text, n))
	}
}

// progressState is what the handle given to gl_model_load stands for.
type progressState struct {
	f       func(float32) bool
	stopped bool
	err     error // of a panic
}

//export gollamaProgress
func gollamaProgress(handle C.uintptr_t, progress C.float) (goOn C.int) {
	st := cgo.Handle(handle).Value().(*progressState)
	defer func() {
		if r := recover(); r != nil {
			st.err = fmt.Errorf("progress callback: panic: %v", r)
			goOn = 0
		}
	}()
	if !st.f(float32(progress)) {
		st.stopped = true
		return 0
	}
	return 1
}

// arena holds C memory until free.
type arena struct{ ptrs []unsafe.Pointer }

func (a *arena) free() {
	for _, p := range a.ptrs {
		C.free(p)
	}
	a.ptrs = nil
}

func (a *arena) str(s string) *C.char {
	p := C.CString(s)
	a.ptrs = append(a.ptrs, unsafe.Pointer(p))
	return p
}

// strs returns a C array of strings, nil for none.
func (a *arena) strs(list []string) **C.char {
	ptrs := make([]*C.char, len(list))
	for i, s := range list {
		ptrs[i] = a.str(s)
	}
	return cArray(a, ptrs)
}

// cArray copies a slice to C memory; nil if it is empty.
func cArray[T any](a *arena, s []T) *T {
	if len(s) == 0 {
		return nil
	}
	p := C.malloc(C.size_t(len(s)) * C.size_t(unsafe.Sizeof(s[0])))
	a.ptrs = append(a.ptrs, p)
	copy(unsafe.Slice((*T)(p), len(s)), s)
	return (*T)(p)
}

// captureMu serializes calls whose errors llama.cpp gives only to its log.
var captureMu sync.Mutex

// captured runs f and returns the first error line that was logged meanwhile.
func captured(f func()) string {
	captureMu.Lock()
	defer captureMu.Unlock()
	C.gl_capture_begin()
	f()
	var buf [2048]C.char
	C.gl_capture_end(&buf[0], C.size_t(len(buf)))
	return cleanCause(C.GoString(&buf[0]))
}

func errText(e *C.gl_err) string { return cleanCause(C.GoString(&e.msg[0])) }

func defaultThreads() int { return ggml.DefaultThreads() }
