package ggml

/*
#include "shim.h"
*/
import "C"

import (
	"runtime"
	"unsafe"
)

// Threadpool is a set of threads that contexts can share for compute.
type Threadpool struct {
	p *C.struct_ggml_threadpool
	n int
}

// NewThreadpool starts the threads of cfg, asleep until the first compute. The
// thread that computes becomes one of them and takes cfg's mask and priority,
// so a goroutine that computes must be locked to its OS thread.
// Source: ggml-cpu.c, ggml_threadpool_new.
func NewThreadpool(cfg ThreadpoolConfig) (*Threadpool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	var mask *C.bool
	if len(cfg.Mask) > 0 {
		m := make([]C.bool, maxThreads)
		for i, b := range cfg.Mask {
			m[i] = C.bool(b)
		}
		mask = &m[0]
	}
	// Started unpaused, it would put mask and priority on the calling thread,
	// which the Go runtime then gives to any goroutine.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const paused = true
	var e C.gg_err
	p := C.gg_threadpool_new(C.int(cfg.Threads), mask, C.int(cfg.Priority), C.uint32_t(cfg.Poll), C.bool(cfg.Strict), paused, &e)
	if err := shimError(&e); err != nil {
		return nil, err
	}
	return &Threadpool{p: p, n: cfg.Threads}, nil
}

// Pointer returns the struct ggml_threadpool for package engine, valid until
// Close; nil after it.
func (t *Threadpool) Pointer() unsafe.Pointer {
	if t == nil {
		return nil
	}
	return unsafe.Pointer(t.p)
}

// Threads returns the number of threads, the computing one included.
func (t *Threadpool) Threads() int { return t.n }

// Close ends the threads. No context may compute with them, then or later. It
// may be called twice and on nil.
func (t *Threadpool) Close() {
	if t == nil || t.p == nil {
		return
	}
	C.ggml_threadpool_free(t.p)
	t.p = nil
}
