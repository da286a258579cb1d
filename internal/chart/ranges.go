package chart

import (
	"image/color"
	"math"
)

// Ranges is a chart of named values with their spread, one below the other.
type Ranges struct {
	Title string
	Rows  []Range
	Log   bool    // the axis is logarithmic; values below or at 0 are left out
	Mark  float64 // a value to draw a line at; 0: none
}

// Range is a value and how far it varies.
type Range struct {
	Name              string
	Low, Middle, High float64
}

// Sizes in pixels.
const (
	namesWidth = 500
	rowHeight  = 16
)

// SVG returns the chart as an SVG file. Values that reach the mark have another colour than those that do not.
func (c *Ranges) SVG() []byte {
	width, height := namesWidth+panelWidth, top+bottom+rowHeight*len(c.Rows)
	s := newSVG(width, height, "sans-serif")
	c.draw(s, float64(width), float64(height))
	return s.end()
}

// place is where a value is on the axis: itself, or its logarithm.
func (c *Ranges) place(v float64) float64 {
	if c.Log {
		return math.Log10(v) // NaN or infinite for what is left out
	}
	return v
}

func (c *Ranges) draw(on canvas, width, height float64) {
	x := scale{from: namesWidth, to: width - right}
	x.lo, x.hi = span(func(yield func(float64)) {
		for _, r := range c.Rows {
			yield(c.place(r.Low))
			yield(c.place(r.High))
		}
		if c.Mark != 0 {
			yield(c.place(c.Mark))
		}
	})
	margin := (x.hi - x.lo) / 20
	x.lo, x.hi = x.lo-margin, x.hi+margin
	on.text(width/2, 18, c.Title, atMiddle, false)
	for _, v := range c.ticks(x) {
		at := x.at(c.place(v))
		on.line(at, top, at, height-bottom, 1, grey)
		on.text(at, height-bottom+15, label(v), atMiddle, false)
	}
	if c.Mark != 0 {
		on.line(x.at(c.place(c.Mark)), top, x.at(c.place(c.Mark)), height-bottom, 1, black)
	}
	for i, r := range c.Rows {
		y := top + rowHeight*(float64(i)+0.5)
		on.text(namesWidth-8, y+4, r.Name, atEnd, false)
		low, middle, high := c.place(r.Low), c.place(r.Middle), c.place(r.High)
		if !finite(low) || !finite(middle) || !finite(high) {
			continue
		}
		colour := c.colour(r)
		on.line(x.at(low), y, x.at(high), y, 2, colour)
		on.dot(x.at(middle), y, 3.5, colour)
	}
}

// ticks returns the values to write at the axis.
func (c *Ranges) ticks(x scale) []float64 {
	if !c.Log {
		return x.ticks()
	}
	var list []float64
	for e := math.Floor(x.lo); e <= x.hi; e++ {
		for _, m := range []float64{1, 2, 5} {
			if v := m * math.Pow(10, e); c.place(v) >= x.lo && c.place(v) <= x.hi {
				list = append(list, v)
			}
		}
	}
	return list
}

func (c *Ranges) colour(r Range) color.RGBA {
	if c.Mark != 0 && r.Middle < c.Mark {
		return Palette[1]
	}
	return Palette[0]
}
