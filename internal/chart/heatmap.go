package chart

import (
	"fmt"
	"image/color"
	"math"
)

// HeatMap is a picture of a table: a row and a column of colours for each name.
type HeatMap struct {
	Title string
	Rows  []string
	Cols  []string
	Cells [][]float64 // by row; NaN where there is nothing
	Log   bool        // colours go by the logarithm
}

// bounds returns the smallest and largest value there is.
func (h *HeatMap) bounds() (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, row := range h.Cells {
		for _, v := range row {
			if !math.IsNaN(v) && !(h.Log && v <= 0) {
				lo, hi = min(lo, v), max(hi, v)
			}
		}
	}
	return lo, hi
}

// viridis are points of the colour map of that name, which is told apart in grey and without red or green. Source:
// van der Walt and Smith, matplotlib.
var viridis = []color.RGBA{{68, 1, 84, 255}, {59, 82, 139, 255}, {33, 145, 140, 255}, {94, 201, 98, 255}, {253, 231, 37, 255}}

// colour returns that of a value, grey for none.
func (h *HeatMap) colour(v, lo, hi float64) color.RGBA {
	if math.IsNaN(v) {
		return color.RGBA{230, 230, 230, 255}
	}
	if h.Log {
		v, lo, hi = math.Log(max(v, lo)), math.Log(lo), math.Log(hi)
	}
	x := 0.0
	if hi > lo {
		x = (v - lo) / (hi - lo) * float64(len(viridis)-1)
	}
	i := min(int(x), len(viridis)-2)
	x -= float64(i)
	mix := func(a, b uint8) uint8 { return uint8(math.Round(float64(a) + x*(float64(b)-float64(a)))) }
	a, b := viridis[i], viridis[i+1]
	return color.RGBA{mix(a.R, b.R), mix(a.G, b.G), mix(a.B, b.B), 255}
}

// Layout in pixels. A character of basicfont is 7 wide and 13 high.
const (
	charWidth, charHeight = 7, 13
	mapMargin             = 12
	cellHeight            = 18
	legendHeight          = 40
	maxCells              = 4096 // columns or rows that a picture shows
)

type layout struct{ left, top, cellWidth, width, height int }

func (h *HeatMap) layout() layout {
	longest := func(names []string) int {
		n := 0
		for _, s := range names {
			n = max(n, len(s))
		}
		return n
	}
	l := layout{left: 2*mapMargin + charWidth*longest(h.Rows), top: 2*mapMargin + 2*charHeight}
	l.cellWidth = max(charWidth*longest(h.Cols)+8, 20)
	l.width = max(l.left+l.cellWidth*len(h.Cols)+mapMargin, 2*mapMargin+charWidth*max(len(h.Title), 50))
	l.height = l.top + cellHeight*len(h.Rows) + legendHeight + mapMargin
	return l
}

// SVG returns the map as an SVG file. The error is that of a map that is too large.
func (h *HeatMap) SVG() ([]byte, error) {
	if err := h.check(); err != nil {
		return nil, err
	}
	l := h.layout()
	s := newSVG(l.width, l.height, "monospace")
	h.draw(s)
	return s.end(), nil
}

// PNG returns the map as a PNG file. The error is that of a map that is too large.
func (h *HeatMap) PNG() ([]byte, error) {
	if err := h.check(); err != nil {
		return nil, err
	}
	l := h.layout()
	return encodePNG(l.width, l.height, h.draw)
}

func (h *HeatMap) check() error {
	if len(h.Rows) > maxCells || len(h.Cols) > maxCells {
		return fmt.Errorf("a heat map of %d rows and %d columns, want at most %d of each", len(h.Rows), len(h.Cols), maxCells)
	}
	return nil
}

// draw lays the parts out. A box has a text that is shown where a pointer is.
func (h *HeatMap) draw(on canvas) {
	l := h.layout()
	lo, hi := h.bounds()
	text := func(x, y int, s string) { on.text(float64(x), float64(y), s, atStart, false) }
	text(mapMargin, mapMargin+charHeight, h.Title)
	for c, name := range h.Cols {
		text(l.left+c*l.cellWidth+(l.cellWidth-charWidth*len(name))/2, l.top-6, name)
	}
	for r, name := range h.Rows {
		y := l.top + r*cellHeight
		text(mapMargin, y+charHeight, name)
		for c, v := range h.Cells[r] {
			if !math.IsNaN(v) {
				on.box(l.left+c*l.cellWidth, y, l.cellWidth-1, cellHeight-1, h.colour(v, lo, hi), fmt.Sprintf("%s %s: %.6g", name, h.Cols[c], v))
			}
		}
	}
	if math.IsInf(lo, 0) {
		return // nothing is shown
	}
	const steps, step = 64, 4
	y := l.top + cellHeight*len(h.Rows) + 14
	for i := range steps {
		v := lo + (hi-lo)*float64(i)/(steps-1)
		if h.Log {
			v = lo * math.Pow(hi/lo, float64(i)/(steps-1))
		}
		on.box(mapMargin+i*step, y, step, 10, h.colour(v, lo, hi), fmt.Sprintf("%.6g", v))
	}
	scale := ""
	if h.Log {
		scale = " (logarithmic)"
	}
	text(mapMargin+steps*step+8, y+10, fmt.Sprintf("%.4g to %.4g%s", lo, hi, scale))
}
