//go:build cgo

package ggml

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// rig is a scheduler with a weight context and a graph context.
type rig struct {
	s    *Sched
	w, c *Context
}

func newRig(t *testing.T, threads int) *rig {
	t.Helper()
	s, err := NewSched(SchedConfig{Threads: threads, MaxNodes: 64, OpOffload: true})
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewContext(16)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewContext(64)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); w.Close(); s.Close() })
	return &rig{s, w, c}
}

// must unwraps a result in a test's set-up.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// mulMat64 returns a·b as ggml lays it out, in float64: out[n][m] = sum over k
// of a[m][k] * b[n][k], with matrix i of b using matrix i*na/nb of a.
func mulMat64(a, b []float32, K, M, N, na, nb int) []float64 {
	out := make([]float64, M*N*nb)
	for i := range nb {
		x, y := a[i*na/nb*M*K:], b[i*N*K:]
		for n := range N {
			for m := range M {
				var sum float64
				for k := range K {
					sum += float64(x[m*K+k]) * float64(y[n*K+k])
				}
				out[(i*N+n)*M+m] = sum
			}
		}
	}
	return out
}

// A sum of K products of standard normals in float32 has a rounding error of
// about sqrt(K) * 2^-24 per unit; 1e-5 * sqrt(K) leaves room for any order.
func TestMulMat(t *testing.T) {
	const K, M, N, na, nb = 256, 24, 7, 2, 4
	for _, threads := range []int{1, 2} {
		r := newRig(t, threads)
		wt := must(r.w.NewTensor(TypeF32, K, M, na))
		if err := r.s.AllocTensors(r.w, "cpu"); err != nil {
			t.Fatal(err)
		}
		a := normals(K*M*na, 1)
		if err := wt.SetF32(a); err != nil {
			t.Fatal(err)
		}
		x := must(r.c.NewTensor(TypeF32, K, N, nb))
		y := must(r.c.MulMat(wt, x))
		if got := y.Shape(); got != [4]int{M, N, nb, 1} {
			t.Fatalf("shape %v, want [%d %d %d 1]", got, M, N, nb)
		}
		g := must(r.c.NewGraph())
		if err := errors.Join(g.Build(y), r.s.Alloc(g)); err != nil {
			t.Fatal(err)
		}
		for round := range uint64(2) { // the second run sees new inputs and the old weights
			b := normals(K*N*nb, 2+round)
			got := make([]float32, M*N*nb)
			if err := errors.Join(x.SetF32(b), r.s.Compute(g), y.GetF32(got)); err != nil {
				t.Fatal(err)
			}
			for i, want := range mulMat64(a, b, K, M, N, na, nb) {
				if e := math.Abs(float64(got[i]) - want); e > 1e-5*math.Sqrt(K) {
					t.Fatalf("threads %d, round %d, value %d: %g, want %g", threads, round, i, got[i], want)
				}
			}
		}
	}
}

// With quantized weights the reference uses the dequantized ones. ggml rounds
// the other operand to 8 bits per 32 values (q8_0, NMSE 3e-5 a value) or 256
// values (q8_K), so an NMSE of 2e-4 is wanted; a wrong row gives about 2.
func TestMulMatQuantized(t *testing.T) {
	const K, M, N = 512, 16, 5
	for _, typ := range []Type{TypeF16, TypeBF16, TypeQ4_0, TypeQ8_0, TypeQ4_K, TypeQ6_K} {
		r := newRig(t, 2)
		wt := must(r.w.NewTensor(typ, K, M))
		packed := must(Quantize(typ, normals(K*M, 3), K, nil))
		if err := errors.Join(r.s.AllocTensors(r.w, "CPU"), wt.Set(packed)); err != nil {
			t.Fatal(err)
		}
		x := must(r.c.NewTensor(TypeF32, K, N))
		y := must(r.c.MulMat(wt, x))
		g := must(r.c.NewGraph())
		b, got := normals(K*N, 4), make([]float32, M*N)
		if err := errors.Join(g.Build(y), r.s.Alloc(g), x.SetF32(b), r.s.Compute(g), y.GetF32(got)); err != nil {
			t.Fatal(err)
		}
		want := make([]float32, M*N)
		for i, v := range mulMat64(must(Dequantize(typ, packed, K*M)), b, K, M, N, 1, 1) {
			want[i] = float32(v)
		}
		if e := nmse(got, want); e > 2e-4 {
			t.Errorf("%v: NMSE %.3g, want at most 2e-4", typ, e)
		}
	}
}

// A small network: softmax(silu(rmsnorm(x) * gain · Wᵀ + bias) / 2), against
// float64. Values are of order 1; 1e-4 covers float32 and ggml's fast exp.
func TestOperations(t *testing.T) {
	const K, M, N = 64, 32, 3
	r := newRig(t, 2)
	wt, gain, bias := must(r.w.NewTensor(TypeF32, K, M)), must(r.w.NewTensor(TypeF32, K)), must(r.w.NewTensor(TypeF32, M))
	w, gv, bv, xv := normals(K*M, 1), normals(K, 2), normals(M, 3), normals(K*N, 4)
	if err := errors.Join(r.s.AllocTensors(r.w, "CPU"), wt.SetF32(w), gain.SetF32(gv), bias.SetF32(bv)); err != nil {
		t.Fatal(err)
	}
	x := must(r.c.NewTensor(TypeF32, K, N))
	h := must(r.c.Mul(must(r.c.RMSNorm(x, 1e-5)), gain))
	h = must(r.c.Add(must(r.c.MulMat(wt, h)), bias))
	y := must(r.c.SoftMax(must(r.c.Scale(must(r.c.SiLU(h)), 0.5))))
	g := must(r.c.NewGraph())
	got := make([]float32, M*N)
	if err := errors.Join(g.Build(y), r.s.Alloc(g), x.SetF32(xv), r.s.Compute(g), y.GetF32(got)); err != nil {
		t.Fatal(err)
	}
	for n := range N {
		row := xv[n*K : (n+1)*K]
		var sq, sum float64
		for _, v := range row {
			sq += float64(v) * float64(v)
		}
		want := make([]float64, M)
		for m := range want {
			z := float64(bv[m])
			for k, v := range row {
				z += float64(v) / math.Sqrt(sq/K+1e-5) * float64(gv[k]) * float64(w[m*K+k])
			}
			want[m] = math.Exp(z / (1 + math.Exp(-z)) / 2)
			sum += want[m]
		}
		for m := range want {
			if e := math.Abs(float64(got[n*M+m]) - want[m]/sum); e > 1e-4 {
				t.Fatalf("row %d, value %d: %g, want %g", n, m, got[n*M+m], want[m]/sum)
			}
		}
	}
}

// Each of these would be a GGML_ASSERT, which ends the process.
func TestGraphErrors(t *testing.T) {
	r := newRig(t, 1)
	f := func(ne ...int) *Tensor { return must(r.c.NewTensor(TypeF32, ne...)) }
	q := must(r.c.NewTensor(TypeQ8_0, 32, 2))
	i32 := must(r.c.NewTensor(TypeI32, 32))
	other := must(NewContext(1))
	loose := must(other.NewTensor(TypeF32, 32))
	gone := must(NewContext(1))
	dead := must(gone.NewTensor(TypeF32, 32))
	gone.Close()
	gone.Close()
	empty := must(r.w.NewGraph())
	g := must(r.c.NewGraph())
	sum := must(r.c.Add(f(32), loose))
	for name, tt := range map[string]struct {
		err  func() error
		want string
	}{
		"no dimensions":     {func() error { _, err := r.c.NewTensor(TypeF32); return err }, "0 dimensions"},
		"five dimensions":   {func() error { _, err := r.c.NewTensor(TypeF32, 1, 1, 1, 1, 1); return err }, "5 dimensions"},
		"zero size":         {func() error { _, err := r.c.NewTensor(TypeF32, 0); return err }, "dimension 0 is 0"},
		"negative size":     {func() error { _, err := r.c.NewTensor(TypeF32, 2, -1); return err }, "dimension 1 is -1"},
		"overflow":          {func() error { _, err := r.c.NewTensor(TypeF32, 1<<40, 1<<40); return err }, "at most"},
		"part of a block":   {func() error { _, err := r.c.NewTensor(TypeQ8_0, 33); return err }, "multiple of 32"},
		"unknown type":      {func() error { _, err := r.c.NewTensor(Type(4), 32); return err }, "unknown"},
		"mul_mat K":         {func() error { _, err := r.c.MulMat(f(32), f(64)); return err }, "the same dimension 0"},
		"mul_mat broadcast": {func() error { _, err := r.c.MulMat(f(32, 1, 2), f(32, 1, 3)); return err }, "divide"},
		"mul_mat b type":    {func() error { _, err := r.c.MulMat(f(32), q); return err }, "want f32"},
		"mul_mat a type":    {func() error { _, err := r.c.MulMat(i32, f(32)); return err }, "no dot product"},
		"add shapes":        {func() error { _, err := r.c.Add(f(32), f(31)); return err }, "divide"},
		"add types":         {func() error { _, err := r.c.Add(q, q); return err }, "q8_0, want f32"},
		"nil operand":       {func() error { _, err := r.c.Mul(f(1), nil); return err }, "after Close"},
		"closed operand":    {func() error { _, err := r.c.Mul(f(32), dead); return err }, "after Close"},
		"closed context":    {func() error { _, err := gone.NewTensor(TypeF32, 1); return err }, "after Close"},
		"eps":               {func() error { _, err := r.c.RMSNorm(f(1), -1); return err }, "eps -1"},
		"second graph":      {func() error { _, err := r.c.NewGraph(); return err }, "already"},
		"no memory":         {func() error { return f(4).SetF32(make([]float32, 4)) }, "no memory"},
		"empty graph":       {func() error { return r.s.Alloc(empty) }, "no operations"},
		"not allocated":     {func() error { return r.s.Compute(g) }, "no operations"},
		"loose operand":     {func() error { return g.Build(sum) }, "no memory there"},
		"weights with ops":  {func() error { return r.s.AllocTensors(r.c, "CPU") }, "operations, want only tensors"},
		"no such device":    {func() error { return r.s.AllocTensors(other, "CUDA9") }, "want one of CPU"},
		"scheduler device":  {func() error { _, err := NewSched(SchedConfig{Devices: []string{"x"}}); return err }, "want one of CPU"},
		"scheduler threads": {func() error { _, err := NewSched(SchedConfig{Threads: 513}); return err }, "513 threads"},
		"scheduler nodes":   {func() error { _, err := NewSched(SchedConfig{MaxNodes: -1}); return err }, "-1 nodes"},
		"context size":      {func() error { _, err := NewContext(0); return err }, "0 tensors"},
	} {
		if err := tt.err(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want an error with %q", name, err, tt.want)
		}
	}
	other.Close()
}

// A scheduler has memory for one graph: the one before it loses its tensors.
func TestAllocReplaces(t *testing.T) {
	r := newRig(t, 1)
	build := func(c *Context) (*Graph, *Tensor, *Tensor) {
		x := must(c.NewTensor(TypeF32, 4))
		y := must(c.Scale(x, 2))
		g := must(c.NewGraph())
		if err := errors.Join(g.Build(y), r.s.Alloc(g)); err != nil {
			t.Fatal(err)
		}
		return g, x, y
	}
	in, out := []float32{1, 2, 3, 4}, make([]float32, 4)
	g1, x1, _ := build(r.c)
	g2, x2, y2 := build(r.w)
	if err := x1.SetF32(in); err == nil {
		t.Error("Set on a tensor of the replaced graph: no error")
	}
	if err := r.s.Compute(g1); err == nil {
		t.Error("Compute of the replaced graph: no error")
	}
	if err := r.s.Alloc(g1); err == nil {
		t.Error("Alloc of a graph for the second time: no error")
	}
	if err := errors.Join(x2.SetF32(in), r.s.Compute(g2), y2.GetF32(out)); err != nil || out[3] != 8 {
		t.Errorf("the second graph gives %v (%v), want [2 4 6 8]", out, err)
	}
	if err := x2.SetF32(in[:3]); err == nil {
		t.Error("Set with three of four values: no error")
	}
	r.s.Close()
	r.s.Close()
	if err := r.s.Compute(g2); !errors.Is(err, ErrClosed) {
		t.Errorf("Compute after Close = %v, want ErrClosed", err)
	}
	if err := y2.GetF32(out); err == nil {
		t.Error("Get after the scheduler's Close: no error")
	}
	var none *Sched
	none.Close()
	(*Context)(nil).Close()
}

func TestThreadpool(t *testing.T) {
	p, err := NewThreadpool(ThreadpoolConfig{Threads: 3, Mask: []bool{true}, Poll: 50})
	if err != nil {
		t.Fatal(err)
	}
	if p.Pointer() == nil || p.Threads() != 3 {
		t.Errorf("pointer %v, %d threads, want 3", p.Pointer(), p.Threads())
	}
	p.Close()
	p.Close()
	(*Threadpool)(nil).Close()
	if p.Pointer() != nil {
		t.Error("Pointer after Close is not nil")
	}
	for want, cfg := range map[string]ThreadpoolConfig{
		"0 threads":       {},
		"513 threads":     {Threads: 513},
		"mask of 513":     {Threads: 1, Mask: make([]bool, 513)},
		"priority 4":      {Threads: 1, Priority: 4},
		"priority -2":     {Threads: 1, Priority: -2},
		"poll 101":        {Threads: 1, Poll: 101},
		"poll -1, want 0": {Threads: 1, Poll: -1},
	} {
		if _, err := NewThreadpool(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewThreadpool(%+v) = %v, want an error with %q", cfg, err, want)
		}
	}
}
