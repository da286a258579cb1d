package completion

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"gollama/internal/engine"
)

// scoreContext is a context whose model holds token t likely by what the whole sequence before it was: the log-probability
// is want(before, t).
type scoreContext struct {
	t       *testing.T
	nCtx    int
	nBatch  int
	nSeq    int
	noRm    bool // parts of a sequence cannot be removed
	nan     bool
	seqs    map[int][]engine.Token
	after   [][]engine.Token // of each token of the last batch
	outs    []bool
	decoded int // tokens
	batches int
}

func want(before []engine.Token, t engine.Token) float64 {
	h := 0
	for _, b := range before {
		h = (h*31 + int(b) + 1) % 9973
	}
	return -float64((h*31+int(t)+1)%9973) / 1000
}

func newScoreContext(t *testing.T, nCtx, nBatch, nSeq int) *scoreContext {
	return &scoreContext{t: t, nCtx: nCtx, nBatch: nBatch, nSeq: nSeq, seqs: map[int][]engine.Token{}}
}

func (c *scoreContext) NCtxSeq() int { return c.nCtx }
func (c *scoreContext) NBatch() int  { return 2 * c.nBatch }
func (c *scoreContext) NUBatch() int { return c.nBatch }
func (c *scoreContext) NSeqMax() int { return c.nSeq }
func (c *scoreContext) ClearMemory() { clear(c.seqs) }
func (c *scoreContext) Decode(_ context.Context, b *engine.Batch) error {
	if len(b.Tokens) == 0 || len(b.Tokens) > c.nBatch {
		c.t.Errorf("a batch of %d tokens, want 1 to %d", len(b.Tokens), c.nBatch)
	}
	c.after, c.outs = nil, slices.Clone(b.Output)
	c.decoded += len(b.Tokens)
	c.batches++
	for i, tok := range b.Tokens {
		seq := int(b.Seq[i])
		if seq >= c.nSeq || int(b.Pos[i]) != len(c.seqs[seq]) || len(c.seqs[seq]) == c.nCtx {
			c.t.Fatalf("token %d: sequence %d, position %d, have %d of %d", i, seq, b.Pos[i], len(c.seqs[seq]), c.nCtx)
		}
		c.seqs[seq] = append(slices.Clip(c.seqs[seq]), tok)
		c.after = append(c.after, c.seqs[seq])
	}
	return nil
}

func (c *scoreContext) Logprobs(rows []int, tokens []engine.Token, out []float64) error {
	for i, r := range rows {
		if !c.outs[r] {
			c.t.Errorf("row %d has no output", r)
		}
		out[i] = want(c.after[r], tokens[i])
		if c.nan {
			out[i] = math.NaN()
		}
	}
	return nil
}

func (c *scoreContext) SeqRm(seq, p0, p1 int) bool {
	if p0 <= 0 {
		delete(c.seqs, seq)
		return true
	}
	if c.noRm {
		return false
	}
	c.seqs[seq] = c.seqs[seq][:p0]
	return true
}

func (c *scoreContext) SeqCp(src, dst, p0, p1 int) bool {
	c.seqs[dst] = slices.Clone(c.seqs[src])
	return true
}

// text returns n tokens that depend on salt.
func tokensOf(salt, n int) []engine.Token {
	var list []engine.Token
	for i := range n {
		list = append(list, engine.Token((salt*7+i*i*3+i)%250))
	}
	return list
}

func wantAll(tokens []engine.Token, from int) []float64 {
	var list []float64
	for i := from; i < len(tokens); i++ {
		list = append(list, want(tokens[:i], tokens[i]))
	}
	return list
}

// Texts of all lengths around the batch's and the sequences' limits, mixed.
func TestScorerRun(t *testing.T) {
	lengths := []int{1, 2, 9, 8, 7, 30, 3, 3, 3, 3, 3, 17, 1, 1, 2, 40, 5}
	for _, nSeq := range []int{1, 2, 3, 8} {
		c := newScoreContext(t, 40, 8, nSeq)
		s := NewScorer(c)
		i, got := 0, 0
		err := s.Run(t.Context(), func() (Span, bool) {
			if i == len(lengths) {
				return Span{}, false
			}
			sp := Span{Tokens: tokensOf(i, lengths[i]), From: 1 + i%3, Tag: i}
			i++
			return sp, true
		}, func(sp Span, lp []float64) error {
			if sp.Tag != got || !slices.Equal(lp, wantAll(sp.Tokens, sp.From)) {
				t.Errorf("%d sequences: text %d: got %v of %v, want %v", nSeq, got, lp, sp.Tag, wantAll(sp.Tokens, sp.From))
			}
			got++
			return nil
		})
		if err != nil || got != len(lengths) {
			t.Errorf("%d sequences: %d texts, %v, want %d", nSeq, got, err, len(lengths))
		}
	}
}

func TestScorerErrors(t *testing.T) {
	one := func(c *scoreContext, sp Span) error {
		done := false
		return NewScorer(c).Run(t.Context(), func() (Span, bool) { more := !done; done = true; return sp, more }, func(Span, []float64) error { return errFake })
	}
	var long *PromptTooLongError
	if err := one(newScoreContext(t, 8, 8, 1), Span{Tokens: tokensOf(1, 10), From: 1}); !errors.As(err, &long) || *long != (PromptTooLongError{10, 9}) {
		t.Errorf("10 tokens: got %v, want too long, limit 9", err)
	}
	if err := one(newScoreContext(t, 8, 8, 1), Span{Tokens: tokensOf(1, 2), From: 0}); err == nil {
		t.Error("from 0: no error, want one")
	}
	if err := one(newScoreContext(t, 8, 8, 1), Span{Tokens: tokensOf(1, 2), From: 1}); !errors.Is(err, errFake) {
		t.Errorf("got %v, want that of done", err)
	}
	c := newScoreContext(t, 8, 8, 1)
	c.nan = true
	if err := one(c, Span{Tokens: tokensOf(1, 2), From: 1}); !errors.Is(err, ErrNaN) {
		t.Errorf("got %v, want ErrNaN", err)
	}
}

// The windows are those of llama-perplexity: see Windows.
func TestScorerWindows(t *testing.T) {
	tokens := append([]engine.Token{bos}, tokensOf(5, 86)...)
	for _, tt := range []struct{ size, limit, nSeq, windows int }{{8, -1, 1, 10}, {8, -1, 4, 10}, {8, 3, 2, 3}, {9, -1, 2, 9}, {30, -1, 1, 2}, {43, -1, 2, 2}, {4, -1, 8, 21}} {
		var lp []float64
		for i := range tt.windows {
			w := append([]engine.Token{bos}, tokens[i*tt.size+1:(i+1)*tt.size]...)
			lp = append(lp, wantAll(w, tt.size/2+1)...)
		}
		var total Score
		total.Add(lp...)
		calls := 0
		got, err := NewScorer(newScoreContext(t, 64, 16, tt.nSeq)).Windows(t.Context(), Windows{tokens, tt.size, tt.limit, bos}, func(i int, s Score) error {
			calls++
			if i != calls || s.N != i*(tt.size-tt.size/2-1) {
				t.Errorf("%+v: call %d with %d, %d tokens", tt, calls, i, s.N)
			}
			return nil
		})
		if err != nil || got != total || calls != tt.windows {
			t.Errorf("%+v: got %+v, %v, %d calls, want %+v", tt, got, err, calls, total)
		}
	}
	var short *TooShortError
	if _, err := NewScorer(newScoreContext(t, 64, 16, 1)).Windows(t.Context(), Windows{tokens, 44, -1, bos}, nil); !errors.As(err, &short) {
		t.Errorf("87 tokens for windows of 44: got %v, want too short", err)
	}
}

func TestScore(t *testing.T) {
	var s Score
	if s.Perplexity() != 1 || s.Error() != 0 {
		t.Errorf("empty: %v, %v, want 1, 0", s.Perplexity(), s.Error())
	}
	s.Add(-1, -2, -3)
	// mean 2, variance 2/3, standard error of the mean sqrt(2/3/2)
	if p, e := s.Perplexity(), s.Error(); math.Abs(p-math.Exp(2)) > 1e-12 || math.Abs(e-math.Exp(2)*math.Sqrt(1.0/3)) > 1e-12 {
		t.Errorf("got %v, %v, want %v, %v", p, e, math.Exp(2), math.Exp(2)*math.Sqrt(1.0/3))
	}
	s.Add(minLogprob) // a token that the model holds impossible: JSON must be able to say what comes of it
	if p, e := s.Perplexity(), s.Error(); p != math.MaxFloat64 || e != math.MaxFloat64 {
		t.Errorf("with an impossible token: %v, %v, want %v for both", p, e, math.MaxFloat64)
	}
}

func TestScorerChoices(t *testing.T) {
	for _, tt := range []struct {
		name   string
		prompt string
		texts  []string
		nSeq   int
		noRm   bool
		once   int // tokens evaluated
	}{
		{"plain", "prompt", []string{" a", " bc", " def"}, 4, false, 8 + 0 + 1 + 2},
		{"one at a time", "prompt", []string{" a", " bc", " def"}, 2, true, 8 + 0 + 1 + 2},
		{"one sequence", "prompt", []string{" a", " bc", " def"}, 1, false, 8 + 0 + 1 + 2},
		{"one choice", "prompt", []string{"xyz"}, 2, false, 9},
		{"nothing shared", "", []string{"abc", "defg"}, 3, false, 1 + 2 + 3},
		{"equal", "p", []string{"ab", "ab"}, 3, false, 3},
		{"a prefix of the other", "p", []string{"ab", "abcd"}, 3, false, 3 + 2},
		{"longer than a batch", "a prompt longer than a batch of sixteen", []string{"and choices as long as that", "or longer, or even longer"}, 3, false, 40 + 26 + 24},
		{"many", "p", []string{"a1", "a2", "a3", "a4", "b5", "b6", "b7"}, 3, false, 2 + 7},
	} {
		choices, err := NewChoices(fakeVocab{}, tt.prompt, tt.texts, false)
		if err != nil {
			t.Fatal(err)
		}
		c := newScoreContext(t, 80, 16, tt.nSeq)
		c.noRm = tt.noRm
		if err := NewScorer(c).Choices(t.Context(), choices); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		for i, ch := range choices {
			if n := len(tt.prompt) + 1; ch.From != n || !slices.Equal(ch.Logprobs, wantAll(ch.Tokens, n)) {
				t.Errorf("%s: choice %d: from %d: got %v, want from %d: %v", tt.name, i, ch.From, ch.Logprobs, n, wantAll(ch.Tokens, n))
			}
		}
		if c.decoded != tt.once {
			t.Errorf("%s: %d tokens evaluated, want %d", tt.name, c.decoded, tt.once)
		}
	}
}

// mergeVocab joins "ab" into one token, as vocabularies do across the end of a prompt.
type mergeVocab struct{ fakeVocab }

func (mergeVocab) Tokenize(text string, _, _ bool) ([]engine.Token, error) {
	var list []engine.Token
	for i := 0; i < len(text); i++ {
		if i+1 < len(text) && text[i:i+2] == "ab" {
			list = append(list, 200)
			i++
			continue
		}
		list = append(list, engine.Token(text[i]))
	}
	return list, nil
}

func TestChoicesMerge(t *testing.T) {
	choices, err := NewChoices(mergeVocab{}, "xya", []string{"b", "c"}, false)
	if err != nil || choices[0].From != 2 || choices[1].From != 3 {
		t.Fatalf("got %+v, %v, want from 2 and 3", choices, err)
	}
	if err := NewScorer(newScoreContext(t, 8, 8, 3)).Choices(t.Context(), choices); err != nil {
		t.Fatal(err)
	}
	for i, c := range choices {
		if !slices.Equal(c.Logprobs, wantAll(c.Tokens, c.From)) {
			t.Errorf("choice %d: got %v, want %v", i, c.Logprobs, wantAll(c.Tokens, c.From))
		}
	}
}
