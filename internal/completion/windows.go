package completion

import (
	"context"
	"fmt"

	"gollama/internal/engine"
)

// Windows is how llama-perplexity measures a long text (tools/perplexity/perplexity.cpp, perplexity at
// v0.5.0): the text's tokens are cut into windows of Size, what is left over is dropped, and in each window
// the tokens of the second half, but for its first, are scored, so that each has at least half a window
// before it. The first token of each window is replaced by BOS if BOS is not TokenNull.
type Windows struct {
	Tokens []engine.Token // with the BOS that the tokenizer adds
	Size   int            // tokens
	Limit  int            // windows at most; negative means all
	BOS    engine.Token   // engine.TokenNull for none
}

// TooShortError says that a text is shorter than two windows, which llama-perplexity requires.
type TooShortError struct {
	Tokens int // in the text
	Window int
}

func (e *TooShortError) Error() string {
	return fmt.Sprintf("the text is too short: %d tokens, want at least %d, two windows", e.Tokens, 2*e.Window)
}

// minWindow is the least size of which the second half has a token to score.
const minWindow = 4

// Parallel is how many windows llama-perplexity evaluates side by side with a --batch-size of nBatch.
func (w Windows) Parallel(nBatch int) int { return max(1, nBatch/max(w.Size, 1)) }

// Count is the number of windows.
func (w Windows) Count() int {
	n := len(w.Tokens) / w.Size
	if w.Limit >= 0 {
		n = min(n, w.Limit)
	}
	return n
}

// token returns token k of window i.
func (w Windows) token(i, k int) engine.Token {
	if k == 0 && w.BOS != engine.TokenNull {
		return w.BOS
	}
	return w.Tokens[i*w.Size+k]
}

// Windows scores windows, as many side by side as the context has sequences. each, which may be nil, gets the total
// after each of them, counted from 1. Errors: *TooShortError, ErrNaN, and those of the engine and of each.
//
// The engine's kernels round by how many tokens of a sequence they get at once: flash attention on the CPU has a less
// exact one for fewer than 64, which moves the perplexity of a small model by 1e-4 of itself. For llama-perplexity's
// number, Parallel sequences and its batch sizes give its shapes.
func (s *Scorer[C]) Windows(ctx context.Context, w Windows, each func(i int, total Score) error) (Score, error) {
	var total Score
	if w.Size < minWindow {
		return total, fmt.Errorf("windows of %d tokens, want %d or more", w.Size, minWindow)
	}
	if len(w.Tokens) < 2*w.Size {
		return total, &TooShortError{len(w.Tokens), w.Size}
	}
	for i := 0; i < w.Count(); {
		n := min(s.Context.NSeqMax(), w.Count()-i)
		logprobs, err := s.windows(ctx, w, i, n)
		if err != nil {
			return total, err
		}
		for _, lp := range logprobs {
			total.Add(lp...)
			if i++; each == nil {
				continue
			}
			if err := each(i, total); err != nil {
				return total, err
			}
		}
	}
	return total, nil
}

// windows evaluates n windows from number i on, an equal part of each in a batch, and returns the log-probabilities of each.
func (s *Scorer[C]) windows(ctx context.Context, w Windows, i, n int) ([][]float64, error) {
	s.Context.ClearMemory()
	logprobs := make([][]float64, n)
	first := w.Size / 2
	part := max(1, s.step()/n)
	for pos := 0; pos < w.Size; pos += part {
		s.reset()
		for k := range n {
			for j := pos; j < min(pos+part, w.Size); j++ {
				if j >= first && j+1 < w.Size {
					s.rows = append(s.rows, len(s.batch.Tokens))
					s.tokens = append(s.tokens, w.token(i+k, j+1))
				}
				// The last token says nothing that is scored. It is there for the shape.
				s.batch.Add(w.token(i+k, j), j, k, j >= first)
			}
		}
		if err := s.evaluate(ctx); err != nil {
			return nil, err
		}
		each := len(s.out) / n
		for k := range n {
			logprobs[k] = append(logprobs[k], s.out[k*each:(k+1)*each]...)
		}
	}
	return logprobs, nil
}
