package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"gollama/internal/builtin"
	"gollama/internal/engine/ggml"
	"gollama/internal/opt"
)

func enginePin() string { return "llama.cpp v" + ggml.BuildInfo().Pin }

// decisive are the flags that decide the result of a run: it is resumed with the
// same ones only.
var decisive = []string{
	"method", "rank", "alpha", "rslora", "dropout", "targets", "layers", "lora", "train-tensors",
	"optimizer", "learning-rate", "learning-rate-min", "learning-rate-decay-epochs", "schedule", "warmup", "decay", "weight-decay",
	"beta1", "beta2", "eps", "momentum", "nesterov", "muon-momentum", "clip",
	"epochs", "max-steps", "seed", "eval-every", "patience", "report-every",
}

// settings returns what decides the result.
func (t *tuning) settings() map[string]string {
	m := map[string]string{
		"model": t.baseHash, "data": t.dataHash, "ctx-size": strconv.Itoa(t.nCtx), "batch": strconv.Itoa(t.batch()),
		"ubatch-size": strconv.Itoa(t.o.NUBatch), "shuffle": strconv.FormatBool(t.shuffle()), "examples": strconv.Itoa(t.train.Len()),
		"val-examples": strconv.Itoa(t.val.Len()),
	}
	for i := range flagTable {
		f := &flagTable[i]
		if strings.Contains(f.in, inFinetune) && slices.Contains(decisive, f.name) && f.get != nil {
			if v := f.get(t.o); v != nil {
				m[f.name] = fmt.Sprint(v)
			}
		}
	}
	return m
}

// batch returns the examples of an update.
func (t *tuning) batch() int {
	if t.o.PromptFile != "" && !t.o.isSet("batch") {
		return 1 // window, as llama-finetune
	}
	return t.o.tune.batch
}

func (t *tuning) shuffle() bool {
	if t.o.isSet("shuffle") {
		return t.o.tune.shuffle
	}
	return t.o.PromptFile == ""
}

// fitConfig translates the settings.
func (t *tuning) fitConfig() (opt.Config, error) {
	u := &t.o.tune
	p := opt.OptimizerParams{
		LR: exact(u.lr), Beta1: exact(u.beta1), Beta2: exact(u.beta2), Eps: exact(u.eps), WeightDecay: exact(u.weightDecay),
		Momentum: exact(u.momentum), Nesterov: u.nesterov, MuonMomentum: exact(u.muonMomentum), Clip: exact(u.clip),
	}
	cfg := opt.Config{
		Kind: u.kind, Epochs: u.epochs, MaxSteps: int64(u.maxSteps), Batch: t.batch(), RowTokens: t.o.NUBatch,
		Shuffle: t.shuffle(), Seed: uint64(u.seed), EvalEvery: int64(u.evalEvery), Patience: u.patience, ReportEvery: int64(u.reportEvery),
		SaveEvery: int64(u.saveEvery), SaveInterval: time.Duration(u.saveMinutes) * time.Minute, KeepBest: u.keepBest,
		SampleEvery: int64(u.sampleEvery), Threads: max(t.o.CPUParams.NThreads, 0),
	}
	s, err := u.scheduleOf(cfg.Steps(t.train.Len()))
	cfg.Params = opt.Scheduled(p, s)
	return cfg, err
}

// scheduleOf makes the schedule of a run of this many updates.
func (u *tuneOptions) scheduleOf(steps int64) (opt.Schedule, error) {
	name := u.schedule
	if name == "auto" && u.lrMin > 0 {
		name = opt.Halving.String()
	} else if name == "auto" {
		name = opt.Flat.String()
	}
	shape, err := opt.ParseShape(name)
	if err != nil {
		return opt.Schedule{}, usagef("--schedule: %s", err)
	}
	count := func(v float32) int64 {
		if v < 1 {
			return int64(math.Round(float64(v) * float64(steps)))
		}
		return int64(v)
	}
	s := opt.Schedule{
		Shape: shape, LR: exact(u.lr), MinLR: exact(u.lrMin), Warmup: count(u.warmup), DecaySteps: count(u.decay), Steps: steps,
		Epochs: u.epochs, DecayEpochs: exact(u.decayEpochs),
	}
	if shape != opt.Halving {
		s.MinLR = max(s.MinLR, 0)
	}
	if err := s.Validate(); err != nil {
		return s, usagef("%s", err)
	}
	return s, nil
}

// fit trains and writes the result.
func (t *tuning) fit(ctx context.Context) error {
	cfg, err := t.fitConfig()
	if err != nil {
		return err
	}
	if t.baseHash, err = hashFiles(ctx, t.base.Paths); err != nil {
		return err
	}
	if err := t.openRun(); err != nil {
		return err
	}
	cfg.Run = t.run
	bar := t.l.progress(t.e, "training", "")
	defer bar.done()
	cfg.OnProgress = func(p opt.Progress) { bar.set(p.Share, progressText(p)) }
	cfg.OnReport = t.tell
	if t.o.tune.sampleEvery > 0 {
		cfg.OnSample = t.sample
	}
	s, err := opt.Fit(ctx, t.model, t.train, t.val, cfg)
	bar.done()
	if err != nil {
		return t.fitError(ctx, err, s)
	}
	if s.Skipped > 0 {
		t.l.warnf("%d batches had nothing to learn and were passed over", s.Skipped)
	}
	if s.Stopped != "" {
		t.l.message("info", fmt.Sprintf("ended after %d updates: %s", s.Steps, s.Stopped))
	}
	if s.UsedBy != s.Steps {
		t.l.message("info", fmt.Sprintf("the state after update %d, the best, is written", s.UsedBy))
	}
	if err := t.save(ctx); err != nil {
		return err
	}
	if _, asked := t.o.runDir(); !asked {
		if err := t.run.Remove(); err != nil {
			t.l.warnf("the run folder is left: %s", err)
		}
	}
	return nil
}

// openRun makes or opens the run folder and leaves the settings there.
func (t *tuning) openRun() error {
	dir, _ := t.o.runDir()
	cfg := opt.RunConfig{Dir: dir, Resume: t.o.tune.resume, Keep: t.o.tune.keep, About: t.about(), Settings: t.settings(),
		WeightsName: "weights.gguf", WriteWeights: t.writeWeights}
	if t.o.tune.method == "lora" {
		cfg.WeightsName = "adapter.gguf"
	}
	var err error
	t.run, err = opt.OpenRun(cfg, func(text string) { t.l.warnf("%s", text) })
	if err != nil {
		return t.fitError(context.Background(), err, opt.Summary{})
	}
	var text bytes.Buffer
	o := *t.o
	o.Model = builtin.Label(o.Model)
	if o.tune.init != "" {
		o.Model = "" // it is made of that
	}
	if err := writeConfig(&text, "finetune", &o); err != nil {
		return err
	}
	if err := t.run.WriteFile(opt.ConfigName, text.Bytes()); err != nil {
		return t.fitError(context.Background(), err, opt.Summary{})
	}
	return nil
}

// fitError gives an error of the run its exit status and a hint.
func (t *tuning) fitError(ctx context.Context, err error, s opt.Summary) error {
	var (
		exists   *opt.RunExistsError
		settings *opt.SettingsError
		diverged *opt.DivergedError
	)
	dir, _ := t.o.runDir()
	switch {
	case errors.As(err, &exists):
		return usagef("%s", err).withHint("--resume goes on with it; --run-dir DIR puts the new one elsewhere")
	case errors.As(err, &settings):
		return usagef("%s", err).withHint("--resume without other flags takes the settings of the run")
	case errors.As(err, &diverged):
		if diverged.Step == 0 {
			return &hintedError{err, "it comes from the model as it is: gollama run --check-tensors looks for bad weights"}
		}
		return &hintedError{err, fmt.Sprintf("a smaller -lr, or --clip 1; the last good checkpoint is in %s", filepath.Join(dir, "ckpt"))}
	case errors.Is(err, opt.ErrWrite):
		return &writeError{fmt.Errorf("%s: %w", dir, err)}
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		return &hintedError{fmt.Errorf("%w after %d updates; the state is saved", err, s.Steps),
			fmt.Sprintf("gollama finetune --run-dir %s --resume", dir)}
	}
	return err
}

func progressText(p opt.Progress) string {
	text := fmt.Sprintf(": update %d of %d", p.Step, p.Steps)
	if p.Loss > 0 {
		text += fmt.Sprintf(", loss %.3f", p.Loss)
	}
	if p.Rate > 0 {
		text += fmt.Sprintf(", %.0f tokens a second, %s left", p.Rate, p.Left.Round(time.Second))
	}
	if p.Evaluating {
		text += ", evaluating"
	}
	return text
}

// tell shows an evaluation.
func (t *tuning) tell(r opt.Report) {
	if r.ValLoss == nil {
		return
	}
	text := fmt.Sprintf("update %d, epoch %.2f: ", r.Step, r.Epoch)
	if r.PassLoss != nil {
		text += fmt.Sprintf("loss %.4f in this epoch, ", *r.PassLoss)
	}
	text += fmt.Sprintf("validation loss %.4f", *r.ValLoss)
	if r.ValLossUnc != nil {
		text += fmt.Sprintf(" ± %.4f", *r.ValLossUnc)
	}
	text += fmt.Sprintf(", accuracy %.1f%%", 100**r.ValAccuracy)
	if r.Best && r.Step > 0 {
		text += ", the best so far"
	}
	t.l.message("info", text)
}

// hashFiles returns the SHA-256 of files one after the other.
func hashFiles(ctx context.Context, paths []string) (string, error) {
	h := sha256.New()
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return "", err
		}
		_, err = io.Copy(h, &untilDone{ctx, f})
		if err := errors.Join(err, f.Close()); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// untilDone reads until ctx ends.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u *untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}
