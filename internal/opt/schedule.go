package opt

import (
	"fmt"
	"math"
	"strings"
)

// Shape is how a learning rate changes over a run.
type Shape int

// The shapes.
const (
	Flat    Shape = iota // constant
	Linear               // a straight line down to MinLR
	Cosine               // half a cosine down to MinLR
	WSD                  // constant, then a straight line down to MinLR over the last DecaySteps
	Halving              // llama-finetune's: by epoch, exponentially down to MinLR
)

var shapeNames = []string{"constant", "linear", "cosine", "wsd", "halving"}

func (s Shape) String() string {
	if s < 0 || int(s) >= len(shapeNames) {
		return fmt.Sprintf("schedule %d", int(s))
	}
	return shapeNames[s]
}

// ParseShape returns the shape called s. The error lists the names.
func ParseShape(s string) (Shape, error) {
	for i, n := range shapeNames {
		if strings.EqualFold(s, n) {
			return Shape(i), nil
		}
	}
	return 0, fmt.Errorf("unknown schedule %q, want one of %s", s, strings.Join(shapeNames, ", "))
}

// Schedule is the learning rate over a run.
type Schedule struct {
	Shape       Shape
	LR          float64 // the highest
	MinLR       float64 // the last; Halving: 0 or less keeps LR
	Warmup      int64   // steps over which the rate rises in a straight line to LR
	Steps       int64   // steps of the whole run, Warmup included
	DecaySteps  int64   // WSD: steps of the line down
	Epochs      int     // Halving: epochs of the run
	DecayEpochs float64 // Halving: epochs after which MinLR is reached; 0 or less: Epochs
}

// At returns the learning rate of the update that comes after step updates, in
// epoch; both count from 0. The last update of a run is one step short of MinLR,
// so that a MinLR of 0 wastes none.
func (s Schedule) At(step int64, epoch int) float64 {
	if step < s.Warmup {
		return s.LR * float64(step+1) / float64(s.Warmup)
	}
	down := func(from int64) float64 { // how much of the way down is done, 0 to 1
		return min(max(float64(step-from)/float64(max(s.Steps-from, 1)), 0), 1)
	}
	switch s.Shape {
	case Linear:
		return s.LR + (s.MinLR-s.LR)*down(s.Warmup)
	case Cosine:
		return s.MinLR + (s.LR-s.MinLR)*0.5*(1+math.Cos(math.Pi*down(s.Warmup)))
	case WSD:
		return s.LR + (s.MinLR-s.LR)*down(max(s.Steps-s.DecaySteps, s.Warmup))
	case Halving:
		return s.halving(epoch)
	}
	return s.LR
}

// halving is lr_opt::init and lr_opt::get_lr of common/common.cpp.
func (s Schedule) halving(epoch int) float64 {
	if s.MinLR <= 0 {
		return s.LR
	}
	decay, rate := s.DecayEpochs, 0.0
	if s.MinLR < s.LR {
		if decay <= 0 || decay > float64(s.Epochs) {
			decay = float64(s.Epochs)
		}
		rate = math.Log2(s.LR/s.MinLR) / decay
	}
	if float64(epoch) >= decay {
		return s.MinLR
	}
	return s.LR * math.Exp2(-float64(epoch)*rate)
}

// Validate reports the first value that makes no sense.
func (s Schedule) Validate() error {
	switch {
	case !(s.LR >= 0) || math.IsInf(s.LR, 0):
		return fmt.Errorf("learning rate %g, want 0 or more", s.LR)
	case math.IsNaN(s.MinLR) || s.MinLR > s.LR:
		return fmt.Errorf("lowest learning rate %g is above the learning rate %g", s.MinLR, s.LR)
	case s.Shape != Halving && s.MinLR < 0:
		return fmt.Errorf("lowest learning rate %g, want 0 or more", s.MinLR)
	case s.Warmup < 0 || s.Steps > 0 && s.Warmup > s.Steps:
		return fmt.Errorf("warmup of %d steps, want 0 to the %d of the run", s.Warmup, s.Steps)
	case s.DecaySteps < 0:
		return fmt.Errorf("decay of %d steps, want 0 or more", s.DecaySteps)
	}
	return nil
}
