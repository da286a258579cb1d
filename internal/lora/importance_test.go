package lora

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gollama/internal/gguf"
)

// legacyImportance makes the format before GGUF: sums over calls.
func legacyImportance(entries map[string][]float32, calls int32) []byte {
	var b bytes.Buffer
	put := func(v any) { _ = binary.Write(&b, binary.LittleEndian, v) }
	put(int32(len(entries)))
	for name, x := range entries {
		put(int32(len(name)))
		b.WriteString(name)
		put(calls)
		put(int32(len(x)))
		for _, v := range x {
			put(v * float32(calls))
		}
	}
	put(int32(3)) // chunks, and the name of the text
	put(int32(1))
	b.WriteString("x")
	return b.Bytes()
}

func TestReadImportance(t *testing.T) {
	dir := t.TempDir()
	want := map[string][]float32{"a.weight": {1, 2, 3, 4}}
	legacy := filepath.Join(dir, "imatrix.dat")
	if err := os.WriteFile(legacy, legacyImportance(want, 8), 0o666); err != nil {
		t.Fatal(err)
	}
	modern := filepath.Join(dir, "imatrix.gguf")
	w := weights{
		infos: []gguf.TensorInfo{{Name: "a.weight.in_sum2", Shape: []uint64{4, 1}}, {Name: "a.weight.counts", Shape: []uint64{1, 1}},
			{Name: "e.weight.in_sum2", Shape: []uint64{2, 3}}, {Name: "e.weight.counts", Shape: []uint64{1, 3}}},
		data: map[string][]float32{"a.weight.in_sum2": {8, 16, 24, 32}, "a.weight.counts": {8},
			"e.weight.in_sum2": {2, 4, 0, 0, 9, 3}, "e.weight.counts": {2, 0, 3}},
	}
	w.write(t, modern, gguf.KVs{{Key: "general.type", Value: gguf.ValueOf("imatrix")}}, gguf.SplitLimits{})
	for _, path := range []string{legacy, modern} {
		m, err := ReadImportance(path)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(m["a.weight"], want["a.weight"]) {
			t.Errorf("%s: %v, want %v", path, m["a.weight"], want["a.weight"])
		}
		if got := m["e.weight"]; path == modern && !slices.Equal(got, []float32{1, 2, 1, 1, 3, 1}) { // the second met no token
			t.Errorf("experts: %v", got)
		}
	}
	for name, data := range map[string][]byte{
		"cut":      legacyImportance(want, 8)[:30],
		"negative": legacyImportance(map[string][]float32{"a": {-1}}, 1),
		"nan":      legacyImportance(map[string][]float32{"a": {float32(math.NaN())}}, 1),
		"length":   {1, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f},
		"none":     {0, 0, 0, 0},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		if m, err := ReadImportance(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, %v, want an error", name, m, err)
		}
	}
}

// A weighted merge has less weighted error than one without weights.
func TestImportanceCounts(t *testing.T) {
	needEngine(t)
	m := smallModel()
	m.typ, m.layers = gguf.TypeQ4_K, 1
	const q = "blk.0.attn_q.weight"
	weight := random(5, 256, 1)
	for i, v := range weight {
		weight[i] = v * v * v * v
	}
	a := &Adapter{Arch: "llama", Alpha: 8, Tensors: []Tensor{pair(1, q, 8, 256, 256)}}
	base, adapter := m.writeModel(t), writeAdapter(t, a)
	loss := func(opt Options) float64 {
		f, o := mustMerge(t, base, opt, adapter)
		want := reference(values(t, o.base, q), &a.Tensors[0], 1)
		sum := 0.0
		for i, v := range values(t, f, q) {
			d := float64(v) - want[i]
			sum += float64(weight[i%256]) * d * d
		}
		return sum
	}
	if with, without := loss(Options{Importance: Importance{q: weight}}), loss(Options{}); !(with < without) {
		t.Errorf("weighted error %g with weights, %g without", with, without)
	}
	_, _, err := merge(t, base, Options{Importance: Importance{q: weight[:100]}}, adapter)
	if err == nil || !strings.Contains(err.Error(), "100 values, want 256") {
		t.Errorf("got %v", err)
	}
}

func FuzzLegacyImportance(f *testing.F) {
	f.Add(legacyImportance(map[string][]float32{"a.weight": {1, 2, 3}}, 4))
	f.Add([]byte{1, 0, 0, 0, 1, 0, 0, 0, 'a', 1, 0, 0, 0, 255, 255, 255, 127})
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseLegacyImportance(data)
		if err != nil {
			return
		}
		n := 0
		for _, x := range m {
			n += 4 * len(x)
		}
		if n > len(data) {
			t.Errorf("%d bytes of values from %d bytes", n, len(data))
		}
	})
}
