package bpe

import (
	"errors"
	"fmt"
	"slices"

	"gollama/internal/gguf"
)

// Vocab is a byte-level BPE vocabulary.
type Vocab struct {
	Tokens   []string   // bytes of each token: first the specials, then the 256 bytes, then what was learned
	NSpecial int        // control tokens
	Merges   [][2]int32 // pairs of tokens, in the order in which they are merged
	BOS, EOS int        // ids
}

// newVocab returns the specials and the bytes, and sets what is not set in o.
func newVocab(o *Options) (*Vocab, error) {
	if o.Specials == nil {
		o.Specials = DefaultSpecials
	}
	if o.BOS == "" {
		o.BOS = DefaultSpecials[0]
	}
	if o.EOS == "" {
		o.EOS = DefaultSpecials[1]
	}
	v := &Vocab{NSpecial: len(o.Specials), BOS: slices.Index(o.Specials, o.BOS), EOS: slices.Index(o.Specials, o.EOS)}
	if v.BOS < 0 || v.EOS < 0 {
		return nil, fmt.Errorf("BOS %q and EOS %q must be among the special tokens %q", o.BOS, o.EOS, o.Specials)
	}
	for i, s := range o.Specials {
		// Its text is no byte, and stands for itself in the file.
		if len(s) < 2 || slices.Contains(o.Specials[:i], s) {
			return nil, fmt.Errorf("special token %q: it is shorter than 2 bytes, or given twice", s)
		}
	}
	v.Tokens = slices.Clone(o.Specials)
	for b := range 256 {
		v.Tokens = append(v.Tokens, string([]byte{byte(b)}))
	}
	return v, nil
}

// Types of tokens in a GGUF file.
const (
	typeNormal  = 1
	typeControl = 3
)

// chatML is the template of a vocabulary that has <|im_start|> and <|im_end|>.
const chatML = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}" +
	"{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

// KVs returns the metadata that make the vocabulary that of a model, as a tokenizer of type gpt2 with
// the pre-tokenizer gpt-2: BOS stands before every text, and where there are the tokens for ChatML,
// the template is, too.
func (v *Vocab) KVs() (gguf.KVs, error) {
	if len(v.Tokens) == 0 {
		return nil, errors.New("the vocabulary is empty")
	}
	texts, types := make([]string, len(v.Tokens)), make([]int32, len(v.Tokens))
	for i, t := range v.Tokens {
		texts[i], types[i] = printable(t), typeNormal
		if i < v.NSpecial {
			texts[i], types[i] = t, typeControl
		}
	}
	merges := make([]string, len(v.Merges))
	for i, m := range v.Merges {
		merges[i] = texts[m[0]] + " " + texts[m[1]]
	}
	kvs := gguf.KVs{
		{Key: "tokenizer.ggml.model", Value: gguf.ValueOf("gpt2")},
		{Key: "tokenizer.ggml.pre", Value: gguf.ValueOf("gpt-2")},
		{Key: "tokenizer.ggml.tokens", Value: gguf.ValueOf(texts)},
		{Key: "tokenizer.ggml.token_type", Value: gguf.ValueOf(types)},
		{Key: "tokenizer.ggml.merges", Value: gguf.ValueOf(merges)},
		{Key: "tokenizer.ggml.bos_token_id", Value: gguf.ValueOf(uint32(v.BOS))},
		{Key: "tokenizer.ggml.eos_token_id", Value: gguf.ValueOf(uint32(v.EOS))},
		{Key: "tokenizer.ggml.add_bos_token", Value: gguf.ValueOf(true)},
	}
	special := v.Tokens[:v.NSpecial]
	if end := slices.Index(special, "<|im_end|>"); end >= 0 && slices.Contains(special, "<|im_start|>") {
		kvs = append(kvs,
			gguf.KV{Key: "tokenizer.ggml.eot_token_id", Value: gguf.ValueOf(uint32(end))},
			gguf.KV{Key: "tokenizer.chat_template", Value: gguf.ValueOf(chatML)})
	}
	return kvs, nil
}

// byteRunes is GPT-2's alphabet: a printable character for each byte, itself where it is one.
var byteRunes = func() (out [256]rune) {
	next := rune(256)
	for b := range out {
		if r := rune(b); r >= '!' && r <= '~' || r >= '¡' && r <= '¬' || r >= '®' && r <= 'ÿ' {
			out[b] = r
			continue
		}
		out[b] = next
		next++
	}
	return out
}()

// printable writes bytes in that alphabet.
func printable(s string) string {
	out := make([]rune, len(s))
	for i := range len(s) {
		out[i] = byteRunes[s[i]]
	}
	return string(out)
}
