package main

import (
	"fmt"
	"math/rand/v2"

	"gollama/internal/gguf"
)

// writeLoRA writes a LoRA adapter of F32 for all linears of the layers to path: A and B normal with standard deviation
// 0.02, alpha twice the rank.
func (o *options) writeLoRA(path string, rank uint64) error {
	kvs := gguf.KVs{
		{Key: "general.architecture", Value: gguf.ValueOf("llama")},
		{Key: "general.type", Value: gguf.ValueOf("adapter")},
		{Key: "adapter.type", Value: gguf.ValueOf("lora")},
		{Key: "adapter.lora.alpha", Value: gguf.ValueOf(float32(2 * rank))},
	}
	var tensors []gguf.TensorInfo
	for _, t := range o.tensors(1) {
		if len(t.Shape) == 1 || t.Name == "token_embd.weight" || t.Name == "output.weight" {
			continue
		}
		for _, p := range []struct {
			suffix string
			shape  []uint64
		}{{".lora_a", []uint64{t.Shape[0], rank}}, {".lora_b", []uint64{rank, t.Shape[1]}}} {
			tensors = append(tensors, gguf.TensorInfo{Name: t.Name + p.suffix, Type: gguf.TypeF32, Shape: p.shape})
		}
	}
	w, err := gguf.Create(path, kvs, tensors)
	if err != nil {
		return fmt.Errorf("-lora: %w", err)
	}
	defer w.Abort()
	rng := rand.New(rand.NewPCG(o.seed, 1))
	for _, t := range tensors {
		if err := writeRandom(w, t, 0.02, rng); err != nil {
			return err
		}
	}
	return w.Close()
}
