package tokens

import (
	"context"
	"fmt"
	"sync"

	"gollama/internal/engine"
)

// Encoder turns texts into ids. It is for one goroutine at a time.
type Encoder interface {
	// Encode appends the ids of text to dst: what llama_tokenize gives without
	// add_special. With parse, the texts of special tokens in it become those
	// tokens; without, only those of user-defined ones do. The error says why a
	// text has no ids.
	Encode(dst []Token, text []byte, parse bool) ([]Token, error)
}

// Model is a vocabulary that is ready to encode. It may be used by several
// goroutines.
type Model struct {
	*Vocab
	path   string
	tables *tables       // nil: the engine encodes
	eng    *engine.Model // nil: the fast path encodes
	pieces pieceTable
}

// Mode says which code encodes.
type Mode int

// The modes of Open.
const (
	Auto     Mode = iota // the fast path where it can serve, else the engine
	Fast                 // the fast path, or an error
	ByEngine             // llama_tokenize
)

// Open reads the vocabulary of the GGUF file at path. The engine loads it only
// where the fast path cannot serve. ctx can cancel that.
func Open(ctx context.Context, path string, mode Mode) (*Model, error) {
	v, err := ReadVocab(path)
	if err != nil {
		return nil, err
	}
	m := &Model{Vocab: v, path: path}
	if mode != ByEngine && v.slow == "" {
		if m.tables, err = newTables(v); err == nil {
			return m, nil
		}
		v.slow = err.Error()
	}
	if mode == Fast {
		return nil, fmt.Errorf("%s: no fast path for this vocabulary: %s", path, v.slow)
	}
	p := engine.DefaultParams()
	p.Model, p.VocabOnly, p.Warmup = path, true, false
	if m.eng, err = engine.LoadModel(ctx, &p); err != nil {
		return nil, err
	}
	ev := m.eng.Vocab()
	v.Type, v.BOS, v.EOS, v.SEP = ev.Type(), ev.BOS(), ev.EOS(), ev.SEP()
	v.AddBOS, v.AddEOS = ev.AddBOS(), ev.AddEOS()
	return m, nil
}

// IsFast reports whether the fast path encodes.
func (m *Model) IsFast() bool { return m.tables != nil }

// NewEncoder returns an encoder, which is of use until Close.
func (m *Model) NewEncoder() Encoder {
	if m.tables != nil {
		return newFastEncoder(m.tables)
	}
	return engineEncoder{m.eng.Vocab()}
}

// Close frees what the engine holds. It may be called twice and on nil.
func (m *Model) Close() error {
	if m == nil {
		return nil
	}
	return m.eng.Close()
}

type engineEncoder struct{ v *engine.Vocab }

func (e engineEncoder) Encode(dst []Token, text []byte, parse bool) ([]Token, error) {
	ids, err := e.v.Tokenize(string(text), false, parse)
	return append(dst, ids...), err
}

// pieceTable holds the bytes of all tokens, made on first use.
type pieceTable struct {
	once  sync.Once
	bytes []byte
	ends  []int
}

// Piece returns the bytes that a token stands for; those of a control token are
// its text. They need not be valid UTF-8, and must not be changed. A token that
// the vocabulary does not have has none.
func (m *Model) Piece(t Token) []byte {
	if !m.has(t) {
		return nil
	}
	m.pieces.once.Do(func() {
		p := &m.pieces
		p.ends = make([]int, m.NTokens())
		for i := range p.ends {
			if m.eng != nil {
				p.bytes = append(p.bytes, m.eng.Vocab().Piece(Token(i), true)...)
			} else {
				p.bytes = m.appendPiece(p.bytes, Token(i))
			}
			p.ends[i] = len(p.bytes)
		}
	})
	start := 0
	if t > 0 {
		start = m.pieces.ends[t-1]
	}
	end := m.pieces.ends[t]
	return m.pieces.bytes[start:end:end]
}
