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
	prompt, gen float64 // tokens/s
	first       float64 // ms from the start of the process to the first byte on stdout
	memory      float64 // MiB, peak resident
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
			PromptN     float64 `json:"prompt_n"`
			PromptMS    float64 `json:"prompt_ms"`
			PredictedN  float64 `json:"predicted_n"`
			PredictedMS float64 `json:"predicted_ms"`
		} `json:"timings"`
	}
	if err := json.Unmarshal(p.stdout, &out); err != nil {
		return fmt.Errorf("gollama --format json: %w", err)
	}
	tm := out.Timings
	r.gollama = append(r.gollama, sample{
		prompt: rate(tm.PromptN, tm.PromptMS), gen: rate(tm.PredictedN, tm.PredictedMS), first: text.first, memory: text.memory,
	})
	return nil
}

// perfLine matches "prompt eval time = 12.34 ms / 56 tokens" and the same for "eval time" and "runs".
var perfLine = regexp.MustCompile(`(prompt eval|[^t] *eval) time = +([0-9.]+) ms / +([0-9]+) (?:tokens|runs)`)

// completionRun runs llama-completion, again if need be: its logger at times loses the timings at exit.
func (r *results) completionRun(ctx context.Context, o options, model, prompt, t string) error {
	const tries = 5
	args := append(runArgs(o, model, prompt, t), "-no-cnv", "--no-display-prompt", "--perf")
	for range tries {
		p, err := start(ctx, filepath.Join(o.peers, "llama-completion"), args...)
		if err != nil {
			return err
		}
		s := sample{first: p.first, memory: p.memory}
		for _, m := range perfLine.FindAllSubmatch(p.stderr, -1) {
			ms, _ := strconv.ParseFloat(string(m[2]), 64) // the pattern lets only numbers through
			n, _ := strconv.ParseFloat(string(m[3]), 64)
			if string(m[1]) == "prompt eval" {
				s.prompt = rate(n, ms)
			} else {
				s.gen = rate(n, ms)
			}
		}
		if s.prompt != 0 && s.gen != 0 {
			r.completion = append(r.completion, s)
			return nil
		}
	}
	return fmt.Errorf("llama-completion: no timings on stderr in %d runs", tries)
}

func (r *results) benchRun(ctx context.Context, o options, model, t string) error {
	p, err := start(ctx, filepath.Join(o.peers, "llama-bench"), "-m", model, "-t", t, "-r", "1", "-o", "json",
		"-p", strconv.Itoa(o.prompt), "-n", strconv.Itoa(o.gen))
	if err != nil {
		return err
	}
	var tests []struct {
		NPrompt int     `json:"n_prompt"`
		TS      float64 `json:"avg_ts"`
	}
	if err := json.Unmarshal(p.stdout, &tests); err != nil {
		return fmt.Errorf("llama-bench -o json: %w", err)
	}
	var s sample
	for _, test := range tests {
		if test.NPrompt > 0 {
			s.prompt = test.TS
		} else {
			s.gen = test.TS
		}
	}
	r.bench = append(r.bench, s)
	return nil
}

func rate(n, ms float64) float64 {
	if ms == 0 {
		return 0
	}
	return n / ms * 1000
}

// process is a program that has run.
type process struct {
	stdout, stderr []byte
	first          float64 // ms to the first byte of stdout
	memory         float64 // MiB
}

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
	head := make([]byte, 1)
	n, readErr := io.ReadFull(pipe, head)
	p.first = float64(time.Since(began).Microseconds()) / 1000
	rest, restErr := io.ReadAll(pipe)
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", filepath.Base(name), err, tail(stderr.Bytes(), 600))
	}
	if err := errors.Join(readErr, restErr); err != nil {
		return nil, fmt.Errorf("%s: nothing on stdout: %w", filepath.Base(name), err)
	}
	p.stdout, p.stderr = append(head[:n], rest...), stderr.Bytes()
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
