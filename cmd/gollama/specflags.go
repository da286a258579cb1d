package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"gollama/internal/completion"
	"gollama/internal/engine"
)

const groupSpec = "Speculation"

const (
	noDraftCPU  = "the draft model computes on the model's threads; -td and -tbd say how many"
	noDraftTens = "the draft model lies on one kind of memory: --spec-draft-device and --spec-draft-ngl say which"
	noLookup    = "no file of n-grams is read: --spec-type ngram-cache learns from the text at hand"
)

// specFlags are those of llama.cpp's speculation (common/arg.cpp), by their names there.
func specFlags() []flagDef {
	type o = *options
	draft := func(o o) *engine.DraftParams { return &o.Speculative.Draft }
	rows := []flagDef{
		{name: "spec-type", env: "LLAMA_ARG_SPEC_TYPE", arg: "TYPE,...", def: "none, or draft-simple with a draft model", in: inRun,
			help:    "guess the next tokens and have the model check several at once; the text stays what it is: ngram-simple, ngram-map-k, ngram-map-k4v, ngram-mod, ngram-cache (what came after the same tokens before), draft-simple (a draft model) or none",
			binding: binding{kind: kindString, set: setSpecTypes, get: joinSpecTypes}},
		{name: "spec-draft-model", alias: []string{"-md", "--model-draft"}, env: "LLAMA_ARG_SPEC_DRAFT_MODEL", arg: "FILE", def: "none", in: inRun,
			help: "a smaller model with the same vocabulary, to guess tokens with", binding: fileVar(func(o o) *string { return &draft(o).Model })},
		{name: "spec-draft-n-max", alias: []string{"--draft-max", "--draft", "--draft-n"}, env: "LLAMA_ARG_SPEC_DRAFT_N_MAX", arg: "N", in: inRun,
			help: "tokens that the draft model guesses at once, at most", binding: intVar(func(o o) *int { return &draft(o).NMax }, 1, engine.MaxDraft)},
		{name: "spec-draft-n-min", alias: []string{"--draft-min", "--draft-n-min"}, env: "LLAMA_ARG_SPEC_DRAFT_N_MIN", arg: "N", in: inRun,
			help: "drop its guesses of fewer tokens", binding: intVar(func(o o) *int { return &draft(o).NMin }, 0, engine.MaxDraft)},
		{name: "spec-draft-p-min", alias: []string{"--draft-p-min"}, env: "LLAMA_ARG_SPEC_DRAFT_P_MIN", arg: "P", in: inRun,
			help: "end a guess before a token that it holds less likely", binding: floatVar(func(o o) *float32 { return &draft(o).PMin }, 0, 1)},
		{name: "spec-draft-threads", alias: []string{"-td", "--threads-draft"}, arg: "N", def: "as --threads", in: inRun,
			help: "threads of the draft model, at most those of the model", binding: intVar(func(o o) *int { return &draft(o).CPUParams.NThreads }, 1, maxCPUs).when(func(o o) bool { return draft(o).CPUParams.NThreads > 0 })},
		{name: "spec-draft-threads-batch", alias: []string{"-tbd", "--threads-batch-draft"}, arg: "N", def: "as --spec-draft-threads", in: inRun,
			help: "the same for the prompt", binding: intVar(func(o o) *int { return &draft(o).CPUParamsBatch.NThreads }, 1, maxCPUs).when(func(o o) bool { return draft(o).CPUParamsBatch.NThreads > 0 })},
		{name: "spec-draft-type-k", alias: []string{"-ctkd", "--cache-type-k-draft"}, env: "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K", arg: "TYPE", in: inRun,
			help: "type of the keys in the draft model's cache", binding: enumVar(func(o o) *engine.CacheType { return &draft(o).CacheTypeK }, engine.ParseCacheType)},
		{name: "spec-draft-type-v", alias: []string{"-ctvd", "--cache-type-v-draft"}, env: "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V", arg: "TYPE", in: inRun,
			help: "type of the values in it", binding: enumVar(func(o o) *engine.CacheType { return &draft(o).CacheTypeV }, engine.ParseCacheType)},
		{name: "spec-draft-ngl", alias: []string{"-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft"}, env: "LLAMA_ARG_N_GPU_LAYERS_DRAFT", arg: "N", def: "auto", in: inRun,
			help: "layers of the draft model in device memory: a number, auto or all", binding: binding{kind: kindMixed, set: func(o o, s string) error {
				v, err := parseLayers(s)
				if err == nil {
					draft(o).NGPULayers = v
				}
				return err
			}, get: func(o o) any { return textLayers(draft(o).NGPULayers) }}},
		{name: "spec-draft-device", alias: []string{"-devd", "--device-draft"}, arg: "NAME,...", def: "as --device", in: inRun,
			help: "devices of the draft model; none uses the CPU only", binding: commaVar(func(o o) *[]string { return &draft(o).Devices }, parseList)},
	}
	rows = append(rows, ngramFlags()...)
	rows = append(rows,
		rejected("spec-draft-p-split", "P", "LLAMA_ARG_SPEC_DRAFT_P_SPLIT", "llama.cpp reads it and does nothing with it: leave it out", "--draft-p-split"),
		rejected("spec-draft-hf", "REPO", "", noDownload, "-hfd", "-hfrd", "--hf-repo-draft"),
		rejected("spec-draft-backend-sampling", "", "LLAMA_ARG_SPEC_DRAFT_BACKEND_SAMPLING", "the draft samples on the CPU: leave it out", "--no-spec-draft-backend-sampling"),
		rejected("spec-draft-cpu-mask", "MASK", "", noDraftCPU, "-Cd", "--cpu-mask-draft"),
		rejected("spec-draft-override-tensor", "PATTERN=BUFFER", "", noDraftTens, "-otd", "--override-tensor-draft"),
		rejected("spec-draft-cpu-moe", "", "LLAMA_ARG_SPEC_DRAFT_CPU_MOE", noDraftTens, "-cmoed", "--cpu-moe-draft"),
		rejected("spec-draft-n-cpu-moe", "N", "LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE", noDraftTens, "--spec-draft-ncmoe", "-ncmoed", "--n-cpu-moe-draft"),
		rejected("lookup-cache-static", "FILE", "", noLookup, "-lcs"),
		rejected("lookup-cache-dynamic", "FILE", "", noLookup, "-lcd"),
		rejected("ctx-size-draft", "N", "", "the draft model's context is as long as the model's", "-cd"),
	)
	for i := range rows {
		if rows[i].reject == "" {
			rows[i].group = groupSpec
		}
	}
	return rows
}

// ngramFlags say how n-grams are looked up.
func ngramFlags() []flagDef {
	type o = *options
	n := func(name, help string, p func(o o) *int, lo int) flagDef {
		return flagDef{name: "spec-ngram-" + name, arg: "N", help: help, in: inRun, binding: intVar(p, lo, engine.MaxDraft)}
	}
	var rows []flagDef
	for _, t := range []struct {
		name string
		of   func(o o) *engine.NgramParams
	}{
		{"simple", func(o o) *engine.NgramParams { return &o.Speculative.NgramSimple }},
		{"map-k", func(o o) *engine.NgramParams { return &o.Speculative.NgramMapK }},
		{"map-k4v", func(o o) *engine.NgramParams { return &o.Speculative.NgramMapK4V }},
	} {
		rows = append(rows,
			n(t.name+"-size-n", "ngram-"+t.name+": tokens that must have come before", func(o o) *int { return &t.of(o).SizeN }, 1),
			n(t.name+"-size-m", "ngram-"+t.name+": tokens to guess, at most", func(o o) *int { return &t.of(o).SizeM }, 1),
			n(t.name+"-min-hits", "ngram-"+t.name+": how often they must have come", func(o o) *int { return &t.of(o).MinHits }, 1))
	}
	m := func(o o) *engine.NgramModParams { return &o.Speculative.NgramMod }
	return append(rows,
		n("mod-n-match", "ngram-mod: tokens that must have come before", func(o o) *int { return &m(o).NMatch }, 1),
		n("mod-n-min", "ngram-mod: drop guesses of fewer tokens", func(o o) *int { return &m(o).NMin }, 0),
		n("mod-n-max", "ngram-mod: tokens to guess, at most", func(o o) *int { return &m(o).NMax }, 0))
}

func setSpecTypes(o *options, s string) error {
	list, err := engine.ParseSpecTypes(s)
	if err == nil {
		o.Speculative.Types = list
	}
	return err
}

func joinSpecTypes(o *options) any {
	if len(o.Speculative.Types) == 0 {
		return nil
	}
	names := make([]string, len(o.Speculative.Types))
	for i, t := range o.Speculative.Types {
		names[i] = t.String()
	}
	return strings.Join(names, ",")
}

// finishSpec checks what belongs to speculation.
func (o *options) finishSpec() error {
	s := &o.Speculative
	if s.Draft.Model != "" && !o.isSet("spec-type") {
		s.Types = []engine.SpecType{engine.SpecDraftSimple}
	}
	typed := func(name string) bool { return o.given[name] > levelEnv }
	if !s.NeedsModel() {
		for _, f := range specFlags() {
			if f.reject == "" && strings.HasPrefix(f.name, "spec-draft") && typed(f.name) {
				return usagef("--%s goes with a draft model", f.name).withHint("-md FILE, and draft-simple in --spec-type if that is given")
			}
		}
	}
	if !s.Enabled() {
		return nil
	}
	switch {
	case s.Draft.NMin > s.Draft.NMax:
		return usagef("--spec-draft-n-min %d is above --spec-draft-n-max %d", s.Draft.NMin, s.Draft.NMax)
	case s.NgramMod.NMin > s.NgramMod.NMax:
		return usagef("--spec-ngram-mod-n-min %d is above --spec-ngram-mod-n-max %d", s.NgramMod.NMin, s.NgramMod.NMax)
	case o.score:
		return o.noSpec("--score generates nothing to guess")
	case o.deterministic:
		return o.noSpec("--deterministic pins the shape of batches, which guesses change")
	case o.sessionFile != "" && s.NeedsModel():
		return o.noSpec("--session does not hold what a draft model has read")
	}
	return nil
}

// noSpec leaves out what only the environment or a config file asked for, and refuses it from the command line.
func (o *options) noSpec(why string) error {
	if o.given["spec-type"] <= levelEnv && o.given["spec-draft-model"] <= levelEnv {
		o.Speculative.Types = nil
		o.warnings = append(o.warnings, "tokens are not guessed: "+why)
		return nil
	}
	return usagef("--spec-type and --spec-draft-model: %s", why).withHint("leave them out; --spec-type ngram-simple goes with --session")
}

// speculate makes what guesses tokens. Where the model's memory cannot take
// tokens back the run goes on without, with a warning.
func (s *session) speculate(ctx context.Context, l *logging, p *engine.Params) (err error) {
	if !p.Speculative.Enabled() {
		return nil
	}
	if p.Speculative.NeedsModel() {
		q := p.ForDraft()
		if s.draft, err = engine.LoadModel(ctx, &q); err != nil {
			return fmt.Errorf("draft model: %w", err)
		}
	}
	s.spec, err = engine.NewSpeculator(s.context, s.draft, p)
	if errors.Is(err, engine.ErrNoRollback) {
		l.warnf("tokens are not guessed: %s", oneLine(err))
		return nil
	}
	return err
}

// guesser is spec as completion wants it: nil for none.
func (s *session) guesser() completion.Speculator {
	if s.spec == nil {
		return nil
	}
	return s.spec
}

// guessed tells how guessing went, for the line at the end.
func guessed(n, came int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d of %d guessed tokens came (%.0f %%)", came, n, 100*float64(came)/float64(n))
}
