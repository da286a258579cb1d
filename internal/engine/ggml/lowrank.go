package ggml

import (
	"fmt"
	"math"
)

// AddLowRank adds the product of b, rows x r, and a, r x n, to x, rows x n; all
// are row-major. Each sum is in float32 and added to x once. Only x is
// changed. It panics when a length does not match.
func AddLowRank(x, a, b []float32, rows, n, r int) {
	if rows < 0 || n < 0 || r < 0 || len(x) != rows*n || len(a) != r*n || len(b) != rows*r {
		panic(fmt.Sprintf("ggml: AddLowRank: %d, %d and %d values for %d rows, %d columns, rank %d", len(x), len(a), len(b), rows, n, r))
	}
	if len(x) == 0 || r == 0 {
		return
	}
	addLowRank(x, a, b, rows, n, r)
}

// MaxAbs returns the largest magnitude in x, 0 for none; NaN if there is one.
func MaxAbs(x []float32) float32 {
	if len(x) == 0 {
		return 0
	}
	return math.Float32frombits(maxAbsBits(x))
}
