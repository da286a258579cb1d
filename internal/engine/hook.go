package engine

import "unsafe"

// Tap watches the tensors that a context computes, from inside of the engine: a Collector, say.
type Tap interface {
	// hook returns the address of a ggml_backend_sched_eval_callback and its argument, which the
	// context uses until it is closed.
	hook() (fn, data unsafe.Pointer)
}
