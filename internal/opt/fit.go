package opt

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// state is everything that decides how a run goes on, besides the parameters
// and the optimizer's tensors. It survives JSON to the bit.
type state struct {
	Step    int64    `json:"step"`    // updates made
	Epoch   int      `json:"epoch"`   // whole passes over the data
	Cursor  int      `json:"cursor"`  // place in the order of the present pass
	Tokens  int64    `json:"tokens"`  // labels seen
	Skipped int64    `json:"skipped"` // batches without a label
	Window  Result   `json:"window"`  // since the last report
	Pass    Result   `json:"pass"`    // of the present pass, or the last one if it is over
	Guard   guard    `json:"guard"`
	Best    *Best    `json:"best,omitempty"`
	Stale   int      `json:"stale"`             // evaluations since the best
	Pending *pending `json:"pending,omitempty"` // an update that has not been reported
	Begun   bool     `json:"begun"`             // the evaluation before the first update is done
	Elapsed float64  `json:"elapsed_s"`         // seconds of all sessions
}

// pending is what a report needs to know of an update.
type pending struct {
	LR   float64 `json:"lr"`
	Norm float64 `json:"grad_norm"`
	Loss float64 `json:"loss"`
}

type fitter struct {
	Config
	m          Trainable
	train, val Dataset
	opt        *Optimizer
	st         state
	order      []int // of pass orderOf
	orderOf    int
	lastVal    Result

	begin   time.Time // of the session
	before  float64   // seconds of earlier sessions
	saved   time.Time // last checkpoint
	trained int64     // labels in this session
	busy    time.Duration
}

// microBits leaves room for the number of a row within its update in the step
// that Backward gets.
const microBits = 20

// Fit trains m on train and evaluates it on val, which may be nil or empty. A
// cancelled ctx ends the run after a checkpoint; the error is then the context's
// cause. A loss that is no number or explodes is a [DivergedError]; the last
// checkpoint is then one from before.
//
// If cfg.Run was opened to resume, Fit goes on from its newest checkpoint.
func Fit(ctx context.Context, m Trainable, train, val Dataset, cfg Config) (Summary, error) {
	nVal := 0
	if val != nil {
		nVal = val.Len()
	}
	if err := cfg.validate(train.Len(), nVal); err != nil {
		return Summary{}, err
	}
	cfg.ReportEvery = max(cfg.ReportEvery, 1)
	f := &fitter{Config: cfg, m: m, train: train, val: val, orderOf: -1, begin: time.Now(), saved: time.Now()}
	var err error
	if f.opt, err = NewOptimizer(cfg.Kind, m.Params(), cfg.Params(0, 0).Momentum != 0, cfg.Threads); err != nil {
		return Summary{}, err
	}
	defer func() { _ = f.opt.Close() }() // memory that is not given back is lost to nobody else
	if err := f.restore(); err != nil {
		return Summary{}, err
	}
	err = f.loop(ctx)
	if f.Run != nil {
		if perr := f.Run.plot(); err == nil {
			err = perr
		}
	}
	if err != nil {
		return f.summary(), err
	}
	s := f.summary()
	return s, f.useBest(&s)
}

func (f *fitter) loop(ctx context.Context) error {
	err := f.baseline(ctx)
	for err == nil && !f.done() {
		if f.st.Pending == nil {
			err = f.update(ctx)
		}
		if err == nil && f.st.Pending != nil {
			err = f.conclude(ctx)
		}
	}
	if err == nil {
		last, _ := f.st.Pass.Loss()
		return f.st.Guard.end(f.st.Step, last)
	}
	if ctx.Err() == nil || !errors.Is(err, ctx.Err()) && !errors.Is(err, context.Cause(ctx)) {
		return err
	}
	if serr := f.checkpointOnSignal(); serr != nil {
		return serr
	}
	return context.Cause(ctx)
}

// done says whether the run is over.
func (f *fitter) done() bool {
	return f.st.Pending == nil && (f.st.Epoch >= f.Epochs || f.MaxSteps > 0 && f.st.Step >= f.MaxSteps || f.stale())
}

func (f *fitter) stale() bool { return f.Patience > 0 && f.st.Stale >= f.Patience }

// last says whether no update follows.
func (f *fitter) last() bool {
	return f.st.Epoch >= f.Epochs || f.MaxSteps > 0 && f.st.Step >= f.MaxSteps
}

func (f *fitter) hasVal() bool { return f.val != nil && f.val.Len() > 0 }

// baseline evaluates the model as it came.
func (f *fitter) baseline(ctx context.Context) error {
	if f.st.Begun {
		return nil
	}
	if f.hasVal() {
		r := Report{}
		if err := f.evaluate(ctx, &r); err != nil {
			return err
		}
		f.st.Stale = 0 // it counts from the first update
		if err := f.report(r); err != nil {
			return err
		}
	}
	f.st.Begun = true
	return f.checkpoint()
}

// update makes one optimizer step. A cancelled ctx and a bad loss leave parameters
// and state as they were; after another error they are of no use.
func (f *fitter) update(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	start := time.Now()
	batch, err := Batch(f.train, f.passOrder(), f.st.Cursor, f.Batch)
	if err != nil {
		return err
	}
	weight := totalWeight(batch)
	if weight <= 0 {
		f.startPass()
		f.advance(len(batch))
		f.st.Skipped++
		if f.last() && f.st.Step == 0 {
			return errors.New("no example has a label to learn")
		}
		return nil
	}
	p := f.Params(f.st.Step, f.st.Epoch)
	sum, norm, err := f.step(ctx, batch, weight, p, func(loss float64) error { return f.st.Guard.add(f.st.Step+1, loss) })
	if err != nil {
		return err
	}
	if err := f.m.Updated(); err != nil {
		return err
	}
	f.startPass()
	f.st.Pass.merge(sum)
	f.st.Window.merge(sum)
	f.st.Step++
	f.st.Tokens += sum.Total.Scored
	loss, _ := sum.Loss()
	f.st.Pending = &pending{LR: p.LR, Norm: norm, Loss: loss}
	f.advance(len(batch))
	f.trained += sum.Total.Scored
	f.busy += time.Since(start)
	return nil
}

// startPass empties the sums of the pass at its first batch.
func (f *fitter) startPass() {
	if f.st.Cursor == 0 {
		f.st.Pass = Result{}
	}
}

// advance moves on by n examples.
func (f *fitter) advance(n int) {
	f.st.Cursor += n
	if f.st.Cursor >= f.train.Len() {
		f.st.Epoch, f.st.Cursor = f.st.Epoch+1, 0
	}
}

func (f *fitter) passOrder() []int {
	if f.orderOf != f.st.Epoch {
		f.orderOf = f.st.Epoch
		if f.Shuffle {
			f.order = Shuffle(f.train.Len(), f.Shard, f.Seed, f.st.Epoch)
		} else {
			f.order = InOrder(f.train.Len())
		}
	}
	return f.order
}

// conclude evaluates, reports, saves and samples after an update, where due.
func (f *fitter) conclude(ctx context.Context) error {
	p := *f.st.Pending
	evalDue := f.hasVal() && (f.last() || f.EvalEvery > 0 && f.st.Step%f.EvalEvery == 0 || f.EvalEvery == 0 && f.st.Cursor == 0)
	r := Report{}
	if evalDue {
		if err := f.evaluate(ctx, &r); err != nil {
			return err
		}
	}
	f.st.Pending = nil
	if evalDue || f.last() || f.st.Step%f.ReportEvery == 0 {
		loss, _ := f.st.Window.Loss()
		accuracy, _ := f.st.Window.Accuracy()
		r.Loss, r.Accuracy, r.LR, r.GradNorm = &loss, &accuracy, &p.LR, &p.Norm
		f.st.Window = Result{}
		if evalDue {
			pass, _ := f.st.Pass.Loss()
			r.PassLoss = &pass
		}
		if err := f.report(r); err != nil {
			return err
		}
	}
	if f.saveDue(evalDue, r.Best) {
		if err := f.checkpoint(); err != nil {
			return err
		}
	}
	if f.OnSample != nil && f.SampleEvery > 0 && f.st.Step%f.SampleEvery == 0 {
		return f.OnSample(ctx, f.st.Step)
	}
	return nil
}

// evaluate puts the validation loss into r and remembers the best.
func (f *fitter) evaluate(ctx context.Context, r *Report) error {
	n := f.val.Len()
	var sum Result
	group := max(f.Batch, 1)
	for i := 0; i < n; i += group {
		batch, err := Batch(f.val, InOrder(n), i, group)
		if err != nil {
			return err
		}
		for _, ex := range Merge(batch, f.RowTokens) {
			l, err := f.m.Loss(ctx, ex)
			if err != nil {
				return err
			}
			sum.Add(l)
		}
		f.progress(true, 0)
	}
	f.lastVal = sum
	loss, unc := sum.Loss()
	accuracy, _ := sum.Accuracy()
	if err := finite(f.st.Step, loss, 0); err != nil {
		return fmt.Errorf("validation: %w", err)
	}
	r.ValLoss, r.ValAccuracy = &loss, &accuracy
	if !math.IsNaN(unc) {
		r.ValLossUnc = &unc
	}
	if r.Best = f.st.Best == nil || loss < f.st.Best.Loss; r.Best {
		f.st.Best, f.st.Stale = &Best{Step: f.st.Step, Loss: loss}, 0
	} else {
		f.st.Stale++
	}
	return nil
}
