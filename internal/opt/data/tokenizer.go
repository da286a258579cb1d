package data

import (
	"context"
	"sync"

	"gollama/internal/engine"
	"gollama/internal/tokens"
)

// fastTokenizer is an engine's vocabulary whose texts are encoded by the fast path of package tokens,
// which gives the same ids: a line of 50 MB takes seconds instead of minutes.
type fastTokenizer struct {
	*engine.Vocab
	front, back []engine.Token // what addSpecial puts round a text
	encoders    sync.Pool      // of tokens.Encoder
}

// NewTokenizer returns the tokenizer of the model file at path, whose vocabulary v is. Where the
// fast path cannot serve it, that is v itself.
func NewTokenizer(ctx context.Context, path string, v *engine.Vocab) Tokenizer {
	m, err := tokens.Open(ctx, path, tokens.Fast)
	same := err == nil && m.NTokens() == v.NTokens() && m.BOS == v.BOS() && m.EOS == v.EOS() && m.AddBOS == v.AddBOS() && m.AddEOS == v.AddEOS()
	if !same { // metadata may have been overridden
		return v
	}
	bos, eos, err := m.Ends(tokens.Options{BOS: tokens.ModelsOwn, EOS: tokens.ModelsOwn})
	if err != nil {
		return v
	}
	t := &fastTokenizer{Vocab: v}
	if bos != engine.TokenNull {
		t.front = []engine.Token{bos}
	}
	if eos != engine.TokenNull {
		t.back = []engine.Token{eos}
	}
	t.encoders.New = func() any { return m.NewEncoder() }
	return t
}

// Tokenize is [engine.Vocab.Tokenize]. It may be called by several goroutines.
func (t *fastTokenizer) Tokenize(text string, addSpecial, parseSpecial bool) ([]engine.Token, error) {
	e := t.encoders.Get().(tokens.Encoder)
	defer t.encoders.Put(e)
	var ids []engine.Token
	if addSpecial {
		ids = append(ids, t.front...)
	}
	ids, err := e.Encode(ids, []byte(text), parseSpecial)
	if err != nil {
		return nil, err
	}
	if addSpecial {
		ids = append(ids, t.back...)
	}
	return ids, nil
}
