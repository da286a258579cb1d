//go:build cgo

package graph

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"gollama/internal/opt/data"
)

// storyPath is the model S that the project measures with.
const storyPath = "../../../../shared/models/stories260K.gguf"

func windowOf(m *Model, n int) *data.Example {
	r := rand.New(rand.NewPCG(1, 0))
	ex := &data.Example{}
	for range n {
		ex.Tokens = append(ex.Tokens, r.Int32N(int32(m.Hparams.NVocab)))
		ex.Labels = append(ex.Labels, r.Int32N(int32(m.Hparams.NVocab)))
	}
	return ex
}

func benchStep(b *testing.B, m *Model, n int, train bool) {
	ex := windowOf(m, n)
	ctx := context.Background()
	best := time.Duration(math.MaxInt64) // of one pass: what a busy machine comes to when it is left alone
	for b.Loop() {
		var err error
		start := time.Now()
		if train {
			m.ZeroGrad()
			_, err = m.Backward(ctx, ex, 1.0/float64(n), 1)
		} else {
			_, err = m.Loss(ctx, ex)
		}
		if err != nil {
			b.Fatal(err)
		}
		best = min(best, time.Since(start))
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "tok/s")
	b.ReportMetric(float64(n)/best.Seconds(), "best-tok/s")
}

// BenchmarkStep measures passes over windows of 256 tokens: of S, of a new
// model of 25M and, as an adapter, of the file in GRAPH_BENCH_MODEL.
func BenchmarkStep(b *testing.B) {
	for _, threads := range []int{1, 2} {
		cfg := Config{Threads: threads}
		b.Run(fmt.Sprintf("S/%d", threads), func(b *testing.B) {
			if _, err := os.Stat(storyPath); err != nil {
				b.Skip(err)
			}
			benchStep(b, open(b, storyPath, cfg), 256, true)
		})
		b.Run(fmt.Sprintf("S-loss/%d", threads), func(b *testing.B) {
			if _, err := os.Stat(storyPath); err != nil {
				b.Skip(err)
			}
			benchStep(b, open(b, storyPath, cfg), 256, false)
		})
		b.Run(fmt.Sprintf("25M/%d", threads), func(b *testing.B) {
			m, err := New(Hparams{Arch: "llama", NVocab: 32000, NEmbd: 256, NLayer: 6, NHead: 8, NFF: 1024, NCtxTrain: 2048}, cfg)
			if err != nil {
				b.Fatal(err)
			}
			defer m.Close() //nolint:errcheck // a benchmark
			benchStep(b, m, 256, true)
		})
		path := os.Getenv("GRAPH_BENCH_MODEL")
		if path == "" {
			continue
		}
		b.Run(fmt.Sprintf("full/%d", threads), func(b *testing.B) { benchStep(b, open(b, path, cfg), 256, true) })
		b.Run(fmt.Sprintf("lora/%d", threads), func(b *testing.B) {
			c := cfg
			c.LoRA = &LoRA{Rank: 16, Alpha: 32}
			benchStep(b, open(b, path, c), 256, true)
		})
	}
}
