//go:build cgo

package ggml

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// testTensors makes tensors of lengths around the block size and the vector
// width, with a nil state.
func testTensors(seed uint64) []OptimTensor {
	rng := rand.New(rand.NewPCG(seed, 1))
	var ts []OptimTensor
	for i, n := range []int{1, 7, 64, 1000, optimBlock - 1, optimBlock, 2*optimBlock + 3} {
		t := OptimTensor{W: make([]float32, n), G: make([]float32, n), M: make([]float32, n), V: make([]float32, n), Decay: i%2 == 0}
		for j := range n {
			t.W[j] = float32(rng.NormFloat64())
			t.G[j] = float32(rng.NormFloat64() * math.Exp(4*rng.NormFloat64())) // several orders of magnitude
		}
		ts = append(ts, t)
	}
	return ts
}

// newGradients replaces the gradients, as training does.
func newGradients(ts []OptimTensor, rng *rand.Rand) {
	for _, t := range ts {
		for j := range t.G {
			t.G[j] = float32(rng.NormFloat64())
		}
	}
}

// state64 is an optimizer's state in double.
type state64 struct{ w, m, v []float64 }

func to64(ts []OptimTensor) []state64 {
	var out []state64
	for _, t := range ts {
		s := state64{make([]float64, len(t.W)), make([]float64, len(t.W)), make([]float64, len(t.W))}
		for i, w := range t.W {
			s.w[i] = float64(w)
		}
		out = append(out, s)
	}
	return out
}

// near compares with the reference in double. A step rounds some ten times in
// float32 (relative 6e-8 each) and the values are sums of a few steps.
func near(t *testing.T, what string, got []float32, want []float64) {
	t.Helper()
	for i := range got {
		if d := math.Abs(float64(got[i]) - want[i]); !(d <= 2e-6*(1+math.Abs(want[i]))) {
			t.Fatalf("%s[%d of %d] = %g, want %g", what, i, len(got), got[i], want[i])
		}
	}
}

func TestAdamWMatchesPaper(t *testing.T) {
	ts := testTensors(1)
	ref := to64(ts)
	rng := rand.New(rand.NewPCG(2, 2))
	p := AdamWParams{LR: 0.01, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, Scale: 0.5}
	lr, b1, b2 := float64(p.LR), float64(p.Beta1), float64(p.Beta2)
	for step := int64(1); step <= 5; step++ {
		p.Step = step
		if err := AdamW(ts, p, 2); err != nil {
			t.Fatal(err)
		}
		for i, tensor := range ts {
			s := ref[i]
			for j := range s.w {
				g := float64(tensor.G[j]) * 0.5
				s.m[j] = b1*s.m[j] + (1-b1)*g
				s.v[j] = b2*s.v[j] + (1-b2)*g*g
				mh := s.m[j] / (1 - math.Pow(b1, float64(step)))
				vh := s.v[j] / (1 - math.Pow(b2, float64(step)))
				if tensor.Decay {
					s.w[j] -= lr * float64(p.Decay) * s.w[j]
				}
				s.w[j] -= lr * mh / (math.Sqrt(vh) + float64(p.Eps))
			}
			near(t, "W", tensor.W, s.w)
		}
		newGradients(ts, rng)
	}
}

// A gradient that stays the same moves a weight by the learning rate a step:
// both moments are then the gradient and its square, whatever the step.
func TestAdamWConstantGradient(t *testing.T) {
	x := OptimTensor{W: []float32{0, 0}, G: []float32{3, -1e-3}, M: make([]float32, 2), V: make([]float32, 2)}
	for step := int64(1); step <= 100; step++ {
		if err := AdamW([]OptimTensor{x}, AdamWParams{LR: 0.5, Beta1: 0.9, Beta2: 0.999, Eps: 1e-12, Step: step, Scale: 1}, 1); err != nil {
			t.Fatal(err)
		}
		want := []float64{-0.5 * float64(step), 0.5 * float64(step)}
		for i := range want { // the corrections cancel to a few parts in 10^5 in float32 at step 1
			if d := math.Abs(float64(x.W[i]) - want[i]); d > 1e-4*math.Abs(want[i]) {
				t.Fatalf("step %d: W = %v, want %v", step, x.W, want)
			}
		}
	}
}

func TestSGD(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    SGDParams
	}{
		{"plain", SGDParams{LR: 0.01, Scale: 1}},
		{"scaled, with decay", SGDParams{LR: 0.01, Scale: 0.25, Decay: 0.5}},
		{"momentum", SGDParams{LR: 0.01, Scale: 1, Momentum: 0.9}},
		{"nesterov", SGDParams{LR: 0.01, Scale: 1, Momentum: 0.9, Nesterov: true, Decay: 0.1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ts := testTensors(3)
			newGradients(ts, rand.New(rand.NewPCG(5, 5)))
			ref := to64(ts)
			rng := rand.New(rand.NewPCG(4, 4))
			lr, mu := float64(tt.p.LR), float64(tt.p.Momentum)
			for range 5 {
				if err := SGD(ts, tt.p, 2); err != nil {
					t.Fatal(err)
				}
				for i, tensor := range ts {
					s := ref[i]
					for j := range s.w {
						g := float64(tensor.G[j]) * float64(tt.p.Scale)
						s.m[j] = mu*s.m[j] + g
						d := s.m[j]
						if tt.p.Nesterov {
							d = g + mu*s.m[j]
						}
						if tensor.Decay {
							s.w[j] -= lr * float64(tt.p.Decay) * s.w[j]
						}
						s.w[j] -= lr * d
					}
					near(t, "W", tensor.W, s.w)
				}
				newGradients(ts, rng)
			}
		})
	}
}

// upstream's accumulators are never zeroed, so that the step grows by lr*g
// each time; here it is lr*g, to the bit where nothing rounds.
func TestSGDConstantGradientMovesEvenly(t *testing.T) {
	x := OptimTensor{W: []float32{8}, G: []float32{0.25}}
	for step := 1; step <= 6; step++ {
		if err := SGD([]OptimTensor{x}, SGDParams{LR: 0.5, Scale: 1}, 1); err != nil {
			t.Fatal(err)
		}
		if want := 8 - 0.125*float32(step); x.W[0] != want {
			t.Errorf("step %d: W = %g, want %g", step, x.W[0], want)
		}
	}
}

// The number of threads changes no bit.
func TestOptimThreads(t *testing.T) {
	run := func(threads int) ([]OptimTensor, []float64) {
		ts := testTensors(7)
		for step := int64(1); step <= 3; step++ {
			if err := AdamW(ts, AdamWParams{LR: 0.1, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, Decay: 0.1, Step: step, Scale: 1}, threads); err != nil {
				t.Fatal(err)
			}
			if err := SGD(ts, SGDParams{LR: 0.1, Scale: 1}, threads); err != nil {
				t.Fatal(err)
			}
		}
		var g [][]float32
		for _, t := range ts {
			g = append(g, t.G)
		}
		return ts, SumSquares(g, threads)
	}
	want, sum := run(1)
	for _, threads := range []int{2, 3, 8} {
		got, s := run(threads)
		if !slices.Equal(s, sum) {
			t.Errorf("%d threads: sum %v, want %v", threads, s, sum)
		}
		for i := range got {
			if !slices.Equal(got[i].W, want[i].W) || !slices.Equal(got[i].V, want[i].V) {
				t.Errorf("%d threads: tensor %d differs", threads, i)
			}
		}
	}
}

func TestSumSquares(t *testing.T) {
	var x [][]float32
	var want []float64
	for _, t := range testTensors(9) {
		sum := 0.0
		for _, v := range t.G {
			sum += float64(v) * float64(v)
		}
		x, want = append(x, t.G), append(want, sum)
	}
	for i, got := range SumSquares(x, 2) {
		if math.Abs(got-want[i]) > 1e-12*want[i] {
			t.Errorf("SumSquares of tensor %d = %v, want %v", i, got, want[i])
		}
		if alone := SumSquares(x[i:i+1], 1)[0]; alone != got {
			t.Errorf("SumSquares of tensor %d = %v alone, %v beside others", i, alone, got)
		}
	}
	if got := SumSquares([][]float32{nil}, 2); !slices.Equal(got, []float64{0}) {
		t.Errorf("SumSquares of nothing = %v", got)
	}
	// Squares that float32 cannot hold.
	if got := SumSquares([][]float32{{1e30, 1e-30}}, 1)[0]; math.Abs(got-1e60) > 1e53 {
		t.Errorf("SumSquares = %v, want 1e60", got)
	}
}

// orthogonal64 is the same iteration in double, with plain loops.
func orthogonal64(x []float64, cols, rows int) []float64 {
	norm := 0.0
	for _, v := range x {
		norm += v * v
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v / (math.Sqrt(norm) + muonEps)
	}
	flip := rows > cols
	if flip {
		y = transpose64(y, cols, rows)
		rows, cols = cols, rows
	}
	for range 5 {
		a := make([]float64, rows*rows)
		for i := range rows {
			for j := range rows {
				for k := range cols {
					a[i*rows+j] += y[i*cols+k] * y[j*cols+k]
				}
			}
		}
		z := make([]float64, len(y))
		for i := range rows {
			for j := range rows {
				b := -4.7750 * a[i*rows+j]
				for k := range rows {
					b += 2.0315 * a[i*rows+k] * a[k*rows+j]
				}
				for k := range cols {
					z[i*cols+k] += b * y[j*cols+k]
				}
			}
		}
		for i := range y {
			y[i] = 3.4445*y[i] + z[i]
		}
	}
	if flip {
		y = transpose64(y, cols, rows)
	}
	return y
}

// transpose64 turns rows of cols values into cols rows.
func transpose64(x []float64, cols, rows int) []float64 {
	y := make([]float64, len(x))
	for i := range rows {
		for j := range cols {
			y[j*rows+i] = x[i*cols+j]
		}
	}
	return y
}

func TestOrthogonalize(t *testing.T) {
	u := NewMuon(2)
	defer u.Close()
	one := NewMuon(1)
	defer one.Close()
	rng := rand.New(rand.NewPCG(11, 1))
	for _, shape := range [][2]int{{1, 1}, {5, 3}, {3, 5}, {64, 172}, {172, 64}, {64, 64}, {64, 172}} {
		x := make([]float32, shape[0]*shape[1])
		x64 := make([]float64, len(x))
		for i := range x {
			x[i] = float32(rng.NormFloat64() * 1e-3)
			x64[i] = float64(x[i])
		}
		got, got1 := make([]float32, len(x)), make([]float32, len(x))
		if err := u.Orthogonalize(got, x, shape[0], shape[1]); err != nil {
			t.Fatal(err)
		}
		if err := one.Orthogonalize(got1, x, shape[0], shape[1]); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, got1) {
			t.Errorf("%v: one thread and two differ", shape)
		}
		want := orthogonal64(x64, shape[0], shape[1])
		for i := range got {
			// Each iteration may triple an error; products of up to 172 terms of float32.
			if d := math.Abs(float64(got[i]) - want[i]); d > 1e-4 {
				t.Fatalf("%v: value %d = %g, want %g", shape, i, got[i], want[i])
			}
		}
		// The norm of every singular value of 0.7 to 1.2 bounds the whole norm.
		k := float64(min(shape[0], shape[1]))
		if n := SumSquares([][]float32{got}, 1)[0]; n < 0.4*k || n > 1.5*k {
			t.Errorf("%v: squared norm %g, want about %g", shape, n, k)
		}
	}
	zero := make([]float32, 6)
	if err := u.Orthogonalize(zero, zero, 2, 3); err != nil || SumSquares([][]float32{zero}, 1)[0] != 0 {
		t.Errorf("of zeros: %v, %v", zero, err)
	}
}

func TestMuonStep(t *testing.T) {
	const cols, rows = 24, 16
	u := NewMuon(2)
	defer u.Close()
	rng := rand.New(rand.NewPCG(13, 1))
	x := OptimTensor{W: make([]float32, cols*rows), G: make([]float32, cols*rows), M: make([]float32, cols*rows), Decay: true}
	for i := range x.W {
		x.W[i] = float32(rng.NormFloat64())
	}
	ref := to64([]OptimTensor{x})[0]
	p := MuonParams{LR: 0.02, Momentum: 0.95, Decay: 0.1, Scale: 2}
	for range 3 {
		newGradients([]OptimTensor{x}, rng)
		if err := u.Step(x, cols, rows, p); err != nil {
			t.Fatal(err)
		}
		d := make([]float64, len(x.W))
		for i := range d {
			g := 2 * float64(x.G[i])
			ref.m[i] = 0.95*ref.m[i] + g
			d[i] = g + 0.95*ref.m[i]
		}
		d = orthogonal64(d, cols, rows)
		for i := range d {
			ref.w[i] = ref.w[i]*(1-0.02*0.1) - 0.02*0.2*math.Sqrt(24)*d[i]
			if e := math.Abs(float64(x.W[i]) - ref.w[i]); e > 1e-5 { // 0.02 times the error of Orthogonalize
				t.Fatalf("W[%d] = %g, want %g", i, x.W[i], ref.w[i])
			}
		}
	}
}

func TestOptimRefuses(t *testing.T) {
	four := make([]float32, 4)
	short := OptimTensor{W: four, G: four[:3], M: four, V: four}
	if err := AdamW([]OptimTensor{short}, AdamWParams{Step: 1}, 1); err == nil {
		t.Error("AdamW took 3 gradients for 4 values")
	}
	if err := SGD([]OptimTensor{{W: four, G: four}}, SGDParams{Momentum: 0.9}, 1); err == nil {
		t.Error("SGD with momentum took no state")
	}
	u := NewMuon(1)
	for _, shape := range [][2]int{{0, 4}, {3, 1}, {-2, -2}, {5, 1}} {
		if err := u.Orthogonalize(four, four, shape[0], shape[1]); err == nil {
			t.Errorf("Orthogonalize took 4 values as %v", shape)
		}
	}
	u.Close()
	u.Close()
	if err := u.Orthogonalize(four, four, 2, 2); err == nil {
		t.Error("Orthogonalize after Close")
	}
}

func BenchmarkAdamW(b *testing.B) {
	const n = 1 << 22
	x := OptimTensor{W: make([]float32, n), G: make([]float32, n), M: make([]float32, n), V: make([]float32, n)}
	b.SetBytes(n * 28) // reads 4 floats, writes 3
	for i := 0; b.Loop(); i++ {
		if err := AdamW([]OptimTensor{x}, AdamWParams{LR: 1e-3, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, Step: int64(i + 1), Scale: 1}, DefaultThreads()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOrthogonalize(b *testing.B) {
	const n = 1024
	x := make([]float32, n*n)
	for i := range x {
		x[i] = float32(i%7) - 3
	}
	u := NewMuon(DefaultThreads())
	defer u.Close()
	for b.Loop() {
		if err := u.Orthogonalize(x, x, n, n); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(15*2*n*n*n*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOPS") // 3 products an iteration
}
