//go:build cgo

package data

import (
	"context"
	"os"
	"testing"

	"gollama/internal/engine"
)

// The run of the reference: the first 60,000 bytes of shakespeare.txt in windows of 256 tokens of
// stories260K, of which llama-finetune trains on 279 and validates on 15.
func TestReferenceWindows(t *testing.T) {
	const shared = "../../../../shared/"
	text, err := os.ReadFile(shared + "data/shakespeare.txt")
	if err != nil {
		t.Skip(err)
	}
	p := engine.DefaultParams()
	p.Model, p.VocabOnly = shared+"models/stories260K.gguf", true
	m, err := engine.LoadModel(context.Background(), &p)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	train, val, err := Windows(m.Vocab(), string(text[:60000]), 256, 0.05)
	if err != nil || train.Len() != 279 || val.Len() != 15 {
		t.Errorf("%d and %d windows, %v, want 279 and 15", train.Len(), val.Len(), err)
	}
	if ex := example(t, train, 0); engine.Token(ex.Tokens[0]) != m.Vocab().BOS() || engine.Token(ex.Tokens[1]) == m.Vocab().BOS() {
		t.Errorf("the first tokens are %v", ex.Tokens[:4])
	}
}
