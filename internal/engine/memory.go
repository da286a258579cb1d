//go:build cgo

package engine

/*
#include "shim.h"
*/
import "C"

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"unsafe"
)

func (c *Context) seqOK(seqs ...int) bool {
	if c == nil || c.ptr == nil {
		return false
	}
	for _, s := range seqs {
		if s < 0 || s >= c.NSeqMax() {
			return false
		}
	}
	return true
}

// SeqRm removes the tokens of seq at positions p0 to p1-1; p1 < 0 means to the
// end. It returns false if the memory cannot do that, as some models' cannot
// remove a part; removing a whole sequence works always.
func (c *Context) SeqRm(seq, p0, p1 int) bool {
	if !c.seqOK(seq) {
		return false
	}
	ok := bool(C.gl_mem_rm(c.ptr, C.int(seq), C.int(p0), C.int(p1)))
	return c.alike(func(d *Context) bool { return d.SeqRm(seq, p0, p1) }) && ok
}

// alike does with the draft model's memory what was done with c's, if there is one.
func (c *Context) alike(f func(draft *Context) bool) bool {
	return c.follower == nil || c.follower.draft == nil || f(c.follower.draft)
}

// SeqAdd moves the tokens of seq at positions p0 to p1-1 by delta. It returns
// false if the memory cannot shift, see CanShift.
func (c *Context) SeqAdd(seq, p0, p1, delta int) bool {
	if !c.seqOK(seq) || !c.CanShift() {
		return false
	}
	C.gl_mem_add(c.ptr, C.int(seq), C.int(p0), C.int(p1), C.int(delta))
	return c.alike(func(d *Context) bool { return d.SeqAdd(seq, p0, p1, delta) })
}

// SeqCp makes the tokens of src at positions p0 to p1-1 part of dst too. It
// returns false if it cannot: without KVUnified only whole sequences are copied.
func (c *Context) SeqCp(src, dst, p0, p1 int) bool {
	if !c.seqOK(src, dst) || (!c.unified && src != dst && (p0 > 0 || p1 >= 0)) {
		return false
	}
	C.gl_mem_cp(c.ptr, C.int(src), C.int(dst), C.int(p0), C.int(p1))
	return c.alike(func(d *Context) bool { return d.SeqCp(src, dst, p0, p1) })
}

// SeqKeep removes all other sequences.
func (c *Context) SeqKeep(seq int) bool {
	if !c.seqOK(seq) {
		return false
	}
	C.gl_mem_keep(c.ptr, C.int(seq))
	return c.alike(func(d *Context) bool { return d.SeqKeep(seq) })
}

// SeqPosMin returns the lowest position held of seq, -1 if there is none.
func (c *Context) SeqPosMin(seq int) int {
	if !c.seqOK(seq) {
		return -1
	}
	return int(C.gl_mem_min(c.ptr, C.int(seq)))
}

// SeqPosMax returns the highest position held of seq, -1 if there is none.
func (c *Context) SeqPosMax(seq int) int {
	if !c.seqOK(seq) {
		return -1
	}
	return int(C.gl_mem_max(c.ptr, C.int(seq)))
}

// ClearMemory removes all sequences and the logits.
func (c *Context) ClearMemory() {
	if c != nil && c.ptr != nil {
		C.gl_mem_clear(c.ptr)
		c.outs = nil
		c.alike(func(d *Context) bool { d.ClearMemory(); return true })
	}
}

// CanShift reports whether positions can be moved, for a context shift.
func (c *Context) CanShift() bool {
	return c != nil && c.ptr != nil && bool(C.gl_mem_can_shift(c.ptr)) && c.alike((*Context).CanShift)
}

// Perf returns the times measured so far.
func (c *Context) Perf() Perf {
	if c == nil || c.ptr == nil {
		return Perf{}
	}
	var p C.gl_perf
	C.gl_perf_get(c.ptr, &p)
	return Perf{LoadMS: float64(p.load_ms), PromptMS: float64(p.prompt_ms), GenMS: float64(p.gen_ms),
		NPrompt: int(p.n_prompt), NGen: int(p.n_gen)}
}

// ResetPerf starts measuring anew.
func (c *Context) ResetPerf() {
	if c != nil && c.ptr != nil {
		C.gl_perf_reset(c.ptr)
	}
}

// A state is stateMagic, the CRC-32C of the rest, and llama.cpp's bytes. The
// sum is there because llama.cpp asserts on some damaged states.
const (
	stateMagic  = "gollamS1"
	stateHeader = len(stateMagic) + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// State returns the memory of all sequences, to be restored into a context of
// the same model and settings. The logits are not part of it.
func (c *Context) State() ([]byte, error) { return c.state(-1) }

// SeqState returns the memory of one sequence.
func (c *Context) SeqState(seq int) ([]byte, error) {
	if c != nil && c.ptr != nil && !c.seqOK(seq) {
		return nil, fmt.Errorf("save state: sequence %d is not below %d", seq, c.NSeqMax())
	}
	return c.state(seq)
}

// SetState restores what State returned. On an error the memory is empty.
func (c *Context) SetState(state []byte) error { return c.setState(-1, state) }

// SetSeqState restores what SeqState returned, as sequence seq. On an error the
// sequence is empty.
func (c *Context) SetSeqState(seq int, state []byte) error {
	if c != nil && c.ptr != nil && !c.seqOK(seq) {
		return fmt.Errorf("restore state: sequence %d is not below %d", seq, c.NSeqMax())
	}
	return c.setState(seq, state)
}

func (c *Context) state(seq int) ([]byte, error) {
	if c == nil || c.ptr == nil {
		return nil, ErrClosed
	}
	var e C.gl_err
	n := int(C.gl_state_size(c.ptr, C.int(seq), &e))
	if e.code != 0 || n == 0 {
		return nil, &Error{Op: "save state", Msg: "the engine has none: " + errText(&e)}
	}
	buf := make([]byte, stateHeader+n)
	got := int(C.gl_state_get(c.ptr, C.int(seq), (*C.uint8_t)(unsafe.Pointer(&buf[stateHeader])), C.size_t(n), &e))
	if e.code != 0 || got == 0 || got > n {
		return nil, &Error{Op: "save state", Msg: "the engine failed: " + errText(&e)}
	}
	buf = buf[:stateHeader+got]
	copy(buf, stateMagic)
	binary.LittleEndian.PutUint32(buf[len(stateMagic):], crc32.Checksum(buf[stateHeader:], castagnoli))
	return buf, nil
}

func (c *Context) setState(seq int, state []byte) error {
	if c == nil || c.ptr == nil {
		return ErrClosed
	}
	fail := func(msg string) error {
		if seq < 0 {
			c.ClearMemory()
		} else {
			c.SeqRm(seq, -1, -1)
		}
		return &Error{Op: "restore state", Msg: msg}
	}
	if c.follower != nil && c.follower.draft != nil {
		return fail("a state does not hold what the draft model has evaluated")
	}
	if len(state) <= stateHeader || string(state[:len(stateMagic)]) != stateMagic {
		return fail("it is not a saved state")
	}
	data := state[stateHeader:]
	if crc32.Checksum(data, castagnoli) != binary.LittleEndian.Uint32(state[len(stateMagic):]) {
		return fail("the state is damaged")
	}
	c.outs = nil
	var e C.gl_err
	var n C.size_t
	cause := captured(func() {
		n = C.gl_state_set(c.ptr, C.int(seq), (*C.uint8_t)(unsafe.Pointer(&data[0])), C.size_t(len(data)), &e)
	})
	switch {
	case e.code != 0:
		return fail(errText(&e))
	case n == 0 && cause != "":
		return fail(cause)
	case n == 0:
		return fail("it is of another model or of other settings")
	}
	return nil
}
