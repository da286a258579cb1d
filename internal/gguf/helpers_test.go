package gguf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sample returns keys of every kind and tensors of several types, with the data of each.
func sample(align uint32) (KVs, []TensorInfo, [][]byte) {
	kvs := KVs{
		{"general.alignment", ValueOf(align)},
		{"u8", ValueOf(uint8(200))},
		{"i8", ValueOf(int8(-3))},
		{"u16", ValueOf(uint16(60000))},
		{"i16", ValueOf(int16(-300))},
		{"u32", ValueOf(uint32(4_000_000_000))},
		{"i32", ValueOf(int32(-70000))},
		{"u64", ValueOf(uint64(math.MaxUint64))},
		{"i64", ValueOf(int64(math.MinInt64))},
		{"f32", ValueOf(float32(0.25))},
		{"f64", ValueOf(math.Pi)},
		{"bool", ValueOf(true)},
		{"str", ValueOf("héllo\x00world")},
		{"str.empty", ValueOf("")},
		{"arr.u8", ValueOf([]uint8{1, 2, 3})},
		{"arr.i16", ValueOf([]int16{-1, 2, -3})},
		{"arr.u32", ValueOf([]uint32{})},
		{"arr.i64", ValueOf([]int64{-1, math.MaxInt64})},
		{"arr.f32", ValueOf([]float32{1.5, float32(math.Inf(-1))})},
		{"arr.f64", ValueOf([]float64{1e300})},
		{"arr.bool", ValueOf([]bool{true, false, true})},
		{"arr.str", ValueOf([]string{"a", "", "ccc"})},
		{"arr.arr", ArrayOf(ValueOf([]string{"x", "yy"}), ValueOf([]uint16{1, 2}), ArrayOf(ValueOf([]int32{-7})))},
	}
	tensors := []TensorInfo{
		{Name: "b.weight", Type: TypeF32, Shape: []uint64{3, 5}},
		{Name: "a.weight", Type: TypeQ4_K, Shape: []uint64{256, 2, 1}},
		{Name: "scalar", Type: TypeI8, Shape: []uint64{}},
		{Name: "none", Type: TypeF16, Shape: []uint64{4, 0}},
		{Name: "moe", Type: TypeNVFP4, Shape: []uint64{64, 2, 3, 2}},
		{Name: "i", Type: TypeI64, Shape: []uint64{3}},
	}
	var data [][]byte
	for i, t := range tensors {
		b := make([]byte, t.Size())
		for j := range b {
			b[j] = byte(i*31 + j*7 + 1)
		}
		data = append(data, b)
	}
	return kvs, tensors, data
}

// write returns the file with these contents.
func write(t testing.TB, kvs KVs, tensors []TensorInfo, data [][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, kvs, tensors)
	if err != nil {
		t.Fatal(err)
	}
	for i, ti := range tensors {
		if err := w.WriteTensor(ti.Name, bytes.NewReader(data[i])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// read reads a file that must be valid.
func read(t testing.TB, b []byte) *File {
	t.Helper()
	f, err := Read(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// rewrite writes all of f to w.
func rewrite(f *File, w *Writer) error {
	for i, ti := range f.Tensors {
		if err := w.WriteTensor(ti.Name, f.TensorReader(i)); err != nil {
			return err
		}
	}
	return w.Close()
}

// same compares keys, tensor descriptions (offsets aside) and data.
func same(t testing.TB, got, want *File) {
	t.Helper()
	sameKVs(t, got.KVs, want.KVs)
	if len(got.Tensors) != len(want.Tensors) {
		t.Fatalf("got %d tensors, want %d", len(got.Tensors), len(want.Tensors))
	}
	for i, w := range want.Tensors {
		g := got.Tensors[i]
		if g.Name != w.Name || g.Type != w.Type || !slices.Equal(g.Shape, w.Shape) {
			t.Errorf("tensor %d: got %v, want %v", i, g, w)
		}
		gb, err := io.ReadAll(got.TensorReader(i))
		if err != nil {
			t.Fatal(err)
		}
		wb, err := io.ReadAll(want.TensorReader(i))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(gb, wb) {
			t.Errorf("tensor %q: data differs", w.Name)
		}
	}
}

func sameKVs(t testing.TB, got, want KVs) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d keys, want %d", len(got), len(want))
	}
	for i := range want {
		g, w := got[i], want[i]
		if g.Key != w.Key || g.Value.kind != w.Value.kind || g.Value.elem != w.Value.elem || g.Value.n != w.Value.n || !bytes.Equal(g.Value.raw, w.Value.raw) {
			t.Errorf("key %d: got %q %v, want %q %v", i, g.Key, g.Value, w.Key, w.Value)
		}
	}
}

// bigEndian encodes the contents of f by a path of its own: it shares nothing with the Writer but the layout.
func bigEndian(t testing.TB, f *File, data [][]byte) []byte {
	t.Helper()
	be := binary.BigEndian
	var b []byte
	str := func(s string) { b = append(be.AppendUint64(b, uint64(len(s))), s...) }
	var value func(v Value)
	value = func(v Value) {
		switch v.kind {
		case KindString:
			str(string(v.raw))
		case KindArray:
			b = be.AppendUint64(be.AppendUint32(b, uint32(v.elem)), v.n)
			vs, ok := v.Values()
			if !ok {
				t.Fatalf("Values of %v: not ok", v)
			}
			for _, e := range vs {
				value(e)
			}
		default:
			le := slices.Clone(v.raw)
			slices.Reverse(le)
			b = append(b, le...)
		}
	}
	b = append(b, magic...)
	b = be.AppendUint32(b, 3)
	b = be.AppendUint64(b, uint64(len(f.Tensors)))
	b = be.AppendUint64(b, uint64(len(f.KVs)))
	for _, kv := range f.KVs {
		str(kv.Key)
		b = be.AppendUint32(b, uint32(kv.Value.kind))
		value(kv.Value)
	}
	for _, ti := range f.Tensors {
		str(ti.Name)
		b = be.AppendUint32(b, uint32(len(ti.Shape)))
		for _, ne := range ti.Shape {
			b = be.AppendUint64(b, ne)
		}
		b = be.AppendUint32(b, uint32(ti.Type))
		b = be.AppendUint64(b, ti.Offset)
	}
	fill := func() {
		for len(b)%int(f.Alignment) != 0 {
			b = append(b, 0)
		}
	}
	fill()
	for i, ti := range f.Tensors {
		d := slices.Clone(data[i])
		for block := range slices.Chunk(d, int(ti.Type.TypeSize())) {
			switch ti.Type {
			case TypeQ4_K: // struct block_q4_K: d and dmin, then bytes
				slices.Reverse(block[:2])
				slices.Reverse(block[2:4])
			case TypeQ6_K: // struct block_q6_K: 208 bytes, then d
				slices.Reverse(block[208:])
			case TypeQ4_0, TypeQ8_0:
				slices.Reverse(block[:2])
			default:
				if ti.Type.BlockSize() == 1 {
					slices.Reverse(block)
				}
			}
		}
		b = append(b, d...)
		fill()
	}
	return b
}

// realFiles returns the GGUF files of the pinned source and of shared/, as far as they are there.
func realFiles(t testing.TB) []string {
	t.Helper()
	var files []string
	for _, pattern := range []string{
		"../../.engine/src/models/*.gguf",
		"../../../shared/models/*.gguf",
		"../../../shared/fixtures/*/*.gguf",
		"../../../shared/fixtures/*/models/*.gguf",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) == 0 {
			t.Logf("no file matches %s: those are not tested", pattern)
		}
		files = append(files, found...)
	}
	return files
}

// folder returns the names of the files in dir.
func folder(t testing.TB, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func mustContain(t testing.TB, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("got error %v, want one with %q", err, want)
	}
}
