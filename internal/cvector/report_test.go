package cvector

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
)

// described makes layers of samples whose contrast is as given, and their report.
func described(t *testing.T, m Method, contrasts ...float64) (*Report, []*Layer) {
	t.Helper()
	var layers []*Layer
	for i, c := range contrasts {
		s := draw(uint64(20+i), 40, 30, c, 0.5)
		d, err := Solve(s, m)
		if err != nil {
			t.Fatal(err)
		}
		w, err := narrow(d.Scaled(Proj, m))
		if err != nil {
			t.Fatal(err)
		}
		layers = append(layers, &Layer{Number: i + 1, Block: i + 1, Direction: d, Written: w, Samples: 40, Length: 6, Previous: math.NaN(), Quality: Validate(s, m)})
	}
	r := &Report{Type: "cvector", Pairs: 40, Method: m.String(), Folds: Folds, Warnings: []string{}}
	r.Describe(layers)
	return r, layers
}

func TestAdvice(t *testing.T) {
	r, layers := described(t, Mean, 0.05, 2, 2.2, 0.05)
	a := r.Recommended
	if a == nil || a.First != 2 || a.Last != 3 {
		t.Fatalf("recommended %+v, want layers 2 to 3", a)
	}
	// What is added in a layer is as long as the contrast there; for unit vectors, as the contrasts on average.
	if math.Abs(a.Strength-1) > 1e-6 {
		t.Errorf("strength %g for directions as long as the contrast, want 1", a.Strength)
	}
	for _, l := range layers {
		l.Written, _ = narrow(l.Direction.Unit)
	}
	if got, want := advise(layers).Strength, (layers[1].Direction.Proj()+layers[2].Direction.Proj())/2; math.Abs(got-want) > 1e-5*want {
		t.Errorf("strength %g for unit vectors, want %g", got, want)
	}
	if len(r.Warnings) > 0 {
		t.Errorf("warnings for a clear contrast: %q", r.Warnings)
	}
	if !strings.Contains(r.String(), "recommended: layers 2 to 3") {
		t.Errorf("the table says\n%s", r)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `"cos_below":null`) {
		t.Errorf("no null for what is not known: %s", text)
	}
}

func TestWarnings(t *testing.T) {
	r, _ := described(t, Mean, 0, 0)
	if !slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "tells held-out pairs apart") }) {
		t.Errorf("noise: warnings %q", r.Warnings)
	}
	// An axis along which pairs differ, but in no common sense.
	s := &Samples{Pos: NewMatrix(40, 8), Neg: NewMatrix(40, 8)}
	for i := range 40 {
		s.Pair = append(s.Pair, i)
		s.Pos.Row(i)[0] = 1
		s.Pos.Row(i)[5] = float32(10 * (i%2*2 - 1))
	}
	d, err := Solve(s, PCA)
	if err != nil {
		t.Fatal(err)
	}
	r = &Report{Method: "pca"}
	r.Describe([]*Layer{{Number: 1, Direction: d, Written: make([]float32, 8), Length: 1, Quality: openQuality()}})
	if !slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "little to do with the contrast") }) || r.Recommended != nil {
		t.Errorf("an unrelated axis: warnings %q, recommended %v", r.Warnings, r.Recommended)
	}
}

func TestRanges(t *testing.T) {
	if got := ranges([]int{1, 2, 3, 7, 9, 10}); got != "1-3, 7, 9-10" {
		t.Errorf("got %q", got)
	}
}

// The chart has a point a layer and a text.
func TestChart(t *testing.T) {
	r, layers := described(t, Mean, 1, 1.5)
	c := r.Chart(layers)
	if len(c.Panels) != 2 || len(c.Panels[0].Series[0].X) != 2 || len(c.Panels[1].Series[0].Y) != 40 {
		t.Fatalf("got %d panels", len(c.Panels))
	}
	if n := strings.Count(string(c.SVG()), "<circle"); n != 4*2+4+2*40+2 {
		t.Errorf("%d circles", n)
	}
}
