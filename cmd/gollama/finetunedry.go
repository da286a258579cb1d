package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"gollama/internal/engine/ggml"
	"gollama/internal/opt"
)

// tunePlan is what --dry-run prints.
type tunePlan struct {
	Type          string  `json:"type"` // "finetune"
	Method        string  `json:"method"`
	Trainable     int64   `json:"trainable"` // values that are trained
	Tensors       int     `json:"tensors"`   // of these
	Values        int64   `json:"values"`    // of the whole model
	Examples      int     `json:"examples"`
	ValExamples   int     `json:"val_examples"`
	Tokens        int64   `json:"tokens"` // computed in an epoch
	Labels        int64   `json:"labels"` // learned in an epoch
	Batch         int     `json:"batch"`
	Steps         int64   `json:"steps"`          // of the whole run
	StateBytes    int64   `json:"state_bytes"`    // parameters, gradients that are there at once, and optimizer
	MemoryBytes   int64   `json:"memory_bytes"`   // resident after a few steps
	DiskBytes     int64   `json:"disk_bytes"`     // checkpoints and result
	StepSeconds   float64 `json:"step_s"`         // measured
	Rate          float64 `json:"tok_s"`          // labels in a second, measured
	RunSeconds    float64 `json:"run_s"`          // with the evaluations
	MeasuredSteps int     `json:"measured_steps"` // that this rests on
}

// estimate measures a few steps and prints what the run would take.
func (t *tuning) estimate(ctx context.Context) error {
	cfg, err := t.fitConfig()
	if err != nil {
		return err
	}
	keepBest, patience := cfg.KeepBest, cfg.Patience
	cfg.KeepBest, cfg.Patience = false, 0
	m, err := opt.Measure(ctx, t.model, t.train, t.val, cfg)
	cfg.KeepBest, cfg.Patience = keepBest, patience
	if err != nil {
		return err
	}
	stats := t.train.Stats()
	steps := cfg.Steps(t.train.Len())
	evaluations := float64(cfg.Epochs) + 1
	if cfg.EvalEvery > 0 {
		evaluations = float64(steps/cfg.EvalEvery) + 1
	}
	p := tunePlan{
		Type: "finetune", Method: t.o.tune.method, Trainable: t.trainable(), Tensors: len(t.model.Params()),
		Examples: t.train.Len(), ValExamples: t.val.Len(), Tokens: stats.Tokens, Labels: stats.Labels, Batch: cfg.Batch, Steps: steps,
		StateBytes: 4*t.trainable() + t.gradBytes() + m.StateBytes, MemoryBytes: m.Memory, DiskBytes: t.diskNeed(), StepSeconds: m.Seconds, Rate: m.Rate,
		RunSeconds: m.Seconds*float64(steps) + evaluations*m.ValSeconds*float64(t.val.Len()), MeasuredSteps: m.Steps,
	}
	for _, info := range t.base.Tensors {
		p.Values += int64(info.Elements())
	}
	if t.o.json {
		b, err := json.Marshal(p)
		if err != nil {
			return err
		}
		return t.e.out.text(string(b) + "\n")
	}
	return t.e.out.text(p.text())
}

func (p tunePlan) text() string {
	return fmt.Sprintf(`method      %s
trainable   %d values in %d tensors, of %d in the model
examples    %d, and %d to validate
tokens      %d in an epoch, %d of them learned
updates     %d, of %d examples each
memory      %s of parameters, gradients and optimizer; %s in all after %d steps
disk        %s of checkpoints and results
speed       %.3g s an update, %.0f tokens a second
time        %s
`, p.Method, p.Trainable, p.Tensors, p.Values, p.Examples, p.ValExamples, p.Tokens, p.Labels, p.Steps, p.Batch,
		megabytes(p.StateBytes), megabytes(p.MemoryBytes), p.MeasuredSteps, megabytes(p.DiskBytes), p.StepSeconds, p.Rate,
		time.Duration(p.RunSeconds*float64(time.Second)).Round(time.Second))
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// trainable returns how many values are trained.
func (t *tuning) trainable() int64 {
	n := int64(0)
	for _, p := range t.model.Params() {
		n += int64(len(p.Data))
	}
	return n
}

// moments returns how many values the optimizer keeps for each trained one, at
// most.
func (u *tuneOptions) moments() int64 {
	switch {
	case u.kind != opt.SGD:
		return 2
	case u.momentum > 0:
		return 1
	}
	return 0
}

// gradBytes returns the memory that gradients take at once.
func (t *tuning) gradBytes() int64 { return t.model.GradBytes(t.batch() == 1 && t.o.tune.clip == 0) }

// diskNeed returns the bytes that the run may take: checkpoints (one is made
// before an old one goes) and the result.
func (t *tuning) diskNeed() int64 {
	u := &t.o.tune
	need := int64(u.keep+2) * 4 * t.trainable() * (1 + u.moments())
	if u.method == "lora" {
		need += 4 * t.trainable()
	}
	if u.method == "full" || u.merged != "" {
		if plan, err := t.plan(); err == nil {
			need += int64(plan.Size())
		}
	}
	return need
}

// checkMemory refuses a run that does not fit the machine.
func (t *tuning) checkMemory() error {
	u := &t.o.tune
	need, have := 4*t.trainable()*(1+u.moments())+t.gradBytes(), int64(ggml.AvailableMemory())
	if have > 0 && need > have {
		return &hintedError{fmt.Errorf("training %d values takes %s for them, their gradients and the optimizer, and %s are available", t.trainable(), megabytes(need), megabytes(have)),
			"--method lora trains far fewer; --optimizer sgd keeps less; with --batch 1 and no --clip gradients are not kept"}
	}
	return nil
}

// checkDisk refuses a run whose files do not fit the disk.
func (t *tuning) checkDisk() error {
	dir, _ := t.o.runDir()
	for {
		if st, err := os.Stat(dir); err == nil && st.IsDir() {
			break
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return nil
		}
		dir = parent
	}
	need, have := t.diskNeed(), diskFree(dir)
	if have > 0 && need > have {
		return &writeError{errors.New("the checkpoints and the result take up to " + megabytes(need) + ", and " + megabytes(have) + " are free in " + dir)}
	}
	return nil
}
