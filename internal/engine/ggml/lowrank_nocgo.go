//go:build !cgo

package ggml

import "math"

func addLowRank(x, a, b []float32, rows, n, r int) {
	for i := range rows {
		for j := range n {
			s := float32(0)
			for k := range r {
				s += b[i*r+k] * a[k*n+j]
			}
			x[i*n+j] += s
		}
	}
}

func maxAbsBits(x []float32) uint32 {
	best := uint32(0)
	for _, v := range x {
		best = max(best, math.Float32bits(v)&0x7fffffff)
	}
	return best
}
