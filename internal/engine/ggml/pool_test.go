//go:build cgo

package ggml

import (
	"fmt"
	"math"
	"testing"
)

func floats(t testing.TB, n int, seed uint64) []float32 {
	t.Helper()
	s, err := NewFloats(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = FreeFloats(s) })
	if seed != 0 {
		copy(s, normals(n, seed))
	}
	return s
}

func newPool(t testing.TB, threads int) *Pool {
	t.Helper()
	p, err := NewPool(threads)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// refGemm computes the product in float64.
func refGemm(m, n, k int, a []float32, ta bool, b []float32, tb bool, c []float32, alpha float32, add bool) []float64 {
	out := make([]float64, m*n)
	for i := range m {
		for j := range n {
			var s float64
			for p := range k {
				x, y := a[i*k+p], b[p*n+min(j, n-1)]
				if ta {
					x = a[p*m+i]
				}
				if tb {
					y = b[j*k+p]
				}
				s += float64(x) * float64(y)
			}
			s *= float64(alpha)
			if add {
				s += float64(c[i*n+j])
			}
			out[i*n+j] = s
		}
	}
	return out
}

func testGemm(t *testing.T) {
	for _, threads := range []int{1, 3} {
		p := newPool(t, threads)
		for _, s := range [][3]int{{1, 1, 1}, {5, 7, 3}, {12, 8, 9}, {17, 33, 65}, {130, 70, 300}, {64, 64, 64}, {256, 172, 64}, {3, 520, 513}, {129, 8, 40}} {
			m, n, k := s[0], s[1], s[2]
			for v := range 8 {
				ta, tb, add := v&1 != 0, v&2 != 0, v&4 != 0
				a, b, c := floats(t, m*k, 1), floats(t, n*k, 2), floats(t, m*n, 3)
				want := refGemm(m, n, k, a, ta, b, tb, c, 0.5, add)
				g := Gemm{A: NewMat(a, m, k), TransA: ta, TransB: tb, C: NewMat(c, m, n), Alpha: 0.5, Add: add}
				if ta {
					g.A = NewMat(a, k, m)
				}
				bm := NewMat(b, k, n)
				if tb {
					bm = NewMat(b, n, k)
				}
				g.BMat = &bm
				if err := p.Gemm(g); err != nil {
					t.Fatal(err)
				}
				// A sum of k terms walks to some sqrt(k) and is rounded k times: 2^-24 * sqrt(k) * sqrt(k), and room for five sigma.
				limit := 1e-6 + 3e-7*float64(k)
				for i := range want {
					if d := math.Abs(float64(c[i]) - want[i]); d > limit {
						t.Fatalf("%d threads, %d x %d x %d, transposed %v %v, add %v: element %d is %g, want %g", threads, m, n, k, ta, tb, add, i, c[i], want[i])
					}
				}
			}
		}
	}
}

func BenchmarkGemm(b *testing.B) {
	for _, threads := range []int{1, 2} {
		p := newPool(b, threads)
		for _, s := range [][3]int{{256, 64, 64}, {256, 172, 64}, {256, 64, 172}, {256, 512, 64}, {256, 256, 256}, {256, 1024, 256}, {256, 2048, 2048}, {256, 32000, 256}} {
			m, n, k := s[0], s[1], s[2]
			x, w, y := floats(b, m*k, 1), floats(b, n*k, 2), floats(b, m*n, 3)
			X, W, Y := NewMat(x, m, k), NewMat(w, n, k), NewMat(y, m, n)
			for _, g := range []struct {
				name string
				g    Gemm
			}{
				{"fwd", Gemm{A: X, BMat: &W, TransB: true, C: Y, Alpha: 1}},
				{"dx", Gemm{A: Y, BMat: &W, C: X, Alpha: 1e-6}},
				{"dw", Gemm{A: Y, TransA: true, BMat: &X, C: W, Alpha: 1e-6, Add: true}},
			} {
				b.Run(fmt.Sprintf("%d/%dx%dx%d/%s", threads, m, n, k, g.name), func(b *testing.B) {
					for b.Loop() {
						if err := p.Gemm(g.g); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(2*float64(m)*float64(n)*float64(k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			}
		}
	}
}

// BenchmarkKernels measures what is not a product, at the sizes of a small model.
func BenchmarkKernels(b *testing.B) {
	const n, heads, kv, dim, ff, vocab = 256, 8, 4, 8, 172, 512
	for _, threads := range []int{1, 2} {
		p := newPool(b, threads)
		qkv, dqkv := NewMat(floats(b, n*(heads+2*kv)*dim, 1), n, (heads+2*kv)*dim), NewMat(floats(b, n*(heads+2*kv)*dim, 2), n, (heads+2*kv)*dim)
		a := Attention{
			Heads: heads, KVHeads: kv, HeadDim: dim, Q: qkv.Sub(0, heads*dim), K: qkv.Sub(heads*dim, kv*dim), V: qkv.Sub((heads+kv)*dim, kv*dim),
			O: NewMat(floats(b, n*heads*dim, 0), n, heads*dim), LSE: floats(b, n*heads, 0), Lo: make([]int32, n), Scale: 0.35,
			DO: NewMat(floats(b, n*heads*dim, 3), n, heads*dim), DQ: dqkv.Sub(0, heads*dim), DK: dqkv.Sub(heads*dim, kv*dim), DV: dqkv.Sub((heads+kv)*dim, kv*dim),
		}
		x, y := NewMat(floats(b, n*heads*dim, 4), n, heads*dim), NewMat(floats(b, n*heads*dim, 5), n, heads*dim)
		w, rstd, dw := floats(b, heads*dim, 6), floats(b, n, 0), floats(b, heads*dim, 0)
		norm := Norm{X: x, Y: y, W: w, Groups: 1, Eps: 1e-5, RStd: rstd}
		back := norm
		back.DX, back.DW = NewMat(floats(b, n*heads*dim, 7), n, heads*dim), dw
		gu, act := NewMat(floats(b, n*2*ff, 8), n, 2*ff), NewMat(floats(b, n*ff, 9), n, ff)
		dgu := NewMat(floats(b, n*2*ff, 8), n, 2*ff)
		table := floats(b, n*dim, 10)
		logits := NewMat(floats(b, n*vocab, 11), n, vocab)
		labels, nll, right := make([]int32, n), make([]float64, n), make([]uint8, n)
		for name, f := range map[string]func(){
			"attention":      func() { _ = p.Attention(a) },
			"attention back": func() { _ = p.AttentionBack(a) },
			"norm":           func() { p.Norm(norm) },
			"norm back":      func() { p.NormBack(back) },
			"glu":            func() { p.GLU(act, gu, false) },
			"glu back":       func() { p.GLUBack(dgu, act, gu, false) },
			"rope": func() {
				p.Rope(Rope{X: qkv.Sub(0, (heads+kv)*dim), Heads: heads + kv, HeadDim: dim, Dim: dim, Table: table})
			},
			"axpby": func() { p.AXPBY(y, 0, x, 1) },
			"cross entropy": func() {
				p.CrossEntropy(CrossEntropy{Logits: logits, Labels: labels, NLL: nll, Right: right, Grad: true, Scale: 1})
			},
		} {
			b.Run(fmt.Sprintf("%d/%s", threads, name), func(b *testing.B) {
				for b.Loop() {
					f()
				}
			})
		}
	}
}
