package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/color"
	"image/png"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
)

func sample() *Chart {
	return &Chart{Panels: []Panel{
		{Title: "a < b", X: "layer", Y: "share", Most: 1, Series: []Series{{Name: "one", X: []float64{1, 2, 3}, Y: []float64{0.1, 0.5, 0.9}, Line: true}}},
		{Title: "points", Series: []Series{{Name: "p", X: []float64{1, 2, 3}, Y: []float64{5, math.NaN(), math.Inf(1)}}}},
		{},
	}}
}

// The SVG is XML and has each text and point once, none outside of the picture.
func TestSVG(t *testing.T) {
	b := sample().SVG()
	d := xml.NewDecoder(bytes.NewReader(b))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	text := string(b)
	// Three points, one of the second panel, and a dot a name in the legend.
	if n := strings.Count(text, "<circle"); n != 3+1+2 {
		t.Errorf("%d circles, want 6", n)
	}
	if n := strings.Count(text, `stroke-width="2"`); n != 2 {
		t.Errorf("%d lines of a series, want 2", n)
	}
	for _, bad := range []string{"NaN", "Inf", "a < b"} {
		if strings.Contains(text, bad) {
			t.Errorf("the file has %q", bad)
		}
	}
}

// The picture has the colour of the series where its points are, and white where nothing is.
func TestPNG(t *testing.T) {
	b, err := sample().PNG()
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if w, h := img.Bounds().Dx(), img.Bounds().Dy(); w != 3*panelWidth || h != panelHeight {
		t.Errorf("%d x %d pixels", w, h)
	}
	x := scale{lo: 1, hi: 3, from: left, to: panelWidth - right}
	y := scale{lo: 0, hi: 1, from: panelHeight - bottom, to: top}
	for i, v := range []float64{0.1, 0.5, 0.9} {
		r, g, bl, _ := img.At(int(x.at(float64(i+1))), int(y.at(v))).RGBA()
		if c := Palette[0]; uint8(r>>8) != c.R || uint8(g>>8) != c.G || uint8(bl>>8) != c.B {
			t.Errorf("point %d has the colour %d %d %d", i, r>>8, g>>8, bl>>8)
		}
	}
	if r, _, _, _ := img.At(panelWidth-4, panelHeight-4).RGBA(); r>>8 != 255 {
		t.Error("the corner is not white")
	}
}

func TestTicks(t *testing.T) {
	if list := (scale{lo: 1, hi: 4, whole: true}).ticks(); !slices.Equal(list, []float64{1, 2, 3, 4}) {
		t.Errorf("whole numbers: %v", list)
	}
	for _, s := range []scale{{lo: 0, hi: 1}, {lo: -3, hi: 17}, {lo: 1e-7, hi: 3e-7}, {lo: 2, hi: 2.001}} {
		list := s.ticks()
		if len(list) < 3 || len(list) > 10 || list[0] < s.lo-1e-12 || list[len(list)-1] > s.hi+1e-12 {
			t.Errorf("%g to %g: %v", s.lo, s.hi, list)
		}
	}
}

// Each row has its name, a line and a dot, whose place is the logarithm of the value; what has no place has the name alone.
func TestRanges(t *testing.T) {
	c := &Ranges{Title: "ratios", Log: true, Mark: 1, Rows: []Range{
		{"a & b", 0.1, 1, 10}, {"short", 0.4, 0.5, 0.6}, {"nothing", 0, 0, 0},
	}}
	text := string(c.SVG())
	if err := xml.Unmarshal([]byte(text), new(struct{})); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(text, "<circle"); n != 2 {
		t.Errorf("%d dots, want 2", n)
	}
	for _, want := range []string{"a &amp; b", ">nothing<", ">0.1<", ">5<", hex(Palette[0]), hex(Palette[1])} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q", want)
		}
	}
	// The middle of a row from 0.1 to 10 is where the mark is.
	middle := "x1=\"" + strings.Split(strings.Split(text, `cx="`)[1], `"`)[0] + `" y1="34.0"`
	if !strings.Contains(text, middle) {
		t.Errorf("no line with %s", middle)
	}
	if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
		t.Error("the file has a value that is no number")
	}
	if flat := (&Ranges{Rows: []Range{{"x", 2, 3, 4}}}).SVG(); !strings.Contains(string(flat), ">3<") {
		t.Error("an axis that is not logarithmic has no 3")
	}
}

func TestHeatMap(t *testing.T) {
	nan := math.NaN()
	for _, h := range []*HeatMap{
		{Title: "linear", Rows: []string{"blk.0", "blk.1"}, Cols: []string{"a", "a longer name"}, Cells: [][]float64{{1, 2}, {-3, nan}}},
		{Title: "logarithmic", Rows: []string{"x"}, Cols: []string{"a", "b"}, Cells: [][]float64{{100, 0}}, Log: true},
		{Title: "nothing", Rows: []string{"x"}, Cols: []string{"a"}, Cells: [][]float64{{nan}}},
	} {
		data, err := h.PNG()
		if err != nil {
			t.Fatal(err)
		}
		img, err := png.Decode(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		l := h.layout()
		if b := img.Bounds(); b.Dx() != l.width || b.Dy() != l.height {
			t.Errorf("%s: %v, want %d x %d", h.Title, b, l.width, l.height)
		}
		lo, hi := h.bounds()
		last := len(h.Rows) - 1
		want := color.RGBA{255, 255, 255, 255}
		if v := h.Cells[last][0]; !math.IsNaN(v) {
			want = h.colour(v, lo, hi)
		}
		r, g, b, _ := img.At(l.left+2, l.top+2+cellHeight*last).RGBA()
		if uint8(r>>8) != want.R || uint8(g>>8) != want.G || uint8(b>>8) != want.B {
			t.Errorf("%s: the first box of the last row is %d %d %d, want %v", h.Title, r>>8, g>>8, b>>8, want)
		}
		if svg, err := h.SVG(); err != nil || !bytes.Contains(svg, []byte(h.Title)) {
			t.Errorf("%s: %v: %.200s", h.Title, err, svg)
		}
	}
	if _, err := (&HeatMap{Rows: make([]string, maxCells+1)}).SVG(); err == nil {
		t.Error("too many rows are drawn")
	}
}
