package main

import (
	"math"

	"gollama/internal/builtin/story"
)

// named is a colour, in sRGB from 0 to 255, and the word for it.
type named struct {
	word    string
	r, g, b float64
}

// palette has colours that people call by the language's words, most of them names of CSS. A colour between them has
// the word of the nearest.
var palette = []named{
	{"red", 255, 0, 0}, {"red", 220, 20, 60}, {"red", 200, 0, 0}, {"red", 178, 34, 34}, {"red", 139, 0, 0}, {"red", 255, 60, 50},
	{"orange", 255, 165, 0}, {"orange", 255, 140, 0}, {"orange", 255, 127, 0}, {"orange", 240, 120, 20}, {"orange", 255, 150, 60},
	{"yellow", 255, 255, 0}, {"yellow", 255, 215, 0}, {"yellow", 255, 255, 120}, {"yellow", 230, 220, 40}, {"yellow", 250, 240, 80},
	{"green", 0, 128, 0}, {"green", 0, 255, 0}, {"green", 34, 139, 34}, {"green", 50, 205, 50}, {"green", 0, 90, 0}, {"green", 144, 238, 144}, {"green", 46, 139, 87}, {"green", 107, 142, 35},
	{"blue", 0, 0, 255}, {"blue", 0, 0, 139}, {"blue", 65, 105, 225}, {"blue", 30, 144, 255}, {"blue", 135, 206, 235}, {"blue", 70, 130, 180}, {"blue", 0, 191, 255}, {"blue", 25, 25, 112},
	{"purple", 128, 0, 128}, {"purple", 138, 43, 226}, {"purple", 148, 0, 211}, {"purple", 75, 0, 130}, {"purple", 147, 112, 219}, {"purple", 186, 85, 211}, {"purple", 102, 51, 153},
	{"pink", 255, 192, 203}, {"pink", 255, 182, 193}, {"pink", 255, 105, 180}, {"pink", 255, 20, 147}, {"pink", 250, 150, 180}, {"pink", 255, 130, 200},
	{"brown", 139, 69, 19}, {"brown", 165, 42, 42}, {"brown", 160, 82, 45}, {"brown", 101, 67, 33}, {"brown", 92, 64, 51}, {"brown", 123, 63, 0}, {"brown", 150, 75, 0},
	{"black", 0, 0, 0}, {"black", 20, 20, 20}, {"black", 40, 40, 40},
	{"white", 255, 255, 255}, {"white", 245, 245, 245}, {"white", 255, 250, 240}, {"white", 230, 230, 230},
}

// nearest returns the number, among story.Colours, of the word for a colour.
func nearest(c rgb) int {
	at, best := lab(c), math.Inf(1)
	word := ""
	for _, e := range palette {
		l := lab(fromBytes(e.r, e.g, e.b))
		d := 0.
		for i := range l {
			d += (l[i] - at[i]) * (l[i] - at[i])
		}
		if d < best {
			best, word = d, e.word
		}
	}
	for i, w := range story.Colours() {
		if w == word {
			return i
		}
	}
	panic("palette: " + word + " is no colour of the language")
}

// lab returns a colour in OKLab, where distances are about as people see them. Source: Björn Ottosson, "A perceptual
// color space for image processing" (2020).
func lab(c rgb) [3]float64 {
	var lin [3]float64
	for i, v := range c {
		s := float64(v+1) / 2
		if s <= 0.04045 {
			lin[i] = s / 12.92
		} else {
			lin[i] = math.Pow((s+0.055)/1.055, 2.4)
		}
	}
	l := math.Cbrt(0.4122214708*lin[0] + 0.5363325363*lin[1] + 0.0514459929*lin[2])
	m := math.Cbrt(0.2119034982*lin[0] + 0.6806995451*lin[1] + 0.1073969566*lin[2])
	s := math.Cbrt(0.0883024619*lin[0] + 0.2817188376*lin[1] + 0.6299787005*lin[2])
	return [3]float64{
		0.2104542553*l + 0.7936177850*m - 0.0040720468*s,
		1.9779984951*l - 2.4285922050*m + 0.4505937099*s,
		0.0259040371*l + 0.7827717662*m - 0.8086757660*s,
	}
}
