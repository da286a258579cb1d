package ggml

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// Against float64, with sizes on both sides of every block of the kernel.
func TestAddLowRank(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	fill := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rnd.NormFloat64())
		}
		return x
	}
	for _, rows := range []int{0, 1, 3, 4, 9} {
		for _, n := range []int{0, 1, 15, 16, 63, 64, 65, 130} {
			for _, r := range []int{0, 1, 7, 16} {
				x, a, b := fill(rows*n), fill(r*n), fill(rows*r)
				got := append([]float32(nil), x...)
				AddLowRank(got, a, b, rows, n, r)
				for i := range rows {
					for j := range n {
						sum, size := 0.0, 0.0
						for k := range r {
							p := float64(b[i*r+k]) * float64(a[k*n+j])
							sum, size = sum+p, size+math.Abs(p)
						}
						want := float64(x[i*n+j]) + sum
						// r roundings of the sum, one of the result: half a unit in the last place each.
						bound := (float64(r)*size + math.Abs(want)) * 6e-8
						if d := math.Abs(float64(got[i*n+j]) - want); d > bound {
							t.Fatalf("%d rows, %d columns, rank %d: [%d, %d] is off by %g, want at most %g", rows, n, r, i, j, d, bound)
						}
					}
				}
			}
		}
	}
}

func TestMaxAbs(t *testing.T) {
	for _, n := range []int{0, 1, 15, 16, 17, 40} {
		for at := range n {
			x := make([]float32, n)
			x[at] = -3
			if got := MaxAbs(x); got != 3 {
				t.Errorf("%d values, -3 at %d: got %g", n, at, got)
			}
			x[at] = float32(math.NaN())
			x[(at+1)%n] = float32(math.Inf(1))
			if got := MaxAbs(x); n > 1 && !math.IsNaN(float64(got)) {
				t.Errorf("%d values, NaN at %d: got %g", n, at, got)
			}
		}
	}
}

func BenchmarkAddLowRank(b *testing.B) {
	for _, r := range []int{8, 16, 64} {
		b.Run(fmt.Sprint(r), func(b *testing.B) {
			const rows, n = 292, 896
			x, a, c := make([]float32, rows*n), make([]float32, r*n), make([]float32, rows*r)
			b.SetBytes(int64(4 * len(x)))
			for b.Loop() {
				AddLowRank(x, a, c, rows, n, r)
			}
			b.ReportMetric(2*float64(rows*n*r)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}

func BenchmarkMaxAbs(b *testing.B) {
	x := make([]float32, 1<<18)
	b.SetBytes(int64(4 * len(x)))
	for b.Loop() {
		MaxAbs(x)
	}
}
