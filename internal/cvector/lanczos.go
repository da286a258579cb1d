package cvector

import (
	"errors"
	"math"
)

// Limits of the solver.
const (
	// Residual is what |Av-λv|/|λ| must come down to.
	Residual = 1e-10
	maxBasis = 400  // vectors that are kept before it starts again from the best one
	maxSteps = 4000 // applications of A in all
)

// ErrNoContrast says that the states of the two sides do not differ.
var ErrNoContrast = errors.New("there is no direction: the hidden states of the two sides do not differ")

// operator sets y to Ax for a symmetric A; x is kept.
type operator func(y, x []float64)

// eigen is what lanczos found.
type eigen struct {
	vector   []float64 // of length 1
	value    float64   // the largest eigenvalue, as v'Av
	residual float64   // |Av-λv|/|λ|
	steps    int       // applications of A
}

// lanczos finds the largest eigenvalue of A (in sign, not in size) and its vector by Lanczos iteration with full
// reorthogonalization in 64 bits, from start, which is not zero, until the residual is tol or below. The way there
// depends on start alone, and turning start's sign turns the vector's and nothing else. A start in the range of A keeps
// the work in it. If the residual does not come down within steps, the best vector comes back with the residual that it
// has. The error is ErrNoContrast if the eigenvalue is 0.
func lanczos(apply operator, start []float64, tol float64, steps int) (eigen, error) {
	n := len(start)
	best := eigen{vector: append([]float64{}, start...), residual: math.Inf(1)}
	w := make([]float64, n)
	for best.residual > tol && best.steps < steps {
		e, exhausted := lanczosRun(apply, best.vector, tol, min(maxBasis, steps-best.steps))
		e.steps += best.steps
		if e.value == 0 || e.value != e.value {
			return e, ErrNoContrast
		}
		apply(w, e.vector)
		axpy(w, -e.value, e.vector)
		e.residual = norm(w) / math.Abs(e.value)
		e.steps++
		stuck := e.residual >= best.residual
		if stuck {
			e.vector, e.value, e.residual = best.vector, best.value, best.residual
		}
		best = e
		if exhausted || stuck {
			break
		}
	}
	return best, nil
}

// lanczosRun is lanczos from one start with one basis. exhausted says that the basis spans all that the start reaches.
func lanczosRun(apply operator, start []float64, tol float64, most int) (e eigen, exhausted bool) {
	q := append([]float64{}, start...)
	scal(q, 1/norm(q))
	basis := [][]float64{q}
	var t tridiagonal
	var scale float64 // of A, so far
	for {
		j := len(basis) - 1
		w := make([]float64, len(q))
		apply(w, basis[j])
		size := norm(w)
		scale = math.Max(scale, size)
		alpha := dot(w, basis[j])
		t.a = append(t.a, alpha)
		for range 2 { // twice is enough (Kahan, Parlett)
			for i := j; i >= 0; i-- {
				axpy(w, -dot(w, basis[i]), basis[i])
			}
		}
		beta := norm(w)
		exhausted = beta <= 1e-14*scale || len(basis) == len(q)
		last := exhausted || len(basis) >= most
		if last || j < 16 || j%4 == 0 {
			e.value = t.value(0)
			s := t.vector(e.value)
			// beta |s_j| is the residual of the Ritz vector, but for rounding: hence the 1/2.
			if last || beta*math.Abs(s[j]) <= tol/2*math.Abs(e.value) {
				e.vector, e.steps = combine(basis, s), len(basis)
				return e, exhausted
			}
		}
		t.b = append(t.b, beta)
		scal(w, 1/beta)
		basis = append(basis, w)
	}
}

// combine returns the sum of s[i] basis[i], of length 1.
func combine(basis [][]float64, s []float64) []float64 {
	v := make([]float64, len(basis[0]))
	for i, q := range basis {
		axpy(v, s[i], q)
	}
	scal(v, 1/norm(v))
	return v
}
