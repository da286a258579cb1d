package cvector

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// jacobi returns the eigenvalues of a symmetric n x n matrix and, as rows, its vectors, by Jacobi's rotations: slow and
// as exact as 64 bits are.
func jacobi(a [][]float64) (values []float64, vectors [][]float64) {
	n := len(a)
	v := make([][]float64, n)
	for i := range v {
		v[i] = make([]float64, n)
		v[i][i] = 1
	}
	for range 60 {
		var off float64
		for p := range n {
			for q := p + 1; q < n; q++ {
				off += a[p][q] * a[p][q]
				if math.Abs(a[p][q]) < 1e-300 {
					continue
				}
				theta := (a[q][q] - a[p][p]) / (2 * a[p][q])
				t := math.Copysign(1, theta) / (math.Abs(theta) + math.Hypot(1, theta))
				c := 1 / math.Hypot(1, t)
				s := t * c
				for k := range n {
					a[k][p], a[k][q] = c*a[k][p]-s*a[k][q], s*a[k][p]+c*a[k][q]
				}
				for k := range n {
					a[p][k], a[q][k] = c*a[p][k]-s*a[q][k], s*a[p][k]+c*a[q][k]
					v[p][k], v[q][k] = c*v[p][k]-s*v[q][k], s*v[p][k]+c*v[q][k]
				}
			}
		}
		if off < 1e-26 {
			break
		}
	}
	for i := range n {
		values = append(values, a[i][i])
	}
	return values, v
}

// largest returns the largest eigenvalue, the second, and the vector of the first.
func largest(a [][]float64) (first, second float64, v []float64) {
	values, vectors := jacobi(a)
	best := slices.Index(values, slices.Max(values))
	first, v = values[best], vectors[best]
	if len(values) > 1 {
		second = slices.Max(slices.Delete(slices.Clone(values), best, best+1))
	}
	return first, second, v
}

// draw makes samples of n pairs: states of their own, a common contrast along one axis, and noise.
func draw(seed uint64, n, e int, contrast, noise float64) *Samples {
	rnd := rand.New(rand.NewPCG(seed, 1))
	axis := make([]float64, e)
	for i := range axis {
		axis[i] = rnd.NormFloat64()
	}
	scal(axis, 1/norm(axis))
	s := &Samples{Pos: NewMatrix(n, e), Neg: NewMatrix(n, e)}
	for i := range n {
		s.Pair = append(s.Pair, i)
		a := contrast * (1 + 0.3*rnd.NormFloat64())
		for k := range e {
			topic := rnd.NormFloat64()
			s.Pos.Row(i)[k] = float32(topic + a*axis[k] + noise*rnd.NormFloat64())
			s.Neg.Row(i)[k] = float32(topic - a*axis[k] + noise*rnd.NormFloat64())
		}
	}
	return s
}

func diffRows(s *Samples) [][]float64 {
	var rows [][]float64
	for i := range s.Pos.N {
		r := make([]float64, s.Pos.E)
		for k := range r {
			r[k] = float64(s.Pos.Row(i)[k] - s.Neg.Row(i)[k])
		}
		rows = append(rows, r)
	}
	return rows
}

func square(n int) [][]float64 {
	m := make([][]float64, n)
	for i := range m {
		m[i] = make([]float64, n)
	}
	return m
}

// moments returns the sum of (xy'+yx')/2.
func moments(x, y [][]float64) [][]float64 {
	m := square(len(x[0]))
	for i := range x {
		for a := range m {
			for b := range m {
				m[a][b] += (x[i][a]*y[i][b] + y[i][a]*x[i][b]) / 2
			}
		}
	}
	return m
}

// less returns the rows of m less c(i).
func less(m Matrix, c func(i, k int) float64) [][]float64 {
	var rows [][]float64
	for i := range m.N {
		r := make([]float64, m.E)
		for k := range r {
			r[k] = float64(m.Row(i)[k]) - c(i, k)
		}
		rows = append(rows, r)
	}
	return rows
}

// The directions are those that Jacobi's method finds in the whole matrix, made as the method's definition says.
func TestSolve(t *testing.T) {
	for _, tt := range []struct {
		name string
		s    *Samples
	}{
		{"few pairs", draw(1, 4, 64, 1, 0.3)},
		{"more pairs than elements", draw(2, 90, 24, 0.7, 0.5)},
		{"mostly noise", draw(3, 40, 48, 0.05, 1)},
		{"two pairs", draw(4, 2, 16, 1, 0.1)},
		{"one element", draw(5, 9, 1, 1, 0.1)},
	} {
		s := tt.s
		middle := func(i, k int) float64 { return (float64(s.Pos.Row(i)[k]) + float64(s.Neg.Row(i)[k])) / 2 }
		all := func(_, k int) float64 {
			var sum float64
			for i := range s.Pos.N {
				sum += middle(i, k)
			}
			return sum / float64(s.Pos.N)
		}
		cross := moments(less(s.Pos, all), less(s.Neg, all))
		for i := range cross {
			scal(cross[i], -1)
		}
		centered := append(less(s.Pos, middle), less(s.Neg, middle)...)
		for m, matrix := range map[Method][][]float64{
			PCA:       moments(diffRows(s), diffRows(s)),
			PCACenter: moments(centered, centered),
			CrossCov:  cross,
		} {
			first, second, want := largest(matrix)
			got, err := Solve(s, m)
			if err != nil {
				t.Fatalf("%s, %s: %v", tt.name, m, err)
			}
			if c := math.Abs(Cosine(got.Unit, want)); c < 1-1e-12 { // a residual of 1e-10 over the gaps of these matrices
				t.Errorf("%s, %s: cosine to Jacobi's vector is 1-%g", tt.name, m, 1-c)
			}
			if got.Residual > Residual || math.Abs(norm(got.Unit)-1) > 1e-14 || got.Proj() < 0 {
				t.Errorf("%s, %s: residual %g, length 1%+g, along the mean %g", tt.name, m, got.Residual, norm(got.Unit)-1, got.Proj())
			}
			ratio := math.Sqrt(math.Max(second, 0) / first)
			if m != CrossCov && math.Abs(got.Ratio-ratio) > 2e-3 {
				t.Errorf("%s, %s: second over first %g, want %g", tt.name, m, got.Ratio, ratio)
			}
		}
	}
}

func TestMean(t *testing.T) {
	s := draw(7, 30, 40, 0.5, 0.5)
	d, err := Solve(s, Mean)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]float64, 40)
	for _, r := range diffRows(s) {
		axpy(want, 1.0/30, r)
	}
	for k := range want {
		if math.Abs(d.Mean[k]-want[k]) > 1e-14 {
			t.Fatalf("element %d: %g, want %g", k, d.Mean[k], want[k])
		}
	}
	if got := d.Scaled(Proj, Mean); !slices.Equal(got, d.Mean) {
		t.Error("the scale proj of the mean is not the mean itself")
	}
	if n := norm(d.Scaled(Unit, Mean)); math.Abs(n-1) > 1e-14 {
		t.Errorf("unit: length %g", n)
	}
	p, err := Solve(s, PCA)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := norm(p.Scaled(MeanNorm, PCA)), norm(want); math.Abs(got-want) > 1e-13 {
		t.Errorf("scale mean: length %g, want %g", got, want)
	}
	if got, want := norm(p.Scaled(Proj, PCA)), dot(p.Unit, want); math.Abs(got-want) > 1e-13 {
		t.Errorf("scale proj: length %g, want %g", got, want)
	}
}

// Swapping the sides negates every bit, with every method.
func TestSwap(t *testing.T) {
	s := draw(8, 25, 33, 0.3, 0.6)
	swapped := &Samples{Pos: s.Neg, Neg: s.Pos, Pair: s.Pair}
	for m := Mean; m <= CrossCov; m++ {
		a, err := Solve(s, m)
		if err != nil {
			t.Fatal(err)
		}
		b, err := Solve(swapped, m)
		if err != nil {
			t.Fatal(err)
		}
		for k := range a.Unit {
			if a.Unit[k] != -b.Unit[k] || a.Mean[k] != -b.Mean[k] {
				t.Fatalf("%s: element %d is %v, and %v when swapped", m, k, a.Unit[k], b.Unit[k])
			}
		}
	}
}

// synthetic makes n rows of e values: axes of random signs with the given spreads, and noise of spread 1 in all.
func synthetic(n, e int, spreads ...float64) Matrix {
	rnd := rand.New(rand.NewPCG(42, 42))
	m := NewMatrix(n, e)
	axes := make([][]float64, len(spreads))
	for a := range axes {
		axes[a] = make([]float64, e)
		for k := range axes[a] {
			axes[a][k] = float64(rnd.IntN(2)*2-1) / math.Sqrt(float64(e))
		}
	}
	for i := range n {
		row := make([]float64, e)
		for k := range row {
			row[k] = rnd.NormFloat64()
		}
		for a, axis := range axes {
			axpy(row, spreads[a]*rnd.NormFloat64(), axis)
		}
		for k := range row {
			m.Row(i)[k] = float32(row[k])
		}
	}
	return m
}

func asSamples(m Matrix) *Samples {
	s := &Samples{Pos: m, Neg: NewMatrix(m.N, m.E), Pair: make([]int, m.N)}
	for i := range s.Pair {
		s.Pair[i] = i
	}
	return s
}

// A clear axis is found by power iteration too, which is another way; one that is hardly larger than the next has a
// residual to show that it is right.
func TestLarge(t *testing.T) {
	n, e := 200, 1024
	clearAxis := synthetic(n, e, 400, 200)
	d, err := Solve(asSamples(clearAxis), PCA)
	if err != nil {
		t.Fatal(err)
	}
	v, w := mixed(clearAxis), make([]float64, e)
	apply := secondMoment(clearAxis)
	for range 60 { // the second eigenvalue is a quarter of the first: 4^-60
		apply(w, v)
		copy(v, w)
		scal(v, 1/norm(v))
	}
	if c := math.Abs(Cosine(v, d.Unit)); c < 1-1e-13 {
		t.Errorf("cosine to the power iteration is 1-%g", 1-c)
	}
	close2 := synthetic(n, e, 100, 99, 98, 97)
	d, err = Solve(asSamples(close2), PCA)
	if err != nil {
		t.Fatal(err)
	}
	if d.Residual > Residual {
		t.Errorf("close axes: residual %g after %d steps, want %g", d.Residual, d.Steps, Residual)
	}
}

// An axis that the mean is orthogonal to is found all the same.
func TestStart(t *testing.T) {
	s := &Samples{Pos: NewMatrix(40, 8), Neg: NewMatrix(40, 8)}
	for i := range 40 {
		s.Pair = append(s.Pair, i)
		s.Pos.Row(i)[0] = 1                         // the mean
		s.Pos.Row(i)[5] = float32(10 * (i%2*2 - 1)) // the axis, of mean 0
	}
	d, err := Solve(s, PCA)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(d.Unit[5]) < 0.999999 {
		t.Errorf("direction %v, want the sixth axis", d.Unit)
	}
	if c := Cosine(d.Unit, d.Mean); math.Abs(c) > 1e-9 {
		t.Errorf("cosine to the mean %g, want 0", c)
	}
}

func TestNoContrast(t *testing.T) {
	s := draw(9, 5, 6, 0, 0)
	for m := Mean; m <= CrossCov; m++ {
		if _, err := Solve(s, m); err == nil {
			t.Errorf("%s: equal texts gave a direction", m)
		}
	}
	s.Pos.Row(3)[2] = float32(math.NaN())
	for m := Mean; m <= CrossCov; m++ {
		if _, err := Solve(s, m); err == nil {
			t.Errorf("%s: a state that is no number gave a direction", m)
		}
	}
}

func TestTridiagonal(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 3))
	for range 200 {
		n := 1 + rnd.IntN(30)
		var tr tridiagonal
		full := square(n)
		for i := range n {
			tr.a = append(tr.a, rnd.NormFloat64()*10)
			full[i][i] = tr.a[i]
			if i > 0 {
				tr.b = append(tr.b, rnd.Float64()*5)
				full[i][i-1], full[i-1][i] = tr.b[i-1], tr.b[i-1]
			}
		}
		values, _ := jacobi(full)
		slices.SortFunc(values, func(a, b float64) int { return int(math.Copysign(1, b-a)) })
		for k, want := range values {
			if got := tr.value(k); math.Abs(got-want) > 1e-12*(1+math.Abs(values[0])+math.Abs(values[n-1])) {
				t.Fatalf("eigenvalue %d of %d: %g, want %g", k, n, got, want)
			}
		}
		v := tr.vector(tr.value(0))
		for i := range n {
			got := tr.a[i]*v[i] - values[0]*v[i]
			if i > 0 {
				got += tr.b[i-1] * v[i-1]
			}
			if i < n-1 {
				got += tr.b[i] * v[i+1]
			}
			if math.Abs(got) > 1e-11 {
				t.Fatalf("n=%d: (T-λ)v has %g in row %d", n, got, i)
			}
		}
	}
}

// BenchmarkPCA is one layer of a model of 8B parameters: 1000 pairs of 4096 values.
func BenchmarkPCA(b *testing.B) {
	for _, bb := range []struct {
		name    string
		spreads []float64
	}{{"gap0.5", []float64{400, 200}}, {"gap0.02", []float64{100, 98, 97, 96}}} {
		s := asSamples(synthetic(1000, 4096, bb.spreads...))
		b.Run(bb.name, func(b *testing.B) {
			for range b.N {
				d, err := Solve(s, PCA)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(d.Steps), "steps")
				b.ReportMetric(d.Residual*1e12, "residual*1e12")
			}
		})
	}
}
