package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// cvectorCases compares control vectors with llama-cvector-generator's, and the solver with a power iteration.
func cvectorCases(b *bench) []contest {
	n := b.size(500, 30)
	return []contest{{name: "cvector-generate/135m-f16/mean", quick: true, rounds: 1, about: fmt.Sprintf("%d pairs, 2 threads", n),
		setup: func(ctx context.Context) (*trial, error) {
			model, err := b.model(ctx, "135m-f16")
			if err != nil {
				return nil, err
			}
			positive, negative, err := b.pairs(n)
			args := []string{"-m", model, "--positive-file", positive, "--negative-file", negative, "--method", "mean", "-t", "2"}
			const peer = "llama-cvector-generator"
			return turns([]measure{faster(peer, 3), smaller(peer, 0.1)},
				b.own(append([]string{"cvector-generate", "-q", "-o", b.tmp("ours-v.gguf")}, args...)...),
				command(peer, b.peer(peer), append([]string{"-o", b.tmp("peer-v.gguf")}, args...)...)), err
		}}, {name: "cvector-generate/pca", quick: true, rounds: b.size(3, 1), about: "a layer of 4,096 values, 1,000 pairs, 2 threads",
		setup: func(ctx context.Context) (*trial, error) {
			power, err := b.powerIteration(ctx)
			const peer = "power iteration"
			return turns([]measure{faster(peer, 20)},
				within(ours, "pca", "-rows", "1000", "-values", "4096"), selfTimed(peer, power, "1000", "4096", "2")), err
		}}}
}

// pairs writes n pairs of texts that differ in mood.
func (b *bench) pairs(n int) (positive, negative string, err error) {
	subjects := []string{"The girl", "My old friend", "A tall man", "The captain of the ship", "Our teacher", "The cat", "Everyone in town"}
	places := []string{"by the sea", "in the kitchen", "at the end of the long road", "under the trees", "in front of the house"}
	var up, down strings.Builder
	for i := range n {
		about := fmt.Sprintf("%s stood %s on day %d and felt", subjects[i%len(subjects)], places[i%len(places)], i)
		fmt.Fprintf(&up, "%s happy and full of hope\n", about)
		fmt.Fprintf(&down, "%s sad and without any hope\n", about)
	}
	positive, negative = b.tmp("positive.txt"), b.tmp("negative.txt")
	if err := os.WriteFile(positive, []byte(up.String()), 0o644); err != nil {
		return "", "", err
	}
	return positive, negative, os.WriteFile(negative, []byte(down.String()), 0o644)
}

// powerIteration returns the path of a program that does what llama-cvector-generator's PCA would, were it right.
func (b *bench) powerIteration(ctx context.Context) (string, error) {
	engine := filepath.Join("..", ".engine")
	lib := filepath.Join(engine, "lib")
	return b.make(ctx, "power-iteration", func(part string) []string {
		return []string{"c++", "-std=c++17", "-O2", "-I" + filepath.Join(engine, "include"), "-o", part, "peers/power/power.cpp",
			"-L" + lib, "-lggml", "-lggml-rpc", "-lggml-cpu", "-lggml-base", "-lpthread", "-ldl", "-lm"}
	})
}
