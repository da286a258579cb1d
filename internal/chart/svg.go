package chart

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image/color"
)

// SVG returns the chart as an SVG file.
func (c *Chart) SVG() []byte {
	width, height := c.size()
	s := newSVG(width, height, "sans-serif")
	c.draw(s)
	return s.end()
}

type svg struct{ b bytes.Buffer }

// newSVG begins a file of a size in pixels, white.
func newSVG(width, height int, font string) *svg {
	s := &svg{}
	fmt.Fprintf(&s.b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="%s" font-size="12">`+"\n", width, height, width, height, font)
	fmt.Fprintf(&s.b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	return s
}

func (s *svg) end() []byte {
	s.b.WriteString("</svg>\n")
	return s.b.Bytes()
}

func (s *svg) line(x1, y1, x2, y2, width float64, c color.RGBA) {
	fmt.Fprintf(&s.b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%g"/>`+"\n", x1, y1, x2, y2, hex(c), width)
}

func (s *svg) dot(x, y, radius float64, c color.RGBA) {
	fmt.Fprintf(&s.b, `<circle cx="%.1f" cy="%.1f" r="%g" fill="%s"/>`+"\n", x, y, radius, hex(c))
}

func (s *svg) box(x, y, width, height int, c color.RGBA, title string) {
	fmt.Fprintf(&s.b, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"><title>`, x, y, width, height, hex(c))
	_ = xml.EscapeText(&s.b, []byte(title)) // a buffer takes everything
	s.b.WriteString("</title></rect>\n")
}

func (s *svg) text(x, y float64, text string, a anchor, upright bool) {
	turn := ""
	if upright {
		turn = fmt.Sprintf(` transform="rotate(-90 %.1f %.1f)"`, x, y)
	}
	fmt.Fprintf(&s.b, `<text x="%.1f" y="%.1f" text-anchor="%s"%s>`, x, y, []string{"start", "middle", "end"}[a], turn)
	_ = xml.EscapeText(&s.b, []byte(text)) // a buffer takes everything
	s.b.WriteString("</text>\n")
}
