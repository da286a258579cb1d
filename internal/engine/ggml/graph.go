package ggml

/*
#include "shim.h"
*/
import "C"

import "fmt"

// operand checks one operand of an operation that makes a tensor in c.
func (c *Context) operand(op, name string, t *Tensor) error {
	if t == nil || t.ctx.p == nil {
		return fmt.Errorf("%s: %s: %w", op, name, ErrClosed)
	}
	return nil
}

// f32 checks operands that the CPU backend takes only as f32: it says that it
// supports an element-wise operation on any types and aborts when it runs it.
func (c *Context) f32(op string, ts ...*Tensor) error {
	if err := c.room(); err != nil {
		return err
	}
	for i, t := range ts {
		if err := c.operand(op, fmt.Sprintf("operand %d", i), t); err != nil {
			return err
		}
		if t.Type() != TypeF32 {
			return fmt.Errorf("%s: operand %d is %s, want f32", op, i, t.Type())
		}
	}
	return nil
}

// MulMat returns b · aᵀ per matrix: a is [K, M, ...], b is [K, N, ...] in f32,
// the result is [M, N, ...] in f32. Dimensions 2 and 3 of b are multiples of
// those of a, which is repeated over them. a may have any type with CanMulMat;
// the products then run in that type's dot product and b is rounded to it.
// Source: ggml.c, ggml_mul_mat.
func (c *Context) MulMat(a, b *Tensor) (*Tensor, error) {
	const op = "mul_mat"
	if err := c.f32(op, b); err != nil {
		return nil, err
	}
	if err := c.operand(op, "operand 0", a); err != nil {
		return nil, err
	}
	if info, err := a.Type().Info(); err != nil || !info.CanMulMat {
		return nil, fmt.Errorf("%s: operand 0 is %s, which has no dot product", op, a.Type())
	}
	x, y := a.Shape(), b.Shape()
	if x[0] != y[0] || y[2]%x[2] != 0 || y[3]%x[3] != 0 {
		return nil, fmt.Errorf("%s: shapes %v and %v, want the same dimension 0, and dimensions 2 and 3 of the first to divide those of the second", op, x, y)
	}
	if int64(x[1])*int64(y[1]) > maxTensorBytes/4/int64(y[2])/int64(y[3]) {
		return nil, fmt.Errorf("%s: shapes %v and %v: the result is too large", op, x, y)
	}
	return c.add(C.ggml_mul_mat(c.p, a.p, b.p), a, b), nil
}

// repeats says whether b repeated fills a.
func repeats(op string, a, b *Tensor) error {
	x, y := a.Shape(), b.Shape()
	for i := range x {
		if x[i]%y[i] != 0 {
			return fmt.Errorf("%s: shapes %v and %v, want the second to divide the first", op, x, y)
		}
	}
	return nil
}

// Add returns a + b in f32, b repeated over the dimensions in which it is
// smaller. Source: ggml.c, ggml_add.
func (c *Context) Add(a, b *Tensor) (*Tensor, error) {
	if err := c.f32("add", a, b); err != nil {
		return nil, err
	}
	if err := repeats("add", a, b); err != nil {
		return nil, err
	}
	return c.add(C.ggml_add(c.p, a.p, b.p), a, b), nil
}

// Mul returns the element-wise product in f32, b repeated as in Add.
// Source: ggml.c, ggml_mul.
func (c *Context) Mul(a, b *Tensor) (*Tensor, error) {
	if err := c.f32("mul", a, b); err != nil {
		return nil, err
	}
	if err := repeats("mul", a, b); err != nil {
		return nil, err
	}
	return c.add(C.ggml_mul(c.p, a.p, b.p), a, b), nil
}

// Scale returns s·a in f32. Source: ggml.c, ggml_scale.
func (c *Context) Scale(a *Tensor, s float32) (*Tensor, error) {
	if err := c.f32("scale", a); err != nil {
		return nil, err
	}
	return c.add(C.ggml_scale(c.p, a.p, C.float(s)), a), nil
}

// SiLU returns x·sigmoid(x) in f32. Source: ggml.c, ggml_silu.
func (c *Context) SiLU(a *Tensor) (*Tensor, error) {
	if err := c.f32("silu", a); err != nil {
		return nil, err
	}
	return c.add(C.ggml_silu(c.p, a.p), a), nil
}

// SoftMax returns the softmax over dimension 0 in f32. Source: ggml.c,
// ggml_soft_max.
func (c *Context) SoftMax(a *Tensor) (*Tensor, error) {
	if err := c.f32("soft_max", a); err != nil {
		return nil, err
	}
	return c.add(C.ggml_soft_max(c.p, a.p), a), nil
}

// RMSNorm returns x / sqrt(mean(x²) + eps) over dimension 0 in f32, eps at
// least 0. Source: ggml.c, ggml_rms_norm.
func (c *Context) RMSNorm(a *Tensor, eps float32) (*Tensor, error) {
	if err := c.f32("rms_norm", a); err != nil {
		return nil, err
	}
	if !(eps >= 0) {
		return nil, fmt.Errorf("rms_norm: eps %g, want at least 0", eps)
	}
	return c.add(C.ggml_rms_norm(c.p, a.p, C.float(eps)), a), nil
}

// FlashAttention returns softmax(q·kᵀ)·v as [E, H, N, S] in f32 for queries q
// [D, N, H, S] in f32, keys k [D, M, J, S] and values v [E, M, J, S]: each of J
// heads of keys and values serves H/J of queries. Keys and values are f32, f16,
// bf16 or quantized. A query that sees no key gets zeros.
// Source: ggml.c, ggml_flash_attn_ext.
func (c *Context) FlashAttention(q, k, v *Tensor, a FlashParams) (*Tensor, error) {
	const op = "flash_attn_ext"
	if err := c.f32(op, q); err != nil {
		return nil, err
	}
	for i, t := range []*Tensor{k, v} {
		name := []string{"keys", "values"}[i]
		if err := c.operand(op, name, t); err != nil {
			return nil, err
		}
		if info, err := t.Type().Info(); err != nil || !info.CanMulMat {
			return nil, fmt.Errorf("%s: %s are %s, which has no dot product", op, name, t.Type())
		}
	}
	x, y, z := q.Shape(), k.Shape(), v.Shape()
	if x[0] != y[0] || y[1] != z[1] || x[2]%y[2] != 0 || y[2] != z[2] || x[3] != y[3] || x[3] != z[3] {
		return nil, fmt.Errorf("%s: queries %v, keys %v, values %v, want [D N H S], [D M J S], [E M J S] with H a multiple of J", op, x, y, z)
	}
	var mask *C.struct_ggml_tensor
	src := []*Tensor{q, k, v}
	if a.Mask != nil {
		if err := c.operand(op, "mask", a.Mask); err != nil {
			return nil, err
		}
		if m := a.Mask.Shape(); a.Mask.Type() != TypeF16 || m[0] != y[1] || m[1] != x[1] || x[2]%m[2] != 0 || x[3]%m[3] != 0 {
			return nil, fmt.Errorf("%s: mask %s %v for queries %v and keys %v, want f16 [M N 1 1] or more", op, a.Mask.Type(), m, x, y)
		}
		mask, src = a.Mask.p, append(src, a.Mask)
	} else if a.MaxBias > 0 {
		return nil, fmt.Errorf("%s: a bias of %g without a mask", op, a.MaxBias)
	}
	var sinks *C.struct_ggml_tensor
	if a.Sinks != nil {
		if err := c.f32(op, a.Sinks); err != nil {
			return nil, err
		}
		if s := a.Sinks.Shape(); s != [4]int{x[2], 1, 1, 1} {
			return nil, fmt.Errorf("%s: sinks %v, want [%d 1 1 1]", op, s, x[2])
		}
		sinks, src = a.Sinks.p, append(src, a.Sinks)
	}
	p := C.ggml_flash_attn_ext(c.p, q.p, k.p, v.p, mask, C.float(a.Scale), C.float(a.MaxBias), C.float(a.SoftCap))
	C.ggml_flash_attn_ext_add_sinks(p, sinks)
	return c.add(p, src...), nil
}

// SetReference says whether the CPU's flash attention of fewer than 64 queries, and its products of quantized weights, are
// llama.cpp's own instead of ours (patches 0007 and 0009). It holds for the process; both are off. Only to compare with llama.cpp's
// tools, and not while something is computed; before weights are loaded, if they are to be repacked as there.
func SetReference(attention, products bool) {
	C.ggml_cpu_set_flash_attn_ref(C.bool(attention))
	C.ggml_cpu_set_panels_ref(C.bool(products))
}

// Graph is the order in which operations are computed. It belongs to its
// Context and ends with it.
type Graph struct {
	ctx   *Context
	p     *C.struct_ggml_cgraph
	seen  map[*Tensor]bool
	alloc bool // a Sched has given it memory, once and for all
}

// NewGraph makes the context's graph. A context has one.
func (c *Context) NewGraph() (*Graph, error) {
	if c == nil || c.p == nil {
		return nil, ErrClosed
	}
	if c.graph != nil {
		return nil, fmt.Errorf("context has a graph already")
	}
	p := C.ggml_new_graph_custom(c.p, C.size_t(c.max), false)
	c.graph = &Graph{ctx: c, p: p, seen: map[*Tensor]bool{}}
	return c.graph, nil
}

// Build adds t and everything it is computed from, and keeps t's data until
// the next compute. The graph takes as many tensors, weights included, as the
// context.
func (g *Graph) Build(t *Tensor) error {
	if g == nil || g.ctx.p == nil {
		return ErrClosed
	}
	if g.alloc {
		return fmt.Errorf("graph has its memory already and cannot grow")
	}
	found := map[*Tensor]bool{}
	if err := g.walk(t, found); err != nil {
		return err
	}
	if n := len(g.seen) + len(found); n > g.ctx.max {
		return fmt.Errorf("graph of %d tensors, want at most %d", n, g.ctx.max)
	}
	for x := range found {
		g.seen[x] = true
	}
	C.ggml_set_output(t.p)
	C.ggml_build_forward_expand(g.p, t.p)
	return nil
}

// walk collects into found what t needs and the graph does not hold yet. A
// tensor of another context is an operand whose data is already there.
func (g *Graph) walk(t *Tensor, found map[*Tensor]bool) error {
	if t == nil || t.ctx.p == nil {
		return ErrClosed
	}
	if g.seen[t] || found[t] {
		return nil
	}
	if t.ctx != g.ctx && (t.ctx.buf == nil || t.p.buffer == nil) {
		return fmt.Errorf("tensor of shape %v belongs to another context and has no memory there", t.Shape())
	}
	if t.ctx != g.ctx && len(t.src) > 0 {
		return fmt.Errorf("tensor of shape %v is computed in another context", t.Shape())
	}
	found[t] = true
	for _, s := range t.src {
		if err := g.walk(s, found); err != nil {
			return err
		}
	}
	return nil
}

// check reports a graph that cannot be computed any more, or not yet.
func (g *Graph) check() error {
	if g == nil || g.ctx.p == nil {
		return ErrClosed
	}
	if C.ggml_graph_n_nodes(g.p) == 0 {
		return fmt.Errorf("graph has no operations")
	}
	for t := range g.seen {
		if t.ctx.p == nil {
			return fmt.Errorf("graph uses a tensor of a closed context: %w", ErrClosed)
		}
	}
	return nil
}
