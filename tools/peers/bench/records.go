package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// What -what may ask for besides single runs: each compares gollama run
// --records, or guessed tokens, with what it is to be measured against.
var recordParts = []struct {
	name string
	run  func(*recordBench) error
}{
	{"processes", (*recordBench).processes},
	{"batched", (*recordBench).batched},
	{"prefix", (*recordBench).prefix},
	{"deterministic", (*recordBench).deterministic},
	{"lookup", (*recordBench).lookup},
	{"draft", (*recordBench).draft},
}

const (
	nRecords  = 64
	nGen      = 32  // tokens of each answer
	ctxRecord = 256 // tokens of each text's context
)

// recordBench measures one model.
type recordBench struct {
	ctx     context.Context
	o       options
	model   string
	threads string
	dir     string // for records and prompts
	emit    func(name string, ours, peer float64, unit, note string)
}

// row gives what was measured: gollama's figure and the peer's.
func (b *recordBench) row(name string, ours, peer float64, unit, note string) {
	b.emit(name, ours, peer, unit, note)
}

// prompt is that of record i, of about 14 tokens.
func prompt(i int) string {
	return fmt.Sprintf("Letter %d: the people of this town went to see the water and", i)
}

// records writes n records to a file.
func (b *recordBench) records(n int) (string, error) {
	var text strings.Builder
	for i := range n {
		line, err := json.Marshal(map[string]any{"id": i, "prompt": prompt(i)})
		if err != nil {
			return "", err
		}
		text.Write(append(line, '\n'))
	}
	path := filepath.Join(b.dir, fmt.Sprintf("%d.jsonl", n))
	return path, os.WriteFile(path, []byte(text.String()), 0o644)
}

// recordRun is what gollama said of a run over records. Seconds.
type recordRun struct {
	wall                          float64 // of the process
	read, reused, generated       float64 // tokens
	engine, guess, sample, beside float64
	batches                       float64
	stdout                        []byte
}

func (r *recordRun) seconds() float64 { return r.engine + r.guess + r.sample + r.beside }

var (
	tokensLine = regexp.MustCompile(`(\d+) tokens read, (\d+) reused, (\d+) generated`)
	timesLine  = regexp.MustCompile(`(\d+) batches: ([0-9.]+) s in the engine, ([0-9.]+) s guessing, ([0-9.]+) s sampling, ([0-9.]+) s beside`)
)

// parseRun reads the two lines that gollama ends with.
func parseRun(stderr []byte) (recordRun, error) {
	var r recordRun
	for _, x := range []struct {
		line *regexp.Regexp
		to   []*float64
	}{{tokensLine, []*float64{&r.read, &r.reused, &r.generated}}, {timesLine, []*float64{&r.batches, &r.engine, &r.guess, &r.sample, &r.beside}}} {
		m := x.line.FindSubmatch(stderr)
		if m == nil {
			return r, fmt.Errorf("gollama does not say %q:\n%s", x.line, tail(stderr, 600))
		}
		for i, p := range x.to {
			*p, _ = strconv.ParseFloat(string(m[i+1]), 64) // the pattern lets only numbers through
		}
	}
	return r, nil
}

// gollama runs n records, np at a time.
func (b *recordBench) gollama(n, np int, more ...string) (recordRun, error) {
	file, err := b.records(n)
	if err != nil {
		return recordRun{}, err
	}
	args := append([]string{"run", "-m", b.model, "--records", file, "-n", strconv.Itoa(nGen), "-np", strconv.Itoa(np), "-c", strconv.Itoa(ctxRecord),
		"-t", b.threads, "--temp", "0", "--ignore-eos", "-lv", "3"}, more...)
	p, err := start(b.ctx, b.o.gollama, args...)
	if err != nil {
		return recordRun{}, err
	}
	r, err := parseRun(p.stderr)
	r.wall, r.stdout = p.wall/1000, p.stdout
	return r, err
}

// batchedRow is a line of llama-batched-bench --output-format jsonl.
type batchedRow struct {
	TPP   float64 `json:"t_pp"`
	SPP   float64 `json:"speed_pp"`
	TTG   float64 `json:"t_tg"`
	Speed float64 `json:"speed"`
}

// batchedBench runs np sequences of pp tokens of prompt, shared or not, and tg
// of answer; again if need be, as its logger at times loses the result.
func (b *recordBench) batchedBench(pp, tg, np int, shared bool) (batchedRow, error) {
	// Room for all: it leaves out what does not fit, without a word.
	nCtx := np * ((pp + tg + 255) / 256 * 256)
	args := []string{"-m", b.model, "-t", b.threads, "-npp", strconv.Itoa(pp), "-ntg", strconv.Itoa(tg), "-npl", strconv.Itoa(np),
		"-c", strconv.Itoa(nCtx), "--output-format", "jsonl"}
	if shared {
		args = append(args, "-pps")
	}
	const tries = 5
	for range tries {
		p, err := start(b.ctx, filepath.Join(b.o.peers, "llama-batched-bench"), args...)
		if err != nil && !errors.Is(err, errNoOutput) {
			return batchedRow{}, err
		}
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(p.stdout)) {
			var r batchedRow
			if i := strings.IndexByte(line, '{'); i >= 0 && json.Unmarshal([]byte(line[i:]), &r) == nil && r.Speed > 0 {
				return r, nil
			}
		}
	}
	return batchedRow{}, fmt.Errorf("llama-batched-bench: no result in %d runs", tries)
}

// processes compares one run over all records with a process of llama-completion for each.
func (b *recordBench) processes() error {
	var ours, theirs []float64
	for range b.o.repeat {
		r, err := b.gollama(nRecords, 32)
		if err != nil {
			return err
		}
		ours = append(ours, r.wall)
		total := 0.0
		for i := range b.o.procs {
			p, err := start(b.ctx, filepath.Join(b.o.peers, "llama-completion"), "-m", b.model, "-p", prompt(i), "-n", strconv.Itoa(nGen),
				"-t", b.threads, "--temp", "0", "--ignore-eos", "-no-cnv", "--no-display-prompt")
			if err != nil && !errors.Is(err, errNoOutput) {
				return err
			}
			total += p.wall / 1000
		}
		theirs = append(theirs, total*nRecords/float64(b.o.procs))
	}
	note := "want 5 times as fast"
	if b.o.procs != nRecords {
		note += fmt.Sprintf("; %d processes, times %.3g", b.o.procs, nRecords/float64(b.o.procs))
	}
	b.row("64 records, as processes", middle(ours), middle(theirs), "s", fmt.Sprintf("%.2f times as fast; %s", middle(theirs)/middle(ours), note))
	return nil
}

// batched compares with the engine alone, at the same parallelism. Tokens are
// those that were evaluated: the last one of an answer is not.
func (b *recordBench) batched() error {
	for _, np := range []int{1, 8, 32} {
		n := nRecords
		if np == 1 {
			n = 8
		}
		var ours, theirs, beside, sample []float64
		for range b.o.repeat {
			r, err := b.gollama(n, np)
			if err != nil {
				return err
			}
			ours = append(ours, (r.read+r.generated-float64(n))/r.seconds())
			beside = append(beside, 100*r.beside/r.seconds())
			sample = append(sample, 100*r.sample/r.seconds())
			p, err := b.batchedBench(int(r.read)/n, nGen-1, np, false)
			if err != nil {
				return err
			}
			theirs = append(theirs, p.Speed)
		}
		b.row(fmt.Sprintf("%d at a time, all tokens", np), middle(ours), middle(theirs), "t/s",
			fmt.Sprintf("want 0.97; beside the engine %.2f %%, sampling %.2f %%", middle(beside), middle(sample)))
	}
	return nil
}

// prefix compares a prefix of some 1,000 tokens before all records with what
// it costs at least: the prefix once, each record's own tokens, and generation
// that deep in a text, all at llama-batched-bench's speeds.
func (b *recordBench) prefix() error {
	text, err := writePrompt(1000)
	if err != nil {
		return err
	}
	defer os.Remove(text) //nolint:errcheck // a temporary file
	var ours, theirs []float64
	note := ""
	for range b.o.repeat {
		r, err := b.gollama(nRecords, 32, "--shared-prefix", text, "-c", "1280")
		if err != nil {
			return err
		}
		ours = append(ours, r.seconds())
		depth := int(r.reused) / nRecords
		own := r.read - float64(depth)
		p, err := b.batchedBench(depth, nGen-1, 32, true)
		if err != nil {
			return err
		}
		theirs = append(theirs, p.TPP+2*p.TTG+own/p.SPP)
		note = fmt.Sprintf("want at most 1.10; %.0f tokens read, %d of them the prefix, %.0f reused", r.read, depth, r.reused)
	}
	b.row("64 records after a shared prefix", middle(ours), middle(theirs), "s", note)
	return nil
}

// deterministic tells what pinned shapes cost.
func (b *recordBench) deterministic() error {
	for _, np := range []int{4, 32} {
		var pinned, free []float64
		for range b.o.repeat {
			r, err := b.gollama(nRecords, np, "--deterministic")
			if err != nil {
				return err
			}
			pinned = append(pinned, r.seconds())
			if r, err = b.gollama(nRecords, np); err != nil {
				return err
			}
			free = append(free, r.seconds())
		}
		b.row(fmt.Sprintf("--deterministic, -np %d", np), middle(pinned), middle(free), "s", "against the same without")
	}
	return nil
}

func middle(v []float64) float64 { return spanOf(v).median }
