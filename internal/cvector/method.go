package cvector

import (
	"fmt"
	"math"
	"strings"
)

// Method says how a direction is made of the states of pairs.
type Method int

// The methods. d is the difference of a pair's states, p-n, and m the pair's midpoint.
const (
	// Mean is the mean of d.
	Mean Method = iota
	// PCA is the leading eigenvector of the mean of dd', as llama-cvector-generator means it.
	PCA
	// PCACenter is the same of the states less their pair's midpoint, p-m and n-m (repeng's pca_center). As p-m is d/2
	// and n-m is -d/2, it is the direction of PCA.
	PCACenter
	// CrossCov is the leading eigenvector of the mean of -(pn'+np')/2, the states less their baseline: where positive and
	// negative lie on opposite sides of it. It is the mean of dd'/4 less that of cc', c being the midpoint less the
	// baseline, so what differs from text to text, whatever the side, counts against a direction. The baseline is the
	// pair's own, or else the mean of all states. Source: the matrix of jukofyork/control-vectors, direction_analyzer.py,
	// of which that program then combines several eigenvectors.
	CrossCov
)

var methodNames = []string{"mean", "pca", "pca-center", "cross-cov"}

// MethodNames lists what ParseMethod takes.
func MethodNames() []string { return append([]string{}, methodNames...) }

// ParseMethod reads a name.
func ParseMethod(s string) (Method, error) { return parseName[Method](s, methodNames) }

func (m Method) String() string { return methodNames[m] }

// Scale says how long a direction is.
type Scale int

// The scales, for a unit vector v.
const (
	// Proj makes v as long as the mean difference is along it: strength 1 moves a text as far as from the middle of the
	// negative ones to the middle of the positive ones.
	Proj Scale = iota
	// MeanNorm makes it as long as the mean difference, whatever its own direction.
	MeanNorm
	// Unit leaves it at 1, as llama.cpp's and repeng's files have it.
	Unit
)

var scaleNames = []string{"proj", "mean", "unit"}

// ScaleNames lists what ParseScale takes.
func ScaleNames() []string { return append([]string{}, scaleNames...) }

// ParseScale reads a name.
func ParseScale(s string) (Scale, error) { return parseName[Scale](s, scaleNames) }

func (s Scale) String() string { return scaleNames[s] }

func parseName[T ~int](s string, names []string) (T, error) {
	for i, n := range names {
		if s == n {
			return T(i), nil
		}
	}
	return 0, fmt.Errorf("unknown value %q, want one of %s", s, strings.Join(names, ", "))
}

// Samples are the states of one layer: row i of Pos and of Neg come from pair Pair[i]. With baselines, both are less the
// pair's, and Baselines is true.
type Samples struct {
	Pos, Neg  Matrix
	Pair      []int // does not fall
	Baselines bool

	mean []float64 // of Pos-Neg, where it is known in 64 bits
}

// Direction is the direction of one layer and how it came about.
type Direction struct {
	Unit []float64 // of length 1
	Mean []float64 // the mean difference

	// Of the methods that solve for an eigenvector:
	Residual float64 // |Av-λv|/λ
	Steps    int     // applications of A
	Ratio    float64 // square root of the second eigenvalue over the first: near 1, other axes are as good; to about 1e-3
	Share    float64 // share of the mean square of d along the direction
}

// Proj is the mean difference along the direction; its sign is the direction's.
func (d *Direction) Proj() float64 { return dot(d.Unit, d.Mean) }

// Scaled returns the direction at the length that s says.
func (d *Direction) Scaled(s Scale, m Method) []float64 {
	out := append([]float64{}, d.Unit...)
	switch {
	case s == Unit:
	case m == Mean:
		copy(out, d.Mean)
	case s == MeanNorm:
		scal(out, norm(d.Mean))
	default:
		scal(out, d.Proj())
	}
	return out
}

// Solve makes the direction of one layer. Its sign is that of the mean difference. The result does not depend on how
// many threads do other layers meanwhile, and swapping Pos and Neg negates it to the bit. Errors: no samples, a value
// that is not finite, or no contrast.
func Solve(s *Samples, m Method) (*Direction, error) {
	if s.Pos.N == 0 {
		return nil, ErrNoContrast
	}
	rows, err := differences(s)
	if err != nil {
		return nil, err
	}
	d := &Direction{Mean: s.mean}
	if s.mean == nil {
		d.Mean = columnMean(rows)
	}
	if m == Mean {
		return d, d.fromMean(rows)
	}
	apply := secondMoment(rows)
	if m == CrossCov {
		apply = crossMoment(s)
	}
	e, err := d.solve(rows, apply, Residual)
	if err == nil {
		d.Ratio = second(rows, apply, e)
	}
	return d, err
}

// rough is the residual that is good enough for a direction that is only compared with others.
const rough = 1e-6

// unit is Solve for a unit vector alone, to rough.
func unit(s *Samples, m Method) ([]float64, error) {
	rows, err := differences(s)
	if err != nil {
		return nil, err
	}
	d := &Direction{Mean: columnMean(rows)}
	switch m {
	case Mean:
		err = d.fromMean(rows)
	case CrossCov:
		_, err = d.solve(rows, crossMoment(s), rough)
	default:
		_, err = d.solve(rows, secondMoment(rows), rough)
	}
	return d.Unit, err
}

func (d *Direction) fromMean(rows Matrix) error {
	n := norm(d.Mean)
	if n == 0 {
		return ErrNoContrast
	}
	d.Unit = append([]float64{}, d.Mean...)
	scal(d.Unit, 1/n)
	d.Share = share(rows, d.Unit)
	return nil
}

// solve finds the leading eigenvector of apply.
func (d *Direction) solve(rows Matrix, apply operator, tol float64) (eigen, error) {
	start := mixed(rows)
	if n := norm(d.Mean); n > 0 {
		scal(start, 0.1/math.Max(norm(start), math.SmallestNonzeroFloat64))
		axpy(start, 1/n, d.Mean)
	}
	if norm(start) == 0 {
		return eigen{}, ErrNoContrast
	}
	e, err := lanczos(apply, start, tol, maxSteps)
	if err != nil {
		return e, err
	}
	d.Unit, d.Residual, d.Steps = e.vector, e.residual, e.steps
	if dot(d.Unit, d.Mean) < 0 {
		scal(d.Unit, -1)
	}
	d.Share = share(rows, d.Unit)
	return e, nil
}

// second returns the root of the second eigenvalue over the first, 0 if not both are positive.
func second(rows Matrix, apply operator, first eigen) float64 {
	if first.value < 0 {
		return 0
	}
	without := func(y, x []float64) {
		apply(y, x)
		axpy(y, -first.value*dot(first.vector, x), first.vector)
	}
	start := mixed(rows)
	before := norm(start)
	for range 2 {
		axpy(start, -dot(start, first.vector), first.vector)
	}
	if norm(start) <= 1e-12*before {
		return 0 // one axis is all there is
	}
	e, err := lanczos(without, start, 1e-4, 60)
	if err != nil || e.value < 0 {
		return 0
	}
	return math.Sqrt(e.value / first.value)
}

// differences returns p-n, rounded to 32 bits as the states are.
func differences(s *Samples) (Matrix, error) {
	rows := NewMatrix(s.Pos.N, s.Pos.E)
	for i, p := range s.Pos.Data {
		d := p - s.Neg.Data[i]
		if d-d != 0 { // infinite or no number
			return rows, fmt.Errorf("the state of pair %d, element %d, is not finite", s.Pair[i/rows.E]+1, i%rows.E)
		}
		rows.Data[i] = d
	}
	return rows, nil
}

func columnMean(m Matrix) []float64 {
	sum := make([]float64, m.E)
	for i := range m.N {
		addRow(sum, 1, m.Row(i))
	}
	scal(sum, 1/float64(m.N))
	return sum
}

// secondMoment applies the sum of dd'.
func secondMoment(rows Matrix) operator {
	return func(y, x []float64) {
		clear(y)
		for i := range rows.N {
			r := rows.Row(i)
			addRow(y, dotRow(r, x), r)
		}
	}
}

// crossMoment applies the sum of -(pn'+np')/2, the states less their common mean unless they are less a baseline.
func crossMoment(s *Samples) operator {
	center := make([]float64, s.Pos.E)
	if !s.Baselines {
		for i := range s.Pos.N {
			p, n := s.Pos.Row(i), s.Neg.Row(i)
			for k := range center { // in one sum, so that swapping the sides changes no bit
				center[k] += float64(p[k]) + float64(n[k])
			}
		}
		scal(center, 1/float64(2*s.Pos.N))
	}
	return func(y, x []float64) {
		clear(y)
		off := dot(center, x)
		var sum float64
		for i := range s.Pos.N {
			p, n := s.Pos.Row(i), s.Neg.Row(i)
			a, b := dotRow(p, x)-off, dotRow(n, x)-off
			for k := range y {
				y[k] -= (a*float64(n[k]) + b*float64(p[k])) / 2
			}
			sum += a + b
		}
		axpy(y, sum/2, center)
	}
}

// mixed returns a sum of the rows with random signs, always the same ones: a start that no eigenvector is orthogonal to
// by the nature of the data, and that turns with the rows.
func mixed(rows Matrix) []float64 {
	v := make([]float64, rows.E)
	state := uint64(0x9e3779b97f4a7c15)
	for i := range rows.N {
		state ^= state << 13 // xorshift64 (Marsaglia, 2003)
		state ^= state >> 7
		state ^= state << 17
		addRow(v, float64(int64(state))/(1<<63), rows.Row(i))
	}
	return v
}

// share returns the share of the mean square of the rows along v.
func share(rows Matrix, v []float64) float64 {
	var along, all float64
	for i := range rows.N {
		r := rows.Row(i)
		a := dotRow(r, v)
		along += a * a
		for _, x := range r {
			all += float64(x) * float64(x)
		}
	}
	if all == 0 {
		return 0
	}
	return along / all
}
