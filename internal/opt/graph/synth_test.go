//go:build cgo

package graph

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"gollama/internal/engine/ggml"
	"gollama/internal/gguf"
)

// sizes of a synthetic model: small, and odd where an architecture allows it.
type sizes struct {
	arch                              string
	embd, layers, heads, kvHeads, dim int
	ff                                int
	tied, fused, biases               bool
	typ                               ggml.Type // of the matrices
	extra                             gguf.KVs
	factors                           bool // rope_freqs
	vocab                             int  // 0: nTestVocab; else the engine cannot load it
}

// vocab is <unk>, <s>, </s>, the bytes and the space: the engine can load it.
const nTestVocab = 3 + 256 + 1

func testVocab() gguf.KVs {
	tokens := []string{"<unk>", "<s>", "</s>"}
	types := []int32{2, 3, 3}
	for i := range 256 {
		tokens, types = append(tokens, fmt.Sprintf("<0x%02X>", i)), append(types, 6)
	}
	tokens, types = append(tokens, "▁"), append(types, 1)
	return gguf.KVs{
		{Key: "tokenizer.ggml.model", Value: gguf.ValueOf("llama")},
		{Key: "tokenizer.ggml.tokens", Value: gguf.ValueOf(tokens)},
		{Key: "tokenizer.ggml.scores", Value: gguf.ValueOf(make([]float32, len(tokens)))},
		{Key: "tokenizer.ggml.token_type", Value: gguf.ValueOf(types)},
		{Key: "tokenizer.ggml.bos_token_id", Value: gguf.ValueOf(uint32(1))},
		{Key: "tokenizer.ggml.eos_token_id", Value: gguf.ValueOf(uint32(2))},
	}
}

func (s *sizes) keys() gguf.KVs {
	u := func(k string, v int) gguf.KV { return gguf.KV{Key: s.arch + "." + k, Value: gguf.ValueOf(uint32(v))} }
	f := func(k string, v float32) gguf.KV { return gguf.KV{Key: s.arch + "." + k, Value: gguf.ValueOf(v)} }
	kvs := gguf.KVs{
		{Key: "general.architecture", Value: gguf.ValueOf(s.arch)},
		u("context_length", 128), u("embedding_length", s.embd), u("block_count", s.layers), u("feed_forward_length", s.ff),
		u("attention.head_count", s.heads), u("attention.head_count_kv", s.kvHeads), u("attention.key_length", s.dim), u("attention.value_length", s.dim),
		u("rope.dimension_count", s.dim), f("attention.layer_norm_rms_epsilon", 1e-5), u("vocab_size", nTestVocab),
	}
	for _, kv := range s.extra {
		kv.Key = s.arch + "." + kv.Key
		kvs = kvs.With(kv.Key, kv.Value)
	}
	return append(kvs, testVocab()...)
}

func (s *sizes) nVocab() int {
	if s.vocab > 0 {
		return s.vocab
	}
	return nTestVocab
}

func (s *sizes) tensors() []gguf.TensorInfo {
	var list []gguf.TensorInfo
	add := func(name string, shape ...int) {
		t := gguf.TensorInfo{Name: name, Type: gguf.TypeF32}
		for _, n := range shape {
			t.Shape = append(t.Shape, uint64(n))
		}
		if len(shape) == 2 {
			t.Type = gguf.Type(s.typ)
		}
		list = append(list, t)
	}
	a := arches[s.arch]
	q, kv := s.heads*s.dim, s.kvHeads*s.dim
	add("token_embd.weight", s.embd, s.nVocab())
	add("output_norm.weight", s.embd)
	if !s.tied {
		add("output.weight", s.embd, s.nVocab())
	}
	if s.factors {
		add("rope_freqs.weight", s.dim/2)
	}
	for i := range s.layers {
		b := fmt.Sprintf("blk.%d.", i)
		w := func(name string, in, out int) {
			add(b+name+".weight", in, out)
			if s.biases {
				for _, x := range a.biases {
					if x == name {
						add(b+name+".bias", out)
					}
				}
			}
		}
		if !a.noPreNorm {
			add(b+"attn_norm.weight", s.embd)
			add(b+"ffn_norm.weight", s.embd)
		}
		for _, n := range a.postNorm {
			if n != "" {
				add(b+n+".weight", s.embd)
			}
		}
		switch {
		case a.qkNormWide:
			add(b+"attn_q_norm.weight", q)
			add(b+"attn_k_norm.weight", kv)
		case a.qkNorm:
			add(b+"attn_q_norm.weight", s.dim)
			add(b+"attn_k_norm.weight", s.dim)
		}
		if s.fused {
			w("attn_qkv", s.embd, q+2*kv)
		} else {
			w("attn_q", s.embd, q)
			w("attn_k", s.embd, kv)
			w("attn_v", s.embd, kv)
		}
		w("attn_output", q, s.embd)
		if a.fusedUp {
			w("ffn_up", s.embd, 2*s.ff)
		} else {
			w("ffn_gate", s.embd, s.ff)
			w("ffn_up", s.embd, s.ff)
		}
		w("ffn_down", s.ff, s.embd)
	}
	return list
}

// write writes the model with random values and returns its path.
func (s *sizes) write(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), s.arch+".gguf")
	w, err := gguf.Create(path, s.keys(), s.tensors())
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(7, 8))
	for _, ti := range s.tensors() {
		v := make([]float32, ti.Elements())
		for i := range v {
			switch {
			case strings.HasPrefix(ti.Name, "rope"):
				v[i] = 1 + 3*rnd.Float32()
			case strings.HasSuffix(ti.Name, "norm.weight"):
				v[i] = 1 + 0.2*float32(rnd.NormFloat64())
			case len(ti.Shape) == 1:
				v[i] = 0.3 * float32(rnd.NormFloat64())
			default:
				v[i] = 0.25 * float32(rnd.NormFloat64())
			}
		}
		b := ggml.Bytes(v)
		if ti.Type != gguf.TypeF32 {
			if b, err = ggml.Quantize(ggml.Type(ti.Type), v, int(ti.Shape[0]), nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.WriteTensor(ti.Name, bytes.NewReader(b)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func kv(key string, v any) gguf.KV {
	switch x := v.(type) {
	case int:
		return gguf.KV{Key: key, Value: gguf.ValueOf(uint32(x))}
	case float64:
		return gguf.KV{Key: key, Value: gguf.ValueOf(float32(x))}
	case bool:
		return gguf.KV{Key: key, Value: gguf.ValueOf(x)}
	case string:
		return gguf.KV{Key: key, Value: gguf.ValueOf(x)}
	}
	panic("kv")
}

// testModels has every architecture, with what its files may or may not have.
func testModels() map[string]sizes {
	base := sizes{embd: 48, layers: 3, heads: 4, kvHeads: 2, dim: 12, ff: 40}
	mk := func(arch string, change func(s *sizes)) sizes {
		s := base
		s.arch = arch
		if change != nil {
			change(&s)
		}
		return s
	}
	return map[string]sizes{
		"llama":        mk("llama", nil),
		"llama-tied":   mk("llama", func(s *sizes) { s.tied = true; s.kvHeads = 4 }),
		"llama-biases": mk("llama", func(s *sizes) { s.biases, s.factors = true, true; s.extra = gguf.KVs{kv("rope.freq_base", 500000.0)} }),
		"llama-linear": mk("llama", func(s *sizes) {
			s.kvHeads = 1
			s.extra = gguf.KVs{kv("rope.scaling.type", "linear"), kv("rope.scaling.factor", 4.0)}
		}),
		"qwen2":        mk("qwen2", func(s *sizes) { s.biases, s.tied = true, true }),
		"qwen3":        mk("qwen3", func(s *sizes) { s.dim = 16 }),
		"phi3":         mk("phi3", func(s *sizes) { s.fused = true }),
		"phi3-partial": mk("phi3", func(s *sizes) { s.fused, s.biases = true, true; s.extra = gguf.KVs{kv("rope.dimension_count", 8)} }),
		"gemma2":       mk("gemma2", func(s *sizes) { s.tied, s.dim = true, 16; s.extra = gguf.KVs{kv("attention.sliding_window", 6)} }),
		"gemma3": mk("gemma3", func(s *sizes) {
			s.tied, s.dim, s.kvHeads, s.layers = true, 20, 1, 7
			s.extra = gguf.KVs{kv("attention.sliding_window", 5), kv("rope.freq_base", 1000000.0)}
		}),
		"granite": mk("granite", func(s *sizes) {
			s.biases = true
			s.extra = gguf.KVs{kv("logit_scale", 4.0), kv("residual_scale", 0.3), kv("embedding_scale", 3.0), kv("attention.scale", 0.2)}
		}),
		"granite-norope": mk("granite", func(s *sizes) { s.extra = gguf.KVs{kv("logit_scale", 2.0), kv("rope.scaling.finetuned", false)} }),
		"olmo2":          mk("olmo2", nil),
		"olmo2-swa": mk("olmo2", func(s *sizes) {
			s.layers = 4
			s.extra = gguf.KVs{kv("attention.sliding_window", 6), kv("rope.scaling.type", "linear"), kv("rope.scaling.factor", 2.0)}
		}),
	}
}
