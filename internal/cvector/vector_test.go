package cvector

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gollama/internal/gguf"
)

// file makes the bytes of a GGUF file with directions.
func file(t testing.TB, kvs gguf.KVs, tensors []gguf.TensorInfo, value func(tensor, i int) float32) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "v.gguf")
	w, err := gguf.Create(path, kvs, tensors)
	if err != nil {
		t.Fatal(err)
	}
	for n, ti := range tensors {
		b := make([]byte, 0, ti.Size())
		for i := range ti.Elements() {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(value(n, int(i))))
		}
		if err := w.WriteTensor(ti.Name, bytes.NewReader(b[:ti.Size()])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func dirs(n uint64, layers ...int) []gguf.TensorInfo {
	var list []gguf.TensorInfo
	for _, l := range layers {
		list = append(list, gguf.TensorInfo{Name: fmt.Sprintf("direction.%d", l), Type: gguf.TypeF32, Shape: []uint64{n}})
	}
	return list
}

var archKV = gguf.KV{Key: "general.architecture", Value: gguf.ValueOf("controlvector")}

func hintKV(arch string) gguf.KV {
	return gguf.KV{Key: "controlvector.model_hint", Value: gguf.ValueOf(arch)}
}

// A file as repeng writes it: a u32 for the number of directions.
func TestReadRepeng(t *testing.T) {
	path := file(t, gguf.KVs{archKV, hintKV("mistral"), {Key: "controlvector.layer_count", Value: gguf.ValueOf(uint32(4))}},
		dirs(3, 1, 2, 3, 4), func(n, i int) float32 { return float32(10*n + i) })
	v, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if v.Hint != "mistral" || v.Count != 4 || v.NEmbd != 3 || !slices.Equal(v.Layers(), []int{1, 2, 3, 4}) || !slices.Equal(v.Dirs[3], []float32{20, 21, 22}) {
		t.Errorf("got %+v", v)
	}
}

// llama.cpp's own file comes back byte for byte.
func TestReadLlama(t *testing.T) {
	const path = "testdata/llama-mean.gguf"
	v, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if v.Hint != "llama" || v.Count != 4 || v.NEmbd != 64 || len(v.Dirs) != 4 {
		t.Errorf("hint %q, count %d, %d elements, %d directions", v.Hint, v.Count, v.NEmbd, len(v.Dirs))
	}
	for _, info := range v.Info() {
		if math.Abs(info.Norm-1) > 1e-6 {
			t.Errorf("layer %d: length %g, want 1", info.Layer, info.Norm)
		}
	}
	var b bytes.Buffer
	if err := v.Encode(&b); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.Bytes(), want) {
		t.Errorf("written again it has %d bytes that differ from the %d of the file", b.Len(), len(want))
	}
}

func TestReadBad(t *testing.T) {
	keys := gguf.KVs{archKV, hintKV("llama")}
	f16 := []gguf.TensorInfo{{Name: "direction.1", Type: gguf.TypeF16, Shape: []uint64{4}}}
	flat := []gguf.TensorInfo{{Name: "direction.1", Type: gguf.TypeF32, Shape: []uint64{2, 2}}}
	for _, tt := range []struct {
		name    string
		kvs     gguf.KVs
		tensors []gguf.TensorInfo
		value   float32
		want    string
	}{
		{"model", gguf.KVs{{Key: "general.architecture", Value: gguf.ValueOf("llama")}}, dirs(4, 1), 1, `general.architecture is "llama"`},
		{"nothing", keys, nil, 1, "no directions"},
		{"layer 0", keys, dirs(4, 0), 1, "layers are 1 to"},
		{"far layer", keys, dirs(4, 1<<20), 1, "layers are 1 to"},
		{"name", keys, []gguf.TensorInfo{{Name: "direction.01", Type: gguf.TypeF32, Shape: []uint64{4}}}, 1, "not named direction.N"},
		{"type", keys, f16, 1, "of type f16, want f32"},
		{"shape", keys, flat, 1, "want one row"},
		{"lengths", keys, append(dirs(4, 1), dirs(5, 2)...), 1, "has 5 elements, another has 4"},
		{"NaN", keys, dirs(4, 1), float32(math.NaN()), "not finite"},
		{"infinity", keys, dirs(4, 1), float32(math.Inf(-1)), "not finite"},
	} {
		_, err := Read(file(t, tt.kvs, tt.tensors, func(_, _ int) float32 { return tt.value }))
		if !errors.Is(err, ErrVector) || !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%s: error %v, want one with %q", tt.name, err, tt.want)
		}
	}
}

func vector(n int, base string, layers ...int) *Vector {
	v := &Vector{Hint: "llama", NEmbd: n, Dirs: map[int][]float32{}, Source: "test"}
	for _, l := range layers {
		for i := range n {
			v.Dirs[l] = append(v.Dirs[l], float32(l)+float32(i)/8)
		}
		v.Count = max(v.Count, l)
	}
	if base != "" {
		v.Keys = gguf.KVs{{Key: KeyLayerBase, Value: gguf.ValueOf(base)}}
	}
	return v
}

func TestAdd(t *testing.T) {
	sum, err := Add([]Term{{vector(3, BaseRuntime, 1, 2), 2}, {vector(3, "", 2, 5), -0.5}})
	if err != nil {
		t.Fatal(err)
	}
	want := map[int][]float32{1: {2, 2.25, 2.5}, 2: {3, 3.1875, 3.375}, 5: {-2.5, -2.5625, -2.625}}
	for l, dir := range want {
		if !slices.Equal(sum.Dirs[l], dir) {
			t.Errorf("layer %d: %v, want %v", l, sum.Dirs[l], dir)
		}
	}
	if sum.Count != 5 || len(sum.Dirs) != 3 {
		t.Errorf("%d layers, count %d", len(sum.Dirs), sum.Count)
	}
	other := vector(3, "", 1)
	other.Hint = "gemma"
	for name, term := range map[string]*Vector{"lengths": vector(4, "", 1), "architectures": other, "bases": vector(3, BaseLegacy, 1)} {
		if _, err := Add([]Term{{vector(3, BaseRuntime, 1), 1}, {term, 1}}); !errors.Is(err, ErrVector) {
			t.Errorf("%s differ: error %v", name, err)
		}
	}
	if _, err := vector(3, "", 1).Times(math.MaxFloat64); err == nil {
		t.Error("a value that overflows is no error")
	}
}

func TestShifted(t *testing.T) {
	legacy := vector(2, "", 1, 2, 3, 4)
	v, lost, err := legacy.Shifted(-1)
	if err != nil {
		t.Fatal(err)
	}
	base, _ := v.Keys.Str(KeyLayerBase)
	if !slices.Equal(lost, []int{1}) || !slices.Equal(v.Layers(), []int{1, 2, 3}) || !slices.Equal(v.Dirs[3], legacy.Dirs[4]) || base != BaseRuntime {
		t.Errorf("shifted by -1: lost %v, layers %v, base %q", lost, v.Layers(), base)
	}
	back, lost, err := v.Shifted(1)
	if err != nil || len(lost) > 0 || !slices.Equal(back.Dirs[4], legacy.Dirs[4]) {
		t.Errorf("and back: lost %v, %v", lost, err)
	}
	if base, _ := back.Keys.Str(KeyLayerBase); base != BaseLegacy {
		t.Errorf("and back: base %q", base)
	}
	for _, by := range []int{-4, maxLayer} {
		if _, _, err := legacy.Shifted(by); !errors.Is(err, ErrVector) {
			t.Errorf("by %d: error %v", by, err)
		}
	}
}

func TestNormalized(t *testing.T) {
	v := vector(5, "", 1, 3)
	v.Dirs[2] = make([]float32, 5)
	u, err := v.Normalized()
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range u.Info() {
		want := 1.0
		if info.Layer == 2 {
			want = 0
		}
		if math.Abs(info.Norm-want) > 1e-7 {
			t.Errorf("layer %d: length %g, want %g", info.Layer, info.Norm, want)
		}
	}
}

func TestFlat(t *testing.T) {
	got, err := vector(2, "", 2).Flat(3, -2)
	if err != nil || !slices.Equal(got, []float32{0, 0, -4, -4.25, 0, 0}) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := vector(2, "", 4).Flat(3, 1); !errors.Is(err, ErrVector) {
		t.Errorf("a layer too many: error %v", err)
	}
}

func FuzzRead(f *testing.F) {
	data, err := os.ReadFile("testdata/llama-mean.gguf")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:300])
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := gguf.Read(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		v, err := fromFile(g)
		if err != nil {
			return
		}
		var first, second bytes.Buffer
		if err := v.Encode(&first); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		g, err = gguf.Read(bytes.NewReader(first.Bytes()), int64(first.Len()))
		if err != nil {
			t.Fatal(err)
		}
		if v, err = fromFile(g); err != nil {
			t.Fatal(err)
		}
		if err := v.Encode(&second); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Fatalf("written and read it is another: %v", err)
		}
	})
}
