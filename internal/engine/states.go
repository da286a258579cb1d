//go:build cgo

package engine

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"fmt"
	"unsafe"
)

// States is a tap that reads hidden states: what the layers of a model put out, which is what the next layer, and a
// control vector, gets.
type States struct {
	ptr         *C.gl_states
	m           *Model
	first, last int
}

// NewStates makes a tap for the layers first to last, counted from 0. The layers above last are not computed in
// Decode, so that the logits are worth nothing. Close it after the context.
func NewStates(m *Model, first, last int) (*States, error) {
	info := m.info
	if info.HasEncoder || info.NLayer == 0 {
		return nil, &Error{Op: "hidden states", Path: info.Path, Msg: "the model has no layers of a decoder alone", Err: ErrModel}
	}
	if first < 0 || last < first || last >= info.NLayer {
		return nil, fmt.Errorf("hidden states: layers %d to %d, the model has 0 to %d", first, last, info.NLayer-1)
	}
	live.Add(1)
	return &States{ptr: C.gl_states_new(C.int(info.NEmbd), C.int(first), C.int(last)), m: m, first: first, last: last}, nil
}

func (s *States) hook() (fn, data unsafe.Pointer) { return C.gl_states_eval(), unsafe.Pointer(s.ptr) }

// Close frees the tap. It may be called twice and on nil.
func (s *States) Close() error {
	if s != nil && s.ptr != nil {
		C.gl_states_free(s.ptr)
		s.ptr = nil
		live.Add(-1)
	}
	return nil
}

// Width returns how many values a slot has: layers times NEmbd, layer by layer.
func (s *States) Width() int { return (s.last - s.first + 1) * s.m.info.NEmbd }

// Decode is c.Decode for a context made with s. It adds the states after token i of b to slot[i] of sum, which has
// Width values for each slot; a slot below 0 leaves the token out. Sums of several tokens in a slot are made in 64
// bits; one alone is the model's own 32-bit number. The last layer has states only where Output is set. Errors, beside
// those of Decode: ErrModel if the model's graph does not show one state a layer and token.
func (s *States) Decode(ctx context.Context, c *Context, b *Batch, slot []int32, sum []float64) error {
	if s == nil || s.ptr == nil || c == nil || c.ptr == nil {
		return ErrClosed
	}
	if len(slot) != len(b.Tokens) || len(b.Output) != len(b.Tokens) {
		return fmt.Errorf("hidden states: %d slots for %d tokens", len(slot), len(b.Tokens))
	}
	wanted := 0
	for i, n := range slot {
		if n < 0 {
			continue
		}
		wanted++
		if (int(n)+1)*s.Width() > len(sum) {
			return fmt.Errorf("hidden states: slot %d, the sum has room for %d", n, len(sum)/s.Width())
		}
		if s.last == s.m.info.NLayer-1 && !b.Output[i] {
			return fmt.Errorf("hidden states: token %d has no output, without which the last layer has no state", i)
		}
	}
	r := &reading{tap: s, slot: slot, sum: sum}
	c.reading = r
	defer func() { c.reading = nil }()
	if err := c.Decode(ctx, b); err != nil {
		return err
	}
	if want := wanted * (s.last - s.first + 1); r.added != want {
		return &Error{Op: "hidden states", Path: s.m.info.Path, Err: ErrModel,
			Msg: fmt.Sprintf("%d states came for %d wanted: models of the architecture %q do not show what their layers put out", r.added, want, s.m.info.Arch)}
	}
	return nil
}

// reading is a call of States.Decode.
type reading struct {
	tap   *States
	slot  []int32
	sum   []float64
	added int // states so far
}

// call decodes the tokens from to to of b, and reads hidden states on the way if that is asked for.
func (c *Context) call(b *Batch, from, to int, encode bool, out []int8, e *C.gl_err) C.int {
	tokens, pos, seq := (*C.int32_t)(unsafe.Pointer(&b.Tokens[from])), (*C.int32_t)(unsafe.Pointer(&b.Pos[from])), (*C.int32_t)(unsafe.Pointer(&b.Seq[from]))
	flags, n := (*C.int8_t)(unsafe.Pointer(&out[0])), C.int(to-from)
	var nSeq *C.int32_t
	if len(b.NSeq) > 0 {
		nSeq = (*C.int32_t)(unsafe.Pointer(&b.NSeq[from]))
	}
	r := c.reading
	if r == nil || encode || len(r.sum) == 0 {
		return C.gl_decode(c.ptr, C.bool(encode), tokens, pos, seq, nSeq, flags, n, e)
	}
	var added C.int64_t
	rc := C.gl_decode_states(c.ptr, r.tap.ptr, tokens, pos, seq, nSeq, flags, n, (*C.int32_t)(unsafe.Pointer(&r.slot[from])),
		(*C.double)(unsafe.Pointer(&r.sum[0])), &added, e)
	r.added += int(added)
	return rc
}
