package completion

import (
	"context"
	"errors"
	"fmt"
	"math"

	"gollama/internal/engine"
)

// ScoreContext is what scoring needs of *engine.Context, all sequences of which it uses.
type ScoreContext interface {
	NCtxSeq() int
	NBatch() int
	NUBatch() int
	NSeqMax() int
	Decode(ctx context.Context, b *engine.Batch) error
	// Logprobs gives the log-probability of each token after a row of the last batch; NaN where the logits are.
	Logprobs(rows []int, tokens []engine.Token, out []float64) error
	SeqRm(seq, p0, p1 int) bool
	SeqCp(src, dst, p0, p1 int) bool
	ClearMemory()
}

// ErrNotCausal is returned for a model or context whose logits are not those of the next token.
var ErrNotCausal = errors.New("a model that is not a decoder with causal attention has no log-probabilities of a text")

// Span is a text to score: the log-probability of each token from From on,
// given all before it. From is 1 or more, as nothing says what the first
// token's would be.
type Span struct {
	Tokens []engine.Token
	From   int
	Tag    any // the caller's
}

// Scorer scores many texts in one context: several at once in a batch, long
// ones in parts. No more than NUBatch rows of logits exist at a time.
type Scorer[C ScoreContext] struct {
	Context C

	batch  engine.Batch
	rows   []int
	tokens []engine.Token
	out    []float64
}

// NewScorer returns a scorer in c, whose memory it clears.
func NewScorer[C ScoreContext](c C) *Scorer[C] {
	c.ClearMemory()
	return &Scorer[C]{Context: c}
}

// step is how many tokens one batch has: what the engine computes at once.
func (s *Scorer[C]) step() int { return min(s.Context.NBatch(), s.Context.NUBatch()) }

// check returns an error for a span that cannot be scored.
func (s *Scorer[C]) check(sp Span) error {
	switch n := len(sp.Tokens); {
	case sp.From < 1:
		return fmt.Errorf("score: from token %d, want 1 or more", sp.From)
	case n-1 > s.Context.NCtxSeq(): // the last token is not evaluated
		return &PromptTooLongError{Tokens: n, Limit: s.Context.NCtxSeq() + 1}
	}
	return nil
}

// Run scores the spans that next returns until it returns false, and passes the
// log-probabilities of each to done, in order: of Tokens[From:], valid during
// the call. Spans that fit together into one batch are evaluated at once.
//
// The error is a *PromptTooLongError, ErrNaN, or that of the engine or of done;
// it ends the work.
func (s *Scorer[C]) Run(ctx context.Context, next func() (Span, bool), done func(sp Span, logprobs []float64) error) error {
	var group []Span
	size := 0
	flush := func() error {
		err := s.group(ctx, group, done)
		group, size = group[:0], 0
		return err
	}
	for {
		sp, ok := next()
		if !ok {
			return flush()
		}
		if err := s.check(sp); err != nil {
			return err
		}
		n := max(len(sp.Tokens)-1, 0)
		if len(group) == s.Context.NSeqMax() || size+n > s.step() {
			if err := flush(); err != nil {
				return err
			}
		}
		group, size = append(group, sp), size+n
	}
}

// group scores spans that are one batch together, or one that is longer than a batch.
func (s *Scorer[C]) group(ctx context.Context, group []Span, done func(Span, []float64) error) error {
	s.Context.ClearMemory()
	if len(group) == 1 {
		sp := group[0]
		lp, err := s.text(ctx, sp.Tokens, 0, 0, sp.From)
		if err != nil {
			return err
		}
		return done(sp, lp)
	}
	s.reset()
	for i, sp := range group {
		s.add(sp.Tokens, 0, len(sp.Tokens)-1, i, sp.From)
	}
	if err := s.evaluate(ctx); err != nil {
		return err
	}
	at := 0
	for _, sp := range group {
		n := max(len(sp.Tokens)-sp.From, 0)
		if err := done(sp, s.out[at:at+n]); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// text evaluates tokens[pos:] of sequence seq, which has those before, and returns the log-probabilities of tokens[from:],
// from > pos.
func (s *Scorer[C]) text(ctx context.Context, tokens []engine.Token, pos, seq, from int) ([]float64, error) {
	var all []float64
	for end := len(tokens) - 1; pos < end; {
		to := min(pos+s.step(), end)
		s.reset()
		s.add(tokens, pos, to, seq, from)
		if err := s.evaluate(ctx); err != nil {
			return nil, err
		}
		all = append(all, s.out...)
		pos = to
	}
	return all, nil
}

func (s *Scorer[C]) reset() {
	s.batch.Reset()
	s.rows, s.tokens = s.rows[:0], s.tokens[:0]
}

// add puts tokens[pos:end] into the batch, and asks for the log-probability of each token after one of them, from index from on.
func (s *Scorer[C]) add(tokens []engine.Token, pos, end, seq, from int) {
	for i := pos; i < end; i++ {
		wanted := i+1 >= from
		if wanted {
			s.rows = append(s.rows, len(s.batch.Tokens))
			s.tokens = append(s.tokens, tokens[i+1])
		}
		s.batch.Add(tokens[i], i, seq, wanted)
	}
}

// evaluate decodes the batch and sets out, a value for each row asked for.
func (s *Scorer[C]) evaluate(ctx context.Context) error {
	s.out = s.out[:0]
	if len(s.batch.Tokens) == 0 {
		return nil
	}
	if err := s.Context.Decode(ctx, &s.batch); err != nil {
		return fmt.Errorf("evaluate %d tokens: %w", len(s.batch.Tokens), err)
	}
	return s.take()
}

// take sets out from the logits of the last batch.
func (s *Scorer[C]) take() error {
	s.out = append(s.out[:0], make([]float64, len(s.rows))...)
	if err := s.Context.Logprobs(s.rows, s.tokens, s.out); err != nil {
		return err
	}
	for i, v := range s.out {
		if math.IsNaN(v) {
			return ErrNaN
		}
		s.out[i] = max(v, minLogprob)
	}
	return nil
}

// Score is the sum over scored tokens.
type Score struct {
	N     int     // tokens
	Sum   float64 // of their log-probabilities
	sumSq float64
}

// Add counts log-probabilities.
func (s *Score) Add(logprobs ...float64) {
	for _, v := range logprobs {
		s.N++
		s.Sum += v
		s.sumSq += v * v
	}
}

// Perplexity is exp(-Sum/N), 1 for no tokens. JSON has no infinity: the largest float64 stands for it.
func (s *Score) Perplexity() float64 {
	if s.N == 0 {
		return 1
	}
	return min(math.Exp(-s.Sum/float64(s.N)), math.MaxFloat64)
}

// Error is the standard error of the perplexity, as llama-perplexity reports it
// after "+/-": the perplexity times that of the mean log-probability, the
// tokens taken as independent. It is 0 for fewer than 2 tokens.
func (s *Score) Error() float64 {
	if s.N < 2 {
		return 0
	}
	n := float64(s.N)
	mean := s.Sum / n
	return min(math.Sqrt(max(s.sumSq/n-mean*mean, 0)/(n-1))*s.Perplexity(), math.MaxFloat64)
}
