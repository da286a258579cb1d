package graph

import (
	"fmt"
	"math"

	"gollama/internal/gguf"
)

// Hparams are the sizes and constants of a model. Lengths are in values.
type Hparams struct {
	Arch      string // general.architecture
	NVocab    int
	NEmbd     int
	NLayer    int
	NHead     int
	NHeadKV   int
	HeadDim   int // of queries, keys and values alike
	NFF       int
	NCtxTrain int  // tokens
	Tied      bool // the token embedding is the output matrix

	Eps          float32 // of the RMS norms
	RopeBase     float32
	RopeBaseSWA  float32 // of layers with a sliding window
	RopeScale    float32 // positions are multiplied by it; 1: none
	RopeScaleSWA float32
	RopeDim      int     // values of a head that turn
	RopeAttn     float32 // cosines and sines are multiplied by it; 1: none
	NCtxOrig     int     // tokens the model saw before its rope was scaled
	NoRope       bool    // granite without positions

	EmbdScale  float32 // embeddings are multiplied by it
	AttnScale  float32 // scores are multiplied by it
	ResidScale float32 // what a block adds is multiplied by it
	LogitScale float32 // logits are multiplied by it
	AttnCap    float32 // soft cap of the scores; 0: none
	LogitCap   float32 // soft cap of the logits; 0: none
	Window     int     // tokens a layer with a sliding window sees; 0: none
	SWA        []bool  // by layer: has a sliding window; nil: none has
}

// qDim and kvDim are the columns of the queries and of the keys.
func (h *Hparams) qDim() int  { return h.NHead * h.HeadDim }
func (h *Hparams) kvDim() int { return h.NHeadKV * h.HeadDim }

func (h *Hparams) swa(layer int) bool { return h.Window > 0 && h.SWA != nil && h.SWA[layer] }

// unsupported returns an ErrUnsupported with a reason.
func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnsupported, fmt.Sprintf(format, args...))
}

// keys reads an architecture's keys and remembers the first that is wrong.
type keys struct {
	kvs  gguf.KVs
	arch string
	err  error
}

func (k *keys) fail(name, format string, args ...any) {
	if k.err == nil {
		k.err = fmt.Errorf("key %q: %s", k.arch+"."+name, fmt.Sprintf(format, args...))
	}
}

// intOr returns a count, or def where the key is absent. A list is allowed if
// its values are equal.
func (k *keys) intOr(name string, def int) int {
	v, ok := k.kvs.Get(k.arch + "." + name)
	if !ok {
		return def
	}
	if vals, ok := v.Values(); ok && len(vals) > 0 {
		for _, x := range vals[1:] {
			if x.String() != vals[0].String() {
				if k.err == nil {
					k.err = unsupported("%s.%s differs among the layers", k.arch, name)
				}
				return def
			}
		}
		v = vals[0]
	}
	n, ok := v.Uint()
	if !ok || n > 1<<31 {
		k.fail(name, "got %s, want an integer from 0 to 2^31", v)
		return def
	}
	return int(n)
}

func (k *keys) int(name string) int {
	if _, ok := k.kvs.Get(k.arch + "." + name); !ok {
		k.fail(name, "it is missing")
	}
	return k.intOr(name, 0)
}

func (k *keys) floatOr(name string, def float32) float32 {
	v, ok := k.kvs.Get(k.arch + "." + name)
	if !ok {
		return def
	}
	f, ok := v.Float()
	if !ok || math.IsNaN(f) || math.IsInf(f, 0) {
		k.fail(name, "got %s, want a finite number", v)
		return def
	}
	return float32(f)
}

func (k *keys) str(name string) string {
	s, _ := k.kvs.Str(k.arch + "." + name)
	return s
}

// readHparams reads the sizes of a model from its keys. nVocab is the number of
// rows of the embedding. Source: llama-model.cpp, load_hparams, and
// load_arch_hparams of each models/*.cpp.
func readHparams(kvs gguf.KVs, nVocab int, tied bool) (*Hparams, *arch, error) {
	name, ok := kvs.Str("general.architecture")
	if !ok {
		return nil, nil, fmt.Errorf("key %q: it is missing", "general.architecture")
	}
	a, ok := arches[name]
	if !ok {
		return nil, nil, unsupported("architecture %q, want one of %s", name, archNames())
	}
	k := &keys{kvs: kvs, arch: name}
	if n := k.intOr("expert_count", 0); n > 0 {
		return nil, nil, unsupported("mixture of %d experts", n)
	}
	h := &Hparams{
		Arch: name, NVocab: nVocab, Tied: tied,
		NEmbd: k.int("embedding_length"), NLayer: k.int("block_count"), NHead: k.int("attention.head_count"),
		NFF: k.int("feed_forward_length"), NCtxTrain: k.int("context_length"),
		Eps: k.floatOr("attention.layer_norm_rms_epsilon", 0),
	}
	if k.err != nil {
		return nil, nil, k.err
	}
	h.NHeadKV = k.intOr("attention.head_count_kv", h.NHead)
	h.HeadDim = k.intOr("attention.key_length", h.NEmbd/max(h.NHead, 1))
	if v := k.intOr("attention.value_length", h.NEmbd/max(h.NHead, 1)); v != h.HeadDim {
		return nil, nil, unsupported("keys of %d values and values of %d", h.HeadDim, v)
	}
	h.EmbdScale, h.ResidScale, h.LogitScale = 1, 1, 1
	h.AttnScale = float32(1 / math.Sqrt(float64(max(h.HeadDim, 1))))
	if err := readRope(k, h); err != nil {
		return nil, nil, err
	}
	if err := a.constants(k, h); err != nil {
		return nil, nil, err
	}
	if k.err != nil {
		return nil, nil, k.err
	}
	return h, a, h.check()
}

func readRope(k *keys, h *Hparams) error {
	h.RopeDim = k.intOr("rope.dimension_count", h.HeadDim)
	h.RopeBase = k.floatOr("rope.freq_base", 10000)
	h.RopeBaseSWA = h.RopeBase
	h.RopeAttn = k.floatOr("rope.scaling.attn_factor", 1)
	h.NCtxOrig = k.intOr("rope.scaling.original_context_length", h.NCtxTrain)
	h.RopeScale, h.RopeScaleSWA = 1, 1
	switch t := k.str("rope.scaling.type"); t {
	case "", "linear", "longrope":
		if f := k.floatOr("rope.scaling.factor", k.floatOr("rope.scale_linear", 0)); f != 0 {
			h.RopeScale = 1 / f
		}
	case "none":
	default:
		return unsupported("rope scaling %q", t)
	}
	return nil
}

// check holds the sizes to what the kernels and the tensors need.
func (h *Hparams) check() error {
	for _, s := range []struct {
		name     string
		n, limit int
	}{
		{"layers", h.NLayer, 1 << 16}, {"embedding length", h.NEmbd, 1 << 24}, {"heads", h.NHead, 1 << 16},
		{"kv heads", h.NHeadKV, 1 << 16}, {"head size", h.HeadDim, 1 << 16}, {"feed-forward length", h.NFF, 1 << 24},
		{"vocabulary", h.NVocab, 1 << 28},
	} {
		if s.n < 1 || s.n > s.limit {
			return fmt.Errorf("model sizes: %s %d, want 1 to %d", s.name, s.n, s.limit)
		}
	}
	switch {
	case h.NHead%h.NHeadKV != 0:
		return fmt.Errorf("model sizes: %d heads, want a multiple of the %d kv heads", h.NHead, h.NHeadKV)
	case h.RopeDim%2 != 0 || h.RopeDim > h.HeadDim || h.RopeDim < 2 && !h.NoRope:
		return fmt.Errorf("model sizes: rope of %d values, want an even number up to the head size %d", h.RopeDim, h.HeadDim)
	case !(h.Eps >= 0 && h.Eps < 1):
		return fmt.Errorf("model sizes: norm epsilon %g, want 0 to 1", h.Eps)
	case !(h.RopeBase > 0) || !(h.RopeBaseSWA > 0):
		return fmt.Errorf("model sizes: rope base %g, want more than 0", h.RopeBase)
	}
	return nil
}
