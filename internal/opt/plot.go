package opt

import (
	"bytes"
	"image/color"

	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// Size of the loss curve on paper; the PNG has 96 dots an inch.
const (
	plotWidth  = 8 * vg.Inch
	plotHeight = 5 * vg.Inch
)

// plot draws the loss curve from the metrics.
func (r *Run) plot() error {
	reports, err := Reports(r.cfg.Dir)
	if err != nil {
		return err
	}
	p, ok, err := lossCurve(reports)
	if err != nil || !ok {
		return err
	}
	for _, format := range []string{"png", "svg"} {
		w, err := p.WriterTo(plotWidth, plotHeight, format)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if _, err := w.WriteTo(&b); err != nil {
			return err
		}
		if err := r.WriteFile("loss."+format, b.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// lossCurve plots training and validation loss over the steps. ok is false
// while there is nothing to show.
func lossCurve(reports []Report) (p *plot.Plot, ok bool, err error) {
	var train, val plotter.XYs
	for _, r := range reports {
		add(&train, r.Step, r.Loss)
		add(&val, r.Step, r.ValLoss)
	}
	if len(train)+len(val) == 0 {
		return nil, false, nil
	}
	p = plot.New()
	p.Title.Text = "Loss"
	p.X.Label.Text = "step"
	p.Y.Label.Text = "nats a token"
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	for i, curve := range []struct {
		name string
		xys  plotter.XYs
	}{{"training", train}, {"validation", val}} {
		if len(curve.xys) == 0 {
			continue
		}
		line, points, err := plotter.NewLinePoints(curve.xys)
		if err != nil {
			return nil, false, err
		}
		line.Color = palette[i]
		points.Color = palette[i]
		points.Radius = vg.Points(2)
		p.Add(line)
		p.Legend.Add(curve.name, line)
		if len(curve.xys) < 100 {
			p.Add(points)
		}
	}
	return p, true, nil
}

func add(xys *plotter.XYs, step int64, y *float64) {
	if y != nil && !math.IsNaN(*y) && !math.IsInf(*y, 0) {
		*xys = append(*xys, plotter.XY{X: float64(step), Y: *y})
	}
}

// palette has colours that are told apart also without red and green. Source:
// Okabe and Ito, "Color universal design" (2008).
var palette = []color.Color{color.RGBA{0, 114, 178, 255}, color.RGBA{230, 159, 0, 255}}
