package lora

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"gollama/internal/gguf"
)

// mergeAndVerify merges and compares with the engine's own application of the adapter.
func mergeAndVerify(t *testing.T, base string, opt Options, scale float32, adapter string) ([]Comparison, Bound, error) {
	t.Helper()
	o, err := open(t, base, opt, adapter)
	if err != nil {
		t.Fatal(err)
	}
	o.adapters[0].Scale = scale
	if o.plan, err = NewPlan(o.base, o.adapters, opt); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "merged.gguf")
	w, err := gguf.Create(path, o.plan.Keys, o.plan.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.plan.Run(context.Background(), w, nil); err != nil {
		t.Fatal(err)
	}
	list, bound, err := o.plan.Verify(context.Background(), path, dir, o.adapters, 3)
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("%d files are left in the folder", len(files))
	}
	return list, bound, err
}

func TestVerify(t *testing.T) {
	needEngine(t)
	for _, tt := range []struct {
		name string
		edit func(*testModel, *Adapter)
		out  string
		want float64 // relative RMS at most; 0: the bound that Verify has
	}{
		{"f32", func(*testModel, *Adapter) {}, "keep", 1e-5},
		{"f16", func(m *testModel, _ *Adapter) { m.typ = gguf.TypeF16 }, "keep", 3e-3},
		{"bf16", func(m *testModel, _ *Adapter) { m.typ = gguf.TypeBF16 }, "keep", 0},
		{"q8_0", func(m *testModel, _ *Adapter) { m.typ = gguf.TypeQ8_0 }, "keep", 0},
		{"q4_K", func(m *testModel, _ *Adapter) { m.typ = gguf.TypeQ4_K }, "keep", 0},
		{"q4_K to f16", func(m *testModel, _ *Adapter) { m.typ = gguf.TypeQ4_K }, "f16", 5e-2},
		{"q8_0 to f16", func(m *testModel, _ *Adapter) { m.typ = gguf.TypeQ8_0 }, "f16", 3e-2},
		{"f32 to q8_0", func(*testModel, *Adapter) {}, "q8_0", 0},
		{"experts", func(m *testModel, a *Adapter) { m.experts = 3; *a = *m.onLinears(8, 0.05) }, "keep", 0},
		{"embedding of an untied base", func(_ *testModel, a *Adapter) { a.Tensors = append(a.Tensors, pair(70, embdName, 4, 256, nVocab)) }, "keep", 0},
		{"tied embedding, and a norm", func(m *testModel, a *Adapter) {
			m.tied = true
			a.Tensors = append(a.Tensors, pair(70, embdName, 4, 256, nVocab), Tensor{Base: "output_norm.weight", Whole: matrix(71, 256)})
		}, "keep", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := smallModel()
			a := m.onLinears(8, 0.05)
			tt.edit(&m, a)
			out, err := ParseOutType(tt.out)
			if err != nil {
				t.Fatal(err)
			}
			base, adapter := m.writeModel(t), writeAdapter(t, a)
			list, bound, err := mergeAndVerify(t, base, Options{OutType: out}, 1, adapter)
			if err != nil || len(list) != 3 {
				t.Errorf("%d comparisons, %v", len(list), err)
			}
			for _, c := range list {
				if tt.want > 0 && c.Relative > tt.want {
					t.Errorf("relative RMS %g, want at most %g", c.Relative, tt.want)
				}
				t.Logf("relative RMS %.3g, largest %.3g, same top %.2f; bound: %s", c.Relative, c.MaxAbs, c.Top, bound)
			}
		})
	}
}

// A merge that is wrong is found: the adapter at half its scale.
func TestVerifyFindsErrors(t *testing.T) {
	needEngine(t)
	m := smallModel()
	a := m.onLinears(8, 0.05)
	base, adapter := m.writeModel(t), writeAdapter(t, a)
	half, err := open(t, base, Options{}, adapter)
	if err != nil {
		t.Fatal(err)
	}
	merged, _ := mustMerge(t, base, Options{}, adapter)
	half.adapters[0].Scale = 0.5
	list, _, err := half.plan.Verify(context.Background(), merged.Paths[0], t.TempDir(), half.adapters, 1)
	if !errors.Is(err, ErrDiffers) || len(list) != 1 || list[0].Relative < 0.01 {
		t.Errorf("got %v and %v, want a difference", list, err)
	}
}

func TestVerifyPrompts(t *testing.T) {
	seen := map[string]bool{}
	for i := range 40 {
		p := verifyPrompt(i)
		if p == "" || seen[p] {
			t.Errorf("prompt %d is there before: %q", i, p)
		}
		seen[p] = true
	}
}
