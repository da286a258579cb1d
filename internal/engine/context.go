//go:build cgo

package engine

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unsafe"
)

// Context is a model's state for one or more sequences: KV cache, threads and
// the output of the last batch. It is used by one goroutine at a time.
type Context struct {
	m    *Model
	ptr  *C.gl_ctx
	info C.gl_ctx_info

	maxOut  int // outputs in one batch
	unified bool
	outs    []bool // which tokens of the last chunk have output
	base    int    // index in the last batch of the chunk's first token

	loras map[string]unsafe.Pointer // loaded adapters by path
	set   []LoRAInfo                // those applied

	follower *Speculator // evaluates what this context does, with a draft model; nil without
	reading  *reading    // hidden states that are read, nil for none
}

// NewContext makes a context of m with the settings of p, which must be valid:
// LoRA adapters and control vectors included, each of their errors being fatal,
// and one run to warm up if p says so.
func NewContext(m *Model, p *Params) (*Context, error) { return NewContextTap(m, p, nil) }

// NewContextTap is NewContext with a tap, nil for none; the tap is closed after the context. What
// runs to warm up runs through it, too.
func NewContextTap(m *Model, p *Params, t Tap) (*Context, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return contextOn(m, p, t, nil)
}

// contextOn makes a context, which computes on the threads of host if that is not nil.
func contextOn(m *Model, p *Params, t Tap, host *Context) (*Context, error) {
	if err := m.retain(); err != nil {
		return nil, err
	}
	c, err := newContext(m, p, t, host)
	if err != nil {
		m.release()
		return nil, err
	}
	live.Add(1)
	if err := c.setup(p); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func newContext(m *Model, p *Params, t Tap, host *Context) (*Context, error) {
	if m.vocabOnl || p.NoAlloc {
		return nil, &Error{Op: "new context", Path: m.info.Path, Msg: "it was loaded without its weights"}
	}
	if err := checkCache(m, p); err != nil {
		return nil, err
	}
	cp := contextParams(p)
	if p.NCtx == 0 {
		cp.n_ctx = C.uint32_t(m.fitCtx)
	}
	if t != nil {
		cp.eval, cp.eval_data = t.hook()
	}
	var a arena
	defer a.free()
	gen, batch := threadParams(&a, p)
	var hostPtr *C.gl_ctx
	if host != nil {
		hostPtr = host.ptr
	}
	var e C.gl_err
	c := &Context{m: m, unified: p.KVUnified, loras: map[string]unsafe.Pointer{}}
	cause := captured(func() { c.ptr = C.gl_ctx_new(m.ptr, cp, gen, batch, hostPtr, &e) })
	C.free(unsafe.Pointer(cp))
	if c.ptr == nil {
		msg := errText(&e)
		if msg == "" {
			msg = cause
		}
		if msg == "" {
			msg = "the engine cannot make it, most likely for want of memory"
		}
		return nil, &Error{Op: "new context", Path: m.info.Path, Msg: "context: " + msg}
	}
	C.gl_ctx_get_info(c.ptr, &c.info)
	c.maxOut = c.NBatch()
	if p.NOutputsMax > 0 && !m.info.HasEncoder {
		c.maxOut = p.NOutputsMax
	}
	m.lastCtx.Store(int64(c.NCtx()))
	return c, nil
}

func (c *Context) setup(p *Params) error {
	if p.CPUParams.Priority != 0 && !bool(C.gl_set_priority(C.int(p.CPUParams.Priority))) {
		return fmt.Errorf("--prio %d: the system refuses this priority", p.CPUParams.Priority)
	}
	if len(p.LoRAAdapters) > 0 {
		var err error
		if p.LoRAInitWithoutApply {
			err = c.loadLoRAs(p.LoRAAdapters)
		} else {
			err = c.SetLoRA(p.LoRAAdapters)
		}
		if err != nil {
			return err
		}
	}
	if len(p.ControlVectors) > 0 {
		if err := c.SetControlVector(p.ControlVectors, p.ControlVectorLayerStart, p.ControlVectorLayerEnd); err != nil {
			return err
		}
	}
	if p.Warmup {
		return c.warmup()
	}
	return nil
}

func (c *Context) warmup() error {
	var e C.gl_err
	if !C.gl_warmup(c.ptr, &e) {
		return &Error{Op: "warm up", Path: c.m.info.Path, Msg: errText(&e)}
	}
	return nil
}

// contextParams converts p; the caller frees the result, or adds it to an arena.
func contextParams(p *Params) *C.gl_ctx_params {
	cp := (*C.gl_ctx_params)(C.calloc(1, C.sizeof_gl_ctx_params))
	*cp = C.gl_ctx_params{
		n_ctx: C.uint32_t(p.NCtx), n_batch: C.uint32_t(p.NBatch), n_ubatch: C.uint32_t(p.NUBatch),
		n_seq_max: C.uint32_t(p.NParallel), n_outputs_max: C.uint32_t(p.NOutputsMax),
		n_outputs_max_per_seq: C.uint32_t(p.NOutputsMaxPerSeq), yarn_orig_ctx: C.uint32_t(p.YarnOrigCtx),
		rope_scaling: C.int(p.RopeScalingType), pooling: C.int(p.PoolingType), attention: C.int(p.AttentionType),
		flash_attn: C.int(p.FlashAttnType), type_k: C.int(p.CacheTypeK), type_v: C.int(p.CacheTypeV),
		rope_freq_base: C.float(p.RopeFreqBase), rope_freq_scale: C.float(p.RopeFreqScale),
		yarn_ext: C.float(p.YarnExtFactor), yarn_attn: C.float(p.YarnAttnFactor),
		yarn_beta_fast: C.float(p.YarnBetaFast), yarn_beta_slow: C.float(p.YarnBetaSlow),
		no_kv_offload: C.bool(p.NoKVOffload), no_perf: C.bool(p.NoPerf), no_op_offload: C.bool(p.NoOpOffload),
		swa_full: C.bool(p.SWAFull), kv_unified: C.bool(p.KVUnified),
	}
	return cp
}

func threadParams(a *arena, p *Params) (gen, batch *C.gl_threads) {
	g, b := p.CPUParams, p.CPUParamsBatch
	if g.NThreads < 0 {
		g.NThreads = defaultThreads()
	}
	if b.NThreads < 0 {
		b = g // all of it, as upstream's postprocess_cpu_params
	}
	conv := func(t CPUParams) *C.gl_threads {
		cpus := make([]C.int, len(t.CPUMask))
		for i, n := range t.CPUMask {
			cpus[i] = C.int(n)
		}
		out := cArray(a, []C.gl_threads{{n_threads: C.int(t.NThreads), prio: C.int(t.Priority), poll: C.int(t.Poll),
			strict: C.bool(t.StrictCPU), n_cpus: C.int(len(cpus))}})
		out.cpus = cArray(a, cpus)
		return out
	}
	return conv(g), conv(b)
}

// Close frees the context and its adapters. It may be called twice and on nil.
func (c *Context) Close() error {
	if c == nil || c.ptr == nil {
		return nil
	}
	C.gl_ctx_free(c.ptr)
	c.ptr = nil
	for _, a := range c.loras {
		C.gl_lora_free(a)
	}
	c.loras = nil
	c.m.release()
	live.Add(-1)
	return nil
}

// NCtx returns the tokens that all sequences have room for together; llama.cpp
// rounds the number asked for up to a multiple of 256.
func (c *Context) NCtx() int { return int(c.info.n_ctx) }

// NCtxSeq returns the tokens that one sequence has room for.
func (c *Context) NCtxSeq() int { return int(c.info.n_ctx_seq) }

// NBatch returns the tokens decoded in one call of llama.cpp at most.
func (c *Context) NBatch() int { return int(c.info.n_batch) }

// NUBatch returns the tokens computed at once at most.
func (c *Context) NUBatch() int { return int(c.info.n_ubatch) }

// NSeqMax returns the number of sequences.
func (c *Context) NSeqMax() int { return int(c.info.n_seq_max) }

// Causal reports whether attention is causal; if it is not, a batch must fit NUBatch.
func (c *Context) Causal() bool { return bool(c.info.causal) }

// Model returns the context's model.
func (c *Context) Model() *Model { return c.m }

// Decode processes b, in chunks of NBatch tokens if it is longer. All its
// outputs must fall in one chunk. ctx cancels it with ErrCanceled; the memory
// then holds some of the tokens (see SeqPosMax). ErrContextFull means that
// there is no room for them, and that none was added.
func (c *Context) Decode(ctx context.Context, b *Batch) error {
	if c == nil || c.ptr == nil {
		return ErrClosed
	}
	if err := b.check(c.m.info.NVocab, c.NSeqMax()); err != nil {
		return err
	}
	if len(b.NSeq) > 0 && (!c.unified || c.follower != nil) {
		return errors.New("decode: tokens that sequences have in common need one cache for all of them, and no draft model")
	}
	n, size := len(b.Tokens), c.chunk()
	if !c.Causal() && n > size {
		return fmt.Errorf("decode: %d tokens, but without causal attention a batch has at most %d (--ubatch-size)", n, size)
	}
	if first := slices.Index(b.Output, true); first >= 0 {
		for i := first; i < n; i++ {
			if b.Output[i] && i/size != first/size {
				return fmt.Errorf("decode: outputs %d and %d are in different chunks of %d tokens", first, i, size)
			}
		}
	}
	c.outs, c.base = nil, 0
	for from := 0; from < n; from += size {
		if err := c.decodeChunk(ctx, b, from, min(from+size, n), false); err != nil {
			return err
		}
	}
	return nil
}

// chunk is the number of tokens that one call may have.
func (c *Context) chunk() int {
	if c.Causal() {
		return c.NBatch()
	}
	return min(c.NBatch(), c.NUBatch())
}

// Encode runs the encoder of an encoder-decoder model over tokens; the decoder
// then starts with ModelInfo.DecoderStart at position 0.
func (c *Context) Encode(ctx context.Context, tokens []Token) error {
	if c == nil || c.ptr == nil {
		return ErrClosed
	}
	if !c.m.info.HasEncoder {
		return &Error{Op: "encode", Path: c.m.info.Path, Msg: "the model has no encoder"}
	}
	if limit := min(c.NBatch(), c.NUBatch()); len(tokens) > limit {
		return fmt.Errorf("encode: %d tokens, the limit is %d (--ubatch-size)", len(tokens), limit)
	}
	b := Batch{}
	for i, t := range tokens {
		b.Add(t, i, 0, true)
	}
	if err := b.check(c.m.info.NVocab, c.NSeqMax()); err != nil {
		return err
	}
	err := c.decodeChunk(ctx, &b, 0, len(tokens), true)
	c.outs = nil
	return err
}

func (c *Context) decodeChunk(ctx context.Context, b *Batch, from, to int, encode bool) error {
	if err := ctx.Err(); err != nil {
		return canceled(err)
	}
	out := make([]int8, to-from)
	count := 0
	for i, o := range b.Output[from:to] {
		if o {
			out[i] = 1
			count++
		}
	}
	if count > c.maxOut {
		return fmt.Errorf("decode: %d outputs in one batch, the limit is %d", count, c.maxOut)
	}
	flag := C.gl_ctx_abort_flag(c.ptr)
	C.gl_flag_set(flag, 0)
	stop := context.AfterFunc(ctx, func() { C.gl_flag_set(flag, 1) })
	var e C.gl_err
	var rc C.int
	cause := watched(func() { rc = c.call(b, from, to, encode, out, &e) })
	if !stop() {
		waitFlag(flag)
	}
	if rc != 0 {
		return c.decodeError(ctx, int(rc), errText(&e), cause)
	}
	if count > 0 {
		c.outs, c.base = slices.Clone(b.Output[from:to]), from
	}
	if c.follower != nil && !encode {
		return c.follower.process(ctx, b, from, to)
	}
	return nil
}

// watched is captured, except that it does not wait for others and hears nothing then.
func watched(f func()) string {
	if !captureMu.TryLock() {
		f()
		return ""
	}
	defer captureMu.Unlock()
	C.gl_capture_begin()
	f()
	var buf [1024]C.char
	C.gl_capture_end(&buf[0], C.size_t(len(buf)))
	return cleanCause(C.GoString(&buf[0]))
}

// decodeError names the return values of llama_decode, see include/llama.h.
func (c *Context) decodeError(ctx context.Context, rc int, thrown, logged string) error {
	switch {
	case rc == 1:
		return fmt.Errorf("decode: %w (%d tokens)", ErrContextFull, c.NCtx())
	case rc == 2 && ctx.Err() != nil:
		return canceled(ctx.Err())
	case rc == 2:
		return ErrAborted
	case thrown != "":
		return &Error{Op: "decode", Msg: thrown}
	case logged != "":
		return &Error{Op: "decode", Msg: logged}
	}
	return &Error{Op: "decode", Msg: fmt.Sprintf("the engine failed with code %d", rc)}
}

// DecodePrompt decodes tokens from position pos0 of sequence seq, with logits
// for the last of them. progress, if not nil, gets the number of tokens done
// after each chunk.
func (c *Context) DecodePrompt(ctx context.Context, tokens []Token, pos0, seq int, progress func(done int)) error {
	if c == nil || c.ptr == nil {
		return ErrClosed
	}
	var b Batch
	for from := 0; from < len(tokens); from += c.NBatch() {
		to := min(from+c.NBatch(), len(tokens))
		b.Reset()
		for i := from; i < to; i++ {
			b.Add(tokens[i], pos0+i, seq, i == len(tokens)-1)
		}
		if err := c.Decode(ctx, &b); err != nil {
			return err
		}
		if progress != nil {
			progress(to)
		}
	}
	return nil
}

// DecodeLogits decodes tokens from position pos0 of sequence seq and calls each
// with the logits after every one of them; they are valid during the call. An
// error of each ends it.
func (c *Context) DecodeLogits(ctx context.Context, tokens []Token, pos0, seq int, each func(i int, logits []float32) error) error {
	if c == nil || c.ptr == nil {
		return ErrClosed
	}
	// The logits of a whole batch may be large: 2048 x 150,000 floats are over a gigabyte.
	step := min(c.NBatch(), c.NUBatch(), c.maxOut)
	var b Batch
	for from := 0; from < len(tokens); from += step {
		to := min(from+step, len(tokens))
		b.Reset()
		for i := from; i < to; i++ {
			b.Add(tokens[i], pos0+i, seq, true)
		}
		if err := c.Decode(ctx, &b); err != nil {
			return err
		}
		for i := from; i < to; i++ {
			logits, err := c.Logits(i - from)
			if err != nil {
				return err
			}
			if err := each(i, logits); err != nil {
				return err
			}
		}
	}
	return nil
}

// row converts an index into the last batch to one into the last chunk.
func (c *Context) row(i int) (int, error) {
	if c == nil || c.ptr == nil {
		return 0, ErrClosed
	}
	if i == -1 {
		for k := len(c.outs) - 1; k >= 0; k-- {
			if c.outs[k] {
				return k, nil
			}
		}
		return 0, &Error{Op: "logits", Msg: "nothing with an output was decoded"}
	}
	if k := i - c.base; k >= 0 && k < len(c.outs) && c.outs[k] {
		return k, nil
	}
	return 0, &Error{Op: "logits", Msg: fmt.Sprintf("token %d of the last batch has no output", i)}
}

// Logits returns the logits after the i-th token of the last batch, or after
// the last one with an output for -1: NVocab floats that belong to C and are
// valid until the next call that decodes, restores a state or closes.
func (c *Context) Logits(i int) ([]float32, error) {
	k, err := c.row(i)
	if err != nil {
		return nil, err
	}
	p := C.gl_logits(c.ptr, C.int(k))
	if p == nil {
		return nil, &Error{Op: "logits", Msg: "the model gives none"}
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(p)), c.m.info.NVocab), nil
}
