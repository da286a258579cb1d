//go:build cgo && unix

package data

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gollama/internal/engine"
	"gollama/internal/engine/ggml"
)

// loadVocab loads one of the vocabularies that come with the engine's sources.
func loadVocab(t *testing.T, name string) (path string, v *engine.Vocab) {
	t.Helper()
	p := engine.DefaultParams()
	p.Model, p.VocabOnly = filepath.Join("../../../.engine/src/models", "ggml-vocab-"+name+".gguf"), true
	m, err := engine.LoadModel(context.Background(), &p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return p.Model, m.Vocab()
}

// The tokenizer of training data gives llama_tokenize's ids, from several goroutines too.
func TestNewTokenizer(t *testing.T) {
	texts := []string{"", " ", "Once upon a time, 12345 dogs\r\n\n\tran.", "日本語 é\u0301 \xff\xfe", "<s>hi</s><|endoftext|>", strings.Repeat("!?", 500)}
	for name, fast := range map[string]bool{"llama-bpe": true, "llama-spm": true, "qwen2": true, "bert-bge": false} {
		path, v := loadVocab(t, name)
		tok := NewTokenizer(context.Background(), path, v)
		if _, ok := tok.(*fastTokenizer); ok != fast {
			t.Errorf("%s: the fast path: %v, want %v", name, ok, fast)
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for i, text := range texts {
					for special := range 4 {
						add, parse := special&1 != 0, special&2 != 0
						got, err := tok.Tokenize(text, add, parse)
						want, werr := v.Tokenize(text, add, parse)
						if (err != nil) != (werr != nil) || !slices.Equal(got, want) {
							t.Errorf("%s: text %d, add %v, parse %v: %v %v, want %v %v", name, i, add, parse, got, err, want, werr)
						}
					}
				}
			})
		}
		wg.Wait()
	}
}

// A record of 20 MB in one line is refused in seconds: by llama_tokenize it took minutes.
func TestHugeLine(t *testing.T) {
	path, v := loadVocab(t, "llama-spm")
	var file bytes.Buffer
	file.WriteString(`{"text":"`)
	for file.Len() < 20<<20 {
		file.WriteString("What light through yonder window breaks? ")
	}
	file.WriteString("\"}\n")
	name := write(t, "huge.jsonl", file.String())
	before := ggml.ProcessorTime()
	_, _, _, err := Load(context.Background(), Options{Sources: []Source{{Path: name}}, Vocab: NewTokenizer(context.Background(), path, v), MaxLen: 256})
	if err == nil || !strings.Contains(err.Error(), "huge.jsonl:1: ") || !strings.Contains(err.Error(), "at most 257 fit") {
		t.Errorf("error %v", err)
	}
	// About 2 s; a busy machine or the race detector may make it several times that.
	if d := ggml.ProcessorTime() - before; d > 20*time.Second {
		t.Errorf("it took %v of processor time", d)
	}
}
