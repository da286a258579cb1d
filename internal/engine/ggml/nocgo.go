//go:build !cgo

package ggml

import (
	"fmt"
	"unsafe"
)

// Devices returns nil.
func Devices() []Device { return nil }

// CPUFeatures returns nil.
func CPUFeatures() []string { return nil }

// BuildInfo returns the pin; no library is linked in.
func BuildInfo() Build { return Build{Pin: pinVersion, Commit: pinCommit} }

// ServeRPC returns ErrNoCgo.
func ServeRPC(RPCServer) error { return ErrNoCgo }

func addRPC(string) error { return ErrNoCgo }

// Types returns nil.
func Types() []TypeInfo { return nil }

// ParseType returns ErrNoCgo.
func ParseType(name string) (Type, error) { return 0, ErrNoCgo }

// Info returns ErrNoCgo.
func (t Type) Info() (TypeInfo, error) { return TypeInfo{}, ErrNoCgo }

// String returns "type N".
func (t Type) String() string { return fmt.Sprintf("type %d", int(t)) }

// F32ToF16 rounds src into dst, ties to even. It panics when the lengths differ.
func F32ToF16(dst []uint16, src []float32) {
	sameLen("F32ToF16", len(dst), len(src))
	for i, v := range src {
		dst[i] = f16Bits(v)
	}
}

// F16ToF32 widens src into dst. It panics when the lengths differ.
func F16ToF32(dst []float32, src []uint16) {
	sameLen("F16ToF32", len(dst), len(src))
	for i, v := range src {
		dst[i] = f16Float(v)
	}
}

// F32ToBF16 rounds src into dst, ties to even. It panics when the lengths differ.
func F32ToBF16(dst []uint16, src []float32) {
	sameLen("F32ToBF16", len(dst), len(src))
	for i, v := range src {
		dst[i] = bf16Bits(v)
	}
}

// BF16ToF32 widens src into dst. It panics when the lengths differ.
func BF16ToF32(dst []float32, src []uint16) {
	sameLen("BF16ToF32", len(dst), len(src))
	for i, v := range src {
		dst[i] = bf16Float(v)
	}
}

// Quantize returns ErrNoCgo.
func Quantize(t Type, src []float32, nPerRow int, imatrix []float32) ([]byte, error) {
	return nil, ErrNoCgo
}

// Dequantize returns ErrNoCgo.
func Dequantize(t Type, src []byte, n int) ([]float32, error) { return nil, ErrNoCgo }

// StdoutClosed cannot tell without cgo.
func StdoutClosed() bool { return false }

// Threadpool cannot be made without cgo.
type Threadpool struct{}

// NewThreadpool checks cfg and returns ErrNoCgo.
func NewThreadpool(cfg ThreadpoolConfig) (*Threadpool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return nil, ErrNoCgo
}

// Pointer returns nil.
func (t *Threadpool) Pointer() unsafe.Pointer { return nil }

// Threads returns 0.
func (t *Threadpool) Threads() int { return 0 }

// Close does nothing.
func (t *Threadpool) Close() {}

// Context cannot be made without cgo.
type Context struct{}

// Tensor cannot be made without cgo.
type Tensor struct{}

// Graph cannot be made without cgo.
type Graph struct{}

// Sched cannot be made without cgo.
type Sched struct{}

// NewContext returns ErrNoCgo.
func NewContext(maxTensors int) (*Context, error) { return nil, ErrNoCgo }

// Close does nothing.
func (c *Context) Close() {}

// NewTensor returns ErrNoCgo.
func (c *Context) NewTensor(t Type, ne ...int) (*Tensor, error) { return nil, ErrNoCgo }

// MulMat returns ErrNoCgo.
func (c *Context) MulMat(a, b *Tensor) (*Tensor, error) { return nil, ErrNoCgo }

// Add returns ErrNoCgo.
func (c *Context) Add(a, b *Tensor) (*Tensor, error) { return nil, ErrNoCgo }

// Mul returns ErrNoCgo.
func (c *Context) Mul(a, b *Tensor) (*Tensor, error) { return nil, ErrNoCgo }

// Scale returns ErrNoCgo.
func (c *Context) Scale(a *Tensor, s float32) (*Tensor, error) { return nil, ErrNoCgo }

// SiLU returns ErrNoCgo.
func (c *Context) SiLU(a *Tensor) (*Tensor, error) { return nil, ErrNoCgo }

// SoftMax returns ErrNoCgo.
func (c *Context) SoftMax(a *Tensor) (*Tensor, error) { return nil, ErrNoCgo }

// RMSNorm returns ErrNoCgo.
func (c *Context) RMSNorm(a *Tensor, eps float32) (*Tensor, error) { return nil, ErrNoCgo }

// FlashAttention returns ErrNoCgo.
func (c *Context) FlashAttention(q, k, v *Tensor, a FlashParams) (*Tensor, error) {
	return nil, ErrNoCgo
}

// SetReference does nothing.
func SetReference(bool, bool) {}

// NewGraph returns ErrNoCgo.
func (c *Context) NewGraph() (*Graph, error) { return nil, ErrNoCgo }

// Type returns 0.
func (t *Tensor) Type() Type { return 0 }

// Shape returns zeros.
func (t *Tensor) Shape() [4]int { return [4]int{} }

// NBytes returns 0.
func (t *Tensor) NBytes() int { return 0 }

// Set returns ErrNoCgo.
func (t *Tensor) Set(data []byte) error { return ErrNoCgo }

// Get returns ErrNoCgo.
func (t *Tensor) Get(data []byte) error { return ErrNoCgo }

// SetF32 returns ErrNoCgo.
func (t *Tensor) SetF32(data []float32) error { return ErrNoCgo }

// GetF32 returns ErrNoCgo.
func (t *Tensor) GetF32(data []float32) error { return ErrNoCgo }

// Build returns ErrNoCgo.
func (g *Graph) Build(t *Tensor) error { return ErrNoCgo }

// NewSched returns ErrNoCgo.
func NewSched(cfg SchedConfig) (*Sched, error) { return nil, ErrNoCgo }

// Close does nothing.
func (s *Sched) Close() {}

// AllocTensors returns ErrNoCgo.
func (s *Sched) AllocTensors(c *Context, device string) error { return ErrNoCgo }

// Alloc returns ErrNoCgo.
func (s *Sched) Alloc(g *Graph) error { return ErrNoCgo }

// Compute returns ErrNoCgo.
func (s *Sched) Compute(g *Graph) error { return ErrNoCgo }
