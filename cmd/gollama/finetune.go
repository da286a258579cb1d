package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"gollama/internal/engine"
	"gollama/internal/gguf"
	"gollama/internal/opt"
	"gollama/internal/opt/data"
	"gollama/internal/opt/graph"
	"gollama/internal/pipeline"
)

var finetuneCommand = &command{
	name:     "finetune",
	synopsis: "(-m FILE | --init FILE) (-f TEXT | --data FILE...) -o FILE [flags]",
	short:    "Train a GGUF model, or an adapter for it.",
	long: `Reads a model and a text (-f) or examples (--data). Writes the trained model, or
with --method lora an adapter, to -o when training is done; until then an old
file stays. Metrics, a loss curve and checkpoints go to --run-dir. A run that was
interrupted or killed goes on with --resume, and ends with the same bits.
Standard output has the plan of --dry-run.

Examples:
  gollama finetune -m model.gguf -f train.txt -o tuned.gguf -c 64 -lr 1e-4 -epochs 1 --max-steps 4
  gollama finetune -m model.gguf --data pairs.jsonl -o tuned-lora.gguf --method lora --rank 8 -c 64 -lr 1e-3 --max-steps 4
  gollama finetune -m model.gguf -f train.txt -o tuned.gguf -c 64 --dry-run

Flags have the names and defaults of llama-finetune. Differences: all tensors are
trained, -b below -c does not update in the middle of a window, -o has to be
given, weights keep their types, and metadata stays as it was.`,
}

func init() { finetuneCommand.run = finetune }

// tuning is one run of the subcommand.
type tuning struct {
	e *env
	l *logging
	o *options

	base       *gguf.File
	baseHash   string
	vocab      *engine.Model // only the vocabulary; closed once the examples are made
	train, val *data.Dataset
	dataHash   string
	model      *graph.Model
	nCtx       int
	run        *opt.Run
	temp       *pipeline.File // the model of --init in a dry run
}

// finetune is the whole of gollama finetune once the settings are right.
func finetune(ctx context.Context, e *env, o *options, _ []string) (err error) {
	if err := o.finish("finetune"); err != nil {
		return err
	}
	if err := checkTune(o); err != nil {
		return err
	}
	l, err := setupLogging(e, "gollama finetune", o)
	if err != nil {
		return err
	}
	defer l.close()
	for _, name := range sharedWithFinetune {
		if why := noEffectInFinetune[name]; why != "" && o.given[name] > levelConfig { // a run's own config names all
			l.warnf("--%s has no effect: %s", name, why)
		}
	}
	t := &tuning{e: e, l: l, o: o}
	defer func() { err = errors.Join(err, t.close()) }()
	if err := t.open(ctx); err != nil {
		return canceledBy(ctx, err)
	}
	if o.tune.dryRun {
		return canceledBy(ctx, t.estimate(ctx))
	}
	return canceledBy(ctx, t.fit(ctx))
}

// checkTune checks what needs no file to be read.
func checkTune(o *options) error {
	t := &o.tune
	switch {
	case o.Model == "" && t.init == "" && t.resume:
		dir, _ := o.runDir()
		return usagef("--resume: there is no run in %q", dir).withHint("--run-dir DIR is the folder of the run")
	case o.Model != "" && t.init != "":
		return usagef("-m and --init: give one of them")
	case t.init != "" && t.method != "full":
		return usagef("--init makes a new model, which --method %s cannot train", t.method)
	case o.OutFile == "" && !t.dryRun:
		return usagef("no output given").withHint("-o FILE.gguf, or --dry-run")
	case o.OutFile == "-":
		return usagef("-o -: a model is not written to standard output").withHint("-o FILE.gguf")
	case o.PromptFile == "" && len(t.data) == 0:
		return usagef("no training data given").withHint("-f FILE for a text, --data FILE for examples")
	case o.PromptFile != "" && len(t.data) > 0:
		return usagef("-f and --data both give training data: give one of them")
	case o.PromptFile != "" && len(t.valData) > 0:
		return usagef("--val-data goes with --data; of -f, the last windows are for validation")
	case t.resume && t.dryRun:
		return usagef("--resume and --dry-run: give one of them")
	case len(t.samplePrompts) > 0 && t.sampleEvery == 0:
		return usagef("--sample-prompt is given, but no samples are made").withHint("--sample-every N")
	case exact(t.lr)*exact(t.weightDecay) >= 1:
		return usagef("-lr %g times -wd %g is %g: an update would turn weights round", exact(t.lr), exact(t.weightDecay), exact(t.lr)*exact(t.weightDecay))
	case t.lrMin > t.lr:
		return usagef("-lr-min %g is above -lr %g", exact(t.lrMin), exact(t.lr))
	case (t.keepBest || t.patience > 0) && t.valSplit == 0 && len(t.valData) == 0:
		return usagef("--keep-best and --patience need validation data").withHint("--val-split 0.05, or --val-data FILE")
	}
	for _, check := range []func(*options) error{checkTuneTemplate, checkMethod} {
		if err := check(o); err != nil {
			return err
		}
	}
	return checkTuneOutputs(o)
}

// checkMethod refuses flags of the other method.
func checkMethod(o *options) error {
	only := map[string][]string{
		"lora": {"rank", "alpha", "rslora", "dropout", "targets", "layers", "lora", "peft", "merged"},
		"full": {"train-tensors"},
	}
	for _, method := range []string{"lora", "full"} {
		for _, name := range only[method] {
			if o.given[name] > levelConfig && o.tune.method != method {
				return usagef("--%s is for --method %s, and the method is %s", name, method, o.tune.method)
			}
		}
	}
	if o.tune.adapter == "" {
		return nil
	}
	for _, name := range []string{"rank", "alpha", "rslora", "targets", "layers"} {
		if o.given[name] == levelArgs {
			return usagef("--%s and --lora: the adapter has its own", name)
		}
	}
	return nil
}

// checkTuneOutputs refuses outputs that are inputs, or each other.
func checkTuneOutputs(o *options) error {
	t := &o.tune
	read := []string{o.Model, o.PromptFile, t.adapter, t.init, o.config}
	for _, s := range slices.Concat(t.data, t.valData) {
		read = append(read, s.Path)
	}
	write := []struct{ flag, path string }{{"-o", o.OutFile}, {"--merged", t.merged}, {"--log-file", o.logFile}}
	for i, w := range write {
		for _, path := range read {
			if w.path != "" && sameFile(w.path, path) {
				return usagef("%s %s would replace a file that is read", w.flag, w.path)
			}
		}
		for _, other := range write[:i] {
			if w.path != "" && (filepath.Clean(w.path) == filepath.Clean(other.path) || sameFile(w.path, other.path)) {
				return usagef("%s and %s are the same file, %s", other.flag, w.flag, w.path)
			}
		}
	}
	return nil
}

func (t *tuning) close() error {
	err := errors.Join(t.model.Close(), t.run.Close(), t.vocab.Close())
	_ = t.base.Close() // only read from
	t.temp.Abort()
	return err
}

// open checks the outputs and reads everything that training needs.
func (t *tuning) open(ctx context.Context) error {
	var err error
	if err := t.checkWritable(); err != nil {
		return err
	}
	if t.o.tune.init != "" {
		if err := t.makeModel(ctx); err != nil {
			return err
		}
	}
	if t.base, err = gguf.OpenModel(t.o.Model); err != nil {
		return err
	}
	if err := t.openModel(); err != nil {
		return err
	}
	if err := errors.Join(t.checkMemory(), t.checkDisk()); err != nil {
		return err
	}
	bar := t.l.progress(t.e, "loading", "")
	defer bar.done()
	p := t.o.Params
	p.VocabOnly, p.NCtx = true, 0 // the engine's own least context is larger
	p.LoadProgressCallback = func(float32) bool { return ctx.Err() == nil }
	if t.vocab, err = engine.LoadModel(ctx, &p); err != nil {
		return err
	}
	// The examples are numbers now: what wrote them takes more memory than the head of a small model.
	err = errors.Join(t.openData(ctx), t.vocab.Close())
	debug.FreeOSMemory()
	return err
}

// checkWritable finds out now what would be lost after hours.
func (t *tuning) checkWritable() error {
	if t.o.tune.dryRun {
		return nil
	}
	for _, out := range []struct{ flag, path string }{{"--output", t.o.OutFile}, {"--merged", t.o.tune.merged}} {
		if out.path == "" {
			continue
		}
		f, err := pipeline.CreateAtomic(out.path)
		if err != nil {
			return &writeError{fmt.Errorf("%s: %s: %w", out.flag, out.path, pipeline.Cause(err))}
		}
		f.Abort()
	}
	return nil
}

// openModel opens the model for training.
func (t *tuning) openModel() error {
	u := &t.o.tune
	cfg := graph.Config{
		Threads: max(t.o.CPUParams.NThreads, 0), MemoryBudget: int64(u.activations) << 20, Seed: uint64(u.seed), Patterns: u.tensors,
	}
	if u.method == "lora" {
		cfg.LoRA = &graph.LoRA{Rank: u.rank, Alpha: u.alpha, RSLoRA: u.rsLoRA, Dropout: u.dropout, Targets: u.targets,
			First: u.first, Last: u.last, Resume: u.adapter}
	}
	var err error
	if t.model, err = graph.Open(t.o.Model, cfg); err != nil {
		return err
	}
	arch, _ := t.base.Str("general.architecture")
	trained, _ := t.base.Uint(arch + ".context_length")
	t.nCtx = t.o.NCtx
	if t.nCtx == 0 {
		t.nCtx = int(min(trained, 1<<20))
	}
	if t.nCtx < 2 {
		return usagef("-c %d: windows have at least 2 tokens", t.nCtx).withHint("-c 512")
	}
	if uint64(t.nCtx) > trained && trained > 0 {
		t.l.warnf("-c %d is more than the %d tokens that the model was trained for", t.nCtx, trained)
	}
	return nil
}

// runDir returns the folder of the run, and whether it was asked for.
func (o *options) runDir() (dir string, asked bool) {
	if o.tune.runDir != "" {
		return o.tune.runDir, true
	}
	return o.OutFile + ".run", false
}

// resumeConfig returns the settings file of the run that the command line asks
// to resume, or "".
func (o *options) resumeConfig() string {
	if !o.tune.resume || o.OutFile == "" && o.tune.runDir == "" {
		return ""
	}
	dir, _ := o.runDir()
	path := filepath.Join(dir, opt.ConfigName)
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// about says who makes a file.
func (t *tuning) about() map[string]string {
	return map[string]string{
		"version": version, "engine": enginePin(), "command_line": strings.Join(append([]string{"gollama"}, t.e.args[1:]...), " "),
	}
}
