package ggml

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"unsafe"
)

const (
	maxDims = 4 // GGML_MAX_DIMS
	// maxTensorBytes keeps every product of sizes and strides inside int64.
	maxTensorBytes = 1 << 46
	// maxContextTensors bounds a context and a graph; llama.cpp's largest
	// graphs hold some ten thousand.
	maxContextTensors = 1 << 20
)

// Context owns tensors and at most one graph over them. Its tensors get memory
// from Sched.AllocTensors (weights) or from Sched.Alloc (a graph and its inputs).
type Context struct {
	p     *C.struct_ggml_context
	buf   C.ggml_backend_buffer_t // memory of all tensors made before AllocTensors
	graph *Graph
	max   int // tensors that fit
	n     int // tensors made
	ops   int // of these, results of operations
	owner *Sched
}

// Tensor is an array of up to 4 dimensions, dimension 0 contiguous in memory.
// It is valid until its Context is closed.
type Tensor struct {
	ctx *Context
	p   *C.struct_ggml_tensor
	src []*Tensor
}

// NewContext makes a context for up to maxTensors tensors, 1 to 1048576.
func NewContext(maxTensors int) (*Context, error) {
	if maxTensors < 1 || maxTensors > maxContextTensors {
		return nil, fmt.Errorf("context of %d tensors, want 1 to %d", maxTensors, maxContextTensors)
	}
	size := C.size_t(maxTensors)*C.ggml_tensor_overhead() + C.ggml_graph_overhead_custom(C.size_t(maxTensors), false)
	p := C.ggml_init(C.struct_ggml_init_params{mem_size: size, no_alloc: true})
	if p == nil {
		return nil, fmt.Errorf("context of %d tensors: out of memory", maxTensors)
	}
	return &Context{p: p, max: maxTensors}, nil
}

// Close frees the tensors and their memory. It may be called twice and on nil.
// Close a context before the Sched that gave it memory.
func (c *Context) Close() {
	if c == nil || c.p == nil {
		return
	}
	if c.owner != nil {
		c.owner.release(c)
	}
	if c.buf != nil {
		C.ggml_backend_buffer_free(c.buf)
		c.buf = nil
	}
	C.ggml_free(c.p)
	c.p, c.graph = nil, nil
}

// room says whether one more tensor can be made.
func (c *Context) room() error {
	if c == nil || c.p == nil {
		return ErrClosed
	}
	if c.n >= c.max {
		return fmt.Errorf("context is full: %d tensors", c.max)
	}
	return nil
}

// add wraps a tensor that C has just made in c.
func (c *Context) add(p *C.struct_ggml_tensor, src ...*Tensor) *Tensor {
	c.n++
	if len(src) > 0 {
		c.ops++
	}
	return &Tensor{ctx: c, p: p, src: src}
}

// NewTensor makes a tensor of type t and shape ne, dimension 0 first, 1 to 4
// dimensions of at least 1. ne[0] must be a multiple of the type's block size.
// It has no memory yet.
func (c *Context) NewTensor(t Type, ne ...int) (*Tensor, error) {
	if err := c.room(); err != nil {
		return nil, err
	}
	info, err := t.Info()
	if err != nil {
		return nil, err
	}
	if len(ne) < 1 || len(ne) > maxDims {
		return nil, fmt.Errorf("tensor of %d dimensions, want 1 to %d", len(ne), maxDims)
	}
	if ne[0]%info.BlockSize != 0 {
		return nil, fmt.Errorf("tensor of type %s: rows of %d values, want a multiple of %d", info.Name, ne[0], info.BlockSize)
	}
	var cne [maxDims]C.int64_t
	left := maxTensorBytes / info.BlockBytes // values of one byte or less, so this bounds the bytes
	for i, n := range ne {
		if n < 1 || n > left {
			return nil, fmt.Errorf("tensor of shape %v: dimension %d is %d, want at least 1 and %d bytes in all at most", ne, i, n, maxTensorBytes)
		}
		left /= n
		cne[i] = C.int64_t(n)
	}
	p := C.ggml_new_tensor(c.p, C.enum_ggml_type(t), C.int(len(ne)), &cne[0])
	// Without the flag the allocator may give an input's memory to a later
	// result; with it the data stays for a second compute.
	C.ggml_set_input(p)
	return c.add(p), nil
}

// Type returns the tensor's type.
func (t *Tensor) Type() Type { return Type(t.p._type) }

// Shape returns the four sizes, dimension 0 first, 1 for those not used.
func (t *Tensor) Shape() [4]int {
	var s [4]int
	for i := range s {
		s[i] = int(t.p.ne[i])
	}
	return s
}

// NBytes returns the size of the data in bytes.
func (t *Tensor) NBytes() int { return int(C.ggml_nbytes(t.p)) }

// usable says whether the tensor's data can be read and written.
func (t *Tensor) usable() error {
	switch {
	case t == nil || t.ctx.p == nil:
		return ErrClosed
	case t.p.buffer == nil || t.ctx.buf == nil && t.ctx.owner == nil:
		return fmt.Errorf("tensor of shape %v has no memory", t.Shape())
	}
	return nil
}

// Set copies data, exactly NBytes bytes in the tensor's type and layout, to the
// device. data is not kept.
func (t *Tensor) Set(data []byte) error {
	if err := t.usable(); err != nil {
		return err
	}
	if len(data) != t.NBytes() {
		return fmt.Errorf("tensor of shape %v: %d bytes, want %d", t.Shape(), len(data), t.NBytes())
	}
	var e C.gg_err
	C.gg_tensor_set(t.p, unsafe.Pointer(&data[0]), C.size_t(len(data)), &e)
	return shimError(&e)
}

// Get copies the data from the device into data, exactly NBytes bytes.
func (t *Tensor) Get(data []byte) error {
	if err := t.usable(); err != nil {
		return err
	}
	if len(data) != t.NBytes() {
		return fmt.Errorf("tensor of shape %v: %d bytes, want %d", t.Shape(), len(data), t.NBytes())
	}
	var e C.gg_err
	C.gg_tensor_get(t.p, unsafe.Pointer(&data[0]), C.size_t(len(data)), &e)
	return shimError(&e)
}

// SetF32 is Set for a tensor of type f32.
func (t *Tensor) SetF32(data []float32) error {
	b, err := t.f32Bytes(data)
	if err != nil {
		return err
	}
	return t.Set(b)
}

// GetF32 is Get for a tensor of type f32.
func (t *Tensor) GetF32(data []float32) error {
	b, err := t.f32Bytes(data)
	if err != nil {
		return err
	}
	return t.Get(b)
}

// f32Bytes views data as bytes when the tensor takes float32.
func (t *Tensor) f32Bytes(data []float32) ([]byte, error) {
	if err := t.usable(); err != nil {
		return nil, err
	}
	if t.Type() != TypeF32 {
		return nil, fmt.Errorf("tensor of type %s, want f32", t.Type())
	}
	if len(data) == 0 {
		return nil, nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&data[0])), len(data)*4), nil
}
