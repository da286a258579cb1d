//go:build unix

package tokens

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"gollama/internal/engine/ggml"
)

// open opens a vocabulary for a benchmark.
func open(b testing.TB, name string, mode Mode) *Model {
	b.Helper()
	m, err := Open(context.Background(), filepath.Join(vocabDir, "ggml-vocab-"+name+".gguf"), mode)
	if err != nil {
		b.Skip(err)
	}
	b.Cleanup(func() { _ = m.Close() })
	return m
}

// BenchmarkEncode: one document, one goroutine, both ways.
func BenchmarkEncode(b *testing.B) {
	text, err := os.ReadFile("../../../shared/data/war-and-peace.txt")
	if err != nil {
		b.Skip(err)
	}
	for _, name := range []string{"llama-bpe", "qwen2", "llama-spm", "gpt-2", "gemma-4", "deepseek-llm"} {
		for _, mode := range []Mode{Fast, ByEngine} {
			b.Run(fmt.Sprintf("%s/%s", name, map[Mode]string{Fast: "fast", ByEngine: "engine"}[mode]), func(b *testing.B) {
				m := open(b, name, mode)
				b.SetBytes(int64(len(text)))
				var ids []Token
				begin := ggml.ProcessorTime()
				for b.Loop() {
					e := m.NewEncoder() // the word cache starts empty
					if ids, err = e.Encode(ids[:0], text, true); err != nil {
						b.Fatal(err)
					}
				}
				// What another program on the machine leaves alone.
				b.ReportMetric(float64(len(text)*b.N)/(ggml.ProcessorTime()-begin).Seconds()/1e6, "cpuMB/s")
			})
		}
	}
}

// BenchmarkManyDocuments: the lines of eight copies of a book as documents, on
// one core and on two. On a machine that is quiet, the second figure over the
// first is what the second core adds.
func BenchmarkManyDocuments(b *testing.B) {
	text, err := os.ReadFile("../../../shared/data/war-and-peace.txt")
	if err != nil {
		b.Skip(err)
	}
	text = bytes.Repeat(text, 8)
	for _, name := range []string{"llama-bpe", "qwen2", "llama-spm"} {
		m := open(b, name, Fast)
		for _, jobs := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/%d", name, jobs), func(b *testing.B) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(jobs)) // one core is one: reading the lines has no second
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					run := &Run{Model: m, Jobs: jobs, Options: Options{Invalid: KeepOrFail},
						Input: &Input{Files: Names([]string{"-"}), Stdin: bytes.NewReader(text), Split: ByLine},
						Emit:  func(*Batch) error { return nil }}
					if err := run.Do(context.Background()); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkRun: three million equal characters.
func BenchmarkRun(b *testing.B) {
	for _, name := range []string{"llama-bpe", "gemma-4", "llama-spm", "gpt-neox", "deepseek-llm"} {
		m := open(b, name, Fast)
		for _, c := range []string{"a", "1", "!", " ", "\n", "日"} {
			text := bytes.Repeat([]byte(c), 3_000_000)
			b.Run(fmt.Sprintf("%s/%q", name, c), func(b *testing.B) {
				for b.Loop() {
					if _, err := m.NewEncoder().Encode(nil, text, true); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkOpen: from the file to an encoder.
func BenchmarkOpen(b *testing.B) {
	for _, name := range []string{"gemma-4", "llama-bpe", "llama-spm"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				open(b, name, Fast).NewEncoder()
			}
		})
	}
}
