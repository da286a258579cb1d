//go:build cgo

package engine

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import "unsafe"

// Collector adds up the squares of the activations that weights meet, in the context that it is the tap of. It is used
// by the goroutine that uses the context.
type Collector struct {
	ptr     *C.gl_collect
	weights []string
}

// NewCollector returns a collector for these weights, by the names of their tensors.
func NewCollector(weights []string) (*Collector, error) {
	var a arena
	defer a.free()
	var e C.gl_err
	c := &Collector{weights: weights}
	c.ptr = C.gl_collect_new(a.strs(weights), C.int(len(weights)), &e)
	if c.ptr == nil {
		return nil, &Error{Op: "collector", Msg: errText(&e)}
	}
	live.Add(1)
	return c, nil
}

func (c *Collector) hook() (fn, data unsafe.Pointer) {
	return C.gl_collect_eval(), unsafe.Pointer(c.ptr)
}

// Bind lets the collector work on the threads of the context that it is the tap of.
func (c *Collector) Bind(ctx *Context) { C.gl_collect_bind(c.ptr, ctx.ptr) }

// Mode says what is done in the batches that follow: on collects, skipHead ends each graph before the model's head, so
// that its logits are of no use. Of a model whose head is not known yet the first graph is computed whole.
func (c *Collector) Mode(on, skipHead bool) { C.gl_collect_mode(c.ptr, C.bool(on), C.bool(skipHead)) }

// Reset drops what was added. share lets weights that have one input add it once, as is right but for the model of
// which Check says ErrConflict.
func (c *Collector) Reset(share bool) { C.gl_collect_reset(c.ptr, C.bool(share)) }

// Check returns what is wrong with what was added since the reset: ErrConflict, a *NonFiniteError, or that the model's
// graph is of a kind that is not known.
func (c *Collector) Check() error {
	st := C.gl_collect_check(c.ptr)
	switch {
	case st.error[0] != 0:
		return &Error{Op: "collect", Msg: C.GoString(&st.error[0])}
	case bool(st.bad):
		return &NonFiniteError{c.weights[st.bad_weight], int(st.bad_row), int(st.bad_column), float32(st.bad_value)}
	case bool(st.conflict):
		return ErrConflict
	case st.unsupported > 0:
		return &Error{Op: "collect", Msg: "the input of " + c.weights[st.unsupported-1] + " is not float32"}
	}
	return nil
}

// Each passes what was added since the reset, one distinct input after the other. The slices belong to C and are valid
// during the call.
func (c *Collector) Each(f func(in Collected)) {
	for i := range int(C.gl_collect_inputs(c.ptr)) {
		in := C.gl_collect_get(c.ptr, C.int(i))
		weights := make([]int, int(in.n_weights))
		for k, w := range unsafe.Slice(in.weights, int(in.n_weights)) {
			weights[k] = int(w)
		}
		f(Collected{
			Weights: weights,
			Sum2:    unsafe.Slice((*float64)(unsafe.Pointer(in.sum2)), int(in.n)),
			Sum:     unsafe.Slice((*float64)(unsafe.Pointer(in.sum)), int(in.n)),
			Counts:  unsafe.Slice((*int64)(unsafe.Pointer(in.counts)), int(in.n_counts)),
		})
	}
}

// Close frees the collector, after its context. It may be called twice and on nil.
func (c *Collector) Close() error {
	if c != nil && c.ptr != nil {
		C.gl_collect_free(c.ptr)
		c.ptr = nil
		live.Add(-1)
	}
	return nil
}
