package data

import (
	"path/filepath"
	"testing"

	"gollama/internal/gguf"
)

func TestVocabHash(t *testing.T) {
	base := gguf.KVs{
		{Key: "general.architecture", Value: gguf.ValueOf("llama")},
		{Key: "tokenizer.ggml.tokens", Value: gguf.ValueOf([]string{"a", "bc"})},
		{Key: "tokenizer.ggml.bos_token_id", Value: gguf.ValueOf(uint32(1))},
	}
	hash := func(kvs gguf.KVs) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "v.gguf")
		w, err := gguf.Create(path, kvs, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		h, err := VocabHash(path)
		if err != nil || len(h) != 32 {
			t.Fatalf("VocabHash = %q, %v", h, err)
		}
		return h
	}
	want := hash(base)
	if got := hash(base.With("general.name", gguf.ValueOf("other"))); got != want {
		t.Errorf("the hash depends on the name: %s, want %s", got, want)
	}
	if got := hash(gguf.KVs{base[2], base[0], base[1]}); got != want {
		t.Errorf("the hash depends on the order: %s, want %s", got, want)
	}
	for _, kvs := range []gguf.KVs{
		base.With("tokenizer.ggml.tokens", gguf.ValueOf([]string{"ab", "c"})),
		base.With("tokenizer.ggml.bos_token_id", gguf.ValueOf(uint32(0))),
		base.With("tokenizer.ggml.pre", gguf.ValueOf("qwen2")),
		base.With("tokenizer.ggml.scores", gguf.ValueOf([]float32{0, 1})),
	} {
		if hash(kvs) == want {
			t.Errorf("the hash is the same for %v", kvs[len(kvs)-1].Key)
		}
	}
	if _, err := VocabHash(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there has a hash")
	}
}
