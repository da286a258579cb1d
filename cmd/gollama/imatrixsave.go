package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gollama/internal/engine/ggml"
	"gollama/internal/gguf"
	"gollama/internal/imatrix"
	"gollama/internal/pipeline"
)

// Keys of a run in its file.
const (
	keyImatrixSettings = "gollama.imatrix.settings"
	keyImatrixPPL      = "gollama.imatrix.ppl" // scored tokens, sum and sum of squares of their negative log-probabilities
)

// decisiveSettings are the settings that decide about a result, by name. Threads are not among them, nor is where files
// lie.
func (m *measuring) decisiveSettings(identity string) (map[string]any, error) {
	o := m.o
	s := map[string]any{
		"engine": ggml.BuildInfo().Pin, "model": identity, "ctx-size": o.NCtx, "batch-size": o.NBatch, "ubatch-size": o.NUBatch,
		"data": m.source.hash, "process-output": o.ProcessOutput, "parse-special": o.ParseSpecial, "chat-template": o.imx.template + o.imx.templateFile,
		"shard": m.source.shard.String(), "chunk": o.IChunk, "shuffle": fmt.Sprint(o.imx.shuffle, o.imx.seed), "ppl": o.ComputePPL,
		"cache": fmt.Sprint(o.CacheTypeK, o.CacheTypeV), "flash-attn": o.FlashAttnType.String(), "on-nonfinite": o.imx.nonfinite,
		"rope":        fmt.Sprint(o.RopeScalingType, o.RopeFreqBase, o.RopeFreqScale, o.YarnExtFactor, o.YarnAttnFactor, o.YarnBetaFast, o.YarnBetaSlow, o.YarnOrigCtx),
		"override-kv": fmt.Sprint(o.KVOverrides),
	}
	var adapters []string
	for _, a := range o.LoRAAdapters {
		sum, err := sampleSum(a.Path)
		if err != nil {
			return nil, err
		}
		adapters = append(adapters, fmt.Sprint(sum, a.Scale))
	}
	for _, v := range o.ControlVectors {
		sum, err := sampleSum(v.Path)
		if err != nil {
			return nil, err
		}
		adapters = append(adapters, fmt.Sprint(sum, v.Strength, o.ControlVectorLayerStart, o.ControlVectorLayerEnd))
	}
	s["adapters"] = strings.Join(adapters, " ")
	return s, nil
}

// begin returns the file that is added to: a new one, that of --resume, or the sum of those of --in-file.
func (m *measuring) begin() (*imatrix.File, imatrix.Perplexity, error) {
	o := m.o
	identity := modelIdentity(m.header)
	settings, err := m.decisiveSettings(identity)
	if err != nil {
		return nil, imatrix.Perplexity{}, err
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return nil, imatrix.Perplexity{}, err
	}
	m.settings = string(text)
	fresh := &imatrix.File{ChunkSize: o.NCtx, Model: identity, Ranges: imatrix.Ranges{}, Datasets: []string{m.source.dataset}}
	if o.imx.resume && outputExists(o.OutFile) {
		return m.resume(settings)
	}
	if len(o.InFiles) == 0 {
		return fresh, imatrix.Perplexity{}, nil
	}
	if !o.isSet("chunk-size") {
		o.imx.chunkSize = o.NCtx
	}
	merger := imatrix.Merger{Force: o.imx.force}
	for _, path := range o.InFiles {
		f, err := openImatrix(o, path, true)
		if err == nil {
			err = merger.Add(path, f)
		}
		if err != nil {
			return nil, imatrix.Perplexity{}, mergeProblem(err)
		}
	}
	f, err := merger.Result(nil)
	if err != nil {
		return nil, imatrix.Perplexity{}, &inputError{err: err}
	}
	for _, w := range merger.Warnings {
		m.l.warnf("%s", w)
	}
	f.ChunkSize, f.Model = o.NCtx, identity
	f.Datasets = append(f.Datasets, fresh.Datasets...)
	return f, imatrix.Perplexity{}, nil
}

// resume reads the file that is gone on with.
func (m *measuring) resume(settings map[string]any) (*imatrix.File, imatrix.Perplexity, error) {
	var ppl imatrix.Perplexity
	f, err := imatrix.Open(m.o.OutFile, 0)
	if err != nil {
		return nil, ppl, &inputError{err: fmt.Errorf("--resume: %w", err)}
	}
	text, ok := f.Keys.Str(keyImatrixSettings)
	if !ok || f.Ranges == nil {
		return nil, ppl, &inputError{fmt.Errorf("--resume: %s does not say how it was made", m.o.OutFile), "gollama imatrix merge adds files of other programs"}
	}
	var before map[string]any
	if err := pipeline.Decode([]byte(text), &before); err != nil {
		return nil, ppl, &inputError{err: fmt.Errorf("--resume: %s: key %s: %w", m.o.OutFile, keyImatrixSettings, err)}
	}
	var now map[string]any // through JSON, so that numbers compare
	if err := pipeline.Decode([]byte(m.settings), &now); err != nil {
		return nil, ppl, err
	}
	var differ []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if before[name] != now[name] {
			differ = append(differ, name)
		}
	}
	if len(differ) > 0 && !m.o.imx.force {
		return nil, ppl, usagef("--resume: %s was made with another %s", m.o.OutFile, strings.Join(differ, ", ")).
			withHint("give what it was made with, or another -o and gollama imatrix merge")
	}
	if torn := f.Torn(); torn != "" {
		return nil, ppl, &inputError{err: fmt.Errorf("--resume: %s: %s", m.o.OutFile, torn)}
	}
	if v, ok := f.Keys.Get(keyImatrixPPL); ok {
		if x, ok := gguf.As[[]float64](v); ok && len(x) == 3 {
			ppl = imatrix.Perplexity{N: int(x[0]), Sum: x[1], SumSq: x[2]}
		}
	}
	return f, ppl, nil
}

// keys says how the file was made, and what a run that goes on needs.
func (m *measuring) keys() gguf.KVs {
	p := m.run.PPL
	// Not the command line as it is: a resumed run ends with the bytes of one that was not stopped.
	kvs := imatrixKeys(m.e).Without("gollama.command_line")
	return append(kvs, gguf.KV{Key: keyImatrixSettings, Value: gguf.ValueOf(m.settings)},
		gguf.KV{Key: keyImatrixPPL, Value: gguf.ValueOf([]float64{float64(p.N), p.Sum, p.SumSq})},
		gguf.KV{Key: "gollama.command_line", Value: gguf.ValueOf(strings.Join(m.commandLine(), " "))})
}

// commandLine is how the program was called, without --resume.
func (m *measuring) commandLine() []string {
	return append([]string{"gollama"}, slices.DeleteFunc(slices.Clone(m.e.args[1:]), func(a string) bool { return a == "--resume" || a == "-resume" })...)
}

// save writes the file, whole.
func (m *measuring) save(path string) error {
	f := m.run.File
	f.Keys = m.keys()
	var err error
	if m.o.legacyOut() {
		_, _, err = f.WriteLegacy(path)
	} else {
		err = f.Write(path, m.o.imx.plain)
	}
	if err != nil {
		return &writeError{fmt.Errorf("--output: %w", err)}
	}
	m.saved = max(m.saved, f.Tokens())
	return nil
}

// checkpoint saves after each --output-frequency chunks, and keeps a copy after each --save-frequency.
func (m *measuring) checkpoint() error {
	f, size := m.run.File, uint64(m.o.NCtx)
	now := f.Tokens() / size
	crossed := func(before uint64, every int) bool {
		return every > 0 && now/uint64(every) > before/size/uint64(every)
	}
	if crossed(m.copied, m.o.NSaveFreq) {
		m.copied = f.Tokens()
		if err := m.save(copyName(m.o.OutFile, int(now))); err != nil {
			return err
		}
	}
	if crossed(m.saved, m.o.NOutFreq) {
		return m.save(m.o.OutFile)
	}
	return nil
}

// checkOutFolder finds out before hours of work whether the output can be made.
func checkOutFolder(path string) error {
	out, err := gguf.Create(path, nil, nil)
	if err != nil {
		return &writeError{fmt.Errorf("--output: %w", err)}
	}
	out.Abort()
	return nil
}
