package lora

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// peftArch is how the tensors of an architecture are called and laid out in PEFT, which has Hugging Face's names.
type peftArch struct {
	permuted bool // llama.cpp stores the rows of q and k for interleaved rotation
	normPlus bool // llama.cpp stores norms plus one
	sandwich bool // norms before and after each part: gemma 2 and 3
}

// peftArchs are the architectures that adapters in PEFT's form are read and written for.
// Source: conversion/{llama,granite,mistral3,qwen,gemma,phi}.py and gguf-py/gguf/tensor_mapping.py at v0.5.0.
var peftArchs = map[string]peftArch{
	"llama":    {permuted: true},
	"mistral3": {permuted: true},
	"smollm3":  {permuted: true},
	"granite":  {permuted: true},
	"qwen2":    {},
	"qwen3":    {},
	"qwen2moe": {},
	"qwen3moe": {},
	"phi3":     {},
	"gemma":    {normPlus: true},
	"gemma2":   {normPlus: true, sandwich: true},
	"gemma3":   {normPlus: true, sandwich: true},
}

func peftArchOf(arch string) (peftArch, error) {
	p, ok := peftArchs[arch]
	if !ok {
		var names []string
		for n := range peftArchs {
			names = append(names, n)
		}
		slices.Sort(names)
		return p, adapterErrorf("PEFT adapters for the architecture %q are not read or written, only those for %s", arch, strings.Join(names, ", "))
	}
	return p, nil
}

// globalNames and layerNames pair Hugging Face's names with GGUF's.
var globalNames = [][2]string{
	{"model.embed_tokens", "token_embd"},
	{"model.norm", "output_norm"},
	{"lm_head", "output"},
}

var layerNames = [][2]string{
	{"self_attn.q_proj", "attn_q"},
	{"self_attn.k_proj", "attn_k"},
	{"self_attn.v_proj", "attn_v"},
	{"self_attn.o_proj", "attn_output"},
	{"self_attn.qkv_proj", "attn_qkv"},
	{"self_attn.q_norm", "attn_q_norm"},
	{"self_attn.k_norm", "attn_k_norm"},
	{"mlp.gate_proj", "ffn_gate"},
	{"mlp.up_proj", "ffn_up"},
	{"mlp.down_proj", "ffn_down"},
	{"mlp.gate_up_proj", "ffn_up"},
	{"mlp.gate", "ffn_gate_inp"},
	{"block_sparse_moe.gate", "ffn_gate_inp"},
	{"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
	{"mlp.shared_expert.up_proj", "ffn_up_shexp"},
	{"mlp.shared_expert.down_proj", "ffn_down_shexp"},
	{"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
	{"input_layernorm", "attn_norm"},
}

// Norms between the parts of a layer, by peftArch.sandwich.
var (
	plainNorms    = [][2]string{{"post_attention_layernorm", "ffn_norm"}}
	sandwichNorms = [][2]string{
		{"post_attention_layernorm", "post_attention_norm"},
		{"pre_feedforward_layernorm", "ffn_norm"},
		{"post_feedforward_layernorm", "post_ffw_norm"},
	}
)

func (p peftArch) layerNames() [][2]string {
	if p.sandwich {
		return slices.Concat(layerNames, sandwichNorms)
	}
	return slices.Concat(layerNames, plainNorms)
}

var (
	layerModule  = regexp.MustCompile(`^model\.layers\.(\d{1,6})\.(.+)$`)
	expertModule = regexp.MustCompile(`^(?:mlp|block_sparse_moe)\.experts\.(\d{1,6})\.(gate_proj|up_proj|down_proj|w1|w2|w3)$`)
	blockTensor  = regexp.MustCompile(`^blk\.(\d{1,6})\.(.+)$`)
)

var expertNames = map[string]string{
	"gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps",
	"w1": "ffn_gate_exps", "w3": "ffn_up_exps", "w2": "ffn_down_exps",
}

// toGGUF returns the GGUF name, without .weight, of a module of the model, and which expert it is of (-1: of none).
func (p peftArch) toGGUF(module string) (name string, expert int, ok bool) {
	for _, n := range globalNames {
		if n[0] == module {
			return n[1], -1, true
		}
	}
	m := layerModule.FindStringSubmatch(module)
	if m == nil {
		return "", -1, false
	}
	if e := expertModule.FindStringSubmatch(m[2]); e != nil {
		expert, _ = strconv.Atoi(e[1]) // six digits
		return fmt.Sprintf("blk.%s.%s", m[1], expertNames[e[2]]), expert, true
	}
	for _, n := range p.layerNames() {
		if n[0] == m[2] {
			return fmt.Sprintf("blk.%s.%s", m[1], n[1]), -1, true
		}
	}
	return "", -1, false
}

// fromGGUF returns the module of a tensor whose GGUF name, without .weight, is name.
func (p peftArch) fromGGUF(arch, name string) (module string, ok bool) {
	for _, n := range globalNames {
		if n[1] == name {
			return n[0], true
		}
	}
	m := blockTensor.FindStringSubmatch(name)
	if m == nil {
		return "", false
	}
	for _, n := range p.layerNames() {
		if n[1] != m[2] || arch == "phi3" && n[0] == "mlp.up_proj" || n[0] == "block_sparse_moe.gate" && arch != "llama" || n[0] == "mlp.gate" && arch == "llama" {
			continue
		}
		return fmt.Sprintf("model.layers.%s.%s", m[1], n[0]), true
	}
	return "", false
}

// permuteRows reorders the rows of a matrix whose n rows of width values belong to heads heads: of each head, row
// 2i+j comes from row j*half+i, as LlamaModel.permute does in conversion/llama.py. undo turns it round.
func permuteRows(x []float32, heads, width int, undo bool) ([]float32, error) {
	rows := len(x) / width
	if heads < 1 || rows%(2*heads) != 0 {
		return nil, adapterErrorf("%d rows of queries or keys do not divide by two halves of %d heads", rows, heads)
	}
	half := rows / heads / 2
	out := make([]float32, len(x))
	for h := range heads {
		for i := range half {
			for j := range 2 {
				to, from := h*2*half+2*i+j, h*2*half+j*half+i
				if undo {
					to, from = from, to
				}
				copy(out[to*width:(to+1)*width], x[from*width:(from+1)*width])
			}
		}
	}
	return out, nil
}
