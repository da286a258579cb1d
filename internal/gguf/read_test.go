package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"gollama/internal/pipeline"
)

func TestReadSample(t *testing.T) {
	kvs, tensors, data := sample(64)
	f := read(t, write(t, kvs, tensors, data))
	if f.ByteOrder != binary.LittleEndian || f.Alignment != 64 || f.DataOffset%64 != 0 {
		t.Errorf("got version %d, %v, alignment %d, data at %d", f.Version, f.ByteOrder, f.Alignment, f.DataOffset)
	}
	sameKVs(t, f.KVs, kvs)
	for i, want := range tensors {
		if j, ok := f.Tensor(want.Name); !ok || j != i {
			t.Errorf("Tensor(%q) = %d, %v, want %d", want.Name, j, ok, i)
		}
		if got := f.Tensors[i]; !slices.Equal(got.Shape, want.Shape) || got.Type != want.Type {
			t.Errorf("tensor %d: got %v, want %v", i, got, want)
		}
		b, err := f.ReadTensor(i)
		if err != nil || !bytes.Equal(b, data[i]) {
			t.Errorf("ReadTensor(%d): %v, %d bytes", i, err, len(b))
		}
	}
	if _, ok := f.Tensor("absent"); ok {
		t.Error("found a tensor that is not there")
	}
	if err := errors.Join(f.Close(), f.Close(), (*File)(nil).Close()); err != nil {
		t.Error(err)
	}
}

func TestReadVersion2(t *testing.T) {
	kvs, tensors, data := sample(32)
	b := write(t, kvs, tensors, data)
	b[4] = 2
	if f := read(t, b); f.Version != 2 || len(f.Tensors) != len(tensors) {
		t.Errorf("got version %d and %d tensors", f.Version, len(f.Tensors))
	}
}

func TestReadLayouts(t *testing.T) {
	// Out of order, with a hole, and without padding at the end: read, though a Writer would not make them.
	kvs, tensors, data := sample(32)
	kvs, tensors, data = kvs.Without("general.alignment"), tensors[:1], data[:1]
	b := write(t, kvs, tensors, data)
	f := read(t, b)
	at := int(f.DataOffset)
	hole := slices.Concat(b[:at], make([]byte, 96), data[0])
	end := bytes.LastIndex(b[:at], []byte("b.weight")) + len("b.weight") + 4 + 16 + 4
	binary.LittleEndian.PutUint64(hole[end:], 96)
	g := read(t, hole)
	got, err := g.ReadTensor(0)
	if err != nil || !bytes.Equal(got, data[0]) {
		t.Errorf("with a hole: %v, % x", err, got)
	}
}

// header builds small broken files.
type header struct{ b []byte }

func (h *header) u32(v uint32) *header { h.b = binary.LittleEndian.AppendUint32(h.b, v); return h }
func (h *header) u64(v uint64) *header { h.b = binary.LittleEndian.AppendUint64(h.b, v); return h }
func (h *header) str(s string) *header { h.u64(uint64(len(s))); h.b = append(h.b, s...); return h }
func (h *header) zeros(n int) *header  { h.b = append(h.b, make([]byte, n)...); return h }
func start(nTensors, nKV uint64) *header {
	return (&header{[]byte(magic)}).u32(3).u64(nTensors).u64(nKV)
}

func (h *header) tensor(name string, typ Type, offset uint64, shape ...uint64) *header {
	h.str(name).u32(uint32(len(shape)))
	for _, ne := range shape {
		h.u64(ne)
	}
	return h.u32(uint32(typ)).u64(offset)
}

func TestReadErrors(t *testing.T) {
	long := string(bytes.Repeat([]byte("n"), 64))
	deep := func(levels int) *header {
		h := start(0, 1).str("k").u32(uint32(KindArray))
		for range levels {
			h.u32(uint32(KindArray)).u64(1)
		}
		return h.u32(uint32(KindUint8)).u64(0)
	}
	for _, tt := range []struct {
		name   string
		h      *header
		offset int64
		want   string
	}{
		{"empty", &header{}, 0, "magic: the file ends after 0 bytes, want 4"},
		{"magic", (&header{[]byte("GGML")}).zeros(40), 0, `magic: got "GGML", want "GGUF": it is no GGUF file`},
		{"version 0", (&header{[]byte(magic)}).u32(0).zeros(40), 4, "version: got 0, want 2 or 3"},
		{"version 1", (&header{[]byte(magic)}).u32(1).zeros(40), 4, "version: got 1, want 2 or 3"},
		{"version 4", (&header{[]byte(magic)}).u32(4).zeros(40), 4, "version: got 4, want 2 or 3"},
		{"tensor count", start(3, 0).zeros(48), 8, "tensor count: got 3, want at most 2: 56 bytes are left in the file"},
		{"tensor count negative", start(math.MaxUint64, 0).zeros(48), 8, "tensor count: got 18446744073709551615, want at most 262144"},
		{"key count", start(0, 4).zeros(48), 16, "key count: got 4, want at most 3: 48 bytes are left in the file"},
		{"key empty", start(0, 1).str("").u32(0).zeros(8), 24, "key 0 name: got an empty name"},
		{"key length", start(0, 1).u64(1 << 40).zeros(20), 24, "key 0 name length: got 1099511627776, want at most 65535"},
		{"key twice", start(0, 2).str("k").u32(0).zeros(1).str("k").u32(0).zeros(1), 38, `key "k" name: it is there twice`},
		{"kind", start(0, 1).str("k").u32(13).zeros(8), 33, `key "k" kind: got 13, want 0 to 12`},
		{"array kind", start(0, 1).str("k").u32(9).u32(99).u64(0), 37, `key "k" array kind: got 99, want 0 to 12`},
		{"array length", start(0, 1).str("k").u32(9).u32(uint32(KindFloat64)).u64(3).zeros(20), 41, `key "k" array length: got 3, want at most 2: 20 bytes are left in the file`},
		{"array of strings length", start(0, 1).str("k").u32(9).u32(uint32(KindString)).u64(3).zeros(20), 41, "want at most 2"},
		{"array of arrays length", start(0, 1).str("k").u32(9).u32(uint32(KindArray)).u64(2).zeros(20), 41, "want at most 1"},
		{"array too long", start(0, 1).str("k").u32(9).u32(0).u64(1 << 31).zeros(20), 41, "want at most 1073741824"},
		{"string in array", start(0, 1).str("k").u32(9).u32(uint32(KindString)).u64(2).str("ab").u64(5).zeros(4), 59, `key "k" string length: got 5, want at most 4`},
		{"deep", deep(9), 33 + 4 + 9*12, "arrays 10 deep, want at most 9"},
		{"string", start(0, 1).str("k").u32(8).u64(9).zeros(8), 37, `key "k" value length: got 9, want at most 8`},
		{"number", start(0, 1).str("k").u32(10).zeros(7), 37, `key "k" value: the file ends after 7 bytes, want 8`},
		{"alignment kind", start(0, 1).str(KeyAlignment).u32(10).u64(32), 53, `key "general.alignment" value: got kind u64, want u32`},
		{"alignment 0", start(0, 1).str(KeyAlignment).u32(4).u32(0), 53, "got 0, want a power of two"},
		{"alignment 48", start(0, 1).str(KeyAlignment).u32(4).u32(48), 53, "got 48, want a power of two"},
		{"tensor name", start(1, 0).tensor(long, TypeF32, 0, 1).zeros(64), 24, "tensor 0 name length: got 64, want at most 63"},
		{"tensor twice", start(2, 0).tensor("t", TypeF32, 0, 1).tensor("t", TypeF32, 32, 1).zeros(99), 57, `tensor "t" name: it is there twice`},
		{"five dimensions", start(1, 0).tensor("t", TypeF32, 0, 1, 1, 1, 1, 1).zeros(64), 33, `tensor "t" dimensions: got 5, want at most 4`},
		{"negative dimension", start(1, 0).tensor("t", TypeF32, 0, 1, 1<<63).zeros(64), 45, `tensor "t" dimension 1: got 9223372036854775808 elements`},
		{"too many elements", start(1, 0).tensor("t", TypeF32, 0, 1<<32, 1<<32).zeros(64), 33, "has too many elements"},
		{"too many bytes", start(1, 0).tensor("t", TypeF32, 0, 1<<31, 1<<31).zeros(64), 33, "has more bytes than fit in 63 bits"},
		{"removed type", start(1, 0).tensor("t", 4, 0, 32).zeros(64), 45, `tensor "t" type: got 4, want a type of ggml`},
		{"type", start(1, 0).tensor("t", 43, 0, 32).zeros(64), 45, "type: got 43"},
		{"row", start(1, 0).tensor("t", TypeQ8_0, 0, 48).zeros(64), 45, `type: q8_0 with rows of 48 elements, want a multiple of 32`},
		{"offset", start(1, 0).tensor("t", TypeF32, 8, 1).zeros(64), 49, "offset: got 8, want a multiple of the alignment 32"},
		{"beyond the end", start(1, 0).tensor("t", TypeF32, 32, 9).zeros(7 + 64), 49, "offset: got 32 with 36 bytes of data, want an end at 64 at most: the file has 128 bytes"},
		{"far beyond the end", start(1, 0).tensor("t", TypeF32, 1<<63, 9).zeros(64), 49, "got 9223372036854775808 with 36 bytes"},
		{"overlap", start(2, 0).tensor("a", TypeF32, 32, 1).tensor("b", TypeF32, 0, 9).zeros(100), 49, `tensor "a" offset: got 32, but tensor "b" has the bytes 0 to 36`},
		{"same place", start(2, 0).tensor("a", TypeF32, 0, 1).tensor("b", TypeF32, 0, 1).zeros(100), 82, `but tensor "a" has the bytes 0 to 4`},
		{"no data section", start(1, 0).tensor("t", TypeF32, 0, 1, 0), 65, "data: starts at 96 by the alignment 32, want at most the file's size 65"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Read(bytes.NewReader(tt.h.b), int64(len(tt.h.b)))
			var fe *FormatError
			if !errors.As(err, &fe) || !errors.Is(err, ErrFormat) {
				t.Fatalf("got error %v, want a FormatError", err)
			}
			mustContain(t, err, tt.want)
			if fe.Offset != tt.offset {
				t.Errorf("got offset %d, want %d: %v", fe.Offset, tt.offset, err)
			}
		})
	}
	if f := deep(8); read(t, f.b).KVs[0].Value.Len() != 1 {
		t.Error("arrays 9 deep: not read")
	}
}

// TestReadDamaged cuts a file at every byte and sets every four bytes to 0 and to 0xFFFFFFFF.
func TestReadDamaged(t *testing.T) {
	kvs, tensors, data := sample(32)
	good := write(t, kvs, tensors, data)
	f := read(t, good)
	for _, big := range []bool{false, true} {
		if big {
			good = bigEndian(t, f, data)
		}
		for n := range good[:f.DataOffset] {
			if err := tryRead(t, good[:n]); !errors.Is(err, ErrFormat) {
				t.Errorf("cut at %d: got error %v, want ErrFormat", n, err)
			}
		}
		for at := range good[:f.DataOffset-3] {
			for _, v := range []uint32{0, math.MaxUint32} {
				b := slices.Clone(good)
				binary.LittleEndian.PutUint32(b[at:], v)
				if err := tryRead(t, b); err != nil && !errors.Is(err, ErrFormat) {
					t.Errorf("%#x at %d: got error %v, want ErrFormat or none", v, at, err)
				}
			}
		}
	}
}

// tryRead reads b and everything in it, in a second at most and with bounded memory.
func tryRead(t testing.TB, b []byte) error {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun := time.Now()
	f, err := Read(bytes.NewReader(b), int64(len(b)))
	took := time.Since(begun)
	runtime.ReadMemStats(&after)
	for range 3 { // other work on the machine may be what took so long
		if took <= time.Second*raceSlack {
			break
		}
		begun = time.Now()
		_, _ = Read(bytes.NewReader(b), int64(len(b)))
		took = min(took, time.Since(begun))
	}
	if took > time.Second*raceSlack {
		t.Errorf("took %v, want %v at most", took, time.Second*raceSlack)
	}
	if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(len(b))+64<<20; got > limit {
		t.Errorf("allocated %d bytes for a file of %d, want at most %d", got, len(b), limit)
	}
	if err != nil {
		return err
	}
	for _, kv := range f.KVs {
		_ = kv.Value.String()
		kv.Value.Values()
		kv.Value.Strings()
	}
	for i := range f.Tensors {
		if n, err := io.Copy(io.Discard, f.TensorReader(i)); err != nil || uint64(n) != f.Tensors[i].Size() {
			t.Errorf("tensor %d: read %d bytes, %v", i, n, err)
		}
	}
	return nil
}

// TestReadMany reads as many keys and tensors as are allowed: the worst case for memory beyond the file's size.
func TestReadMany(t *testing.T) {
	h := start(maxTensors, maxKVs)
	for i := range maxKVs {
		h.str(strconv.FormatInt(int64(i), 36)).u32(uint32(KindUint8)).zeros(1)
	}
	for i := range maxTensors {
		h.tensor(strconv.FormatInt(int64(i), 36), TypeF32, uint64(i%2)*32, 0)
	}
	if err := tryRead(t, h.zeros(128).b); err != nil {
		t.Error(err)
	}
}

// failing is a reader whose size is more than it has, or that fails.
type failing struct{ err error }

func (f failing) ReadAt(p []byte, off int64) (int, error) {
	n := copy(p, magic[min(int(off), 4):])
	return n, f.err
}

func TestReadIOErrors(t *testing.T) {
	if _, err := Read(failing{io.EOF}, 100); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("short reader: got %v", err)
	}
	if _, err := Read(failing{os.ErrPermission}, 100); !errors.Is(err, os.ErrPermission) || errors.Is(err, ErrFormat) {
		t.Errorf("failing reader: got %v", err)
	}
	if _, err := Read(failing{}, -1); err == nil {
		t.Error("negative size: no error")
	}
	dir := t.TempDir()
	if _, err := Open(dir); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("folder: got %v", err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(pipe); !errors.Is(err, pipeline.ErrNotRegular) { // to open it would wait for a writer
		t.Errorf("pipe: got %v", err)
	}
	if _, err := Open(filepath.Join(dir, "absent.gguf")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent file: got %v", err)
	}
	path := filepath.Join(dir, "bad.gguf")
	if err := os.WriteFile(path, []byte("GGUF\x07\x00\x00\x00"), 0o666); err != nil {
		t.Fatal(err)
	}
	_, err := Open(path)
	mustContain(t, err, "bad.gguf: offset 4: version: got 7, want 2 or 3")
}

// TestRoundTrip rewrites real files and compares the bytes.
func TestRoundTrip(t *testing.T) {
	for _, path := range realFiles(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			f, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var out bytes.Buffer
			n, err := f.WriteTo(&out)
			if err != nil || n != int64(out.Len()) {
				t.Fatalf("WriteTo: %d of %d bytes, %v", n, out.Len(), err)
			}
			got := out.Bytes()
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("got %d bytes that differ from the %d of the file", len(got), len(want))
			}
		})
	}
}

// vocabulary returns a file like a large vocabulary: n tokens, their scores and types, and 2n merges.
func vocabulary(t testing.TB, n int) []byte {
	tokens, merges := make([]string, n), make([]string, 2*n)
	for i := range tokens {
		tokens[i] = "token" + string(rune('a'+i%26))
	}
	for i := range merges {
		merges[i] = "merge " + string(rune('a'+i%26))
	}
	return write(t, KVs{
		{"general.architecture", ValueOf("llama")},
		{"tokenizer.ggml.tokens", ValueOf(tokens)},
		{"tokenizer.ggml.scores", ValueOf(make([]float32, n))},
		{"tokenizer.ggml.token_type", ValueOf(make([]int32, n))},
		{"tokenizer.ggml.merges", ValueOf(merges)},
	}, nil, nil)
}

func TestReadLargeArrays(t *testing.T) {
	// Values much larger than the window, and strings that lie across its end.
	b := vocabulary(t, 100_000)
	f := read(t, b)
	merges, ok := f.Strings("tokenizer.ggml.merges")
	if !ok || len(merges) != 200_000 || merges[27] != "merge b" {
		t.Errorf("got %d merges, %v", len(merges), ok)
	}
	var again bytes.Buffer
	w, err := NewWriter(&again, f.KVs, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again.Bytes(), b) {
		t.Error("written again, the file differs")
	}
	long := ValueOf([]string{string(make([]byte, 3*windowSize)), "end"})
	f = read(t, write(t, KVs{{"long", long}}, nil, nil))
	if s, ok := f.Strings("long"); !ok || s[1] != "end" || len(s[0]) != 3*windowSize {
		t.Errorf("a string longer than the window: %v", ok)
	}
}

func BenchmarkRead(b *testing.B) {
	data := vocabulary(b, 262_144)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Read(bytes.NewReader(data), int64(len(data))); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen reads real files from the page cache.
func BenchmarkOpen(b *testing.B) {
	for _, path := range realFiles(b) {
		b.Run(filepath.Base(path), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f, err := Open(path)
				if err != nil {
					b.Fatal(err)
				}
				f.Close()
			}
		})
	}
}

func BenchmarkStrings(b *testing.B) {
	data := vocabulary(b, 262_144)
	f := read(b, data)
	b.ReportAllocs()
	for b.Loop() {
		if s, ok := f.Strings("tokenizer.ggml.tokens"); !ok || len(s) != 262_144 {
			b.Fatal(len(s), ok)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, align := range []uint32{8, 32} {
		kvs, tensors, data := sample(align)
		b := write(f, kvs, tensors, data)
		f.Add(b)
		f.Add(bigEndian(f, read(f, b), data))
	}
	f.Add(write(f, nil, nil, nil))
	f.Add(vocabulary(f, 3))
	for _, path := range realFiles(f) {
		if b, err := os.ReadFile(path); err == nil && len(b) < 16<<10 { // long ones slow the search down
			f.Add(b)
		}
	}
	f.Add(start(2, 0).tensor("a", TypeF32, 32, 1).tensor("b", TypeQ1_0, 0, 128).zeros(100).b)
	f.Fuzz(func(t *testing.T, x []byte) {
		if err := tryRead(t, x); err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Errorf("got error %v, want ErrFormat", err)
			}
			return
		}
		fx := read(t, x)
		if fx.ByteOrder == binary.BigEndian {
			fx = little(fx)
		}
		var y bytes.Buffer
		if _, err := fx.WriteTo(&y); err != nil {
			t.Fatal(err)
		}
		same(t, read(t, y.Bytes()), fx)
		if canonical(fx, x) && !bytes.Equal(x, y.Bytes()) {
			t.Errorf("write(read(x)) != x for a canonical file")
		}
	})
}

// little returns f with its data taken for little endian, so that it can be written whatever the types are.
func little(f *File) *File {
	g := *f
	g.shards = []shard{{r: f.shards[0].r, dataOffset: f.DataOffset, order: binary.LittleEndian}}
	return &g
}

// canonical reports whether x, read as f, is as WriteTo lays it out: little endian, tensors without holes in order,
// padding of zeros and nothing after it.
func canonical(f *File, x []byte) bool {
	if f.ByteOrder != binary.LittleEndian {
		return false
	}
	zero := func(from, to uint64) bool {
		return to <= uint64(len(x)) && len(bytes.Trim(x[from:to], "\x00")) == 0
	}
	end := uint64(f.DataOffset)
	if len(f.Tensors) == 0 {
		return end == uint64(len(x))
	}
	header := 24
	for _, kv := range f.KVs {
		header += 8 + len(kv.Key) + 4 + len(appendPayload(nil, kv.Value))
	}
	for _, t := range f.Tensors {
		header += 8 + len(t.Name) + 4 + 8*len(t.Shape) + 4 + 8
	}
	if !zero(uint64(header), end) {
		return false
	}
	for _, t := range f.Tensors {
		if uint64(f.DataOffset)+t.Offset != end {
			return false
		}
		next, ok := pad(end+t.Size(), uint64(f.Alignment))
		if !ok || !zero(end+t.Size(), next) {
			return false
		}
		end = next
	}
	return end == uint64(len(x))
}
