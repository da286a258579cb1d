package cvector

import "math"

// Matrix is N rows of E values, row by row.
type Matrix struct {
	N, E int
	Data []float32 // N*E
}

// NewMatrix returns a matrix of zeros.
func NewMatrix(n, e int) Matrix { return Matrix{N: n, E: e, Data: make([]float32, n*e)} }

// Row returns row i, which is shared with m.
func (m Matrix) Row(i int) []float32 { return m.Data[i*m.E : (i+1)*m.E : (i+1)*m.E] }

// dotRow is the inner product of a row and a vector of the same length, in four partial sums, which is three times as
// fast as one.
func dotRow(x []float32, v []float64) float64 {
	var s0, s1, s2, s3 float64
	v = v[:len(x)]
	i := 0
	for ; i+4 <= len(x); i += 4 {
		s0 += float64(x[i]) * v[i]
		s1 += float64(x[i+1]) * v[i+1]
		s2 += float64(x[i+2]) * v[i+2]
		s3 += float64(x[i+3]) * v[i+3]
	}
	for ; i < len(x); i++ {
		s0 += float64(x[i]) * v[i]
	}
	return (s0 + s1) + (s2 + s3)
}

// addRow adds a*x to y.
func addRow(y []float64, a float64, x []float32) {
	y = y[:len(x)]
	for i, xi := range x {
		y[i] += a * float64(xi)
	}
}

func dot(x, y []float64) float64 {
	var s0, s1, s2, s3 float64
	y = y[:len(x)]
	i := 0
	for ; i+4 <= len(x); i += 4 {
		s0 += x[i] * y[i]
		s1 += x[i+1] * y[i+1]
		s2 += x[i+2] * y[i+2]
		s3 += x[i+3] * y[i+3]
	}
	for ; i < len(x); i++ {
		s0 += x[i] * y[i]
	}
	return (s0 + s1) + (s2 + s3)
}

// axpy adds a*x to y.
func axpy(y []float64, a float64, x []float64) {
	y = y[:len(x)]
	for i, xi := range x {
		y[i] += a * xi
	}
}

func scal(x []float64, a float64) {
	for i := range x {
		x[i] *= a
	}
}

func norm(x []float64) float64 { return math.Sqrt(dot(x, x)) }

// Cosine returns the cosine of the angle between x and y, which are of one length; 0 if one of them is zero.
func Cosine(x, y []float64) float64 {
	n := norm(x) * norm(y)
	if n == 0 {
		return 0
	}
	return dot(x, y) / n
}

// widen returns x in 64 bits.
func widen(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}
