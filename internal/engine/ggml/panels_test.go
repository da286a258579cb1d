//go:build cgo

package ggml

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// wholes are integers of at most 127 with such a one among each 32, times a power of two: what ggml rounds a column to, for 32
// values or for 256, is the column.
func wholes(n int, seed uint64) []float32 {
	x, rng := make([]float32, n), rand.New(rand.NewPCG(seed, 1))
	for i := range x {
		x[i] = float32(rng.IntN(255) - 127)
		if i%32 == 5 {
			x[i] = float32(127 - 254*rng.IntN(2))
		}
	}
	return x
}

// product is a matrix of weights of M rows of K, as bytes, by N columns of B matrices.
type product struct {
	typ        Type
	k, m, n, b int
	packed     []byte
	w, x       []float32
}

func newProduct(typ Type, k, m, n, b int) *product {
	p := &product{typ: typ, k: k, m: m, n: n, b: b, x: wholes(k*n*b, uint64(n))}
	p.packed = must(Quantize(typ, normals(k*m, 3), k, nil))
	p.w = must(Dequantize(typ, p.packed, k*m))
	return p
}

// run returns what ggml makes of the first n columns of each matrix.
func (p *product) run(t *testing.T, threads, n int) []float32 {
	t.Helper()
	r := newRig(t, threads)
	w := must(r.w.NewTensor(p.typ, p.k, p.m))
	if err := errors.Join(r.s.AllocTensors(r.w, "CPU"), w.Set(p.packed)); err != nil {
		t.Fatal(err)
	}
	x := must(r.c.NewTensor(TypeF32, p.k, n, p.b))
	y := must(r.c.MulMat(w, x))
	g := must(r.c.NewGraph())
	var columns []float32
	for i := range p.b {
		columns = append(columns, p.x[i*p.k*p.n:][:p.k*n]...)
	}
	got := make([]float32, p.m*n*p.b)
	if err := errors.Join(g.Build(y), r.s.Alloc(g), x.SetF32(columns), r.s.Compute(g), y.GetF32(got)); err != nil {
		t.Fatal(err)
	}
	return got
}

// needPanels skips where the products of quantized weights are ggml's own: on others than x86, and without AVX2.
func needPanels(t *testing.T) {
	t.Helper()
	p := newProduct(must(ParseType("q5_0")), 1024, 16, 8, 1)
	ours := p.run(t, 1, 8)
	SetReference(true, true)
	defer SetReference(false, false)
	theirs := p.run(t, 1, 8)
	if slices.Equal(ours, theirs) {
		t.Skip("no panels on this CPU")
	}
	if e := nmse(ours, theirs); e > 1e-12 { // the same sum in another order
		t.Errorf("NMSE to the reference %g", e)
	}
}

// A block's products are added up exactly and scaled with two roundings, and so are its mins; blocks are added up with one each.
// With up to 40 blocks whose errors are at random, 4 units of 2^-24 of what is added up are enough; ggml's own kernels, which
// add up in the order of their lanes, need the same. An output is the same bits with any number of threads, and beside other columns.
func TestPanels(t *testing.T) {
	needPanels(t)
	for _, name := range []string{"q4_0", "q5_0", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k"} {
		typ := must(ParseType(name))
		info := must(typ.Info())
		for _, s := range []struct{ k, m, n, b int }{{1, 8, 4, 1}, {5, 8, 2, 1}, {3, 41, 5, 3}, {2, 100, 67, 1}, {40, 15, 7, 1}} {
			p := newProduct(typ, s.k*info.BlockSize, s.m, s.n, s.b)
			got := p.run(t, 1, s.n)
			want := mulMat64(p.w, p.x, p.k, p.m, p.n, 1, p.b)
			abs := mulMat64(absolute(p.w), absolute(p.x), p.k, p.m, p.n, 1, p.b)
			for i := range want {
				if e := math.Abs(float64(got[i])-want[i]) * (1 << 24); !(e <= 4*abs[i]) {
					t.Fatalf("%v, %+v, value %d: %g, want %g: off by %.3g units, want 4", typ, s, i, got[i], want[i], e/abs[i])
				}
			}
			for _, threads := range []int{2, 3, 16} {
				if !slices.Equal(p.run(t, threads, s.n), got) {
					t.Errorf("%v, %+v: other bits with %d threads", typ, s, threads)
				}
			}
			for n := 1; s.b == 1 && n < min(s.n, 6); n++ {
				if !slices.Equal(p.run(t, 2, n), got[:s.m*n]) {
					t.Errorf("%v, %+v: other bits with %d columns alone", typ, s, n)
				}
			}
		}
	}
}

func absolute(x []float32) []float32 {
	y := make([]float32, len(x))
	for i := range x {
		y[i] = float32(math.Abs(float64(x[i])))
	}
	return y
}
