package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"gollama/internal/engine/ggml"
	"gollama/internal/gguf"
)

// Sizes of the model that writeTiny makes.
const (
	tinyEmbd, tinyHead, tinyFF, tinyLayers, tinyVocab, tinyCtx = 32, 2, 64, 3, 3 + 256 + 26 + 1, 512
)

// tinyKeys are the metadata of a llama model whose vocabulary is <unk>, <s>,
// </s>, the 256 bytes, the letters and the space.
func tinyKeys() gguf.KVs {
	tokens := []string{"<unk>", "<s>", "</s>"}
	types := []int32{2, 3, 3}
	for i := range 256 {
		tokens = append(tokens, fmt.Sprintf("<0x%02X>", i))
		types = append(types, 6)
	}
	for c := 'a'; c <= 'z'; c++ {
		tokens = append(tokens, string(c))
		types = append(types, 1)
	}
	tokens, types = append(tokens, "▁"), append(types, 1)
	u := func(k string, v uint32) gguf.KV { return gguf.KV{Key: k, Value: gguf.ValueOf(v)} }
	return gguf.KVs{
		{Key: "general.architecture", Value: gguf.ValueOf("llama")},
		{Key: "general.name", Value: gguf.ValueOf("tiny")},
		u("llama.context_length", tinyCtx), u("llama.embedding_length", tinyEmbd), u("llama.block_count", tinyLayers),
		u("llama.feed_forward_length", tinyFF), u("llama.attention.head_count", tinyHead),
		u("llama.rope.dimension_count", tinyEmbd/tinyHead),
		{Key: "llama.attention.layer_norm_rms_epsilon", Value: gguf.ValueOf(float32(1e-5))},
		{Key: "tokenizer.ggml.model", Value: gguf.ValueOf("llama")},
		{Key: "tokenizer.ggml.tokens", Value: gguf.ValueOf(tokens)},
		{Key: "tokenizer.ggml.scores", Value: gguf.ValueOf(make([]float32, len(tokens)))},
		{Key: "tokenizer.ggml.token_type", Value: gguf.ValueOf(types)},
		u("tokenizer.ggml.bos_token_id", 1), u("tokenizer.ggml.eos_token_id", 2),
	}
}

func tinyTensors() []gguf.TensorInfo {
	t := func(name string, shape ...uint64) gguf.TensorInfo {
		return gguf.TensorInfo{Name: name, Type: gguf.TypeF32, Shape: shape}
	}
	list := []gguf.TensorInfo{t("token_embd.weight", tinyEmbd, tinyVocab), t("output_norm.weight", tinyEmbd), t("output.weight", tinyEmbd, tinyVocab)}
	for i := range tinyLayers {
		b := fmt.Sprintf("blk.%d.", i)
		list = append(list, t(b+"attn_norm.weight", tinyEmbd), t(b+"attn_q.weight", tinyEmbd, tinyEmbd), t(b+"attn_k.weight", tinyEmbd, tinyEmbd),
			t(b+"attn_v.weight", tinyEmbd, tinyEmbd), t(b+"attn_output.weight", tinyEmbd, tinyEmbd), t(b+"ffn_norm.weight", tinyEmbd),
			t(b+"ffn_gate.weight", tinyEmbd, tinyFF), t(b+"ffn_up.weight", tinyEmbd, tinyFF), t(b+"ffn_down.weight", tinyFF, tinyEmbd))
	}
	return list
}

// fill writes the tensors with random values, norms around 1, in their types.
func fill(t *testing.T, w *gguf.Writer, tensors []gguf.TensorInfo) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, ti := range tensors {
		values := make([]float32, ti.Elements())
		for i := range values {
			values[i] = float32(rnd.NormFloat64()) * 0.3
			if len(ti.Shape) == 1 {
				values[i] = 1 + values[i]/10
			}
		}
		data, err := binary.Append(nil, binary.LittleEndian, values)
		if ti.Type != gguf.TypeF32 {
			data, err = ggml.Quantize(ggml.Type(ti.Type), values, int(ti.Shape[0]), nil)
		}
		if err := errors.Join(err, w.WriteTensor(ti.Name, bytes.NewReader(data))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func writeGGUF(t *testing.T, name string, kvs gguf.KVs, tensors []gguf.TensorInfo) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	w, err := gguf.Create(path, kvs, tensors)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, w, tensors)
	return path
}

// writeTiny writes a random model of 3 layers and returns its path.
func writeTiny(t *testing.T) string {
	t.Helper()
	return writeGGUF(t, "tiny.gguf", tinyKeys(), tinyTensors())
}

// writeVector writes a control vector with a direction for each of layers.
func writeVector(t *testing.T, kvs gguf.KVs, n uint64, layers ...int) string {
	t.Helper()
	var list []gguf.TensorInfo
	for _, l := range layers {
		list = append(list, gguf.TensorInfo{Name: fmt.Sprintf("direction.%d", l), Type: gguf.TypeF32, Shape: []uint64{n}})
	}
	return writeGGUF(t, "vector.gguf", kvs, list)
}

func vectorKeys() gguf.KVs {
	return gguf.KVs{{Key: "general.architecture", Value: gguf.ValueOf("controlvector")},
		{Key: "controlvector.model_hint", Value: gguf.ValueOf("llama")}}
}

func loraKeys() gguf.KVs {
	return gguf.KVs{{Key: "general.architecture", Value: gguf.ValueOf("llama")}, {Key: "general.type", Value: gguf.ValueOf("adapter")},
		{Key: "adapter.type", Value: gguf.ValueOf("lora")}, {Key: "adapter.lora.alpha", Value: gguf.ValueOf(float32(8))}}
}

func loraTensors(base string) []gguf.TensorInfo {
	return []gguf.TensorInfo{{Name: base + ".lora_a", Type: gguf.TypeF32, Shape: []uint64{tinyEmbd, 4}},
		{Name: base + ".lora_b", Type: gguf.TypeF32, Shape: []uint64{4, tinyEmbd}}}
}
