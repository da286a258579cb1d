package completion

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gollama/internal/engine"
)

func TestTopN(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		logits := make([]float32, r.IntN(20))
		want := make([]scored, len(logits))
		for i := range logits {
			logits[i] = float32(r.IntN(5)) // many ties
			want[i] = scored{engine.Token(i), logits[i]}
		}
		slices.SortStableFunc(want, func(a, b scored) int { return int(b.logit - a.logit) })
		n := r.IntN(25)
		want = want[:min(n, len(want))]
		if got := topN(logits, n); !slices.Equal(got, want) {
			t.Fatalf("topN(%v, %d) = %v, want %v", logits, n, got, want)
		}
	}
}

func TestLogSumExp(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, tt := range []struct {
		logits []float32
		want   float64
	}{
		{[]float32{0, 0}, math.Log(2)},
		{[]float32{1000, 1000}, 1000 + math.Log(2)},
		{[]float32{-1000, -inf}, -1000},
		{[]float32{-3, 5, 2.5}, math.Log(math.Exp(-3) + math.Exp(5) + math.Exp(2.5))},
	} {
		got, err := logSumExp(tt.logits)
		// 1e-12: a few roundings of float64 at values up to 1000.
		if err != nil || math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("logSumExp(%v) = %v, %v, want %v", tt.logits, got, err, tt.want)
		}
	}
	for _, bad := range [][]float32{nil, {float32(math.NaN())}, {0, float32(math.NaN())}, {inf, 0}, {-inf, -inf}} {
		if _, err := logSumExp(bad); !errors.Is(err, ErrNaN) {
			t.Errorf("logSumExp(%v): got %v, want %v", bad, err, ErrNaN)
		}
	}
}

func BenchmarkTopN(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	logits := make([]float32, 150000)
	for i := range logits {
		logits[i] = r.Float32()
	}
	for b.Loop() {
		topN(logits, 10)
	}
}
