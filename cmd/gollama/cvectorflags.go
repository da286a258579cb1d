package main

import (
	"fmt"
	"strings"

	"gollama/internal/cvector"
)

const (
	inCVector   = " cvector-generate "
	groupPairs  = "Pairs"
	groupReport = "Report"
)

// cvectorOptions are the settings of cvector-generate that no other subcommand has.
type cvectorOptions struct {
	pairs, completions string
	method             cvector.Method
	scale              cvector.Scale
	token              cvector.TokenMode
	first, last        int // layers; last 0: all
	convention         string
	compat             bool
	validate           bool
	report, plot       string
	probe              string
	strengths          []float32
	probeTokens        int
}

func cvectorDefaults() cvectorOptions {
	return cvectorOptions{convention: cvector.BaseRuntime, validate: true, strengths: []float32{-2, -1, 0, 1, 2}, probeTokens: 32}
}

// sharedWithCVector are the flags of run that mean the same here.
var sharedWithCVector = []string{"model", "lora", "lora-scaled", "ctx-size", "batch-size", "ubatch-size", "flash-attn", "cache-type-k", "cache-type-v",
	"kv-offload", "load-mode", "check-tensors", "override-kv", "repack", "no-host", "threads", "threads-batch", "cpu-mask", "cpu-range", "cpu-strict", "prio",
	"poll", "cpu-mask-batch", "cpu-range-batch", "cpu-strict-batch", "prio-batch", "poll-batch", "numa", "n-gpu-layers", "device", "split-mode", "tensor-split", "main-gpu", "fit", "fit-target", "fit-ctx", "op-offload", "override-tensor",
	"cpu-moe", "n-cpu-moe", "n-cpu-ffn", "rpc", "rope-scaling", "rope-scale", "rope-freq-base",
	"rope-freq-scale", "yarn-orig-ctx", "yarn-ext-factor", "yarn-attn-factor", "yarn-beta-slow", "yarn-beta-fast", "swa-full", "lazy-mode", "offline", "chat-template", "chat-template-file", "quiet", "verbosity", "log-file", "log-json", "log-colors", "log-prefix",
	"log-timestamps", "config", "print-config"}

// withoutEffectOnVector are the flags that leave the vector as it is: they are not in its command line, so that equal
// vectors are equal files.
var withoutEffectOnVector = []string{"output", "report", "plot", "probe", "probe-tokens", "strengths", "json", "threads", "threads-batch", "cpu-mask", "cpu-range",
	"cpu-strict", "prio", "poll", "cpu-mask-batch", "cpu-range-batch", "cpu-strict-batch", "prio-batch", "poll-batch", "lazy-mode", "offline", "quiet", "verbosity", "log-file", "log-json", "log-colors", "log-prefix", "log-timestamps", "config", "validate", "load-mode",
	"pca-batch", "pca-iter"}

func cvectorFlags() []flagDef {
	type o = *options
	v := func(p func(*cvectorOptions) *string) func(o) *string {
		return func(o o) *string { return p(&o.vector) }
	}
	rows := inGroup(groupPairs,
		flagDef{name: "positive-file", arg: "FILE", def: "a built-in list", help: `texts that show what the direction leads to, one a line; \n, \t, \xHH and the like are replaced`, binding: fileVar(func(o o) *string { return &o.CVectorPositiveFile })},
		flagDef{name: "negative-file", arg: "FILE", def: "a built-in list", help: "texts that show what it leads away from, the same number of them", binding: fileVar(func(o o) *string { return &o.CVectorNegativeFile })},
		flagDef{name: "pairs", arg: "FILE", def: "none", help: "pairs as JSON lines instead: positive, negative and maybe baseline, each a text or a list of messages, and maybe completions, a list of texts of which each makes a pair; - is standard input", binding: fileVar(v(func(c *cvectorOptions) *string { return &c.pairs }))},
		flagDef{name: "completions", arg: "FILE", def: "none", help: "texts, one a line: every pair is taken with each of them after both sides", binding: fileVar(v(func(c *cvectorOptions) *string { return &c.completions }))},
	)
	rows = append(rows, inGroup(groupVector,
		flagDef{name: "output", alias: []string{"-o", "--output-file"}, arg: "FILE", def: "control_vector.gguf", help: "the control vector; it appears when it is whole; - is standard output", binding: fileVar(func(o o) *string { return &o.OutFile })},
		flagDef{name: "method", arg: "METHOD", help: "mean (the mean difference), pca (its largest axis), pca-center (repeng's, the same axis) or cross-cov (where the sides are opposite, less what differs from text to text)",
			binding: parsedVar(kindString, func(o o) *cvector.Method { return &o.vector.method }, cvector.ParseMethod, func(m cvector.Method) any { return m.String() })},
		flagDef{name: "scale", arg: "SCALE", help: "length of a direction: proj (of the mean difference along it: strength 1 goes from the negative mean to the positive one), mean (of the mean difference) or unit (1, as llama.cpp has it)",
			binding: parsedVar(kindString, func(o o) *cvector.Scale { return &o.vector.scale }, cvector.ParseScale, func(s cvector.Scale) any { return s.String() })},
		flagDef{name: "token", arg: "WHICH", help: "whose states count: last (each text's last token), mean (of all its tokens), span:N (mean of the last N) or all (each token by itself, up to the shorter side's end)",
			binding: parsedVar(kindString, func(o o) *cvector.TokenMode { return &o.vector.token }, cvector.ParseTokenMode, func(t cvector.TokenMode) any { return t.String() })},
		flagDef{name: "layers", arg: "A-B", def: "all", help: "layers that get a direction, from 1, both ends included", binding: vectorLayersVar()},
		flagDef{name: "layer-convention", arg: "NAME", help: "runtime: direction.k is of the output that it is added to; llamacpp-legacy: of the one below, as llama-cvector-generator has it", binding: wordVar(v(func(c *cvectorOptions) *string { return &c.convention }), cvector.BaseRuntime, cvector.BaseLegacy)},
		flagDef{name: "compat-padding", help: "take the samples that llama-cvector-generator takes: all tokens, the shorter side filled up with blanks, computed with llama.cpp's kernels on the CPU", binding: boolVar(func(o o) *bool { return &o.vector.compat })},
		flagDef{name: "pca-batch", arg: "N", help: "llama-cvector-generator's; has no effect", binding: intVar(func(o o) *int { return &o.NPCABatch }, 0, maxInt32)},
		flagDef{name: "pca-iter", arg: "N", help: "llama-cvector-generator's; has no effect: the axis is exact to a residual of 1e-10", binding: intVar(func(o o) *int { return &o.NPCAIterations }, 0, maxInt32)},
	)...)
	rows = append(rows, inGroup(groupReport,
		flagDef{name: "validate", fixed: map[string]string{"--no-validate": "false"}, help: "test each direction on pairs that were held out", binding: boolVar(func(o o) *bool { return &o.vector.validate })},
		flagDef{name: "report", arg: "FILE", def: "none", help: "write what was found out to FILE, JSON", binding: fileVar(v(func(c *cvectorOptions) *string { return &c.report }))},
		flagDef{name: "plot", arg: "FILE", def: "none", help: "draw it to FILE, .svg or .png", binding: vectorPlotVar()},
		flagDef{name: "probe", arg: "TEXT", def: "none", help: "show how the model goes on with TEXT at each of --strengths, in the recommended layers", binding: stringVar(v(func(c *cvectorOptions) *string { return &c.probe }))},
		flagDef{name: "strengths", arg: "N,N,...", help: "strengths for --probe", binding: strengthsVar()},
		flagDef{name: "probe-tokens", arg: "N", help: "tokens to generate for --probe", binding: intVar(func(o o) *int { return &o.vector.probeTokens }, 1, 1<<20)},
	)...)
	for i := range rows {
		rows[i].in = inCVector
	}
	return rows
}

func vectorLayersVar() binding {
	return spanVar(func(o *options) (*int, *int) { return &o.vector.first, &o.vector.last }, func(s string) (first, last int, err error) {
		a, b, ok := strings.Cut(s, "-")
		if !ok {
			b = a
		}
		if first, err = parseInt(a, 1, 1e5); err == nil {
			last, err = parseInt(b, first, 1e5)
		}
		if err != nil {
			return 0, 0, fmt.Errorf("%w; want A-B or all", err)
		}
		return first, last, nil
	})
}

func vectorPlotVar() binding {
	b := fileVar(func(o *options) *string { return &o.vector.plot })
	set := b.set
	b.set = func(o *options, s string) error {
		if !strings.HasSuffix(s, ".svg") && !strings.HasSuffix(s, ".png") {
			return fmt.Errorf("%q: want a name that ends in .svg or .png", s)
		}
		return set(o, s)
	}
	return b
}

func strengthsVar() binding {
	return binding{kind: kindString, set: func(o *options, s string) error {
		var list []float32
		for _, item := range strings.Split(s, ",") {
			v, err := parseFloat(strings.TrimSpace(item), -maxFloat, maxFloat)
			if err != nil {
				return err
			}
			list = append(list, v)
		}
		o.vector.strengths = list
		return nil
	}, get: func(o *options) any {
		var list []string
		for _, v := range o.vector.strengths {
			list = append(list, fmt.Sprint(v))
		}
		return strings.Join(list, ",")
	}}
}
