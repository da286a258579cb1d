package cvector

import "math"

// tridiagonal is a symmetric matrix with a on the diagonal and b beside it: len(b) is len(a)-1.
type tridiagonal struct{ a, b []float64 }

// above returns how many eigenvalues are larger than x: the signs of the pivots of T - xI (Sturm).
func (t tridiagonal) above(x float64) int {
	const tiny = 1e-290 // in place of a pivot of 0
	n, d := 0, 1.0
	for i, a := range t.a {
		d = a - x - off(t.b, i-1)*off(t.b, i-1)/d
		if d == 0 {
			d = -tiny
		}
		if d > 0 {
			n++
		}
	}
	return n
}

// off returns b[i], or 0 outside.
func off(b []float64, i int) float64 {
	if i < 0 || i >= len(b) {
		return 0
	}
	return b[i]
}

// value returns the k-th largest eigenvalue, k from 0, to the last bits: a number that is not below it.
func (t tridiagonal) value(k int) float64 {
	lo, hi := math.Inf(1), math.Inf(-1)
	for i, a := range t.a { // Gershgorin
		r := math.Abs(off(t.b, i-1)) + math.Abs(off(t.b, i))
		lo, hi = math.Min(lo, a-r), math.Max(hi, a+r)
	}
	slack := 1e-14 * math.Max(math.Abs(lo), math.Abs(hi))
	lo, hi = lo-slack, hi+slack
	for range 120 {
		mid := lo + (hi-lo)/2
		if mid <= lo || mid >= hi {
			break
		}
		if t.above(mid) > k {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}

// vector returns the unit eigenvector of the largest eigenvalue. T minus that value has no positive pivot, so its
// factors from the top (p) and from the bottom (q) are both stable, and joining them where the twisted pivot is smallest
// gives the vector without a linear system to solve (Parlett and Dhillon, "Relatively robust representations of
// symmetric tridiagonals", 2000).
func (t tridiagonal) vector(value float64) []float64 {
	n := len(t.a)
	p, q := make([]float64, n), make([]float64, n)
	// A little above the value no pivot is lost in rounding, and the vector is off by as little.
	var scale float64
	for i := range n {
		scale = math.Max(scale, math.Abs(t.a[i])+math.Abs(off(t.b, i)))
	}
	least := math.Max(1e-16*scale, math.SmallestNonzeroFloat64)
	value += 10 * least
	for i := range n {
		p[i] = t.a[i] - value
		if i > 0 {
			p[i] -= t.b[i-1] * t.b[i-1] / p[i-1]
		}
		p[i] = math.Min(p[i], -least)
	}
	for i := n - 1; i >= 0; i-- {
		q[i] = t.a[i] - value
		if i < n-1 {
			q[i] -= t.b[i] * t.b[i] / q[i+1]
		}
		q[i] = math.Min(q[i], -least)
	}
	k, best := 0, math.Inf(1)
	for i := range n {
		if g := math.Abs(p[i] + q[i] - (t.a[i] - value)); g < best {
			k, best = i, g
		}
	}
	z := make([]float64, n)
	z[k] = 1
	for i := k - 1; i >= 0; i-- {
		z[i] = -t.b[i] * z[i+1] / p[i]
	}
	for i := k + 1; i < n; i++ {
		z[i] = -t.b[i-1] * z[i-1] / q[i]
	}
	scal(z, 1/norm(z))
	return z
}
