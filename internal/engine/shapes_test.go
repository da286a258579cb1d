//go:build cgo

package engine

import (
	"slices"
	"testing"

	"gollama/internal/engine/ggml"
	"gollama/internal/gguf"
)

// writeBlocks writes a random model of 256 values and one layer whose matrices are of a type, and returns its path.
func writeBlocks(t *testing.T, typ ggml.Type) string {
	t.Helper()
	const embd, ff = 256, 512
	kvs := tinyKeys()
	for i, kv := range kvs {
		switch kv.Key {
		case "llama.embedding_length":
			kvs[i].Value = gguf.ValueOf(uint32(embd))
		case "llama.feed_forward_length":
			kvs[i].Value = gguf.ValueOf(uint32(ff))
		case "llama.block_count":
			kvs[i].Value = gguf.ValueOf(uint32(1))
		case "llama.rope.dimension_count":
			kvs[i].Value = gguf.ValueOf(uint32(embd / tinyHead))
		}
	}
	matrix := func(name string, shape ...uint64) gguf.TensorInfo {
		return gguf.TensorInfo{Name: name, Type: gguf.Type(typ), Shape: shape}
	}
	norm := func(name string) gguf.TensorInfo {
		return gguf.TensorInfo{Name: name, Type: gguf.TypeF32, Shape: []uint64{embd}}
	}
	const b = "blk.0."
	list := []gguf.TensorInfo{matrix("token_embd.weight", embd, tinyVocab), norm("output_norm.weight"), matrix("output.weight", embd, tinyVocab),
		norm(b + "attn_norm.weight"), matrix(b+"attn_q.weight", embd, embd), matrix(b+"attn_k.weight", embd, embd),
		matrix(b+"attn_v.weight", embd, embd), matrix(b+"attn_output.weight", embd, embd), norm(b + "ffn_norm.weight"),
		matrix(b+"ffn_gate.weight", embd, ff), matrix(b+"ffn_up.weight", embd, ff), matrix(b+"ffn_down.weight", ff, embd)}
	return writeGGUF(t, "blocks.gguf", kvs, list)
}

// The logits of a token are the same bits whether tokens are evaluated one by one, by threes or all at once, with and without
// repacking: products of quantized weights and attention of few tokens do not depend on what is beside (patches 0007 and 0009).
func TestQuantizedBatchShapes(t *testing.T) {
	tokens := []Token{1, 100, 70, 71, 200, 30, 31}
	for _, name := range []string{"q4_0", "q5_0", "q8_0", "q4_k", "q5_k", "q6_k"} {
		typ, err := ggml.ParseType(name)
		if err != nil {
			t.Fatal(err)
		}
		path := writeBlocks(t, typ)
		logits := func(step int, plain bool) (all []float32) {
			p := testParams(path)
			p.NoExtraBufts, p.FlashAttnType = plain, FlashAttnOn
			c := openContext(t, openModel(t, p), p)
			for i := 0; i < len(tokens); i += step {
				part := tokens[i:min(i+step, len(tokens))]
				if err := c.DecodeLogits(t.Context(), part, i, 0, func(_ int, l []float32) error { all = append(all, l...); return nil }); err != nil {
					t.Fatal(err)
				}
			}
			return all
		}
		want := logits(len(tokens), true)
		SetReference(true, true)
		reference := logits(len(tokens), true)
		SetReference(false, false)
		if slices.Equal(reference, want) {
			t.Skip("no panels on this CPU")
		}
		for _, step := range []int{1, 2, 3, 5, 7} {
			if !slices.Equal(logits(step, false), want) {
				t.Errorf("%s: other bits by %d", name, step)
			}
		}
	}
}
