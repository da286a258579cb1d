package completion

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gollama/internal/engine"
)

// Session makes one text after another in sequence 0 of a context. What the
// next prompt has in common with the context's content is not evaluated again;
// nothing else of one text reaches the next.
//
// A text is Begin, Next until it says that there is no more, and End. An error
// ends the text and not the session. Nobody else may use the context.
type Session[C Context] struct {
	e       Engine[C]
	encoder Encoder // nil without
	start   engine.Token

	cells []cell         // in the context, as if evaluated one after the other
	nPos  int            // positions that they take
	text  []engine.Token // prompt and answer, for Options.Ended; nil once the context shifted, and with media
	q     *sequence
	smpl  Sampler[C]
	fresh bool // the logits of row are not sampled from yet
	row   int  // of the last evaluation; -1 is the last

	guesser guessContext // Context, if tokens are guessed
	batch   engine.Batch // of a token and guesses
	begun   time.Time
}

// NewSession returns a session in e's context, whose memory it clears. e.Sampler is not used.
func NewSession[C Context](e Engine[C]) (*Session[C], error) {
	s := &Session[C]{e: e}
	e.Context.ClearMemory()
	if e.Speculator != nil {
		var ok bool
		if s.guesser, ok = any(e.Context).(guessContext); !ok || e.HasEncoder {
			return nil, errors.New("tokens cannot be guessed in this context")
		}
	}
	if !e.HasEncoder {
		return s, nil
	}
	var ok bool
	if s.encoder, ok = any(e.Context).(Encoder); !ok {
		return nil, errors.New("the model has an encoder and the context cannot run it")
	}
	if s.start = e.DecoderStart; s.start == engine.TokenNull {
		s.start = e.Vocab.BOS()
	}
	return s, nil
}

// Begin evaluates the prompt of a new text, which sampler, new or reset, will
// continue; emit, which may be nil, gets the text as it comes, and an error of
// it ends the text. Usage.CachedTokens of the result says how much of the
// prompt was there already. Cancelling ctx ends the text; it is no error.
// Errors: *PromptTooLongError, ErrEmptyPrompt, ErrEmptyStop, ErrNoShift, ErrNaN,
// ErrNoMedia, ErrMediaShift, and those of the engine and of emit, wrapped.
func (s *Session[C]) Begin(ctx context.Context, opt Options, sampler Sampler[C], emit func(Delta) error) error {
	s.text = nil
	free, mediaErr := s.prepareMedia(&opt)
	defer free()
	q, prompt, err := newSequence(s.e.Vocab, s.e.Context, 0, opt)
	s.q, s.smpl, q.emit = q, sampler, emit
	q.res.Model, q.res.Timings.LoadMS = s.e.Model, s.e.LoadMS
	if err = cmp.Or(mediaErr, err); err != nil {
		return err
	}
	if s.encoder != nil && opt.PromptLogprobs {
		return errors.New("a prompt read by an encoder has no log-probabilities")
	}
	if err := q.begin(prompt, sampler.Accept); err != nil {
		return err
	}
	begin := time.Now()
	err = s.evaluate(ctx, prompt)
	t := &q.res.Timings
	t.PromptN = q.res.Usage.PromptTokens - q.res.Usage.CachedTokens
	t.PromptMS, t.PromptPerSecond = rate(begin, t.PromptN)
	s.begun = time.Now()
	switch {
	case err != nil && ctx.Err() != nil:
		return q.finish(FinishCancelled)
	case err != nil:
		return fmt.Errorf("evaluate the prompt: %w", err)
	}
	s.fresh = true
	return nil
}

// rate returns the milliseconds since begin and what n in that time is per second.
func rate(begin time.Time, n int) (ms, perSecond float64) {
	d := time.Since(begin)
	if d > 0 {
		perSecond = float64(n) / d.Seconds()
	}
	return d.Seconds() * 1e3, perSecond
}

// evaluate makes prompt the context's content, and leaves the logits of its last token.
func (s *Session[C]) evaluate(ctx context.Context, prompt []engine.Token) error {
	s.row = -1
	if s.q.opt.Chunks != nil {
		return s.evaluateMedia(ctx, s.q.opt.Chunks)
	}
	if s.encoder != nil {
		s.reuse(nil, 0)
		if err := s.encoder.Encode(ctx, prompt); err != nil {
			return err
		}
		prompt = []engine.Token{s.start}
		s.q.nKeep = 1
	}
	most := len(prompt) - 1 // the last one's logits are needed
	if s.q.opt.PromptLogprobs {
		most = 0 // all of them are
	}
	from, err := s.evaluated(prompt, most)
	if err != nil {
		return err
	}
	progress := func(done int) {
		if s.q.opt.Progress != nil {
			s.q.opt.Progress(from+done, len(prompt))
		}
	}
	if s.q.opt.PromptLogprobs {
		err = s.promptLogprobs(ctx, prompt, progress)
	} else {
		err = s.e.Context.DecodePrompt(ctx, prompt[from:], from, 0, progress)
	}
	if err != nil {
		return err
	}
	s.hold(from, textCells(prompt)[from:])
	s.q.nPast = len(prompt)
	s.text = slices.Clone(prompt)
	if s.guesser != nil {
		return s.e.Speculator.Begin(0, prompt)
	}
	return nil
}

// evaluated leaves in the context what it, or Options.Reuse, has of prompt, at
// most most tokens, and returns how many.
func (s *Session[C]) evaluated(prompt []engine.Token, most int) (n int, err error) {
	if f := s.q.opt.Reuse; f != nil && s.encoder == nil && most > 0 {
		s.reuse(nil, 0)
		n, err = f(prompt)
		s.hold(0, textCells(prompt[:n]))
	} else {
		n = s.reuse(textCells(prompt), most)
	}
	if s.encoder == nil {
		s.q.res.Usage.CachedTokens = n
	}
	return n, err
}

// promptLogprobs evaluates the prompt with logits for each of its tokens.
func (s *Session[C]) promptLogprobs(ctx context.Context, prompt []engine.Token, progress func(done int)) error {
	if err := s.q.promptLogprob(prompt[0], nil); err != nil {
		return err
	}
	return s.e.Context.DecodeLogits(ctx, prompt, 0, 0, func(i int, logits []float32) error {
		progress(i + 1)
		if i+1 == len(prompt) {
			return nil // what follows the last is the model's to say
		}
		return s.q.promptLogprob(prompt[i+1], logits)
	})
}

// reuse leaves in the context what it has in common with prompt, at most most
// cells, and returns how many.
func (s *Session[C]) reuse(prompt []cell, most int) int {
	n := min(commonPrefix(s.cells, prompt), most)
	c := s.e.Context
	// A cache of sliding windows has let go of the beginning: what is left may not reach back far enough.
	if n > 0 && c.SeqPosMin(0) > 0 {
		n = 0
	}
	// The tokens of a call that failed are not in cells, but may be in the context.
	if n == 0 || !c.SeqRm(0, positions(s.cells[:n]), -1) {
		n = 0
		c.ClearMemory()
	}
	s.hold(n, nil)
	return n
}

// hold says that the context has the first n cells that it had, and then more.
func (s *Session[C]) hold(n int, more []cell) {
	s.cells = append(s.cells[:n], more...)
	s.nPos = positions(s.cells)
}

func commonPrefix[T comparable](a, b []T) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// Next makes the next token and reports whether the text goes on after it.
// Cancelling ctx ends the text; it is no error.
func (s *Session[C]) Next(ctx context.Context) (more bool, err error) {
	ended, err := s.next(ctx)
	if err != nil && ctx.Err() != nil && !isEmitError(err) {
		return false, s.q.finish(FinishCancelled)
	}
	return !ended && err == nil, err
}

func (s *Session[C]) next(ctx context.Context) (ended bool, err error) {
	q := s.q
	switch {
	case q.res.FinishReason != "":
		return true, nil
	case ctx.Err() != nil:
		return true, q.finish(FinishCancelled)
	}
	if !s.fresh || q.n == 0 { // else the last token was guessed, and has its room
		if ended, err := s.advance(); ended || err != nil {
			return true, err
		}
	}
	if !s.fresh {
		if err := s.extend(ctx); err != nil {
			return true, err
		}
	}
	s.fresh = false
	t, err := s.smpl.Sample(s.e.Context, s.row)
	if err != nil {
		return true, fmt.Errorf("sample token %d of the answer: %w", q.n+1, err)
	}
	ended, err = q.take(t, s.logits)
	if !ended && err == nil && s.text != nil {
		s.text = append(s.text, t)
	}
	if err != nil {
		return true, err
	}
	if s.fresh = !ended && s.confirm(); !s.fresh {
		err = s.settle()
	}
	return ended, err
}

// advance ends the text or makes room for the next token.
func (s *Session[C]) advance() (ended bool, err error) {
	before := s.q.nPast
	if ended, err := s.q.advance(); ended || err != nil {
		return true, err
	}
	if s.q.nPast != before {
		// After a shift the tokens that moved are not what evaluating them in their new place would give.
		s.hold(min(len(s.cells), s.q.nKeep), nil)
		s.text = nil
	}
	return false, nil
}

func (s *Session[C]) logits() ([]float32, error) { return s.e.Context.Logits(s.row) }

// End returns the text's result; err is the error that ended it, if one did.
func (s *Session[C]) End(err error) Result {
	s.fresh = false
	r := s.q.result(err)
	r.Seed = s.smpl.Seed()
	if err == nil || s.q.n > 0 {
		r.Timings.PredictedN = s.q.n
		r.Timings.PredictedMS, r.Timings.PredictedPerSecond = rate(s.begun, s.q.n)
		r.Timings.DraftN, r.Timings.DraftNAccepted = s.q.nGuessed, s.q.nConfirmed
	}
	return r
}

// Generate is a whole text: Begin, Next, End. Cancelling ctx is no error: the
// result has the text so far. On an error the result is what is known by then.
func (s *Session[C]) Generate(ctx context.Context, opt Options, sampler Sampler[C], emit func(Delta) error) (Result, error) {
	err := s.Begin(ctx, opt, sampler, emit)
	for more := err == nil; more && err == nil; {
		more, err = s.Next(ctx)
	}
	if err == nil {
		err = s.settle() // a text that was cancelled may have left some
	}
	if err == nil && s.text != nil && opt.Ended != nil {
		err = opt.Ended(s.text, s.q.res.Usage.PromptTokens, s.q.nPast)
	}
	return s.End(err), err
}

// Generate makes one text in a context whose memory is cleared first, with
// e.Sampler, as a Session does.
func Generate[C Context](ctx context.Context, e Engine[C], opt Options, emit func(Delta) error) (Result, error) {
	s, err := NewSession(e)
	if err != nil {
		return Result{Type: "completion", ID: opt.ID, FinishReason: FinishError}, err
	}
	return s.Generate(ctx, opt, e.Sampler, emit)
}
