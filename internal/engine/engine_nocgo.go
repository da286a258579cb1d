//go:build !cgo

package engine

import (
	"context"
	"fmt"
	"unsafe"
)

// Model cannot be loaded without cgo.
type Model struct{}

// Context cannot be made without cgo.
type Context struct{}

// Vocab cannot be had without cgo.
type Vocab struct{}

// Sampler cannot be made without cgo.
type Sampler struct{}

// ChatTemplate cannot be made without cgo.
type ChatTemplate struct{}

// ChatParser cannot be made without cgo.
type ChatParser struct{}

// BuiltinChatTemplates returns nothing.
func BuiltinChatTemplates() []string { return nil }

// NewChatTemplate returns ErrNoCgo.
func NewChatTemplate(*Model, ChatTemplateOptions) (*ChatTemplate, error) { return nil, ErrNoCgo }

// Source returns nothing.
func (t *ChatTemplate) Source(bool) string { return "" }

// Caps returns ErrNoCgo.
func (t *ChatTemplate) Caps() (map[string]bool, error) { return nil, ErrNoCgo }

// Apply checks in and returns ErrNoCgo.
func (t *ChatTemplate) Apply(in *ChatInput) (*ChatPrompt, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	return nil, ErrNoCgo
}

// Render is Apply.
func (t *ChatTemplate) Render(in *ChatInput) (*ChatPrompt, error) { return t.Apply(in) }

// Tokenize returns ErrNoCgo.
func (t *ChatTemplate) Tokenize(*ChatPrompt) ([]Token, error) { return nil, ErrNoCgo }

// Close does nothing.
func (t *ChatTemplate) Close() error { return nil }

// NewChatParser returns ErrNoCgo.
func NewChatParser(*ChatPrompt) (*ChatParser, error) { return nil, ErrNoCgo }

// Parse returns ErrNoCgo.
func (c *ChatParser) Parse(string, bool) (ChatMessage, error) { return ChatMessage{}, ErrNoCgo }

// Close does nothing.
func (c *ChatParser) Close() error { return nil }

// CheckGrammar checks the grammar's repetitions and returns ErrNoCgo.
func CheckGrammar(gbnf string) error {
	if err := checkRepeats(gbnf); err != nil {
		return fmt.Errorf("grammar: %w", err)
	}
	return ErrNoCgo
}

// SchemaToGrammar checks the schema and returns ErrNoCgo.
func SchemaToGrammar(schema string) (string, error) {
	if _, err := normalizeSchema(schema); err != nil {
		return "", err
	}
	return "", ErrNoCgo
}

// SetLogger does nothing: there is no engine that logs.
func SetLogger(int, func(level int, text string)) {}

func notice(string) {}

// LoadModel checks p and the file, and returns ErrNoCgo.
func LoadModel(_ context.Context, p *Params) (*Model, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if _, err := checkModelFile(p); err != nil {
		return nil, err
	}
	return nil, ErrNoCgo
}

// Info returns nothing.
func (m *Model) Info() ModelInfo { return ModelInfo{} }

// Vocab returns an empty vocabulary.
func (m *Model) Vocab() *Vocab { return &Vocab{} }

// Meta returns nothing.
func (m *Model) Meta(string) (string, bool) { return "", false }

// MetaKeys returns nothing.
func (m *Model) MetaKeys() []string { return nil }

// ChatTemplate returns nothing.
func (m *Model) ChatTemplate(string) string { return "" }

// Close does nothing.
func (m *Model) Close() error { return nil }

// NTokens returns 0.
func (v *Vocab) NTokens() int { return 0 }

// Type returns none.
func (v *Vocab) Type() string { return "none" }

// BOS returns TokenNull.
func (v *Vocab) BOS() Token { return TokenNull }

// EOS returns TokenNull.
func (v *Vocab) EOS() Token { return TokenNull }

// EOT returns TokenNull.
func (v *Vocab) EOT() Token { return TokenNull }

// SEP returns TokenNull.
func (v *Vocab) SEP() Token { return TokenNull }

// NL returns TokenNull.
func (v *Vocab) NL() Token { return TokenNull }

// PAD returns TokenNull.
func (v *Vocab) PAD() Token { return TokenNull }

// Mask returns TokenNull.
func (v *Vocab) Mask() Token { return TokenNull }

// AddBOS returns false.
func (v *Vocab) AddBOS() bool { return false }

// AddEOS returns false.
func (v *Vocab) AddEOS() bool { return false }

// Tokenize returns ErrNoCgo.
func (v *Vocab) Tokenize(string, bool, bool) ([]Token, error) { return nil, ErrNoCgo }

// Piece returns nothing.
func (v *Vocab) Piece(Token, bool) []byte { return nil }

// Detokenize returns nothing.
func (v *Vocab) Detokenize([]Token, bool) []byte { return nil }

// IsEOG returns false.
func (v *Vocab) IsEOG(Token) bool { return false }

// IsControl returns false.
func (v *Vocab) IsControl(Token) bool { return false }

// Text returns nothing.
func (v *Vocab) Text(Token) string { return "" }

// Score returns 0.
func (v *Vocab) Score(Token) float32 { return 0 }

// UnicodeTables returns ErrNoCgo.
func UnicodeTables() (flags []uint16, lower []uint32, err error) { return nil, nil, ErrNoCgo }

// NewContext returns ErrNoCgo.
func NewContext(*Model, *Params) (*Context, error) { return nil, ErrNoCgo }

// NewContextTap returns ErrNoCgo.
func NewContextTap(*Model, *Params, Tap) (*Context, error) { return nil, ErrNoCgo }

// Close does nothing.
func (c *Context) Close() error { return nil }

// NCtx returns 0.
func (c *Context) NCtx() int { return 0 }

// NCtxSeq returns 0.
func (c *Context) NCtxSeq() int { return 0 }

// NBatch returns 0.
func (c *Context) NBatch() int { return 0 }

// NUBatch returns 0.
func (c *Context) NUBatch() int { return 0 }

// NSeqMax returns 0.
func (c *Context) NSeqMax() int { return 0 }

// Causal returns true.
func (c *Context) Causal() bool { return true }

// Model returns nil.
func (c *Context) Model() *Model { return nil }

// Decode returns ErrNoCgo.
func (c *Context) Decode(context.Context, *Batch) error { return ErrNoCgo }

// Encode returns ErrNoCgo.
func (c *Context) Encode(context.Context, []Token) error { return ErrNoCgo }

// DecodePrompt returns ErrNoCgo.
func (c *Context) DecodePrompt(context.Context, []Token, int, int, func(int)) error { return ErrNoCgo }

// DecodeLogits returns ErrNoCgo.
func (c *Context) DecodeLogits(context.Context, []Token, int, int, func(int, []float32) error) error {
	return ErrNoCgo
}

// Logits returns ErrNoCgo.
func (c *Context) Logits(int) ([]float32, error) { return nil, ErrNoCgo }

// Logprobs returns ErrNoCgo.
func (c *Context) Logprobs([]int, []Token, []float64) error { return ErrNoCgo }

// SeqRm returns false.
func (c *Context) SeqRm(seq, p0, p1 int) bool { return false }

// SeqAdd returns false.
func (c *Context) SeqAdd(seq, p0, p1, delta int) bool { return false }

// SeqCp returns false.
func (c *Context) SeqCp(src, dst, p0, p1 int) bool { return false }

// SeqKeep returns false.
func (c *Context) SeqKeep(seq int) bool { return false }

// SeqPosMin returns -1.
func (c *Context) SeqPosMin(int) int { return -1 }

// SeqPosMax returns -1.
func (c *Context) SeqPosMax(int) int { return -1 }

// ClearMemory does nothing.
func (c *Context) ClearMemory() {}

// CanShift returns false.
func (c *Context) CanShift() bool { return false }

// Perf returns zeros.
func (c *Context) Perf() Perf { return Perf{} }

// ResetPerf does nothing.
func (c *Context) ResetPerf() {}

// State returns ErrNoCgo.
func (c *Context) State() ([]byte, error) { return nil, ErrNoCgo }

// SeqState returns ErrNoCgo.
func (c *Context) SeqState(int) ([]byte, error) { return nil, ErrNoCgo }

// SetState returns ErrNoCgo.
func (c *Context) SetState([]byte) error { return ErrNoCgo }

// SetSeqState returns ErrNoCgo.
func (c *Context) SetSeqState(int, []byte) error { return ErrNoCgo }

// SetLoRA returns ErrNoCgo.
func (c *Context) SetLoRA([]LoRAInfo) error { return ErrNoCgo }

// LoRAs returns nothing.
func (c *Context) LoRAs() []LoRAInfo { return nil }

// SetControlVector returns ErrNoCgo.
func (c *Context) SetControlVector([]ControlVectorInfo, int, int) error { return ErrNoCgo }

// SetDirections returns ErrNoCgo.
func (c *Context) SetDirections([]float32, int, int) error { return ErrNoCgo }

// States cannot be made without cgo.
type States struct{}

// NewStates returns ErrNoCgo.
func NewStates(*Model, int, int) (*States, error) { return nil, ErrNoCgo }

// Width returns 0.
func (s *States) Width() int { return 0 }

// Decode returns ErrNoCgo.
func (s *States) Decode(context.Context, *Context, *Batch, []int32, []float64) error { return ErrNoCgo }

// Close does nothing.
func (s *States) Close() error { return nil }

func (s *States) hook() (fn, data unsafe.Pointer) { return nil, nil }

// NewSampler checks p and returns ErrNoCgo.
func NewSampler(_ *Model, p *SamplingParams) (*Sampler, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return nil, ErrNoCgo
}

// Sample returns ErrNoCgo.
func (s *Sampler) Sample(*Context, int) (Token, error) { return TokenNull, ErrNoCgo }

// Accept returns ErrNoCgo.
func (s *Sampler) Accept(Token, bool) error { return ErrNoCgo }

// Reset does nothing.
func (s *Sampler) Reset() {}

// Clone returns ErrNoCgo.
func (s *Sampler) Clone() (*Sampler, error) { return nil, ErrNoCgo }

// Seed returns 0.
func (s *Sampler) Seed() uint32 { return 0 }

// Describe returns nothing.
func (s *Sampler) Describe() string { return "" }

// Close does nothing.
func (s *Sampler) Close() error { return nil }

// Speculator cannot be made without cgo.
type Speculator struct{}

// NewSpeculator returns ErrNoCgo.
func NewSpeculator(*Context, *Model, *Params) (*Speculator, error) { return nil, ErrNoCgo }

// CheckDraft returns ErrNoCgo.
func CheckDraft(*Model, *Model) error { return ErrNoCgo }

// Begin returns ErrNoCgo.
func (s *Speculator) Begin(int, []Token) error { return ErrNoCgo }

// Move returns ErrNoCgo.
func (s *Speculator) Move(int, int) error { return ErrNoCgo }

// Speculate returns ErrNoCgo.
func (s *Speculator) Speculate([]Guess) error { return ErrNoCgo }

// Accept returns ErrNoCgo.
func (s *Speculator) Accept(int, int) error { return ErrNoCgo }

// Close does nothing.
func (s *Speculator) Close() error { return nil }
