package engine

import (
	"errors"
	"fmt"
)

// Errors that a caller may look for with errors.Is.
var (
	ErrClosed      = errors.New("it is closed")
	ErrNoCgo       = errors.New("this build has no engine: it was made with CGO_ENABLED=0")
	ErrCanceled    = errors.New("canceled")
	ErrAborted     = errors.New("aborted")
	ErrModel       = errors.New("the model cannot be used")
	ErrContextFull = errors.New("the context is full")
	ErrMedia       = errors.New("the medium cannot be used")
	ErrImageTokens = errors.New("limits of an image's tokens")
	ErrNoModality  = errors.New("the projector cannot read this")

	// ErrNoRollback is of a model whose memory cannot give up the last tokens
	// of a sequence: a recurrent one, or one with a cache of sliding windows.
	ErrNoRollback = errors.New("the memory of this model cannot take tokens back")
)

// Error is an error with the file that it is about. Its text is one line that
// begins with the path or, without one, with the operation.
type Error struct {
	Op   string // what was done, e.g. "load LoRA adapter"
	Path string // file, may be empty
	Msg  string // the cause
	Err  error  // what errors.Is finds, may be nil
}

// Error returns path or operation, and the cause.
func (e *Error) Error() string {
	what := e.Path
	if what == "" {
		what = e.Op
	}
	switch {
	case e.Msg != "":
		return what + ": " + e.Msg
	case e.Err != nil:
		return what + ": " + e.Err.Error()
	}
	return what + ": failed"
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// ModelInfo describes a loaded model. With VocabOnly the sizes of the network
// are 0.
type ModelInfo struct {
	Path  string
	Arch  string // general.architecture
	Name  string // general.name, may be empty
	Desc  string // e.g. "llama 7B Q4_K - Medium"
	FType string // e.g. "Q4_K - Medium"

	Size    uint64 // bytes of all tensors
	NParams uint64

	NCtxTrain, NEmbd, NLayer, NHead, NHeadKV, NVocab int

	HasEncoder, HasDecoder bool
	Recurrent, Hybrid      bool
	Diffusion              bool
	DecoderStart           Token // first token of the decoder of an encoder-decoder model, else TokenNull
}

// Batch is a list of tokens to decode. The four slices have one length.
type Batch struct {
	Tokens []Token
	Pos    []int32 // position in the sequence
	Seq    []int32 // sequence, 0 to NSeqMax-1
	Output []bool  // whether logits are wanted
	NSeq   []int32 // sequences that have the token in common, Seq and those after it; empty for one each
}

// Add appends a token.
func (b *Batch) Add(t Token, pos, seq int, output bool) {
	b.Tokens = append(b.Tokens, t)
	b.Pos = append(b.Pos, int32(pos))
	b.Seq = append(b.Seq, int32(seq))
	b.Output = append(b.Output, output)
}

// AddShared appends a token that the n sequences from seq on have in common, in a batch that has only such, for a context
// with KVUnified.
func (b *Batch) AddShared(t Token, pos, seq, n int, output bool) {
	b.Add(t, pos, seq, output)
	b.NSeq = append(b.NSeq, int32(n))
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	b.NSeq = b.NSeq[:0]
	b.Tokens, b.Pos, b.Seq, b.Output = b.Tokens[:0], b.Pos[:0], b.Seq[:0], b.Output[:0]
}

// check returns an error for what llama.cpp would assert on.
func (b *Batch) check(nVocab, nSeq int) error {
	n := len(b.Tokens)
	if n == 0 {
		return errors.New("decode: the batch is empty")
	}
	if len(b.Pos) != n || len(b.Seq) != n || len(b.Output) != n || len(b.NSeq) != 0 && len(b.NSeq) != n {
		return errors.New("decode: the batch's slices differ in length")
	}
	for i, t := range b.Tokens {
		switch {
		case t < 0 || int(t) >= nVocab:
			return fmt.Errorf("decode: token %d is not in the vocabulary of %d tokens", t, nVocab)
		case b.Pos[i] < 0:
			return fmt.Errorf("decode: position %d is negative", b.Pos[i])
		case b.Seq[i] < 0 || int(b.Seq[i]) >= nSeq:
			return fmt.Errorf("decode: sequence %d is not below %d", b.Seq[i], nSeq)
		case len(b.NSeq) > 0 && (b.NSeq[i] < 1 || int(b.Seq[i])+int(b.NSeq[i]) > nSeq):
			return fmt.Errorf("decode: a token of %d sequences from %d on, there are %d", b.NSeq[i], b.Seq[i], nSeq)
		}
	}
	return nil
}

// Guess asks what may follow Last, a token of sequence Seq that goes to
// position Pos and is not yet evaluated. Tokens are the answer, at most Max of
// them and often none, valid until the next call of Speculate.
type Guess struct {
	Seq, Pos, Max int
	Last          Token
	Tokens        []Token
}

// Perf is what a Context has measured; all 0 with NoPerf.
type Perf struct {
	LoadMS, PromptMS, GenMS float64
	NPrompt, NGen           int // tokens
}

// Levels of log lines.
const (
	LogError = 1
	LogWarn  = 2
	LogInfo  = 3
	LogTrace = 4
	LogDebug = 5

	LogNotice = 0 // a warning of this package's own, for whoever runs the program
)
