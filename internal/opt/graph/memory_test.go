//go:build cgo

package graph

import (
	"math"
	"runtime/debug"
	"testing"

	"gollama/internal/engine/ggml"
)

// A vocabulary of 128k and 512 tokens: dense logits, their gradient and one-hot
// labels alone would be 3 x 251 MiB. The loss is that of all rows at once.
func TestLargeVocabulary(t *testing.T) {
	const vocab, n = 128256, 512
	s := sizes{arch: "llama", embd: 32, layers: 1, heads: 2, kvHeads: 1, dim: 16, ff: 32, typ: ggml.TypeF16, vocab: vocab}
	m := open(t, s.write(t), Config{LoRA: &LoRA{Rank: 4}})
	ex := example(n, 1)
	debug.FreeOSMemory() // what writing the file left would be given back in between
	before := ggml.ProcessMemory("RssAnon")
	l := backward(t, m, ex, 1, 0)
	used := ggml.ProcessMemory("RssAnon") - before // the logits of a chunk are 31 MiB
	if t.Logf("a pass takes %d MiB", used>>20); before > 0 && (used < 30<<20 || used > 150<<20) {
		t.Error("want 30 to 150")
	}
	if m.run.chunk >= n {
		t.Errorf("chunk of %d rows", m.run.chunk)
	}
	ex.Tokens, ex.Labels = ex.Tokens[:40], ex.Labels[:40]
	l = backward(t, m, ex, 1, 0)
	if want := newReference(m).loss(ex); math.Abs(l.Sum-want) > 1e-5*want {
		t.Errorf("loss %.9g, want %.9g", l.Sum, want)
	}
}
