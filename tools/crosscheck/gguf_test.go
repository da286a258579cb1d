package crosscheck

import (
	"bytes"
	"math"
	"path/filepath"
	"slices"
	"testing"

	parser "github.com/gpustack/gguf-parser-go"

	"gollama/internal/gguf"
)

// plain returns v as the other reader gives it: a Go value of the kind's type, or a list of them.
func plain(t *testing.T, v gguf.Value) any {
	t.Helper()
	var x any
	var ok bool
	switch v.Kind() {
	case gguf.KindUint8:
		x, ok = gguf.As[uint8](v)
	case gguf.KindInt8:
		x, ok = gguf.As[int8](v)
	case gguf.KindUint16:
		x, ok = gguf.As[uint16](v)
	case gguf.KindInt16:
		x, ok = gguf.As[int16](v)
	case gguf.KindUint32:
		x, ok = gguf.As[uint32](v)
	case gguf.KindInt32:
		x, ok = gguf.As[int32](v)
	case gguf.KindUint64:
		x, ok = gguf.As[uint64](v)
	case gguf.KindInt64:
		x, ok = gguf.As[int64](v)
	case gguf.KindFloat32:
		x, ok = gguf.As[float32](v)
	case gguf.KindFloat64:
		x, ok = gguf.As[float64](v)
	case gguf.KindBool:
		x, ok = gguf.As[bool](v)
	case gguf.KindString:
		x, ok = gguf.As[string](v)
	case gguf.KindArray:
		vs, valid := v.Values()
		list := make([]any, len(vs))
		for i, e := range vs {
			list[i] = plain(t, e)
		}
		x, ok = list, valid
	}
	if !ok {
		t.Fatalf("%v does not read as its own kind", v)
	}
	return x
}

// equal compares a value of ours with one of theirs.
func equal(ours, theirs any) bool {
	if a, ok := theirs.(parser.GGUFMetadataKVArrayValue); ok {
		list, ok := ours.([]any)
		return ok && uint64(len(list)) == a.Len && slices.EqualFunc(list, a.Array, equal)
	}
	if s, ok := ours.(string); ok {
		ours = string(bytes.TrimSpace([]byte(s))) // theirs are trimmed
	}
	return ours == theirs
}

// compare reads path, and the other shards if it is the first of a split, with both readers.
func compare(t *testing.T, path string) {
	t.Helper()
	want, err := parser.ParseGGUFFile(path, parser.UseMMap())
	if err != nil {
		t.Fatalf("gguf-parser-go: %v", err)
	}
	f, err := gguf.OpenModel(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	start := want.TensorDataStartOffset
	if len(f.Paths) == 1 {
		compareKeys(t, f.KVs, want.Header.MetadataKV)
	} else {
		// Theirs are the keys of all shards one after another; ours are those of the first without the split's own.
		start = want.SplitTensorDataStartOffsets[0]
	}
	if f.Version != uint32(want.Header.Version) || f.DataOffset != start && len(f.Tensors) > 0 {
		t.Errorf("got version %d and data at %d, want %d and %d", f.Version, f.DataOffset, want.Header.Version, start)
	}
	if len(f.Tensors) != len(want.TensorInfos) {
		t.Fatalf("got %d tensors, want %d", len(f.Tensors), len(want.TensorInfos))
	}
	for i, w := range want.TensorInfos {
		g := f.Tensors[i]
		if g.Name != w.Name || uint32(g.Type) != uint32(w.Type) || !slices.Equal(g.Shape, w.Dimensions) || g.Offset != w.Offset {
			t.Errorf("tensor %d: got %v, want %+v", i, g, w)
		}
		if w.Type >= parser.GGMLTypeI8 && w.Type <= parser.GGMLTypeF64 || w.Type <= parser.GGMLTypeQ8_K {
			if g.Size() != w.Bytes() || g.Elements() != w.Elements() {
				t.Errorf("tensor %q: got %d elements in %d bytes, want %d in %d", g.Name, g.Elements(), g.Size(), w.Elements(), w.Bytes())
			}
		}
	}
}

func compareKeys(t *testing.T, got gguf.KVs, want parser.GGUFMetadataKVs) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d keys, want %d", len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		if g.Key != w.Key || uint32(g.Value.Kind()) != uint32(w.ValueType) || !equal(plain(t, g.Value), w.Value) {
			t.Errorf("key %d: got %q, want %q, or the values differ", i, g.Key, w.Key)
		}
	}
}

// TestFiles compares the readings of all files of the pinned source and of shared/, as far as they are there.
func TestFiles(t *testing.T) {
	for _, pattern := range []string{
		"../../.engine/src/models/*.gguf",
		"../../../shared/models/*.gguf",
		"../../../shared/fixtures/*/*.gguf",
		"../../../shared/fixtures/*/models/*.gguf",
	} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		if len(files) == 0 {
			t.Logf("no file matches %s: those are not compared", pattern)
		}
		for _, path := range files {
			t.Run(filepath.Base(path), func(t *testing.T) { compare(t, path) })
		}
	}
}

// written returns keys of every kind and tensors of several types and shapes.
func written(align uint32) (gguf.KVs, []gguf.TensorInfo) {
	return gguf.KVs{
			{Key: gguf.KeyAlignment, Value: gguf.ValueOf(align)},
			{Key: "general.architecture", Value: gguf.ValueOf("llama")},
			{Key: "u8", Value: gguf.ValueOf(uint8(200))}, {Key: "i8", Value: gguf.ValueOf(int8(-3))},
			{Key: "u16", Value: gguf.ValueOf(uint16(60000))}, {Key: "i16", Value: gguf.ValueOf(int16(-300))},
			{Key: "i32", Value: gguf.ValueOf(int32(-70000))}, {Key: "u64", Value: gguf.ValueOf(uint64(math.MaxUint64))},
			{Key: "i64", Value: gguf.ValueOf(int64(math.MinInt64))}, {Key: "f32", Value: gguf.ValueOf(float32(0.1))},
			{Key: "f64", Value: gguf.ValueOf(math.Pi)}, {Key: "bool", Value: gguf.ValueOf(true)},
			{Key: "strings", Value: gguf.ValueOf([]string{"", "héllo", "\x00"})}, {Key: "floats", Value: gguf.ValueOf([]float32{1, -2.5})},
			{Key: "bools", Value: gguf.ValueOf([]bool{true, false})}, {Key: "none", Value: gguf.ValueOf([]uint64{})},
			{Key: "nested", Value: gguf.ArrayOf(gguf.ValueOf([]string{"x", "yy"}), gguf.ValueOf([]int16{-1}))},
		}, []gguf.TensorInfo{
			{Name: "b.weight", Type: gguf.TypeF32, Shape: []uint64{3, 5}}, {Name: "a.weight", Type: gguf.TypeQ4_K, Shape: []uint64{256, 2, 1}},
			{Name: "h", Type: gguf.TypeF16, Shape: []uint64{7}}, {Name: "moe", Type: gguf.TypeQ8_0, Shape: []uint64{32, 2, 3, 2}},
			{Name: "i", Type: gguf.TypeI64, Shape: []uint64{3}}, {Name: "bf", Type: gguf.TypeBF16, Shape: []uint64{2, 2}},
		}
}

// fill writes zeros as the data of all tensors and closes w.
func fill(t *testing.T, w *gguf.Writer, tensors []gguf.TensorInfo) {
	t.Helper()
	for _, ti := range tensors {
		if err := w.WriteTensor(ti.Name, bytes.NewReader(make([]byte, ti.Size()))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestWritten compares the readings of files that this project writes.
func TestWritten(t *testing.T) {
	dir := t.TempDir()
	for _, align := range []uint32{8, 32, 64, 256} {
		kvs, tensors := written(align)
		path := filepath.Join(dir, "whole.gguf")
		w, err := gguf.Create(path, kvs, tensors)
		if err != nil {
			t.Fatal(err)
		}
		fill(t, w, tensors)
		compare(t, path)
	}
	kvs, tensors := written(32)
	prefix := filepath.Join(dir, "split")
	w, err := gguf.CreateSplit(prefix, kvs, tensors, gguf.SplitLimits{Tensors: 2})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, w, tensors)
	compare(t, gguf.SplitPath(prefix, 0, 3))
}
