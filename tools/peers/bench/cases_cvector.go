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
	return []contest{
		b.meanCase("135m-f16", "mean", fmt.Sprintf("%d pairs of about 18 tokens, 2 threads", n), func() (string, string, error) { return b.pairs(n) }),
		b.meanCase("135m-q8_0", "mean-truncated", fmt.Sprintf("%d pairs, %d texts cut after each word, 2 threads", n, (n+textWords-1)/textWords),
			func() (string, string, error) { return b.truncatedPairs(n) }),
		b.pcaCase(),
	}
}

// meanCase runs the whole tool on pairs of texts.
func (b *bench) meanCase(model, name, about string, pairs func() (positive, negative string, err error)) contest {
	return contest{name: "cvector-generate/" + model + "/" + name, quick: true, rounds: 1, about: about,
		setup: func(ctx context.Context) (*trial, error) {
			path, err := b.model(ctx, model)
			if err != nil {
				return nil, err
			}
			positive, negative, err := pairs()
			args := []string{"-m", path, "--positive-file", positive, "--negative-file", negative, "--method", "mean", "-t", "2"}
			const peer = "llama-cvector-generator"
			return turns([]measure{faster(peer, 3), smaller(peer, 0.1)},
				b.own(append([]string{"cvector-generate", "-q", "-o", b.tmp("ours-v.gguf")}, args...)...),
				command(peer, b.peer(peer), append([]string{"-o", b.tmp("peer-v.gguf")}, args...)...)), err
		}}
}

func (b *bench) pcaCase() contest {
	return contest{name: "cvector-generate/pca", quick: true, rounds: b.size(3, 1), about: "a layer of 4,096 values, 1,000 pairs, 2 threads",
		setup: func(ctx context.Context) (*trial, error) {
			power, err := b.powerIteration(ctx)
			const peer = "power iteration"
			return turns([]measure{faster(peer, 20)},
				within(ours, "pca", "-rows", "1000", "-values", "4096"), selfTimed(peer, power, "1000", "4096", "2")), err
		}}
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
	return b.pairFiles(up.String(), down.String())
}

const textWords = 42 // of each text of truncatedPairs

// truncatedPairs writes n pairs as repeng's guide makes them: a persona, and a text that is cut after its first word, its
// second and so on, so that the answers of a persona are seen at every place.
func (b *bench) truncatedPairs(n int) (positive, negative string, err error) {
	text, err := b.firstBytes(100_000)
	if err != nil {
		return "", "", err
	}
	list := strings.Fields(string(text))
	list = list[len(list)/4:] // a book begins with names and numbers
	if len(list) < n+textWords {
		return "", "", fmt.Errorf("-text %s: too short for %d pairs", b.text, n)
	}
	var up, down strings.Builder
	for i := range n {
		first := i / textWords * textWords
		rest := strings.Join(list[first:first+i%textWords+1], " ")
		fmt.Fprintf(&up, "Act as if you are extremely happy. %s\n", rest)
		fmt.Fprintf(&down, "Act as if you are extremely sad. %s\n", rest)
	}
	return b.pairFiles(up.String(), down.String())
}

func (b *bench) pairFiles(up, down string) (positive, negative string, err error) {
	positive, negative = b.tmp("positive.txt"), b.tmp("negative.txt")
	if err := os.WriteFile(positive, []byte(up), 0o644); err != nil {
		return "", "", err
	}
	return positive, negative, os.WriteFile(negative, []byte(down), 0o644)
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
