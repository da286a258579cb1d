//go:build cgo

package engine

import (
	"slices"
	"strings"
	"testing"

	"gollama/internal/gguf"
)

// embdLoRA writes an adapter of the embedding, whose parts are the other way
// round than elsewhere: a row of lora_a for each token.
func embdLoRA(t *testing.T, rankA, rankB uint64) string {
	t.Helper()
	return writeGGUF(t, "embd.gguf", loraKeys(), []gguf.TensorInfo{
		{Name: "token_embd.weight.lora_a", Type: gguf.TypeF32, Shape: []uint64{rankA, tinyVocab}},
		{Name: "token_embd.weight.lora_b", Type: gguf.TypeF32, Shape: []uint64{rankB, tinyEmbd}}})
}

// llama.cpp loads an adapter of token_embd.weight for a model that has no
// output.weight, and aborts when it multiplies the output with it.
func TestLoRAEmbedding(t *testing.T) {
	noOutput := slices.DeleteFunc(tinyTensors(), func(ti gguf.TensorInfo) bool { return ti.Name == "output.weight" })
	tokens := []Token{1, 260, 261}
	for _, tt := range []struct {
		name         string
		tensors      []gguf.TensorInfo
		rankA, rankB uint64
		want         string
	}{
		{"good", tinyTensors(), 4, 4, ""},
		{"ranks", tinyTensors(), 4, 8, "lora_a has rank 4, lora_b 8"},
		{"tied", noOutput, 4, 4, "shares it with its output"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := testParams(writeGGUF(t, "m.gguf", tinyKeys(), tt.tensors))
			c := openContext(t, openModel(t, p), p)
			before := logitsOf(t, c, tokens)
			path := embdLoRA(t, tt.rankA, tt.rankB)
			err := c.SetLoRA([]LoRAInfo{{path, 1}})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), path+": ") || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("SetLoRA = %v, want %q", err, tt.want)
			}
			if same := slices.Equal(logitsOf(t, c, tokens), before); same != (tt.want != "") {
				t.Errorf("logits are the same: %v", same)
			}
		})
	}
}
