package completion

import (
	"context"
	"errors"
	"fmt"

	"gollama/internal/engine"
)

// Speculator is what a completion needs of *engine.Speculator: it guesses the
// tokens that come next. The guesses are evaluated with the token before them,
// in one batch, and each is taken only if it is what the sampler picks anyway:
// from the logits, with the random numbers and in the state that it would have
// without. So guesses change how fast a text comes and not which, but for the
// rounding of a batch of another shape (ARCHITECTURE.md, "Batches and rounding").
type Speculator interface {
	// Begin says that the text of sequence seq begins with tokens.
	Begin(seq int, tokens []engine.Token) error
	// Move says that the text of sequence from is now that of sequence to.
	Move(from, to int) error
	// Speculate answers guesses. Each one's Last is the next token of its text.
	Speculate(list []engine.Guess) error
	// Accept says that the first n tokens of the guess for seq came true.
	Accept(seq, n int) error
}

// guessContext is what a context has, too, that guesses can be evaluated in.
type guessContext interface {
	NBatch() int
	NUBatch() int
	Decode(ctx context.Context, b *engine.Batch) error
}

const (
	// maxGuessRows is how many logits guesses may ask for in one evaluation, besides those asked for anyway.
	maxGuessRows = 64
	// MaxGuessTexts is for how many texts at once guesses are made: a batch of more has no room that is free.
	// An estimate from llama-batched-bench on two cores (135M Q4_K_M: 131 tokens/s for one text, 323 for 8, 419 for 32), by
	// which a row more costs nearly what a token does from there on; guesses themselves were not measured for this.
	MaxGuessTexts = 8
)

var errNoRollback = errors.New("the context does not give back tokens that were guessed wrong")

// maxGuess returns how many tokens may be guessed after the one sampled last:
// only where a text made token by token would come by without ending or making room.
func (q *sequence) maxGuess() int {
	n := q.nCtx - q.nPast - 2
	if q.opt.NPredict >= 0 {
		n = min(n, q.opt.NPredict-q.n-1)
	}
	return max(n, 0)
}

// guessed says that tokens are evaluated after the one sampled last.
func (q *sequence) guessed(tokens []engine.Token) {
	q.guess, q.hits = append(q.guess[:0], tokens...), 0
	q.nGuessed += len(tokens)
}

// confirm reports whether the token sampled last was guessed, so that it is evaluated already.
func (q *sequence) confirm() bool {
	if q.hits >= len(q.guess) || q.guess[q.hits] != q.last {
		return false
	}
	q.hits++
	q.nConfirmed++
	q.nPast++
	return true
}

// settle ends a guess: what of it did not come true leaves the memory.
func (q *sequence) settle(sp Speculator) error {
	n, hits := len(q.guess), q.hits
	if n == 0 {
		return nil
	}
	q.guess, q.hits = q.guess[:0], 0
	if hits < n && !q.mem.SeqRm(q.seq, q.nPast, -1) {
		return errNoRollback
	}
	return sp.Accept(q.seq, hits)
}

// extend evaluates the token sampled last and what is guessed to follow. It
// leaves the row of the logits after that token.
func (s *Session[C]) extend(ctx context.Context) error {
	q := s.q
	s.row = -1
	guess, err := s.guess()
	if err != nil {
		return err
	}
	if len(guess) == 0 {
		err = s.e.Context.DecodePrompt(ctx, []engine.Token{q.last}, q.nPast, 0, nil)
	} else {
		s.batch.Reset()
		s.batch.Add(q.last, q.nPast, 0, true)
		for i, t := range guess {
			s.batch.Add(t, q.nPast+1+i, 0, true)
		}
		err = s.guesser.Decode(ctx, &s.batch)
		s.row = 0
	}
	if err != nil {
		s.e.Context.SeqRm(0, q.nPast, -1) // guesses may be there that nobody knows of
		return fmt.Errorf("evaluate token %d of the answer: %w", q.n, err)
	}
	q.guessed(guess)
	s.keepCell(q.nPast, q.last)
	q.nPast++
	return nil
}

// guess asks what may follow the token sampled last. A draft model does not
// see media, so nothing is guessed in a text with some.
func (s *Session[C]) guess() ([]engine.Token, error) {
	if s.guesser == nil || s.q.opt.Chunks != nil {
		return nil, nil
	}
	q := s.q
	rows := min(maxGuessRows, s.guesser.NBatch()-1, s.guesser.NUBatch()-1)
	g := []engine.Guess{{Pos: q.nPast, Max: min(q.maxGuess(), rows), Last: q.last}}
	err := s.e.Speculator.Speculate(g)
	return g[0].Tokens, err
}

// keepCell notes the token at position at, unless the context shifted.
func (s *Session[C]) keepCell(at int, t engine.Token) {
	if s.nPos == at {
		s.cells = append(s.cells, tokenCell(t))
		s.nPos++
	}
}

// confirm reports whether the token sampled last is evaluated already, with its logits in the next row.
func (s *Session[C]) confirm() bool {
	at := s.q.nPast
	if !s.q.confirm() {
		return false
	}
	s.row++
	s.keepCell(at, s.q.last)
	return true
}

// settle takes back what was guessed and did not come.
func (s *Session[C]) settle() error {
	if s.guesser == nil {
		return nil
	}
	return s.q.settle(s.e.Speculator)
}

// speculate asks for guesses for the texts that get their next token.
func (s *Slots[C]) speculate() error {
	if s.Speculator == nil {
		return nil
	}
	s.guesses = s.guesses[:0]
	for i := range s.slots {
		sl := &s.slots[i]
		if sl.text == nil || sl.reading() {
			continue
		}
		if !sl.begun {
			if err := s.Speculator.Begin(i, sl.group.req.prompt); err != nil {
				return err
			}
			sl.begun = true
		}
		s.guesses = append(s.guesses, engine.Guess{Seq: i, Pos: sl.nPast, Max: sl.maxGuess(), Last: sl.last})
	}
	each := 0
	if n := len(s.guesses); n > 0 && n <= MaxGuessTexts {
		each = min(maxGuessRows, s.chunk()-n) / n
	}
	for k := range s.guesses {
		s.guesses[k].Max = min(s.guesses[k].Max, each)
	}
	if err := s.Speculator.Speculate(s.guesses); err != nil {
		return err
	}
	for _, g := range s.guesses {
		s.slots[g.Seq].guessed(g.Tokens)
		s.stats.GuessedTokens += len(g.Tokens)
	}
	return nil
}

// pickAll takes a text's next token and, as long as they were guessed, those after it.
func (s *Slots[C]) pickAll(sl *slot[C]) (ended bool, err error) {
	ended, err = s.pick(sl.text, sl.row)
	for !ended && err == nil && sl.confirm() {
		s.stats.ConfirmedTokens++
		sl.row++
		ended, err = s.pick(sl.text, sl.row)
	}
	if s.Speculator == nil || err != nil {
		return ended, err
	}
	if err := sl.settle(s.Speculator); err != nil {
		return true, err
	}
	return ended, nil
}
