//go:build cgo

package graph

import (
	"context"
	"math"
	"strings"
	"testing"

	"gollama/internal/engine"
	"gollama/internal/engine/ggml"
)

// engineLogits returns llama.cpp's logits after every token, with the cache in
// float32 and without flash attention, whose cache is rounded to halves.
func engineLogits(t *testing.T, path, adapter string, tokens []int32) []float32 {
	t.Helper()
	p := engine.DefaultParams()
	p.Model, p.Warmup, p.CPUParams.NThreads = path, false, 2
	p.FlashAttnType, p.CacheTypeK, p.CacheTypeV = engine.FlashAttnOff, engine.CacheF32, engine.CacheF32
	em, err := engine.LoadModel(context.Background(), &p)
	if err != nil {
		t.Fatal(err)
	}
	defer em.Close() //nolint:errcheck // a test
	c, err := engine.NewContext(em, &p)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // a test
	if adapter != "" {
		if err := c.SetLoRA([]engine.LoRAInfo{{Path: adapter, Scale: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	var ids []engine.Token
	for _, id := range tokens {
		ids = append(ids, engine.Token(id))
	}
	var out []float32
	if err := c.DecodeLogits(context.Background(), ids, 0, 0, func(_ int, l []float32) error {
		out = append(out, l...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func maxDiff(a, b []float32) float64 {
	var d float64
	for i := range a {
		d = max(d, math.Abs(float64(a[i])-float64(b[i])))
	}
	return d
}

// The entry ticket of an architecture: logits equal llama.cpp's. Its GELU looks
// up a table of halves (GGML_GELU_FP16, x rounded to 11 bits as well), which is
// a step function without a derivative; ours is the function that the table and
// the GPU backends approximate. So the Gemmas get a wider limit, and for them
// the float64 reference is compared with the usual one.
func TestLogits(t *testing.T) {
	for name, s := range testModels() {
		t.Run(name, func(t *testing.T) {
			path := s.write(t)
			m := open(t, path, Config{})
			ex := example(24, 11)
			got, err := m.Logits(context.Background(), ex)
			if err != nil {
				t.Fatal(err)
			}
			want := engineLogits(t, path, "", ex.Tokens)
			if len(got) != len(want) {
				t.Fatalf("%d logits, want %d", len(got), len(want))
			}
			limit := 1e-3
			if strings.HasPrefix(name, "gemma") {
				limit = 3e-2
			}
			if d := maxDiff(got, want); d > limit {
				t.Errorf("logits differ from llama.cpp's by %g, want at most %g", d, limit)
			} else {
				t.Logf("largest difference from llama.cpp %.2g", d)
			}
			var ref []float32
			for _, l := range newReference(m).logits(ex) {
				for _, v := range l {
					ref = append(ref, float32(v))
				}
			}
			if d := maxDiff(got, ref); d > 1e-3 {
				t.Errorf("logits differ from the float64 reference by %g", d)
			}
		})
	}
}

// Quantized bases: our forward pass widens the weights, llama.cpp rounds the
// activations, to the type of the weights or to 8 bits. The limits are on the
// error's size relative to the logits', about twice what is measured.
func TestLogitsQuantized(t *testing.T) {
	for typ, limit := range map[string]float64{"f16": 3e-3, "bf16": 3e-2, "q8_0": 6e-2, "q4_0": 8e-2} {
		gt, err := ggml.ParseType(typ)
		if err != nil {
			t.Fatal(err)
		}
		s := sizes{arch: "llama", embd: 64, layers: 2, heads: 4, kvHeads: 2, dim: 16, ff: 96, typ: gt}
		path := s.write(t)
		m := open(t, path, Config{LoRA: &LoRA{Rank: 2}})
		ex := example(24, 11)
		got, err := m.Logits(context.Background(), ex)
		if err != nil {
			t.Fatal(err)
		}
		if d := relDiff(got, engineLogits(t, path, "", ex.Tokens)); d > limit {
			t.Errorf("%s: logits differ from llama.cpp's by %g, want at most %g", typ, d, limit)
		} else {
			t.Logf("%s: relative difference %.2g", typ, d)
		}
	}
}
