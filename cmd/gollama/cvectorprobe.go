package main

import (
	"context"
	"errors"
	"fmt"

	"gollama/internal/completion"
	"gollama/internal/engine"
)

// probe shows what the vector does to a text that the model makes, at several strengths.
func (x *vectoring) probe(ctx context.Context) (err error) {
	v := &x.o.vector
	if v.probe == "" || x.o.OutFile == "-" {
		return nil
	}
	p := x.params
	p.ControlVectors, p.NParallel, p.NOutputsMax = nil, 1, 0
	tokens, err := x.model.Vocab().Tokenize(v.probe, true, true)
	if err != nil {
		return err
	}
	if !x.o.isSet("ctx-size") {
		p.NCtx = len(tokens) + v.probeTokens
	}
	p.Sampling.Temp, p.Sampling.UserSamplingConfig = 0, engine.ConfigTemp
	c, err := engine.NewContext(x.model, &p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	first, last := 1, x.model.Info().NLayer-1
	if a := x.report.Recommended; a != nil {
		first, last = a.First, a.Last
	}
	for _, s := range v.strengths {
		dirs, err := x.vector.Flat(x.model.Info().NLayer-1, exact(s))
		if err != nil {
			return err
		}
		if err := c.SetDirections(dirs, first, last); err != nil {
			return err
		}
		text, err := x.goOn(ctx, c, &p)
		if err != nil {
			return err
		}
		if err := x.e.out.text(fmt.Sprintf("strength %g, layers %d to %d: %q\n", s, first, last, text)); err != nil {
			return err
		}
	}
	return nil
}

// goOn returns what the likeliest tokens make of the probe's text.
func (x *vectoring) goOn(ctx context.Context, c *engine.Context, p *engine.Params) (text string, err error) {
	s, err := engine.NewSampler(x.model, &p.Sampling)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	eng := completion.Engine[*engine.Context]{Vocab: x.model.Vocab(), Context: c, Sampler: s, DecoderStart: engine.TokenNull}
	res, err := completion.Generate(ctx, eng, completion.Options{Prompt: x.o.vector.probe, NPredict: x.o.vector.probeTokens, ParseSpecial: true}, nil)
	if err != nil {
		return "", err
	}
	if res.FinishReason == completion.FinishCancelled {
		return "", context.Cause(ctx)
	}
	return res.Text, nil
}
