package completion

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"gollama/internal/engine"
)

const (
	bos engine.Token = 256 + iota
	eos
	tool // a special token with text
	nVocab
)

// fakeVocab has a token for each byte.
type fakeVocab struct{ noBOS bool }

func (v fakeVocab) Tokenize(text string, addSpecial, parseSpecial bool) ([]engine.Token, error) {
	if text == "bad" {
		return nil, errFake
	}
	var tokens []engine.Token
	if addSpecial && !v.noBOS {
		tokens = append(tokens, bos)
	}
	for i := 0; i < len(text); i++ {
		if parseSpecial && strings.HasPrefix(text[i:], "<tool>") {
			tokens = append(tokens, tool)
			i += len("<tool>") - 1
			continue
		}
		tokens = append(tokens, engine.Token(text[i]))
	}
	return tokens, nil
}

func (fakeVocab) Piece(t engine.Token, special bool) []byte {
	switch {
	case t < 256:
		return []byte{byte(t)}
	case !special:
		return nil
	}
	return []byte([]string{"<s>", "</s>", "<tool>"}[t-bos])
}
func (fakeVocab) NTokens() int              { return int(nVocab) }
func (fakeVocab) BOS() engine.Token         { return bos }
func (v fakeVocab) AddBOS() bool            { return !v.noBOS }
func (fakeVocab) IsEOG(t engine.Token) bool { return t == eos }

var errFake = errors.New("fake failure")

// fakeContext keeps what is evaluated. Its logits are all 0 but for best.
type fakeContext struct {
	t          *testing.T
	nCtx       int
	noShift    bool
	shiftFails bool
	noRm       bool // as a recurrent model's memory: parts cannot be removed
	posMin     int
	cells      []engine.Token // by position
	decodes    int
	encoded    []engine.Token
	best       engine.Token
	nan        bool
	onDecode   func(n int) error
}

func (c *fakeContext) NCtxSeq() int { return c.nCtx }
func (c *fakeContext) DecodePrompt(ctx context.Context, tokens []engine.Token, pos0, seq int, progress func(int)) error {
	if pos0 != len(c.cells) {
		c.t.Errorf("decode at position %d, want %d", pos0, len(c.cells))
	}
	c.cells = append(c.cells, tokens...)
	if len(c.cells) > c.nCtx {
		c.t.Errorf("%d tokens in a context of %d", len(c.cells), c.nCtx)
	}
	c.decodes++
	if c.onDecode != nil {
		if err := c.onDecode(c.decodes); err != nil {
			return err
		}
	}
	if progress != nil {
		progress(len(tokens))
	}
	return ctx.Err()
}

func (c *fakeContext) DecodeLogits(ctx context.Context, tokens []engine.Token, pos0, seq int, each func(int, []float32) error) error {
	for i := range tokens {
		logits, _ := c.Logits(i)
		if err := each(i, logits); err != nil {
			return err
		}
	}
	return c.DecodePrompt(ctx, tokens, pos0, seq, nil)
}

func (c *fakeContext) Logits(int) ([]float32, error) {
	logits := make([]float32, nVocab)
	logits[c.best] = 1
	if c.nan {
		logits[0] = float32(math.NaN())
	}
	return logits, nil
}

func (c *fakeContext) SeqRm(seq, p0, p1 int) bool {
	if p1 < 0 {
		if p0 < len(c.cells) && c.noRm {
			return false
		}
		p1 = max(p0, len(c.cells))
	}
	c.cells = slices.Delete(c.cells, p0, min(p1, len(c.cells)))
	return true
}

func (c *fakeContext) SeqPosMin(int) int { return c.posMin }

func (c *fakeContext) SeqAdd(seq, p0, p1, delta int) bool {
	if p1+delta != len(c.cells) {
		c.t.Errorf("shift leaves %d positions for %d tokens", p1+delta, len(c.cells))
	}
	return !c.shiftFails
}
func (c *fakeContext) CanShift() bool { return !c.noShift }
func (c *fakeContext) ClearMemory()   { c.cells = nil }

// encContext is a context with an encoder.
type encContext struct{ fakeContext }

func (c *encContext) Encode(_ context.Context, tokens []engine.Token) error {
	c.encoded = tokens
	return nil
}

// fakeSampler answers with the tokens of script, over and over if loop.
type fakeSampler[C Context] struct {
	script   []engine.Token
	loop     bool
	n        int
	accepted []engine.Token
	prompt   int
	onSample func(n int) error
}

func (s *fakeSampler[C]) Sample(C, int) (engine.Token, error) {
	if s.onSample != nil {
		if err := s.onSample(s.n + 1); err != nil {
			return 0, err
		}
	}
	if s.n >= len(s.script) && !s.loop {
		return eos, nil
	}
	s.n++
	return s.script[(s.n-1)%len(s.script)], nil
}

func (s *fakeSampler[C]) Accept(t engine.Token, generated bool) error {
	s.accepted = append(s.accepted, t)
	if !generated {
		s.prompt++
	}
	return nil
}
func (s *fakeSampler[C]) Seed() uint32 { return 42 }

func script(text string, more ...engine.Token) []engine.Token {
	tokens, _ := fakeVocab{}.Tokenize(text, false, false)
	return append(tokens, more...)
}

// fake returns an engine that answers with script, and its parts.
func fake(t *testing.T, nCtx int, script []engine.Token, loop bool) (Engine[*fakeContext], *fakeContext, *fakeSampler[*fakeContext]) {
	c := &fakeContext{t: t, nCtx: nCtx}
	s := &fakeSampler[*fakeContext]{script: script, loop: loop}
	return Engine[*fakeContext]{Vocab: fakeVocab{}, Context: c, Sampler: s, Model: Model{"m.gguf", "llama", 7}, LoadMS: 3}, c, s
}
