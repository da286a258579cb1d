package opt

import (
	"fmt"
	"time"

	"gollama/internal/engine/ggml"
)

// elapsed returns the seconds of all sessions.
func (f *fitter) elapsed() float64 { return f.before + time.Since(f.begin).Seconds() }

// rate returns the labels trained on in a second of this session's updates.
func (f *fitter) rate() float64 {
	if f.busy <= 0 {
		return 0
	}
	return float64(f.trained) / f.busy.Seconds()
}

// report completes r and hands it on.
func (f *fitter) report(r Report) error {
	r.Step, r.Tokens = f.st.Step, f.st.Tokens
	r.Epoch = float64(f.st.Epoch) + float64(f.st.Cursor)/float64(f.train.Len())
	r.Timing = &Timing{Elapsed: f.elapsed(), Rate: f.rate(), Memory: ggml.ProcessMemory("VmRSS")}
	if f.Run != nil {
		if err := f.Run.record(r); err != nil {
			return err
		}
	}
	if f.OnReport != nil {
		f.OnReport(r)
	}
	return nil
}

// progress tells how far the run is; part is the share of the present update.
func (f *fitter) progress(evaluating bool, part float64) {
	if f.OnProgress == nil {
		return
	}
	p := Progress{Step: f.st.Step, Steps: f.Steps(f.train.Len()), Loss: f.st.Guard.Mean, Rate: f.rate(), Evaluating: evaluating}
	p.Share = min((float64(p.Step)+min(part, 1))/float64(max(p.Steps, 1)), 1)
	if f.st.Tokens > 0 && p.Rate > 0 {
		// Time by labels, not steps: the batches may differ in length.
		total := float64(f.st.Tokens) / max(float64(p.Step), 1) * float64(p.Steps)
		p.Left = time.Duration(max(total-float64(f.st.Tokens), 0) / p.Rate * float64(time.Second))
	}
	f.OnProgress(p)
}

func (f *fitter) summary() Summary {
	s := Summary{Steps: f.st.Step, Tokens: f.st.Tokens, Train: f.st.Pass, Val: f.lastVal, Best: f.st.Best,
		UsedBy: f.st.Step, Skipped: f.st.Skipped, Elapsed: f.elapsed()}
	if f.stale() && !f.last() {
		s.Stopped = "the validation loss did not fall any more"
	}
	return s
}

// saveDue says whether a checkpoint is to be made.
func (f *fitter) saveDue(evaluated, best bool) bool {
	switch {
	case f.last() || best || f.stale():
		return true
	case f.SaveEvery > 0 && f.st.Step%f.SaveEvery == 0, f.SaveEvery == 0 && evaluated:
		return true
	}
	return f.SaveInterval > 0 && time.Since(f.saved) >= f.SaveInterval
}

// checkpoint saves the run. While the loss is out of bounds it does not: the
// last good one stays the newest.
func (f *fitter) checkpoint() error {
	if f.Run == nil || f.st.Guard.High > 0 {
		return nil
	}
	f.st.Elapsed = f.elapsed()
	if err := f.Run.save(&f.st, f.opt); err != nil {
		return writing(fmt.Errorf("checkpoint: %w", err))
	}
	f.saved = time.Now()
	return nil
}

func (f *fitter) checkpointOnSignal() error {
	if f.Run != nil && f.Run.newest == f.st.Step && f.st.Pending == nil {
		return nil // it is there already
	}
	return f.checkpoint()
}

// restore takes over the checkpoint that the run folder was opened with.
func (f *fitter) restore() error {
	if f.Run == nil {
		return nil
	}
	st, ok, err := f.Run.load(f.m.Params(), f.opt)
	if err != nil || !ok {
		return err
	}
	f.st, f.before = st, st.Elapsed
	return f.m.Updated()
}

// useBest loads the parameters of the best evaluation, if they are asked for.
func (f *fitter) useBest(s *Summary) error {
	if !f.KeepBest || f.st.Best == nil || f.st.Best.Step == f.st.Step {
		return nil
	}
	if err := f.Run.loadParams(f.st.Best.Step, f.m.Params()); err != nil {
		return err
	}
	s.UsedBy = f.st.Best.Step
	return f.m.Updated()
}
