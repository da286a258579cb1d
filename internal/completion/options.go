package completion

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gollama/internal/engine"
)

// Vocab is what a completion needs of *engine.Vocab.
type Vocab interface {
	Tokenize(text string, addSpecial, parseSpecial bool) ([]engine.Token, error)
	Piece(t engine.Token, special bool) []byte
	NTokens() int
	BOS() engine.Token
	AddBOS() bool
	IsEOG(t engine.Token) bool
}

// Memory is what a Context remembers: tokens by sequence and position.
type Memory interface {
	NCtxSeq() int // tokens a sequence may have
	SeqRm(seq, p0, p1 int) bool
	SeqAdd(seq, p0, p1, delta int) bool
	CanShift() bool
}

// Context is what a Session needs of *engine.Context. Sequence 0 is used.
type Context interface {
	Memory
	// DecodePrompt evaluates tokens at positions pos0 on and leaves the logits of the last.
	DecodePrompt(ctx context.Context, tokens []engine.Token, pos0, seq int, progress func(done int)) error
	// DecodeLogits does the same and passes on the logits of each.
	DecodeLogits(ctx context.Context, tokens []engine.Token, pos0, seq int, each func(i int, logits []float32) error) error
	// Logits returns row i of the last evaluation, valid until the next; -1 is the last.
	Logits(i int) ([]float32, error)
	SeqPosMin(seq int) int // the lowest position held, -1 if there is none
	ClearMemory()
}

// Encoder is what a Context has, too, for a model that reads the prompt with an encoder.
type Encoder interface {
	Encode(ctx context.Context, tokens []engine.Token) error
}

// Media is what a completion needs of *engine.Media, over a Context of type C.
type Media[C Context] interface {
	Tokenize(parts []engine.MediaPart, addSpecial bool) (*engine.MediaChunks, error)
	// Decode evaluates media chunk i at position pos0 on, with the logits of its last token if they are wanted.
	Decode(ctx context.Context, c C, chunks *engine.MediaChunks, i, pos0, seq int, logits bool) error
}

// SlotMedia is what Slots need of *engine.Media, over a Context of type C.
type SlotMedia[C any] interface {
	// Embed encodes media chunk i, if it is not encoded yet, while c does nothing.
	Embed(ctx context.Context, c C, chunks *engine.MediaChunks, i int) ([]float32, error)
	// DecodeSpans evaluates media chunks of several sequences together, with the logits of those that want them.
	DecodeSpans(ctx context.Context, c C, spans []engine.MediaSpan) error
}

// Sampler is what a completion needs of *engine.Sampler, over a Context of type C.
type Sampler[C Context] interface {
	Sample(c C, i int) (engine.Token, error)
	Accept(t engine.Token, generated bool) error
	Seed() uint32
}

// Engine is what a completion runs on. It changes the Context and the Sampler,
// and no one else may use them meanwhile. The Sampler must be new or reset, its
// grammar too: Generate leaves it in the state after the last token.
type Engine[C Context] struct {
	Vocab   Vocab
	Context C
	Sampler Sampler[C]
	Media   Media[C] // nil: prompts are text
	Model   Model
	LoadMS  float64 // reported

	Speculator   Speculator   // guesses tokens, for which Context has Decode, NBatch and NUBatch; nil: none are guessed
	HasEncoder   bool         // Context is an Encoder that reads the prompt
	DecoderStart engine.Token // first token of such a model's decoder; TokenNull means BOS
}

// Overflow says what to do with more tokens than the context holds.
type Overflow int

// The ways to deal with a full context.
const (
	// OverflowError refuses a prompt that is too long, and ends when the context is full.
	OverflowError Overflow = iota
	// OverflowShift refuses it too, but drops the older half of what is not
	// kept when the context is full, and goes on (llama.cpp's --context-shift).
	OverflowShift
	// OverflowTruncate drops the middle of a prompt that is too long, and ends when the context is full.
	OverflowTruncate
)

var overflowNames = []string{"error", "shift", "truncate"}

// String returns the name that ParseOverflow reads.
func (o Overflow) String() string {
	if o < 0 || int(o) >= len(overflowNames) {
		return fmt.Sprintf("Overflow(%d)", int(o))
	}
	return overflowNames[o]
}

// ParseOverflow reads error, shift or truncate.
func ParseOverflow(s string) (Overflow, error) {
	i := slices.Index(overflowNames, s)
	if i < 0 {
		return 0, fmt.Errorf("unknown overflow mode %q, want one of %s", s, strings.Join(overflowNames, ", "))
	}
	return Overflow(i), nil
}

// Values of Options.NPredict that are no number of tokens.
const (
	PredictUnlimited = -1 // until something else ends the text
	PredictUntilFull = -2 // until the context is full, even with OverflowShift
)

// Options is what is asked of Generate. The zero value evaluates an empty prompt.
type Options struct {
	ID     string         // of the result; empty means a random one
	Prompt string         // any bytes
	Tokens []engine.Token // the prompt, instead of Prompt
	// Parts are the prompt, instead of both: text, and images and sounds for Engine.Media, which only a Session takes. Chunks
	// are such a prompt tokenized before, with BOS and EOS. Who made them closes them; Slots do it, too, once they are read.
	Parts  []engine.MediaPart
	Chunks *engine.MediaChunks

	// NPredict is how many tokens to sample at most, PredictUnlimited or
	// PredictUntilFull; 0 evaluates the prompt alone. A rune that is incomplete
	// at the limit gets up to three more tokens; if they do not complete it, its
	// bytes are left out. They are also left out where a full context or
	// cancelling cuts it, and kept where the model ends the text.
	NPredict   int
	Stop       []string       // see StopMatcher; the prompt does not count
	StopTokens []engine.Token // end the text, and are not part of it
	Keep       int            // prompt tokens kept by shift and truncate, besides BOS; negative means all
	Overflow   Overflow

	NProbs         int            // log-probabilities with this many alternatives for each token; 0 is none
	PromptLogprobs bool           // the same for the prompt
	Echo           bool           // the text begins with the prompt, byte for byte
	Special        bool           // special tokens have text
	Shown          []engine.Token // special tokens that have text all the same
	ParseSpecial   bool           // special tokens are recognized in Prompt
	Grammar        bool           // the Sampler has a grammar: see FinishGrammar

	Progress func(done, total int) // tokens of the prompt evaluated; may be nil

	// Reuse, which may be nil, puts what it has of the prompt into the empty context and returns how many tokens that is.
	Reuse func(prompt []engine.Token) (int, error)
	// Ended, which may be nil, gets the tokens at the end of a text without an error: those of the prompt, the first
	// nPrompt, and of the answer, of which the first cells are in the context. It is not called if the context shifted.
	Ended func(tokens []engine.Token, nPrompt, cells int) error
}

// PromptTooLongError says that a prompt does not fit the context.
type PromptTooLongError struct {
	Tokens int // in the prompt
	Limit  int // that the context takes
}

func (e *PromptTooLongError) Error() string {
	return fmt.Sprintf("prompt is too long: %d tokens, limit %d", e.Tokens, e.Limit)
}

// Errors of Generate.
var (
	ErrEmptyPrompt = errors.New("the prompt has no tokens")
	ErrNoShift     = errors.New("this model's context cannot be shifted")
	ErrNoMedia     = errors.New("the prompt has images or sounds, and there is no projector (--mmproj)")
	ErrMediaShift  = errors.New("a prompt with images or sounds is neither shifted nor truncated")
)
