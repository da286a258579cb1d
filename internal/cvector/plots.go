package cvector

import (
	"fmt"

	"gollama/internal/chart"
)

// Chart draws how well each layer separates, and where the held-out texts of the best one lie. Without anything held out
// it has the lengths of the mean differences only.
func (r *Report) Chart(layers []*Layer) *chart.Chart {
	var number, area, separation, half, relative []float64
	for _, l := range layers {
		number = append(number, float64(l.Number))
		area, separation, half = append(area, l.Quality.AUC), append(separation, l.Quality.Separation), append(half, l.Quality.SplitHalf)
		relative = append(relative, l.Direction.Proj()/l.Length)
	}
	quality := chart.Panel{Title: "Held-out pairs, by layer", X: "layer", Most: 1, Whole: true, Series: []chart.Series{
		{Name: "area under the curve", X: number, Y: area, Line: true}, {Name: "separation", X: number, Y: separation, Line: true},
		{Name: "cosine of two halves", X: number, Y: half, Line: true}, {Name: "difference / state", X: number, Y: relative, Line: true}}}
	c := &chart.Chart{Panels: []chart.Panel{quality}}
	if r.Recommended == nil {
		return c
	}
	for _, l := range layers {
		if l.Number != r.Recommended.Best {
			continue
		}
		place := make([]float64, len(l.Quality.Pos))
		for i := range place {
			place[i] = float64(i + 1)
		}
		c.Panels = append(c.Panels, chart.Panel{Title: fmt.Sprintf("Held-out texts along direction.%d", l.Number), X: "text", Y: "from the middle", Whole: true, Series: []chart.Series{
			{Name: "positive", X: place, Y: l.Quality.Pos}, {Name: "negative", X: place, Y: l.Quality.Neg}}})
	}
	return c
}
