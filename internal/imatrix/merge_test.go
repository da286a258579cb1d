package imatrix

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// shards makes n files of what one run would measure, and that run's file. Values are squares of float32, as in life.
func shards(n int) (parts []*File, whole *File) {
	rng := rand.New(rand.NewPCG(1, 2))
	widths := map[string]int{"blk.0.attn_q.weight": 40, "blk.1.ffn_down.weight": 70}
	whole = &File{ChunkSize: 16, Ranges: Ranges{}}
	total := map[string]*Entry{}
	exact := map[string][]float64{}
	for i := range n {
		f := &File{ChunkSize: 16, Datasets: []string{"text"}, Model: "m", Ranges: Ranges{"text": {{int64(16 * i), int64(16*i + 16)}}}}
		for name, width := range widths {
			e := &Entry{Name: name, Sum2: make([]float64, width), Sum: make([]float64, width), Counts: []uint64{16}}
			if total[name] == nil {
				total[name] = &Entry{Name: name, Sum2: make([]float64, width), Counts: []uint64{0}}
				exact[name] = make([]float64, width)
			}
			for j := range width {
				for range 16 {
					x := float64(float32(rng.NormFloat64() * math.Exp(4*rng.Float64())))
					e.Sum2[j] += x * x
					e.Sum[j] += x
				}
				// Kahan's sum, for another way than the one tested.
				y := e.Sum2[j] - exact[name][j]
				s := total[name].Sum2[j] + y
				exact[name][j] = (s - total[name].Sum2[j]) - y
				total[name].Sum2[j] = s
			}
			total[name].Counts[0] += 16
			f.Entries = append(f.Entries, e)
		}
		if err := f.sort(); err != nil {
			panic(err)
		}
		parts = append(parts, f)
	}
	for _, e := range total {
		whole.Entries = append(whole.Entries, e)
	}
	if err := whole.sort(); err != nil {
		panic(err)
	}
	return parts, whole
}

func mustMerge(t *testing.T, files ...*File) *File {
	t.Helper()
	var m Merger
	for i, f := range files {
		if err := m.Add(fmt.Sprint("file ", i), f); err != nil {
			t.Fatal(err)
		}
	}
	f, err := m.Result(nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// The sum does not depend on the order of the files, bit for bit, and as float32 not on how they are grouped.
func TestMergeAlgebra(t *testing.T) {
	parts, whole := shards(16)
	first := mustMerge(t, parts...)
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		order := slices.Clone(parts)
		rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		if got := mustMerge(t, order...); !reflect.DeepEqual(got, first) {
			t.Fatal("another order of the files gives another sum")
		}
		tree := mustMerge(t, mustMerge(t, order[:5]...), mustMerge(t, mustMerge(t, order[5:7]...), mustMerge(t, order[7:11]...)), mustMerge(t, order[11:]...))
		compareSums(t, "tree", tree, first)
	}
	compareSums(t, "one run", first, whole)
	if got := first.Ranges; !reflect.DeepEqual(got, Ranges{"text": {{0, 256}}}) {
		t.Errorf("ranges %v", got)
	}
	// The sum of 16 values in float64 without correction is off by a rounding of each addition: 1e-15 of it.
	for i, e := range first.Entries {
		for j, v := range e.Sum {
			want := 0.0
			for _, p := range parts {
				want += p.Entries[i].Sum[j]
			}
			if math.Abs(v-want) > 1e-13*math.Abs(e.Sum2[j]) {
				t.Errorf("%s sum %d: %v, want %v", e.Name, j, v, want)
			}
		}
	}
}

// compareSums wants float32 equal, counts too, and float64 within 1e-15: a few of its roundings.
func compareSums(t *testing.T, what string, got, want *File) {
	t.Helper()
	for i, e := range got.Entries {
		w := want.Entries[i]
		if e.Name != w.Name || !slices.Equal(e.Counts, w.Counts) {
			t.Fatalf("%s: %s %v, want %s %v", what, e.Name, e.Counts, w.Name, w.Counts)
		}
		for j, v := range e.Sum2 {
			if float32(v) != float32(w.Sum2[j]) || math.Abs(v-w.Sum2[j]) > 1e-15*w.Sum2[j] {
				t.Errorf("%s: %s[%d] = %v, want %v", what, e.Name, j, v, w.Sum2[j])
			}
		}
	}
}

func TestMergeTwice(t *testing.T) {
	parts, _ := shards(3)
	both := mustMerge(t, parts[0], parts[1])
	for name, files := range map[string][]*File{"itself": {parts[0], parts[0]}, "a part": {both, parts[1]}} {
		var m Merger
		if err := m.Add("a", files[0]); err != nil {
			t.Fatal(err)
		}
		err := m.Add("b", files[1])
		if !errors.Is(err, ErrTwice) || !strings.Contains(err.Error(), "b: ") {
			t.Errorf("%s: %v", name, err)
		}
		// What was refused left no trace.
		if got, err := m.Result(nil); err != nil || !reflect.DeepEqual(got.Entries, files[0].Entries) {
			t.Errorf("%s: %v, the first file changed", name, err)
		}
	}
	// Of files that do not say their data, equal contents are found.
	moe := moeFile(t)
	m := Merger{}
	_ = m.Add("a", moe)
	if err := m.Add("b", moe); !errors.Is(err, ErrTwice) {
		t.Errorf("equal files: %v", err)
	}
	m = Merger{Force: true}
	for range 2 {
		if err := m.Add("a", moe); err != nil {
			t.Fatal(err)
		}
	}
	f, err := m.Result(nil)
	if err != nil {
		t.Fatal(err)
	}
	if e := f.Entries[0]; !slices.Equal(e.Counts, []uint64{2, 20, 10, 0}) || e.Sum2[7] != 80 || e.Sum2[15] != 0 {
		t.Errorf("forced: counts %v, sums %v", e.Counts, e.Sum2)
	}
}

func TestMergeRefuses(t *testing.T) {
	one := func(name string, width, counts int) *File {
		f := &File{ChunkSize: 4, Entries: []*Entry{{Name: name, Sum2: slices.Repeat([]float64{1}, width*counts), Counts: slices.Repeat([]uint64{4}, counts)}}}
		return f
	}
	for name, tt := range map[string][2]*File{
		"width":  {one("a", 4, 1), one("a", 5, 1)},
		"counts": {one("a", 3, 2), one("a", 2, 3)},
	} {
		var m Merger
		if err := m.Add("x", tt[0]); err != nil {
			t.Fatal(err)
		}
		if err := m.Add("y", tt[1]); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var m Merger
	if err := m.Add("old", &File{Entries: one("a", 1, 1).Entries}); err == nil {
		t.Error("a file of unknown chunks was merged")
	}
	if _, err := m.Result(nil); err == nil {
		t.Error("nothing was merged into something")
	}
	// One count of an older file stands for all experts; entries that one file has are kept.
	got := mustMerge(t, one("a", 4, 1), one("a", 2, 2), one("b", 1, 1))
	if e := got.Entry("a"); !slices.Equal(e.Counts, []uint64{8, 8}) || e.Sum2[3] != 2 || got.Entry("b") == nil {
		t.Errorf("%+v", e)
	}
}

func TestRanges(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		r, marks := Ranges{}, make([]bool, 60)
		for range 40 {
			from := rng.Int64N(50)
			s := Span{from, from + rng.Int64N(10)}
			overlap := slices.Contains(marks[s.From:s.To], true)
			var err *OverlapError
			if got := errors.As(r.Add("x", s), &err); got != overlap {
				t.Fatalf("%v into %v: %v, want an overlap: %v", s, r, err, overlap)
			}
			if !overlap {
				for i := s.From; i < s.To; i++ {
					marks[i] = true
				}
			}
		}
		for i := range int64(59) {
			for j := i + 1; j < 60; j++ {
				if got, want := r.Has("x", Span{i, j}), !slices.Contains(marks[i:j], false); got != want {
					t.Fatalf("%v has %d to %d: %v, want %v", r, i, j, got, want)
				}
			}
		}
		back, err := parseRanges(r.strings())
		if err != nil || len(r) > 0 && !reflect.DeepEqual(back, r) {
			t.Fatalf("%v written and read is %v, %v", r, back, err)
		}
	}
	for _, bad := range []string{"", "x", ":1-2", "x:", "x:1", "x:2-1", "x:-1-2", "x:1-2,2-3", "x:5-6,1-2", "x:1-99999999999999999999"} {
		if r, err := parseRanges([]string{bad}); err == nil {
			t.Errorf("%q is read as %v", bad, r)
		}
	}
	if _, err := parseRanges([]string{"x:1-2", "x:4-5"}); err == nil {
		t.Error("the same data twice")
	}
}

// BenchmarkMerge adds shards of the shape that a llama of 8 billion weights has.
func BenchmarkMerge(b *testing.B) {
	dir := b.TempDir()
	var paths []string
	for k := range 4 {
		f := &File{ChunkSize: 512, Ranges: Ranges{"t": {{int64(k), int64(k) + 1}}}}
		for i := range 32 {
			for _, w := range []struct {
				name  string
				width int
			}{{"attn_q", 4096}, {"attn_k", 4096}, {"attn_v", 4096}, {"attn_output", 4096}, {"ffn_gate", 4096}, {"ffn_up", 4096}, {"ffn_down", 14336}} {
				e := &Entry{Name: fmt.Sprintf("blk.%d.%s.weight", i, w.name), Sum2: make([]float64, w.width), Sum: make([]float64, w.width), Counts: []uint64{512}}
				for j := range e.Sum2 {
					e.Sum2[j], e.Sum[j] = math.Sqrt(float64(j+k)), float64(j)/7
				}
				f.Entries = append(f.Entries, e)
			}
		}
		if err := f.sort(); err != nil {
			b.Fatal(err)
		}
		paths = append(paths, filepath.Join(dir, fmt.Sprint(k)))
		if err := f.Write(paths[k], false); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		var m Merger
		for _, p := range paths {
			f, err := Open(p, 0)
			if err != nil {
				b.Fatal(err)
			}
			if err := m.Add(p, f); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N*len(paths)), "ms/file")
}
