package imatrix

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gollama/internal/gguf"
)

// goldenStats are lines of llama-imatrix --show-statistics for testdata/llama-imatrix.gguf, but for one digit: it has an
// entropy of 7.0515 where float64 gives 7.05144.
const goldenStats = `1 attn_k 117.54 0.4115 19.6515 1.84 2.74 100.00 64 5.2481 87.47 4.69 0.7885
4 ffn_down 36.97 0.0457 1.2775 0.21 0.18 100.00 172 7.0514 94.95 12.79 0.5968
0 attn_k 81.28 0.2955 3.9773 1.27 0.87 100.00 64 5.6973 94.96 17.19 0.0000
3 attn_output 7.13 0.0207 0.2796 0.11 0.06 100.00 64 5.7873 96.46 14.06 0.7039
0 ffn_down 7.58 0.0057 0.5196 0.04 0.07 100.00 172 6.6455 89.49 5.81 0.0000`

func TestStats(t *testing.T) {
	s := mustOpen(t, golden, 0).Stats()
	if len(s.Tensors) != 35 {
		t.Fatalf("%d weights", len(s.Tensors))
	}
	if !slices.IsSortedFunc(s.Tensors, func(a, b TensorStats) int { return strings.Compare(a.Tensor, b.Tensor) }) {
		t.Error("not in the order of the tensors' names")
	}
	lines := map[string]string{}
	zero := 0.0
	for _, x := range s.Tensors {
		if x.Cosine == nil {
			x.Cosine = &zero
		}
		lines[fmt.Sprint(x.Block, x.Tensor)] = fmt.Sprintf("%d %s %.2f %.4f %.4f %.2f %.2f %.2f %d %.4f %.2f %.2f %.4f", x.Block, x.Tensor, x.Sum, x.Min, x.Max, x.Mean,
			x.Std, 100*x.Active, x.N, x.Entropy, 100**x.EntropyNorm, 100*x.ZD, *x.Cosine)
	}
	for _, want := range strings.Split(goldenStats, "\n") {
		var block int
		var tensor string
		if _, err := fmt.Sscan(want, &block, &tensor); err != nil {
			t.Fatal(err)
		}
		if got := lines[fmt.Sprint(block, tensor)]; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	for i, want := range []string{"0 35.55 12.0504 0.0000", "1 51.89 8.4532 0.7155", "2 49.07 9.5324 0.8718"} {
		y := s.Layers[i]
		if got := fmt.Sprintf("%d %.2f %.4f %.4f", y.Block, y.Sum, 100*y.ZD, y.Cosine); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// What has no value is null and not NaN, which JSON has not.
func TestStatsEdges(t *testing.T) {
	f := &File{ChunkSize: 1, Entries: []*Entry{
		{Name: "blk.0.ffn_down.weight", Sum2: []float64{5}, Counts: []uint64{512}},
		{Name: "blk.1.ffn_down.weight", Sum2: []float64{1, 2, 3}, Sum: []float64{1, 2, 3}, Counts: []uint64{512}},
		{Name: "blk.2.ffn_down.weight", Sum2: []float64{0, 0, 0}, Sum: []float64{1, 2, 4}, Counts: []uint64{512}},
		{Name: "blk.2.ffn_up.weight", Sum2: []float64{0}, Counts: []uint64{0}},
		{Name: "output.weight", Sum2: []float64{1, 2}, Counts: []uint64{3}},
	}}
	s := f.Stats()
	text, err := json.Marshal(s)
	if err != nil || strings.Contains(string(text), "NaN") {
		t.Fatal(string(text), err)
	}
	byName := map[string]TensorStats{}
	for _, x := range s.Tensors {
		byName[x.Name] = x
	}
	if x := byName["blk.0.ffn_down.weight"]; x.EntropyNorm != nil || x.Cosine != nil || x.ZD != 0 || x.Entropy != 0 {
		t.Errorf("one column: %+v", x)
	}
	if x := byName["blk.1.ffn_down.weight"]; x.Cosine != nil || x.Top[0] != (Column{2, 3.0 / 512}) {
		t.Errorf("unequal widths: %+v", x)
	}
	if x := byName["blk.2.ffn_down.weight"]; x.Cosine != nil || x.Active != 0 || x.MeanCosine == nil || math.Abs(*x.MeanCosine-17/math.Sqrt(14*21)) > 1e-12 {
		t.Errorf("zeros: %+v", x)
	}
	if _, ok := byName["blk.2.ffn_up.weight"]; ok || byName["output.weight"].Block != -1 || len(s.Layers) != 3 {
		t.Errorf("%d weights, blocks %v", len(s.Tensors), s.Layers)
	}
	moe := moeFile(t).Stats().Tensors[0]
	if moe.N != 12 || moe.Dead != 1 || !slices.Equal(moe.Experts, []uint64{1, 10, 5, 0}) || moe.Max != 4 || moe.Top[0].Index != 3 {
		t.Errorf("experts: %+v", moe)
	}
}

func TestHeatMap(t *testing.T) {
	stats := mustOpen(t, golden, 0).Stats()
	moe := moeFile(t).Stats()
	for _, name := range Metrics {
		s, cells := &stats, 35
		switch name {
		case "experts":
			s, cells = &moe, 4
		case "cosine":
			cells = 28 // the first block has none before it
		}
		h, err := s.HeatMap(name)
		if err != nil {
			t.Fatal(err)
		}
		svg, err := h.SVG()
		if err != nil {
			t.Fatal(err)
		}
		dec := xml.NewDecoder(bytes.NewReader(svg))
		titles := 0
		for {
			tok, err := dec.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(name, err)
			}
			if e, ok := tok.(xml.StartElement); ok && e.Name.Local == "title" {
				titles++
			}
		}
		if titles != cells+64 { // and the legend
			t.Errorf("%s: %d boxes, want %d", name, titles, cells+64)
		}
	}
	if _, err := stats.HeatMap("experts"); err == nil {
		t.Error("experts of a dense model")
	}
	if _, err := stats.HeatMap("x"); err == nil {
		t.Error("unknown metric")
	}
}

func TestCompare(t *testing.T) {
	f := mustOpen(t, golden, 0)
	if d := Compare(f, mustOpen(t, golden, 0)); !d.Equal() || len(d.Tensors) != 35 || d.Tensors[3].Relative != 0 || math.Abs(d.Tensors[3].Cosine-1) > 1e-12 || *d.Tensors[3].Spearman < 1-1e-12 || *d.Tensors[3].KL > 1e-12 {
		t.Errorf("with itself: %+v", d.Tensors[3])
	}
	a := &File{Entries: []*Entry{{Name: "a", Sum2: []float64{2, 4, 8}, Counts: []uint64{2}}, {Name: "b", Sum2: []float64{1}, Counts: []uint64{1}}, {Name: "c", Sum2: []float64{1}, Counts: []uint64{1}}}}
	b := &File{Entries: []*Entry{{Name: "a", Sum2: []float64{2, 2, 1}, Counts: []uint64{1}}, {Name: "b", Sum2: []float64{1, 2}, Counts: []uint64{1}}, {Name: "d", Sum2: []float64{1}, Counts: []uint64{1}}}}
	d := Compare(a, b)
	x := d.Tensors[0]
	// Means are 1 2 4 and 2 2 1: ranks 0 1 2 and 1.5 1.5 0.
	if x.Equal || x.Max != 1 || math.Abs(x.Relative-math.Sqrt(10.0/21)) > 1e-12 || math.Abs(*x.Spearman+0.8660254037844387) > 1e-12 ||
		math.Abs(x.Cosine-10/math.Sqrt(21*9)) > 1e-12 {
		t.Errorf("%+v, spearman %v", x, *x.Spearman)
	}
	want := 1.0/7*math.Log2(1.0/7/0.4) + 2.0/7*math.Log2(2.0/7/0.4) + 4.0/7*math.Log2(4.0/7/0.2)
	if math.Abs(*x.KL-want) > 1e-12 {
		t.Errorf("divergence %v, want %v", *x.KL, want)
	}
	if d.Equal() || !slices.Equal(d.OnlyA, []string{"c"}) || !slices.Equal(d.OnlyB, []string{"d"}) || !slices.Equal(d.Shapes, []string{"b"}) {
		t.Errorf("%+v", d)
	}
}

func TestCheck(t *testing.T) {
	weight := func(name string, shape ...uint64) gguf.TensorInfo { return gguf.TensorInfo{Name: name, Shape: shape} }
	model := []gguf.TensorInfo{
		weight("token_embd.weight", 4, 100), weight("output.weight", 4, 100), weight("blk.0.attn_norm.weight", 4),
		weight("blk.0.attn_q.weight", 4, 4), weight("blk.0.attn_k.weight", 4, 4), weight("blk.0.attn_v.weight", 8, 4),
		weight("blk.0.ffn_gate_inp.weight", 4, 4), weight(moeName, 4, 4, 4), weight("blk.0.attn_k_b.weight", 4, 2, 2),
		weight("blk.1.nextn.eh_proj.weight", 4, 4), weight("blk.1.ffn_up_exps.weight", 4, 4, 2),
	}
	f := moeFile(t)
	f.Entries = append(f.Entries,
		&Entry{Name: "blk.0.attn_q.weight", Sum2: []float64{1, 0, 2, 3}, Counts: []uint64{512}},
		&Entry{Name: "blk.0.attn_v.weight", Sum2: []float64{1, 0, 2, 3}, Counts: []uint64{512}},
		&Entry{Name: "blk.0.attn_k_b.weight", Sum2: []float64{1, 1, 2, 3, 4, 5, 6, 7}, Counts: []uint64{512}},
		&Entry{Name: "blk.0.attn_k.weight", Sum2: []float64{0, 0, 0, 0}, Counts: []uint64{0}},
		&Entry{Name: "blk.1.ffn_up.0.weight", Sum2: []float64{1, 1, 1, 1}, Counts: []uint64{512}},
		&Entry{Name: "blk.9.attn_q.weight", Sum2: []float64{1}, Counts: []uint64{512}})
	if err := f.sort(); err != nil {
		t.Fatal(err)
	}
	f.Model = "other"
	r := f.Check(model, CheckOptions{Model: "this", ExpertMin: 8})
	var got []string
	for _, p := range r.Problems {
		got = append(got, fmt.Sprintf("%v %s %s", p.Fatal, p.Kind, p.Tensor))
	}
	want := []string{
		"true missing blk.0.attn_k.weight", "true shape blk.0.attn_v.weight", "true dead_experts " + moeName, "true few_tokens " + moeName,
		"true missing blk.1.nextn.eh_proj.weight", "true missing blk.1.ffn_up_exps.weight", "true torn ",
		"false unmeasured token_embd.weight", "false unmeasured output.weight", "false zero_channels blk.0.attn_q.weight",
		"false old_names blk.1.ffn_up.0.weight", "false extra blk.9.attn_q.weight", "false model ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if r.OK() || r.Weights != 7 || r.Covered != 3 || r.Experts != 4 || r.Reached != 1 || r.Coverage() != 0.25 {
		t.Errorf("%+v", r)
	}
	if p := r.Problems[3]; !strings.Contains(p.Text, "2 of 4 experts met fewer than 8 tokens: 0, 2") {
		t.Error(p.Text)
	}
	whole := mustOpen(t, golden, 0)
	var exact []gguf.TensorInfo
	for _, e := range whole.Entries {
		exact = append(exact, weight(e.Name, uint64(e.Width()), 32))
	}
	if r := whole.Check(exact, CheckOptions{}); !r.OK() || r.Covered != 35 || r.Coverage() != 1 || len(r.Problems) > 0 {
		t.Errorf("a whole file: %+v", r)
	}
}

// An unreadable folder, a full disk and the like leave the old file.
func TestWriteFails(t *testing.T) {
	f := precise()
	for _, path := range []string{"/dev/full", filepath.Join(t.TempDir(), "no/such/folder"), t.TempDir()} {
		if err := f.Write(path, false); err == nil {
			t.Errorf("GGUF to %s was written", path)
		}
		if _, _, err := f.WriteLegacy(path); err == nil {
			t.Errorf("the format before to %s was written", path)
		}
	}
	f.Entries[0].Name = strings.Repeat("x", maxName+1)
	if err := f.Write(filepath.Join(t.TempDir(), "x"), false); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("a name that is too long: %v", err)
	}
}
