package main

import (
	"slices"
	"strings"

	"gollama/internal/imatrix"
)

const (
	inImatrix        = " imatrix "
	inImatrixMerge   = " imatrix-merge "
	inImatrixConvert = " imatrix-convert "
	inImatrixStats   = " imatrix-stats "
	inImatrixDiff    = " imatrix-diff "
	inImatrixCheck   = " imatrix-check "
	groupImatrix     = "Importance matrices"
)

// imatrixOptions are the settings of imatrix and its subcommands that no other has.
type imatrixOptions struct {
	format    string // gguf, dat or "" (by the name)
	chunkSize int    // of a file in the format before GGUF
	plain     bool
	force     bool
	report    string // table, json or csv
	image     string
	metric    string
	expertMin int

	records       string
	shard         string // I/N or N
	resume        bool
	shuffle       bool
	seed          int
	maxTokens     int // 0 is no limit
	coverageMin   float32
	untilCoverage bool
	nonfinite     string // stop or skip
	template      string
	templateFile  string
	json          bool
}

func imatrixDefaults() imatrixOptions {
	return imatrixOptions{report: "table", metric: "mean", expertMin: 32, nonfinite: "stop"}
}

// Defaults of llama-imatrix that differ from those of llama-completion.
const (
	imatrixWindow = 512
	imatrixOutput = "imatrix.gguf"
)

// finishImatrix checks what single values cannot show.
func (o *options) finishImatrix() error {
	if o.OutFile == "" {
		o.OutFile = imatrixOutput
	}
	p := o.Params
	p.NParallel = 1
	if err := p.Validate(); err != nil {
		return usagef("%s", oneLine(err))
	}
	return nil
}

// imatrixGroups are the sections of run's flags that imatrix takes too, and notInImatrix those that it does not of them.
var (
	imatrixGroups = []string{groupModel, groupContext, groupRope, groupAdapters, groupCPU, groupDevices, groupLogs, groupSettings}
	notInImatrix  = []string{"model-info", "json", "warmup", "perf", "simple-io", "verbose-prompt", "kv-unified"}
)

// shareWithImatrix adds imatrix to rows of run.
func shareWithImatrix(rows []flagDef) {
	for i := range rows {
		f := &rows[i]
		if !strings.Contains(f.in, inRun) || f.reject != "" || slices.Contains(notInImatrix, f.name) {
			continue
		}
		if slices.Contains(imatrixGroups, f.group) || slices.Contains([]string{"prompt", "file", "escape"}, f.name) {
			f.in += inImatrix[1:]
		}
	}
}

// imatrixFlags are the flags of gollama imatrix that run does not have, or not so.
func imatrixFlags() []flagDef {
	type o = *options
	yes := func(p func(*imatrixOptions) *bool) binding { return boolVar(func(o o) *bool { return p(&o.imx) }) }
	num := func(p func(*imatrixOptions) *int, lo int) binding {
		return intVar(func(o o) *int { return p(&o.imx) }, lo, maxInt32)
	}
	x := func(p func(*imatrixOptions) *string) func(o) *string { return func(o o) *string { return p(&o.imx) } }
	rows := inGroup(groupImatrix,
		flagDef{name: "output", alias: []string{"-o", "--output-file"}, arg: "FILE", def: imatrixOutput, help: "the importance matrix; a name that ends in .dat gets the format before GGUF", binding: fileVar(func(o o) *string { return &o.OutFile })},
		flagDef{name: "output-frequency", alias: []string{"-ofreq"}, arg: "N", help: "write the file every N chunks; 0 at the end only", binding: intVar(func(o o) *int { return &o.NOutFreq }, 0, maxInt32)},
		flagDef{name: "save-frequency", arg: "N", help: "keep a copy, FILE.at_CHUNKS, every N chunks; 0 never", binding: intVar(func(o o) *int { return &o.NSaveFreq }, 0, maxInt32)},
		flagDef{name: "process-output", help: "measure the head of the model too: output.weight, or token_embd.weight where that is used for it", binding: boolVar(func(o o) *bool { return &o.ProcessOutput })},
		flagDef{name: "ppl", fixed: map[string]string{"--no-ppl": "false"}, def: "on for a text, off for records", help: "measure the perplexity: of a text as llama-perplexity does, of records of all tokens but the first", binding: boolVar(func(o o) *bool { return &o.ComputePPL })},
		flagDef{name: "chunk", alias: []string{"--from-chunk"}, arg: "N", help: "begin after N chunks of the text", binding: intVar(func(o o) *int { return &o.IChunk }, 0, maxInt32)},
		flagDef{name: "chunks", arg: "N", help: "measure N chunks of the text at most; -1 all", binding: intVar(func(o o) *int { return &o.NChunks }, -1, maxInt32)},
		flagDef{name: "in-file", arg: "FILE,...", def: "none", help: "add what is measured to these files; without anything to measure add them up; may be given more than once",
			binding: listVar(func(o o) *[]string { return &o.InFiles }, parseList, joinCSV)},
		flagDef{name: "show-statistics", help: "show statistics of the one --in-file, and end; see gollama imatrix stats", binding: boolVar(func(o o) *bool { return &o.ShowStatistics })},
		flagDef{name: "parse-special", help: "let the names of special tokens in the data become these tokens", binding: boolVar(func(o o) *bool { return &o.ParseSpecial })},
		flagDef{name: "records", arg: "FILE", def: "none", help: "measure each record, a line of JSON with text, prompt and completion, or messages, as it is: whole, in pieces of -c tokens if it is longer; .gz and .zst too; - is standard input", binding: fileVar(x(func(i *imatrixOptions) *string { return &i.records }))},
		flagDef{name: "chat-template", arg: "TEMPLATE", def: "the model's", help: "chat template for messages: its text, or the name of one that llama.cpp has", binding: stringVar(x(func(i *imatrixOptions) *string { return &i.template }))},
		flagDef{name: "chat-template-file", arg: "FILE", def: "none", help: "the same from a file", binding: fileVar(x(func(i *imatrixOptions) *string { return &i.templateFile }))},
		flagDef{name: "shuffle-seed", arg: "N", def: "in order", help: "measure chunks or records in a random order, which N decides", binding: num(func(i *imatrixOptions) *int { return &i.seed }, 0).then(func(o o) { o.imx.shuffle = true }).when(func(o o) bool { return o.imx.shuffle })},
		flagDef{name: "max-tokens", arg: "N", def: "no limit", help: "end before more than N tokens are measured", binding: num(func(i *imatrixOptions) *int { return &i.maxTokens }, 0)},
		flagDef{name: "shard", arg: "I/N", def: "all, or what SLURM_ARRAY_TASK_ID and _COUNT say", help: "measure every Nth chunk or record, from number I, counted from 0; N alone takes I from SLURM_ARRAY_TASK_ID or JOB_COMPLETION_INDEX; gollama imatrix merge adds the files up", binding: stringVar(x(func(i *imatrixOptions) *string { return &i.shard }))},
		flagDef{name: "resume", help: "go on with the file -o, which must have been made with the same settings; if there is none, begin", binding: yes(func(i *imatrixOptions) *bool { return &i.resume }).unprinted()},
		flagDef{name: "force", help: "take files of --in-file that count something twice, and a file of other settings with --resume", binding: yes(func(i *imatrixOptions) *bool { return &i.force })},
		flagDef{name: "expert-min", arg: "N", help: "tokens that each expert should have met", binding: num(func(i *imatrixOptions) *int { return &i.expertMin }, 0)},
		flagDef{name: "coverage-min", arg: "SHARE", help: "end with status 3 if a smaller share of the experts met --expert-min tokens", binding: floatVar(func(o o) *float32 { return &o.imx.coverageMin }, 0, 1)},
		flagDef{name: "until-coverage", help: "end as soon as --coverage-min (0.99 if it is not given) is reached", binding: yes(func(i *imatrixOptions) *bool { return &i.untilCoverage })},
		flagDef{name: "on-nonfinite", arg: "stop|skip", help: "what is done with a chunk of which the model makes values that are no numbers: stop with an error and what was measured before, or leave it out", binding: wordVar(x(func(i *imatrixOptions) *string { return &i.nonfinite }), "stop", "skip")},
		flagDef{name: "json", help: "write one JSON object: perplexity, tokens, chunks, experts, what is missing", binding: yes(func(i *imatrixOptions) *bool { return &i.json })},
	)
	for i := range rows {
		rows[i].in = inImatrix
	}
	return rows
}

// imatrixToolFlags are the flags of the subcommands of imatrix.
func imatrixToolFlags() []flagDef {
	type o = *options
	x := func(p func(*imatrixOptions) *string) func(o) *string { return func(o o) *string { return p(&o.imx) } }
	rows := inGroup(groupImatrix,
		flagDef{name: "output", alias: []string{"-o"}, arg: "FILE", def: "none, must be given", in: inImatrixMerge + inImatrixConvert[1:],
			help: "the result, which appears when it is whole; a name that ends in .dat gets the format before GGUF; - is standard output", binding: fileVar(func(o o) *string { return &o.OutFile })},
		flagDef{name: "output-format", arg: "gguf|dat", def: "by the name of -o", in: inImatrix + inImatrixMerge[1:] + inImatrixConvert[1:],
			help: "gguf, or dat, the format before it, which has no counts of experts", binding: wordVar(x(func(i *imatrixOptions) *string { return &i.format }), "gguf", "dat").when(func(o o) bool { return o.imx.format != "" })},
		flagDef{name: "plain", help: "write llama-imatrix's keys and tensors only: no low-order parts, no sums of activations, no ranges", in: inImatrix + inImatrixMerge[1:] + inImatrixConvert[1:],
			binding: boolVar(func(o o) *bool { return &o.imx.plain })},
		flagDef{name: "chunk-size", alias: []string{"-c", "--ctx-size"}, arg: "N", def: "must be given for such files", in: inImatrixMerge + inImatrixConvert[1:] + inImatrixStats[1:] + inImatrixDiff[1:] + inImatrixCheck[1:],
			help: "tokens in a chunk of files in the format before GGUF, which do not say it", binding: intVar(func(o o) *int { return &o.imx.chunkSize }, 0, maxInt32)},
		flagDef{name: "force", help: "merge what counts twice, and files that were saved in the middle of a chunk", in: inImatrixMerge,
			binding: boolVar(func(o o) *bool { return &o.imx.force })},
		flagDef{name: "format", fixed: map[string]string{"--json": "json", "--csv": "csv"}, arg: "FORMAT", in: inImatrixStats + inImatrixDiff[1:] + inImatrixCheck[1:],
			help: "table, json (one object) or csv", binding: wordVar(x(func(i *imatrixOptions) *string { return &i.report }), "table", "json", "csv")},
		flagDef{name: "image", alias: []string{"--plot"}, arg: "FILE", def: "none", help: "draw a heat map, a row for each block and a column for each tensor, as FILE.svg or FILE.png", in: inImatrixStats,
			binding: fileVar(x(func(i *imatrixOptions) *string { return &i.image }))},
		flagDef{name: "metric", arg: "NAME", help: "what --image shows: " + strings.Join(imatrix.Metrics, ", ") + " (the tokens of each expert)", in: inImatrixStats,
			binding: wordVar(x(func(i *imatrixOptions) *string { return &i.metric }), imatrix.Metrics...)},
		flagDef{name: "model", alias: []string{"-m"}, arg: "FILE", def: "none, must be given", help: "the model that is to be quantized, one file or the first of a split; its header is read", in: inImatrixCheck,
			binding: fileVar(func(o o) *string { return &o.Model })},
		flagDef{name: "expert-min", arg: "N", help: "tokens that each expert must have met", in: inImatrixCheck, binding: intVar(func(o o) *int { return &o.imx.expertMin }, 0, maxInt32)},
	)
	return rows
}

// sharedWithImatrixTools are the flags of run that the subcommands of imatrix take too.
var sharedWithImatrixTools = []string{"quiet", "verbosity", "log-file", "log-json", "config", "print-config"}
