package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/tiktoken-go/tokenizer"

	"gollama/internal/cvector"
	"gollama/internal/engine/ggml"
	"gollama/internal/imatrix"
	"gollama/internal/tokens"
)

// insideArg makes this program a player of what is measured within a process: without its start, its files and, for
// the memory of this one, in a process of its own.
const insideArg = "-inside"

// insides are what such a process does: it returns how often and says what is timed.
var insides = map[string]func(args []string) (*timed, error){"tokenize": insideTokenize, "pca": insidePCA, "shards": insideShards}

// timed is work that is repeated n times and timed.
type timed struct {
	n    int
	work func() error
}

// inside does one of insides and writes the time of one repetition to w.
func inside(args []string, w io.Writer) error {
	if len(args) == 0 || insides[args[0]] == nil {
		return errors.New(insideArg + ": want tokenize, pca or shards")
	}
	t, err := insides[args[0]](args[1:])
	if err != nil {
		return err
	}
	before, began := ggml.ProcessorTime(), time.Now()
	for range t.n {
		if err := t.work(); err != nil {
			return err
		}
	}
	n := float64(t.n)
	return json.NewEncoder(w).Encode(outcome{wall: time.Since(began).Seconds() / n, cpu: (ggml.ProcessorTime() - before).Seconds() / n})
}

// within is a player that is this program with insideArg.
func within(name string, args ...string) player {
	return player{name, func(ctx context.Context) (outcome, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		return selfTimed(name, self, append([]string{insideArg}, args...)...).run(ctx)
	}}
}

// selfTimed is a player that writes its times itself, as JSON.
func selfTimed(name, program string, args ...string) player {
	return player{name, func(ctx context.Context) (outcome, error) {
		p, err := start(ctx, program, args...)
		if err != nil {
			return nil, err
		}
		o := p.outcome()
		return o, json.Unmarshal(p.stdout, &o)
	}}
}

// insideTokenize encodes a file: -mode fast or engine with the vocabulary -m, as one document or the lines of it; or
// with tiktoken-go and its own vocabulary.
func insideTokenize(args []string) (*timed, error) {
	f := flag.NewFlagSet("tokenize", flag.ContinueOnError)
	vocab := f.String("m", "", "vocabulary")
	mode := f.String("mode", "fast", "fast, engine (llama_tokenize) or tiktoken")
	jobs := f.Int("jobs", 0, "each line is a document, and so many are encoded at once, on as many cores; 0: all is one")
	n := f.Int("n", 1, "times")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(f.Arg(0))
	if err != nil {
		return nil, err
	}
	if *mode == "tiktoken" {
		codec, err := tokenizer.Get(tokenizer.Encoding(*vocab))
		if err != nil {
			return nil, err
		}
		s := string(text)
		return &timed{*n, func() error { _, _, err := codec.Encode(s); return err }}, nil
	}
	m, err := tokens.Open(context.Background(), *vocab, map[string]tokens.Mode{"fast": tokens.Fast, "engine": tokens.ByEngine}[*mode])
	if err != nil {
		return nil, err
	}
	if *jobs > 0 {
		runtime.GOMAXPROCS(*jobs) // one core is one: reading the lines has no second
		return &timed{*n, func() error { return encodeLines(m, text, *jobs) }}, nil
	}
	var ids []tokens.Token
	return &timed{*n, func() error {
		ids, err = m.NewEncoder().Encode(ids[:0], text, true) // a new encoder has met no word yet
		return err
	}}, nil
}

func encodeLines(m *tokens.Model, text []byte, jobs int) error {
	run := &tokens.Run{Model: m, Jobs: jobs, Options: tokens.Options{Invalid: tokens.KeepOrFail},
		Input: &tokens.Input{Files: tokens.Names([]string{"-"}), Stdin: bytes.NewReader(text), Split: tokens.ByLine},
		Emit:  func(*tokens.Batch) error { return nil }}
	return run.Do(context.Background())
}

// insidePCA solves for the first axis of rows x values that cvector's benchmark has too: one layer of a large model.
func insidePCA(args []string) (*timed, error) {
	f := flag.NewFlagSet("pca", flag.ContinueOnError)
	rows, values := f.Int("rows", 1000, ""), f.Int("values", 4096, "")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	s := &cvector.Samples{Pos: cvector.NewMatrix(*rows, *values), Neg: cvector.NewMatrix(*rows, *values), Pair: make([]int, *rows)}
	rng := rand.New(rand.NewPCG(42, 42))
	for i := range *rows {
		s.Pair[i] = i
		a, b := 400*rng.NormFloat64(), 200*rng.NormFloat64() // along two axes: 1, 1, ... and 1, -1, 1, ...
		scale := 1 / math.Sqrt(float64(*values))
		for k := range s.Pos.Row(i) {
			s.Pos.Row(i)[k] = float32(rng.NormFloat64() + scale*(a+b*float64(1-2*(k%2))))
		}
	}
	return &timed{1, func() error { _, err := cvector.Solve(s, cvector.PCA); return err }}, nil
}

// insideShards writes importance matrices of the shape of a llama of 8 billion weights: -n files of 512 tokens each to
// a folder.
func insideShards(args []string) (*timed, error) {
	f := flag.NewFlagSet("shards", flag.ContinueOnError)
	n := f.Int("n", 64, "")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	return &timed{1, func() error {
		for k := range *n {
			if err := writeShard(filepath.Join(f.Arg(0), fmt.Sprintf("%02d.gguf", k)), k); err != nil {
				return err
			}
		}
		return nil
	}}, nil
}

func writeShard(path string, k int) error {
	f := &imatrix.File{ChunkSize: 512, Ranges: imatrix.Ranges{"text": {{From: int64(k), To: int64(k) + 1}}}}
	for i := range 32 {
		for _, w := range []struct {
			name  string
			width int
		}{{"attn_k", 4096}, {"attn_output", 4096}, {"attn_q", 4096}, {"attn_v", 4096}, {"ffn_down", 14336}, {"ffn_gate", 4096}, {"ffn_up", 4096}} {
			e := &imatrix.Entry{Name: fmt.Sprintf("blk.%02d.%s.weight", i, w.name), Sum2: make([]float64, w.width), Sum: make([]float64, w.width), Counts: []uint64{512}}
			for j := range e.Sum2 {
				e.Sum2[j], e.Sum[j] = math.Sqrt(float64(j+k)), float64(j)/7
			}
			f.Entries = append(f.Entries, e)
		}
	}
	return f.Write(path, false)
}
