//go:build unix

package tokens

import (
	"bytes"
	"context"
	"math"
	"testing"
	"time"

	"gollama/internal/engine/ggml"
)

// TestLongRuns: equal characters take less than two seconds of processor time for three million of them, which the slow
// tests take, or a share of it: what grows with the square shows in a tenth of them too.
func TestLongRuns(t *testing.T) {
	const limit = longRun * 2 * time.Second / 3_000_000 * raceSlack
	for _, path := range vocabs(t) {
		if slowVocabs[vocabName(path)] != "" {
			continue
		}
		m, err := Open(context.Background(), path, Fast)
		if err != nil {
			t.Fatal(err)
		}
		e := m.NewEncoder()
		var worst time.Duration
		for _, c := range []string{"a", "1", "!", " ", "\n", "日", "é", "́", "$"} {
			text := bytes.Repeat([]byte(c), longRun)
			best := time.Duration(math.MaxInt64)
			for range 3 { // again where others take the cache away
				begin := ggml.ProcessorTime()
				ids, err := e.Encode(nil, text, true)
				if err != nil || len(ids) == 0 {
					t.Errorf("%s: %q: %d ids, %v", vocabName(path), c, len(ids), err)
				}
				if best = min(best, ggml.ProcessorTime()-begin); best < limit {
					break
				}
			}
			worst = max(worst, best)
			if best > limit {
				t.Errorf("%s: %q: %v of processor time", vocabName(path), c, best)
			}
		}
		t.Logf("%s: at most %v", vocabName(path), worst)
	}
}
