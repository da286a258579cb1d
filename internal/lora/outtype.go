package lora

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gollama/internal/engine/ggml"
	"gollama/internal/gguf"
)

// OutType says in which types a model is written.
type OutType struct {
	Name     string    // keep, f32, q4_k_m, ...
	typ      gguf.Type // of most matrices; unused for keep
	fileType uint32    // general.file_type: enum llama_ftype
}

// Keep leaves every tensor in the type it has: what is merged is quantized to it again.
var Keep = OutType{Name: "keep"}

// outTypes are the types of llama-quantize that need no importance matrix. Source: tools/quantize/quantize.cpp and
// llama_ftype_get_default_type in src/llama-quant.cpp.
var outTypes = []OutType{
	Keep,
	{"f32", gguf.TypeF32, 0},
	{"f16", gguf.TypeF16, 1},
	{"bf16", gguf.TypeBF16, 32},
	{"q8_0", gguf.TypeQ8_0, 7},
	{"q6_k", gguf.TypeQ6_K, 18},
	{"q5_k_m", gguf.TypeQ5_K, 17},
	{"q5_k_s", gguf.TypeQ5_K, 16},
	{"q5_1", gguf.TypeQ5_1, 9},
	{"q5_0", gguf.TypeQ5_0, 8},
	{"q4_k_m", gguf.TypeQ4_K, 15},
	{"q4_k_s", gguf.TypeQ4_K, 14},
	{"q4_1", gguf.TypeQ4_1, 3},
	{"q4_0", gguf.TypeQ4_0, 2},
}

// OutTypeNames lists the names that [ParseOutType] takes.
func OutTypeNames() []string {
	var names []string
	for _, t := range outTypes {
		names = append(names, t.Name)
	}
	return names
}

// ParseOutType returns the type called name, in upper or lower case; q4_k and q5_k stand for q4_k_m and q5_k_m, as in
// llama-quantize. The error lists the names.
func ParseOutType(name string) (OutType, error) {
	lower := strings.ToLower(name)
	if lower == "q4_k" || lower == "q5_k" {
		lower += "_m"
	}
	for _, t := range outTypes {
		if t.Name == lower {
			return t, nil
		}
	}
	return OutType{}, fmt.Errorf("unknown type %q, want one of %s", name, strings.Join(OutTypeNames(), ", "))
}

// chooser picks the type of each tensor of a model as llama-quantize does.
// Source: llama_tensor_get_type and tensor_allows_quantization in src/llama-quant.cpp.
type chooser struct {
	out        OutType
	arch       string
	tied       bool // no output.weight
	experts    uint64
	layers     int
	big        bool           // the 70B of llama 2 and 3, whose attn_v is small
	importance bool           // an importance matrix is used
	order      map[string]int // which of the attn_v and ffn_down it is, by layer
	nAttnV     int
}

func newChooser(out OutType, kvs gguf.KVs, names []string, importance bool) *chooser {
	c := &chooser{out: out, tied: !slices.Contains(names, "output.weight"), importance: importance, order: map[string]int{}}
	c.arch, _ = kvs.Str("general.architecture")
	c.experts, _ = kvs.Uint(c.arch + ".expert_count")
	layers, _ := kvs.Uint(c.arch + ".block_count")
	c.layers = int(min(layers, 1<<20))
	heads, ok := kvs.Uint(c.arch + ".attention.head_count")
	kvHeads, okKV := kvs.Uint(c.arch + ".attention.head_count_kv")
	c.big = c.arch == "llama" && c.layers == 80 && ok && okKV && heads != kvHeads
	sorted := slices.Clone(names)
	slices.SortStableFunc(sorted, func(a, b string) int { return layerOf(a) - layerOf(b) })
	nDown := 0
	for _, n := range sorted {
		switch {
		case isAttnV(n):
			c.order[n] = c.nAttnV
			c.nAttnV++
		case strings.Contains(n, "ffn_down"):
			c.order[n] = nDown
			nDown++
		}
	}
	return c
}

// layerOf returns the number of the layer in a tensor's name, -1 if there is none.
func layerOf(name string) int {
	if m := blockTensor.FindStringSubmatch(name); m != nil {
		n, _ := strconv.Atoi(m[1]) // six digits at most
		return n
	}
	return -1
}

func isAttnV(name string) bool {
	return strings.Contains(name, "attn_v.weight") || strings.Contains(name, "attn_qkv.weight") || strings.Contains(name, "attn_kv_b.weight")
}

// of returns the type that t is written in.
func (c *chooser) of(t gguf.TensorInfo) gguf.Type {
	if c.out.Name == Keep.Name || !t.Quantizable() {
		return t.Type
	}
	if c.out.typ.BlockSize() == 1 {
		return c.out.typ
	}
	return fallback(c.mix(t), t.Shape[0])
}

// mix gives more bits to what needs them.
func (c *chooser) mix(t gguf.TensorInfo) gguf.Type {
	def, name := c.out.typ, c.out.Name
	km := name == "q4_k_m" || name == "q5_k_m"
	embedding := t.Name == "token_embd.weight" || t.Name == "per_layer_token_embd.weight"
	i := c.order[t.Name]
	switch {
	case t.Name == "output.weight" || c.tied && embedding:
		if c.arch == "falcon" || t.Shape[0]%def.BlockSize() != 0 || def == gguf.TypeQ8_0 {
			return gguf.TypeQ8_0
		}
		return gguf.TypeQ6_K
	case embedding:
		return def
	case isAttnV(t.Name):
		switch {
		case c.experts == 8:
			return gguf.TypeQ8_0
		case km && moreBits(i, c.nAttnV):
			return gguf.TypeQ6_K
		case name == "q4_k_s" && i < 4, c.big && def == gguf.TypeQ4_K:
			return gguf.TypeQ5_K
		}
	case strings.Contains(t.Name, "attn_k.weight") && c.experts == 8:
		return gguf.TypeQ8_0
	case strings.Contains(t.Name, "attn_output.weight") && c.experts == 8 && def == gguf.TypeQ4_K:
		return gguf.TypeQ5_K
	case strings.Contains(t.Name, "ffn_down"):
		if c.experts > 1 {
			i = layerOf(t.Name)
		}
		first := i < c.layers/8
		switch {
		case km && moreBits(i, c.layers):
			return gguf.TypeQ6_K
		case name == "q4_k_s" && first:
			return gguf.TypeQ5_K
		case name == "q4_0" && first && c.importance:
			return gguf.TypeQ4_1
		case name == "q5_0" && first && c.importance:
			return gguf.TypeQ5_1
		}
	}
	return def
}

// moreBits is upstream's use_more_bits: the first and last eighth of the layers, and every third between.
func moreBits(i, n int) bool { return i < n/8 || i >= 7*n/8 || (i-n/8)%3 == 2 }

// fallback returns t, or a type whose blocks fit rows of n elements. Source: tensor_type_fallback.
func fallback(t gguf.Type, n uint64) gguf.Type {
	if n%t.BlockSize() == 0 {
		return t
	}
	switch t {
	case gguf.TypeQ4_K:
		t = gguf.TypeQ5_0
	case gguf.TypeQ5_K:
		t = gguf.TypeQ5_1
	case gguf.TypeQ6_K:
		t = gguf.TypeQ8_0
	}
	if n%t.BlockSize() != 0 {
		return gguf.TypeF16
	}
	return t
}

// canWrite reports why a tensor cannot be quantized to t, or nil. Types that search with weights are garbage without.
func canWrite(t gguf.Type, weighted bool) error {
	if t == gguf.TypeF32 || t == gguf.TypeF16 || t == gguf.TypeBF16 {
		return nil
	}
	info, err := ggml.Type(t).Info()
	if err != nil {
		return err
	}
	if !info.CanQuantize {
		return fmt.Errorf("the engine cannot quantize to %s", t)
	}
	switch t {
	case gguf.TypeIQ3_XXS, gguf.TypeIQ2_XXS, gguf.TypeIQ2_XS, gguf.TypeIQ2_S, gguf.TypeIQ1_M, gguf.TypeIQ1_S:
		if !weighted {
			return fmt.Errorf("%s needs an importance matrix", t)
		}
	}
	return nil
}

// canRead reports whether a tensor of type t can be made float32.
func canRead(t gguf.Type) bool {
	if t.BlockSize() == 1 {
		return t == gguf.TypeF32 || t == gguf.TypeF16 || t == gguf.TypeBF16 || t == gguf.TypeF64
	}
	info, err := ggml.Type(t).Info()
	return err == nil && info.CanDequantize
}
