package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"gollama/internal/builtin"
	"gollama/internal/gguf"
	"gollama/internal/lora"
	"gollama/internal/opt/graph"
	"gollama/internal/pipeline"
)

// Suffixes of an adapter's tensors in a GGUF file.
const (
	suffixA = ".lora_a"
	suffixB = ".lora_b"
)

// trained returns what was trained as an adapter of the base: pairs, or whole
// tensors. It shares the values with the model.
func (t *tuning) trained() *lora.Adapter {
	b := lora.BaseOf(t.base)
	a := &lora.Adapter{Path: "the trained tensors", Arch: b.Arch, Alpha: t.model.AdapterAlpha(), Heads: b.Heads, KVHeads: b.KVHeads,
		Tied: t.o.tune.method == "full", Keys: t.provenance()}
	pairs := map[string]int{}
	for _, p := range t.model.Params() {
		name, isA := strings.CutSuffix(p.Name, suffixA)
		if !isA {
			name, _ = strings.CutSuffix(p.Name, suffixB)
		}
		if name == p.Name {
			a.Tensors = append(a.Tensors, lora.Tensor{Base: p.Name, Whole: matrixOf(p)})
			continue
		}
		i, ok := pairs[name]
		if !ok {
			i = len(a.Tensors)
			pairs[name] = i
			a.Tensors = append(a.Tensors, lora.Tensor{Base: name})
		}
		if isA {
			a.Tensors[i].A = matrixOf(p)
		} else {
			a.Tensors[i].B = matrixOf(p)
		}
	}
	return a
}

func matrixOf(p *graph.Param) *lora.Matrix {
	m := &lora.Matrix{Data: p.Data}
	for _, ne := range p.Shape {
		m.Shape = append(m.Shape, uint64(ne))
	}
	return m
}

// provenance returns the keys that say how a file was made.
func (t *tuning) provenance() gguf.KVs {
	var kvs gguf.KVs
	for _, k := range []string{"version", "engine", "command_line"} {
		kvs = append(kvs, gguf.KV{Key: "gollama." + k, Value: gguf.ValueOf(t.about()[k])})
	}
	fileType, _ := t.base.Uint("general.file_type")
	return append(kvs,
		gguf.KV{Key: "gollama.seed", Value: gguf.ValueOf(uint32(t.o.tune.seed))},
		gguf.KV{Key: "gollama.base.file", Value: gguf.ValueOf(filepath.Base(builtin.Label(t.o.Model)))},
		gguf.KV{Key: "gollama.base.sha256", Value: gguf.ValueOf(t.baseHash)},
		gguf.KV{Key: "gollama.base.file_type", Value: gguf.ValueOf(uint32(fileType))},
	)
}

// writeWeights makes the parameters' file of a checkpoint. It is an adapter,
// also of a full training: export-lora makes a model of it.
func (t *tuning) writeWeights(path string) error { return lora.WriteGGUF(path, t.trained()) }

// save writes the results.
func (t *tuning) save(ctx context.Context) error {
	u := &t.o.tune
	if u.method == "full" {
		return t.saveModel(ctx, t.o.OutFile)
	}
	a := t.trained()
	if err := lora.WriteGGUF(t.o.OutFile, a); err != nil {
		return t.outputError("--output", t.o.OutFile, err)
	}
	if u.peft != "" {
		if err := lora.WritePEFT(u.peft, a); err != nil {
			return t.outputError("--peft", u.peft, err)
		}
	}
	if u.merged != "" {
		return t.saveModel(ctx, u.merged)
	}
	return nil
}

// outputError makes an error of the file system one of writing.
func (t *tuning) outputError(flag, name string, err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return &writeError{fmt.Errorf("%s: %s: %w", flag, name, pipeline.Cause(err))}
	}
	return fmt.Errorf("%s: %w", flag, err)
}

// saveModel writes the base with what was trained in it.
func (t *tuning) saveModel(ctx context.Context, path string) error {
	plan, err := t.plan()
	if err != nil {
		return err
	}
	w, err := gguf.Create(path, plan.Keys, plan.Tensors)
	if err != nil {
		return t.outputError("--output", path, err)
	}
	bar := t.l.progress(t.e, "writing", "")
	defer bar.done()
	total := float64(max(plan.Size(), 1))
	err = plan.Run(ctx, w, func(done uint64) { bar.set(float64(done)/total, "") })
	bar.done()
	switch {
	case errors.Is(err, lora.ErrWrite):
		return &writeError{fmt.Errorf("write: %w", err)}
	case errors.Is(err, lora.ErrOverflow):
		return &hintedError{err, "--resume with --out-type bf16 or f32 writes it without training again"}
	case err != nil:
		return err
	}
	t.tellLost(plan.Report())
	return nil
}

// plan says how the model is written.
func (t *tuning) plan() (*lora.Plan, error) {
	name := t.o.tune.outType
	if name == "auto" {
		name = "keep"
		if quantized(t.base, t.trained()) {
			name = "f16"
		}
	}
	out, err := lora.ParseOutType(name)
	if err != nil {
		return nil, usagef("--out-type: %s", err)
	}
	return lora.NewPlan(t.base, []lora.Scaled{{Adapter: t.trained(), Scale: 1}}, lora.Options{
		OutType: out, Threads: max(t.o.CPUParams.NThreads, 0), Keys: t.provenance(),
	})
}

// quantized says whether a tensor that the adapter changes is quantized.
func quantized(base *gguf.File, a *lora.Adapter) bool {
	for i := range a.Tensors {
		if n, ok := base.Tensor(a.Tensors[i].Base); ok && base.Tensors[n].Type.BlockSize() > 1 {
			return true
		}
	}
	return false
}

// tellLost warns of quantization that takes the training away.
func (t *tuning) tellLost(report []lora.TensorReport) {
	n, worst, name := 0, 1.0, ""
	for _, r := range report {
		if r.Survived < minSurvived {
			n++
		}
		if r.Survived < worst {
			worst, name = r.Survived, r.Name
		}
	}
	if n > 0 {
		t.l.warnf("quantization took away more than half of what %d of %d tensors learned, down to %.0f%% left in %s: --out-type f16 keeps it", n, len(report), 100*max(worst, 0), name)
	}
}
