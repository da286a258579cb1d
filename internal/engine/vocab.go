//go:build cgo

package engine

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
	"unsafe"
)

// Vocab is a model's vocabulary. Its methods may be called from several
// goroutines; after the model's Close they return nothing or ErrClosed.
type Vocab struct {
	m   *Model
	n   int
	typ int
	sp  C.gl_specials

	specialsOnce sync.Once
	special      *specials
}

// vocabTypes is indexed by enum llama_vocab_type.
var vocabTypes = []string{"none", "spm", "bpe", "wpm", "ugm", "rwkv", "plamo2", "test"}

const (
	vocabNone = 0
	vocabBPE  = 2
	vocabWPM  = 3
)

func newVocab(m *Model) *Vocab {
	v := &Vocab{m: m, n: m.info.NVocab}
	var ci C.gl_model_info
	C.gl_model_get_info(m.ptr, &ci)
	v.typ = int(ci.vocab_type)
	none := C.int32_t(TokenNull)
	v.sp = C.gl_specials{bos: none, eos: none, eot: none, sep: none, nl: none, pad: none, mask: none}
	if v.typ != vocabNone {
		C.gl_vocab_specials(m.ptr, &v.sp)
	}
	return v
}

// NTokens returns the number of tokens.
func (v *Vocab) NTokens() int { return v.n }

// Type returns spm, bpe, wpm, ugm, rwkv, plamo2 or none.
func (v *Vocab) Type() string {
	if v.typ < len(vocabTypes) {
		return vocabTypes[v.typ]
	}
	return fmt.Sprintf("type %d", v.typ)
}

// BOS returns the beginning-of-sentence token or TokenNull.
func (v *Vocab) BOS() Token { return Token(v.sp.bos) }

// EOS returns the end-of-sentence token or TokenNull.
func (v *Vocab) EOS() Token { return Token(v.sp.eos) }

// EOT returns the end-of-turn token or TokenNull.
func (v *Vocab) EOT() Token { return Token(v.sp.eot) }

// SEP returns the separator token or TokenNull.
func (v *Vocab) SEP() Token { return Token(v.sp.sep) }

// NL returns the newline token or TokenNull.
func (v *Vocab) NL() Token { return Token(v.sp.nl) }

// PAD returns the padding token or TokenNull.
func (v *Vocab) PAD() Token { return Token(v.sp.pad) }

// Mask returns the mask token or TokenNull.
func (v *Vocab) Mask() Token { return Token(v.sp.mask) }

// AddBOS reports whether the model wants BOS before a text.
func (v *Vocab) AddBOS() bool { return bool(v.sp.add_bos) }

// AddEOS reports whether the model wants EOS after a text.
func (v *Vocab) AddEOS() bool { return bool(v.sp.add_eos) }

func (v *Vocab) has(t Token) bool { return t >= 0 && int(t) < v.n && v.typ != vocabNone }

// checkSpecials returns an error where llama.cpp asserts: the model wants a
// special token that it does not have.
func (v *Vocab) checkSpecials() error {
	wpm := v.typ == vocabWPM
	switch {
	case (bool(v.sp.add_bos) || wpm) && v.sp.bos < 0:
		return &Error{Op: "tokenize", Path: v.m.info.Path, Msg: "the model wants a BOS token and has none"}
	case bool(v.sp.add_eos) && v.sp.eos < 0:
		return &Error{Op: "tokenize", Path: v.m.info.Path, Msg: "the model wants an EOS token and has none"}
	case (bool(v.sp.add_sep) || wpm) && v.sp.sep < 0:
		return &Error{Op: "tokenize", Path: v.m.info.Path, Msg: "the model wants a SEP token and has none"}
	}
	return nil
}

// Tokenize returns the tokens of text. addSpecial adds BOS and EOS where the
// model wants them; parseSpecial reads <s> and the like as their tokens, and
// not as text.
func (v *Vocab) Tokenize(text string, addSpecial, parseSpecial bool) ([]Token, error) {
	if v.typ == vocabNone {
		return nil, errNoVocab
	}
	if len(text) > math.MaxInt32/2 {
		return nil, &Error{Op: "tokenize", Msg: fmt.Sprintf("the text has %d bytes, the limit is %d", len(text), math.MaxInt32/2)}
	}
	if addSpecial {
		if err := v.checkSpecials(); err != nil {
			return nil, err
		}
	}
	text = v.plainSpaces(text)
	if !v.m.rlock() {
		return nil, ErrClosed
	}
	defer v.m.mu.RUnlock()
	// Hardly a text has more tokens than bytes, and a second try costs as much as the first.
	out := make([]Token, len(text)+16)
	for {
		var e C.gl_err
		n := int(C.gl_tokenize(v.m.ptr, (*C.char)(unsafe.Pointer(unsafe.StringData(text))), C.int32_t(len(text)),
			(*C.int32_t)(unsafe.Pointer(&out[0])), C.int32_t(len(out)), C.bool(addSpecial), C.bool(parseSpecial), &e))
		switch {
		case e.code != 0:
			return nil, &Error{Op: "tokenize", Msg: errText(&e)}
		case n == math.MinInt32:
			return nil, &Error{Op: "tokenize", Msg: "the text has too many tokens"}
		case n >= 0:
			return slices.Clone(out[:n]), nil
		}
		out = make([]Token, -n)
	}
}

// longSpaces are spaces in more bytes than one, which no valid UTF-8 has.
var longSpaces = strings.NewReplacer("\xc0\xa0", " ", "\xe0\x80\xa0", " ", "\xf0\x80\x80\xa0", " ")

// plainSpaces makes such spaces one byte for a vocabulary that writes spaces as
// U+2581. llama_tokenize decodes them after it has replaced spaces, and the one
// that is left over ends the process (GGML_ASSERT in llama_vocab::find_bpe_rank).
func (v *Vocab) plainSpaces(text string) string {
	if v.typ != vocabBPE || utf8.ValidString(text) {
		return text
	}
	model, _ := v.m.Meta("tokenizer.ggml.model")
	pre, _ := v.m.Meta("tokenizer.ggml.pre")
	if model != "gemma4" && !slices.Contains(blankPre, pre) {
		return text
	}
	return longSpaces.Replace(text)
}

// blankPre are the pre-tokenizers with escape_whitespaces (llama_vocab::impl::load).
var blankPre = []string{"gemma4", "granite-embed-multi-311m", "sarvam-moe"}

// Piece returns the bytes of one token; a control token's are empty unless
// special is set. The bytes of a single token need not be valid UTF-8.
func (v *Vocab) Piece(t Token, special bool) []byte { return v.Detokenize([]Token{t}, special) }

// Detokenize returns the pieces of all tokens, one after the other. Tokens that
// are not in the vocabulary have no bytes.
func (v *Vocab) Detokenize(tokens []Token, special bool) []byte {
	for i, t := range tokens {
		if !v.has(t) {
			return append(v.Detokenize(tokens[:i], special), v.Detokenize(tokens[i+1:], special)...)
		}
	}
	if len(tokens) == 0 || !v.m.rlock() {
		return nil
	}
	defer v.m.mu.RUnlock()
	buf := make([]byte, 16+8*len(tokens))
	for {
		var e C.gl_err
		n := int(C.gl_pieces(v.m.ptr, (*C.int32_t)(unsafe.Pointer(&tokens[0])), C.int(len(tokens)), C.bool(special),
			(*C.char)(unsafe.Pointer(&buf[0])), C.int64_t(len(buf)), &e))
		if e.code != 0 {
			return nil
		}
		if n >= 0 {
			return buf[:n:n]
		}
		buf = make([]byte, -n)
	}
}

// IsEOG reports whether t ends a generation.
func (v *Vocab) IsEOG(t Token) bool {
	if !v.has(t) || !v.m.rlock() {
		return false
	}
	defer v.m.mu.RUnlock()
	return bool(C.gl_is_eog(v.m.ptr, C.int32_t(t)))
}

// IsControl reports whether t is a control token, which has no text.
func (v *Vocab) IsControl(t Token) bool {
	if !v.has(t) || !v.m.rlock() {
		return false
	}
	defer v.m.mu.RUnlock()
	return bool(C.gl_is_control(v.m.ptr, C.int32_t(t)))
}

// Text returns the token as the vocabulary writes it, such as "▁the".
func (v *Vocab) Text(t Token) string {
	if !v.has(t) || !v.m.rlock() {
		return ""
	}
	defer v.m.mu.RUnlock()
	return C.GoString(C.gl_token_text(v.m.ptr, C.int32_t(t)))
}

// Score returns the token's score, 0 in vocabularies without scores.
func (v *Vocab) Score(t Token) float32 {
	if !v.has(t) || !v.m.rlock() {
		return 0
	}
	defer v.m.mu.RUnlock()
	return float32(C.gl_token_score(v.m.ptr, C.int32_t(t)))
}

// Bits of enum llama_token_attr.
const (
	attrUnknown = 1 << 0
	attrControl = 1 << 3
	attrLStrip  = 1 << 7
	attrRStrip  = 1 << 8
)

// specials returns the special tokens.
func (v *Vocab) specials() *specials {
	v.specialsOnce.Do(func() {
		v.special = newSpecials(nil)
		if !v.m.rlock() {
			return
		}
		defer v.m.mu.RUnlock()
		ids := make([]C.int32_t, 1+int(C.gl_special_ids(v.m.ptr, nil, 0)))
		n := int(C.gl_special_ids(v.m.ptr, &ids[0], C.int(len(ids))))
		list := make([]special, n)
		for i, id := range ids[:n] {
			attr := int(C.gl_token_attr(v.m.ptr, id))
			list[i] = special{
				text:    C.GoString(C.gl_token_text(v.m.ptr, id)),
				control: attr&(attrControl|attrUnknown) != 0,
				lstrip:  attr&attrLStrip != 0,
				rstrip:  attr&attrRStrip != 0,
			}
		}
		v.special = newSpecials(list)
	})
	return v.special
}
