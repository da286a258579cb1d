package main

import (
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"gollama/internal/gguf"
	"gollama/internal/imatrix"
	"gollama/internal/pipeline"
)

var imatrixStatsCommand = &command{
	name: "imatrix-stats", parent: "imatrix", posArgs: 1,
	synopsis: "FILE [flags]",
	short:    "Show statistics of an importance matrix.",
	long: `Reads a file in either format. Writes statistics of the mean squares of each weight
to standard output: those of llama-imatrix --show-statistics, a line a weight, then a
line a block, then a line for the experts of each block. --image draws them.

Examples:
  gollama imatrix stats part1.gguf
  gollama imatrix stats part1.gguf --json | jq '.tensors[] | select(.zd > 0.1) | .name'
  gollama imatrix stats part1.gguf --image map.svg --metric zd --csv > stats.csv`,
}

var imatrixDiffCommand = &command{
	name: "imatrix-diff", parent: "imatrix", posArgs: 2,
	synopsis: "FILE FILE [flags]",
	short:    "Compare two importance matrices.",
	long: `Reads two files. Writes how far the mean squares of each weight are apart, and which
weights only one of them has, to standard output.

Examples:
  gollama imatrix diff part1.gguf part2.gguf
  gollama imatrix diff part1.gguf part2.gguf --json | jq .equal`,
}

var imatrixCheckCommand = &command{
	name: "imatrix-check", parent: "imatrix", posArgs: 1,
	synopsis: "-m FILE FILE [flags]",
	short:    "Say what quantizing a model with a file would miss.",
	long: `Reads an importance matrix and the header of the model. Writes what is missing to
standard output: weights without an entry or with one of another size, experts that
met too few tokens, columns that are zero. Ends with status 3 if a quantizer would
lack something.

Examples:
  gollama imatrix check -m model.gguf part1.gguf
  gollama imatrix check -m model.gguf part1.gguf --expert-min 32 --json | jq .covered`,
}

func init() {
	imatrixStatsCommand.run = imatrixStats
	imatrixDiffCommand.run = imatrixDiff
	imatrixCheckCommand.run = imatrixCheck
}

func imatrixStats(_ context.Context, e *env, o *options, args []string) error {
	l, err := imatrixTool(e, o, imatrixStatsCommand, args, 1, "file")
	if err != nil {
		return err
	}
	defer l.close()
	ext := strings.ToLower(filepath.Ext(o.imx.image))
	switch {
	case o.imx.image != "" && ext != ".svg" && ext != ".png":
		return usagef("--image %s: want a name that ends in .svg or .png", o.imx.image)
	case o.imx.image != "" && sameFile(o.imx.image, args[0]):
		return usagef("--image %s would replace the file that is read", o.imx.image)
	}
	f, err := openImatrix(o, args[0], false)
	if err != nil {
		return err
	}
	if torn := f.Torn(); torn != "" {
		l.warnf("%s: %s", args[0], torn)
	}
	return showStats(e, o, f)
}

// showStats writes statistics as --format and --image say.
func showStats(e *env, o *options, f *imatrix.File) error {
	s := f.Stats()
	if o.imx.image != "" {
		if err := drawStats(&s, o.imx.image, o.imx.metric); err != nil {
			return err
		}
	}
	switch o.imx.report {
	case "json":
		return writeObject(e, struct {
			Type      string   `json:"type"`
			Datasets  []string `json:"datasets"`
			ChunkSize int      `json:"chunk_size"`
			Chunks    int      `json:"chunks"`
			Tokens    uint64   `json:"tokens"`
			imatrix.Stats
		}{"imatrix-stats", f.Datasets, f.ChunkSize, f.Chunks(), f.Tokens(), s})
	case "csv":
		return statsCSV(e.out, &s)
	}
	return e.out.text(statsTable(&s))
}

func writeObject(e *env, v any) error {
	text, err := pipeline.Marshal(v)
	if err != nil {
		return err
	}
	return e.out.text(string(text) + "\n")
}

// drawStats writes the heat map of a metric.
func drawStats(s *imatrix.Stats, path, metric string) error {
	h, err := s.HeatMap(metric)
	if err != nil {
		return &inputError{err: fmt.Errorf("--image: %w", err)}
	}
	draw := h.PNG
	if strings.EqualFold(filepath.Ext(path), ".svg") {
		draw = h.SVG
	}
	picture, err := draw()
	if err != nil {
		return &inputError{err: fmt.Errorf("--image: %w", err)}
	}
	return writeWhole("--image", path, picture)
}

// orZero is what llama-imatrix shows where there is nothing to compare with.
func orZero(p *float64) float64 {
	if p == nil {
		return 0
	}
	return *p
}

// statsTable has llama-imatrix's columns and precision.
func statsTable(s *imatrix.Stats) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%5s  %-20s %12s %10s %13s %9s %9s %9s %8s %10s %8s %8s %8s\n", "block", "tensor", "sum", "min", "max", "mean", "std",
		"active", "n", "entropy", "e/norm", "zd", "cosine")
	for _, t := range s.Tensors {
		norm := "-"
		if t.EntropyNorm != nil {
			norm = fmt.Sprintf("%.2f%%", 100**t.EntropyNorm)
		}
		fmt.Fprintf(&b, "%5s  %-20s %12.2f %10.4f %13.4f %9.2f %9.2f %8.2f%% %8d %10.4f %8s %7.2f%% %8.4f\n", blockName(t.Block), t.Tensor, t.Sum,
			t.Min, t.Max, t.Mean, t.Std, 100*t.Active, t.N, t.Entropy, norm, 100*t.ZD, orZero(t.Cosine))
	}
	fmt.Fprintf(&b, "\n%5s %14s %11s %8s\n", "block", "sum", "zd", "cosine")
	for _, y := range s.Layers {
		fmt.Fprintf(&b, "%5d %14.2f %10.4f%% %8.4f\n", y.Block, y.Sum, 100*y.ZD, y.Cosine)
	}
	expertTable(&b, s)
	return b.String()
}

func blockName(b int) string {
	if b < 0 {
		return "-"
	}
	return strconv.Itoa(b)
}

// expertTable shows how the tokens are spread over the experts of each block, as a bar for each.
func expertTable(b *strings.Builder, s *imatrix.Stats) {
	first := true
	for _, t := range s.Tensors {
		if len(t.Experts) == 0 {
			continue
		}
		if first {
			fmt.Fprintf(b, "\n%5s  %-20s %8s %6s %10s %10s  %s\n", "block", "tensor", "experts", "none", "fewest", "most", "tokens of each")
			first = false
		}
		lo, hi := t.Experts[0], t.Experts[0]
		for _, c := range t.Experts {
			lo, hi = min(lo, c), max(hi, c)
		}
		fmt.Fprintf(b, "%5s  %-20s %8d %6d %10d %10d  %s\n", blockName(t.Block), t.Tensor, len(t.Experts), t.Dead, lo, hi, bars(t.Experts, hi))
	}
}

// bars draws counts with a character each; a blank is 0.
func bars(counts []uint64, most uint64) string {
	levels := []rune("▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, c := range counts {
		if c == 0 {
			b.WriteRune(' ')
			continue
		}
		b.WriteRune(levels[min(int(float64(c)/float64(most)*float64(len(levels))), len(levels)-1)])
	}
	return "|" + b.String() + "|"
}

func statsCSV(w io.Writer, s *imatrix.Stats) error {
	rows := [][]string{{"name", "block", "tensor", "tokens", "n", "sum", "min", "max", "mean", "std", "active", "entropy", "entropy_norm", "zd", "cosine", "experts", "dead_experts"}}
	num := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	optional := func(p *float64) string {
		if p == nil {
			return ""
		}
		return num(*p)
	}
	for _, t := range s.Tensors {
		rows = append(rows, []string{t.Name, strconv.Itoa(t.Block), t.Tensor, strconv.FormatUint(t.Tokens, 10), strconv.Itoa(t.N), num(t.Sum), num(t.Min), num(t.Max),
			num(t.Mean), num(t.Std), num(t.Active), num(t.Entropy), optional(t.EntropyNorm), num(t.ZD), optional(t.Cosine), strconv.Itoa(len(t.Experts)), strconv.Itoa(t.Dead)})
	}
	return writeCSV(w, rows)
}

func writeCSV(w io.Writer, rows [][]string) error {
	c := csv.NewWriter(w)
	if err := c.WriteAll(rows); err != nil {
		return err
	}
	return c.Error()
}

func imatrixDiff(_ context.Context, e *env, o *options, args []string) error {
	l, err := imatrixTool(e, o, imatrixDiffCommand, args, 2, "two files")
	if err != nil {
		return err
	}
	defer l.close()
	var files [2]*imatrix.File
	for i := range files {
		if files[i], err = openImatrix(o, args[i], false); err != nil {
			return err
		}
	}
	d := imatrix.Compare(files[0], files[1])
	switch o.imx.report {
	case "json":
		return writeObject(e, struct {
			Type  string `json:"type"`
			Equal bool   `json:"equal"`
			*imatrix.Diff
		}{"imatrix-diff", d.Equal(), d})
	case "csv":
		rows := [][]string{{"name", "tokens_a", "tokens_b", "n", "cosine", "relative", "max", "kl", "spearman", "equal"}}
		for _, t := range d.Tensors {
			var row []string
			for _, v := range []any{t.Name, t.TokensA, t.TokensB, t.N, t.Cosine, t.Relative, t.Max, t.KL, t.Spearman, t.Equal} {
				text, err := json.Marshal(v)
				if err != nil {
					return err
				}
				row = append(row, strings.Trim(string(text), `"`))
			}
			rows = append(rows, row)
		}
		return writeCSV(e.out, rows)
	}
	return e.out.text(diffTable(d))
}

func diffTable(d *imatrix.Diff) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-36s %10s %10s %10s %10s %10s %10s %10s\n", "tensor", "tokens", "tokens", "cosine", "relative", "max", "kl bits", "spearman")
	optional := func(p *float64) string {
		if p == nil {
			return "-"
		}
		return fmt.Sprintf("%.3g", *p)
	}
	for _, t := range d.Tensors {
		fmt.Fprintf(&b, "%-36s %10d %10d %10.7f %10.3g %10.3g %10s %10s\n", t.Name, t.TokensA, t.TokensB, t.Cosine, t.Relative, t.Max, optional(t.KL), optional(t.Spearman))
	}
	for _, part := range []struct {
		what string
		list []string
	}{{"only in the first", d.OnlyA}, {"only in the second", d.OnlyB}, {"of different sizes", d.Shapes}} {
		for _, name := range part.list {
			fmt.Fprintf(&b, "%-36s %s\n", name, part.what)
		}
	}
	if d.Equal() {
		b.WriteString("sums and counts are equal\n")
	}
	return b.String()
}

func imatrixCheck(_ context.Context, e *env, o *options, args []string) error {
	l, err := imatrixTool(e, o, imatrixCheckCommand, args, 1, "file")
	if err != nil {
		return err
	}
	defer l.close()
	if o.Model == "" {
		return usagef("no model given").withHint("-m FILE.gguf")
	}
	f, err := openImatrix(o, args[0], false)
	if err != nil {
		return err
	}
	model, err := gguf.OpenModel(o.Model)
	if err != nil {
		return err
	}
	defer func() { _ = model.Close() }() // only read from
	if kind, ok := model.Str("general.type"); ok && kind != "model" {
		return fmt.Errorf("%s: it is of type %q, want a model", o.Model, kind)
	}
	r := f.Check(model.Tensors, imatrix.CheckOptions{Model: modelIdentity(model), ExpertMin: uint64(o.imx.expertMin)})
	if err := writeCheck(e, o, r); err != nil {
		return err
	}
	if !r.OK() {
		fatal := 0
		for _, p := range r.Problems {
			if p.Fatal {
				fatal++
			}
		}
		return &recordsError{fmt.Sprintf("%d of %d weights are covered, with %d problems", r.Covered, r.Weights, fatal)}
	}
	return nil
}

func writeCheck(e *env, o *options, r *imatrix.Report) error {
	switch o.imx.report {
	case "json":
		return writeObject(e, struct {
			Type     string  `json:"type"`
			OK       bool    `json:"ok"`
			Coverage float64 `json:"expert_coverage"`
			*imatrix.Report
		}{"imatrix-check", r.OK(), r.Coverage(), r})
	case "csv":
		rows := [][]string{{"kind", "tensor", "text", "fatal"}}
		for _, p := range r.Problems {
			rows = append(rows, []string{p.Kind, p.Tensor, p.Text, strconv.FormatBool(p.Fatal)})
		}
		return writeCSV(e.out, rows)
	}
	var b strings.Builder
	for _, p := range r.Problems {
		level := "note"
		if p.Fatal {
			level = "missing"
		}
		fmt.Fprintf(&b, "%-8s %s: %s\n", level, p.Tensor, p.Text)
	}
	fmt.Fprintf(&b, "%d of %d weights are covered", r.Covered, r.Weights)
	if r.Experts > 0 {
		fmt.Fprintf(&b, ", %d of %d experts met %d tokens or more", r.Reached, r.Experts, max(o.imx.expertMin, 1))
	}
	return e.out.text(b.String() + "\n")
}

// modelIdentity stands for a model file: its sum or, of a split model, the sum of those of its parts. "" if it cannot be
// read.
func modelIdentity(f *gguf.File) string {
	h := sha256.New()
	for _, path := range f.Paths {
		sum, err := sampleSum(path)
		if err != nil {
			return ""
		}
		if len(f.Paths) == 1 {
			return sum
		}
		h.Write([]byte(sum))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
