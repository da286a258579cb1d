package completion

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"gollama/internal/engine"
)

// promptReserve is how many tokens of the context llama.cpp's completion tool leaves free of the prompt.
const promptReserve = 4

// maxRuneExtraTokens is how many bytes can be missing of a rune.
const maxRuneExtraTokens = 3

// generator is the state of one Generate.
type generator struct {
	opt    Options
	vocab  Vocab
	mem    Context
	sample func() (engine.Token, error)
	accept func(t engine.Token, generated bool) error
	emit   func(Delta) error

	encoder Encoder // nil without
	start   engine.Token

	nCtx   int
	nKeep  int
	nPast  int // tokens in the context
	n      int // tokens sampled
	stop   *StopMatcher
	utf8   Assembler
	text   []byte
	sentLP int    // log-probabilities that a delta has carried
	tail   []byte // at most the last three bytes of what the model wrote
	res    Result
}

// Generate evaluates the prompt and samples text until one of the reasons
// above ends it. emit, which may be nil, gets the text as it comes; an error of
// it ends the completion and is returned.
//
// The context's memory is cleared first. Cancelling ctx is no error: the
// result has the text so far. On an error the result is what is known by then.
// Errors: *PromptTooLongError, ErrEmptyPrompt, ErrEmptyStop, ErrNoShift, ErrNaN,
// and those of the engine and of emit, wrapped.
func Generate[C Context](ctx context.Context, e Engine[C], opt Options, emit func(Delta) error) (Result, error) {
	g := &generator{
		opt: opt, vocab: e.Vocab, mem: e.Context, emit: emit, nCtx: e.Context.NCtxSeq(),
		sample: func() (engine.Token, error) { return e.Sampler.Sample(e.Context, -1) },
		accept: e.Sampler.Accept,
	}
	if g.emit == nil {
		g.emit = func(Delta) error { return nil }
	}
	g.res = Result{Type: "completion", ID: opt.ID, NCtx: g.nCtx, Model: e.Model, Timings: Timings{LoadMS: e.LoadMS}}
	if g.res.ID == "" {
		g.res.ID = "cmpl-" + rand.Text()
	}
	err := g.setEncoder(any(e.Context), e.HasEncoder, e.DecoderStart)
	if err == nil {
		err = g.run(ctx)
	}
	if err != nil {
		g.res.FinishReason = FinishError
	}
	g.res.Seed = e.Sampler.Seed()
	g.res.Text, g.res.TextBase64 = jsonText(g.text)
	g.res.Usage.CompletionTokens = g.n
	return g.res, err
}

func (g *generator) setEncoder(c any, has bool, start engine.Token) error {
	if !has {
		return nil
	}
	var ok bool
	if g.encoder, ok = c.(Encoder); !ok {
		return errors.New("the model has an encoder and the context cannot run it")
	}
	if g.opt.PromptLogprobs {
		return errors.New("a prompt read by an encoder has no log-probabilities")
	}
	if g.start = start; start == engine.TokenNull {
		g.start = g.vocab.BOS()
	}
	return nil
}

func (g *generator) run(ctx context.Context) error {
	prompt, err := g.prepare()
	if err != nil {
		return err
	}
	if g.opt.Echo {
		echo := []byte(g.opt.Prompt)
		if g.opt.Tokens != nil {
			echo = detokenize(g.vocab, g.opt.Tokens)
		}
		if err := g.write(echo); err != nil {
			return err
		}
	}
	begin := time.Now()
	err = g.evaluate(ctx, prompt)
	t := &g.res.Timings
	t.PromptN = len(prompt)
	t.PromptMS, t.PromptPerSecond = rate(begin, len(prompt))
	if err != nil {
		return g.cancelled(ctx, fmt.Errorf("evaluate the prompt: %w", err))
	}
	begin = time.Now()
	err = g.loop(ctx)
	t.PredictedN = g.n
	t.PredictedMS, t.PredictedPerSecond = rate(begin, g.n)
	if err != nil {
		return g.cancelled(ctx, err)
	}
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

// emitError marks an error of the caller's emit, which is returned even when ctx is cancelled too.
type emitError struct{ error }

func (e emitError) Unwrap() error { return e.error }

// cancelled ends the text if err came of cancelling, and returns err otherwise.
func (g *generator) cancelled(ctx context.Context, err error) error {
	var own emitError
	if ctx.Err() == nil || errors.As(err, &own) {
		return err
	}
	return g.finish(FinishCancelled)
}

// prepare checks the options and returns the prompt's tokens, which fit the context.
func (g *generator) prepare() ([]engine.Token, error) {
	opt := &g.opt
	if opt.NPredict < PredictUntilFull {
		return nil, fmt.Errorf("tokens to predict: %d, want -2 or more", opt.NPredict)
	}
	if opt.NProbs < 0 {
		return nil, fmt.Errorf("log-probabilities: %d alternatives, want 0 or more", opt.NProbs)
	}
	if opt.Overflow == OverflowShift && !g.mem.CanShift() {
		return nil, ErrNoShift
	}
	var err error
	if g.stop, err = NewStopMatcher(opt.Stop); err != nil {
		return nil, err
	}
	prompt := opt.Tokens
	if prompt == nil {
		if prompt, err = g.vocab.Tokenize(opt.Prompt, true, opt.ParseSpecial); err != nil {
			return nil, fmt.Errorf("tokenize the prompt: %w", err)
		}
	}
	for _, tokens := range [][]engine.Token{prompt, opt.StopTokens} {
		for _, t := range tokens {
			if t < 0 || int(t) >= g.vocab.NTokens() {
				return nil, fmt.Errorf("token %d: want 0 to %d", t, g.vocab.NTokens()-1)
			}
		}
	}
	if len(prompt) == 0 && g.vocab.AddBOS() {
		prompt = []engine.Token{g.vocab.BOS()}
	}
	if len(prompt) == 0 {
		return nil, ErrEmptyPrompt
	}
	return g.fit(prompt)
}

// fit returns what of the prompt goes into the context, and sets what a shift keeps.
func (g *generator) fit(prompt []engine.Token) ([]engine.Token, error) {
	n := len(prompt)
	if g.nKeep = g.opt.Keep; g.nKeep < 0 || g.nKeep > n {
		g.nKeep = n
	} else if g.vocab.AddBOS() {
		g.nKeep = min(g.nKeep+1, n)
	}
	limit := g.nCtx - promptReserve
	if g.opt.Overflow == OverflowTruncate {
		if n >= g.nCtx {
			g.nKeep = min(g.nKeep, max(limit, 0))
			prompt = truncate(prompt, g.nCtx, g.nKeep)
			g.res.Truncated = true
		}
		limit = g.nCtx - 1
	}
	if len(prompt) > limit {
		return nil, &PromptTooLongError{Tokens: n, Limit: max(limit, 0)}
	}
	g.res.Usage.PromptTokens = len(prompt)
	return prompt, nil
}

// truncate drops the middle of a prompt of nCtx tokens or more: the first
// nKeep stay, and of what follows so many blocks of half the rest of the
// context are dropped that the result has from nKeep plus a block to nCtx-1
// tokens. That leaves room to go on, and a text that grows is cut at the same
// place for a while (truncatePrompt of rn-llama.cpp).
func truncate(prompt []engine.Token, nCtx, nKeep int) []engine.Token {
	block := (nCtx - nKeep) / 2
	if block < 1 {
		return prompt
	}
	erased := (len(prompt) - nKeep - block) / block
	return slices.Concat(prompt[:nKeep], prompt[nKeep+erased*block:])
}

// evaluate puts the prompt into the empty context and leaves the logits of its last token.
func (g *generator) evaluate(ctx context.Context, prompt []engine.Token) error {
	g.mem.ClearMemory()
	for _, t := range prompt {
		// Penalties look back on the prompt; a grammar does not.
		if err := g.accept(t, false); err != nil {
			return err
		}
	}
	if g.encoder != nil {
		if err := g.encoder.Encode(ctx, prompt); err != nil {
			return err
		}
		prompt = []engine.Token{g.start}
		g.nKeep = 1
	}
	g.nPast = len(prompt)
	progress := func(done int) {
		if g.opt.Progress != nil {
			g.opt.Progress(done, len(prompt))
		}
	}
	if !g.opt.PromptLogprobs {
		return g.mem.DecodePrompt(ctx, prompt, 0, 0, progress)
	}
	g.res.PromptLogprobs = append(g.res.PromptLogprobs, TokenLogprob{Candidate: g.name(prompt[0])})
	return g.mem.DecodeLogits(ctx, prompt, 0, 0, func(i int, logits []float32) error {
		progress(i + 1)
		if i+1 == len(prompt) {
			return nil // what follows the last is the model's to say
		}
		lp, err := g.logprob(prompt[i+1], logits, g.opt.NProbs)
		g.res.PromptLogprobs = append(g.res.PromptLogprobs, lp)
		return err
	})
}

// loop samples tokens until the text ends. The last one is not evaluated.
func (g *generator) loop(ctx context.Context) error {
	for next := make([]engine.Token, 1); ; {
		if ctx.Err() != nil {
			return g.finish(FinishCancelled)
		}
		if g.limit() {
			return g.finish(FinishLength)
		}
		// llama.cpp keeps the last cell free: a context of 256 takes 5 tokens of prompt and 251 of answer,
		// of which the last was not evaluated.
		if g.n > 0 {
			if g.nPast+1 >= g.nCtx {
				if ok, err := g.shift(); err != nil {
					return err
				} else if !ok {
					return g.finish(g.fullReason())
				}
			}
			if err := g.mem.DecodePrompt(ctx, next, g.nPast, 0, nil); err != nil {
				return fmt.Errorf("evaluate token %d of the answer: %w", g.n, err)
			}
			g.nPast++
		}
		t, err := g.sample()
		if err != nil {
			return fmt.Errorf("sample token %d of the answer: %w", g.n+1, err)
		}
		if ended, err := g.take(t); ended || err != nil {
			return err
		}
		next[0] = t
	}
}

// limit reports whether NPredict tokens are there and end at a whole rune, or cannot.
func (g *generator) limit() bool {
	if g.opt.NPredict < 0 || g.n < g.opt.NPredict {
		return false
	}
	return g.n >= g.opt.NPredict+maxRuneExtraTokens || incompleteTail(g.tail) == 0
}

func (g *generator) fullReason() string {
	if g.opt.NPredict >= 0 && g.n >= g.opt.NPredict {
		return FinishLength // there was room but for the rest of a rune
	}
	return FinishContext
}

// shift makes room by dropping the older half of what is not kept, if that is wanted and possible.
func (g *generator) shift() (ok bool, err error) {
	discard := (g.nPast - g.nKeep) / 2
	if g.opt.Overflow != OverflowShift || g.opt.NPredict == PredictUntilFull || discard < 1 {
		return false, nil
	}
	if !g.mem.SeqRm(0, g.nKeep, g.nKeep+discard) || !g.mem.SeqAdd(0, g.nKeep+discard, g.nPast, -discard) {
		return false, ErrNoShift
	}
	g.nPast -= discard
	g.res.Truncated = true
	return true, nil
}

// take adds a sampled token to the text and reports whether it ended it.
func (g *generator) take(t engine.Token) (ended bool, err error) {
	if err := g.accept(t, true); err != nil {
		return true, fmt.Errorf("accept token %d: %w", t, err)
	}
	g.n++
	if g.opt.NProbs > 0 {
		logits, err := g.mem.Logits(-1)
		if err != nil {
			return true, err
		}
		lp, err := g.logprob(t, logits, g.opt.NProbs)
		if err != nil {
			return true, err
		}
		g.res.Logprobs = append(g.res.Logprobs, lp)
	}
	if slices.Contains(g.opt.StopTokens, t) { // before EOG: asked for by name
		g.res.Stop, g.res.StopBase64 = jsonText(g.vocab.Piece(t, true))
		return true, g.finish(FinishStop)
	}
	if g.vocab.IsEOG(t) {
		reason, err := g.endReason()
		if err != nil {
			return true, err
		}
		return true, g.finish(reason)
	}
	piece := g.vocab.Piece(t, g.opt.Special)
	g.tail = append(g.tail, piece...)
	g.tail = g.tail[:copy(g.tail, g.tail[max(0, len(g.tail)-3):])]
	text, stop, ok := g.stop.Push(piece)
	if err := g.write(g.utf8.Push(text)); err != nil {
		return true, err
	}
	if ok {
		g.res.Stop, g.res.StopBase64 = jsonText([]byte(stop))
		return true, g.finish(FinishStop)
	}
	return false, nil
}

// endReason tells an end by the model from one by the grammar, which leaves no
// other token when it is complete: by whether the model, unconstrained, holds an end the likeliest.
func (g *generator) endReason() (string, error) {
	if !g.opt.Grammar {
		return FinishEOS, nil
	}
	logits, err := g.mem.Logits(-1)
	if err != nil {
		return "", err
	}
	if best := topN(logits, 1); len(best) == 1 && g.vocab.IsEOG(best[0].id) {
		return FinishEOS, nil
	}
	return FinishGrammar, nil
}

// finish lets out what was held back and sets the reason, which is FinishStop
// if the text so far has a stop string that waited for a longer one.
func (g *generator) finish(reason string) error {
	if g.stop != nil {
		text, stop, ok := g.stop.Flush()
		if ok {
			reason = FinishStop
			g.res.Stop, g.res.StopBase64 = jsonText([]byte(stop))
		}
		if err := g.write(g.utf8.Push(text)); err != nil {
			return err
		}
	}
	// A rune is never cut; bytes that were never going to be one are the model's own.
	if reason == FinishEOS || reason == FinishGrammar || reason == FinishStop {
		if err := g.write(g.utf8.Flush()); err != nil {
			return err
		}
	}
	g.res.FinishReason = reason
	return nil
}

// write adds to the text and sends it.
func (g *generator) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	g.text = append(g.text, b...)
	d := Delta{Type: "delta", Logprobs: g.res.Logprobs[g.sentLP:]}
	d.Text, d.TextBase64 = jsonText(b)
	g.sentLP = len(g.res.Logprobs)
	if err := g.emit(d); err != nil {
		return emitError{err}
	}
	return nil
}
