package chart

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"

	"golang.org/x/image/font"
	"golang.org/x/image/font/basicfont"
	"golang.org/x/image/math/fixed"
)

// PNG returns the chart as a PNG file.
func (c *Chart) PNG() ([]byte, error) {
	width, height := c.size()
	return encodePNG(width, height, c.draw)
}

// encodePNG returns what show draws as a PNG file.
func encodePNG(width, height int, show func(canvas)) ([]byte, error) {
	r := &raster{image.NewRGBA(image.Rect(0, 0, width, height))}
	draw.Draw(r.img, r.img.Bounds(), image.White, image.Point{}, draw.Src)
	show(r)
	var b bytes.Buffer
	err := png.Encode(&b, r.img)
	return b.Bytes(), err
}

type raster struct{ img *image.RGBA }

// blend puts c on a pixel, as far as share covers it.
func (r *raster) blend(x, y int, c color.RGBA, share float64) {
	if share <= 0 || !(image.Pt(x, y).In(r.img.Bounds())) {
		return
	}
	share = math.Min(share, 1)
	old := r.img.RGBAAt(x, y)
	mix := func(a, b uint8) uint8 { return uint8(float64(a)*(1-share) + float64(b)*share + 0.5) }
	r.img.SetRGBA(x, y, color.RGBA{mix(old.R, c.R), mix(old.G, c.G), mix(old.B, c.B), 255})
}

// line covers each pixel by how near its middle is to the segment.
func (r *raster) line(x1, y1, x2, y2, width float64, c color.RGBA) {
	dx, dy := x2-x1, y2-y1
	length := math.Max(dx*dx+dy*dy, 1e-9)
	for y := int(math.Min(y1, y2) - width); y <= int(math.Max(y1, y2)+width); y++ {
		for x := int(math.Min(x1, x2) - width); x <= int(math.Max(x1, x2)+width); x++ {
			px, py := float64(x)+0.5-x1, float64(y)+0.5-y1
			t := math.Max(0, math.Min(1, (px*dx+py*dy)/length))
			r.blend(x, y, c, width/2+0.5-math.Hypot(px-t*dx, py-t*dy))
		}
	}
}

func (r *raster) dot(x, y, radius float64, c color.RGBA) {
	for j := int(y - radius - 1); j <= int(y+radius+1); j++ {
		for i := int(x - radius - 1); i <= int(x+radius+1); i++ {
			r.blend(i, j, c, radius+0.5-math.Hypot(float64(i)+0.5-x, float64(j)+0.5-y))
		}
	}
}

func (r *raster) box(x, y, width, height int, c color.RGBA, _ string) {
	draw.Draw(r.img, image.Rect(x, y, x+width, y+height), image.NewUniform(c), image.Point{}, draw.Src)
}

func (r *raster) text(x, y float64, text string, a anchor, upright bool) {
	face := basicfont.Face7x13
	width := font.MeasureString(face, text).Ceil()
	at := image.Pt(int(x)-width*int(a)/2, int(y))
	if !upright {
		d := font.Drawer{Dst: r.img, Src: image.Black, Face: face, Dot: fixed.P(at.X, at.Y)}
		d.DrawString(text)
		return
	}
	flat := image.NewAlpha(image.Rect(0, 0, width, face.Height))
	d := font.Drawer{Dst: flat, Src: image.Opaque, Face: face, Dot: fixed.P(0, face.Ascent)}
	d.DrawString(text)
	for j := range face.Height {
		for i := range width {
			r.blend(int(x)-face.Ascent+j, int(y)+width*int(a)/2-i, black, float64(flat.AlphaAt(i, j).A)/255)
		}
	}
}
