package chart

import (
	"fmt"
	"image/color"
	"math"
	"strconv"
)

// Chart is one or more panels beside each other.
type Chart struct {
	Panels []Panel
}

// Panel is a pair of axes and what is drawn on them.
type Panel struct {
	Title, X, Y string // labels
	Series      []Series
	Least, Most float64 // of the y axis; both 0: those of the points
	Whole       bool    // x is whole numbers
}

// Series is points, by the order of x where a line joins them.
type Series struct {
	Name string
	X, Y []float64 // of one length; points that are no numbers are left out
	Line bool      // joined by a line
}

// Palette has colours that are told apart also without red and green. Source: Okabe and Ito, "Color universal design"
// (2008).
var Palette = []color.RGBA{{0, 114, 178, 255}, {230, 159, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255}}

// Sizes in pixels.
const (
	panelWidth  = 480
	panelHeight = 360
	left        = 60
	right       = 16
	top         = 34
	bottom      = 46
)

var (
	black = color.RGBA{0, 0, 0, 255}
	grey  = color.RGBA{220, 220, 220, 255}
)

// anchor says which point of a text its place is.
type anchor int

const (
	atStart anchor = iota
	atMiddle
	atEnd
)

// canvas is what both formats draw with.
type canvas interface {
	line(x1, y1, x2, y2, width float64, c color.RGBA)
	dot(x, y, radius float64, c color.RGBA)
	text(x, y float64, s string, a anchor, upright bool)
	box(x, y, width, height int, c color.RGBA, title string)
}

// draw puts the chart on a canvas of size.
func (c *Chart) draw(on canvas) {
	for i := range c.Panels {
		c.Panels[i].draw(on, float64(i*panelWidth))
	}
}

func (c *Chart) size() (width, height int) { return max(len(c.Panels), 1) * panelWidth, panelHeight }

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// scale maps values to pixels.
type scale struct {
	lo, hi, from, to float64
	whole            bool // no ticks between whole numbers
}

func (s scale) at(v float64) float64 { return s.from + (v-s.lo)/(s.hi-s.lo)*(s.to-s.from) }

// ticks returns four to nine round numbers in the scale.
func (s scale) ticks() []float64 {
	step := math.Pow(10, math.Floor(math.Log10((s.hi-s.lo)/4)))
	for _, f := range []float64{5, 2} {
		if (s.hi-s.lo)/(step*f) >= 4 {
			step *= f
			break
		}
	}
	if s.whole {
		step = math.Max(step, 1)
	}
	var list []float64
	for i := math.Ceil(s.lo/step - 1e-9); i*step <= s.hi+step*1e-9; i++ {
		list = append(list, i*step)
	}
	return list
}

// span returns the least and the most of values, made apart if they are not.
func span(values func(yield func(float64))) (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	values(func(v float64) {
		if finite(v) {
			lo, hi = math.Min(lo, v), math.Max(hi, v)
		}
	})
	switch {
	case lo > hi:
		return 0, 1
	case lo == hi:
		return lo - 0.5, hi + 0.5
	}
	return lo, hi
}

func (p *Panel) draw(on canvas, offset float64) {
	each := func(pick func(Series) []float64) func(func(float64)) {
		return func(yield func(float64)) {
			for _, s := range p.Series {
				for _, v := range pick(s) {
					yield(v)
				}
			}
		}
	}
	var x, y scale
	x.lo, x.hi = span(each(func(s Series) []float64 { return s.X }))
	y.lo, y.hi = span(each(func(s Series) []float64 { return s.Y }))
	if p.Least != p.Most {
		y.lo, y.hi = p.Least, p.Most
	}
	x.whole = p.Whole
	x.from, x.to = offset+left, offset+panelWidth-right
	y.from, y.to = panelHeight-bottom, top
	p.axes(on, x, y, offset)
	for i, s := range p.Series {
		c := Palette[i%len(Palette)]
		p.series(on, s, x, y, c)
		lx, ly := offset+left+10, float64(top+12+14*i)
		on.dot(lx, ly-4, 3, c)
		on.text(lx+8, ly, s.Name, atStart, false)
	}
}

func (p *Panel) axes(on canvas, x, y scale, offset float64) {
	for _, t := range x.ticks() {
		on.line(x.at(t), y.from, x.at(t), y.to, 1, grey)
		on.text(x.at(t), y.from+15, label(t), atMiddle, false)
	}
	for _, t := range y.ticks() {
		on.line(x.from, y.at(t), x.to, y.at(t), 1, grey)
		on.text(x.from-5, y.at(t)+4, label(t), atEnd, false)
	}
	on.line(x.from, y.from, x.to, y.from, 1, black)
	on.line(x.from, y.from, x.from, y.to, 1, black)
	middle := (x.from + x.to) / 2
	on.text(middle, 18, p.Title, atMiddle, false)
	on.text(middle, panelHeight-12, p.X, atMiddle, false)
	on.text(offset+16, (y.from+y.to)/2, p.Y, atMiddle, true)
}

func (p *Panel) series(on canvas, s Series, x, y scale, c color.RGBA) {
	last := -1
	for i := range min(len(s.X), len(s.Y)) {
		if !finite(s.X[i]) || !finite(s.Y[i]) {
			last = -1
			continue
		}
		if s.Line && last >= 0 {
			on.line(x.at(s.X[last]), y.at(s.Y[last]), x.at(s.X[i]), y.at(s.Y[i]), 2, c)
		}
		if !s.Line || len(s.X) < 100 { // on a dense line they would be a band
			on.dot(x.at(s.X[i]), y.at(s.Y[i]), 2.5, c)
		}
		last = i
	}
}

// label writes a number of an axis.
func label(v float64) string {
	if math.Abs(v) < 1e-12 {
		return "0"
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

func hex(c color.RGBA) string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }
