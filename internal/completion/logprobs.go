package completion

import (
	"errors"
	"math"

	"gollama/internal/engine"
)

// ErrNaN is returned for logits among which one is not a number: the model or its weights are broken.
var ErrNaN = errors.New("the model's output is not a number")

// minLogprob stands for the logarithm of zero, which JSON cannot say: the
// lowest float32, as in llama.cpp's server.
const minLogprob = -math.MaxFloat32

// Candidate is a token and how likely the model holds it.
type Candidate struct {
	ID      engine.Token `json:"id"`
	Text    string       `json:"text"`                  // the token's bytes
	Base64  []byte       `json:"text_base64,omitempty"` // Text, when that is not UTF-8
	Logprob *float64     `json:"logprob"`               // natural; null for a prompt's first token
}

// TokenLogprob is one token of a text and the likeliest at its place.
type TokenLogprob struct {
	Candidate
	Top []Candidate `json:"top,omitempty"` // best first; equals by id
}

// scored is a token with its logit.
type scored struct {
	id    engine.Token
	logit float32
}

// logSumExp returns the logarithm of the sum of the exponentials of logits, in
// float64, so that logit minus it is a log-probability. The error is ErrNaN,
// also when no logit is above minus infinity.
func logSumExp(logits []float32) (float64, error) {
	top := math.Inf(-1)
	for _, l := range logits {
		if l != l {
			return 0, ErrNaN
		}
		top = max(top, float64(l))
	}
	if math.IsInf(top, 0) {
		return 0, ErrNaN
	}
	sum := 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l) - top)
	}
	return top + math.Log(sum), nil
}

// topN returns the n highest logits, best first; of equals the lower id is first.
func topN(logits []float32, n int) []scored {
	n = min(n, len(logits))
	if n <= 0 {
		return nil
	}
	// A heap with the worst of the best on top: a vocabulary of V costs V
	// comparisons and little more, as hardly any token gets past the top.
	heap := make([]scored, 0, n)
	worse := func(a, b scored) bool { return a.logit < b.logit || a.logit == b.logit && a.id > b.id }
	down := func(i, end int) {
		for {
			c := 2*i + 1
			if c >= end {
				return
			}
			if c+1 < end && worse(heap[c+1], heap[c]) {
				c++
			}
			if !worse(heap[c], heap[i]) {
				return
			}
			heap[i], heap[c] = heap[c], heap[i]
			i = c
		}
	}
	for id, l := range logits {
		s := scored{engine.Token(id), l}
		switch {
		case len(heap) < n:
			heap = append(heap, s)
			if len(heap) == n {
				for i := n/2 - 1; i >= 0; i-- {
					down(i, n)
				}
			}
		case l > heap[0].logit: // not worse(): ids rise, so an equal one comes after
			heap[0] = s
			down(0, n)
		}
	}
	for end := n - 1; end > 0; end-- { // heapsort leaves the best first
		heap[0], heap[end] = heap[end], heap[0]
		down(0, end)
	}
	return heap
}

// logprob describes token t under logits, with the n likeliest tokens.
func (q *sequence) logprob(t engine.Token, logits []float32, n int) (TokenLogprob, error) {
	if int(t) >= len(logits) {
		return TokenLogprob{}, errors.New("token has no logit")
	}
	norm, err := logSumExp(logits)
	if err != nil {
		return TokenLogprob{}, err
	}
	r := TokenLogprob{Candidate: q.candidate(t, float64(logits[t])-norm)}
	for _, s := range topN(logits, n) {
		r.Top = append(r.Top, q.candidate(s.id, float64(s.logit)-norm))
	}
	return r, nil
}

func (q *sequence) candidate(t engine.Token, logprob float64) Candidate {
	logprob = max(logprob, minLogprob)
	c := q.name(t)
	c.Logprob = &logprob
	return c
}

// name returns a candidate without a log-probability.
func (q *sequence) name(t engine.Token) Candidate {
	text, raw := jsonText(q.vocab.Piece(t, true))
	return Candidate{ID: t, Text: text, Base64: raw}
}
