package gguf

import (
	"slices"
	"strings"
)

// keptParts are parts of the names of tensors that llama-quantize leaves as they are.
var keptParts = []string{
	"_norm.weight", "ffn_gate_inp.weight", "ffn_gate_tid2eid.weight", "altup", "laurel", "per_layer_model_proj",
	"ssm_conv1d", "shortconv.conv.weight", "indexer.k_proj.weight", "indexer.q_proj.weight", "time_mix_first.weight",
	"time_mix_w0.weight", "time_mix_w1.weight", "time_mix_w2.weight", "time_mix_v0.weight", "time_mix_v1.weight",
	"time_mix_v2.weight", "time_mix_a0.weight", "time_mix_a1.weight", "time_mix_a2.weight", "time_mix_g1.weight",
	"time_mix_g2.weight", "time_mix_decay_w1.weight", "time_mix_decay_w2.weight", "time_mix_lerp_fused.weight",
	"attn_rel_b.weight", ".position_embd", "sam.pos_embd", "sam.neck.", "sam.net_", ".rel_pos", ".patch_embd",
	".patch_merger", "a.rvq.codebook", "mm.a.code_embd",
}

// Quantizable reports whether llama-quantize changes the type of the tensor at all.
// Source: tensor_allows_quantization in src/llama-quant.cpp.
func (t TensorInfo) Quantizable() bool {
	dims := 0
	for i, ne := range t.Shape {
		if ne > 1 {
			dims = i + 1
		}
	}
	if dims < 2 || t.Elements() == 0 || !strings.HasSuffix(t.Name, "weight") || t.Name == "position_embd.weight" || t.Name == "token_types.weight" {
		return false
	}
	return !slices.ContainsFunc(keptParts, func(part string) bool { return strings.Contains(t.Name, part) })
}
