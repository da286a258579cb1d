package graph

import "gollama/internal/engine/ggml"

// acts is what the forward pass of a layer leaves for the way back. Matrices
// have a row per token. What an architecture does not need is empty.
type acts struct {
	h     ggml.Mat  // norm of the input
	rstd  []float32 // its factors
	raw   ggml.Mat  // queries and keys before their norms
	rstdQ []float32
	rstdK []float32
	qkv   ggml.Mat // queries, keys (turned), values
	o     ggml.Mat // attention's result, the heads side by side
	lse   []float32
	ao    ggml.Mat // projected, before the norm behind attention
	rstdA []float32
	x1    ggml.Mat // input plus attention
	h2    ggml.Mat // its norm
	rstd2 []float32
	gu    ggml.Mat // gate, up
	a     ggml.Mat // act(gate) * up
	fo    ggml.Mat // projected, before the norm behind the feed-forward part
	rstdF []float32
	slots []slot
}

// newActs lays the activations of layer l for n tokens out in a.
func (m *Model) newActs(a *arena, l *layer, n int) *acts {
	h := &m.Hparams
	e, q, kv := h.NEmbd, h.qDim(), h.kvDim()
	c := &acts{
		qkv: a.mat(n, q+2*kv), o: a.mat(n, q), lse: a.take(n * h.NHead), x1: a.mat(n, e),
		gu: a.mat(n, 2*h.NFF), a: a.mat(n, h.NFF),
	}
	if l.attnNorm != nil {
		c.h, c.rstd = a.mat(n, e), a.take(n)
		c.h2, c.rstd2 = a.mat(n, e), a.take(n)
	}
	if l.qNorm != nil {
		c.raw, c.rstdQ, c.rstdK = a.mat(n, q+kv), a.take(n*h.NHead), a.take(n*h.NHeadKV)
	}
	if l.attnPost != nil {
		c.ao, c.rstdA = a.mat(n, e), a.take(n)
		c.fo, c.rstdF = a.mat(n, e), a.take(n)
	}
	for _, p := range l.projs() {
		s := slot{}
		if p.w.lora != nil {
			s.ax = a.mat(n, p.w.lora.rank)
		}
		c.slots = append(c.slots, s)
	}
	return c
}

// projs are all projections of a layer in the order of their slots.
func (l *layer) projs() []*proj {
	var list []*proj
	list = append(append(append(list, l.qkv...), l.attnOut), l.gateUp...)
	return append(list, l.down)
}

// forwardLayer computes y from x and fills c.
func (m *Model) forwardLayer(l *layer, c *acts, y, x ggml.Mat, p *pass) error {
	if err := m.forwardInner(l, c, x, p); err != nil {
		return err
	}
	return m.residual(l.down, l.ffnPost, y, c.x1, c.a, c.fo, c.rstdF, c, p)
}

// recompute fills c again, all that the way back needs of it.
func (m *Model) recompute(l *layer, c *acts, x ggml.Mat, p *pass) error {
	if err := m.forwardInner(l, c, x, p); err != nil || l.ffnPost == nil && l.down.w.lora == nil {
		return err
	}
	// What the norm behind and the adapter leave comes with the result, which goes to a buffer that is free.
	return m.residual(l.down, l.ffnPost, m.run.d, c.x1, c.a, c.fo, c.rstdF, c, p)
}

// forwardInner is all of a layer but its last projection.
func (m *Model) forwardInner(l *layer, c *acts, x ggml.Mat, p *pass) error {
	if err := m.forwardAttention(l, c, x, p); err != nil {
		return err
	}
	h2 := c.x1
	if l.ffnNorm != nil {
		h2 = c.h2
		m.pool.Norm(m.norm(l.ffnNorm, c.x1, h2, c.rstd2))
	}
	if err := m.forward(l.gateUp, l.gateUpAll, c.gu, false, h2, 1, c, p); err != nil {
		return err
	}
	m.pool.GLU(c.a, c.gu, m.arch.gelu)
	return nil
}

// forwardAttention computes c.x1 from x.
func (m *Model) forwardAttention(l *layer, c *acts, x ggml.Mat, p *pass) error {
	hid := x
	if l.attnNorm != nil {
		hid = c.h
		m.pool.Norm(m.norm(l.attnNorm, x, hid, c.rstd))
	}
	if err := m.forward(l.qkv, l.qkvAll, c.qkv, false, hid, 1, c, p); err != nil {
		return err
	}
	if l.qNorm != nil {
		h := &m.Hparams
		m.pool.AXPBY(c.raw, 0, c.qkv.Sub(0, h.qDim()+h.kvDim()), 1)
		for _, n := range m.qkNorms(l, c, c.qkv) {
			m.pool.Norm(n)
		}
	}
	if err := m.turn(l, c.qkv, p, false); err != nil {
		return err
	}
	if err := m.pool.Attention(m.attention(l, c, p)); err != nil {
		return err
	}
	return m.residual(l.attnOut, l.attnPost, c.x1, x, c.o, c.ao, c.rstdA, c, p)
}

// residual computes y = x + r * norm(W in), without the norm where post is nil.
// raw and rstd are what the norm leaves.
func (m *Model) residual(w *proj, post *vector, y, x, in, raw ggml.Mat, rstd []float32, c *acts, p *pass) error {
	r := m.Hparams.ResidScale
	if post == nil {
		m.pool.AXPBY(y, 0, x, 1)
		return m.forward([]*proj{w}, nil, y, true, in, r, c, p)
	}
	if err := m.forward([]*proj{w}, nil, raw, false, in, 1, c, p); err != nil {
		return err
	}
	m.pool.Norm(m.norm(post, raw, y, rstd))
	m.pool.AXPBY(y, r, x, 1)
	return nil
}

func (m *Model) norm(w *vector, x, y ggml.Mat, rstd []float32) ggml.Norm {
	return ggml.Norm{X: x, Y: y, W: w.data, Groups: 1, Eps: m.Hparams.Eps, RStd: rstd}
}

// qkNorms are the norms of queries and keys, from c.raw to y.
func (m *Model) qkNorms(l *layer, c *acts, y ggml.Mat) [2]ggml.Norm {
	h := &m.Hparams
	q, kv := h.qDim(), h.kvDim()
	n := [2]ggml.Norm{m.norm(l.qNorm, c.raw.Sub(0, q), y.Sub(0, q), c.rstdQ), m.norm(l.kNorm, c.raw.Sub(q, kv), y.Sub(q, kv), c.rstdK)}
	if !m.arch.qkNormWide {
		n[0].Groups, n[1].Groups = h.NHead, h.NHeadKV
	}
	return n
}

func (m *Model) attention(l *layer, c *acts, p *pass) ggml.Attention {
	h := &m.Hparams
	q, kv := h.qDim(), h.kvDim()
	a := ggml.Attention{
		Heads: h.NHead, KVHeads: h.NHeadKV, HeadDim: h.HeadDim, Q: c.qkv.Sub(0, q), K: c.qkv.Sub(q, kv), V: c.qkv.Sub(q+kv, kv),
		O: c.o, LSE: c.lse, Lo: p.lo, Scale: h.AttnScale, Cap: h.AttnCap,
	}
	if l.swa {
		a.Lo = p.loSWA
	}
	return a
}
