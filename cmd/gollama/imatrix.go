package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gollama/internal/engine"
	"gollama/internal/gguf"
	"gollama/internal/imatrix"
)

var imatrixCommand = &command{
	name:     "imatrix",
	synopsis: "-m FILE (-f FILE | --records FILE) [flags]",
	short:    "Measure an importance matrix for quantizing a model.",
	long: `Reads a model and a text, in chunks of -c tokens (-f, -p), or records, lines of JSON
with text, prompt and completion, or messages (--records), each measured whole. Writes
the mean squares of the activations that each weight meets to -o, in llama-imatrix's
format, and the perplexity of the text to standard output. The file always appears
whole, between two batches; after a signal or a kill, --resume goes on with it and ends
with the same bytes. Ends with status 3 if --coverage-min was not reached.

Examples:
  gollama imatrix -m model.gguf -f train.txt -c 64 -o out.gguf
  gollama imatrix -m model.gguf --records pairs.jsonl -c 128 -o part.gguf --shard 0/2
  gollama imatrix -m model.gguf -f train.txt -c 64 -o out.gguf --resume`,
	defaults: func(o *options) { o.NCtx = imatrixWindow },
}

func init() { imatrixCommand.run = imatrixRun }

// measuring is one run of the subcommand.
type measuring struct {
	e *env
	l *logging
	o *options

	header    *gguf.File // of the model
	weights   []string
	step      int // tokens that are measured together
	model     *engine.Model
	context   *engine.Context
	collector *engine.Collector
	source    *imatrixSource
	run       *imatrix.Run[*engine.Context]
	settings  string // what decides about the result, as JSON
	tokens    int64  // measured by this run
	saved     uint64 // tokens that the file on disk has
	copied    uint64 // tokens that the last copy has
}

func (m *measuring) close() {
	var err error
	if m.source != nil {
		err = m.source.close()
	}
	err = errors.Join(err, m.context.Close(), m.collector.Close(), m.model.Close())
	if m.header != nil {
		err = errors.Join(err, m.header.Close())
	}
	if err != nil {
		m.l.warnf("%s", err)
	}
}

// imatrixRun is the whole of gollama imatrix once the settings are right.
func imatrixRun(ctx context.Context, e *env, o *options, _ []string) error {
	if err := o.finish("imatrix"); err != nil {
		return err
	}
	if err := checkMeasuring(o); err != nil {
		return err
	}
	l, err := setupLogging(e, "gollama imatrix", o)
	if err != nil {
		return err
	}
	defer l.close()
	if o.ShowStatistics || !o.imx.hasData(o) {
		return imatrixFilesOnly(ctx, e, l, o)
	}
	if err := preflight(o); err != nil {
		return err
	}
	warnMachine(l, o)
	m := &measuring{e: e, l: l, o: o}
	defer m.close()
	if err := m.open(ctx); err != nil {
		return canceledBy(ctx, err)
	}
	return m.measure(ctx)
}

// hasData reports whether there is anything to measure.
func (i *imatrixOptions) hasData(o *options) bool {
	return o.promptGiven || o.PromptFile != "" || i.records != ""
}

// checkMeasuring checks what needs no file to be read.
func checkMeasuring(o *options) error {
	x := &o.imx
	data := 0
	for _, given := range []bool{o.promptGiven, o.PromptFile != "", x.records != ""} {
		if given {
			data++
		}
	}
	switch {
	case data > 1:
		return usagef("-p, -f and --records each give what is measured: give one of them")
	case data == 0 && len(o.InFiles) == 0:
		return usagef("nothing to measure is given").withHint("-f FILE for a text, --records FILE for records")
	case o.ShowStatistics && (data > 0 || len(o.InFiles) != 1):
		return usagef("--show-statistics is for one --in-file and measures nothing").withHint("gollama imatrix stats FILE")
	case data > 0 && o.NCtx < 1:
		return usagef("-c %d: want the tokens of a chunk, 1 or more", o.NCtx)
	case o.OutFile == "-" && data > 0:
		return usagef("-o -: an importance matrix that is measured goes to a file").withHint("-o FILE.gguf")
	case x.resume && o.legacyOut():
		return usagef("--resume needs GGUF: the format before it does not say what was measured").withHint("-o FILE.gguf, and gollama imatrix convert at the end")
	case x.resume && len(o.InFiles) > 0:
		return usagef("--resume and --in-file: give one of them").withHint("gollama imatrix merge adds files up")
	case x.resume && data == 0:
		return usagef("--resume needs what is measured").withHint("-f FILE or --records FILE, as before")
	case x.records != "" && (o.IChunk > 0 || o.NChunks >= 0):
		return usagef("--chunk and --chunks are for a text").withHint("--max-tokens N, or --shard I/N, takes a part of the records")
	case x.records == "" && x.shuffle && o.IChunk > 0:
		return usagef("--shuffle-seed and --chunk: give one of them")
	}
	if err := checkImatrixOut(o, o.InFiles); err != nil {
		return err
	}
	for _, in := range []string{o.Model, o.PromptFile, x.records} {
		if in != "" && sameFile(in, o.OutFile) {
			return usagef("-o %s would be written over what is read", o.OutFile)
		}
	}
	return checkShard(x.shard)
}

// imatrixFilesOnly does what llama-imatrix does without a text: statistics of a file, or the sum of several.
func imatrixFilesOnly(ctx context.Context, e *env, l *logging, o *options) error {
	if !o.isSet("chunk-size") {
		o.imx.chunkSize = o.NCtx // as llama-imatrix reads files in the format before GGUF
	}
	if o.ShowStatistics {
		f, err := openImatrix(o, o.InFiles[0], false)
		if err != nil {
			return err
		}
		return showStats(e, o, f)
	}
	l.message("info", "no text is given: the files of --in-file are added up")
	f, err := mergeImatrix(ctx, e, l, o, o.InFiles)
	if err != nil {
		return canceledBy(ctx, err)
	}
	return writeImatrix(e, l, o, f)
}

// open reads headers and data, and loads the model.
func (m *measuring) open(ctx context.Context) error {
	o := m.o
	var err error
	if m.header, err = gguf.OpenModel(o.Model); err != nil {
		return err
	}
	m.weights = imatrix.Weights(m.header.Tensors, o.ProcessOutput)
	if len(m.weights) == 0 {
		return fmt.Errorf("%s: it has no weights in blocks (blk.*), which are what is measured", o.Model)
	}
	if m.source, err = m.openSource(); err != nil {
		return err
	}
	file, ppl, err := m.begin()
	if err != nil {
		return err
	}
	bar := m.l.progress(m.e, "loading", "")
	o.Params.LoadProgressCallback = func(share float32) bool {
		bar.set(float64(share), "")
		return ctx.Err() == nil
	}
	engine.SetReference(true, false) // the sums and the perplexity are llama-imatrix's, but for the rounding of quantized weights' products
	m.model, err = engine.LoadModel(ctx, &o.Params)
	bar.done()
	if err != nil {
		return err
	}
	if m.model.Info().HasEncoder {
		return fmt.Errorf("%s: models with an encoder are not measured", o.Model)
	}
	if err := m.newContext(); err != nil {
		return err
	}
	m.run = &imatrix.Run[*engine.Context]{Context: m.context, Collector: m.collector, Weights: m.weights, File: file, PPL: ppl, Skip: o.imx.nonfinite == "skip", Step: m.step}
	m.saved, m.copied = file.Tokens(), file.Tokens()
	if o.imx.resume {
		m.tokens = int64(file.Tokens())
	}
	return m.source.prepare(ctx, m)
}

// parallel is how many windows are evaluated side by side, as llama-imatrix does it.
func (m *measuring) parallel() int {
	return min(max(1, m.o.NBatch/m.o.NCtx), maxSequences)
}

// recordsBatch is how many tokens of records are computed at once unless -ub says so: there is room for the logits of all.
const recordsBatch = 128

// causal tells whether tokens of a window may be computed before those that follow.
func (m *measuring) causal() bool {
	arch, _ := m.header.Str("general.architecture")
	causal, ok := m.header.Bool(arch + ".attention.causal")
	return causal || !ok
}

// newContext makes the context with the collector in it.
func (m *measuring) newContext() error {
	o := m.o
	p := o.Params
	n := m.parallel()
	if o.imx.records != "" {
		n = min(max(1, o.NUBatch/16), 64) // short records go several in a batch
	}
	p.NParallel, p.NCtx, p.Warmup, p.KVUnified = n, n*((o.NCtx+255)&^255), false, false
	// A batch is what is computed at once: no more rows of logits exist.
	p.NUBatch = min(p.NUBatch, p.NBatch)
	m.step = p.NUBatch
	switch {
	case o.imx.records != "" && !o.isSet("ubatch-size"):
		p.NUBatch = min(p.NUBatch, recordsBatch)
		m.step = p.NUBatch
	case !o.ComputePPL && m.causal():
		p.NUBatch = imatrix.UnscoredBatch(m.step, o.NCtx, n)
	}
	p.NBatch, p.NOutputsMax = p.NUBatch, 0
	var err error
	if m.collector, err = engine.NewCollector(m.weights); err != nil {
		return err
	}
	if m.context, err = engine.NewContextTap(m.model, &p, m.collector); err != nil {
		return err
	}
	m.collector.Bind(m.context)
	if m.context.NCtxSeq() < o.NCtx {
		return fmt.Errorf("the context has room for %d tokens, not for -c %d", m.context.NCtxSeq(), o.NCtx)
	}
	if train := m.model.Info().NCtxTrain; o.NCtx > train && train > 0 {
		m.l.warnf("-c %d: the model was trained on %d tokens", o.NCtx, train)
	}
	for _, t := range []engine.CacheType{o.CacheTypeK, o.CacheTypeV} {
		if s := t.String(); s != "f16" && s != "f32" && s != "bf16" {
			m.l.warnf("the cache is of type %s, whose rounding is measured too", s)
			break
		}
	}
	if o.ComputePPL && !m.context.Causal() {
		m.l.warnf("a model without causal attention has no perplexity")
	}
	return nil
}

// measure does the work, and saves.
func (m *measuring) measure(ctx context.Context) error {
	bar := m.l.progress(m.e, "measuring", "")
	defer bar.done()
	err := m.groups(ctx, bar)
	bar.done()
	switch {
	case ctx.Err() != nil:
		return m.interrupted(ctx)
	case err != nil:
		return m.failed(err)
	}
	if len(m.run.File.Entries) == 0 {
		return &inputError{err: errors.New("nothing was measured")}
	}
	if err := m.save(m.o.OutFile); err != nil {
		return err
	}
	if err := m.report(); err != nil {
		return err
	}
	if n := m.source.failed; n > 0 {
		err = &recordsError{fmt.Sprintf("%d records could not be measured", n)}
	}
	return errors.Join(m.coverage(), err)
}

// groups measures one group of pieces after the other.
func (m *measuring) groups(ctx context.Context, bar *progress) error {
	for {
		pieces, err := m.source.next(ctx)
		if err != nil || pieces == nil {
			return err
		}
		if err := m.run.Group(ctx, pieces); err != nil {
			return err
		}
		for _, p := range pieces {
			m.tokens += int64(len(p.Tokens))
		}
		share, detail := m.source.progress()
		if m.run.PPL.N > 0 {
			detail += fmt.Sprintf(", perplexity %.4f", m.run.PPL.Value())
		}
		bar.set(share, detail)
		if err := m.checkpoint(); err != nil {
			return err
		}
		if m.o.imx.untilCoverage && m.check().Coverage() >= m.minCoverage() {
			m.l.message("info", "every weight's experts have met enough tokens")
			return nil
		}
		if limit := int64(m.o.imx.maxTokens); limit > 0 && m.tokens >= limit {
			return nil
		}
	}
}

// interrupted saves what is there and names the signal.
func (m *measuring) interrupted(ctx context.Context) error {
	if n := m.run.File.Tokens(); n > 0 {
		if n > m.saved {
			if err := m.save(m.o.OutFile); err != nil {
				return err
			}
		}
		how := "--resume goes on"
		if m.o.legacyOut() {
			how = "it cannot be resumed in this format"
		}
		m.l.warnf("%s has %d tokens; %s", m.o.OutFile, n, how)
	}
	return context.Cause(ctx)
}

// failed saves what was good before an error of the model.
func (m *measuring) failed(err error) error {
	var write *writeError
	if errors.As(err, &write) || m.run.File.Tokens() <= m.saved {
		return m.hinted(err)
	}
	if serr := m.save(m.o.OutFile); serr != nil {
		return errors.Join(m.hinted(err), serr)
	}
	m.l.warnf("%s has what was measured before: %d tokens", m.o.OutFile, m.run.File.Tokens())
	return m.hinted(err)
}

func (m *measuring) hinted(err error) error {
	var bad *engine.NonFiniteError
	if errors.As(err, &bad) {
		return &hintedError{fmt.Errorf("%s: %w", m.source.where(), err), "--on-nonfinite skip leaves such chunks out"}
	}
	return err
}

// report writes the perplexity, and says what was skipped.
func (m *measuring) report() error {
	if n := len(m.run.Skipped); n > 0 {
		m.l.warnf("%d chunks are left out, as the model makes no numbers of them: the first is %s", n, m.source.name(m.run.Skipped[0]))
	}
	p := &m.run.PPL
	if m.o.imx.json {
		return writeObject(m.e, m.result())
	}
	if p.N == 0 {
		return nil
	}
	return m.e.out.text(fmt.Sprintf("Final estimate: PPL = %.4f +/- %.5f\n", p.Value(), p.Error()))
}

// imatrixResult is what --json writes.
type imatrixResult struct {
	Type       string   `json:"type"` // "imatrix"
	Output     string   `json:"output"`
	Tokens     uint64   `json:"tokens"` // that each weight met
	Chunks     int      `json:"chunks"`
	ChunkSize  int      `json:"chunk_size"`
	Entries    int      `json:"entries"`
	Skipped    int      `json:"skipped"`
	Perplexity *float64 `json:"perplexity"`
	Error      *float64 `json:"error"`
	Scored     int      `json:"scored"`
	Coverage   float64  `json:"expert_coverage"`
	Missing    []string `json:"missing"` // weights that a quantizer would want and that met no token
}

func (m *measuring) result() imatrixResult {
	f, r := m.run.File, m.check()
	res := imatrixResult{Type: "imatrix", Output: m.o.OutFile, Tokens: f.Tokens(), Chunks: f.Chunks(), ChunkSize: f.ChunkSize, Entries: len(f.Entries),
		Skipped: len(m.run.Skipped), Scored: m.run.PPL.N, Coverage: r.Coverage(), Missing: []string{}}
	for _, p := range r.Problems {
		if p.Kind == imatrix.KindMissing {
			res.Missing = append(res.Missing, p.Tensor)
		}
	}
	if m.run.PPL.N > 0 {
		value, dev := m.run.PPL.Value(), m.run.PPL.Error()
		res.Perplexity, res.Error = &value, &dev
	}
	return res
}

func (m *measuring) check() *imatrix.Report {
	return m.run.File.Check(m.header.Tensors, imatrix.CheckOptions{ExpertMin: uint64(m.o.imx.expertMin)})
}

func (m *measuring) minCoverage() float64 {
	if m.o.imx.untilCoverage && !m.o.isSet("coverage-min") {
		return 0.99
	}
	return exact(m.o.imx.coverageMin)
}

// coverage says what a quantizer would miss, and fails if it is too much.
func (m *measuring) coverage() error {
	r := m.check()
	var missing, thin []string
	for _, p := range r.Problems {
		switch p.Kind {
		case imatrix.KindMissing:
			missing = append(missing, p.Tensor)
		case imatrix.KindDead, imatrix.KindFew:
			thin = append(thin, p.Tensor)
		}
	}
	thin = slices.Compact(thin)
	if len(missing) > 0 {
		m.l.warnf("%d of %d weights met no token: %s", len(missing), r.Weights, someOf(missing))
	}
	if len(thin) > 0 {
		m.l.warnf("%d of %d experts met %d tokens or more; those of these weights did not: %s", r.Reached, r.Experts, m.o.imx.expertMin, strings.Join(thin, ", "))
	}
	if want := m.minCoverage(); r.Coverage() < want {
		return &recordsError{fmt.Sprintf("%.2f%% of the experts met %d tokens or more, want %.2f%% (--coverage-min)", 100*r.Coverage(), m.o.imx.expertMin, 100*want)}
	}
	return nil
}

// someOf joins the first few names.
func someOf(names []string) string {
	const most = 8
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// outputExists reports whether there is a file to go on with.
func outputExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// copyName is the name of the copy after a number of chunks, as llama-imatrix has it.
func copyName(path string, chunks int) string {
	return filepath.Clean(path) + ".at_" + fmt.Sprint(chunks)
}
