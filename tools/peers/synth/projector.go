package main

import (
	"flag"
	"fmt"
	"math/rand/v2"

	"gollama/internal/gguf"
)

// vision is the size of a tower for square images and of its projector, of libmtmd's type mlp (LLaVA's).
type vision struct {
	embd, layers, size, patch uint64 // values, blocks, pixels, pixels
}

func (v *vision) flags(f *flag.FlagSet) {
	f.Uint64Var(&v.embd, "vision-embd", 8, "embedding length of the tower")
	f.Uint64Var(&v.layers, "vision-layers", 0, "number of its layers")
	f.Uint64Var(&v.size, "vision-size", 56, "width of its images in pixels")
	f.Uint64Var(&v.patch, "vision-patch", 28, "width of a patch in pixels")
}

func (v *vision) check(embd uint64) error {
	if embd == 0 || v.embd == 0 || v.embd%v.heads() != 0 || v.patch == 0 || v.size == 0 || v.size%v.patch != 0 {
		return fmt.Errorf("-mmproj: -embd %d, -vision-embd %d, -vision-size %d, -vision-patch %d: want whole heads and patches", embd, v.embd, v.size, v.patch)
	}
	return nil
}

// heads are of 64 values, or one.
func (v *vision) heads() uint64 { return max(1, v.embd/64) }

// writeProjector writes a projector for a model of o.embd to path. Source of the names: tools/mtmd/clip-impl.h.
func (o *options) writeProjector(path string) error {
	v := o.tower
	kvs := gguf.KVs{
		{Key: "general.architecture", Value: gguf.ValueOf("clip")},
		{Key: "general.type", Value: gguf.ValueOf("mmproj")},
		{Key: "general.name", Value: gguf.ValueOf("synthetic")},
		{Key: "clip.has_vision_encoder", Value: gguf.ValueOf(true)},
		{Key: "clip.projector_type", Value: gguf.ValueOf("mlp")},
		{Key: "clip.vision.attention.layer_norm_epsilon", Value: gguf.ValueOf(float32(1e-6))},
		{Key: "clip.vision.image_mean", Value: gguf.ValueOf([]float32{0.5, 0.5, 0.5})},
		{Key: "clip.vision.image_std", Value: gguf.ValueOf([]float32{0.5, 0.5, 0.5})},
	}
	for _, k := range []struct {
		name  string
		value uint64
	}{{"embedding_length", v.embd}, {"attention.head_count", v.heads()}, {"feed_forward_length", 4 * v.embd}, {"block_count", v.layers},
		{"projection_dim", o.embd}, {"image_size", v.size}, {"patch_size", v.patch}} {
		kvs = append(kvs, gguf.KV{Key: "clip.vision." + k.name, Value: gguf.ValueOf(uint32(k.value))})
	}
	tensors := v.tensors(o.embd)
	w, err := gguf.Create(path, kvs, tensors)
	if err != nil {
		return fmt.Errorf("-mmproj: %w", err)
	}
	defer w.Abort()
	rng := rand.New(rand.NewPCG(o.seed, 2))
	for _, t := range tensors {
		if err := writeRandom(w, t, 0.02, rng); err != nil {
			return err
		}
	}
	return w.Close()
}

// tensors lists the tensors for a text model of embd, all F32. Biases come out near 1, which does no harm.
func (v *vision) tensors(embd uint64) []gguf.TensorInfo {
	var ts []gguf.TensorInfo
	add := func(name string, ne ...uint64) {
		ts = append(ts, gguf.TensorInfo{Name: name, Type: gguf.TypeF32, Shape: ne})
	}
	linear := func(name string, in, out uint64) { add(name+".weight", in, out); add(name+".bias", out) }
	patches := v.size / v.patch
	add("v.patch_embd.weight", v.patch, v.patch, 3, v.embd)
	add("v.position_embd.weight", v.embd, patches*patches)
	for i := range v.layers {
		b := fmt.Sprintf("v.blk.%d.", i)
		for _, name := range []string{"attn_q", "attn_k", "attn_v", "attn_out"} {
			linear(b+name, v.embd, v.embd)
		}
		for _, name := range []string{"ln1", "ln2"} {
			add(b+name+".weight", v.embd)
			add(b+name+".bias", v.embd)
		}
		linear(b+"ffn_up", v.embd, 4*v.embd)
		linear(b+"ffn_down", 4*v.embd, v.embd)
	}
	linear("mm.0", v.embd, v.embd)
	linear("mm.2", v.embd, embd)
	return ts
}
