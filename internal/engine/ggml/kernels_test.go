//go:build cgo

package ggml

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// eachVector runs f with the kernels of every vector length that this CPU has.
func eachVector(t *testing.T, f func(t *testing.T)) {
	before := vector()
	t.Cleanup(func() { useVector(before) })
	for _, n := range []int{4, 8, 16} {
		if useVector(n) {
			t.Run(fmt.Sprintf("%d floats", n), f)
		}
	}
}

func TestGemmVectors(t *testing.T) { eachVector(t, testGemm) }

// Weights in a file's type give the product with their widened values.
func TestGemmTypes(t *testing.T) {
	eachVector(t, func(t *testing.T) {
		p := newPool(t, 2)
		for _, info := range Types() {
			if !info.CanQuantize || slowType(info) {
				continue
			}
			const m = 19
			n, k := 80, 768
			if info.BlockSize > 32 {
				n = 3 * info.BlockSize
			}
			w := normals(n*k, 1)
			packed, err := Quantize(info.Type, w, k, ones(k))
			if err != nil {
				t.Fatal(err)
			}
			wide, err := Dequantize(info.Type, packed, n*k)
			if err != nil {
				t.Fatal(err)
			}
			mem := floats(t, (len(packed)+3)/4, 0)
			copy(Bytes(mem), packed)
			weights := Weights{Type: info.Type, Data: Bytes(mem)[:len(packed)], Rows: n, Cols: k}
			x, y := floats(t, m*k, 2), floats(t, m*n, 0)
			if err := p.Gemm(Gemm{A: NewMat(x, m, k), B: weights, TransB: true, C: NewMat(y, m, n), Alpha: 1}); err != nil {
				t.Fatal(err)
			}
			compare(t, info.Name+" x*W'", y, refGemm(m, n, k, x, false, wide, true, nil, 1, false), 1e-6+3e-7*float64(k))
			dy, dx := floats(t, m*n, 3), floats(t, m*k, 0)
			if err := p.Gemm(Gemm{A: NewMat(dy, m, n), B: weights, C: NewMat(dx, m, k), Alpha: 1}); err != nil {
				t.Fatal(err)
			}
			compare(t, info.Name+" dy*W", dx, refGemm(m, k, n, dy, false, wide, false, nil, 1, false), 1e-6+3e-7*float64(n))
		}
	})
}

func compare(t *testing.T, what string, got []float32, want []float64, limit float64) {
	t.Helper()
	for i := range want {
		if d := math.Abs(float64(got[i]) - want[i]); !(d <= limit) {
			t.Fatalf("%s: element %d is %g, want %g within %g", what, i, got[i], want[i], limit)
		}
	}
}

func TestNorm(t *testing.T) {
	eachVector(t, func(t *testing.T) {
		p := newPool(t, 2)
		for _, s := range [][3]int{{5, 1, 7}, {9, 3, 12}, {33, 1, 64}, {4, 2, 100}} {
			rows, groups, n := s[0], s[1], s[2]
			cols := groups * n
			x, dy, w := floats(t, rows*cols, 1), floats(t, rows*cols, 2), floats(t, n, 3)
			y, dx, dw, rstd := floats(t, rows*cols, 0), floats(t, rows*cols, 4), floats(t, n, 5), floats(t, rows*groups, 0)
			dx0, dw0 := slices.Clone(dx), slices.Clone(dw)
			a := Norm{X: NewMat(x, rows, cols), Y: NewMat(y, rows, cols), W: w, Groups: groups, Eps: 1e-3, RStd: rstd}
			p.Norm(a)
			a.Y, a.DX, a.DW, a.Add = NewMat(dy, rows, cols), NewMat(dx, rows, cols), dw, true
			p.NormBack(a)
			wantY, wantDX, wantDW := make([]float64, len(y)), make([]float64, len(y)), make([]float64, n)
			for i := range n {
				wantDW[i] = float64(dw0[i])
			}
			for r := range rows * groups {
				var sq, dot float64
				for i := range n {
					v := float64(x[r*n+i])
					sq += v * v
					dot += v * float64(w[i]) * float64(dy[r*n+i])
				}
				f := 1 / math.Sqrt(sq/float64(n)+1e-3)
				for i := range n {
					v, g := float64(x[r*n+i]), float64(dy[r*n+i])
					wantY[r*n+i] = v * f * float64(w[i])
					wantDX[r*n+i] = float64(dx0[r*n+i]) + f*(g*float64(w[i])-v*f*f*dot/float64(n))
					wantDW[i] += g * v * f
				}
			}
			compare(t, "y", y, wantY, 1e-5)
			compare(t, "dx", dx, wantDX, 1e-5)
			compare(t, "dw", dw, wantDW, 1e-4)
		}
	})
}

// The elementwise kernels against their formulas.
func TestElementwise(t *testing.T) {
	eachVector(t, func(t *testing.T) {
		p := newPool(t, 2)
		const rows, n = 7, 21
		gu, dy := floats(t, rows*2*n, 1), floats(t, rows*n, 2)
		for i := range gu { // a wide range of gates
			gu[i] *= 5
		}
		y, dgu := floats(t, rows*n, 0), floats(t, rows*2*n, 0)
		for _, gelu := range []bool{false, true} {
			GU := NewMat(gu, rows, 2*n)
			p.GLU(NewMat(y, rows, n), GU, gelu)
			p.GLUBack(NewMat(dgu, rows, 2*n), NewMat(dy, rows, n), GU, gelu)
			wantY, wantD := make([]float64, len(y)), make([]float64, len(dgu))
			for r := range rows {
				for i := range n {
					x, u, g := float64(gu[r*2*n+i]), float64(gu[r*2*n+n+i]), float64(dy[r*n+i])
					f := func(x float64) float64 {
						if gelu {
							return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
						}
						return x / (1 + math.Exp(-x))
					}
					wantY[r*n+i] = f(x) * u
					wantD[r*2*n+i] = g * u * (f(x+1e-6) - f(x-1e-6)) / 2e-6
					wantD[r*2*n+n+i] = g * f(x)
				}
			}
			compare(t, "glu", y, wantY, 2e-4) // values to some 100
			compare(t, "glu back", dgu, wantD, 2e-4)
		}
		// y = a x + b y, bias and column sums
		x, z := floats(t, rows*n, 3), floats(t, rows*n, 4)
		want := make([]float64, rows*n)
		sums, wantSums := floats(t, n, 0), make([]float64, n)
		for i := range want {
			want[i] = 2*float64(x[i]) - 0.5*float64(z[i])
			wantSums[i%n] += 3 * want[i]
		}
		p.AXPBY(NewMat(z, rows, n), -0.5, NewMat(x, rows, n), 2)
		compare(t, "axpby", z, want, 1e-6)
		p.ColSum(sums, NewMat(z, rows, n), 3)
		compare(t, "column sums", sums, wantSums, 1e-4)
		p.AddBias(NewMat(z, rows, n), x[:n], 0.25)
		for i := range want {
			want[i] += 0.25 * float64(x[i%n])
		}
		compare(t, "bias", z, want, 1e-6)
	})
}

func TestRope(t *testing.T) {
	eachVector(t, func(t *testing.T) {
		p := newPool(t, 2)
		const rows, heads, dim, turned = 5, 3, 14, 12
		for _, neox := range []bool{false, true} {
			x, table := floats(t, rows*heads*dim, 1), floats(t, rows*turned, 2)
			before := slices.Clone(x)
			for r := range rows {
				for i := range turned / 2 {
					sin, cos := math.Sincos(float64(r*7 + i))
					table[r*turned+i], table[r*turned+turned/2+i] = float32(cos), float32(sin)
				}
			}
			rope := Rope{X: NewMat(x, rows, heads*dim), Heads: heads, HeadDim: dim, Dim: turned, Table: table, Neox: neox}
			p.Rope(rope)
			want := make([]float64, len(x))
			for i, v := range before {
				want[i] = float64(v)
			}
			for r := range rows {
				for h := range heads {
					for i := range turned / 2 {
						a, b := 2*i, 2*i+1
						if neox {
							a, b = i, i+turned/2
						}
						a, b = (r*heads+h)*dim+a, (r*heads+h)*dim+b
						sin, cos := math.Sincos(float64(r*7 + i))
						want[a], want[b] = want[a]*cos-want[b]*sin, want[a]*sin+want[b]*cos
					}
				}
			}
			compare(t, "rope", x, want, 1e-6)
			rope.Back = true
			p.Rope(rope)
			for i, v := range before {
				want[i] = float64(v)
			}
			compare(t, "rope and back", x, want, 1e-6)
		}
	})
}

func TestCrossEntropy(t *testing.T) {
	eachVector(t, func(t *testing.T) {
		p := newPool(t, 2)
		for _, n := range []int{1, 3, 16, 37, 1000} {
			for _, limit := range []float32{0, 4} {
				const rows = 6
				l := floats(t, rows*n, 1)
				labels, weights, nll, right := make([]int32, rows), make([]float32, rows), make([]float64, rows), make([]uint8, rows)
				wantNLL, wantGrad := make([]float64, rows), make([]float64, rows*n)
				soft := func(x float64) float64 {
					if limit == 0 {
						return x
					}
					return float64(limit) * math.Tanh(x/float64(limit))
				}
				for r := range rows {
					labels[r], weights[r] = int32(r*7%n), float32(r)/2
					var sum float64
					for i := range n {
						l[r*n+i] *= 10
						sum += math.Exp(soft(float64(l[r*n+i])))
					}
					wantNLL[r] = math.Log(sum) - soft(float64(l[r*n+int(labels[r])]))
					for i := range n {
						v := soft(float64(l[r*n+i]))
						g := math.Exp(v) / sum
						if i == int(labels[r]) {
							g--
						}
						if limit != 0 {
							g *= 1 - v*v/float64(limit*limit)
						}
						wantGrad[r*n+i] = 0.5 * float64(weights[r]) * g
					}
				}
				p.CrossEntropy(CrossEntropy{Logits: NewMat(l, rows, n), Labels: labels, Weights: weights, Cap: limit, Grad: true, Scale: 0.5, NLL: nll, Right: right})
				for r := range nll {
					if d := math.Abs(nll[r] - wantNLL[r]); d > 1e-5 {
						t.Errorf("%d classes, cap %g: nll %g, want %g", n, limit, nll[r], wantNLL[r])
					}
				}
				compare(t, "gradient", l, wantGrad, 1e-6)
			}
		}
	})
}

// Dropout keeps about the share it should, keeps the mean, and is a function of
// the seed.
func TestDropout(t *testing.T) {
	p := newPool(t, 2)
	const rows, n = 300, 100
	x, y, z := floats(t, rows*n, 0), floats(t, rows*n, 0), floats(t, rows*n, 0)
	for i := range x {
		x[i] = 1
	}
	for _, prob := range []float32{0, 0.1, 0.5, 0.9} {
		p.Dropout(NewMat(y, rows, n), NewMat(x, rows, n), prob, 7, false)
		zeros := 0
		for _, v := range y {
			if v == 0 {
				zeros++
			} else if v != 1/(1-prob) {
				t.Fatalf("value %g, want 0 or %g", v, 1/(1-prob))
			}
		}
		// five standard deviations of a binomial distribution
		want, sd := float64(prob)*rows*n, math.Sqrt(rows*n*float64(prob)*float64(1-prob))
		if math.Abs(float64(zeros)-want) > 5*sd {
			t.Errorf("dropout %g: %d zeros of %d", prob, zeros, rows*n)
		}
		p.Dropout(NewMat(z, rows, n), NewMat(x, rows, n), prob, 7, false)
		if !slices.Equal(y, z) {
			t.Errorf("dropout %g: another mask for the same seed", prob)
		}
		p.Dropout(NewMat(z, rows, n), NewMat(x, rows, n), prob, 8, false)
		if prob > 0 && slices.Equal(y, z) {
			t.Errorf("dropout %g: the same mask for another seed", prob)
		}
	}
}
