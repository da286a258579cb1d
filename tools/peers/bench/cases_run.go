package main

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Quantities of generation.
const (
	promptRate = "prompt"     // tokens/s
	genRate    = "generation" // tokens/s, from the first byte of text to the last; llama-bench's are without sampling
	firstByte  = "first byte" // ms after the start of the process
)

// runCases compares `gollama run` with llama-completion, and with llama-bench, which evaluates without sampling.
func runCases(b *bench) []contest {
	models := []string{"135m-f16", "135m-q8_0", "135m-q4_k_m", "0.5b-f16", "0.5b-q8_0", "0.5b-q4_k_m"}
	if len(b.models) > 0 {
		models = b.models
	}
	var list []contest
	for _, model := range models {
		for _, t := range []int{1, 2} {
			quick := model == "135m-q4_k_m" && t == 1 || model == "135m-q8_0" && t == 2
			list = append(list, b.runCase(model, t, quick))
		}
	}
	return append(list, b.busyCase())
}

// runBench is one model with a number of threads.
type runBench struct {
	*bench
	model, prompt string
	threads       string
	nPrompt, nGen int
}

func (b *bench) runBench(ctx context.Context, model string, threads int) (*runBench, error) {
	r := &runBench{bench: b, threads: str(threads), nPrompt: b.size(256, 128), nGen: b.size(64, 32)}
	var err error
	if r.model = model; !strings.HasSuffix(model, ".gguf") {
		if r.model, err = b.model(ctx, model); err != nil {
			return nil, err
		}
	}
	r.prompt, err = b.wordFile(r.nPrompt)
	return r, err
}

func (b *bench) runCase(model string, threads int, quick bool) contest {
	return contest{
		name: fmt.Sprintf("run/%s/t%d", short(model), threads), quick: quick || len(b.models) > 0,
		about: fmt.Sprintf("prompt of %d tokens, %d generated", b.size(256, 128), b.size(64, 32)),
		setup: func(ctx context.Context) (*trial, error) {
			r, err := b.runBench(ctx, model, threads)
			if err != nil {
				return nil, err
			}
			const completion, engine = "llama-completion", "llama-bench"
			return turns([]measure{
				compare("prompt", promptRate, "tok/s", speed, completion, 1),
				compare("prompt", promptRate, "tok/s", speed, engine, 1),
				compare("generation", genRate, "tok/s", speed, completion, 1),
				compare("generation", genRate, "tok/s", speed, engine, 1),
				compare("first byte", firstByte, "ms", amount, completion, 1),
				smaller(completion, 1.05),
			}, player{ours, r.gollama}, player{completion, r.completion}, player{engine, r.llamaBench}), nil
		},
	}
}

// busyCase asks what is left of the speed when others want the same cores.
func (b *bench) busyCase() contest {
	return contest{name: "run/135m-q8_0/t2/busy", about: "beside two processes at full load", quick: true,
		setup: func(ctx context.Context) (*trial, error) {
			r, err := b.runBench(ctx, "135m-q8_0", 2)
			if err != nil {
				return nil, err
			}
			const quiet, completion = "gollama, quiet", "llama-completion, busy"
			return turns([]measure{
				compare("generation", genRate, "tok/s", speed, quiet, 0.333),
				compare("generation", genRate, "tok/s", speed, completion, 1),
			}, player{ours, busily(r.gollama)}, player{quiet, r.gollama}, player{completion, busily(r.completion)}), nil
		}}
}

// busily runs a player beside two processes that take all the time they get.
func busily(run func(context.Context) (outcome, error)) func(context.Context) (outcome, error) {
	return func(ctx context.Context) (outcome, error) {
		stop, err := startBusy(2)
		if err != nil {
			return nil, err
		}
		defer stop()
		return run(ctx)
	}
}

func (r *runBench) args() []string {
	return []string{"-m", r.model, "-f", r.prompt, "-n", str(r.nGen), "-c", "1024", "-t", r.threads, "--temp", "0", "--ignore-eos"}
}

// ownLine matches "prompt 56 tokens (123.4 a second)".
var ownLine = regexp.MustCompile(`prompt \d+ tokens \(([0-9.]+) a second\)`)

func (r *runBench) gollama(ctx context.Context) (outcome, error) {
	p, err := start(ctx, r.bench.gollama, append([]string{"run", "-lv", "3"}, r.args()...)...)
	if err != nil {
		return nil, err
	}
	m := ownLine.FindSubmatch(p.stderr)
	if m == nil {
		return nil, fmt.Errorf("no timings on stderr:\n%s", tail(p.stderr, 600))
	}
	o := p.outcome()
	o[promptRate], o[genRate], o[firstByte] = number(m[1]), p.rate(r.nGen), p.first
	return o, nil
}

// promptLine matches "prompt eval time = 12.34 ms / 56 tokens".
var promptLine = regexp.MustCompile(`prompt eval time = +([0-9.]+) ms / +([0-9]+) tokens`)

// completion runs llama-completion, again if need be: its logger at times loses the timings at exit.
func (r *runBench) completion(ctx context.Context) (outcome, error) {
	const tries = 5
	for range tries {
		p, err := start(ctx, r.peer("llama-completion"), append(r.args(), "-no-cnv", "--no-display-prompt", "--perf")...)
		if err != nil {
			return nil, err
		}
		m := promptLine.FindSubmatch(p.stderr)
		if m == nil {
			continue
		}
		o := p.outcome()
		o[promptRate], o[genRate], o[firstByte] = perSecond(number(m[2]), number(m[1])), p.rate(r.nGen), p.first
		return o, nil
	}
	return nil, fmt.Errorf("no timings on stderr in %d runs", tries)
}

// llamaBench runs llama-bench, whose generation starts at the depth where that of the others starts.
func (r *runBench) llamaBench(ctx context.Context) (outcome, error) {
	args := []string{"-m", r.model, "-t", r.threads, "-r", "1", "-o", "json"}
	prompt, err := benchRate(ctx, r.peer("llama-bench"), append(args, "-n", "0", "-p", str(r.nPrompt)))
	if err != nil {
		return nil, err
	}
	gen, err := benchRate(ctx, r.peer("llama-bench"), append(args, "-p", "0", "-n", str(r.nGen), "-d", str(r.nPrompt)))
	return outcome{promptRate: prompt, genRate: gen}, err
}

func benchRate(ctx context.Context, program string, args []string) (float64, error) {
	p, err := start(ctx, program, args...)
	if err != nil {
		return 0, err
	}
	var tests []struct {
		TS float64 `json:"avg_ts"`
	}
	if err := json.Unmarshal(p.stdout, &tests); err != nil || len(tests) != 1 {
		return 0, fmt.Errorf("-o json: %d tests, want 1: %w", len(tests), err)
	}
	return tests[0].TS, nil
}

// number reads what a pattern let through as a number.
func number(b []byte) float64 {
	v, _ := strconv.ParseFloat(string(b), 64)
	return v
}
