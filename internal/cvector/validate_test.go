package cvector

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The area under the curve is the share of all comparisons that come out right, counted one by one.
func TestAUC(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 5))
	for range 100 {
		pos, neg := make([]float64, 1+rnd.IntN(20)), make([]float64, 1+rnd.IntN(20))
		for i := range pos {
			pos[i] = float64(rnd.IntN(8))
		}
		for i := range neg {
			neg[i] = float64(rnd.IntN(8))
		}
		var want float64
		for _, p := range pos {
			for _, n := range neg {
				if p > n {
					want++
				} else if p == n {
					want += 0.5
				}
			}
		}
		want /= float64(len(pos) * len(neg))
		if got := auc(pos, neg); math.Abs(got-want) > 1e-12 {
			t.Fatalf("auc(%v, %v) = %g, want %g", pos, neg, got, want)
		}
	}
}

func TestCohensD(t *testing.T) {
	// Means 3 and 1, variances 1 and 4: pooled (1+4)/2.
	if got, want := cohensD([]float64{2, 3, 4}, []float64{-1, 1, 3}), 2/math.Sqrt(2.5); math.Abs(got-want) > 1e-15 {
		t.Errorf("got %g, want %g", got, want)
	}
	if got := cohensD([]float64{1}, []float64{0}); !math.IsNaN(got) {
		t.Errorf("one of each: got %g, want NaN", got)
	}
}

// A contrast that is there separates pairs that were held out; one that is not does no better than chance, which a test
// on the pairs themselves would not show.
func TestValidate(t *testing.T) {
	for m := Mean; m <= CrossCov; m++ {
		good := Validate(draw(11, 60, 50, 1.5, 0.3), m)
		if good.Separation < 0.95 || good.AUC < 0.9 || good.CohensD < 2 || good.SplitHalf < 0.85 {
			t.Errorf("%s: a clear contrast: %.3f %.3f %.3f %.3f", m, good.Separation, good.AUC, good.CohensD, good.SplitHalf)
		}
		none := draw(12, 200, 300, 0, 1)
		bad := Validate(none, m)
		// Of 200 pairs, chance separates 100 with a deviation of 7.
		if math.Abs(bad.Separation-0.5) > 0.15 || math.Abs(bad.AUC-0.5) > 0.15 || math.Abs(bad.SplitHalf) > 0.3 {
			t.Errorf("%s: no contrast: %.3f %.3f %.3f %.3f", m, bad.Separation, bad.AUC, bad.CohensD, bad.SplitHalf)
		}
	}
	v, err := unit(draw(12, 200, 300, 0, 1), Mean)
	if err != nil {
		t.Fatal(err)
	}
	s, right := draw(12, 200, 300, 0, 1), 0
	for i := range s.Pos.N {
		if dotRow(s.Pos.Row(i), v) > dotRow(s.Neg.Row(i), v) {
			right++
		}
	}
	if right < 150 {
		t.Errorf("on the pairs that made it the direction of noise separates %d of 200: the test above shows nothing", right)
	}
}

// Samples of one pair stay in one part: a pair with many samples must not be judged by itself.
func TestValidateGroups(t *testing.T) {
	s := draw(13, 40, 30, 0, 1)
	for i := range s.Pair {
		s.Pair[i] = i / 20 * 7 // two pairs, numbers with a gap
	}
	q := Validate(s, Mean)
	if len(q.Pos) != 40 || math.IsNaN(q.AUC) {
		t.Errorf("%d of 40 samples judged, AUC %g", len(q.Pos), q.AUC)
	}
	for i := range s.Pair {
		s.Pair[i] = 3
	}
	if q := Validate(s, Mean); !math.IsNaN(q.Separation) || q.Pos != nil {
		t.Errorf("one pair: separation %g, want none", q.Separation)
	}
}
