package graph

import (
	"math"
	"slices"
	"strings"
)

// arch says how an architecture differs from the common layer:
//
//	q, k, v = Wq, Wk, Wv · norm(x)   x1 = x + r · norm'(Wo · attention(q, k, v))
//	y = x1 + r · norm'(Wdown · (act(Wgate · norm(x1)) * (Wup · norm(x1))))
type arch struct {
	noPreNorm  bool      // no norm before attention and feed-forward
	postNorm   [2]string // names of the norms behind attention and feed-forward; "": none
	qkNorm     bool      // norms of queries and keys
	qkNormWide bool      // these span all heads
	fusedUp    bool      // ffn_up holds gate and up, one after the other
	gelu       bool      // else SiLU
	neox       bool      // rope pairs are half a head apart
	biases     []string  // biases that may be there
	alwaysTied bool      // never has an output matrix
	neverTied  bool
	constants  func(k *keys, h *Hparams) error
}

var qkvBiases = []string{"attn_q", "attn_k", "attn_v", "attn_qkv"}

// arches are those whose forward pass is compared with llama.cpp's and whose
// gradients are compared with finite differences. Source: src/models/*.cpp and
// llama_model_rope_type of llama.cpp v0.5.0.
var arches = map[string]*arch{
	"llama": {
		biases: append([]string{"attn_output", "ffn_gate", "ffn_up", "ffn_down"}, qkvBiases...),
		constants: func(k *keys, h *Hparams) error {
			setIf(&h.AttnScale, k.floatOr("attention.scale", 0))
			return nil
		},
	},
	"qwen2": {neox: true, biases: qkvBiases, constants: noConstants},
	"qwen3": {neox: true, qkNorm: true, biases: qkvBiases, constants: noConstants},
	"phi3":  {neox: true, fusedUp: true, biases: qkvBiases, constants: noConstants},
	"gemma2": {
		neox: true, gelu: true, postNorm: gemmaNorms, alwaysTied: true, biases: qkvBiases,
		constants: func(k *keys, h *Hparams) error {
			h.AttnCap = k.floatOr("attn_logit_softcapping", 50)
			h.LogitCap = k.floatOr("final_logit_softcapping", 30)
			h.Window = k.intOr("attention.sliding_window", 4096)
			h.RopeBaseSWA, h.RopeScaleSWA = k.floatOr("rope.freq_base_swa", h.RopeBase), h.RopeScale
			return gemma(k, h, 2, 46)
		},
	},
	"gemma3": {
		neox: true, gelu: true, postNorm: gemmaNorms, qkNorm: true, biases: qkvBiases,
		constants: func(k *keys, h *Hparams) error {
			h.LogitCap = k.floatOr("final_logit_softcapping", 0)
			h.Window = k.intOr("attention.sliding_window", 0)
			h.RopeBaseSWA = k.floatOr("rope.freq_base_swa", 10000)
			return gemma(k, h, 6, 62)
		},
	},
	"granite": {
		biases: append([]string{"attn_output", "ffn_gate", "ffn_up", "ffn_down"}, qkvBiases...),
		constants: func(k *keys, h *Hparams) error {
			h.LogitScale = 1 / k.floatOr("logit_scale", 0)
			if math.IsInf(float64(h.LogitScale), 0) {
				k.fail("logit_scale", "it is missing or 0")
			}
			setIf(&h.ResidScale, k.floatOr("residual_scale", 0))
			setIf(&h.EmbdScale, k.floatOr("embedding_scale", 0))
			setIf(&h.AttnScale, k.floatOr("attention.scale", 0))
			if on, ok := k.kvs.Bool(k.arch + ".rope.scaling.finetuned"); ok {
				h.NoRope = !on
			}
			return nil
		},
	},
	"olmo2": {
		neox: true, noPreNorm: true, postNorm: gemmaNorms, qkNorm: true, qkNormWide: true, neverTied: true, biases: qkvBiases,
		constants: func(k *keys, h *Hparams) error {
			if h.Window = k.intOr("attention.sliding_window", 0); h.Window > 0 {
				return readSWA(k, h, 4)
			}
			return nil
		},
	},
}

var gemmaNorms = [2]string{"post_attention_norm", "post_ffw_norm"}

func noConstants(*keys, *Hparams) error { return nil }

// gemma sets what the Gemmas share. The model with big layers scales its scores
// by the embedding's share of a head instead of the head's size.
func gemma(k *keys, h *Hparams, pattern, big int) error {
	h.EmbdScale = float32(math.Sqrt(float64(h.NEmbd)))
	if h.NLayer == big {
		h.AttnScale = float32(1 / math.Sqrt(float64(h.NEmbd/h.NHead)))
	}
	if h.Window == 0 {
		return nil
	}
	return readSWA(k, h, pattern)
}

// readSWA finds the layers with a sliding window: listed in the file, or all
// but every n-th. Source: llama-model.cpp, load_swa_pattern.
func readSWA(k *keys, h *Hparams, n int) error {
	const name = "attention.sliding_window_pattern"
	h.SWA = make([]bool, h.NLayer)
	if v, ok := k.kvs.Get(k.arch + "." + name); ok {
		if vals, ok := v.Values(); ok {
			if len(vals) < h.NLayer {
				k.fail(name, "got %d values, want one for each of %d layers", len(vals), h.NLayer)
				return k.err
			}
			for i := range h.SWA {
				on, isBool := vals[i].Bool()
				num, _ := vals[i].Uint()
				h.SWA[i] = isBool && on || num != 0
			}
			return nil
		}
	}
	n = k.intOr(name, n)
	for i := range h.SWA {
		h.SWA[i] = n == 0 || i%n < n-1
	}
	return nil
}

func setIf(p *float32, v float32) {
	if v != 0 {
		*p = v
	}
}

func archNames() string {
	var names []string
	for n := range arches {
		names = append(names, n)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
