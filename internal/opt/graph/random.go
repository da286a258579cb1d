package graph

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"gollama/internal/engine/ggml"
	"gollama/internal/gguf"
)

// New makes a model with random weights, all of them trained: normal with
// standard deviation 0.02, for those that write to the residual stream divided
// by sqrt(2*layers), and norms of 1. h needs Arch and the sizes; fields that
// are 0 get the architecture's usual values. cfg must not ask for an adapter or
// for a part of the tensors. The same seed gives the same weights.
func New(h Hparams, cfg Config) (*Model, error) {
	if cfg.LoRA != nil || len(cfg.Patterns) > 0 {
		return nil, errors.New("a new model is trained in full: want no adapter and no tensor patterns")
	}
	kvs := h.KVs()
	full, a, err := readHparams(kvs, h.NVocab, h.Tied || arches[h.Arch] != nil && arches[h.Arch].alwaysTied)
	if err != nil {
		return nil, err
	}
	return build(full, a, &randomSource{h: full, arch: a, seed: cfg.Seed}, cfg)
}

// KVs returns the keys of a GGUF file that describe the model, without those of
// the tokenizer. What is 0 is left out where a reader has a default.
func (h *Hparams) KVs() gguf.KVs {
	kvs := gguf.KVs{{Key: "general.architecture", Value: gguf.ValueOf(h.Arch)}, {Key: "general.type", Value: gguf.ValueOf("model")}}
	ints := func(name string, v ...int) { // the first that is not 0
		if i := slices.IndexFunc(v, func(n int) bool { return n > 0 }); i >= 0 {
			kvs = append(kvs, gguf.KV{Key: h.Arch + "." + name, Value: gguf.ValueOf(uint32(v[i]))})
		}
	}
	floats := func(name string, v ...float32) {
		if i := slices.IndexFunc(v, func(f float32) bool { return f != 0 }); i >= 0 {
			kvs = append(kvs, gguf.KV{Key: h.Arch + "." + name, Value: gguf.ValueOf(v[i])})
		}
	}
	dim := h.NEmbd / max(h.NHead, 1)
	ints("vocab_size", h.NVocab)
	ints("context_length", h.NCtxTrain)
	ints("embedding_length", h.NEmbd)
	ints("block_count", h.NLayer)
	ints("feed_forward_length", h.NFF)
	ints("attention.head_count", h.NHead)
	ints("attention.head_count_kv", h.NHeadKV, h.NHead)
	ints("attention.key_length", h.HeadDim, dim)
	ints("attention.value_length", h.HeadDim, dim)
	ints("attention.sliding_window", h.Window)
	ints("rope.dimension_count", h.RopeDim, h.HeadDim, dim)
	floats("rope.freq_base", h.RopeBase)
	floats("attention.layer_norm_rms_epsilon", h.Eps, 1e-5)
	if h.Arch == "granite" {
		scale := float32(1)
		if h.LogitScale != 0 {
			scale = 1 / h.LogitScale
		}
		floats("logit_scale", scale)
		floats("embedding_scale", h.EmbdScale)
		floats("residual_scale", h.ResidScale)
		floats("attention.scale", h.AttnScale)
	}
	return kvs
}

// randomSource has the tensors that a model of an architecture usually has.
type randomSource struct {
	h    *Hparams
	arch *arch
	seed uint64
}

func (s *randomSource) has(name string) bool {
	_, base := splitName(strings.TrimSuffix(name, ".bias"))
	switch {
	case strings.HasSuffix(name, ".bias"):
		return s.h.Arch == "qwen2" && slices.Contains([]string{"attn_q", "attn_k", "attn_v"}, base)
	case base == "attn_qkv":
		return s.arch.fusedUp // phi3 has both in one
	}
	return !strings.HasPrefix(name, "rope_")
}

func (s *randomSource) matrix(_ string, rows, cols int) (*ggml.Weights, error) {
	return &ggml.Weights{Type: ggml.TypeF32, Rows: rows, Cols: cols}, nil
}

func (s *randomSource) fill(_ *ggml.Pool, name string, rows, _ int, dst []float32) error {
	if rows == 1 && !isTable(name) {
		v := float32(1)
		if strings.HasSuffix(name, ".bias") {
			v = 0
		}
		for i := range dst {
			dst[i] = v
		}
		return nil
	}
	std := 0.02
	if _, base := splitName(name); base == "attn_output" || base == "ffn_down" {
		std /= math.Sqrt(2 * float64(s.h.NLayer))
	}
	r := rand.New(rand.NewPCG(mix(s.seed, name), 0))
	for i := range dst {
		dst[i] = float32(std * r.NormFloat64())
	}
	return nil
}

func (s *randomSource) left() []string { return nil }

func (s *randomSource) close() error { return nil }
