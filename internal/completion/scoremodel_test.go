//go:build cgo

package completion

import (
	"math"
	"os"
	"testing"

	"gollama/internal/engine"
)

// openScorer makes a scorer over the story model.
func openScorer(t *testing.T, parallel, nCtx int) (*Scorer[*engine.Context], *engine.Model) {
	t.Helper()
	p := engine.DefaultParams()
	p.Model, p.NParallel, p.NCtx, p.Warmup, p.KVUnified, p.CPUParams.NThreads = stories, parallel, parallel*nCtx, false, false, 1
	m, c := openWith(t, &p)
	return NewScorer(c), m
}

// openWith opens the story model as p says, or skips.
func openWith(t *testing.T, p *engine.Params) (*engine.Model, *engine.Context) {
	t.Helper()
	if _, err := os.Stat(stories); err != nil {
		t.Skipf("%v: this test reads the shared model", err)
	}
	m, err := engine.LoadModel(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	c, err := engine.NewContext(m, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return m, c
}

// Every row of the shim against the float64 sum over the same logits: 1e-6, as its exponentials are float32.
func TestLogprobsFloat64(t *testing.T) {
	s, m := openScorer(t, 1, 256)
	tokens, err := m.Vocab().Tokenize("Once upon a time there was a dog named Spot. He was big.", true, false)
	if err != nil {
		t.Fatal(err)
	}
	s.add(tokens, 0, len(tokens)-1, 0, 1)
	if err := s.evaluate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, got := range s.out {
		logits, err := s.Context.Logits(i)
		if err != nil {
			t.Fatal(err)
		}
		norm, err := logSumExp(logits)
		if err != nil {
			t.Fatal(err)
		}
		if want := float64(logits[tokens[i+1]]) - norm; math.Abs(got-want) > 1e-6 {
			t.Errorf("token %d: got %v, want %v", i+1, got, want)
		}
	}
}

// What is evaluated once and copied gives what evaluating each choice alone does.
func TestStoryChoices(t *testing.T) {
	s, m := openScorer(t, 3, 256)
	texts := []string{" time", " tree", " little girl named Lily"}
	choices, err := NewChoices(m.Vocab(), "Once upon a", texts, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Choices(t.Context(), choices); err != nil {
		t.Fatal(err)
	}
	for i := range choices {
		c := &choices[i]
		var alone []float64
		given := false
		err := s.Run(t.Context(), func() (Span, bool) {
			more := !given
			given = true
			return Span{Tokens: c.Tokens, From: c.From}, more
		}, func(_ Span, lp []float64) error { alone = append(alone, lp...); return nil })
		if err != nil || len(alone) != len(c.Logprobs) {
			t.Fatalf("%q: %d values, %v, want %d", texts[i], len(alone), err, len(c.Logprobs))
		}
		for k := range alone {
			// 2e-3: kernels round by the number of rows, and the cache is f16.
			if math.Abs(alone[k]-c.Logprobs[k]) > 2e-3 {
				t.Errorf("%q, token %d: %v after the shared prompt, %v alone", texts[i], k, c.Logprobs[k], alone[k])
			}
		}
	}
	// llama-completion of the pin has -0.0007 for " time" (the reference's score of "Once upon a time").
	if sum := choices[0].Score(); math.Abs(sum.Sum+0.0007) > 2e-3 || sum.N != 1 {
		t.Errorf("%+v, want -0.0007 for one token", sum)
	}
}
