package opt

import (
	"context"
	"errors"
	"time"

	"gollama/internal/engine/ggml"
	"gollama/internal/opt/data"
)

// Measured is what a few steps took.
type Measured struct {
	Steps      int     // measured
	Seconds    float64 // of one update, mean
	Rate       float64 // labels in a second of an update
	ValSeconds float64 // of one validation example, mean; 0 without any
	StateBytes int64   // of the optimizer
	Memory     int64   // resident after them, bytes; 0 if not known
}

// Limits of a measurement.
const (
	measureSteps   = 3
	measureAtMost  = 20 * time.Second
	measureValRows = 3
)

// Measure times a few updates of a run without changing the parameters: the
// gradients are computed and the optimizer runs, with a learning rate of 0. The
// first update, in which memory is taken, does not count unless it takes all
// the time there is.
func Measure(ctx context.Context, m Trainable, train, val Dataset, cfg Config) (Measured, error) {
	nVal := 0
	if val != nil {
		nVal = val.Len()
	}
	if err := cfg.validate(train.Len(), nVal); err != nil {
		return Measured{}, err
	}
	p := cfg.Params(0, 0)
	f := &fitter{Config: cfg, m: m, train: train, val: val, orderOf: -1}
	var err error
	if f.opt, err = NewOptimizer(cfg.Kind, m.Params(), p.Momentum != 0, cfg.Threads); err != nil {
		return Measured{}, err
	}
	defer func() { _ = f.opt.Close() }() // as in Fit
	p.LR, p.WeightDecay = 0, 0
	var r Measured
	labels, begin := int64(0), time.Now()
	for i := 0; i <= measureSteps && time.Since(begin) < measureAtMost; i++ {
		start := time.Now()
		sum, err := f.dryStep(ctx, p, i)
		if err != nil {
			return r, err
		}
		if i == 1 {
			r.Steps, r.Seconds, labels = 0, 0, 0
		}
		r.Steps++
		r.Seconds += time.Since(start).Seconds()
		labels += sum.Total.Scored
	}
	m.ZeroGrad()
	r.Rate = float64(labels) / max(r.Seconds, 1e-9)
	r.Seconds /= float64(max(r.Steps, 1))
	n := min(nVal, measureValRows)
	start := time.Now()
	for i := range n {
		ex, err := val.Example(i)
		if err != nil {
			return r, err
		}
		if _, err := m.Loss(ctx, ex); err != nil {
			return r, err
		}
	}
	r.ValSeconds = time.Since(start).Seconds() / float64(max(n, 1))
	r.StateBytes, r.Memory = f.opt.StateBytes(), ggml.ProcessMemory("VmRSS")
	return r, nil
}

// dryStep makes an update that moves nothing.
func (f *fitter) dryStep(ctx context.Context, p OptimizerParams, i int) (Result, error) {
	first := i * f.Batch
	if first >= f.train.Len() {
		first = 0
	}
	batch, err := Batch(f.train, f.passOrder(), first, f.Batch)
	if err != nil {
		return Result{}, err
	}
	weight := totalWeight(batch)
	if weight <= 0 {
		return Result{}, nil
	}
	sum, _, err := f.step(ctx, batch, weight, p, func(float64) error { return nil })
	var diverged *DivergedError
	if errors.As(err, &diverged) {
		diverged.Step = 0 // nothing has moved: it is the model as it came
	}
	return sum, err
}

func totalWeight(batch []*data.Example) float64 {
	sum := 0.0
	for _, ex := range batch {
		sum += weightOf(ex)
	}
	return sum
}
