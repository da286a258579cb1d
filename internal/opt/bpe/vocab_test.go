//go:build cgo

package bpe

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"gollama/internal/engine"
	"gollama/internal/gguf"
)

// load makes a model file of the vocabulary and opens it in the engine.
func load(t testing.TB, v *Vocab) *engine.Model {
	t.Helper()
	kvs := gguf.KVs{{Key: "general.architecture", Value: gguf.ValueOf("llama")},
		{Key: "llama.context_length", Value: gguf.ValueOf(uint32(64))}, {Key: "llama.embedding_length", Value: gguf.ValueOf(uint32(32))},
		{Key: "llama.block_count", Value: gguf.ValueOf(uint32(1))}, {Key: "llama.feed_forward_length", Value: gguf.ValueOf(uint32(64))},
		{Key: "llama.attention.head_count", Value: gguf.ValueOf(uint32(2))}, {Key: "llama.attention.layer_norm_rms_epsilon", Value: gguf.ValueOf(float32(1e-5))}}
	vk, err := v.KVs()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "v.gguf")
	w, err := gguf.Create(path, append(kvs, vk...), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	p := engine.DefaultParams()
	p.Model, p.VocabOnly = path, true
	m, err := engine.LoadModel(context.Background(), &p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// encode merges the pair of lowest rank until none is left: what llama.cpp must do with the file.
func (v *Vocab) encode(text string) (out []engine.Token) {
	rank := map[[2]string]int{}
	for i, m := range v.Merges {
		rank[[2]string{v.Tokens[m[0]], v.Tokens[m[1]]}] = i
	}
	for _, w := range words(text) {
		parts := strings.Split(w, "")
		parts = parts[:0]
		for i := range len(w) {
			parts = append(parts, w[i:i+1])
		}
		for {
			best, at := len(v.Merges), -1
			for i := range len(parts) - 1 {
				if r, ok := rank[[2]string{parts[i], parts[i+1]}]; ok && r < best {
					best, at = r, i
				}
			}
			if at < 0 {
				break
			}
			parts = slices.Replace(parts, at, at+2, parts[at]+parts[at+1])
		}
		for _, p := range parts {
			out = append(out, engine.Token(v.NSpecial+slices.Index(v.Tokens[v.NSpecial:], p)))
		}
	}
	return out
}

func TestVocabInEngine(t *testing.T) {
	text := strings.Repeat("The quick brown fox doesn't jump over 12 lazy dogs.\n\nÀ côté, 世界 🎉!\n", 30)
	v := train(t, 400, Options{}, text)
	m := load(t, v)
	ev := m.Vocab()
	if ev.NTokens() != len(v.Tokens) || ev.BOS() != 0 || ev.EOS() != 1 || !ev.AddBOS() || ev.Type() != "bpe" || !ev.IsEOG(3) || !ev.IsControl(2) {
		t.Errorf("%d tokens, BOS %d, EOS %d, %s", ev.NTokens(), ev.BOS(), ev.EOS(), ev.Type())
	}
	check := func(text string) {
		t.Helper()
		got, err := ev.Tokenize(text, false, false)
		if want := v.encode(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("Tokenize(%q) = %v, %v, want %v", text, got, err, want)
		}
		if back := string(ev.Detokenize(got, false)); back != text {
			t.Errorf("%q comes back as %q", text, back)
		}
	}
	check(text[:len(text)/10])
	check(" <s></s> it's  \t\n  x\n\n\ny 42½ €\x00\x7f")
	rnd := rand.New(rand.NewPCG(3, 1))
	for range 300 { // any characters: all bytes are there
		var b strings.Builder
		for range rnd.IntN(30) {
			if r := rune(rnd.IntN(1 << (7 + rnd.IntN(14)))); utf8.ValidRune(r) {
				b.WriteRune(r)
			}
		}
		text := b.String()
		got, err := ev.Tokenize(text, false, false)
		if back := string(ev.Detokenize(got, false)); err != nil || back != text {
			t.Errorf("%q comes back as %q, %v", text, back, err)
		}
	}
	ct, err := engine.NewChatTemplate(m, engine.ChatTemplateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer ct.Close()
	p, err := ct.Render(&engine.ChatInput{Messages: []engine.ChatMessage{{Role: "user", Content: "dogs"}}, AddGenerationPrompt: true})
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := ct.Tokenize(p)
	if got := string(ev.Detokenize(tokens, true)); err != nil || got != "<s><|im_start|>user\ndogs<|im_end|>\n<|im_start|>assistant\n" || tokens[1] != 2 {
		t.Errorf("%q, %v", got, err)
	}
}

// The vocabulary of the acceptance run: 512 tokens of the text in ../shared.
func TestVocabOfReference(t *testing.T) {
	text, err := os.ReadFile("../../../../shared/data/shakespeare.txt")
	if err != nil {
		t.Skip(err)
	}
	v := train(t, 512, Options{}, string(text[:500000]))
	ev := load(t, v).Vocab()
	part := string(text[1000:21000])
	got, err := ev.Tokenize(part, false, false)
	if want := v.encode(part); err != nil || !slices.Equal(got, want) || string(ev.Detokenize(got, false)) != part {
		t.Errorf("%d tokens, %v, want %d", len(got), err, len(want))
	}
	if perToken := float64(len(part)) / float64(len(got)); perToken < 1.7 {
		t.Errorf("%.2f bytes a token", perToken)
	}
}
