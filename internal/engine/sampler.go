//go:build cgo

package engine

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"unsafe"
)

// Sampler picks tokens: llama.cpp's chain of samplers, with a grammar if there
// is one. It is used by one goroutine at a time.
type Sampler struct {
	m    *Model
	ptr  *C.gl_sampler
	seed uint32
}

// NewSampler makes a sampler. Settings that the user did not name (see
// UserSamplingConfig) come from the model's metadata if it has them.
func NewSampler(m *Model, p *SamplingParams) (*Sampler, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if err := m.retain(); err != nil {
		return nil, err
	}
	s, err := newSampler(m, *p)
	if err != nil {
		m.release()
		return nil, err
	}
	live.Add(1)
	return s, nil
}

func newSampler(m *Model, p SamplingParams) (*Sampler, error) {
	if m.vocab.typ == vocabNone {
		return nil, errNoVocab
	}
	if err := applyModelSampling(&p, m.Meta); err != nil {
		return nil, &Error{Op: "new sampler", Path: m.info.Path, Msg: err.Error()}
	}
	for _, b := range p.LogitBias {
		if !m.vocab.has(b.Token) {
			return nil, fmt.Errorf("--logit-bias: token %d is not in the vocabulary of %d tokens", b.Token, m.info.NVocab)
		}
	}
	grammar := p.Grammar
	if p.JSONSchema != "" {
		g, err := SchemaToGrammar(p.JSONSchema)
		if err != nil {
			return nil, err
		}
		grammar = g
	}
	if grammar != "" {
		if err := checkGrammar(m.ptr, grammar); err != nil {
			return nil, err
		}
	}
	for p.Seed == RandomSeed {
		// One seed for all links of the chain, so that it can be told and used again.
		p.Seed = rand.Uint32()
	}
	var a arena
	defer a.free()
	var e C.gl_err
	answer, err := p.answer()
	if err != nil {
		return nil, err
	}
	s := &Sampler{m: m, seed: p.Seed}
	sp := samplingParams(&a, &p, grammar, m.contextLen())
	sp.answer = a.str(answer)
	// The error of a grammar that does not take the generation prompt has no text, and is in the log.
	cause := captured(func() { s.ptr = C.gl_sampler_new(m.ptr, sp, &e) })
	if s.ptr == nil {
		msg := errText(&e)
		if msg == "std::exception" && cause != "" {
			msg = shorten(cause)
		}
		return nil, &Error{Op: "new sampler", Msg: msg}
	}
	return s, nil
}

// answer returns what the shim reads of the fields that belong to a conversation; empty if none is set.
func (p *SamplingParams) answer() (string, error) {
	w := struct {
		GenerationPrompt string           `json:"generation_prompt,omitempty"`
		GrammarOfChat    bool             `json:"grammar_of_chat,omitempty"`
		GrammarLazy      bool             `json:"grammar_lazy,omitempty"`
		Triggers         []GrammarTrigger `json:"grammar_triggers,omitempty"`
		Budget           int              `json:"reasoning_budget"`
		Start            string           `json:"reasoning_start,omitempty"`
		Ends             []string         `json:"reasoning_ends"`
		Message          string           `json:"reasoning_message,omitempty"`
	}{p.GenerationPrompt, p.GrammarOfChat, p.GrammarLazy, p.GrammarTriggers, p.ReasoningBudgetTokens, p.ReasoningBudgetStart, []string{},
		p.ReasoningBudgetMessage}
	for _, end := range p.ReasoningBudgetEnd {
		if end != "" {
			w.Ends = append(w.Ends, end)
		}
	}
	switch {
	case p.GrammarLazy && len(p.GrammarTriggers) == 0:
		return "", errors.New("a lazy grammar has no triggers")
	case p.GenerationPrompt == "" && !p.GrammarLazy && p.ReasoningBudgetStart == "":
		return "", nil
	}
	for _, t := range p.GrammarTriggers {
		if t.Type < 0 || t.Type > 3 {
			return "", fmt.Errorf("grammar trigger %q: type %d, want 0 to 3", t.Value, t.Type)
		}
	}
	text, err := marshal(w)
	return string(text), err
}

// contextLen is what a window of -1 means: the newest context's length.
func (m *Model) contextLen() int {
	if n := m.lastCtx.Load(); n > 0 {
		return int(n)
	}
	return m.info.NCtxTrain
}

func samplingParams(a *arena, p *SamplingParams, grammar string, nCtx int) *C.gl_sampling {
	window := func(n int) C.int {
		if n < 0 {
			n = nCtx
		}
		return C.int(n)
	}
	links := make([]C.int, len(p.Samplers))
	for i, t := range p.Samplers {
		links[i] = C.int(t)
	}
	biases := make([]C.gl_bias, len(p.LogitBias))
	for i, b := range p.LogitBias {
		biases[i] = C.gl_bias{token: C.int32_t(b.Token), bias: C.float(b.Bias)}
	}
	sp := C.gl_sampling{
		seed: C.uint32_t(p.Seed), n_prev: C.int(max(p.NPrev, int(window(p.PenaltyLastN)))), n_probs: C.int(p.NProbs),
		min_keep: C.int(p.MinKeep), top_k: C.int(p.TopK), top_p: C.float(p.TopP), min_p: C.float(p.MinP),
		xtc_probability: C.float(p.XTCProbability), xtc_threshold: C.float(p.XTCThreshold), typ_p: C.float(p.TypP),
		temp: C.float(p.Temp), dynatemp_range: C.float(p.DynatempRange), dynatemp_exponent: C.float(p.DynatempExponent),
		penalty_last_n: window(p.PenaltyLastN), penalty_repeat: C.float(p.PenaltyRepeat),
		penalty_freq: C.float(p.PenaltyFreq), penalty_present: C.float(p.PenaltyPresent),
		dry_multiplier: C.float(p.DRYMultiplier), dry_base: C.float(p.DRYBase),
		dry_allowed_length: C.int(p.DRYAllowedLength), dry_penalty_last_n: window(p.DRYPenaltyLastN),
		adaptive_target: C.float(p.AdaptiveTarget), adaptive_decay: C.float(p.AdaptiveDecay),
		mirostat: C.int(p.Mirostat), top_n_sigma: C.float(p.TopNSigma),
		mirostat_tau: C.float(p.MirostatTau), mirostat_eta: C.float(p.MirostatEta),
		ignore_eos: C.bool(p.IgnoreEOS), no_perf: C.bool(p.NoPerf),
		dry_breakers: a.strs(p.DRYSequenceBreakers), n_dry_breakers: C.int(len(p.DRYSequenceBreakers)),
		samplers: cArray(a, links), n_samplers: C.int(len(links)), grammar: a.str(grammar),
		biases: cArray(a, biases), n_biases: C.int(len(biases)),
	}
	return cArray(a, []C.gl_sampling{sp})
}

// Sample picks a token from the logits after the i-th token of c's last batch
// (-1 the last) and does not accept it. When the grammar is complete, the token
// is one that ends the generation.
func (s *Sampler) Sample(c *Context, i int) (Token, error) {
	if s == nil || s.ptr == nil {
		return TokenNull, ErrClosed
	}
	k, err := c.row(i)
	if err != nil {
		return TokenNull, err
	}
	if c.m != s.m {
		return TokenNull, &Error{Op: "sample", Msg: "the sampler and the context are of different models"}
	}
	var e C.gl_err
	t := C.gl_sampler_sample(s.ptr, c.ptr, C.int(k), &e)
	if e.code != 0 {
		return TokenNull, &Error{Op: "sample", Path: s.m.info.Path, Msg: errText(&e)}
	}
	return Token(t), nil
}

// Accept tells the sampler that t was added to the text; generated is false for
// tokens of the prompt, which the grammar does not see. An error means that t
// does not fit the grammar; Reset or Close the sampler then.
func (s *Sampler) Accept(t Token, generated bool) error {
	if s == nil || s.ptr == nil {
		return ErrClosed
	}
	if !s.m.vocab.has(t) {
		return &Error{Op: "accept", Msg: fmt.Sprintf("token %d is not in the vocabulary", t)}
	}
	var e C.gl_err
	if !C.gl_sampler_accept(s.ptr, C.int32_t(t), C.bool(generated), &e) {
		return &Error{Op: "accept", Msg: "the token does not fit the grammar: " + errText(&e)}
	}
	return nil
}

// Reset puts the sampler back to its start, seed and grammar included.
func (s *Sampler) Reset() {
	if s != nil && s.ptr != nil {
		C.gl_sampler_reset(s.ptr)
	}
}

// Clone returns a copy with the same state.
func (s *Sampler) Clone() (*Sampler, error) {
	if s == nil || s.ptr == nil {
		return nil, ErrClosed
	}
	if err := s.m.retain(); err != nil {
		return nil, err
	}
	var e C.gl_err
	c := &Sampler{m: s.m, seed: s.seed}
	if c.ptr = C.gl_sampler_clone(s.ptr, &e); c.ptr == nil {
		s.m.release()
		return nil, &Error{Op: "clone sampler", Msg: errText(&e)}
	}
	live.Add(1)
	return c, nil
}

// Seed returns the seed in use, also if a random one was asked for.
func (s *Sampler) Seed() uint32 { return s.seed }

// Describe returns the chain and its settings for a log.
func (s *Sampler) Describe() string {
	if s == nil || s.ptr == nil {
		return ""
	}
	var e C.gl_err
	p := C.gl_sampler_describe(s.ptr, &e)
	defer C.free(unsafe.Pointer(p))
	return strings.TrimSpace(C.GoString(p))
}

// Close frees the sampler. It may be called twice and on nil.
func (s *Sampler) Close() error {
	if s == nil || s.ptr == nil {
		return nil
	}
	C.gl_sampler_free(s.ptr)
	s.ptr = nil
	s.m.release()
	live.Add(-1)
	return nil
}
