package main

import (
	"strings"

	"gollama/internal/imatrix"
)

const (
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
}

func imatrixDefaults() imatrixOptions {
	return imatrixOptions{report: "table", metric: "mean", expertMin: 1}
}

// imatrixToolFlags are the flags of the subcommands of imatrix.
func imatrixToolFlags() []flagDef {
	type o = *options
	x := func(p func(*imatrixOptions) *string) func(o) *string { return func(o o) *string { return p(&o.imx) } }
	rows := inGroup(groupImatrix,
		flagDef{name: "output", alias: []string{"-o"}, arg: "FILE", def: "none, must be given", in: inImatrixMerge + inImatrixConvert[1:],
			help: "the result, which appears when it is whole; a name that ends in .dat gets the format before GGUF; - is standard output", binding: fileVar(func(o o) *string { return &o.OutFile })},
		flagDef{name: "output-format", arg: "gguf|dat", def: "by the name of -o", in: inImatrixMerge + inImatrixConvert[1:],
			help: "gguf, or dat, the format before it, which has no counts of experts", binding: wordVar(x(func(i *imatrixOptions) *string { return &i.format }), "gguf", "dat").when(func(o o) bool { return o.imx.format != "" })},
		flagDef{name: "plain", help: "write llama-imatrix's keys and tensors only: no low-order parts, no sums of activations, no ranges", in: inImatrixMerge + inImatrixConvert[1:],
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
var sharedWithImatrixTools = []string{"quiet", "verbosity", "log-file", "log-json", "log-colors", "log-prefix", "log-timestamps", "config", "print-config"}
