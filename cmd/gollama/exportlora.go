package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"gollama/internal/builtin"
	"gollama/internal/engine/ggml"
	"gollama/internal/gguf"
	"gollama/internal/imatrix"
	"gollama/internal/lora"
	"gollama/internal/pipeline"
)

var exportLoRACommand = &command{
	name:     "export-lora",
	synopsis: "-m FILE --lora FILE... [-o FILE] [flags]",
	short:    "Merge LoRA adapters into a GGUF model.",
	long: `Reads a model (one file or the first of a split) and adapters: GGUF files, or
folders with PEFT's adapter_config.json and adapter_model.safetensors. Writes the
merged model to -o, which appears when it is whole; until then an old file stays.
Every tensor of an adapter is merged, norms and whole tensors too, or named in an
error. Standard output has the plan of --dry-run and the result of --verify.

Examples:
  gollama export-lora -m model.gguf --lora adapter.gguf -o merged.gguf
  gollama export-lora -m model.gguf --lora-scaled adapter.gguf:0.5 -o merged.gguf --out-type q8_0 --verify 2
  gollama export-lora -m model.gguf --lora adapter.gguf --dry-run

Differences from llama-export-lora: tensors keep their types unless --out-type is
given, and what does not fit together is an error.`,
}

func init() { exportLoRACommand.run = exportLoRA }

const (
	inExportLoRA = " export-lora "
	groupExport  = "Merging"
	// defaultMerged is llama-export-lora's default for -o, whatever the types are.
	defaultMerged = "ggml-lora-merged-f16.gguf"
)

// exportOptions are the settings of export-lora that no other subcommand has.
type exportOptions struct {
	outType lora.OutType
	split   gguf.SplitLimits
	verify  int
	dryRun  bool
	report  string
	imatrix string
	float64 bool
	force   bool
}

// sharedWithExportLoRA are the flags of run that mean the same here.
var sharedWithExportLoRA = []string{"model", "lora", "lora-scaled", "threads", "quiet", "verbosity", "log-file", "log-json",
	"log-colors", "log-prefix", "log-timestamps", "config", "print-config"}

func exportLoRAFlags() []flagDef {
	type o = *options
	rows := inGroup(groupExport,
		flagDef{name: "output", alias: []string{"-o", "--output-file"}, arg: "FILE", def: defaultMerged, help: "the merged model; - is standard output; with --split-max-size or --split-max-tensors the files are FILE-00001-of-N.gguf and so on",
			binding: fileVar(func(o o) *string { return &o.OutFile })},
		flagDef{name: "out-type", arg: "TYPE", def: "keep", help: "types of the result: keep (each tensor its own; what is merged is quantized again), or as llama-quantize makes them: " + strings.Join(lora.OutTypeNames()[1:], ", "),
			binding: parsedVar(kindString, func(o o) *lora.OutType { return &o.export.outType }, lora.ParseOutType, func(t lora.OutType) any { return t.Name })},
		flagDef{name: "imatrix", arg: "FILE", def: "none", help: "importance matrix of llama-imatrix, GGUF or the older format, for tensors that are quantized", binding: fileVar(func(o o) *string { return &o.export.imatrix })},
		flagDef{name: "split-max-size", arg: "N(M|G)", def: "no split", help: "split the result into files of at most N megabytes or gigabytes of tensors",
			binding: parsedVar(kindString, func(o o) *uint64 { return &o.export.split.Bytes }, parseSplitSize, func(n uint64) any { return splitSizeText(n) })},
		flagDef{name: "split-max-tensors", arg: "N", def: "no split", help: "split the result into files of at most N tensors", binding: intVar(func(o o) *int { return &o.export.split.Tensors }, 0, maxInt32)},
		flagDef{name: "verify", arg: "N", help: "run N prompts through the base with the adapters and through the result, print how far their logits differ, and fail if it is too far for the types", binding: intVar(func(o o) *int { return &o.export.verify }, 0, 1000)},
		flagDef{name: "dry-run", help: "check everything, print what would be merged, and write nothing", binding: boolVar(func(o o) *bool { return &o.export.dryRun })},
		flagDef{name: "report", arg: "FILE", def: "none", help: "write FILE, JSON: rank, scale and size of each update, and the share of it that survived quantization", binding: fileVar(func(o o) *string { return &o.export.report })},
		flagDef{name: "float64", help: "add updates up in 64 bits (slower)", binding: boolVar(func(o o) *bool { return &o.export.float64 })},
		flagDef{name: "force", help: "merge an aLoRA, which then acts always", binding: boolVar(func(o o) *bool { return &o.export.force })},
	)
	for i := range rows {
		rows[i].in = inExportLoRA
	}
	return rows
}

// alsoIn adds a subcommand to the rows of flags that it shares.
func alsoIn(rows []flagDef, cmd string, names []string) {
	for i := range rows {
		for _, n := range names {
			if rows[i].name == n && rows[i].reject == "" {
				rows[i].in += strings.TrimLeft(cmd, " ")
			}
		}
	}
}

// parseSplitSize reads N(M|G) as llama-gguf-split does: powers of 1000.
func parseSplitSize(s string) (uint64, error) {
	units := map[byte]uint64{'M': 1e6, 'G': 1e9}
	if s == "" || units[s[len(s)-1]] == 0 {
		return 0, fmt.Errorf("%q: want a number with M or G, such as 2G", s)
	}
	n, err := parseInt(s[:len(s)-1], 1, 1e6)
	return uint64(n) * units[s[len(s)-1]], err
}

func splitSizeText(n uint64) string {
	switch {
	case n == 0:
		return ""
	case n%1e9 == 0:
		return strconv.FormatUint(n/1e9, 10) + "G"
	}
	return strconv.FormatUint(n/1e6, 10) + "M"
}

// exportLoRA is the whole of gollama export-lora once the settings are right.
func exportLoRA(ctx context.Context, e *env, o *options, _ []string) error {
	if err := o.finish("export-lora"); err != nil {
		return err
	}
	if err := checkExport(o); err != nil {
		return err
	}
	l, err := setupLogging(e, "gollama export-lora", o)
	if err != nil {
		return err
	}
	defer l.close()
	x := &export{e: e, l: l, o: o}
	defer x.close()
	if err := x.open(); err != nil {
		return err
	}
	if o.export.dryRun {
		return x.printPlan()
	}
	if err := x.write(ctx); err != nil {
		return canceledBy(ctx, err)
	}
	return canceledBy(ctx, x.check(ctx))
}

// checkExport checks what needs no file to be read.
func checkExport(o *options) error {
	switch x := &o.export; {
	case len(o.LoRAAdapters) == 0:
		return usagef("no adapter given").withHint("--lora FILE, or --lora-scaled FILE:SCALE")
	case o.OutFile == "-" && (x.verify > 0 || x.split != gguf.SplitLimits{}):
		return usagef("-o - goes with neither --verify nor a split: both need files")
	}
	if o.OutFile == "" && !o.export.dryRun {
		o.OutFile = defaultMerged
	}
	seen := map[string]bool{}
	for _, a := range o.LoRAAdapters {
		if seen[a.Path] {
			return usagef("the adapter %s is given twice", a.Path).withHint("add the scales up: --lora-scaled %s:2", a.Path)
		}
		seen[a.Path] = true
	}
	return nil
}

// hintedError is a failure with a hint.
type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string { return e.err.Error() }
func (e *hintedError) Unwrap() error { return e.err }

// export is one run of the subcommand.
type export struct {
	e        *env
	l        *logging
	o        *options
	base     *gguf.File
	adapters []lora.Scaled
	plan     *lora.Plan
	outputs  []string // files that were written
}

func (x *export) close() {
	for _, a := range x.adapters {
		_ = a.Close() // only read from
	}
	_ = x.base.Close()
}

// open reads the headers of all files and checks that they fit together.
func (x *export) open() error {
	var err error
	if x.base, err = gguf.OpenModel(x.o.Model); err != nil {
		return err
	}
	for _, info := range x.o.LoRAAdapters {
		a, err := lora.Open(info.Path, lora.BaseOf(x.base))
		if err != nil {
			return err
		}
		x.adapters = append(x.adapters, lora.Scaled{Adapter: a, Scale: info.Scale})
	}
	if err := x.checkOverwrite(); err != nil {
		return err
	}
	opt := lora.Options{
		OutType: x.o.export.outType, Threads: max(x.o.CPUParams.NThreads, 0), Float64: x.o.export.float64,
		Force: x.o.export.force, Measure: x.o.export.report != "", Keys: x.provenance(),
	}
	if x.o.export.imatrix != "" {
		f, err := imatrix.Open(x.o.export.imatrix, 0)
		if err != nil {
			return &inputError{err: fmt.Errorf("--imatrix: %w", err)}
		}
		opt.Importance = f.Means()
	}
	if x.plan, err = lora.NewPlan(x.base, x.adapters, opt); err != nil {
		return x.hinted(err)
	}
	for _, w := range x.plan.Warnings {
		x.l.warnf("%s", w)
	}
	return nil
}

// hinted adds what the user can do about an error.
func (x *export) hinted(err error) error {
	switch {
	case errors.Is(err, lora.ErrOutType):
		return &hintedError{err, "--imatrix FILE, or another --out-type, such as f16"}
	case errors.Is(err, lora.ErrOverflow) && x.o.export.outType.Name == lora.Keep.Name:
		return &hintedError{err, "--out-type bf16 or f32 holds larger values"}
	case errors.Is(err, lora.ErrOverflow):
		return &hintedError{err, "--out-type keep, bf16 or f32 holds larger values"}
	case errors.Is(err, lora.ErrAdapter) && strings.Contains(err.Error(), "aLoRA"):
		return &hintedError{err, "--force merges it all the same"}
	}
	return err
}

// checkOverwrite refuses outputs that are files which are read, also by another name.
func (x *export) checkOverwrite() error {
	read := append([]string{}, x.base.Paths...)
	for _, a := range x.adapters {
		read = append(read, a.Path, filepath.Join(a.Path, "adapter_model.safetensors"), filepath.Join(a.Path, "adapter_config.json"))
	}
	if x.o.export.imatrix != "" {
		read = append(read, x.o.export.imatrix)
	}
	for _, write := range []struct{ flag, path string }{{"-o", x.o.OutFile}, {"--report", x.o.export.report}, {"--log-file", x.o.logFile}} {
		for _, path := range read {
			if sameFile(write.path, path) {
				return usagef("%s %s would replace a file that is read, %s", write.flag, write.path, path)
			}
		}
	}
	for _, path := range x.base.Paths {
		if x.o.export.split != (gguf.SplitLimits{}) && strings.HasPrefix(filepath.Clean(path), filepath.Clean(x.splitPrefix())+"-0") {
			return usagef("-o %s would write files named like the model's, %s", x.o.OutFile, path)
		}
	}
	if r := x.o.export.report; r != "" && (r == x.o.OutFile || sameFile(r, x.o.OutFile)) {
		return usagef("-o and --report are the same file, %s", r)
	}
	return nil
}

func (x *export) splitPrefix() string { return strings.TrimSuffix(x.o.OutFile, ".gguf") }

// provenance returns the keys that say how the file was made.
func (x *export) provenance() gguf.KVs {
	var adapters []string
	for _, a := range x.adapters {
		adapters = append(adapters, textScaled(filepath.Base(a.Path), a.Scale))
	}
	str := func(key, value string) gguf.KV { return gguf.KV{Key: key, Value: gguf.ValueOf(value)} }
	return gguf.KVs{
		str("gollama.version", version),
		str("gollama.engine", "llama.cpp v"+ggml.BuildInfo().Pin),
		str("gollama.command_line", strings.Join(append([]string{"gollama"}, x.e.args[1:]...), " ")),
		{Key: "gollama.lora.adapters", Value: gguf.ValueOf(adapters)},
	}
}

// write merges into the output.
func (x *export) write(ctx context.Context) error {
	w, err := x.create()
	if err != nil {
		return &writeError{fmt.Errorf("--output: %s: %w", x.o.OutFile, pipeline.Cause(err))}
	}
	bar := x.l.progress(x.e, "merging", "")
	defer bar.done()
	total := float64(max(x.plan.Size(), 1))
	err = x.plan.Run(ctx, w, func(done uint64) {
		bar.set(float64(done)/total, fmt.Sprintf(" of %.0f MB", total/1e6))
	})
	bar.done()
	switch {
	case errors.Is(err, errBrokenPipe), err == nil:
		return err
	case errors.Is(err, lora.ErrWrite):
		return &writeError{fmt.Errorf("write: %w", err)}
	}
	return x.hinted(err)
}

func (x *export) create() (*gguf.Writer, error) {
	p := x.plan
	switch {
	case x.o.OutFile == "-":
		return gguf.NewWriter(x.e.out, p.Keys, p.Tensors)
	case x.o.export.split != gguf.SplitLimits{}:
		x.outputs = []string{gguf.SplitPath(x.splitPrefix(), 0, x.o.export.split.Count(p.Tensors))}
		return gguf.CreateSplit(x.splitPrefix(), p.Keys, p.Tensors, x.o.export.split)
	}
	x.outputs = []string{x.o.OutFile}
	return gguf.Create(x.o.OutFile, p.Keys, p.Tensors)
}

// minSurvived is the share of an update below which a warning is due: rounding then takes more of it than it leaves.
const minSurvived = 0.5

// check says what became of the updates, and compares the result with the adapters at run time.
func (x *export) check(ctx context.Context) error {
	report := x.plan.Report()
	var lost []string
	worst := 1.0
	for _, t := range report {
		if t.Survived < minSurvived {
			lost = append(lost, t.Name)
			worst = min(worst, t.Survived)
		}
	}
	if len(lost) > 0 {
		x.l.warnf("quantization took away more than half of the update of %d of %d tensors, down to %.0f%% left in %s: --out-type f16 keeps it", len(lost), len(report), 100*max(worst, 0), lost[0])
	}
	out := exportReport{Type: "export-lora", Model: builtin.Label(x.o.Model), Output: x.o.OutFile, OutType: x.o.export.outType.Name, Tensors: report}
	var verr error
	if n := x.o.export.verify; n > 0 {
		out.Verify, out.Bound, verr = x.verify(ctx, n)
		if verr != nil && !errors.Is(verr, lora.ErrDiffers) {
			return verr
		}
	}
	if x.o.export.report == "" {
		return verr
	}
	return errors.Join(verr, writeReport(x.o.export.report, out))
}

// exportReport is what --report writes.
type exportReport struct {
	Type    string              `json:"type"`
	Model   string              `json:"model"`
	Output  string              `json:"output"`
	OutType string              `json:"out_type"`
	Bound   string              `json:"bound,omitempty"`
	Verify  []lora.Comparison   `json:"verify,omitempty"`
	Tensors []lora.TensorReport `json:"tensors"`
}

func writeReport(path string, r exportReport) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return writeWhole("--report", path, append(text, '\n'))
}

func (x *export) verify(ctx context.Context, n int) ([]lora.Comparison, string, error) {
	list, bound, err := x.plan.Verify(ctx, x.outputs[0], filepath.Dir(x.outputs[0]), x.adapters, n)
	for i, c := range list {
		if perr := x.e.out.text(fmt.Sprintf("prompt %d: %d tokens, relative RMS %.3g, largest difference %.3g, same top token %.0f%%\n", i+1, c.Tokens, c.Relative, c.MaxAbs, 100*c.Top)); perr != nil {
			return list, bound.String(), perr
		}
	}
	return list, bound.String(), err
}

// printPlan writes what would be merged.
func (x *export) printPlan() error {
	var b strings.Builder
	for _, t := range x.plan.Report() {
		fmt.Fprintf(&b, "%s: %s to %s, rank", t.Name, t.From, t.To)
		for i := range t.Ranks {
			if t.Ranks[i] == 0 {
				fmt.Fprintf(&b, " whole scale %.6g", t.Scales[i])
				continue
			}
			fmt.Fprintf(&b, " %d scale %.6g", t.Ranks[i], t.Scales[i])
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%d of %d tensors change, %.1f MB of tensors would be written\n", x.plan.Merged(), len(x.plan.Tensors), float64(x.plan.Size())/1e6)
	return x.e.out.text(b.String())
}

// exportDefaults are the settings when no flag is given.
func exportDefaults() exportOptions {
	return exportOptions{outType: lora.Keep}
}
