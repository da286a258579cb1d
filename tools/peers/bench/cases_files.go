package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// exportCases compares `gollama export-lora` with llama-export-lora. What is wanted is wanted with two threads.
func exportCases(b *bench) []contest {
	const peer = "llama-export-lora"
	var list []contest
	for _, t := range []int{1, 2} {
		want := 0.0
		if t == 2 {
			want = 2
		}
		list = append(list, contest{name: fmt.Sprintf("export-lora/0.5b-f16/t%d", t), quick: t == 2, about: "rank 16 into all linears, 994 MB, until they are on the disk",
			setup: func(ctx context.Context) (*trial, error) {
				model, err := b.model(ctx, "0.5b-f16")
				if err != nil {
					return nil, err
				}
				adapter, err := b.adapter(ctx, "0.5b")
				out := b.tmp("merged.gguf")
				args := []string{"-m", model, "--lora", adapter, "-o", out, "-t", str(t)}
				return turns([]measure{faster(peer, want), smaller(peer, 0), smaller("limit", 1)},
					written(out, b.own(append([]string{"export-lora", "-q"}, args...)...)), written(out, command(peer, b.peer(peer), args...)), limit(memory, 143)), err
			}})
	}
	return list
}

// written adds to a player's time what passes until its file is on the disk, since not every program waits for that,
// and takes the file away.
func written(path string, p player) player {
	return player{p.name, func(ctx context.Context) (outcome, error) {
		o, err := p.run(ctx)
		if err != nil {
			return nil, err
		}
		began := time.Now()
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		if err := f.Sync(); err != nil {
			return nil, err
		}
		o[wall] += time.Since(began).Seconds()
		if err := f.Close(); err != nil {
			return nil, err
		}
		return o, os.Remove(path)
	}}
}

// imatrixCases compares with llama-perplexity, which evaluates the same text and collects nothing, and with
// llama-imatrix.
func imatrixCases(b *bench) []contest {
	var list []contest
	for _, model := range []string{"135m-q8_0", "0.5b-q8_0"} {
		for _, t := range []int{1, 2} {
			list = append(list, b.imatrixCase(model, t))
		}
	}
	return append(list, b.mergeCase())
}

func (b *bench) imatrixCase(model string, threads int) contest {
	chunks := b.size(6, 3)
	return contest{name: fmt.Sprintf("imatrix/%s/t%d", model, threads), quick: model == "135m-q8_0" && threads == 2, about: fmt.Sprintf("%d windows of 512 tokens, whole process", chunks),
		setup: func(ctx context.Context) (*trial, error) {
			m, err := b.model(ctx, model)
			if err != nil {
				return nil, err
			}
			text, err := b.textFile(chunks * 512 * 5) // a token has 4 to 5 bytes
			args := []string{"-m", m, "-f", text, "-c", "512", "--chunks", str(chunks), "-t", str(threads)}
			const perplexity, imatrix = "llama-perplexity", "llama-imatrix"
			return turns([]measure{
				faster(perplexity, 0.97),
				faster(imatrix, 1),
				smaller(imatrix, 1),
			}, b.own(append([]string{"imatrix", "-q", "-o", b.tmp("ours.imatrix.gguf")}, args...)...),
				command(perplexity, b.peer(perplexity), args...),
				command(imatrix, b.peer(imatrix), append([]string{"-o", b.tmp("peer.imatrix.gguf")}, args...)...)), err
		}}
}

func (b *bench) mergeCase() contest {
	const n = 64
	return contest{name: "imatrix/merge", quick: true, about: fmt.Sprintf("%d shards of the shape of a llama of 8B", n),
		setup: func(ctx context.Context) (*trial, error) {
			dir := b.tmp("shards")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return nil, err
			}
			if _, err := within("shards", "shards", "-n", str(n), dir).run(ctx); err != nil {
				return nil, err
			}
			shards, err := filepath.Glob(filepath.Join(dir, "*.gguf"))
			if err == nil && len(shards) != n {
				err = fmt.Errorf("%d shards were made, want %d", len(shards), n)
			}
			return turns([]measure{faster("limit", 1)},
				b.own(append([]string{"imatrix", "merge", "-q", "-o", b.tmp("all.gguf")}, shards...)...), limit(wall, 5)), err
		}}
}
