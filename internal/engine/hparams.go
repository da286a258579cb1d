package engine

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gollama/internal/gguf"
)

// Limits of the pinned engine, src/llama-hparams.h.
const (
	maxLayers  = 512  // LLAMA_MAX_LAYERS
	maxExperts = 1024 // LLAMA_MAX_EXPERTS
)

// hparams are a model's hyperparameters as llama_model_loader::get_key finds them: an override of the right type wins,
// a value of another type in the file is llama.cpp's to report.
type hparams struct {
	f    *gguf.File
	arch string
	over map[string]any // of KVOverride
}

// name returns the whole key.
func (h hparams) name(key string) string { return h.arch + "." + key }

func (h hparams) uint(key string) (uint32, bool) {
	if v, ok := h.over[h.name(key)].(int64); ok {
		return uint32(v), true // as llama.cpp cuts it
	}
	v, _ := h.f.Get(h.name(key))
	return gguf.As[uint32](v)
}

// most returns the largest of the layers' values, 0 without the key: a number or an array of one for each layer.
func (h hparams) most(key string) uint32 {
	v, ok := h.f.Get(h.name(key))
	if !ok {
		return 0 // llama.cpp overrides only what is there
	}
	if list, ok := gguf.As[[]uint32](v); ok && len(list) > 0 {
		return slices.Max(list)
	}
	if list, ok := gguf.As[[]int32](v); ok && len(list) > 0 {
		return max(uint32(slices.Max(list)), uint32(slices.Min(list))) // llama.cpp reads -1 as the largest
	}
	n, _ := h.uint(key)
	return n
}

func (h hparams) float(key string) (float32, bool) {
	if v, ok := h.over[h.name(key)].(float64); ok {
		return float32(v), true
	}
	v, _ := h.f.Get(h.name(key))
	return gguf.As[float32](v)
}

func (h hparams) str(key string) (string, bool) {
	if v, ok := h.over[key].(string); ok {
		return v, true
	}
	return h.f.Str(key)
}

// counts are the ranges of whole numbers outside of which llama.cpp asserts or fills the memory.
var counts = []struct {
	key    string
	lo, hi uint32
}{
	{"block_count", 1, maxLayers},
	{"context_length", 0, maxTokens},
	{"expert_count", 0, maxExperts},
}

// reals are the ranges of numbers outside of which llama.cpp asserts or computes NaN.
var reals = []struct {
	key       string
	lo        float32
	exclusive bool // lo itself is out
}{
	{"attention.layer_norm_rms_epsilon", 0, false},
	{"attention.layer_norm_epsilon", 0, false},
	{"attention.group_norm_epsilon", 0, false},
	{"rope.freq_base", 0, true},
	{"rope.freq_base_swa", 0, true},
	{"rope.scaling.factor", 0, false},
	{"rope.scale_linear", 0, false},
	{"rope.scaling.attn_factor", -math.MaxFloat32, false},
}

// check returns what llama_model_base::load_hparams and the graphs would assert on, "" if nothing.
func (h hparams) check() string {
	for _, c := range counts {
		if n, ok := h.uint(c.key); ok && (n < c.lo || n > c.hi) {
			return fmt.Sprintf("%s: got %d, want %d to %d", h.name(c.key), n, c.lo, c.hi)
		}
	}
	for _, r := range reals {
		x, ok := h.float(r.key)
		switch {
		case !ok:
		case !finite(x):
			return fmt.Sprintf("%s: got %v, want a finite number", h.name(r.key), x)
		case x < r.lo, r.exclusive && x == r.lo:
			return fmt.Sprintf("%s: got %v, want a number above %v", h.name(r.key), x, r.lo)
		}
	}
	if s, ok := h.str(h.name("rope.scaling.type")); ok && !slices.Contains(trainedScalings, s) {
		return fmt.Sprintf("%s: got %q, want one of %s", h.name("rope.scaling.type"), s, strings.Join(trainedScalings, ", "))
	}
	blocks, _ := h.uint("block_count")
	for _, key := range []string{"nextn_predict_layers", "posnet.block_count", "convnext.block_count"} {
		if n, _ := h.uint(key); n > blocks {
			return fmt.Sprintf("%s: got %d, want at most the %d of %s", h.name(key), n, blocks, h.name("block_count"))
		}
	}
	if msg := h.checkHeads(); msg != "" {
		return msg
	}
	return h.checkExperts()
}

// trainedScalings are the names of enum llama_rope_scaling_type, src/llama-model.cpp.
var trainedScalings = []string{"none", "linear", "yarn", "longrope"}

// checkHeads compares the numbers of heads: ggml_mul_mat asserts that each key head serves as many query heads.
func (h hparams) checkHeads() string {
	heads, ok := h.uint("attention.head_count")
	kv, okKV := h.uint("attention.head_count_kv")
	if ok && okKV && heads > 0 && kv > 0 && heads%kv != 0 {
		return fmt.Sprintf("%s: got %d, want a divisor of the %d of %s", h.name("attention.head_count_kv"), kv, heads, h.name("attention.head_count"))
	}
	return ""
}

// checkExperts repeats what load_hparams asserts of the experts.
func (h hparams) checkExperts() string {
	n, _ := h.uint("expert_count")
	used := h.most("expert_used_count")
	if n <= 1 && strings.HasPrefix(h.arch, "hunyuan") && h.arch != "hunyuan-moe" {
		n, used = 0, 0
	}
	groups, _ := h.uint("expert_group_count")
	inUse, _ := h.uint("expert_group_used_count")
	switch {
	case used > n, n > 0 && used == 0:
		return fmt.Sprintf("%s: got %d, want 1 to the %d of %s", h.name("expert_used_count"), used, n, h.name("expert_count"))
	case groups > 0 && groups >= n:
		return fmt.Sprintf("%s: got %d, want less than the %d of %s", h.name("expert_group_count"), groups, n, h.name("expert_count"))
	case groups > 1 && n%groups != 0:
		return fmt.Sprintf("%s: got %d, want a divisor of the %d of %s", h.name("expert_group_count"), groups, n, h.name("expert_count"))
	case groups > 1 && (inUse == 0 || inUse >= groups):
		return fmt.Sprintf("%s: got %d, want 1 to %d", h.name("expert_group_used_count"), inUse, groups-1)
	}
	return ""
}

// checkVocab looks for what llama_vocab::impl::load asserts on: a token that is there twice, and bytes as tokens
// where the tokenizer has none.
func (h hparams) checkVocab() string {
	model, _ := h.str("tokenizer.ggml.model")
	if model == "none" || model == "no_vocab" {
		return ""
	}
	tokens, ok := h.f.Strings("tokenizer.ggml.tokens")
	if !ok {
		return "" // llama.cpp has an error for that
	}
	seen := make(map[string]struct{}, len(tokens))
	for i, t := range tokens {
		if t == "" {
			t = fmt.Sprintf("[EMPTY_%d]", i)
		}
		if _, dup := seen[t]; dup {
			return fmt.Sprintf("its vocabulary has the token %q twice", t)
		}
		seen[t] = struct{}{}
	}
	if len(tokens) == 0 {
		return "its vocabulary is empty"
	}
	types, _ := h.f.Get("tokenizer.ggml.token_type")
	list, _ := gguf.As[[]int32](types)
	if i := slices.Index(list, tokenByte); i >= 0 && i < len(tokens) && model == "bert" {
		return fmt.Sprintf("tokenizer.ggml.model: got %q, but the vocabulary is not one of BERT: token %q is a byte", model, tokens[i])
	}
	return ""
}

// tokenByte is LLAMA_TOKEN_TYPE_BYTE, include/llama.h.
const tokenByte = 6
