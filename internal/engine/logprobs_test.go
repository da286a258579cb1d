//go:build cgo

package engine

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
)

// softmax64 is logSoftmax with the exponentials that are nearest in 32 bits, which libm's expf nearly always returns.
func softmax64(logits []float32, t Token) float64 {
	largest := float32(math.Inf(-1))
	for _, x := range logits {
		largest = max(largest, x)
	}
	sum := 0.0
	for _, x := range logits {
		sum += float64(float32(math.Exp(float64(x - largest))))
	}
	return float64(logits[t]-largest) - math.Log(sum)
}

// llama-perplexity's number has nine digits and more, so that exponentials have to be rounded as its are. One in some 100,000
// may lie so close to the middle of two 32-bit numbers that it goes the other way, by 6e-8 of itself.
func TestLogSoftmax(t *testing.T) {
	const tolerance, rounded = 6.1e-8, 1e-13
	rnd := rand.New(rand.NewPCG(1, 2))
	worst, off, n := 0.0, 0, 0
	for size := 1; size <= 1200; size += 1 + size/16 {
		for _, spread := range []float64{0, 1, 20, 120} {
			logits := make([]float32, size)
			for i := range logits {
				logits[i] = float32(rnd.NormFloat64() * spread)
			}
			if spread > 50 {
				logits[rnd.IntN(size)] = float32(math.Inf(-1))
				logits[0] = 3
			}
			token := Token(rnd.IntN(size))
			got, want := logSoftmax(logits, token), softmax64(logits, token)
			if got == want { // -Inf, too
				continue
			}
			worst = max(worst, math.Abs(got-want))
			if n++; math.Abs(got-want) > rounded {
				off++
			}
		}
	}
	if !(worst <= tolerance) || off > 2 {
		t.Errorf("%d of %d are off by more than %g, one by %.3g", off, n, rounded, worst)
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, logits := range [][]float32{{nan}, {1, nan, 2}, {-inf, -inf}, {1, inf}, append(make([]float32, 300), nan)} {
		if got := logSoftmax(logits, 0); !math.IsNaN(got) {
			t.Errorf("logits %v: %v, want NaN", logits[max(0, len(logits)-3):], got)
		}
	}
}

// Logprobs of a model's rows, in any order and twice, are those of its logits.
func TestLogprobs(t *testing.T) {
	p := testParams(needStory(t))
	c := openContext(t, openModel(t, p), p)
	var b Batch
	for i, tok := range []Token{1, 403, 407, 261, 378} {
		b.Add(tok, i, 0, true)
	}
	if err := c.Decode(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	rows, tokens := []int{4, 0, 2, 2}, []Token{0, 403, 511, 261}
	out := make([]float64, len(rows))
	if err := c.Logprobs(rows, tokens, out); err != nil {
		t.Fatal(err)
	}
	for i, r := range rows {
		logits, err := c.Logits(r)
		if err != nil {
			t.Fatal(err)
		}
		if want := softmax64(logits, tokens[i]); math.Abs(out[i]-want) > 1e-9 {
			t.Errorf("row %d, token %d: %v, want %v", r, tokens[i], out[i], want)
		}
	}
}
