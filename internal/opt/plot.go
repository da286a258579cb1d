package opt

import (
	"fmt"

	"gollama/internal/chart"
)

// plot draws the loss curve from the metrics. Metrics that cannot be read are no reason to lose what was trained.
func (r *Run) plot() error {
	reports, err := Reports(r.cfg.Dir)
	if err != nil {
		r.warn(fmt.Sprintf("the loss curve is not drawn: %s", err))
		return nil
	}
	c, ok := lossCurve(reports)
	if !ok {
		return nil
	}
	png, err := c.PNG()
	if err != nil {
		return err
	}
	if err := r.WriteFile("loss.png", png); err != nil {
		return err
	}
	return r.WriteFile("loss.svg", c.SVG())
}

// lossCurve plots training and validation loss over the steps. ok is false
// while there is nothing to show.
func lossCurve(reports []Report) (c *chart.Chart, ok bool) {
	train, val := chart.Series{Name: "training", Line: true}, chart.Series{Name: "validation", Line: true}
	for _, r := range reports {
		add(&train, r.Step, r.Loss)
		add(&val, r.Step, r.ValLoss)
	}
	p := chart.Panel{Title: "Loss", X: "step", Y: "nats a token", Whole: true}
	for _, s := range []chart.Series{train, val} {
		if len(s.X) > 0 {
			p.Series = append(p.Series, s)
		}
	}
	return &chart.Chart{Panels: []chart.Panel{p}}, len(p.Series) > 0
}

func add(s *chart.Series, step int64, y *float64) {
	if y != nil {
		s.X, s.Y = append(s.X, float64(step)), append(s.Y, *y)
	}
}
