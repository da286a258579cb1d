package lora

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gollama/internal/engine"
	"gollama/internal/gguf"
)

// loads reports an error if the engine does not take the file.
func loads(t *testing.T, f *gguf.File) {
	t.Helper()
	if !hasEngine() {
		return
	}
	p := engine.DefaultParams()
	p.Model = f.Paths[0]
	m, err := engine.LoadModel(context.Background(), &p)
	if err != nil {
		t.Errorf("the engine does not load the result: %v", err)
		return
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// needEngine skips what a build without cgo cannot do.
func needEngine(t *testing.T) {
	t.Helper()
	if !hasEngine() {
		t.Skip("no engine in this build")
	}
}

// Every defect of llama-export-lora that was measured (rows as in the list: what went wrong there), with base and
// adapter made here. That an output is not touched on errors, and cannot be an input, is in cmd/gollama's scripts.
func TestUpstreamDefects(t *testing.T) {
	m := smallModel()
	const q = "blk.0.attn_q.weight"
	one := func(tensors ...Tensor) *Adapter { return &Adapter{Arch: "llama", Alpha: 8, Tensors: tensors} }
	refuses := func(m testModel, a *Adapter, opt Options, want ...string) func(*testing.T) {
		return func(t *testing.T) {
			path := writeAdapter(t, a)
			_, _, err := merge(t, m.writeModel(t), opt, path)
			for _, w := range append(want, path) {
				if err == nil || !strings.Contains(err.Error(), w) || !errors.Is(err, ErrAdapter) {
					t.Errorf("got %v, want an error about the adapter with %q", err, w)
				}
			}
		}
	}
	tests := []struct {
		name string // what upstream does
		run  func(t *testing.T)
	}{
		{"shape mismatch gives a corrupt file", refuses(m, one(pair(1, q, 4, 512, 256)), Options{}, q, "[512 256 1], the model's is [256 256]")},
		{"multiple of the shape is broadcast", refuses(m, one(pair(1, q, 4, 256, 512)), Options{}, q)},
		{"tensor that is not in the base is ignored", refuses(m, one(pair(1, q, 4, 256, 256), pair(3, "blk.7.attn_q.weight", 4, 256, 256), pair(5, "nope.weight", 4, 8, 8)), Options{}, `"blk.7.attn_q.weight", "nope.weight"`)},
		{"head of a tied base is dropped", func(t *testing.T) {
			m := m
			m.tied = true
			a := one(pair(1, outputName, 4, 256, nVocab))
			base := m.writeModel(t)
			f, o := mustMerge(t, base, Options{}, writeAdapter(t, a))
			want := reference(m.weights().data[embdName], &a.Tensors[0], 2)
			if d := far(values(t, f, outputName), want); d > 1e-6 {
				t.Errorf("output is off by %g", d)
			}
			if !slices.Equal(raw(t, f, embdName), raw(t, o.base, embdName)) {
				t.Error("the embedding changed")
			}
			loads(t, f)
		}},
		{"head of a base that is always tied", func(t *testing.T) {
			m := m
			m.tied, m.arch = true, "gemma"
			a := one(pair(1, outputName, 4, 256, nVocab))
			a.Arch = "gemma"
			refuses(m, a, Options{}, "cannot be changed alone", "gemma")(t)
		}},
		{"embedding of a tied base aborts the run", func(t *testing.T) {
			m := m
			m.tied = true
			a := one(pair(1, embdName, 4, 256, nVocab))
			f, _ := mustMerge(t, m.writeModel(t), Options{}, writeAdapter(t, a))
			want := reference(m.weights().data[embdName], &a.Tensors[0], 2)
			if d := far(values(t, f, embdName), want); d > 1e-6 {
				t.Errorf("embedding is off by %g", d)
			}
			if !slices.Equal(values(t, f, outputName), m.weights().data[embdName]) {
				t.Error("the output is not the old embedding")
			}
			loads(t, f)
		}},
		{"aLoRA is merged as always on", func(t *testing.T) {
			a := one(pair(1, q, 4, 256, 256))
			a.InvocationTokens = []uint32{5, 6}
			refuses(m, a, Options{}, "aLoRA")(t)
			_, o := mustMerge(t, m.writeModel(t), Options{Force: true}, writeAdapter(t, a))
			if len(o.plan.Warnings) != 1 || !strings.Contains(o.plan.Warnings[0], "acts always") {
				t.Errorf("warnings %q", o.plan.Warnings)
			}
		}},
		{"norms are dropped", func(t *testing.T) {
			const norm = "blk.1.ffn_norm.weight"
			a := one(pair(1, q, 4, 256, 256), Tensor{Base: norm, Whole: matrix(9, 256)})
			f, _ := mustMerge(t, m.writeModel(t), Options{}, writeAdapter(t, a))
			if !slices.Equal(values(t, f, norm), a.Tensors[1].Whole.Data) {
				t.Error("the norm is not the adapter's")
			}
		}},
		{"alignment 256 does not load", func(t *testing.T) {
			m := m
			m.align = 256
			f, _ := mustMerge(t, m.writeModel(t), Options{}, writeAdapter(t, one(pair(1, q, 4, 256, 256))))
			if f.Alignment != 256 {
				t.Errorf("alignment %d", f.Alignment)
			}
			loads(t, f)
		}},
		{"values of a BF16 base become infinite", func(t *testing.T) {
			m := m
			m.typ = gguf.TypeBF16
			w := m.weights()
			w.data[q][7] = 1e5
			base := filepath.Join(t.TempDir(), "base.gguf")
			w.write(t, base, m.keys(), gguf.SplitLimits{})
			adapter := writeAdapter(t, one(pair(1, q, 4, 256, 256)))
			f, _ := mustMerge(t, base, Options{}, adapter)
			if i, _ := f.Tensor(q); f.Tensors[i].Type != gguf.TypeBF16 || math.Abs(float64(values(t, f, q)[7])-1e5) > 1e3 {
				t.Errorf("type %s, value %g", f.Tensors[i].Type, values(t, f, q)[7])
			}
			f16, _ := ParseOutType("f16")
			_, _, err := merge(t, base, Options{OutType: f16}, adapter)
			if !errors.Is(err, ErrOverflow) || !strings.Contains(err.Error(), "row 0, column 7") {
				t.Errorf("as F16: %v, want a value out of range", err)
			}
		}},
		{"truncated base gives garbage", func(t *testing.T) {
			base := m.writeModel(t)
			st, err := os.Stat(base)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(base, st.Size()-100); err != nil {
				t.Fatal(err)
			}
			_, _, err = merge(t, base, Options{}, writeAdapter(t, one(pair(1, q, 4, 256, 256))))
			if !errors.Is(err, gguf.ErrFormat) || !strings.Contains(err.Error(), base) {
				t.Errorf("got %v, want a format error", err)
			}
		}},
		{"base that shrinks while it is read", func(t *testing.T) {
			base := m.writeModel(t)
			o, err := open(t, base, Options{}, writeAdapter(t, one(pair(1, q, 4, 256, 256))))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(base, o.base.DataOffset+5000); err != nil {
				t.Fatal(err)
			}
			w, err := gguf.NewWriter(io.Discard, o.plan.Keys, o.plan.Tensors)
			if err != nil {
				t.Fatal(err)
			}
			if err := o.plan.Run(context.Background(), w, nil); !errors.Is(err, io.EOF) {
				t.Errorf("got %v, want the end of the file", err)
			}
		}},
		{"no adapter makes an F16 model", func(t *testing.T) {
			if _, _, err := merge(t, m.writeModel(t), Options{}); err == nil || !strings.Contains(err.Error(), "no adapter") {
				t.Errorf("got %v", err)
			}
		}},
		{"quantized base gets F16 tensors and a file type that lies", func(t *testing.T) {
			needEngine(t)
			m := m
			m.typ = gguf.TypeQ8_0
			f, o := mustMerge(t, m.writeModel(t), Options{}, writeAdapter(t, one(pair(1, q, 4, 256, 256))))
			for i := range f.Tensors {
				if f.Tensors[i].Type != o.base.Tensors[i].Type {
					t.Errorf("%s became %s", f.Tensors[i].Name, f.Tensors[i].Type)
				}
			}
			if ft, _ := f.Uint(keyFileType); ft != 7 {
				t.Errorf("file type %d, want 7", ft)
			}
			loads(t, f)
		}},
		{"quantized adapter is refused", func(t *testing.T) {
			needEngine(t)
			a := one(pair(1, q, 32, 256, 256))
			path := filepath.Join(t.TempDir(), "q8.gguf")
			w := weights{data: map[string][]float32{}}
			for _, part := range []struct {
				suffix string
				m      *Matrix
			}{{suffixA, a.Tensors[0].A}, {suffixB, a.Tensors[0].B}} {
				w.infos = append(w.infos, gguf.TensorInfo{Name: q + part.suffix, Type: gguf.TypeQ8_0, Shape: part.m.Shape})
				w.data[q+part.suffix] = part.m.Data
			}
			w.write(t, path, a.ggufKeys(), gguf.SplitLimits{})
			f, _ := mustMerge(t, m.writeModel(t), Options{}, path)
			// 8 bits of A and of B: half a step of a 254th of the largest of 32 values each.
			if d := far(values(t, f, q), reference(m.weights().data[q], &a.Tensors[0], 8./32)); d > 0.02 {
				t.Errorf("off by %g", d)
			}
		}},
		{"adapters of other tensors are refused", func(t *testing.T) {
			a, b := one(pair(1, q, 4, 256, 256)), one(pair(3, "blk.1.ffn_up.weight", 2, 256, 512), pair(5, q, 8, 256, 256))
			f, _ := mustMerge(t, m.writeModel(t), Options{}, writeAdapter(t, a), writeAdapter(t, b))
			first := reference(m.weights().data[q], &a.Tensors[0], 2)
			zero := reference(make([]float32, len(first)), &b.Tensors[1], 1)
			for i := range first {
				first[i] += zero[i]
			}
			if d := far(values(t, f, q), first); d > 1e-6 {
				t.Errorf("sum of two is off by %g", d)
			}
			if d := far(values(t, f, "blk.1.ffn_up.weight"), reference(m.weights().data["blk.1.ffn_up.weight"], &b.Tensors[0], 4)); d > 1e-6 {
				t.Errorf("tensor of one of two is off by %g", d)
			}
		}},
		{"split base is refused", func(t *testing.T) {
			dir := t.TempDir()
			m.weights().write(t, filepath.Join(dir, "base.gguf"), m.keys(), gguf.SplitLimits{Tensors: 7})
			a := one(pair(1, "blk.1.ffn_down.weight", 4, 512, 256))
			whole, _ := mustMerge(t, m.writeModel(t), Options{}, writeAdapter(t, a))
			f, _ := mustMerge(t, gguf.SplitPath(filepath.Join(dir, "base"), 0, 3), Options{}, writeAdapter(t, a))
			for _, info := range whole.Tensors {
				if !slices.Equal(raw(t, f, info.Name), raw(t, whole, info.Name)) {
					t.Errorf("%s differs from the merge of the whole file", info.Name)
				}
			}
		}},
		{"two rules for flipped embeddings", func(t *testing.T) {
			w := m.weights()
			for _, name := range []string{"token_embd_norm.weight", "per_layer_token_embd.weight"} {
				w.infos = append(w.infos, gguf.TensorInfo{Name: name, Shape: []uint64{32, 24}})
				w.data[name] = random(77, 32*24, 1)
			}
			base := filepath.Join(t.TempDir(), "base.gguf")
			w.write(t, base, m.keys(), gguf.SplitLimits{})
			a := one(pair(1, "token_embd_norm.weight", 4, 32, 24), pair(3, "per_layer_token_embd.weight", 4, 32, 24))
			if got := [2]uint64{a.Tensors[0].A.dim(0), a.Tensors[1].A.dim(0)}; got != [2]uint64{32, 4} {
				t.Fatalf("lora_a begins with %v, want 32 for the norm and the rank for the embedding", got)
			}
			f, _ := mustMerge(t, base, Options{}, writeAdapter(t, a))
			for i := range a.Tensors {
				name := a.Tensors[i].Base
				if d := far(values(t, f, name), reference(w.data[name], &a.Tensors[i], 2)); d > 1e-6 {
					t.Errorf("%s is off by %g", name, d)
				}
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, tt.run)
	}
}

// All linears, against float64, by type of the base.
func TestMergeReference(t *testing.T) {
	for _, tt := range []struct {
		typ   gguf.Type
		bound float64 // of the largest error by the largest value
	}{
		{gguf.TypeF32, 1e-6}, // a sum of 8 terms in float32
		{gguf.TypeF16, 5e-4}, // half a unit in the last place of 11 bits
		{gguf.TypeBF16, 4e-3},
		{gguf.TypeQ8_0, 5e-3}, // half of a 127th of the largest of 32
		{gguf.TypeQ4_K, 0.1},  // half of a 15th of the range of 32
	} {
		t.Run(tt.typ.String(), func(t *testing.T) {
			if tt.typ.BlockSize() > 1 {
				needEngine(t)
			}
			m := smallModel()
			m.typ = tt.typ
			a := m.onLinears(8, 0.1)
			f, o := mustMerge(t, m.writeModel(t), Options{Threads: 2}, writeAdapter(t, a))
			for i := range a.Tensors {
				name := a.Tensors[i].Base
				want := reference(values(t, o.base, name), &a.Tensors[i], 1)
				if d := far(values(t, f, name), want); d > tt.bound {
					t.Errorf("%s is off by %g, want at most %g", name, d, tt.bound)
				}
			}
			for _, info := range o.base.Tensors { // the others byte for byte
				if slices.ContainsFunc(a.Tensors, func(t Tensor) bool { return t.Base == info.Name }) {
					continue
				}
				if !slices.Equal(raw(t, f, info.Name), raw(t, o.base, info.Name)) {
					t.Errorf("%s changed", info.Name)
				}
			}
		})
	}
}

func TestMergeExperts(t *testing.T) {
	m := smallModel()
	m.experts, m.layers = 3, 1
	a := m.onLinears(4, 0.2)
	base := m.writeModel(t)
	for _, opt := range []Options{{}, {Float64: true}} {
		f, _ := mustMerge(t, base, opt, writeAdapter(t, a))
		for i := range a.Tensors {
			name := a.Tensors[i].Base
			if d := far(values(t, f, name), reference(m.weights().data[name], &a.Tensors[i], 1)); d > 1e-6 {
				t.Errorf("float64 %v: %s is off by %g", opt.Float64, name, d)
			}
		}
		loads(t, f)
	}
}

// In float64 the result is the rounded sum, bit for bit but for double rounding.
func TestFloat64(t *testing.T) {
	m := smallModel()
	m.layers = 1
	a := m.onLinears(16, 0.3)
	a.Tensors = append(a.Tensors, pair(300, embdName, 4, 256, nVocab))
	f, _ := mustMerge(t, m.writeModel(t), Options{Float64: true}, writeAdapter(t, a))
	for i := range a.Tensors {
		p := &a.Tensors[i]
		want := reference(m.weights().data[p.Base], p, float64(a.Alpha)/float64(p.Rank()))
		differ := 0
		for k, v := range values(t, f, p.Base) {
			if v != float32(want[k]) {
				differ++
			}
		}
		if differ > len(want)/1000 { // the order of a sum in float64 moves one rounding in 2^29
			t.Errorf("%s: %d of %d values are not the rounded sum", p.Base, differ, len(want))
		}
	}
}

func TestTwoAdaptersAreTwoPasses(t *testing.T) {
	m := smallModel()
	a, b := m.onLinears(8, 0.1), m.onLinears(4, 0.2)
	pa, pb, base := writeAdapter(t, a), writeAdapter(t, b), m.writeModel(t)
	both, _ := mustMerge(t, base, Options{}, pa, pb)
	first, _ := mustMerge(t, base, Options{}, pa)
	second, _ := mustMerge(t, first.Paths[0], Options{}, pb)
	for i := range a.Tensors {
		name := a.Tensors[i].Base
		want := make([]float64, 0, 1<<17)
		for _, v := range values(t, second, name) {
			want = append(want, float64(v))
		}
		if d := far(values(t, both, name), want); d > 1e-6 {
			t.Errorf("%s differs by %g", name, d)
		}
	}
}

// Threads, and how the work is cut, leave no trace in the file.
func TestThreadsAgree(t *testing.T) {
	m := smallModel()
	base, adapter := m.writeModel(t), writeAdapter(t, m.onLinears(8, 0.1))
	one, _ := mustMerge(t, base, Options{Threads: 1}, adapter)
	want, err := os.ReadFile(one.Paths[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{2, 5} {
		f, _ := mustMerge(t, base, Options{Threads: n}, adapter)
		got, err := os.ReadFile(f.Paths[0])
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d threads write another file", n)
		}
	}
}

func TestKeysAreTheBases(t *testing.T) {
	m := smallModel()
	m.typ = gguf.TypeF16
	own := gguf.KVs{{Key: "gollama.version", Value: gguf.ValueOf("1")}}
	base, adapter := m.writeModel(t), writeAdapter(t, m.onLinears(4, 0.1))
	f32, _ := ParseOutType("f32")
	for _, tt := range []struct {
		opt      Options
		fileType uint64
	}{{Options{Keys: own}, 1}, {Options{Keys: own, OutType: f32}, 0}} {
		f, o := mustMerge(t, base, tt.opt, adapter)
		if len(f.KVs) != len(o.base.KVs)+1 {
			t.Errorf("%d keys, want those of the base and one", len(f.KVs))
		}
		for i, kv := range o.base.KVs {
			if kv.Key != keyFileType && (f.KVs[i].Key != kv.Key || f.KVs[i].Value.String() != kv.Value.String()) {
				t.Errorf("key %d is %s = %s, want %s = %s", i, f.KVs[i].Key, f.KVs[i].Value, kv.Key, kv.Value)
			}
		}
		if ft, _ := f.Uint(keyFileType); ft != tt.fileType {
			t.Errorf("file type %d, want %d", ft, tt.fileType)
		}
	}
}

func TestScaleOfWhole(t *testing.T) {
	m := smallModel()
	const name = "output_norm.weight"
	a := &Adapter{Arch: "llama", Tensors: []Tensor{{Base: name, Whole: matrix(1, 256)}}}
	b := &Adapter{Arch: "llama", Tensors: []Tensor{{Base: name, Whole: matrix(2, 256)}}}
	o, err := open(t, m.writeModel(t), Options{}, writeAdapter(t, a), writeAdapter(t, b))
	if err != nil {
		t.Fatal(err)
	}
	o.adapters[0].Scale, o.adapters[1].Scale = 0.5, -0.25
	if o.plan, err = NewPlan(o.base, o.adapters, Options{}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	w, err := gguf.Create(path, o.plan.Keys, o.plan.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.plan.Run(context.Background(), w, nil); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, base := values(t, f, name), m.weights().data[name]
	for i, v := range got {
		x, y, z := float64(base[i]), float64(a.Tensors[0].Whole.Data[i]), float64(b.Tensors[0].Whole.Data[i])
		if want := x + 0.5*(y-x) - 0.25*(z-x); math.Abs(float64(v)-want) > 1e-6 {
			t.Fatalf("value %d is %g, want %g", i, v, want)
		}
	}
}

func TestCancelLeavesNothing(t *testing.T) {
	m := smallModel()
	o, err := open(t, m.writeModel(t), Options{}, writeAdapter(t, m.onLinears(4, 0.1)))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "m.gguf")
	if err := os.WriteFile(path, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	w, err := gguf.Create(path, o.plan.Keys, o.plan.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	err = o.plan.Run(ctx, w, func(uint64) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want canceled", err)
	}
	old, _ := os.ReadFile(path)
	files, _ := os.ReadDir(dir)
	if string(old) != "old" || len(files) != 1 {
		t.Errorf("the file holds %d bytes, the folder %d files", len(old), len(files))
	}
}
