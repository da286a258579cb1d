package completion

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"gollama/internal/engine"
)

// promptReserve is how many tokens of the context llama.cpp's completion tool leaves free of the prompt.
const promptReserve = 4

// maxRuneExtraTokens is how many bytes can be missing of a rune.
const maxRuneExtraTokens = 3

// sequence is one text in the making: from the prompt's tokens to the result.
// It evaluates and samples nothing: whoever drives it, a Session or Slots, puts
// the tokens into batches and gives it those sampled. So the two cannot differ
// in where a text ends and what it says.
type sequence struct {
	opt    Options
	vocab  Vocab
	mem    Memory
	seq    int // its number in mem
	accept func(t engine.Token, generated bool) error
	emit   func(Delta) error // nil: nobody listens

	nCtx   int
	nKeep  int          // tokens at the start that a shift keeps
	nPast  int          // positions in the context: its tokens, and of media what they take
	extra  int          // tokens beyond those: an image under M-RoPE has more tokens than positions
	n      int          // tokens sampled
	last   engine.Token // the one sampled last, not yet evaluated
	stop   *StopMatcher
	utf8   Assembler
	text   []byte
	sentLP int    // log-probabilities that a delta has carried
	tail   []byte // at most the last three bytes of what the model wrote

	guess                []engine.Token // evaluated at nPast and after, as what may come next
	hits                 int            // of guess, that came and count in nPast
	nGuessed, nConfirmed int            // tokens

	res Result
}

// newSequence checks opt and returns a text to be made in sequence seq of mem,
// and its prompt, which fits there. The sequence is good for its result even on
// an error.
func newSequence(vocab Vocab, mem Memory, seq int, opt Options) (*sequence, []engine.Token, error) {
	q := &sequence{opt: opt, vocab: vocab, mem: mem, seq: seq, nCtx: mem.NCtxSeq()}
	q.res = Result{Type: "completion", ID: opt.ID, NCtx: q.nCtx}
	if q.res.ID == "" {
		q.res.ID = "cmpl-" + rand.Text()
	}
	prompt, err := q.prepare()
	return q, prompt, err
}

// result returns what there is.
func (q *sequence) result(err error) Result {
	if err != nil {
		q.res.FinishReason = FinishError
	}
	q.res.Text, q.res.TextBase64 = jsonText(q.text)
	q.res.Usage.CompletionTokens = q.n
	return q.res
}

// prepare checks the options and returns the prompt's tokens, which fit the context.
func (q *sequence) prepare() ([]engine.Token, error) {
	opt := &q.opt
	if opt.NPredict < PredictUntilFull {
		return nil, fmt.Errorf("tokens to predict: %d, want -2 or more", opt.NPredict)
	}
	if opt.NProbs < 0 {
		return nil, fmt.Errorf("log-probabilities: %d alternatives, want 0 or more", opt.NProbs)
	}
	if opt.Overflow == OverflowShift && !q.mem.CanShift() {
		return nil, ErrNoShift
	}
	var err error
	if q.stop, err = NewStopMatcher(opt.Stop); err != nil {
		return nil, err
	}
	prompt, err := promptTokens(q.vocab, opt)
	if err != nil {
		return nil, err
	}
	for _, t := range opt.StopTokens {
		if t < 0 || int(t) >= q.vocab.NTokens() {
			return nil, fmt.Errorf("token %d: want 0 to %d", t, q.vocab.NTokens()-1)
		}
	}
	return q.fit(prompt)
}

// promptTokens returns the tokens that opt's prompt is, before it is fitted into a context.
func promptTokens(vocab Vocab, opt *Options) ([]engine.Token, error) {
	prompt := opt.Tokens
	if prompt == nil {
		var err error
		if prompt, err = vocab.Tokenize(opt.Prompt, true, opt.ParseSpecial); err != nil {
			return nil, fmt.Errorf("tokenize the prompt: %w", err)
		}
	}
	for _, t := range prompt {
		if t < 0 || int(t) >= vocab.NTokens() {
			return nil, fmt.Errorf("token %d: want 0 to %d", t, vocab.NTokens()-1)
		}
	}
	if len(prompt) == 0 && vocab.AddBOS() {
		prompt = []engine.Token{vocab.BOS()}
	}
	if len(prompt) == 0 && opt.Chunks == nil {
		return nil, ErrEmptyPrompt
	}
	return prompt, nil
}

// fit returns what of the prompt goes into the context, and sets what a shift keeps.
func (q *sequence) fit(prompt []engine.Token) ([]engine.Token, error) {
	if q.opt.Chunks != nil {
		return prompt, q.fitMedia(q.opt.Chunks)
	}
	n := len(prompt)
	if q.nKeep = q.opt.Keep; q.nKeep < 0 || q.nKeep > n {
		q.nKeep = n
	} else if q.vocab.AddBOS() {
		q.nKeep = min(q.nKeep+1, n)
	}
	limit := promptLimit(q.nCtx, q.opt.Overflow)
	if q.opt.Overflow == OverflowTruncate && n >= q.nCtx {
		q.nKeep = min(q.nKeep, max(q.nCtx-promptReserve, 0))
		prompt = truncate(prompt, q.nCtx, q.nKeep)
		q.res.Truncated = true
	}
	if len(prompt) > limit {
		return nil, &PromptTooLongError{Tokens: n, Limit: max(limit, 0)}
	}
	q.res.Usage.PromptTokens = len(prompt)
	return prompt, nil
}

// promptLimit returns how many tokens of prompt a context of nCtx takes: those
// that stay of one that was cut need no reserve.
func promptLimit(nCtx int, o Overflow) int {
	if o == OverflowTruncate {
		return nCtx - 1
	}
	return nCtx - promptReserve
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

// begin says that the text starts after prompt, with a new or reset sampler.
func (q *sequence) begin(prompt []engine.Token, accept func(t engine.Token, generated bool) error) error {
	q.accept = accept
	for _, t := range prompt {
		// Penalties look back on the prompt; a grammar does not.
		if err := accept(t, false); err != nil {
			return fmt.Errorf("evaluate the prompt: %w", err)
		}
	}
	if !q.opt.Echo {
		return nil
	}
	echo := []byte(q.opt.Prompt)
	if q.opt.Tokens != nil {
		echo = detokenize(q.vocab, q.opt.Tokens)
	}
	return q.write(echo)
}

// advance ends the text if it is as long as it may be, and otherwise makes
// room for the token sampled last, which goes to position nPast.
func (q *sequence) advance() (ended bool, err error) {
	if q.limit() {
		return true, q.finish(FinishLength)
	}
	// llama.cpp keeps the last cell free: a context of 256 takes 5 tokens of prompt and 251 of answer,
	// of which the last was not evaluated.
	if q.n == 0 || q.nPast+q.extra+1 < q.nCtx {
		return false, nil
	}
	if ok, err := q.shift(); err != nil || ok {
		return false, err
	}
	return true, q.finish(q.fullReason())
}

// limit reports whether NPredict tokens are there and end at a whole rune, or cannot.
func (q *sequence) limit() bool {
	if q.opt.NPredict < 0 || q.n < q.opt.NPredict {
		return false
	}
	return q.n >= q.opt.NPredict+maxRuneExtraTokens || incompleteTail(q.tail) == 0
}

func (q *sequence) fullReason() string {
	if q.opt.NPredict >= 0 && q.n >= q.opt.NPredict {
		return FinishLength // there was room but for the rest of a rune
	}
	return FinishContext
}

// shift makes room by dropping the older half of what is not kept, if that is wanted and possible.
func (q *sequence) shift() (ok bool, err error) {
	discard := (q.nPast - q.nKeep) / 2
	if q.opt.Overflow != OverflowShift || q.opt.NPredict == PredictUntilFull || discard < 1 {
		return false, nil
	}
	if !q.mem.SeqRm(q.seq, q.nKeep, q.nKeep+discard) || !q.mem.SeqAdd(q.seq, q.nKeep+discard, q.nPast, -discard) {
		return false, ErrNoShift
	}
	q.nPast -= discard
	q.res.Truncated = true
	return true, nil
}

// take adds a sampled token to the text and reports whether it ended it.
// logits returns those that it was sampled from.
func (q *sequence) take(t engine.Token, logits func() ([]float32, error)) (ended bool, err error) {
	if err := q.accept(t, true); err != nil {
		return true, fmt.Errorf("accept token %d: %w", t, err)
	}
	q.n++
	q.last = t
	if q.opt.NProbs > 0 {
		row, err := logits()
		if err != nil {
			return true, err
		}
		lp, err := q.logprob(t, row, q.opt.NProbs)
		if err != nil {
			return true, err
		}
		q.res.Logprobs = append(q.res.Logprobs, lp)
	}
	if slices.Contains(q.opt.StopTokens, t) { // before EOG: asked for by name
		q.res.Stop, q.res.StopBase64 = jsonText(q.vocab.Piece(t, true))
		return true, q.finish(FinishStop)
	}
	if q.vocab.IsEOG(t) {
		reason, err := q.endReason(logits)
		if err != nil {
			return true, err
		}
		return true, q.finish(reason)
	}
	piece := q.vocab.Piece(t, q.opt.Special || slices.Contains(q.opt.Shown, t))
	q.tail = append(q.tail, piece...)
	q.tail = q.tail[:copy(q.tail, q.tail[max(0, len(q.tail)-3):])]
	text, stop, ok := q.stop.Push(piece)
	if err := q.write(q.utf8.Push(text)); err != nil {
		return true, err
	}
	if ok {
		q.res.Stop, q.res.StopBase64 = jsonText([]byte(stop))
		return true, q.finish(FinishStop)
	}
	return false, nil
}

// endReason tells an end by the model from one by the grammar, which leaves no
// other token when it is complete: by whether the model, unconstrained, holds an end the likeliest.
func (q *sequence) endReason(logits func() ([]float32, error)) (string, error) {
	if !q.opt.Grammar {
		return FinishEOS, nil
	}
	row, err := logits()
	if err != nil {
		return "", err
	}
	if best := topN(row, 1); len(best) == 1 && q.vocab.IsEOG(best[0].id) {
		return FinishEOS, nil
	}
	return FinishGrammar, nil
}

// finish lets out what was held back and sets the reason, which is FinishStop
// if the text so far has a stop string that waited for a longer one.
func (q *sequence) finish(reason string) error {
	if q.stop != nil {
		text, stop, ok := q.stop.Flush()
		if ok {
			reason = FinishStop
			q.res.Stop, q.res.StopBase64 = jsonText([]byte(stop))
		}
		if err := q.write(q.utf8.Push(text)); err != nil {
			return err
		}
	}
	// A rune is never cut; bytes that were never going to be one are the model's own.
	if reason == FinishEOS || reason == FinishGrammar || reason == FinishStop {
		if err := q.write(q.utf8.Flush()); err != nil {
			return err
		}
	}
	q.res.FinishReason = reason
	return nil
}

// promptLogprob adds the log-probability of a token of the prompt, under the
// logits after the one before it; the first has none.
func (q *sequence) promptLogprob(t engine.Token, before []float32) error {
	if before == nil {
		q.res.PromptLogprobs = append(q.res.PromptLogprobs, TokenLogprob{Candidate: q.name(t)})
		return nil
	}
	lp, err := q.logprob(t, before, q.opt.NProbs)
	q.res.PromptLogprobs = append(q.res.PromptLogprobs, lp)
	return err
}

// emitError marks an error of the caller's emit, which is returned even when ctx is cancelled too.
type emitError struct{ error }

func (e emitError) Unwrap() error { return e.error }

func isEmitError(err error) bool {
	var own emitError
	return errors.As(err, &own)
}

// write adds to the text and sends it.
func (q *sequence) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	q.text = append(q.text, b...)
	if q.emit == nil {
		return nil
	}
	d := Delta{Type: "delta", Logprobs: q.res.Logprobs[q.sentLP:]}
	d.Text, d.TextBase64 = jsonText(b)
	q.sentLP = len(q.res.Logprobs)
	if err := q.emit(d); err != nil {
		return emitError{err}
	}
	return nil
}
