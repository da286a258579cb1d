package ggml

import (
	"errors"
	"fmt"
	"math"
)

// Mat is a row-major matrix of float32: element (i, j) is Data[i*Stride+j].
type Mat struct {
	Data       []float32
	Rows, Cols int
	Stride     int // at least Cols
}

// NewMat wraps rows*cols values.
func NewMat(data []float32, rows, cols int) Mat {
	return Mat{Data: data, Rows: rows, Cols: cols, Stride: cols}
}

// Sub returns columns [from, from+n) of m.
func (m Mat) Sub(from, n int) Mat {
	return Mat{Data: m.Data[from:], Rows: m.Rows, Cols: n, Stride: m.Stride}
}

// Slice returns rows [from, from+n) of m.
func (m Mat) Slice(from, n int) Mat {
	return Mat{Data: m.Data[from*m.Stride:], Rows: n, Cols: m.Cols, Stride: m.Stride}
}

func (m Mat) check(what string) {
	if m.Rows < 0 || m.Cols < 0 || m.Stride < m.Cols || m.Rows > 0 && m.Cols > 0 && len(m.Data) < (m.Rows-1)*m.Stride+m.Cols {
		panic(fmt.Sprintf("ggml: %s: %d x %d values with stride %d in %d", what, m.Rows, m.Cols, m.Stride, len(m.Data)))
	}
}

// Weights is a matrix in any type that ggml can convert to float32, as it lies
// in a GGUF file: Rows rows of Cols values, one after another.
type Weights struct {
	Type       Type
	Data       []byte
	Rows, Cols int
}

// Slice returns rows [from, from+n) of w.
func (w Weights) Slice(from, n int) Weights {
	row := len(w.Data) / max(w.Rows, 1)
	return Weights{Type: w.Type, Data: w.Data[from*row : (from+n)*row], Rows: n, Cols: w.Cols}
}

// Gemm is one product C = Alpha * op(A) * op(B), added to C where Add is set.
// op transposes where TransA or TransB is set. B is Weights unless BMat is set.
type Gemm struct {
	A      Mat
	TransA bool
	B      Weights
	BMat   *Mat // float32 operand, instead of B
	TransB bool
	C      Mat
	Alpha  float32
	Add    bool
}

// dims returns m, n, k after checking that the operands fit; it panics if not.
func (g *Gemm) dims() (m, n, k int) {
	m, k = g.A.Rows, g.A.Cols
	if g.TransA {
		m, k = k, m
	}
	bk, n := g.B.Rows, g.B.Cols
	if g.BMat != nil {
		g.BMat.check("gemm: B")
		bk, n = g.BMat.Rows, g.BMat.Cols
	}
	if g.TransB {
		bk, n = n, bk
	}
	g.A.check("gemm: A")
	g.C.check("gemm: C")
	if bk != k || g.C.Rows != m || g.C.Cols != n {
		panic(fmt.Sprintf("ggml: gemm: %d x %d times %d x %d into %d x %d", m, k, bk, n, g.C.Rows, g.C.Cols))
	}
	return m, n, k
}

// Norm is an RMS norm of each of Groups equal parts of the rows of X with the
// weights W, one for each value of a part.
type Norm struct {
	X, Y   Mat // Y of the forward pass, or its gradient in the backward pass
	W      []float32
	Groups int
	Eps    float32
	RStd   []float32 // X.Rows * Groups; written forward, read backward
	// Backward only:
	DX  Mat       // gradient of X; not computed where Data is nil
	DW  []float32 // gradient of W is added here; not computed where nil
	Add bool      // add to DX instead of overwriting it
}

func (n *Norm) check() {
	n.X.check("norm: X")
	n.Y.check("norm: Y")
	if n.Groups < 1 || n.X.Cols != len(n.W)*n.Groups || n.Y.Rows != n.X.Rows || n.Y.Cols != n.X.Cols || len(n.RStd) < n.X.Rows*n.Groups {
		panic(fmt.Sprintf("ggml: norm: %d x %d in %d groups, %d weights, %d factors", n.X.Rows, n.X.Cols, n.Groups, len(n.W), len(n.RStd)))
	}
	if n.DX.Data != nil {
		n.DX.check("norm: DX")
	}
	if n.DX.Data != nil && (n.DX.Rows != n.X.Rows || n.DX.Cols != n.X.Cols) || n.DW != nil && len(n.DW) != len(n.W) {
		panic("ggml: norm: gradient of another shape")
	}
}

// Rope rotates Heads heads of HeadDim values in each row of X, in place. Table
// has a row of Dim values for each row of X: Dim/2 cosines, then as many sines.
type Rope struct {
	X              Mat
	Heads, HeadDim int
	Dim            int // values of a head that turn, even
	Table          []float32
	Neox           bool // pairs are (i, i+Dim/2), not (2i, 2i+1)
	Back           bool // turn back: the gradient
}

// Attention is softmax(Scale * Q K') V for each head; query i sees the keys
// Lo[i] to i, and Lo must not fall. Scores are soft-capped where Cap is not 0.
type Attention struct {
	Heads, KVHeads, HeadDim int
	Q, K, V, O              Mat       // a row per token, the heads side by side
	LSE                     []float32 // Heads * tokens; written forward, read backward
	Lo                      []int32
	Scale, Cap              float32
	DO, DQ, DK, DV          Mat // backward only: gradients; DQ, DK, DV are overwritten
}

func (a *Attention) check(back bool) {
	n := a.Q.Rows
	if a.Heads < 1 || a.KVHeads < 1 || a.Heads%a.KVHeads != 0 || a.HeadDim < 1 || len(a.Lo) != n || len(a.LSE) < n*a.Heads {
		panic(fmt.Sprintf("ggml: attention: %d heads, %d kv heads, %d values, %d tokens", a.Heads, a.KVHeads, a.HeadDim, n))
	}
	mats, kv := []Mat{a.Q, a.O}, []Mat{a.K, a.V}
	if back {
		mats, kv = append(mats, a.DO, a.DQ), append(kv, a.DK, a.DV)
	}
	for _, m := range mats {
		m.check("attention: Q")
		if m.Rows != n || m.Cols != a.Heads*a.HeadDim {
			panic(fmt.Sprintf("ggml: attention: %d x %d, want %d x %d", m.Rows, m.Cols, n, a.Heads*a.HeadDim))
		}
	}
	for _, m := range kv {
		m.check("attention: K")
		if m.Rows != n || m.Cols != a.KVHeads*a.HeadDim {
			panic(fmt.Sprintf("ggml: attention: %d x %d, want %d x %d", m.Rows, m.Cols, n, a.KVHeads*a.HeadDim))
		}
	}
	last := int32(0)
	for i, lo := range a.Lo {
		if lo < last || int(lo) > i {
			panic(fmt.Sprintf("ggml: attention: first key %d of query %d", lo, i))
		}
		last = lo
	}
}

// CrossEntropy scores rows of logits against labels.
type CrossEntropy struct {
	Logits  Mat       // soft-capped in place, or replaced by their gradient
	Labels  []int32   // one a row, each below Logits.Cols
	Weights []float32 // one a row; nil: 1
	Cap     float32   // 0: none
	Grad    bool      // replace Logits by the gradient of sum Scale*w*nll
	Scale   float64
	NLL     []float64 // one a row, nats; written
	Right   []uint8   // one a row, 1 where the label's logit is the largest; written
}

func (c *CrossEntropy) check() {
	c.Logits.check("cross entropy")
	n := c.Logits.Rows
	if c.Logits.Stride != c.Logits.Cols || len(c.Labels) != n || c.Weights != nil && len(c.Weights) != n || len(c.NLL) < n || len(c.Right) < n {
		panic(fmt.Sprintf("ggml: cross entropy: %d rows, %d labels, %d weights", n, len(c.Labels), len(c.Weights)))
	}
	for _, l := range c.Labels {
		if l < 0 || int(l) >= c.Logits.Cols {
			panic(fmt.Sprintf("ggml: cross entropy: label %d of %d", l, c.Logits.Cols))
		}
	}
}

// dropShare turns a probability into a share of 2^32.
func dropShare(p float32) uint32 {
	if !(p >= 0 && p < 1) {
		panic(fmt.Sprintf("ggml: dropout %g, want 0 to below 1", p))
	}
	return uint32(math.Min(float64(p)*(1<<32), math.MaxUint32))
}

// errScratch is what a kernel returns when its scratch memory cannot be had.
var errScratch = errors.New("out of memory: scratch of a training kernel")

func checkIDs(what string, ids []int32, n int) {
	for _, id := range ids {
		if id < 0 || int(id) >= n {
			panic(fmt.Sprintf("ggml: %s: row %d of %d", what, id, n))
		}
	}
}
