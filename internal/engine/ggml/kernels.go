package ggml

/*
#cgo CXXFLAGS: -O3
#include "shim.h"
#include "kernels.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"
)

// Pool runs the training kernels on threads of its own and the caller's. All
// buffers of one call lie outside the Go heap (see [NewFloats]). Results are
// the same to the bit for any number of threads. A Pool runs one operation at
// a time. Methods panic where shapes do not fit: that is a bug in the caller.
type Pool struct {
	p       *C.gk_pool
	threads int
	jobs    []C.gk_gemm
}

// NewPool starts a pool of the given number of threads, 1 to 512, the caller's
// included. The threads sleep when there is nothing to do.
func NewPool(threads int) (*Pool, error) {
	if threads < 1 || threads > maxThreads {
		return nil, fmt.Errorf("thread pool: %d threads, want 1 to %d", threads, maxThreads)
	}
	cpuInit()
	p := C.gk_pool_new(C.int(threads))
	if p == nil {
		return nil, fmt.Errorf("thread pool: cannot start %d threads", threads)
	}
	return &Pool{p: p, threads: threads}, nil
}

// Threads returns how many threads compute, the caller's included.
func (p *Pool) Threads() int { return p.threads }

// ISA names the instruction set of the kernels: avx512, avx2, or nothing for
// the ones that any CPU runs.
func (p *Pool) ISA() string {
	return map[C.int]string{16: "avx512", 8: "avx2"}[C.gk_vector()]
}

// useVector chooses the kernels with vectors of n floats and reports whether
// this CPU runs them. It is for tests, between operations.
func useVector(n int) bool { return bool(C.gk_use_vector(C.int(n))) }

func vector() int { return int(C.gk_vector()) }

// Close ends the threads. It may be called twice and on nil.
func (p *Pool) Close() {
	if p == nil || p.p == nil {
		return
	}
	C.gk_pool_free(p.p)
	p.p = nil
}

func fp(s []float32) *C.float {
	if len(s) == 0 {
		return nil
	}
	return (*C.float)(unsafe.Pointer(&s[0]))
}

// Gemm runs independent products, sharing the threads among all of them. It
// fails only for want of memory.
func (p *Pool) Gemm(jobs ...Gemm) error {
	p.jobs = p.jobs[:0]
	for i := range jobs {
		g := &jobs[i]
		m, n, k := g.dims()
		if m == 0 || n == 0 || k == 0 {
			continue
		}
		j := C.gk_gemm{
			m: C.int64_t(m), n: C.int64_t(n), k: C.int64_t(k),
			a: fp(g.A.Data), a_ld: C.int64_t(g.A.Stride), a_trans: C.bool(g.TransA),
			b_trans: C.bool(g.TransB), add: C.bool(g.Add), alpha: C.float(g.Alpha),
			c: fp(g.C.Data), c_ld: C.int64_t(g.C.Stride),
		}
		if g.BMat != nil {
			j.b, j.b_ld = unsafe.Pointer(&g.BMat.Data[0]), C.int64_t(g.BMat.Stride)
		} else {
			setWeights(&j, g.B)
		}
		p.jobs = append(p.jobs, j)
	}
	if len(p.jobs) == 0 {
		return nil
	}
	if !C.gk_run_gemm(p.p, &p.jobs[0], C.int(len(p.jobs))) {
		return errScratch
	}
	return nil
}

// setWeights makes w the B of a product.
func setWeights(j *C.gk_gemm, w Weights) {
	ct := C.enum_ggml_type(w.Type)
	block, bytes := int(C.ggml_blck_size(ct)), int(C.ggml_type_size(ct))
	if w.Cols%block != 0 || len(w.Data) != w.Rows*(w.Cols/block)*bytes {
		panic(fmt.Sprintf("ggml: gemm: %d x %d of %s in %d bytes", w.Rows, w.Cols, w.Type, len(w.Data)))
	}
	j.b = unsafe.Pointer(&w.Data[0])
	if w.Type == TypeF32 {
		j.b_ld = C.int64_t(w.Cols)
		return
	}
	j.b_ld = C.int64_t(w.Cols / block * bytes)
	j.b_block, j.b_bytes = C.int64_t(block), C.int64_t(bytes)
	j.to_float = C.gg_to_float(C.int(w.Type))
	if j.to_float == nil {
		panic(fmt.Sprintf("ggml: gemm: no conversion of %s", w.Type))
	}
}

func (n *Norm) c() C.gk_norm {
	n.check()
	return C.gk_norm{
		rows: C.int64_t(n.X.Rows * n.Groups), n: C.int64_t(len(n.W)), groups: C.int64_t(n.Groups),
		x: fp(n.X.Data), x_ld: C.int64_t(n.X.Stride), w: fp(n.W), y: fp(n.Y.Data), dy: fp(n.Y.Data), y_ld: C.int64_t(n.Y.Stride),
		rstd: fp(n.RStd), dx: fp(n.DX.Data), dx_ld: C.int64_t(n.DX.Stride), dw: fp(n.DW), add: C.bool(n.Add), eps: C.float(n.Eps),
	}
}

// Norm computes Y and RStd.
func (p *Pool) Norm(n Norm) {
	a := n.c()
	C.gk_run_norm(p.p, &a)
}

// NormBack computes DX and DW from Y, the gradient of the norm's result.
func (p *Pool) NormBack(n Norm) {
	a := n.c()
	C.gk_run_norm_back(p.p, &a)
}

// Rope rotates X in place.
func (p *Pool) Rope(r Rope) {
	r.X.check("rope")
	if r.Dim%2 != 0 || r.Dim > r.HeadDim || r.Heads*r.HeadDim != r.X.Cols || len(r.Table) < r.X.Rows*r.Dim {
		panic(fmt.Sprintf("ggml: rope: %d of %d values, %d heads, %d columns", r.Dim, r.HeadDim, r.Heads, r.X.Cols))
	}
	sign := C.float(1)
	if r.Back {
		sign = -1
	}
	C.gk_run_rope(p.p, &C.gk_rope{
		x: fp(r.X.Data), rows: C.int64_t(r.X.Rows), ld: C.int64_t(r.X.Stride), heads: C.int64_t(r.Heads),
		head_dim: C.int64_t(r.HeadDim), half: C.int64_t(r.Dim / 2), cs: fp(r.Table), neox: C.bool(r.Neox), sign: sign,
	})
}

// GLU computes y = act(gate) * up, where a row of gu is gate, then up. act is
// SiLU, or the tanh form of GELU.
func (p *Pool) GLU(y, gu Mat, gelu bool) {
	checkGLU(y, gu)
	C.gk_run_glu(p.p, &C.gk_glu{gu: fp(gu.Data), y: fp(y.Data), rows: C.int64_t(y.Rows), n: C.int64_t(y.Cols), gelu: C.bool(gelu)})
}

// GLUBack computes dgu, the gradient of gu, from dy.
func (p *Pool) GLUBack(dgu, dy, gu Mat, gelu bool) {
	checkGLU(dy, gu)
	checkGLU(dy, dgu)
	C.gk_run_glu_back(p.p, &C.gk_glu{
		gu: fp(gu.Data), dy: fp(dy.Data), dgu: fp(dgu.Data), rows: C.int64_t(dy.Rows), n: C.int64_t(dy.Cols), gelu: C.bool(gelu),
	})
}

func checkGLU(y, gu Mat) {
	y.check("glu: y")
	gu.check("glu: gu")
	if gu.Cols != 2*y.Cols || gu.Rows != y.Rows || gu.Stride != gu.Cols || y.Stride != y.Cols {
		panic(fmt.Sprintf("ggml: glu: %d x %d into %d x %d", gu.Rows, gu.Cols, y.Rows, y.Cols))
	}
}

func sameShape(what string, x, y Mat) {
	x.check(what)
	y.check(what)
	if x.Rows != y.Rows || x.Cols != y.Cols {
		panic(fmt.Sprintf("ggml: %s: %d x %d and %d x %d", what, x.Rows, x.Cols, y.Rows, y.Cols))
	}
}

// AXPBY computes y = a*x + b*y; y is not read where b is 0.
func (p *Pool) AXPBY(y Mat, b float32, x Mat, a float32) {
	sameShape("axpby", x, y)
	C.gk_run_axpby(p.p, &C.gk_rows{
		x: fp(x.Data), x_ld: C.int64_t(x.Stride), y: fp(y.Data), y_ld: C.int64_t(y.Stride),
		rows: C.int64_t(x.Rows), n: C.int64_t(x.Cols), a: C.float(a), b: C.float(b),
	})
}

// Dropout computes y = x with each value 0 with probability prob and divided by
// 1-prob otherwise, added to y where add is set. Which are 0 depends on seed
// and the value's index alone, so the gradient is the same call on gradients.
func (p *Pool) Dropout(y, x Mat, prob float32, seed uint64, add bool) {
	sameShape("dropout", x, y)
	a := C.gk_rows{
		x: fp(x.Data), x_ld: C.int64_t(x.Stride), y: fp(y.Data), y_ld: C.int64_t(y.Stride),
		rows: C.int64_t(x.Rows), n: C.int64_t(x.Cols), a: C.float(1 / (1 - prob)), seed: C.uint64_t(seed), drop: C.uint32_t(dropShare(prob)),
	}
	if add {
		a.b = 1
	}
	C.gk_run_dropout(p.p, &a)
}

// AddBias adds scale*b to each row of y.
func (p *Pool) AddBias(y Mat, b []float32, scale float32) {
	if len(b) != y.Cols {
		panic(fmt.Sprintf("ggml: bias of %d values for %d columns", len(b), y.Cols))
	}
	y.check("bias")
	C.gk_run_axpby(p.p, &C.gk_rows{
		x: fp(b), x_ld: 0, y: fp(y.Data), y_ld: C.int64_t(y.Stride), rows: C.int64_t(y.Rows), n: C.int64_t(y.Cols), a: C.float(scale), b: 1,
	})
}

// ColSum adds scale times the sums of x's columns to y.
func (p *Pool) ColSum(y []float32, x Mat, scale float32) {
	x.check("column sums")
	if len(y) != x.Cols {
		panic(fmt.Sprintf("ggml: sums of %d columns into %d", x.Cols, len(y)))
	}
	C.gk_run_col_sum(p.p, &C.gk_rows{x: fp(x.Data), x_ld: C.int64_t(x.Stride), y: fp(y), rows: C.int64_t(x.Rows), n: C.int64_t(x.Cols), a: C.float(scale)})
}

// Gather computes row i of y as scale times row ids[i] of w. A nil ids stands
// for all rows of w in order.
func (p *Pool) Gather(y Mat, w Weights, ids []int32, scale float32) {
	y.check("gather: y")
	n := len(ids)
	if ids == nil {
		n = w.Rows
	}
	if n != y.Rows || w.Cols != y.Cols {
		panic(fmt.Sprintf("ggml: gather: %d rows of %d into %d x %d", n, w.Cols, y.Rows, y.Cols))
	}
	if n == 0 {
		return
	}
	var j C.gk_gemm
	setWeights(&j, w)
	a := C.gk_gather{
		w: (*C.char)(j.b), row_bytes: C.int64_t(len(w.Data) / w.Rows), rows: C.int64_t(n), n: C.int64_t(w.Cols), to_float: j.to_float,
		y: fp(y.Data), y_ld: C.int64_t(y.Stride), scale: C.float(scale),
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	if ids != nil {
		checkIDs("gather", ids, w.Rows)
		pin.Pin(&ids[0])
		a.ids = (*C.int32_t)(&ids[0])
	}
	C.gk_run_gather(p.p, &a)
}

// Scatter adds scale times row i of x to row ids[i] of y, in order.
func (p *Pool) Scatter(y, x Mat, ids []int32, scale float32) {
	x.check("scatter: x")
	y.check("scatter: y")
	if len(ids) != x.Rows || x.Cols != y.Cols {
		panic(fmt.Sprintf("ggml: scatter: %d ids, %d x %d", len(ids), x.Rows, x.Cols))
	}
	checkIDs("scatter", ids, y.Rows)
	if len(ids) == 0 {
		return
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&ids[0])
	C.gk_run_scatter(p.p, &C.gk_rows{
		x: fp(x.Data), x_ld: C.int64_t(x.Stride), y: fp(y.Data), y_ld: C.int64_t(y.Stride),
		rows: C.int64_t(x.Rows), n: C.int64_t(x.Cols), a: C.float(scale), ids: (*C.int32_t)(&ids[0]),
	})
}

// CrossEntropy fills NLL and Right and, where asked, turns logits into gradients.
func (p *Pool) CrossEntropy(c CrossEntropy) {
	c.check()
	if c.Logits.Rows == 0 {
		return
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&c.Labels[0])
	pin.Pin(&c.NLL[0])
	pin.Pin(&c.Right[0])
	a := C.gk_xent{
		logits: fp(c.Logits.Data), rows: C.int64_t(c.Logits.Rows), n: C.int64_t(c.Logits.Cols), labels: (*C.int32_t)(&c.Labels[0]),
		nll: (*C.double)(&c.NLL[0]), right: (*C.uint8_t)(&c.Right[0]), cap: C.float(c.Cap), scale: C.double(c.Scale), grad: C.bool(c.Grad),
	}
	if c.Weights != nil {
		pin.Pin(&c.Weights[0])
		a.weights = (*C.float)(&c.Weights[0])
	}
	C.gk_run_xent(p.p, &a)
}

func (a *Attention) c(pin *runtime.Pinner) C.gk_attn {
	pin.Pin(&a.Lo[0])
	return C.gk_attn{
		n: C.int64_t(a.Q.Rows), heads: C.int64_t(a.Heads), kv_heads: C.int64_t(a.KVHeads), head_dim: C.int64_t(a.HeadDim),
		q: fp(a.Q.Data), k: fp(a.K.Data), v: fp(a.V.Data), o: fp(a.O.Data), lse: fp(a.LSE), lo: (*C.int32_t)(&a.Lo[0]),
		q_ld: C.int64_t(a.Q.Stride), k_ld: C.int64_t(a.K.Stride), v_ld: C.int64_t(a.V.Stride), o_ld: C.int64_t(a.O.Stride),
		scale: C.float(a.Scale), cap: C.float(a.Cap),
		go_: fp(a.DO.Data), go_ld: C.int64_t(a.DO.Stride), dq: fp(a.DQ.Data), dk: fp(a.DK.Data), dv: fp(a.DV.Data),
		dq_ld: C.int64_t(a.DQ.Stride), dk_ld: C.int64_t(a.DK.Stride), dv_ld: C.int64_t(a.DV.Stride),
	}
}

// Attention computes O and LSE. It fails only for want of memory.
func (p *Pool) Attention(a Attention) error {
	a.check(false)
	if a.Q.Rows == 0 {
		return nil
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	c := a.c(&pin)
	if !C.gk_run_attn(p.p, &c) {
		return errScratch
	}
	return nil
}

// AttentionBack computes DQ, DK and DV from DO and what Attention was given and
// wrote. It fails only for want of memory.
func (p *Pool) AttentionBack(a Attention) error {
	a.check(true)
	if a.Q.Rows == 0 {
		return nil
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	c := a.c(&pin)
	if !C.gk_run_attn_back(p.p, &c) {
		return errScratch
	}
	return nil
}
