package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"gollama/internal/gguf"
)

// writeT5 writes a random encoder-decoder of one layer each over a vocabulary of bytes, letters and the space.
func writeT5(t *testing.T) string {
	t.Helper()
	const nEmbd, nHead, nFF, nBucket = 32, 2, 64, 8
	tokens, types := []string{"<unk>", "<s>", "</s>"}, []int32{2, 3, 3}
	for i := range 256 {
		tokens, types = append(tokens, fmt.Sprintf("<0x%02X>", i)), append(types, 6)
	}
	for c := 'a'; c <= 'z'; c++ {
		tokens, types = append(tokens, string(c)), append(types, 1)
	}
	tokens, types = append(tokens, "▁"), append(types, 1)
	nVocab := uint64(len(tokens))
	kvs := gguf.KVs{
		{Key: "general.architecture", Value: gguf.ValueOf("t5")},
		{Key: "tokenizer.ggml.model", Value: gguf.ValueOf("llama")},
		{Key: "tokenizer.ggml.tokens", Value: gguf.ValueOf(tokens)},
		{Key: "tokenizer.ggml.scores", Value: gguf.ValueOf(make([]float32, nVocab))},
		{Key: "tokenizer.ggml.token_type", Value: gguf.ValueOf(types)},
		{Key: "t5.attention.layer_norm_rms_epsilon", Value: gguf.ValueOf(float32(1e-6))},
	}
	for _, kv := range []struct {
		key string
		n   uint32
	}{
		{"tokenizer.ggml.bos_token_id", 1}, {"tokenizer.ggml.eos_token_id", 2}, {"t5.decoder_start_token_id", 0},
		{"t5.context_length", 512}, {"t5.embedding_length", nEmbd}, {"t5.block_count", 1}, {"t5.feed_forward_length", nFF},
		{"t5.attention.head_count", nHead}, {"t5.attention.relative_buckets_count", nBucket},
	} {
		kvs = append(kvs, gguf.KV{Key: kv.key, Value: gguf.ValueOf(kv.n)})
	}
	var tensors []gguf.TensorInfo
	add := func(name string, shape ...uint64) {
		tensors = append(tensors, gguf.TensorInfo{Name: name + ".weight", Type: gguf.TypeF32, Shape: shape})
	}
	add("token_embd", nEmbd, nVocab)
	add("enc.output_norm", nEmbd)
	add("dec.output_norm", nEmbd)
	add("output", nEmbd, nVocab)
	for _, side := range []string{"enc.blk.0.", "dec.blk.0."} {
		add(side+"attn_rel_b", nHead, nBucket)
		add(side+"attn_norm", nEmbd)
		add(side+"ffn_norm", nEmbd)
		add(side+"ffn_up", nEmbd, nFF)
		add(side+"ffn_down", nFF, nEmbd)
		for _, w := range []string{"q", "k", "v", "o"} {
			add(side+"attn_"+w, nEmbd, nEmbd)
		}
	}
	add("dec.blk.0.cross_attn_norm", nEmbd)
	for _, w := range []string{"q", "k", "v", "o"} {
		add("dec.blk.0.cross_attn_"+w, nEmbd, nEmbd)
	}
	return writeModel(t, kvs, tensors)
}

// writeModel writes a model of F32 tensors: matrices around 0, vectors around 1.
func writeModel(t *testing.T, kvs gguf.KVs, tensors []gguf.TensorInfo) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.gguf")
	w, err := gguf.Create(path, kvs, tensors)
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, ti := range tensors {
		v := make([]float32, ti.Elements())
		for i := range v {
			v[i] = float32(rnd.NormFloat64()) * 0.3
			if len(ti.Shape) == 1 {
				v[i] = 1 + v[i]/10
			}
		}
		var buf bytes.Buffer
		_ = binary.Write(&buf, binary.LittleEndian, v) // a buffer takes all
		if err := w.WriteTensor(ti.Name, &buf); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestEncoderDecoder compares with what llama-completion (-no-cnv --no-display-prompt, same flags) wrote for the same file.
func TestEncoderDecoder(t *testing.T) {
	if !hasEngine() {
		t.Skip("no engine")
	}
	path := writeT5(t)
	for prompt, want := range map[string]string{
		"the cat sat": "Cy\x93\x8e\x1f[\x8e\x1f[\x8e\x1f[",
		"a dog ran":   "C\x83\x11\x83\x11\x83\x11\x83\x11\x83\x11\x83",
	} {
		out, msg, code := gollama(t, "run", "-m", path, "-p", prompt, "-n", "12", "--temp", "0")
		if out != want || code != 0 {
			t.Errorf("%q: status %d, got %q, want %q, stderr %q", prompt, code, out, want, msg)
		}
	}
}
