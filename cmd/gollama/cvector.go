package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"gollama/internal/builtin"
	"gollama/internal/cvector"
	"gollama/internal/engine"
	"gollama/internal/engine/ggml"
	"gollama/internal/gguf"
	"gollama/internal/pipeline"
)

var cvectorCommand = &command{
	name:     "cvector-generate",
	synopsis: "-m FILE [--positive-file FILE --negative-file FILE | --pairs FILE] [-o FILE] [flags]",
	short:    "Make a control vector of pairs of texts.",
	long: `Reads a model and pairs of texts: two files with a text a line, or JSON lines; without
either, built-in ones of good and bad mood, will and hope. Writes a direction for
each layer to -o, for run --control-vector. Standard output has a table: how well
each direction tells apart pairs that it was not made of, and which layers and
strength to use.

Examples:
  gollama cvector-generate -m model.gguf -o mood.gguf
  gollama cvector-generate -m model.gguf --positive-file happy.txt --negative-file sad.txt -o mood.gguf --report mood.json --plot mood.svg
  gollama cvector-generate -m model.gguf --pairs contrasts.jsonl --method pca -o axis.gguf --probe "Once upon a time" --strengths -1,0,1 --probe-tokens 8

Differences from llama-cvector-generator: --method is mean by itself, the state after
the last token counts (--token), nothing is filled up, the direction of a layer is of
the output that it is added to (--layer-convention), its length is that of the
contrast (--scale), and its sign leads to the positive texts. For samples and layers
as there: --compat-padding --scale unit --layer-convention llamacpp-legacy.`,
}

func init() { cvectorCommand.run = cvectorGenerate }

// vectoring is one run of the subcommand.
type vectoring struct {
	e      *env
	l      *logging
	o      *options
	params engine.Params
	model  *engine.Model

	pairs   []cvector.Pair
	prompts []cvector.Prompt
	same    int
	layers  []*cvector.Layer
	vector  *cvector.Vector
	report  *cvector.Report
}

// cvectorGenerate is the whole of gollama cvector-generate once the settings are right.
func cvectorGenerate(ctx context.Context, e *env, o *options, _ []string) (err error) {
	if err := o.finish("cvector-generate"); err != nil {
		return err
	}
	if err := checkVector(o); err != nil {
		return err
	}
	l, err := setupLogging(e, "gollama cvector-generate", o)
	if err != nil {
		return err
	}
	defer l.close()
	x := &vectoring{e: e, l: l, o: o, params: o.Params}
	defer func() { err = errors.Join(err, x.model.Close()) }()
	for _, step := range []func(context.Context) error{x.read, x.load, x.generate, x.selfTest, x.write, x.tell, x.probe} {
		if err := step(ctx); err != nil {
			return canceledBy(ctx, vectorError(err))
		}
	}
	return nil
}

// vectorError gives an error its exit status and a hint.
func vectorError(err error) error {
	switch {
	case errors.Is(err, cvector.ErrPairs):
		return &inputError{err: err}
	case errors.Is(err, cvector.ErrNoContrast):
		return &inputError{err: err, hint: "the two sides must be different texts"}
	case errors.Is(err, cvector.ErrSelfTest):
		return &hintedError{err, "llama.cpp does not apply control vectors to this model as to others"}
	}
	return err
}

// checkVector checks what needs no file to be read.
func checkVector(o *options) error {
	v := &o.vector
	if o.OutFile == "" {
		o.OutFile = "control_vector.gguf"
	}
	switch {
	case v.pairs != "" && (o.CVectorPositiveFile != "" || o.CVectorNegativeFile != ""):
		return usagef("--pairs and --positive-file or --negative-file: give one kind of pairs")
	case (o.CVectorPositiveFile == "") != (o.CVectorNegativeFile == ""):
		return usagef("--positive-file and --negative-file belong together: give both")
	case v.compat && o.isSet("token") && v.token != cvector.TokenAll:
		return usagef("--compat-padding takes all tokens, and --token is %s", v.token)
	case o.isSet("strengths") && v.probe == "":
		return usagef("--strengths is for --probe").withHint(`--probe "Once upon a time"`)
	}
	if v.compat {
		v.token = cvector.TokenAll
	}
	read := []string{o.Model, v.pairs, v.completions, o.CVectorPositiveFile, o.CVectorNegativeFile, o.config}
	for _, a := range o.LoRAAdapters {
		read = append(read, a.Path)
	}
	write := []struct{ flag, path string }{{"-o", o.OutFile}, {"--report", v.report}, {"--plot", v.plot}, {"--log-file", o.logFile}}
	for i, w := range write {
		for _, path := range read {
			if w.path != "" && sameFile(w.path, path) {
				return usagef("%s %s would replace a file that is read", w.flag, w.path)
			}
		}
		for _, other := range write[:i] {
			if w.path != "" && filepath.Clean(w.path) == filepath.Clean(other.path) {
				return usagef("%s and %s are the same file, %s", other.flag, w.flag, w.path)
			}
		}
	}
	if err := o.Params.Validate(); err != nil {
		return usagef("%s", oneLine(err))
	}
	return checkDevices(o)
}

// opened calls f with a file that Open opens; what is wrong with it is bad input.
func opened(path string, f func(io.Reader) error) error {
	in, err := pipeline.Open(path)
	if err != nil {
		return &inputError{err: err}
	}
	defer func() { _ = in.Close() }() // it was read
	if err := f(in); err != nil {
		return &inputError{err: err}
	}
	return nil
}

// read reads the pairs.
func (x *vectoring) read(context.Context) error {
	v := &x.o.vector
	var err error
	switch {
	case v.pairs != "":
		err = opened(v.pairs, func(r io.Reader) (err error) {
			x.pairs, err = cvector.JSONPairs(r, inputName(v.pairs))
			return err
		})
	case x.o.CVectorPositiveFile != "":
		pos, neg := x.o.CVectorPositiveFile, x.o.CVectorNegativeFile
		err = opened(pos, func(p io.Reader) error {
			return opened(neg, func(n io.Reader) (err error) {
				x.pairs, err = cvector.LinePairs(p, n, pos, neg, unescape)
				return err
			})
		})
	default:
		x.pairs, err = cvector.DefaultPairs(unescape)
	}
	if err != nil || v.completions == "" {
		return err
	}
	return opened(v.completions, func(r io.Reader) error {
		texts, err := cvector.ReadLines(r, v.completions, unescape)
		if err == nil && len(texts) == 0 {
			err = fmt.Errorf("%s has no completions", v.completions)
		}
		x.pairs = cvector.Cross(x.pairs, texts)
		return err
	})
}

// load loads the model and makes tokens of the pairs.
func (x *vectoring) load(ctx context.Context) (err error) {
	warnMachine(x.l, x.o)
	bar := x.l.progress(x.e, "loading", "")
	x.params.LoadProgressCallback = func(share float32) bool {
		bar.set(float64(share), "")
		return ctx.Err() == nil
	}
	x.params.Warmup = false
	engine.SetReference(x.o.vector.compat, x.o.vector.compat) // the states are llama-cvector-generator's, then
	x.model, err = engine.LoadModel(ctx, &x.params)
	bar.done()
	if err != nil {
		return err
	}
	if n := x.model.Info().NLayer; n < 2 {
		return fmt.Errorf("%s: the model has %d layers, and a direction takes effect from the second on", x.o.Model, n)
	}
	if x.prompts, err = x.tokenize(); err != nil {
		return err
	}
	longest := 0
	for _, p := range x.prompts {
		longest = max(longest, len(p.Pos), len(p.Neg), len(p.Base))
	}
	if n := x.model.Info().NCtxTrain; n > 0 && longest > n {
		x.l.warnf("the longest text has %d tokens, the model was trained on %d", longest, n)
	}
	return nil
}

// tokenize makes tokens of the pairs and says which have no contrast.
func (x *vectoring) tokenize() (prompts []cvector.Prompt, err error) {
	var tmpl cvector.Template
	if slices.ContainsFunc(x.pairs, cvector.Pair.HasMessages) {
		t, err := x.template()
		if err != nil {
			return nil, err
		}
		defer func() { _ = t.Close() }() // nothing was written
		tmpl = t
	}
	prompts, same, err := cvector.Tokenize(x.model.Vocab(), tmpl, x.pairs, x.o.vector.compat)
	if err != nil {
		return nil, err
	}
	if x.same = len(same); x.same > 0 {
		x.l.warnf("%d of %d pairs are left out: both sides are the same tokens, the first in %s", x.same, len(x.pairs), same[0].Where)
	}
	return prompts, nil
}

// template opens the chat template of the flags, or the model's.
func (x *vectoring) template() (*engine.ChatTemplate, error) {
	f, err := gguf.OpenModel(x.o.Model)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	t, none, err := x.o.template(f)
	if err != nil {
		return nil, err
	}
	if none {
		return nil, usagef("--chat-template none: messages need a template").withHint("write the pairs as texts")
	}
	return engine.NewChatTemplate(x.model, t)
}

// blocks returns the blocks, from 0, whose outputs are read.
func (x *vectoring) blocks() (first, last int, err error) {
	n := x.model.Info().NLayer - 1 // directions that the runtime takes
	first, last = 1, n
	if v := &x.o.vector; v.last > 0 {
		first, last = v.first, v.last
	}
	if last > n {
		return 0, 0, usagef("--layers %d-%d: the model has layers 1 to %d", first, last, n)
	}
	if x.o.vector.convention == cvector.BaseLegacy {
		return first - 1, last - 1, nil
	}
	return first, last, nil
}

// generate evaluates the texts and makes the directions.
func (x *vectoring) generate(ctx context.Context) error {
	v := &x.o.vector
	first, last, err := x.blocks()
	if err != nil {
		return err
	}
	co := cvector.CollectOptions{First: first, Last: last, Token: v.token, Compat: v.compat, KeepRows: v.validate || v.method != cvector.Mean || v.compat}
	if v.compat {
		blank, err := x.model.Vocab().Tokenize(" ", false, false)
		if err != nil || len(blank) == 0 {
			return errors.Join(errors.New("--compat-padding: a blank has no tokens in this vocabulary"), err)
		}
		co.Pad = blank[len(blank)-1]
	}
	p := x.params
	if !x.o.isSet("ctx-size") {
		p.NCtx = 0
	}
	bar := x.l.progress(x.e, "evaluating", "")
	co.Progress = func(share float64) { bar.set(share, "") }
	states, err := cvector.Collect(ctx, x.model, p, x.prompts, co)
	bar.done()
	if err != nil {
		return err
	}
	defer states.Close()
	threads := x.o.CPUParams.NThreads
	if threads < 1 {
		threads = ggml.DefaultThreads()
	}
	x.layers, err = cvector.Build(states, cvector.BuildOptions{Method: v.method, Scale: v.scale, Legacy: v.convention == cvector.BaseLegacy, Validate: v.validate, Threads: threads})
	if err != nil {
		return err
	}
	info := x.model.Info()
	x.vector = cvector.VectorOf(x.layers, info.Arch, info.NLayer-1)
	x.vector.Keys = x.keys()
	x.report = &cvector.Report{Type: "cvector", Model: builtin.Label(x.o.Model), Arch: info.Arch, Pairs: len(x.prompts), Same: x.same, Method: v.method.String(),
		Scale: v.scale.String(), Token: v.token.String(), LayerBase: v.convention, Warnings: []string{}}
	if v.validate && len(x.prompts) > 1 {
		x.report.Folds = min(cvector.Folds, len(x.prompts))
	}
	x.report.Describe(x.layers)
	for _, w := range x.report.Warnings {
		x.l.warnf("%s", w)
	}
	return nil
}

// keys say what the vector is and how it was made.
func (x *vectoring) keys() gguf.KVs {
	str := func(key, value string) gguf.KV { return gguf.KV{Key: key, Value: gguf.ValueOf(value)} }
	v := &x.o.vector
	return gguf.KVs{
		str(cvector.KeyLayerBase, v.convention),
		str("gollama.cvector.method", v.method.String()),
		str("gollama.cvector.scale", v.scale.String()),
		str("gollama.cvector.token", v.token.String()),
		{Key: "gollama.cvector.pairs", Value: gguf.ValueOf(uint32(len(x.prompts)))},
		str("gollama.version", version),
		str("gollama.engine", "llama.cpp v"+ggml.BuildInfo().Pin),
		str("gollama.command_line", x.commandLine()),
	}
}

// commandLine returns the settings that decide the vector.
func (x *vectoring) commandLine() string {
	line := []string{"gollama cvector-generate"}
	for i := range flagTable {
		f := &flagTable[i]
		if !strings.Contains(f.in, inCVector) || !x.o.isSet(f.name) || f.get == nil || slices.Contains(withoutEffectOnVector, f.name) {
			continue
		}
		if v := f.get(x.o); v != nil {
			line = append(line, fmt.Sprintf("--%s=%v", f.name, v))
		}
	}
	return strings.Join(line, " ")
}

// selfTest applies some of the directions and looks whether they take effect.
func (x *vectoring) selfTest(ctx context.Context) error {
	all := x.vector.Layers()
	test := []int{all[0], all[len(all)-1]}
	if a := x.report.Recommended; a != nil {
		test = append(test, a.Best)
	}
	slices.Sort(test)
	test = slices.Compact(test)
	if err := cvector.SelfTest(ctx, x.model, x.params, x.vector, test, x.prompts[0].Pos); err != nil {
		return err
	}
	x.report.SelfTest = test
	return nil
}

// write writes the vector, the report and the chart.
func (x *vectoring) write(context.Context) error {
	if err := writeVector(x.e, x.o.OutFile, x.vector); err != nil {
		return err
	}
	v := &x.o.vector
	if v.report != "" {
		text, err := json.MarshalIndent(x.report, "", "  ")
		if err != nil {
			return err
		}
		if err := writeWhole("--report", v.report, append(text, '\n')); err != nil {
			return err
		}
	}
	if v.plot == "" {
		return nil
	}
	c := x.report.Chart(x.layers)
	data := c.SVG()
	if strings.HasSuffix(v.plot, ".png") {
		var err error
		if data, err = c.PNG(); err != nil {
			return err
		}
	}
	return writeWhole("--plot", v.plot, data)
}

// tell writes the table, unless standard output has the vector.
func (x *vectoring) tell(context.Context) error {
	if x.o.OutFile == "-" {
		return nil
	}
	if !x.o.json {
		return x.e.out.text(x.report.String())
	}
	text, err := json.Marshal(x.report)
	if err != nil {
		return err
	}
	return x.e.out.text(string(text) + "\n")
}
