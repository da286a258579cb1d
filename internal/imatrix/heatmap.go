package imatrix

import (
	"fmt"
	"html"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"math"
	"slices"
	"strings"

	"golang.org/x/image/font"
	"golang.org/x/image/font/basicfont"
	"golang.org/x/image/math/fixed"
)

// HeatMap is a picture of a table: a row for each block, a column for each tensor or expert.
type HeatMap struct {
	Title string
	Rows  []string
	Cols  []string
	Cells [][]float64 // by row; NaN where there is nothing
	Log   bool        // colours go by the logarithm
}

// Metrics are what a heat map can show, by name; "experts" shows the tokens of each expert instead.
var Metrics = []string{"sum", "mean", "max", "std", "entropy", "zd", "cosine", "experts"}

func metric(t *TensorStats, name string) float64 {
	optional := func(p *float64) float64 {
		if p == nil {
			return math.NaN()
		}
		return *p
	}
	switch name {
	case "sum":
		return t.Sum
	case "mean":
		return t.Mean
	case "max":
		return t.Max
	case "std":
		return t.Std
	case "entropy":
		return optional(t.EntropyNorm)
	case "zd":
		return t.ZD
	}
	return optional(t.Cosine)
}

// HeatMap draws a metric of Metrics, by block and tensor.
func (s *Stats) HeatMap(name string) (*HeatMap, error) {
	if !slices.Contains(Metrics, name) {
		return nil, fmt.Errorf("unknown metric %q, want one of %s", name, strings.Join(Metrics, ", "))
	}
	if name == "experts" {
		return s.expertMap()
	}
	h := &HeatMap{Title: "mean squares of activations: " + name, Log: name == "sum" || name == "mean" || name == "max" || name == "std"}
	var blocks []int
	for _, t := range s.Tensors {
		if !slices.Contains(h.Cols, t.Tensor) {
			h.Cols = append(h.Cols, t.Tensor)
		}
		if !slices.Contains(blocks, t.Block) {
			blocks = append(blocks, t.Block)
		}
	}
	h.rows(blocks)
	for i := range s.Tensors {
		t := &s.Tensors[i]
		h.Cells[slices.Index(blocks, t.Block)][slices.Index(h.Cols, t.Tensor)] = metric(t, name)
	}
	return h, nil
}

// rows makes the empty table with these blocks, in order.
func (h *HeatMap) rows(blocks []int) {
	slices.Sort(blocks)
	for _, b := range blocks {
		name := "blk." + itoa(b)
		if b < 0 {
			name = "-"
		}
		h.Rows = append(h.Rows, name)
		h.Cells = append(h.Cells, slices.Repeat([]float64{math.NaN()}, len(h.Cols)))
	}
}

// expertMap shows how many tokens each expert of a block met.
func (s *Stats) expertMap() (*HeatMap, error) {
	byBlock := map[int][]uint64{}
	var blocks []int
	most := 0
	for _, t := range s.Tensors {
		if len(t.Experts) > 0 && byBlock[t.Block] == nil {
			byBlock[t.Block] = t.Experts
			blocks = append(blocks, t.Block)
			most = max(most, len(t.Experts))
		}
	}
	if most == 0 {
		return nil, fmt.Errorf("metric experts: no weight has experts")
	}
	h := &HeatMap{Title: "tokens of each expert"}
	for i := range most {
		h.Cols = append(h.Cols, itoa(i))
	}
	h.rows(blocks)
	for r, b := range blocks {
		for c, n := range byBlock[b] {
			h.Cells[r][c] = float64(n)
		}
	}
	return h, nil
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

func (h *HeatMap) check() error {
	if len(h.Rows) > maxCells || len(h.Cols) > maxCells {
		return fmt.Errorf("a heat map of %d rows and %d columns, want at most %d of each", len(h.Rows), len(h.Cols), maxCells)
	}
	return nil
}

// SVG writes the map as SVG.
func (h *HeatMap) SVG(w io.Writer) error {
	if err := h.check(); err != nil {
		return err
	}
	l := h.layout()
	lo, hi := h.bounds()
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="monospace" font-size="12">`+"\n", l.width, l.height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	h.place(l, func(x, y int, s string) {
		fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`+"\n", x, y, html.EscapeString(s))
	}, func(x, y, width, height int, c color.RGBA, title string) {
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="#%02x%02x%02x"><title>%s</title></rect>`+"\n", x, y, width, height, c.R, c.G, c.B, html.EscapeString(title))
	}, lo, hi)
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// PNG writes the map as PNG.
func (h *HeatMap) PNG(w io.Writer) error {
	if err := h.check(); err != nil {
		return err
	}
	l := h.layout()
	lo, hi := h.bounds()
	img := image.NewRGBA(image.Rect(0, 0, l.width, l.height))
	draw.Draw(img, img.Bounds(), image.White, image.Point{}, draw.Src)
	d := font.Drawer{Dst: img, Src: image.Black, Face: basicfont.Face7x13}
	h.place(l, func(x, y int, s string) {
		d.Dot = fixed.P(x, y)
		d.DrawString(s)
	}, func(x, y, width, height int, c color.RGBA, _ string) {
		draw.Draw(img, image.Rect(x, y, x+width, y+height), image.NewUniform(c), image.Point{}, draw.Src)
	}, lo, hi)
	return png.Encode(w, img)
}

// place lays the parts out: text gets the start of its base line, cell a filled box with what a pointer shows.
func (h *HeatMap) place(l layout, text func(x, y int, s string), cell func(x, y, width, height int, c color.RGBA, title string), lo, hi float64) {
	text(mapMargin, mapMargin+charHeight, h.Title)
	for c, name := range h.Cols {
		text(l.left+c*l.cellWidth+(l.cellWidth-charWidth*len(name))/2, l.top-6, name)
	}
	for r, name := range h.Rows {
		y := l.top + r*cellHeight
		text(mapMargin, y+charHeight, name)
		for c, v := range h.Cells[r] {
			if !math.IsNaN(v) {
				cell(l.left+c*l.cellWidth, y, l.cellWidth-1, cellHeight-1, h.colour(v, lo, hi), fmt.Sprintf("%s %s: %.6g", name, h.Cols[c], v))
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
		cell(mapMargin+i*step, y, step, 10, h.colour(v, lo, hi), fmt.Sprintf("%.6g", v))
	}
	scale := ""
	if h.Log {
		scale = " (logarithmic)"
	}
	text(mapMargin+steps*step+8, y+10, fmt.Sprintf("%.4g to %.4g%s", lo, hi, scale))
}
