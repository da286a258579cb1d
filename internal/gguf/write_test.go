package gguf

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

func TestWriteAlignments(t *testing.T) {
	for _, align := range []uint32{1, 8, 32, 64, 256, 8192} {
		kvs, tensors, data := sample(align)
		b := write(t, kvs, tensors, data)
		f := read(t, b)
		if f.Alignment != align || f.DataOffset%int64(align) != 0 || len(b)%int(align) != 0 {
			t.Errorf("alignment %d: got %d, data at %d, %d bytes", align, f.Alignment, f.DataOffset, len(b))
		}
		for _, ti := range f.Tensors {
			if ti.Offset%uint64(align) != 0 {
				t.Errorf("alignment %d: tensor %q at %d", align, ti.Name, ti.Offset)
			}
		}
		var again bytes.Buffer
		w, err := NewWriter(&again, f.KVs, f.Tensors)
		if err != nil {
			t.Fatal(err)
		}
		if err := rewrite(f, w); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again.Bytes(), b) {
			t.Errorf("alignment %d: written again, the file differs", align)
		}
	}
}

// TestWriteBytes compares with a file written down by hand from the comment in ggml/include/gguf.h.
func TestWriteBytes(t *testing.T) {
	got := write(t,
		KVs{{"k", ValueOf([]string{"ab"})}, {"s", ValueOf("x")}, {"n", ValueOf(uint16(258))}},
		[]TensorInfo{{Name: "t", Type: TypeI16, Shape: []uint64{2, 1}, Offset: 999}},
		[][]byte{{1, 2, 3, 4}})
	want := "GGUF" + "\x03\x00\x00\x00" + "\x01\x00\x00\x00\x00\x00\x00\x00" + "\x03\x00\x00\x00\x00\x00\x00\x00" +
		"\x01\x00\x00\x00\x00\x00\x00\x00k" + "\x09\x00\x00\x00" + "\x08\x00\x00\x00" + "\x01\x00\x00\x00\x00\x00\x00\x00" +
		"\x02\x00\x00\x00\x00\x00\x00\x00ab" +
		"\x01\x00\x00\x00\x00\x00\x00\x00s" + "\x08\x00\x00\x00" + "\x01\x00\x00\x00\x00\x00\x00\x00x" +
		"\x01\x00\x00\x00\x00\x00\x00\x00n" + "\x02\x00\x00\x00" + "\x02\x01" +
		"\x01\x00\x00\x00\x00\x00\x00\x00t" + "\x02\x00\x00\x00" + "\x02\x00\x00\x00\x00\x00\x00\x00" + "\x01\x00\x00\x00\x00\x00\x00\x00" +
		"\x19\x00\x00\x00" + "\x00\x00\x00\x00\x00\x00\x00\x00"
	want += strings.Repeat("\x00", -len(want)&31)
	want += "\x01\x02\x03\x04" + strings.Repeat("\x00", 28)
	if string(got) != want {
		t.Errorf("got  % x\nwant % x", got, want)
	}
}

func TestCreate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.gguf")
	if err := os.WriteFile(path, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	kvs, tensors, data := sample(32)
	w, err := Create(path, kvs, tensors)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for i, ti := range tensors {
		if err := w.Next(ti.Name); err != nil {
			t.Fatal(err)
		}
		for _, c := range data[i] {
			if n, err := w.Write([]byte{c}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
	}
	if old, _ := os.ReadFile(path); string(old) != "old" {
		t.Errorf("before Close the file is %q, want the old one", old)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w.Abort()
	if got := folder(t, dir); got != "m.gguf" {
		t.Errorf("after Close the folder has %q", got)
	}
	if err := w.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("second Close: got %v", err)
	}
	if err := w.Next("x"); !errors.Is(err, ErrClosed) {
		t.Errorf("Next after Close: got %v", err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	same(t, f, read(t, write(t, kvs, tensors, data)))
	if st, err := os.Stat(path); err != nil || st.Mode().Perm()&0o600 != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}

func TestWriteErrors(t *testing.T) {
	tensors := []TensorInfo{
		{Name: "a", Type: TypeF32, Shape: []uint64{2}},
		{Name: "b", Type: TypeF32, Shape: []uint64{1}},
	}
	data := func(n int) io.Reader { return bytes.NewReader(make([]byte, n)) }
	for _, tt := range []struct {
		name string
		do   func(w *Writer) error
		want string
	}{
		{"short", func(w *Writer) error { return w.WriteTensor("a", data(7)) }, `tensor "a": got 7 bytes, want 8`},
		{"long", func(w *Writer) error { return w.WriteTensor("a", data(9)) }, `tensor "a": got 9 bytes or more, want 8`},
		{"order", func(w *Writer) error { return w.WriteTensor("b", data(4)) }, `tensor "b": want "a" next`},
		{"early", func(w *Writer) error { _, err := w.Write([]byte{1}); return err }, "before the first tensor"},
		{"reader", func(w *Writer) error { return w.WriteTensor("a", iotest.ErrReader(io.ErrNoProgress)) }, `tensor "a": multiple Read`},
		{"incomplete", func(w *Writer) error { return errors.Join(w.Next("a"), w.Next("b")) }, `tensor "a": got 0 bytes, want 8`},
		{"missing", func(w *Writer) error { return errors.Join(w.WriteTensor("a", data(8)), w.Close()) }, `tensor "b": missing`},
		{"none", func(w *Writer) error { return w.Close() }, `tensor "a": missing`},
		{"too many", func(w *Writer) error {
			return errors.Join(w.WriteTensor("a", data(8)), w.WriteTensor("b", data(4)), w.Next("c"))
		}, `tensor "c": all declared tensors are written`},
		{"abort", func(w *Writer) error { w.Abort(); return w.Close() }, "writer is closed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "m.gguf")
			if err := os.WriteFile(path, []byte("old"), 0o666); err != nil {
				t.Fatal(err)
			}
			w, err := Create(path, nil, tensors)
			if err != nil {
				t.Fatal(err)
			}
			mustContain(t, tt.do(w), tt.want)
			if err := w.Close(); err == nil {
				t.Error("Close after an error: no error")
			}
			if got := folder(t, dir); got != "m.gguf" {
				t.Errorf("the folder has %q, want the old file alone", got)
			}
			if old, _ := os.ReadFile(path); string(old) != "old" {
				t.Errorf("the file is %q, want the old one", old)
			}
		})
	}
}

// limited fails like a full disk after n bytes.
type limited struct{ n int }

func (l *limited) Write(p []byte) (int, error) {
	if l.n -= len(p); l.n < 0 {
		return 0, errors.New("disk full")
	}
	return len(p), nil
}

func TestWriteFull(t *testing.T) {
	kvs, tensors, data := sample(32)
	total := len(write(t, kvs, tensors, data))
	for n := range total {
		err := func() error {
			w, err := NewWriter(&limited{n}, kvs, tensors)
			if err != nil {
				return err
			}
			for i, ti := range tensors {
				if err := w.WriteTensor(ti.Name, bytes.NewReader(data[i])); err != nil {
					return err
				}
			}
			return w.Close()
		}()
		if err == nil {
			t.Fatalf("room for %d of %d bytes: no error", n, total)
		}
	}
	big := []TensorInfo{{Name: "t", Type: TypeI8, Shape: []uint64{4 << 20}}}
	w, err := NewWriter(&limited{2 << 20}, nil, big)
	if err != nil {
		t.Fatal(err)
	}
	mustContain(t, w.WriteTensor("t", bytes.NewReader(make([]byte, 4<<20))), "disk full")
}

func TestCreateErrors(t *testing.T) {
	dir := t.TempDir()
	one := func(t TensorInfo) []TensorInfo { return []TensorInfo{t} }
	deep := ValueOf([]uint8{})
	for range maxDepth + 1 {
		deep = ArrayOf(deep)
	}
	for _, tt := range []struct {
		name    string
		kvs     KVs
		tensors []TensorInfo
		want    string
	}{
		{"key empty", KVs{{"", ValueOf("")}}, nil, "key 0: got a name of 0 bytes, want 1 to 65535"},
		{"key long", KVs{{strings.Repeat("k", 65536), ValueOf("")}}, nil, "name of 65536 bytes"},
		{"key twice", KVs{{"k", ValueOf("")}, {"k", ValueOf("")}}, nil, `key "k": given twice`},
		{"no value", KVs{{"k", Value{}}}, nil, `key "k": empty value`},
		{"deep", KVs{{"k", deep}}, nil, "more than 9 deep"},
		{"alignment", KVs{{KeyAlignment, ValueOf(uint32(12))}}, nil, "got 12, want a power of two"},
		{"alignment kind", KVs{{KeyAlignment, ValueOf(uint64(32))}}, nil, "got kind u64, want u32"},
		{"name", nil, one(TensorInfo{Name: strings.Repeat("n", 64), Type: TypeF32}), "got 64 bytes, want at most 63"},
		{"dimensions", nil, one(TensorInfo{Name: "t", Shape: make([]uint64, 5)}), "dimensions: got 5, want at most 4"},
		{"type", nil, one(TensorInfo{Name: "t", Type: 5}), "type: got 5"},
		{"row", nil, one(TensorInfo{Name: "t", Type: TypeQ6_K, Shape: []uint64{128}}), "q6_K with rows of 128 elements, want a multiple of 256"},
		{"huge", nil, one(TensorInfo{Name: "t", Type: TypeF32, Shape: []uint64{1 << 62}}), "more bytes than fit"},
		{"all huge", nil, []TensorInfo{
			{Name: "a", Type: TypeI8, Shape: []uint64{1<<63 - 2}}, {Name: "b", Type: TypeI8, Shape: []uint64{1<<63 - 2}}, {Name: "c", Type: TypeI8, Shape: []uint64{64}},
		}, "does not fit in 64 bits"},
		{"tensor twice", nil, []TensorInfo{{Name: "t"}, {Name: "t"}}, `tensor "t": given twice`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Create(filepath.Join(dir, "m.gguf"), tt.kvs, tt.tensors)
			mustContain(t, err, tt.want)
			mustContain(t, err, "m.gguf: ")
			if got := folder(t, dir); got != "" {
				t.Errorf("the folder has %q, want nothing", got)
			}
		})
	}
	_, err := Create(dir, nil, nil)
	mustContain(t, err, "is a directory")
	_, err = Create(filepath.Join(dir, "absent", "m.gguf"), nil, nil)
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder that does not exist: got %v", err)
	}
}

func BenchmarkWrite(b *testing.B) {
	const size = 64 << 20
	tensors := []TensorInfo{{Name: "t", Type: TypeI8, Shape: []uint64{size}}}
	data := make([]byte, size)
	b.SetBytes(size)
	for b.Loop() {
		w, err := NewWriter(io.Discard, nil, tensors)
		if err != nil {
			b.Fatal(err)
		}
		if err := errors.Join(w.WriteTensor("t", bytes.NewReader(data)), w.Close()); err != nil {
			b.Fatal(err)
		}
	}
}
