package lora

import "gollama/internal/gguf"

// Base is what reading a PEFT adapter needs to know of the model: names and layouts depend on it.
type Base struct {
	Arch    string // general.architecture
	Heads   int    // attention heads; 0 if the layers differ or the model does not say
	KVHeads int    // heads of keys and values
	Experts int    // experts of a layer; 0 for a dense model
}

// maxCount bounds the numbers a model says of itself: none has a tenth of it.
const maxCount = 1 << 13

// BaseOf returns what f, a model, says of itself.
func BaseOf(f *gguf.File) Base {
	b := Base{}
	b.Arch, _ = f.Str("general.architecture")
	count := func(key string) int {
		v, _ := f.Uint(b.Arch + "." + key)
		return int(min(v, maxCount))
	}
	b.Heads = count("attention.head_count")
	b.KVHeads = count("attention.head_count_kv")
	if _, ok := f.Get(b.Arch + ".attention.head_count_kv"); !ok {
		b.KVHeads = b.Heads
	}
	b.Experts = count("expert_count")
	return b
}
