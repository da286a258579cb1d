//go:build !cgo

package ggml

// Pool cannot be made without cgo, so none of its methods can be reached.
type Pool struct{}

// NewPool returns ErrNoCgo.
func NewPool(threads int) (*Pool, error) { return nil, ErrNoCgo }

// Threads returns 0.
func (p *Pool) Threads() int { return 0 }

// ISA returns "".
func (p *Pool) ISA() string { return "" }

// Close does nothing.
func (p *Pool) Close() {}

// Gemm returns ErrNoCgo.
func (p *Pool) Gemm(jobs ...Gemm) error { return ErrNoCgo }

// Norm does nothing.
func (p *Pool) Norm(n Norm) {}

// NormBack does nothing.
func (p *Pool) NormBack(n Norm) {}

// Rope does nothing.
func (p *Pool) Rope(r Rope) {}

// GLU does nothing.
func (p *Pool) GLU(y, gu Mat, gelu bool) {}

// GLUBack does nothing.
func (p *Pool) GLUBack(dgu, dy, gu Mat, gelu bool) {}

// AXPBY does nothing.
func (p *Pool) AXPBY(y Mat, b float32, x Mat, a float32) {}

// Dropout does nothing.
func (p *Pool) Dropout(y, x Mat, prob float32, seed uint64, add bool) {}

// AddBias does nothing.
func (p *Pool) AddBias(y Mat, b []float32, scale float32) {}

// ColSum does nothing.
func (p *Pool) ColSum(y []float32, x Mat, scale float32) {}

// Gather does nothing.
func (p *Pool) Gather(y Mat, w Weights, ids []int32, scale float32) {}

// Scatter does nothing.
func (p *Pool) Scatter(y, x Mat, ids []int32, scale float32) {}

// CrossEntropy does nothing.
func (p *Pool) CrossEntropy(c CrossEntropy) {}

// Attention returns ErrNoCgo.
func (p *Pool) Attention(a Attention) error { return ErrNoCgo }

// AttentionBack returns ErrNoCgo.
func (p *Pool) AttentionBack(a Attention) error { return ErrNoCgo }
