package opt

import (
	"fmt"
	"math"
	"strings"
)

// Kind names an optimizer.
type Kind int

// The optimizers.
const (
	AdamW Kind = iota // Loshchilov and Hutter 2019
	SGD               // gradient descent with momentum
	Muon              // Jordan 2024 for the matrices of the blocks, AdamW for the rest
)

var kindNames = []string{"adamw", "sgd", "muon"}

func (k Kind) String() string {
	if k < 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("optimizer %d", int(k))
	}
	return kindNames[k]
}

// ParseKind returns the optimizer called s, in upper or lower case. The error
// lists the names.
func ParseKind(s string) (Kind, error) {
	for i, n := range kindNames {
		if strings.EqualFold(s, n) {
			return Kind(i), nil
		}
	}
	return 0, fmt.Errorf("unknown optimizer %q, want one of %s", s, strings.Join(kindNames, ", "))
}

// OptimizerParams are the numbers of one optimizer step.
type OptimizerParams struct {
	LR           float64 // learning rate
	Beta1        float64 // AdamW: decay of the first moment
	Beta2        float64 // AdamW: decay of the second moment
	Eps          float64 // AdamW: added to the root of the second moment
	WeightDecay  float64 // a step shrinks weights by LR*WeightDecay; not norms and biases
	Momentum     float64 // SGD: 0 is none
	Nesterov     bool    // SGD: look ahead
	MuonMomentum float64 // Muon
	Clip         float64 // largest norm of all gradients together; 0 is no limit
}

// DefaultOptimizerParams returns ggml_opt_get_default_optimizer_params' values
// (ggml-opt.cpp), Muon's own momentum, and no clipping.
func DefaultOptimizerParams() OptimizerParams {
	return OptimizerParams{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, MuonMomentum: 0.95}
}

// Validate reports the first value out of its range.
func (p OptimizerParams) Validate() error {
	for _, v := range []struct {
		name   string
		got    float64
		lo, hi float64 // hi is excluded
	}{
		{"learning rate", p.LR, 0, math.Inf(1)},
		{"beta1", p.Beta1, 0, 1},
		{"beta2", p.Beta2, 0, 1},
		{"eps", p.Eps, 0, math.Inf(1)},
		{"weight decay", p.WeightDecay, 0, math.Inf(1)},
		{"momentum", p.Momentum, 0, 1},
		{"Muon's momentum", p.MuonMomentum, 0, 1},
		{"clip", p.Clip, 0, math.Inf(1)},
	} {
		if !(v.got >= v.lo && v.got < v.hi) { // also false for NaN
			return fmt.Errorf("%s %g, want at least %g and below %g", v.name, v.got, v.lo, v.hi)
		}
	}
	if p.Eps == 0 {
		return fmt.Errorf("eps 0: the step of a weight without gradient would be 0/0")
	}
	if p.LR*p.WeightDecay >= 1 {
		return fmt.Errorf("learning rate %g times weight decay %g is %g, want below 1: a step would turn weights round", p.LR, p.WeightDecay, p.LR*p.WeightDecay)
	}
	return nil
}

// ParamsFunc gives the parameters of the update after step updates, in epoch,
// both from 0. Trainings that run at the same time may share one.
type ParamsFunc func(step int64, epoch int) OptimizerParams

// Constant gives p for every step.
func Constant(p OptimizerParams) ParamsFunc {
	return func(int64, int) OptimizerParams { return p }
}

// Scheduled gives p with the learning rate of s.
func Scheduled(p OptimizerParams, s Schedule) ParamsFunc {
	return func(step int64, epoch int) OptimizerParams {
		now := p
		now.LR = s.At(step, epoch)
		return now
	}
}
