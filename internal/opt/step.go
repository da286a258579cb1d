package opt

import (
	"context"

	"gollama/internal/opt/data"
	"gollama/internal/opt/graph"
)

// step moves the parameters by p along the gradient of the batch's mean loss, and
// returns the losses and the norm of the gradients. accept may refuse the mean
// loss before anything changes; a loss or a norm that is no number is a
// [DivergedError].
func (f *fitter) step(ctx context.Context, batch []*data.Example, weight float64, p OptimizerParams, accept func(loss float64) error) (Result, float64, error) {
	rows := Merge(batch, f.RowTokens)
	if len(rows) == 1 && p.Clip == 0 {
		return f.fusedStep(ctx, rows[0], weight, p, accept)
	}
	f.m.ZeroGrad()
	var sum Result
	for i, ex := range rows {
		l, err := f.m.Backward(ctx, ex, 1/weight, f.seed(i))
		if err != nil {
			return sum, 0, err
		}
		sum.Add(l)
		f.progress(false, float64(i+1)*float64(len(batch))/float64(f.Batch))
	}
	if err := f.check(sum, accept); err != nil {
		return sum, 0, err
	}
	norm := f.opt.GradNorm()
	if err := finite(f.st.Step+1, 0, norm); err != nil {
		return sum, norm, err
	}
	return sum, norm, f.opt.Step(p, norm)
}

// fusedStep is step for one row and without clipping: each parameter moves within
// the backward pass.
func (f *fitter) fusedStep(ctx context.Context, ex *data.Example, weight float64, p OptimizerParams, accept func(loss float64) error) (sum Result, norm float64, err error) {
	l, err := f.m.BackwardApply(ctx, ex, 1/weight, f.seed(0), func(l graph.Loss, params []*graph.Param) error {
		if sum.Total.Scored == 0 { // the first call
			sum.Add(l)
			if err := f.check(sum, accept); err != nil {
				return err
			}
			f.opt.begin()
		}
		f.opt.see(params)
		norm = f.opt.norm()
		if err := finite(f.st.Step+1, 0, norm); err != nil {
			return err
		}
		return f.opt.apply(p, 1, params)
	})
	if sum.Total.Scored == 0 {
		sum.Add(l)
	}
	f.progress(false, 1)
	return sum, norm, err
}

// seed returns the seed of row i of the present update.
func (f *fitter) seed(i int) uint64 { return uint64(f.st.Step)<<microBits | uint64(i) }

func (f *fitter) check(sum Result, accept func(loss float64) error) error {
	loss, _ := sum.Loss()
	if err := finite(f.st.Step+1, loss, 0); err != nil {
		return err
	}
	return accept(loss)
}
