package ggml

/*
#include "optim.h"
*/
import "C"

import (
	"fmt"
	"math"
)

func ptr(x []float32) *C.float { return (*C.float)(&x[0]) }

// AdamW makes one step on all tensors:
//
//	g = Scale·G, M = β1·M + (1-β1)·g, V = β2·V + (1-β2)·g²
//	W = (1 - LR·Decay)·W - LR · (M/(1-β1^Step)) / (sqrt(V/(1-β2^Step)) + Eps)
//
// W, M and V are overwritten. The same bits for any number of threads. Source:
// Loshchilov and Hutter, "Decoupled weight decay regularization" (2019), in the
// form of ggml's opt_step_adamw.
func AdamW(tensors []OptimTensor, p AdamWParams, threads int) error {
	n := make([]int, len(tensors))
	for i := range tensors {
		if err := tensors[i].check(i, true, true); err != nil {
			return err
		}
		n[i] = len(tensors[i].W)
	}
	c := C.gg_adamw_params{
		lr: C.float(p.LR), beta1: C.float(p.Beta1), beta2: C.float(p.Beta2), eps: C.float(p.Eps), scale: C.float(p.Scale),
		c1: C.float(1 / (1 - math.Pow(float64(p.Beta1), float64(p.Step)))),
		c2: C.float(1 / (1 - math.Pow(float64(p.Beta2), float64(p.Step)))),
	}
	eachSpan(spans(n), threads, func(_ int, s span) {
		t, q := &tensors[s.tensor], c
		q.keep = keep(p.LR, p.Decay, t.Decay)
		C.gg_adamw(C.int64_t(s.hi-s.lo), ptr(t.W[s.lo:]), ptr(t.G[s.lo:]), ptr(t.M[s.lo:]), ptr(t.V[s.lo:]), &q)
	})
	return nil
}

// keep is what decay leaves of a value.
func keep(lr, decay float32, on bool) C.float {
	if !on {
		return 1
	}
	return C.float(1 - float64(lr)*float64(decay))
}

// SGD makes one step on all tensors, with momentum
//
//	g = Scale·G, M = Momentum·M + g, W = (1 - LR·Decay)·W - LR·M
//
// or, with Nesterov, - LR·(g + Momentum·M); with Momentum 0, - LR·g. The same
// bits for any number of threads.
func SGD(tensors []OptimTensor, p SGDParams, threads int) error {
	n := make([]int, len(tensors))
	for i := range tensors {
		if err := tensors[i].check(i, p.Momentum != 0, false); err != nil {
			return err
		}
		n[i] = len(tensors[i].W)
	}
	c := C.gg_sgd_params{lr: C.float(p.LR), momentum: C.float(p.Momentum), scale: C.float(p.Scale), nesterov: C.bool(p.Nesterov)}
	eachSpan(spans(n), threads, func(_ int, s span) {
		t, q := &tensors[s.tensor], c
		q.keep = keep(p.LR, p.Decay, t.Decay)
		var m *C.float
		if p.Momentum != 0 {
			m = ptr(t.M[s.lo:])
		}
		C.gg_sgd(C.int64_t(s.hi-s.lo), ptr(t.W[s.lo:]), ptr(t.G[s.lo:]), m, &q)
	})
	return nil
}

// SumSquares returns the sum of the squares of each slice of x, in double. Blocks
// are summed in their order, so that the bits depend neither on threads nor on
// what else is in x.
func SumSquares(x [][]float32, threads int) []float64 {
	n := make([]int, len(x))
	for i := range x {
		n[i] = len(x[i])
	}
	list := spans(n)
	parts := make([]float64, len(list))
	eachSpan(list, threads, func(i int, s span) {
		parts[i] = float64(C.gg_sum_squares(C.int64_t(s.hi-s.lo), ptr(x[s.tensor][s.lo:])))
	})
	sums := make([]float64, len(x))
	for i, s := range list {
		sums[s.tensor] += parts[i]
	}
	return sums
}

// Muon makes Muon steps on matrices. It keeps the memory of one matrix of each
// shape that it met.
type Muon struct {
	threads int
	plans   map[[2]int]*C.struct_gg_ortho
	scratch []float32
}

// NewMuon makes a Muon for this many threads, at least 1.
func NewMuon(threads int) *Muon {
	return &Muon{threads: min(max(threads, 1), maxThreads), plans: map[[2]int]*C.struct_gg_ortho{}}
}

// Close frees the memory. It may be called twice and on nil.
func (u *Muon) Close() {
	if u == nil {
		return
	}
	for _, o := range u.plans {
		C.gg_ortho_free(o)
	}
	u.plans = nil
}

// muonEps keeps the norm of a zero gradient from dividing by zero.
const muonEps = 1e-7

// muonScale makes the root mean square of a step that of a usual AdamW step
// for a matrix of any shape, so that one learning rate serves both. Source: Liu
// et al., "Muon is scalable for LLM training" (2025).
func muonScale(n0, n1 int) float64 { return 0.2 * math.Sqrt(float64(max(n0, n1))) }

// Step makes one step on t, a matrix of n1 rows of n0 values:
//
//	g = Scale·G, M = Momentum·M + g, X = g + Momentum·M
//	W = (1 - LR·Decay)·W - LR·0.2·sqrt(max(n0, n1))·orthogonal(X)
//
// W and M are overwritten. Source: Keller Jordan, "Muon" (2024), with the
// scale of Liu et al. (2025).
func (u *Muon) Step(t OptimTensor, n0, n1 int, p MuonParams) error {
	if u.plans == nil {
		return ErrClosed
	}
	if err := t.check(0, true, false); err != nil {
		return err
	}
	n := len(t.W)
	if n0 < 1 || n1 < 1 || n0 > n || n0*n1 != n {
		return fmt.Errorf("optimizer: %d values as %d rows of %d", n, n1, n0)
	}
	if cap(u.scratch) < n {
		u.scratch = make([]float32, n)
	}
	x := u.scratch[:n]
	list := spans([]int{n})
	eachSpan(list, u.threads, func(_ int, s span) {
		C.gg_muon_momentum(C.int64_t(s.hi-s.lo), ptr(t.G[s.lo:]), ptr(t.M[s.lo:]), ptr(x[s.lo:]), C.float(p.Momentum), C.float(p.Scale))
	})
	if err := u.Orthogonalize(x, x, n0, n1); err != nil {
		return err
	}
	lr := C.float(float64(p.LR) * muonScale(n0, n1))
	eachSpan(list, u.threads, func(_ int, s span) {
		C.gg_descend(C.int64_t(s.hi-s.lo), ptr(t.W[s.lo:]), ptr(x[s.lo:]), lr, keep(p.LR, p.Decay, t.Decay))
	})
	return nil
}

// Orthogonalize sets y to a matrix with the singular vectors of x and singular
// values near 1, by five Newton-Schulz iterations. x and y hold n1 rows of n0
// values and may be the same slice.
func (u *Muon) Orthogonalize(y, x []float32, n0, n1 int) error {
	if u.plans == nil {
		return ErrClosed
	}
	if n0 < 1 || n1 < 1 || n0 > len(x) || n0*n1 != len(x) || len(y) != len(x) || len(x) > maxTensorBytes/4 {
		return fmt.Errorf("orthogonalize: %d and %d values as %d rows of %d", len(y), len(x), n1, n0)
	}
	var e C.gg_err
	o := u.plans[[2]int{n0, n1}]
	if o == nil {
		if o = C.gg_ortho_new(C.int64_t(n0), C.int64_t(n1), C.int(u.threads), &e); o == nil {
			return shimError(&e)
		}
		u.plans[[2]int{n0, n1}] = o
	}
	norm := math.Sqrt(SumSquares([][]float32{x}, u.threads)[0]) + muonEps
	if !C.gg_ortho_run(o, ptr(x), C.float(1/norm), ptr(y), &e) {
		return shimError(&e)
	}
	return nil
}
