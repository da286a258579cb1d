package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const trainRate = "training" // tokens/s, of the updates alone

// finetuneCases compares whole runs of one epoch with llama-finetune's on the same windows of the same text, and
// adapters with all weights of a model.
func finetuneCases(b *bench) []contest {
	var list []contest
	for _, t := range []int{1, 2} {
		list = append(list,
			b.trainCase("stories260k", t, t == 2, b.size(60_000, 20_000), 2.5, b.storyModel),
			b.trainCase("25m", t, t == 2, b.size(16_000, 5_000), 1.5, func(ctx context.Context) (string, error) { return b.model(ctx, "25m-f32") }))
	}
	return append(list, b.loraRateCase())
}

// storyModel is a trained model of 260,000 weights that belongs to no package: one is looked for beside the text.
func (b *bench) storyModel(context.Context) (string, error) {
	path := filepath.Join(filepath.Dir(b.text), "..", "models", "stories260K.gguf")
	_, err := os.Stat(path)
	return path, err
}

func (b *bench) trainCase(name string, threads int, quick bool, size int, want float64, model func(context.Context) (string, error)) contest {
	return contest{name: fmt.Sprintf("finetune/%s/t%d", name, threads), quick: quick, about: fmt.Sprintf("one epoch of %d KB in windows of 256 tokens, whole process", size/1000),
		setup: func(ctx context.Context) (*trial, error) {
			m, err := model(ctx)
			if err != nil {
				return nil, err
			}
			text, err := b.textFile(size)
			args := []string{"-m", m, "-f", text, "-c", "256", "-b", "256", "-ub", "256", "-lr", "1e-5", "-wd", "0", "-epochs", "1", "-t", str(threads)}
			const peer = "llama-finetune"
			measures := []measure{faster(peer, want)}
			if name == "25m" {
				measures = append(measures, smaller(peer, 0.7))
			}
			return turns(measures, b.own(append([]string{"finetune", "-q", "-o", b.tmp("ours.gguf")}, args...)...),
				command(peer, b.peer(peer), append([]string{"-o", b.tmp("peer.gguf")}, args...)...)), err
		}}
}

// loraRateCase is about what the optimizer and the weights' gradients cost that an adapter does without.
func (b *bench) loraRateCase() contest {
	steps := b.size(6, 3)
	return contest{name: "finetune/135m-q4_0/lora", quick: true, rounds: b.size(3, 1), about: fmt.Sprintf("%d updates of 256 tokens with 2 threads, rank 16 against all weights", steps),
		setup: func(ctx context.Context) (*trial, error) {
			m, err := b.model(ctx, "135m-q4_0")
			if err != nil {
				return nil, err
			}
			text, err := b.textFile(16_000)
			if err != nil {
				return nil, err
			}
			const peer = "gollama, all weights"
			train := func(name string, more ...string) player {
				return player{name, func(ctx context.Context) (outcome, error) {
					dir := b.tmp("run")
					defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
					args := []string{"finetune", "-q", "-m", m, "-f", text, "-c", "256", "-b", "256", "-t", "2", "-epochs", "1", "--max-steps", str(steps), "--run-dir", dir, "-o", b.tmp("tuned.gguf")}
					p, err := execute(ctx, b.gollama, append(args, more...)...)
					if err != nil {
						return nil, err
					}
					o := p.outcome()
					o[trainRate], err = lastRate(filepath.Join(dir, "metrics.jsonl"))
					return o, err
				}}
			}
			return turns([]measure{compare("training", trainRate, "tok/s", speed, peer, 1.5), smaller(peer, 0)},
				train(ours, "--method", "lora", "--rank", "16"), train(peer)), nil
		}}
}

// lastRate returns the rate of the last report of a training run.
func lastRate(metrics string) (float64, error) {
	text, err := os.ReadFile(metrics)
	if err != nil {
		return 0, err
	}
	rate := 0.0
	for line := range bytes.Lines(text) {
		var m struct {
			Timing *struct {
				Rate float64 `json:"tok_s"`
			} `json:"timing"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return 0, fmt.Errorf("%s: %w", metrics, err)
		}
		if m.Timing != nil && m.Timing.Rate > 0 {
			rate = m.Timing.Rate
		}
	}
	if rate == 0 {
		return 0, errors.New("metrics.jsonl tells no rate")
	}
	return rate, nil
}
