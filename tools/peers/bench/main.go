// Command bench runs gollama and llama.cpp's own tools on the same models, in turns, and prints the ratios of the
// medians: prompt and generation speed, time to the first byte of the answer from the start of the process, and
// peak memory; on a quiet machine and beside processes that take all the processor they can get.
//
//	go run ./peers/bench                         135M and 0.5B in F16, Q8_0 and Q4_K_M, 1 and 2 threads, quiet
//	go run ./peers/bench -busy 2 -threads 2      beside two spinning processes
//	go run ./peers/bench -models /tmp/m.gguf     a model of your own
//	go run ./peers/bench -what records           many prompts in one process: against a process for each, against
//	                                             llama-batched-bench, with a shared prefix, with guessed tokens
//
// Without -models the models are synthetic: made by ../synth and llama-quantize, and kept in the cache folder.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
)

type options struct {
	gollama, peers string
	models         []string
	threads        []int
	repeat         int
	prompt, gen    int // tokens, about; tokens
	ctx            int // tokens
	busy           int // spinning processes
	dir            string
	what           string
	procs          int // of llama-completion, for the 64 records
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == spinArg {
		spin()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if len(o.models) == 0 {
		if o.models, err = synthetic(ctx, o.dir, o.peers); err != nil {
			return err
		}
	}
	parts, err := wantsRecords(o.what)
	if err != nil {
		return err
	}
	if parts != nil {
		return benchRecords(ctx, o, parts)
	}
	prompt, err := writePrompt(o.prompt)
	if err != nil {
		return err
	}
	defer os.Remove(prompt) //nolint:errcheck // a temporary file
	stopBusy, err := startBusy(o.busy)
	if err != nil {
		return err
	}
	defer stopBusy()

	fmt.Printf("%d runs each, in turns, medians; prompt about %d tokens, %d generated; %d busy processes\n\n",
		o.repeat, o.prompt, o.gen, o.busy)
	fmt.Printf("%-22s %2s  %-14s %10s %12s %10s  %s\n", "model", "t", "", "gollama", "completion", "llama-bench", "ratio")
	for _, model := range o.models {
		for _, t := range o.threads {
			rows, err := compare(ctx, o, model, prompt, t)
			if err != nil {
				return fmt.Errorf("%s, %d threads: %w", model, t, err)
			}
			rows.print(strings.TrimSuffix(filepath.Base(model), ".gguf"), t)
		}
	}
	return nil
}

func parse(args []string) (options, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return options{}, err
	}
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.StringVar(&o.gollama, "gollama", "../gollama", "program to measure; empty: the peers alone")
	f.StringVar(&o.peers, "peers", "../.peers", "folder with llama-completion and llama-bench")
	models := f.String("models", "", "GGUF files, separated by commas")
	threads := f.String("threads", "1,2", "numbers of threads")
	f.IntVar(&o.repeat, "n", 5, "runs of each program")
	f.IntVar(&o.prompt, "prompt", 256, "length of the prompt in words of about a token")
	f.IntVar(&o.gen, "gen", 64, "tokens to generate")
	f.IntVar(&o.ctx, "c", 1024, "context in tokens")
	f.IntVar(&o.busy, "busy", 0, "processes that spin meanwhile")
	f.StringVar(&o.dir, "dir", filepath.Join(cache, "gollama", "bench"), "where the synthetic models are kept (2.5 GB)")
	f.StringVar(&o.what, "what", "single", "single, records, or some of processes, batched, prefix, deterministic, lookup, draft")
	f.IntVar(&o.procs, "procs", nRecords, "-what processes: how many to run, and to take for all 64")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if *models != "" {
		o.models = strings.Split(*models, ",")
	}
	for s := range strings.SplitSeq(*threads, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return o, fmt.Errorf("-threads %q: want numbers from 1, separated by commas", *threads)
		}
		o.threads = append(o.threads, n)
	}
	if f.NArg() != 0 || o.repeat < 1 || o.prompt < 1 || o.gen < 1 || o.procs < 1 || o.procs > nRecords {
		return o, fmt.Errorf("want no arguments, -n, -prompt and -gen from 1, and -procs from 1 to %d", nRecords)
	}
	return o, nil
}

// writePrompt writes a text of n common words to a temporary file and returns its name.
func writePrompt(n int) (string, error) {
	words := strings.Fields("the people of this little town went to see what had come down from the hill in the night and " +
		"found only some water and a white stone that no one could move by hand or with all the horses they had")
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(words[i%len(words)])
	}
	f, err := os.CreateTemp("", "bench-*.txt")
	if err != nil {
		return "", err
	}
	if _, err := f.WriteString(b.String()); err != nil {
		return "", errors.Join(err, f.Close())
	}
	return f.Name(), f.Close()
}
