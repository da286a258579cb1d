package tokens

import (
	"errors"
	"fmt"
	"strings"

	"gollama/internal/engine"
	"gollama/internal/gguf"
)

// Token is the id of a token.
type Token = engine.Token

// attr is a set of properties of a token: llama.cpp's enum llama_token_attr.
type attr uint16

const (
	attrUnknown attr = 1 << iota
	attrUnused
	attrNormal
	attrControl
	attrUserDefined
	attrByte
	_ // normalized
	attrLStrip
	attrRStrip
)

// attrOf is indexed by the file's token types, enum llama_token_type.
var attrOf = [...]attr{0, attrNormal, attrUnknown, attrControl, attrUserDefined, attrUnused, attrByte}

// Vocab is a vocabulary as a GGUF file has it, with what llama.cpp makes of it
// when it loads one. It is not changed after ReadVocab, and may be used by
// several goroutines.
type Vocab struct {
	Model string // tokenizer.ggml.model, such as "gpt2"
	Pre   string // tokenizer.ggml.pre
	Type  string // spm, bpe, wpm, ugm, rwkv, plamo2, none

	BOS, EOS, SEP           Token // engine.TokenNull where there is none
	AddBOS, AddEOS, AddSEP  bool  // what the model wants round a text
	addSpacePrefix          bool  // SPM: a space before each text
	escapeSpaces            bool  // spaces are U+2581 in the texts
	texts                   []string
	attrs                   []attr
	scores                  []float32 // nil if there are none
	merges                  []string
	pre                     *pre   // nil if unknown
	slow                    string // why the fast path cannot serve; empty if it can
	eot, eom                Token
	fimPre, fimSuf, fimMid  Token
	fimPad, fimRep, fimFile Token
}

// NTokens returns the number of tokens.
func (v *Vocab) NTokens() int { return len(v.texts) }

// Slow says why the fast path cannot serve this vocabulary; it is empty if it can.
func (v *Vocab) Slow() string { return v.slow }

// Text returns a token as the vocabulary writes it, such as "▁the", or "" for
// one that it does not have.
func (v *Vocab) Text(t Token) string {
	if !v.has(t) {
		return ""
	}
	return v.texts[t]
}

// Score returns a token's score, 0 in vocabularies without scores.
func (v *Vocab) Score(t Token) float32 {
	if !v.has(t) || v.scores == nil {
		return 0
	}
	return v.scores[t]
}

// Kind returns the type of a token: normal, control, user-defined, unknown,
// unused, byte or undefined.
func (v *Vocab) Kind(t Token) string {
	if !v.has(t) {
		return ""
	}
	switch a := v.attrs[t]; {
	case a&attrControl != 0:
		return "control"
	case a&attrUserDefined != 0:
		return "user-defined"
	case a&attrUnknown != 0:
		return "unknown"
	case a&attrByte != 0:
		return "byte"
	case a&attrUnused != 0:
		return "unused"
	case a&attrNormal != 0:
		return "normal"
	}
	return "undefined"
}

func (v *Vocab) has(t Token) bool { return t >= 0 && int(t) < len(v.texts) }

// keepsBytes reports whether ids hold every byte of a text, valid UTF-8 or not.
// The other kinds of vocabulary replace or drop what is not valid.
func (v *Vocab) keepsBytes() bool { return v.Type == "spm" || v.Type == "rwkv" }

// ErrVocab is wrapped by errors of a file whose vocabulary cannot be used.
var ErrVocab = errors.New("no usable vocabulary")

const keyPrefix = "tokenizer.ggml."

// vocabReader reads keys as llama.cpp's get_key does: one of another kind is an
// error there, and makes the vocabulary one for the engine here.
type vocabReader struct {
	v   *Vocab
	kvs gguf.KVs
}

func (r *vocabReader) slow(format string, args ...any) {
	if r.v.slow == "" {
		r.v.slow = fmt.Sprintf(format, args...)
	}
}

func get[T gguf.Data](r *vocabReader, key string, to *T) bool {
	val, ok := r.kvs.Get(key)
	if !ok {
		return false
	}
	x, ok := gguf.As[T](val)
	if !ok {
		r.slow("key %q is of kind %s", key, val.Kind())
		return false
	}
	*to = x
	return true
}

// ReadVocab reads the vocabulary of the GGUF file at path, of a split model the
// first file. It reads the header alone. Errors name the path; those about the
// vocabulary wrap ErrVocab.
func ReadVocab(path string) (*Vocab, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	kvs := f.KVs
	if err := f.Close(); err != nil {
		return nil, err
	}
	v, err := newVocab(kvs)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrVocab, err)
	}
	return v, nil
}

// newVocab is llama_vocab::impl::load of src/llama-vocab.cpp.
func newVocab(kvs gguf.KVs) (*Vocab, error) {
	none := engine.TokenNull
	v := &Vocab{BOS: none, EOS: none, SEP: none, eot: none, eom: none,
		fimPre: none, fimSuf: none, fimMid: none, fimPad: none, fimRep: none, fimFile: none}
	r := &vocabReader{v: v, kvs: kvs}
	if !get(r, keyPrefix+"model", &v.Model) {
		return nil, fmt.Errorf("key %q: not there", keyPrefix+"model")
	}
	get(r, keyPrefix+"pre", &v.Pre)
	r.defaults()
	if v.Type == "none" {
		return nil, errors.New("the model has none")
	}
	get(r, keyPrefix+"add_space_prefix", &v.addSpacePrefix)
	if err := r.tokens(); err != nil {
		return nil, err
	}
	r.specials()
	r.detect()
	r.strip()
	if v.Type == "spm" || v.Type == "bpe" {
		if why := ambiguous(v); why != "" {
			r.slow("%s", why)
		}
	}
	return v, nil
}

// defaults sets what depends on the kind of vocabulary.
func (r *vocabReader) defaults() {
	v := r.v
	switch v.Model {
	case "llama":
		v.Type, v.BOS, v.EOS = "spm", 1, 2
		v.addSpacePrefix, v.escapeSpaces, v.AddBOS = true, true, true
	case "gpt2":
		v.Type, v.BOS, v.EOS = "bpe", 11, 11
	case "gemma4":
		v.Type, v.Pre = "bpe", "gemma4"
	case "hybriddna", "whitespace":
		v.Type, v.BOS, v.EOS = "bpe", 11, 11
		r.slow("tokenizer model %q", v.Model)
	case "bert":
		v.Type, v.BOS, v.SEP, v.AddBOS, v.AddSEP = "wpm", 101, 102, true, true
	case "t5":
		v.Type, v.EOS, v.AddEOS = "ugm", 1, true
	case "rwkv":
		v.Type = "rwkv"
	case "plamo2":
		v.Type, v.BOS, v.EOS = "plamo2", 1, 2
	case "none", "no_vocab":
		v.Type = "none"
		return
	default:
		v.Type = v.Model
	}
	switch v.Type {
	case "spm":
	case "bpe":
		if v.pre = preByName()[v.Pre]; v.pre == nil {
			r.slow("pre-tokenizer %q", v.Pre)
			return
		}
		v.escapeSpaces = v.pre.escapeSpaces
		v.AddBOS, v.AddSEP = v.pre.addBOS, v.pre.addSEP
		if v.pre.noBOS {
			v.BOS = engine.TokenNull
		}
		var ok bool
		if v.merges, ok = r.kvs.Strings(keyPrefix + "merges"); !ok && v.Pre != "kimi-k2" {
			r.slow("there are no merges")
		}
	default:
		r.slow("vocabulary of type %s", v.Type)
	}
}

// tokens reads texts, types and scores.
func (r *vocabReader) tokens() error {
	v := r.v
	var ok bool
	if v.texts, ok = r.kvs.Strings(keyPrefix + "tokens"); !ok || len(v.texts) == 0 {
		return fmt.Errorf("key %q: want an array of strings", keyPrefix+"tokens")
	}
	for i, s := range v.texts {
		if s == "" {
			v.texts[i] = fmt.Sprintf("[EMPTY_%d]", i)
		}
		if strings.IndexByte(s, 0) >= 0 {
			r.slow("the text of token %d holds a zero byte, at which llama.cpp ends it", i)
		}
	}
	n := len(v.texts)
	v.attrs = make([]attr, n)
	var types []int32
	if get(r, keyPrefix+"token_type", &types) && len(types) < n {
		return fmt.Errorf("key %q: %d elements, want %d", keyPrefix+"token_type", len(types), n)
	}
	for i := range v.attrs {
		switch {
		case types == nil:
			v.attrs[i] = attrNormal
		case types[i] >= 0 && int(types[i]) < len(attrOf):
			v.attrs[i] = attrOf[types[i]]
		}
	}
	if val, there := r.kvs.Get(keyPrefix + "scores"); there {
		v.scores, ok = gguf.As[[]float32](val)
		if ints, isInt := gguf.As[[]int32](val); isInt {
			v.scores, ok = make([]float32, len(ints)), true
			for i, x := range ints {
				v.scores[i] = float32(x)
			}
		}
		if !ok || len(v.scores) < n {
			return fmt.Errorf("key %q: %s with %d elements, want %d numbers", keyPrefix+"scores", val.Kind(), val.Len(), n)
		}
	}
	return nil
}

// specials reads the ids of special tokens and what is put round a text.
func (r *vocabReader) specials() {
	v := r.v
	for _, s := range []struct {
		key string
		id  *Token
	}{
		{"bos_token_id", &v.BOS}, {"eos_token_id", &v.EOS}, {"eot_token_id", &v.eot}, {"eom_token_id", &v.eom},
		{"seperator_token_id", &v.SEP},
		{"fim_pre_token_id", &v.fimPre}, {"fim_suf_token_id", &v.fimSuf}, {"fim_mid_token_id", &v.fimMid},
		{"fim_pad_token_id", &v.fimPad}, {"fim_rep_token_id", &v.fimRep}, {"fim_sep_token_id", &v.fimFile},
		{"prefix_token_id", &v.fimPre}, {"suffix_token_id", &v.fimSuf}, {"middle_token_id", &v.fimMid}, // old names
	} {
		if !v.has(*s.id) {
			*s.id = engine.TokenNull
		}
		var id uint32
		if get(r, keyPrefix+s.key, &id) && int64(id) < int64(len(v.texts)) {
			*s.id = Token(id)
		}
	}
	get(r, keyPrefix+"add_bos_token", &v.AddBOS)
	get(r, keyPrefix+"add_eos_token", &v.AddEOS)
	get(r, keyPrefix+"add_sep_token", &v.AddSEP)
	if v.pre != nil && v.pre.gemma4 {
		v.AddBOS = true
	}
}

// strip sets the attributes that llama.cpp knows by the model's name.
func (r *vocabReader) strip() {
	v := r.v
	var name, pre, arch string
	get(r, "general.name", &name)
	get(r, keyPrefix+"pre", &pre)
	get(r, "general.architecture", &arch)
	name = strings.ToLower(name)
	in := func(s string, parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(s, p) {
				return true
			}
		}
		return false
	}
	ids := v.find("<mask>", "[MASK]", "</s>", "<unk>", "<s>", "<|endoftext|>")
	set := func(text string, a attr, on bool) {
		id, ok := ids[text]
		switch {
		case !ok && a == attrRStrip:
			r.slow("the name says Phi-3, but there is no token %q", text) // an error in llama.cpp
		case ok && on:
			v.attrs[id] |= a
		case ok:
			v.attrs[id] &^= a
		}
	}
	switch {
	case in(pre, "jina-v2-de", "jina-v2-es", "jina-v2-code"), in(arch, "nomic-bert-moe", "jina-bert-v3"):
		set("<mask>", attrLStrip, true)
	case in(name, "phi-3", "phi3"):
		for i, a := range v.attrs {
			if a&specialAttrs != 0 {
				v.attrs[i] |= attrRStrip
			}
		}
		set("</s>", attrRStrip, true)
		set("<unk>", attrRStrip, false)
		set("<s>", attrRStrip, false)
		set("<|endoftext|>", attrRStrip, false)
	case in(name, "modern-bert"):
		set("[MASK]", attrLStrip, true)
	}
}

// find returns the ids of those of the texts that are tokens.
func (v *Vocab) find(texts ...string) map[string]Token {
	want := map[string]bool{}
	var begins [256]bool // most tokens need no look into the map
	for _, s := range texts {
		want[s] = true
		begins[s[0]] = true
	}
	ids := map[string]Token{}
	for i, s := range v.texts {
		if begins[s[0]] && len(s) < 32 && want[s] {
			ids[s] = Token(i)
		}
	}
	return ids
}
