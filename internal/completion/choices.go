package completion

import (
	"context"
	"fmt"

	"gollama/internal/engine"
)

// Choice is one way for a prompt to go on.
type Choice struct {
	Tokens   []engine.Token // of prompt and choice together
	From     int            // the first token that is scored
	Logprobs []float64      // of Tokens[From:]
}

// Score sums the choice's log-probabilities.
func (c *Choice) Score() Score {
	var s Score
	s.Add(c.Logprobs...)
	return s
}

// NewChoices tokenizes prompt with each of texts behind it. Prompt and choice
// are one text to the tokenizer, as they are to the model, so a token may have
// bytes of both; a choice is scored from the first token that the prompt alone
// does not have, at least from the second. An empty choice scores nothing.
func NewChoices(v Vocab, prompt string, texts []string, parseSpecial bool) ([]Choice, error) {
	alone, err := v.Tokenize(prompt, true, parseSpecial)
	if err != nil {
		return nil, fmt.Errorf("tokenize the prompt: %w", err)
	}
	choices := make([]Choice, len(texts))
	for i, text := range texts {
		tokens, err := v.Tokenize(prompt+text, true, parseSpecial)
		if err != nil {
			return nil, fmt.Errorf("tokenize choice %d: %w", i+1, err)
		}
		choices[i] = Choice{Tokens: tokens, From: max(commonPrefix(alone, tokens), 1)}
	}
	return choices, nil
}

// Choices scores choices of one prompt. What all of them begin with is
// evaluated once, and the rest of each from there, as many at once as there are
// sequences. Errors are those of Run.
func (s *Scorer[C]) Choices(ctx context.Context, choices []Choice) error {
	for _, c := range choices {
		if err := s.check(Span{Tokens: c.Tokens, From: c.From}); err != nil {
			return err
		}
	}
	if len(choices) == 0 {
		return nil
	}
	s.Context.ClearMemory()
	shared := sharedTokens(choices)
	if err := s.shared(ctx, choices, shared); err != nil {
		return err
	}
	// Sequence 0 keeps what is shared; the others each take a copy of it.
	for from := 0; from < len(choices); {
		n, err := s.wave(ctx, choices[from:], shared)
		if err != nil {
			return err
		}
		from += n
	}
	return nil
}

// sharedTokens is how many tokens are evaluated once: those that all choices begin with, but for the last of the shortest,
// which is not evaluated at all.
func sharedTokens(choices []Choice) int {
	n := len(choices[0].Tokens)
	for _, c := range choices {
		n = min(n, commonPrefix(choices[0].Tokens, c.Tokens), len(c.Tokens)-1)
	}
	return max(n, 0)
}

// shared evaluates the first n tokens in sequence 0, and takes from their logits what is scored of each choice.
func (s *Scorer[C]) shared(ctx context.Context, choices []Choice, n int) error {
	for pos := 0; pos < n; {
		to := min(pos+s.step(), n)
		s.reset()
		for i := pos; i < to; i++ {
			wanted := false
			for _, c := range choices {
				if i+1 >= c.From {
					s.rows = append(s.rows, i-pos)
					s.tokens = append(s.tokens, c.Tokens[i+1])
					wanted = true
				}
			}
			s.batch.Add(choices[0].Tokens[i], i, 0, wanted)
		}
		if err := s.evaluate(ctx); err != nil {
			return err
		}
		at := 0
		for i := pos; i < to; i++ {
			for k := range choices {
				if i+1 >= choices[k].From {
					choices[k].Logprobs = append(choices[k].Logprobs, s.out[at])
					at++
				}
			}
		}
		pos = to
	}
	return nil
}

// wave scores what is left of as many choices as go together, at least one, and returns how many.
func (s *Scorer[C]) wave(ctx context.Context, choices []Choice, shared int) (int, error) {
	n, size := 0, 0
	for n < len(choices) {
		rest := max(len(choices[n].Tokens)-1-shared, 0)
		if n > 0 && (n+1 >= s.Context.NSeqMax() || size+rest > s.step()) {
			break
		}
		n, size = n+1, size+rest
	}
	last := n == len(choices)
	if n == 1 && (last || s.Context.NSeqMax() == 1) {
		return 1, s.single(ctx, &choices[0], shared, last)
	}
	if n == 1 {
		if err := s.copy(1); err != nil {
			return 0, err
		}
		lp, err := s.text(ctx, choices[0].Tokens, shared, 1, choices[0].From)
		choices[0].Logprobs = append(choices[0].Logprobs, lp...)
		return 1, err
	}
	s.reset()
	for i := range n {
		if err := s.copy(i + 1); err != nil {
			return 0, err
		}
		s.add(choices[i].Tokens, shared, len(choices[i].Tokens)-1, i+1, choices[i].From)
	}
	if err := s.evaluate(ctx); err != nil {
		return 0, err
	}
	at := 0
	for i := range n {
		c := &choices[i]
		k := len(c.Tokens) - c.From - len(c.Logprobs)
		c.Logprobs = append(c.Logprobs, s.out[at:at+max(k, 0)]...)
		at += max(k, 0)
	}
	return n, nil
}

// copy makes sequence seq what sequence 0 is.
func (s *Scorer[C]) copy(seq int) error {
	if !s.Context.SeqRm(seq, -1, -1) || !s.Context.SeqCp(0, seq, -1, -1) {
		return fmt.Errorf("score: sequence %d cannot be made a copy of another", seq)
	}
	return nil
}

// single scores the rest of a choice in sequence 0 itself, and removes it after, unless it was the last one.
func (s *Scorer[C]) single(ctx context.Context, c *Choice, shared int, last bool) error {
	lp, err := s.text(ctx, c.Tokens, shared, 0, c.From)
	if err != nil {
		return err
	}
	c.Logprobs = append(c.Logprobs, lp...)
	if !last && len(c.Tokens)-1 > shared && !s.Context.SeqRm(0, shared, -1) {
		return fmt.Errorf("score: this model's context cannot forget a choice: give it more sequences")
	}
	return nil
}
