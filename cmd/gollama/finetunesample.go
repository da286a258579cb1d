package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gollama/internal/completion"
	"gollama/internal/engine"
	"gollama/internal/lora"
)

// sample writes texts that the model makes in its present state. They come from
// the engine that runs the result later, through a file in the run folder.
func (t *tuning) sample(ctx context.Context, step int64) error {
	dir, _ := t.o.runDir()
	path := filepath.Join(dir, ".sample.gguf")
	defer func() { _ = os.Remove(path) }() // nothing is lost if it stays
	text, err := t.sampleTexts(ctx, path)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		t.l.warnf("no sample after update %d: %s", step, oneLine(err))
		return nil
	}
	return t.run.WriteSample(step, text)
}

func (t *tuning) sampleTexts(ctx context.Context, path string) (string, error) {
	p := t.o.Params
	p.NCtx, p.NBatch, p.Warmup = t.nCtx, engine.DefaultParams().NBatch, false
	p.Sampling.Seed = uint32(t.o.tune.seed)
	if t.o.tune.method == "lora" {
		if err := lora.WriteGGUF(path, t.trained()); err != nil {
			return "", err
		}
		p.LoRAAdapters = []engine.LoRAInfo{{Path: path, Scale: 1}}
	} else {
		if err := t.saveModel(ctx, path); err != nil {
			return "", err
		}
		p.Model = path
	}
	model, err := engine.LoadModel(ctx, &p)
	if err != nil {
		return "", err
	}
	texts, err := t.generate(ctx, model, &p)
	return texts, errors.Join(err, model.Close())
}

// generate completes the prompts of --sample-prompt.
func (t *tuning) generate(ctx context.Context, model *engine.Model, p *engine.Params) (text string, err error) {
	var b strings.Builder
	prompts := t.o.tune.samplePrompts
	if len(prompts) == 0 {
		prompts = []string{""}
	}
	for _, prompt := range prompts {
		if err := t.generateOne(ctx, &b, model, p, prompt); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

func (t *tuning) generateOne(ctx context.Context, b *strings.Builder, model *engine.Model, p *engine.Params, prompt string) (err error) {
	c, err := engine.NewContext(model, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	s, err := engine.NewSampler(model, &p.Sampling)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	eng := completion.Engine[*engine.Context]{Vocab: model.Vocab(), Context: c, Sampler: s, DecoderStart: engine.TokenNull}
	res, err := completion.Generate(ctx, eng, completion.Options{Prompt: prompt, NPredict: t.o.tune.sampleTokens, ParseSpecial: true}, nil)
	if err != nil {
		return err
	}
	if res.FinishReason == completion.FinishCancelled {
		return context.Cause(ctx)
	}
	fmt.Fprintf(b, "--- prompt: %q\n%s\n", prompt, res.Text)
	return nil
}
