//go:build cgo

package engine

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"unsafe"
)

// Speculator guesses the tokens that come next, for the sequences of one
// context (llama.cpp's common_speculative). With a draft model it has a context
// of that, which evaluates what the target does, whatever calls the target; its
// memory is changed as the target's is. It is used by the target's goroutine.
type Speculator struct {
	ptr    *C.gl_spec
	target *Context
	draft  *Context // nil without a draft model
	nSeq   int
	reqs   []C.gl_spec_req
	out    []Token
	open   []int // per sequence, tokens of the guess that waits for Accept
}

// NewSpeculator returns a speculator for target, which must be new: its memory
// is cleared. draft, which may be nil if no type of p.Speculative needs it, must
// have the target's vocabulary. p is what target was made with.
func NewSpeculator(target *Context, draft *Model, p *Params) (*Speculator, error) {
	if target == nil || target.ptr == nil {
		return nil, ErrClosed
	}
	if err := canRollback(target, p); err != nil {
		return nil, err
	}
	s := &Speculator{target: target, nSeq: target.NSeqMax(), open: make([]int, target.NSeqMax())}
	var draftPtr *C.gl_ctx
	if p.Speculative.NeedsModel() {
		if err := CheckDraft(target.m, draft); err != nil {
			return nil, err
		}
		q := p.ForDraft()
		q.NCtx = target.NCtx()
		if err := q.Validate(); err != nil {
			return nil, err
		}
		var err error
		if s.draft, err = contextOn(draft, &q, nil, target); err != nil {
			return nil, err
		}
		if err := canRollback(s.draft, &q); err != nil {
			return nil, errors.Join(err, s.Close())
		}
		draftPtr = s.draft.ptr
	}
	var a arena
	defer a.free()
	var e C.gl_err
	if s.ptr = C.gl_spec_new(target.ptr, draftPtr, specParams(&a, &p.Speculative), C.int(s.nSeq), &e); s.ptr == nil {
		return nil, errors.Join(&Error{Op: "speculate", Msg: errText(&e)}, s.Close())
	}
	live.Add(1)
	target.follower = s
	return s, nil
}

// canRollback returns an ErrNoRollback if c cannot remove its last tokens. A cache of sliding windows can, but may have
// given up what comes before them by then, where llama.cpp computes a batch in parts.
func canRollback(c *Context, p *Params) error {
	var info C.gl_model_info
	C.gl_model_get_info(c.m.ptr, &info)
	if info.n_swa > 0 && !p.SWAFull {
		return &Error{Op: "speculate", Path: c.m.info.Path, Msg: "a cache of sliding windows cannot take tokens back: --swa-full makes it whole", Err: ErrNoRollback}
	}
	if c.m.info.HasEncoder {
		return &Error{Op: "speculate", Path: c.m.info.Path, Msg: "models with an encoder are not speculated for", Err: ErrNoRollback}
	}
	var e C.gl_err
	if !C.gl_ctx_can_rollback(c.ptr, &e) {
		if msg := errText(&e); msg != "" {
			return &Error{Op: "speculate", Path: c.m.info.Path, Msg: msg}
		}
		return &Error{Op: "speculate", Path: c.m.info.Path, Err: ErrNoRollback}
	}
	return nil
}

func specParams(a *arena, p *SpeculativeParams) *C.gl_spec_params {
	types := make([]C.int, len(p.Types))
	for i, t := range p.Types {
		types[i] = C.int(t)
	}
	ngram := func(n NgramParams) C.gl_ngram {
		return C.gl_ngram{n: C.int(n.SizeN), m: C.int(n.SizeM), hits: C.int(n.MinHits)}
	}
	out := cArray(a, []C.gl_spec_params{{
		n_types: C.int(len(types)), n_max: C.int(p.Draft.NMax), n_min: C.int(p.Draft.NMin), p_min: C.float(p.Draft.PMin),
		mod_match: C.int(p.NgramMod.NMatch), mod_min: C.int(p.NgramMod.NMin), mod_max: C.int(p.NgramMod.NMax),
		simple: ngram(p.NgramSimple), map_k: ngram(p.NgramMapK), map_k4v: ngram(p.NgramMapK4V),
	}})
	out.types = cArray(a, types)
	return out
}

// Close frees the speculator and the draft's context, before the target and the
// draft's model are closed. It may be called twice and on nil.
func (s *Speculator) Close() error {
	if s == nil {
		return nil
	}
	if s.ptr != nil {
		C.gl_spec_free(s.ptr)
		s.ptr = nil
		s.target.follower = nil
		live.Add(-1)
	}
	return s.draft.Close()
}

// process gives the draft's context the tokens that the target has evaluated.
func (s *Speculator) process(ctx context.Context, b *Batch, from, to int) error {
	if s.draft == nil {
		return nil
	}
	var e C.gl_err
	if !C.gl_spec_process(s.ptr, (*C.int32_t)(unsafe.Pointer(&b.Tokens[from])), (*C.int32_t)(unsafe.Pointer(&b.Pos[from])),
		(*C.int32_t)(unsafe.Pointer(&b.Seq[from])), C.int(to-from), &e) {
		if ctx.Err() != nil {
			return canceled(ctx.Err())
		}
		return &Error{Op: "speculate", Path: s.draft.m.info.Path, Msg: errText(&e)}
	}
	return nil
}

func (s *Speculator) seqOK(seq ...int) error {
	if s == nil || s.ptr == nil {
		return ErrClosed
	}
	for _, n := range seq {
		if n < 0 || n >= s.nSeq {
			return fmt.Errorf("speculate: sequence %d is not below %d", n, s.nSeq)
		}
	}
	return nil
}

// Begin says that the text of sequence seq begins with tokens.
func (s *Speculator) Begin(seq int, tokens []Token) error {
	if err := s.seqOK(seq); err != nil {
		return err
	}
	var e C.gl_err
	if !C.gl_spec_begin(s.ptr, C.int(seq), (*C.int32_t)(unsafe.Pointer(unsafe.SliceData(tokens))), C.int(len(tokens)), &e) {
		return &Error{Op: "speculate", Msg: errText(&e)}
	}
	s.open[seq] = 0
	return nil
}

// Move says that the text of sequence from is now that of sequence to. No guess may be open.
func (s *Speculator) Move(from, to int) error {
	if err := s.seqOK(from, to); err != nil {
		return err
	}
	var e C.gl_err
	if !C.gl_spec_move(s.ptr, C.int(from), C.int(to), &e) {
		return &Error{Op: "speculate", Msg: errText(&e)}
	}
	s.open[to] = 0
	return nil
}

// Speculate answers the guesses in list, at most one for each sequence, and
// takes each one's Last for the next token of its text. Where tokens came,
// Accept must follow before the next guess for that sequence.
func (s *Speculator) Speculate(list []Guess) error {
	stride := 1
	for i := range list {
		g := &list[i]
		if err := s.seqOK(g.Seq); err != nil {
			return err
		}
		if g.Last < 0 || int(g.Last) >= s.target.m.info.NVocab || g.Pos < 0 {
			return fmt.Errorf("speculate: token %d at position %d", g.Last, g.Pos)
		}
		stride = max(stride, g.Max)
	}
	if len(list) == 0 {
		return nil
	}
	s.reqs = s.reqs[:0]
	for _, g := range list {
		s.reqs = append(s.reqs, C.gl_spec_req{seq: C.int(g.Seq), pos: C.int(g.Pos), max: C.int(max(g.Max, 0)), last: C.int32_t(g.Last)})
	}
	if n := stride * len(list); cap(s.out) < n {
		s.out = make([]Token, n)
	}
	s.out = s.out[:stride*len(list)]
	var e C.gl_err
	ok := C.gl_spec_draft(s.ptr, &s.reqs[0], C.int(len(list)), (*C.int32_t)(unsafe.Pointer(&s.out[0])), C.int(stride), &e)
	runtime.KeepAlive(s)
	if !ok {
		return &Error{Op: "speculate", Msg: errText(&e)}
	}
	for i := range list {
		n := int(s.reqs[i].n)
		list[i].Tokens = s.out[i*stride : i*stride+n]
		s.open[list[i].Seq] = n
	}
	return nil
}

// Accept says that the first n tokens of the guess for seq came true.
func (s *Speculator) Accept(seq, n int) error {
	if err := s.seqOK(seq); err != nil {
		return err
	}
	if n < 0 || n > s.open[seq] || s.open[seq] == 0 {
		return fmt.Errorf("speculate: %d of %d guessed tokens accepted", n, s.open[seq])
	}
	s.open[seq] = 0
	var e C.gl_err
	if !C.gl_spec_accept(s.ptr, C.int(seq), C.int(n), &e) {
		return &Error{Op: "speculate", Msg: errText(&e)}
	}
	return nil
}

// maxVocabDifference is by how much the vocabularies of a model and its draft
// may differ in length, and firstSameToken the first token that must be the
// same (llama.cpp, common/speculative.cpp).
const (
	maxVocabDifference = 128
	firstSameToken     = 5
)

// CheckDraft says why draft cannot guess the tokens of target, whose vocabulary it must share.
func CheckDraft(target, draft *Model) error {
	if target == nil || draft == nil {
		return errors.New("speculate: there is no draft model")
	}
	fail := func(format string, args ...any) error {
		return &Error{Op: "speculate", Path: draft.info.Path, Msg: "as a draft for " + target.info.Path + ": " + fmt.Sprintf(format, args...)}
	}
	a, b := target.vocab, draft.vocab
	switch {
	case a.Type() != b.Type():
		return fail("its vocabulary is %s, the model's %s", b.Type(), a.Type())
	case a.AddBOS() != b.AddBOS() || a.AddBOS() && a.BOS() != b.BOS():
		return fail("it begins a text with token %d (%v), the model with %d (%v)", b.BOS(), b.AddBOS(), a.BOS(), a.AddBOS())
	case a.AddEOS() != b.AddEOS() || a.AddEOS() && a.EOS() != b.EOS():
		return fail("it ends a text with token %d (%v), the model with %d (%v)", b.EOS(), b.AddEOS(), a.EOS(), a.AddEOS())
	case max(a.n-b.n, b.n-a.n) > maxVocabDifference:
		return fail("it has %d tokens, the model %d: more than %d apart", b.n, a.n, maxVocabDifference)
	}
	for t := Token(firstSameToken); int(t) < min(a.n, b.n); t++ {
		if x, y := a.Text(t), b.Text(t); x != y {
			return fail("token %d is %.40q there and %.40q in the model", t, y, x)
		}
	}
	return nil
}
