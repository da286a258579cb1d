package completion

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"gollama/internal/engine"
	"gollama/internal/gguf"
)

// openStories reads the header of the shared model.
func openStories(t *testing.T) *gguf.File {
	t.Helper()
	f, err := gguf.Open("../../../shared/models/stories260K.gguf")
	if err != nil {
		t.Skipf("%v: this test reads the shared model", err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// cellSession is a session over a context whose texts depend on every token in it.
func cellSession(t interface{ Errorf(string, ...any) }, nCtx int) (*Session[*cellContext], *cellContext) {
	c := newCells(t.Errorf, nCtx, 1, 16)
	s, err := NewSession(Engine[*cellContext]{Vocab: fakeVocab{}, Context: c})
	if err != nil {
		t.Errorf("NewSession: %v", err)
	}
	return s, c
}

func cellSmpl(open *int) *cellSampler {
	*open++
	return &cellSampler{open: open, rnd: rand.New(rand.NewPCG(1, 1))}
}

// TestSessionProperty: whatever came before, also a call that failed or was
// cancelled, a text is that of a fresh context; and no more is evaluated than
// what the context does not hold.
func TestSessionProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nCtx := rapid.IntRange(30, 80).Draw(t, "nCtx")
		s, c := cellSession(t, nCtx)
		c.noRm = rapid.Bool().Draw(t, "noRm")
		open := 0
		prompt := ""
		for range rapid.IntRange(1, 8).Draw(t, "calls") {
			switch rapid.IntRange(0, 3).Draw(t, "prompt") { // it grows, as a conversation does, is cut, or is another
			case 0:
				prompt = rapid.StringMatching(`[a-c]{0,30}`).Draw(t, "new")
			case 1:
				prompt = prompt[:len(prompt)/2]
			default:
				prompt += rapid.StringMatching(`[a-c]{0,10}`).Draw(t, "more")
			}
			opt := Options{Prompt: prompt, NPredict: rapid.IntRange(0, 60).Draw(t, "n"), Keep: rapid.IntRange(-1, 3).Draw(t, "keep"),
				Overflow: rapid.SampledFrom([]Overflow{OverflowError, OverflowShift, OverflowTruncate}).Draw(t, "overflow"),
				NProbs:   1, PromptLogprobs: rapid.IntRange(0, 4).Draw(t, "logprobs") == 0}
			if c.noRm {
				opt.Overflow = OverflowError
			}
			if rapid.IntRange(0, 5).Draw(t, "fault") == 0 {
				c.err = errFake
				if _, err := s.Generate(t.Context(), opt, cellSmpl(&open), nil); err == nil {
					t.Fatal("a failing engine gives a text")
				}
				c.err = nil
				continue
			}
			if rapid.IntRange(0, 5).Draw(t, "cancel") == 0 {
				ctx, cancel := context.WithCancel(context.Background())
				n := 0
				r, err := s.Generate(ctx, opt, cellSmpl(&open), func(Delta) error {
					if n++; n == 3 {
						cancel()
					}
					return nil
				})
				cancel()
				if err == nil && r.FinishReason == FinishCancelled {
					continue
				}
			}
			held, before := slices.Clone(s.cells), c.tokens
			got, err := s.Generate(t.Context(), opt, cellSmpl(&open), nil)
			fresh, _ := cellSession(t, nCtx)
			want, werr := fresh.Generate(t.Context(), opt, cellSmpl(&open), nil)
			if fmt.Sprint(err) != fmt.Sprint(werr) || got.Text != want.Text || got.FinishReason != want.FinishReason || got.Truncated != want.Truncated ||
				fmt.Sprint(logprobs(got.Logprobs), logprobs(got.PromptLogprobs)) != fmt.Sprint(logprobs(want.Logprobs), logprobs(want.PromptLogprobs)) {
				t.Fatalf("after %v:\ngot  %+v, %v\nwant %+v, %v", held, got, err, want, werr)
			}
			if err != nil {
				continue
			}
			evaluated := got.Usage.PromptTokens - got.Usage.CachedTokens + max(0, got.Usage.CompletionTokens-1)
			if c.tokens-before != evaluated {
				t.Fatalf("%d tokens evaluated, the usage %+v says %d", c.tokens-before, got.Usage, evaluated)
			}
		}
	})
}

// TestSessionReuse: the same prompt again takes one token, and a cache that lost its beginning is not built upon.
func TestSessionReuse(t *testing.T) {
	s, c := cellSession(t, 256)
	open := 0
	opt := Options{Prompt: strings.Repeat("ab", 50), NPredict: 5}
	first, err := s.Generate(t.Context(), opt, cellSmpl(&open), nil)
	if err != nil {
		t.Fatal(err)
	}
	before := c.tokens
	second, err := s.Generate(t.Context(), opt, cellSmpl(&open), nil)
	if err != nil || second.Text != first.Text || second.Usage.CachedTokens != 100 || second.Timings.PromptN != 1 || c.tokens-before != 5 {
		t.Errorf("again: got %+v, %v, %d tokens evaluated, want 1 of the prompt and 4 of the answer", second, err, c.tokens-before)
	}
	e, f, _ := fake(t, 256, script("hello"), false)
	sw, err := NewSession(e)
	if err != nil {
		t.Fatal(err)
	}
	f.posMin = 3
	for range 2 {
		r, err := sw.Generate(t.Context(), Options{Prompt: "abcdef"}, e.Sampler, nil)
		if err != nil || r.Usage.CachedTokens != 0 {
			t.Errorf("a window that moved: %+v, %v", r.Usage, err)
		}
	}
}

// TestSessionState has rows 9 to 17, 25, 29 and 30: stop reasons, counters and
// flags are those of the call alone.
func TestSessionState(t *testing.T) {
	e, c, _ := fake(t, 64, nil, false)
	s, err := NewSession(e)
	if err != nil {
		t.Fatal(err)
	}
	generate := func(opt Options, text string, loop bool) (Result, error) {
		return s.Generate(t.Context(), opt, &fakeSampler[*fakeContext]{script: script(text), loop: loop}, nil)
	}
	full, err := generate(Options{Prompt: "ab", NPredict: -1}, "x", true)
	if err != nil || full.FinishReason != FinishContext || full.Truncated || full.Usage.CompletionTokens != 61 {
		t.Errorf("full: got %+v, %v", full, err)
	}
	shifted, err := generate(Options{Prompt: "ab", NPredict: 200, Overflow: OverflowShift, Keep: 1}, "y", true)
	if err != nil || !shifted.Truncated || shifted.Usage.CompletionTokens != 200 || !slices.Equal(c.cells[:2], []engine.Token{bos, 'a'}) {
		t.Errorf("shifted: got %+v, %v, context begins %v", shifted.Usage, err, c.cells[:2])
	}
	if _, err := generate(Options{Prompt: strings.Repeat("z", 100)}, "", false); err == nil {
		t.Error("a prompt that is too long is none")
	}
	r, err := generate(Options{Prompt: "ab", NPredict: 3, Stop: []string{"q"}}, "pqr", false)
	if err != nil || r.Text != "p" || r.FinishReason != FinishStop || r.Stop != "q" || r.Truncated || r.Usage.CompletionTokens != 2 || len(r.Logprobs) != 0 {
		t.Errorf("after those: got %+v, %v", r, err)
	}
	// A shift moved all but the first two tokens: only they can be built upon.
	if r.Usage.CachedTokens != 2 {
		t.Errorf("%d tokens are reused after a shift, want 2", r.Usage.CachedTokens)
	}
	// Step by step.
	if err := s.Begin(t.Context(), Options{Prompt: "ab", NPredict: 2}, &fakeSampler[*fakeContext]{script: script("mno")}, nil); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, true, false, false} {
		if more, err := s.Next(t.Context()); more != want || err != nil {
			t.Errorf("step %d: more %v, %v", i, more, err)
		}
	}
	if r := s.End(nil); r.Text != "mn" || r.FinishReason != FinishLength {
		t.Errorf("got %+v", r)
	}
}

// TestPartialStops has rows 31 and 64: what is held back of a text is the
// longest end of it that begins a stop text.
func TestPartialStops(t *testing.T) {
	for _, tt := range []struct {
		text, stop string
		out        int // bytes let through
		full       bool
	}{
		{"Hello wor", "world", 6, false},
		{"abc", "x", 3, false},
		{"abab", "ab", 0, true}, // the first of two is the one that ends the text
		{"xxab", "ab", 2, true},
		{"aab", "ac", 3, false},
		{"aa", "aab", 0, false},
	} {
		m, err := NewStopMatcher([]string{tt.stop})
		if err != nil {
			t.Fatal(err)
		}
		got, _, ok := m.Push([]byte(tt.text))
		if len(got) != tt.out || ok != tt.full {
			t.Errorf("%q, stop %q: %d bytes come through, found %v, want %d, %v", tt.text, tt.stop, len(got), ok, tt.out, tt.full)
		}
	}
	// "wor" and "ld" in two tokens are never written, and "wor" alone is, in the end.
	e, _, _ := fake(t, 64, script("Hello world"), false)
	for text, want := range map[string]string{"Hello world": "Hello ", "Hello wor": "Hello wor"} {
		e.Sampler = &fakeSampler[*fakeContext]{script: script(text)}
		var written string
		r, err := Generate(t.Context(), e, Options{NPredict: -1, Stop: []string{"world"}}, func(d Delta) error { written += d.Text; return nil })
		if err != nil || r.Text != want || written != want {
			t.Errorf("%q: got %q, written %q, %v, want %q", text, r.Text, written, err, want)
		}
	}
}

func TestSessionEmitError(t *testing.T) {
	s, _ := cellSession(t, 64)
	open := 0
	_, err := s.Generate(t.Context(), Options{Prompt: "a", NPredict: 5}, cellSmpl(&open), func(Delta) error { return errFake })
	if !errors.Is(err, errFake) {
		t.Errorf("got %v, want %v", err, errFake)
	}
	if r, err := s.Generate(t.Context(), Options{Prompt: "a", NPredict: 5}, cellSmpl(&open), nil); err != nil || r.Text == "" {
		t.Errorf("after it: %+v, %v", r, err)
	}
}

func TestFitParallel(t *testing.T) {
	for _, tt := range []struct {
		want, extra int
		each, free  uint64
		got         int
	}{
		{32, 0, 100, 10000, 32}, {32, 0, 100, 1000, 9}, {32, 1, 100, 1000, 8}, {32, 0, 100, 10, 1}, {32, 0, 0, 10, 32}, {32, 0, 100, 0, 32},
	} {
		if got := FitParallel(tt.want, tt.extra, tt.each, tt.free); got != tt.got {
			t.Errorf("%+v: got %d", tt, got)
		}
	}
}
