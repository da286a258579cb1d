//go:build cgo

package graph

import (
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"gollama/internal/engine/ggml"
)

// anonymous returns the bytes of memory of this process that are in no file.
func anonymous(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skipf("no memory figures on this system: %v", err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(v)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Skip("no memory figures on this system")
	return 0
}

// A vocabulary of 128k and 512 tokens: dense logits, their gradient and one-hot
// labels alone would be 3 x 251 MiB. The loss is that of all rows at once.
func TestLargeVocabulary(t *testing.T) {
	const vocab, n = 128256, 512
	s := sizes{arch: "llama", embd: 32, layers: 1, heads: 2, kvHeads: 1, dim: 16, ff: 32, typ: ggml.TypeF16, vocab: vocab}
	m := open(t, s.write(t), Config{LoRA: &LoRA{Rank: 4}})
	ex := example(n, 1)
	debug.FreeOSMemory() // what writing the file left would be given back in between
	before := anonymous(t)
	l := backward(t, m, ex, 1, 0)
	if used := anonymous(t) - before; used < 30<<20 || used > 150<<20 { // the logits of a chunk are 31 MiB
		t.Errorf("a pass takes %d MiB, want 30 to 150", used>>20)
	} else {
		t.Logf("a pass takes %d MiB", used>>20)
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
