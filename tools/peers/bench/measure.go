package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// sample is what one run of a program gave; 0 where the program does not tell.
type sample struct {
	prompt float64 // tokens/s
	// gen is the tokens after the first by the time from the first to the last byte of text, so that it holds
	// sampling and writing for every program alike; llama-bench's own figure is of decoding alone. Tokens/s.
	gen    float64
	first  float64 // ms from the start of the process to the first byte on stdout
	memory float64 // MiB, peak resident
}

// results holds the samples of each program.
type results struct {
	gollama, completion, bench []sample
}

// compare runs the programs in turns, so that a drift of the machine's speed meets all of them alike.
func compare(ctx context.Context, o options, model, prompt string, threads int) (*results, error) {
	var r results
	t := strconv.Itoa(threads)
	steps := []func() error{
		func() error { return r.completionRun(ctx, o, model, prompt, t) },
		func() error { return r.benchRun(ctx, o, model, t) },
	}
	if o.gollama != "" {
		steps = append(steps, func() error { return r.gollamaRun(ctx, o, model, prompt, t) })
	}
	for i := range o.repeat {
		for j := range steps {
			if err := steps[(i+j)%len(steps)](); err != nil {
				return nil, err
			}
		}
	}
	return &r, nil
}

func runArgs(o options, model, prompt, t string) []string {
	return []string{"-m", model, "-f", prompt, "-n", strconv.Itoa(o.gen), "-c", strconv.Itoa(o.ctx), "-t", t,
		"--temp", "0", "--ignore-eos"}
}

// gollamaRun runs gollama twice: text on stdout gives the time to the first byte, json gives the timings.
func (r *results) gollamaRun(ctx context.Context, o options, model, prompt, t string) error {
	args := append([]string{"run"}, runArgs(o, model, prompt, t)...)
	text, err := start(ctx, o.gollama, args...)
	if err != nil {
		return err
	}
	p, err := start(ctx, o.gollama, append(args, "--format", "json")...)
	if err != nil {
		return err
	}
	var out struct {
		Timings struct {
			PromptN  float64 `json:"prompt_n"`
			PromptMS float64 `json:"prompt_ms"`
		} `json:"timings"`
	}
	if err := json.Unmarshal(p.stdout, &out); err != nil {
		return fmt.Errorf("gollama --format json: %w", err)
	}
	tm := out.Timings
	r.gollama = append(r.gollama, sample{
		prompt: rate(tm.PromptN, tm.PromptMS), gen: text.rate(o.gen), first: text.first, memory: text.memory,
	})
	return nil
}

// promptLine matches "prompt eval time = 12.34 ms / 56 tokens".
var promptLine = regexp.MustCompile(`prompt eval time = +([0-9.]+) ms / +([0-9]+) tokens`)

// completionRun runs llama-completion, again if need be: its logger at times loses the timings at exit.
func (r *results) completionRun(ctx context.Context, o options, model, prompt, t string) error {
	const tries = 5
	args := append(runArgs(o, model, prompt, t), "-no-cnv", "--no-display-prompt", "--perf")
	for range tries {
		p, err := start(ctx, filepath.Join(o.peers, "llama-completion"), args...)
		if err != nil {
			return err
		}
		m := promptLine.FindSubmatch(p.stderr)
		if m == nil {
			continue
		}
		ms, _ := strconv.ParseFloat(string(m[1]), 64) // the pattern lets only numbers through
		n, _ := strconv.ParseFloat(string(m[2]), 64)
		r.completion = append(r.completion, sample{
			prompt: rate(n, ms), gen: p.rate(o.gen), first: p.first, memory: p.memory,
		})
		return nil
	}
	return fmt.Errorf("llama-completion: no timings on stderr in %d runs", tries)
}

// benchRun runs llama-bench, whose generation starts at the depth where that of the others starts.
func (r *results) benchRun(ctx context.Context, o options, model, t string) error {
	args := []string{"-m", model, "-t", t, "-r", "1", "-o", "json"}
	prompt, err := benchRate(ctx, o, append(args, "-n", "0", "-p", strconv.Itoa(o.prompt)))
	if err != nil {
		return err
	}
	gen, err := benchRate(ctx, o, append(args, "-p", "0", "-n", strconv.Itoa(o.gen), "-d", strconv.Itoa(o.prompt)))
	r.bench = append(r.bench, sample{prompt: prompt, gen: gen})
	return err
}

func benchRate(ctx context.Context, o options, args []string) (float64, error) {
	p, err := start(ctx, filepath.Join(o.peers, "llama-bench"), args...)
	if err != nil {
		return 0, err
	}
	var tests []struct {
		TS float64 `json:"avg_ts"`
	}
	if err := json.Unmarshal(p.stdout, &tests); err != nil || len(tests) != 1 {
		return 0, fmt.Errorf("llama-bench -o json: %d tests, want 1: %w", len(tests), err)
	}
	return tests[0].TS, nil
}

func rate(n, ms float64) float64 {
	if ms == 0 {
		return 0
	}
	return n / ms * 1000
}

// errNoOutput is of a program that wrote nothing: llama.cpp's tools lose their output now and then.
var errNoOutput = errors.New("nothing on stdout")

// process is a program that has run.
type process struct {
	stdout, stderr []byte
	first, last    float64 // ms from the start to the first and to the last byte of stdout
	wall           float64 // ms from the start to the end
	memory         float64 // MiB
}

// rate is the speed of the n-1 tokens that came after the first, in tokens/s.
func (p *process) rate(n int) float64 { return rate(float64(n-1), p.last-p.first) }

func start(ctx context.Context, name string, args ...string) (*process, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var p process
	buf := make([]byte, 4096)
	var readErr error
	for readErr == nil {
		var n int
		n, readErr = pipe.Read(buf)
		if n == 0 {
			continue
		}
		p.last = float64(time.Since(began).Microseconds()) / 1000
		if p.stdout == nil {
			p.first = p.last
		}
		p.stdout = append(p.stdout, buf[:n]...)
	}
	err = cmd.Wait()
	p.wall = float64(time.Since(began).Microseconds()) / 1000
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", filepath.Base(name), err, tail(stderr.Bytes(), 600))
	}
	if !errors.Is(readErr, io.EOF) || p.stdout == nil {
		return &p, fmt.Errorf("%s: %w: %w", filepath.Base(name), errNoOutput, readErr)
	}
	p.stderr = stderr.Bytes()
	// Linux counts from what this process had at the fork; that is less than any model.
	if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		p.memory = float64(u.Maxrss) / 1024
		if runtime.GOOS == "darwin" { // bytes there, KiB elsewhere
			p.memory /= 1024
		}
	}
	return &p, nil
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

func median(samples []sample, of func(sample) float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	v := make([]float64, len(samples))
	for i, s := range samples {
		v[i] = of(s)
	}
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// print writes a line for each measure. A ratio above 1 is good for speeds, below 1 for time and memory; it is taken
// against the better of the two peers.
func (r *results) print(model string, threads int) {
	for _, m := range []struct {
		name string
		low  bool
		of   func(sample) float64
	}{
		{"prompt tok/s", false, func(s sample) float64 { return s.prompt }},
		{"gen tok/s", false, func(s sample) float64 { return s.gen }},
		{"first byte ms", true, func(s sample) float64 { return s.first }},
		{"peak MiB", true, func(s sample) float64 { return s.memory }},
	} {
		g, c, b := median(r.gollama, m.of), median(r.completion, m.of), median(r.bench, m.of)
		peer := max(c, b)
		if m.low {
			peer = c
		}
		ratio := "-"
		if g != 0 && peer != 0 {
			ratio = fmt.Sprintf("%.2f", g/peer)
		}
		fmt.Printf("%-22s %2d  %-14s %10.1f %12.1f %10s  %s\n", model, threads, m.name, g, c, orDash(b), ratio)
	}
}

func orDash(x float64) string {
	if x == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", x)
}
