package opt

import (
	"fmt"
	"math"
)

// Limits of the guard. The loss of a single batch may jump for a hard example,
// so a bound has a share and a margin, and several steps in a row must break it.
const (
	guardDecay  = 0.98 // of the running mean: about the last 50 steps
	guardFactor = 2
	guardMargin = 2.0 // nats
	guardSteps  = 5   // in a row
)

// DivergedError says that training has gone wrong.
type DivergedError struct {
	Step int64  // update at which it was noticed
	What string // what was wrong
}

func (e *DivergedError) Error() string { return fmt.Sprintf("step %d: %s", e.Step, e.What) }

// guard watches the loss. It is part of a checkpoint.
type guard struct {
	Mean float64 `json:"mean"` // running mean of the losses within bounds
	N    int64   `json:"n"`    // how many there were
	High int     `json:"high"` // steps in a row above the bound
}

// finite reports a loss or gradient that is no number.
func finite(step int64, loss, norm float64) error {
	switch {
	case math.IsNaN(loss) || math.IsInf(loss, 0):
		return &DivergedError{step, fmt.Sprintf("the loss is %g", loss)}
	case math.IsNaN(norm) || math.IsInf(norm, 0):
		return &DivergedError{step, fmt.Sprintf("the norm of the gradients is %g", norm)}
	}
	return nil
}

// add takes the loss of a step and says whether it has exploded.
func (g *guard) add(step int64, loss float64) error {
	if g.N > 0 && loss > g.bound() {
		g.High++
		if g.High >= guardSteps {
			return g.exploded(step, loss)
		}
		return nil
	}
	g.High = 0
	g.N++
	g.Mean += (loss - g.Mean) * max(1-guardDecay, 1/float64(g.N))
	return nil
}

func (g *guard) bound() float64 { return guardFactor*g.Mean + guardMargin }

func (g *guard) exploded(step int64, loss float64) error {
	return &DivergedError{step, fmt.Sprintf("the loss is %.4g after %.4g before: it explodes", loss, g.Mean)}
}

// end reports a run that ends above the bound.
func (g *guard) end(step int64, loss float64) error {
	if g.High > 0 {
		return g.exploded(step, loss)
	}
	return nil
}
