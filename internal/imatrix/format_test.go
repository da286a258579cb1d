package imatrix

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gollama/internal/gguf"
)

// datEntry is an entry of the format before GGUF.
type datEntry struct {
	name   string
	calls  int32
	values []float32
}

func dat(tail bool, entries ...datEntry) []byte {
	var b bytes.Buffer
	put := func(v any) { _ = binary.Write(&b, binary.LittleEndian, v) }
	put(int32(len(entries)))
	for _, e := range entries {
		put(int32(len(e.name)))
		b.WriteString(e.name)
		put(e.calls)
		put(int32(len(e.values)))
		put(e.values)
	}
	if tail {
		put(int32(1))
		put(int32(4))
		b.WriteString("data")
	}
	return b.Bytes()
}

// tensor is one of a GGUF file, all float32.
type tensor struct {
	name   string
	shape  []uint64
	values []float32
}

func upstreamKeys() gguf.KVs {
	return gguf.KVs{{Key: keyType, Value: gguf.ValueOf("imatrix")}, {Key: keyDatasets, Value: gguf.ValueOf([]string{"x"})},
		{Key: keyChunkCount, Value: gguf.ValueOf(uint32(1))}, {Key: keyChunkSize, Value: gguf.ValueOf(uint32(512))}}
}

func writeGGUF(t testing.TB, path string, kvs gguf.KVs, tensors ...tensor) string {
	t.Helper()
	var infos []gguf.TensorInfo
	for _, x := range tensors {
		infos = append(infos, gguf.TensorInfo{Name: x.name, Shape: x.shape})
	}
	w, err := gguf.Create(path, kvs, infos)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range tensors {
		var b bytes.Buffer
		_ = binary.Write(&b, binary.LittleEndian, x.values)
		if err := w.WriteTensor(x.name, &b); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// pairOf makes in_sum2 and counts of an entry.
func pairOf(name string, width, n uint64, values, counts []float32) []tensor {
	return []tensor{{name + sufSum2, []uint64{width, n}, values}, {name + sufCounts, []uint64{1, n}, counts}}
}

func save(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func mustOpen(t testing.TB, path string, chunkSize int) *File {
	t.Helper()
	f, err := Open(path, chunkSize)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

const (
	golden       = "testdata/llama-imatrix.gguf"
	goldenLegacy = "testdata/llama-imatrix.dat"
	goldenChunk  = 128
)

func TestReadUpstream(t *testing.T) {
	f := mustOpen(t, golden, 0)
	if len(f.Entries) != 35 || f.ChunkSize != goldenChunk || f.Chunks() != 32 || f.Tokens() != 4096 || f.Ranges != nil || f.Torn() != "" {
		t.Errorf("%d entries, chunks of %d, %d of them, %d tokens, ranges %v, torn %q", len(f.Entries), f.ChunkSize, f.Chunks(), f.Tokens(), f.Ranges, f.Torn())
	}
	if !slices.Equal(f.Datasets, []string{"sh.txt"}) {
		t.Errorf("datasets %q", f.Datasets)
	}
	// From the reference run of llama-imatrix, as float32.
	q := f.Entry("blk.0.attn_q.weight")
	for i, want := range map[int]float32{0: 2542.714355, 1: 1900.327271, 31: 2762.614990, 63: 2197.161377} {
		if got := float32(q.Sum2[i]); got != want {
			t.Errorf("attn_q[%d] = %v, want %v", i, got, want)
		}
	}
	if q.Width() != 64 || q.Experts() != 0 || q.Sum != nil || f.Entry("blk.9.attn_q.weight") != nil {
		t.Errorf("width %d, experts %d, sums %v", q.Width(), q.Experts(), q.Sum)
	}
}

// Writing plain gives llama-imatrix's bytes, and its .dat; the way to .dat and back keeps every bit of dense entries.
func TestRoundTripUpstream(t *testing.T) {
	f := mustOpen(t, golden, 0)
	dir := t.TempDir()
	plain, old := filepath.Join(dir, "plain.gguf"), filepath.Join(dir, "old.dat")
	if err := f.Write(plain, true); err != nil {
		t.Fatal(err)
	}
	sameBytes(t, plain, golden)
	if empty, partial, err := f.WriteLegacy(old); err != nil || len(empty)+len(partial) > 0 {
		t.Fatal(empty, partial, err)
	}
	sameBytes(t, old, goldenLegacy)
	back := mustOpen(t, old, goldenChunk)
	if !back.Legacy || !reflect.DeepEqual(back.Entries, f.Entries) || !slices.Equal(back.Datasets, f.Datasets) {
		t.Error("the way through the format before GGUF changed something")
	}
	if err := back.Write(plain, true); err != nil {
		t.Fatal(err)
	}
	sameBytes(t, plain, golden)
	// Without the size of a chunk the means are the same, and nothing that needs tokens works.
	unknown := mustOpen(t, old, 0)
	if !reflect.DeepEqual(unknown.Means(), f.Means()) {
		t.Error("means without the size of a chunk differ")
	}
	if err := unknown.Write(plain, false); err == nil {
		t.Error("written without the size of a chunk")
	}
}

func sameBytes(t *testing.T, got, want string) {
	t.Helper()
	a, err := os.ReadFile(got)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(want)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Errorf("%s differs from %s", got, want)
	}
}

// precise is a file with what float32 has no room for.
func precise() *File {
	return &File{
		Entries: []*Entry{
			{Name: "blk.0.attn_q.weight", Sum2: []float64{1 + 1e-12, 3e10 + 0.25, 0, math.Pi}, Sum: []float64{-1 - 1e-13, 1e9 + 0.125, 0, -math.E}, Counts: []uint64{1<<24 + 1}},
			{Name: "blk.0.ffn_up_exps.weight", Sum2: []float64{1.0 / 3, 2, 0, 0, 5, 6}, Counts: []uint64{1<<40 + 3, 0, 7}},
		},
		Datasets: []string{"a", "b"}, ChunkSize: 512, Model: "m", Ranges: Ranges{"h": {{0, 10}, {20, 30}}},
		Keys: gguf.KVs{{Key: "gollama.version", Value: gguf.ValueOf("1")}},
	}
}

func TestRoundTripExact(t *testing.T) {
	f := precise()
	path := filepath.Join(t.TempDir(), "x.gguf")
	if err := f.Write(path, false); err != nil {
		t.Fatal(err)
	}
	got := mustOpen(t, path, 0)
	if !reflect.DeepEqual(got, f) {
		t.Errorf("got %+v, want %+v", got, f)
	}
	var b bytes.Buffer
	if err := f.Stream(&b, false); err != nil {
		t.Fatal(err)
	}
	if data, _ := os.ReadFile(path); !bytes.Equal(b.Bytes(), data) {
		t.Error("the stream differs from the file")
	}
	want := []float32{float32(1.0/3) / float32(1<<40+3), 2 / float32(1<<40+3), 1, 1, 5 / float32(7), 6 / float32(7)}
	if m := got.Means()["blk.0.ffn_up_exps.weight"]; !slices.Equal(m, want) {
		t.Errorf("means %v, want %v", m, want)
	}
}

func TestWriteLegacyExperts(t *testing.T) {
	moe := moeFile(t)
	data, empty, partial, err := moe.legacy()
	if err != nil || len(empty) > 0 || !slices.Equal(partial, []string{moeName}) {
		t.Fatal(empty, partial, err)
	}
	f, err := parseLegacy(data, 512)
	if err != nil {
		t.Fatal(err)
	}
	// As llama-imatrix: a count of one chunk for all, ones for the expert without a token.
	if want := []float64{512, 1024, 1536, 2048, 512, 1024, 1536, 2048, 512, 512, 512, 512, 512, 512, 512, 512}; !slices.Equal(f.Entries[0].Sum2, want) || f.Entries[0].Counts[0] != 512 {
		t.Errorf("%v, counts %v", f.Entries[0].Sum2, f.Entries[0].Counts)
	}
	none := &File{ChunkSize: 512, Entries: []*Entry{{Name: "a", Sum2: []float64{0}, Counts: []uint64{0}}}}
	if _, empty, _, err := none.legacy(); err != nil || !slices.Equal(empty, []string{"a"}) {
		t.Errorf("empty %v, %v", empty, err)
	}
}

const moeName = "blk.0.ffn_down_exps.weight"

// moeFile has 4 experts, of which one met no token.
func moeFile(t testing.TB) *File {
	return mustOpen(t, writeGGUF(t, filepath.Join(t.TempDir(), "moe.gguf"), upstreamKeys(),
		pairOf(moeName, 4, 4, []float32{1, 2, 3, 4, 10, 20, 30, 40, 5, 5, 5, 5, 0, 0, 0, 0}, []float32{1, 10, 5, 0})...), 0)
}

// Files that end llama-imatrix by a signal, or that it takes: each is an error here.
func TestHostile(t *testing.T) {
	q := "blk.0.attn_q.weight"
	long := slices.Repeat([]float32{1}, 64)
	negative, huge := dat(true, datEntry{q, 1, long}), dat(true, datEntry{q, 1, long})
	binary.LittleEndian.PutUint32(negative[4:], uint32(math.MaxUint32-4))
	binary.LittleEndian.PutUint32(huge[4:], math.MaxInt32)
	nan := float32(math.NaN())
	down := "blk.0.ffn_down.weight"
	dir := t.TempDir()
	gg := func(name string, tensors ...tensor) string {
		return writeGGUF(t, filepath.Join(dir, name), upstreamKeys(), tensors...)
	}
	model := writeGGUF(t, filepath.Join(dir, "model.gguf"), gguf.KVs{{Key: "general.architecture", Value: gguf.ValueOf("llama")}}, tensor{q, []uint64{2, 1}, []float32{1, 2}})
	for name, path := range map[string]string{
		"length below 0":   save(t, "neg.dat", negative),
		"length too large": save(t, "huge.dat", huge),
		"NaN":              save(t, "nan.dat", dat(true, datEntry{q, 1, append([]float32{nan}, long...)})),
		"negative":         save(t, "minus.dat", dat(true, datEntry{q, 1, []float32{-1}})),
		"twice":            save(t, "twice.dat", dat(true, datEntry{q, 1, long}, datEntry{q, 1, long})),
		"no entries":       save(t, "none.dat", dat(true)),
		"empty":            save(t, "empty", nil),
		"4 bytes":          save(t, "four", []byte{1, 0, 0, 0}),
		"GGUF NaN":         gg("nan.gguf", pairOf(down, 4, 1, []float32{nan, nan, nan, nan}, []float32{512})...),
		"GGUF negative":    gg("neg.gguf", pairOf(down, 4, 1, []float32{-1, -1, -1, -1}, []float32{-512})...),
		"GGUF counts NaN":  gg("cnan.gguf", pairOf(down, 1, 1, []float32{1}, []float32{nan})...),
		"GGUF no counts":   gg("nc.gguf", pairOf(down, 1, 1, []float32{1}, []float32{1})[:1]...),
		"GGUF no values":   gg("nv.gguf", pairOf(down, 1, 1, []float32{1}, []float32{1})[1:]...),
		"GGUF no multiple": gg("odd.gguf", tensor{down + sufSum2, []uint64{3}, []float32{1, 2, 3}}, tensor{down + sufCounts, []uint64{2}, []float32{1, 1}}),
		"GGUF zero counts": gg("zc.gguf", tensor{down + sufSum2, []uint64{0}, nil}, tensor{down + sufCounts, []uint64{0}, nil}),
		"GGUF of no token": gg("ghost.gguf", pairOf(down, 1, 1, []float32{1}, []float32{0})...),
		"GGUF no entries":  gg("none.gguf", tensor{"x", []uint64{1}, []float32{1}}),
		"a model":          model,
		"an adapter":       writeGGUF(t, filepath.Join(dir, "a.gguf"), gguf.KVs{{Key: keyType, Value: gguf.ValueOf("adapter")}}, tensor{q, []uint64{1}, []float32{1}}),
		"ranges":           writeGGUF(t, filepath.Join(dir, "r.gguf"), upstreamKeys().With(keyRanges, gguf.ValueOf([]string{"h:3-2"})), pairOf(down, 1, 1, []float32{1}, []float32{1})...),
		"low part":         gg("low.gguf", append(pairOf(down, 2, 1, []float32{1, 1}, []float32{1}), tensor{down + sufSum2Low, []uint64{1}, []float32{0}})...),
	} {
		f, err := Open(path, 512)
		if err == nil || !IsFormat(err) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, %v, want an error of the format that names the file", name, f, err)
		}
	}
	if _, err := Open(filepath.Join(dir, "no such file"), 0); err == nil || IsFormat(err) {
		t.Errorf("no file: %v", err)
	}
}

// A file that ends early, at whatever byte, is an error, but where what follows may be absent.
func TestTruncated(t *testing.T) {
	data, err := os.ReadFile(goldenLegacy)
	if err != nil {
		t.Fatal(err)
	}
	whole := len(data) - 4 - 4 - len("sh.txt")
	for n := range data {
		if _, err := parseLegacy(data[:n], 128); (err == nil) != (n == whole) {
			t.Errorf("%d of %d bytes: %v", n, len(data), err)
		}
	}
}

// A large entry is read within its size in float64 and a little.
func TestMemory(t *testing.T) {
	const n = 4 << 20
	path := writeGGUF(t, filepath.Join(t.TempDir(), "large.gguf"), upstreamKeys(), pairOf("blk.0.ffn_down.weight", n, 1, slices.Repeat([]float32{1}, n), []float32{512})...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f := mustOpen(t, path, 0)
	s := f.Stats()
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > n*8+4<<20 {
		t.Errorf("%d bytes for %d values, want %d and a little", got, n, n*8)
	}
	if s.Tensors[0].N != n {
		t.Errorf("%d columns", s.Tensors[0].N)
	}
}

func TestTorn(t *testing.T) {
	f := mustOpen(t, golden, 0)
	f.Entry("blk.0.attn_q.weight").Counts[0] = 512
	if torn := f.Torn(); !strings.Contains(torn, `"blk.0.attn_q.weight" has 512 tokens and 34 others have 4096`) {
		t.Errorf("torn: %q", torn)
	}
	var m Merger
	if err := m.Add("a", f); err == nil || !strings.Contains(err.Error(), "in the middle of a chunk") {
		t.Errorf("merged: %v", err)
	}
}

func FuzzLegacy(f *testing.F) {
	data, err := os.ReadFile(goldenLegacy)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(dat(true, datEntry{"a", 2, []float32{1, 2}}, datEntry{"b", 0, []float32{3}}))
	f.Add(dat(false, datEntry{"a", 2, []float32{1}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := parseLegacy(data, 128)
		if err != nil {
			return
		}
		n := 0
		for _, e := range x.Entries {
			n += 4*len(e.Sum2) + len(e.Name)
		}
		if n > len(data) {
			t.Errorf("%d bytes of values from %d", n, len(data))
		}
		out, _, _, err := x.legacy()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parseLegacy(out, 128); err != nil || len(again.Entries) != len(x.Entries) {
			t.Errorf("written and read: %v", err)
		}
		x.Stats()
	})
}

func FuzzGGUF(f *testing.F) {
	data, err := os.ReadFile(golden)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	var b bytes.Buffer
	if err := precise().Stream(&b, false); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := gguf.Read(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		x, err := fromGGUF(g)
		if err != nil {
			return
		}
		x.Stats()
		Compare(x, x)
		x.ChunkSize = max(x.ChunkSize, 1)
		var out bytes.Buffer
		if err := x.Stream(&out, false); err != nil {
			return // names that are too long
		}
		g, err = gguf.Read(bytes.NewReader(out.Bytes()), int64(out.Len()))
		if err != nil {
			t.Fatal(err)
		}
		again, err := fromGGUF(g)
		if err != nil {
			t.Fatal(err)
		}
		if d := Compare(x, again); !d.Equal() {
			t.Errorf("written and read, it differs: %+v", d)
		}
	})
}
