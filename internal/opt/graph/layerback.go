package graph

import "gollama/internal/engine/ggml"

// backwardLayer turns g, the gradient of the layer's result, into the gradient
// of its input x, and adds to the gradients of its weights. Where input is
// false nothing below is trained, and g is left as it comes.
func (m *Model) backwardLayer(l *layer, c *acts, x, g ggml.Mat, input bool, p *pass) error {
	r := m.run
	da, err := m.backwardResidual(l.down, l.ffnPost, r.da, g, c.a, c.fo, c.rstdF, l.needFFN(input), c, p)
	if err != nil || !l.needFFN(input) {
		return err
	}
	m.pool.GLUBack(r.dgu, da, c.gu, m.arch.gelu)
	deeper := input || l.trainedAttn
	if l.ffnNorm == nil {
		dx := g
		if !deeper {
			dx = ggml.Mat{}
		}
		err = m.backward(l.gateUp, l.gateUpAll, dx, true, r.dgu, c.x1, 1, c, p)
	} else {
		err = m.throughNorm(l.ffnNorm, l.gateUp, l.gateUpAll, g, r.dgu, c.h2, c.x1, c.rstd2, deeper, c, p)
	}
	if err != nil || !deeper {
		return err
	}
	return m.backwardAttention(l, c, x, g, input, p)
}

// needFFN reports whether the gradient must pass the feed-forward part's last
// projection.
func (l *layer) needFFN(input bool) bool {
	if input || l.trainedAttn || l.ffnNorm.trained() {
		return true
	}
	for _, p := range l.gateUp {
		if p.w.trained() || p.bias.trained() {
			return true
		}
	}
	return false
}

// needQKV reports the same of attention's.
func (l *layer) needQKV(input bool) bool {
	if input || l.attnNorm.trained() || l.qNorm.trained() || l.kNorm.trained() {
		return true
	}
	for _, p := range l.qkv {
		if p.w.trained() || p.bias.trained() {
			return true
		}
	}
	return false
}

// backwardAttention goes from the gradient of c.x1 to that of x, both in g.
func (m *Model) backwardAttention(l *layer, c *acts, x, g ggml.Mat, input bool, p *pass) error {
	r, h := m.run, &m.Hparams
	do, err := m.backwardResidual(l.attnOut, l.attnPost, r.do, g, c.o, c.ao, c.rstdA, l.needQKV(input), c, p)
	if err != nil || !l.needQKV(input) {
		return err
	}
	q, kv := h.qDim(), h.kvDim()
	a := m.attention(l, c, p)
	a.DO, a.DQ, a.DK, a.DV = do, r.dqkv.Sub(0, q), r.dqkv.Sub(q, kv), r.dqkv.Sub(q+kv, kv)
	if err := m.pool.AttentionBack(a); err != nil {
		return err
	}
	if err := m.turn(l, r.dqkv, p, true); err != nil {
		return err
	}
	if l.qNorm != nil {
		for i, n := range m.qkNorms(l, c, r.dqkv) {
			n.DX, n.DW = n.Y, [2]*vector{l.qNorm, l.kNorm}[i].grad() // in place: a row is read before it is written
			m.pool.NormBack(n)
		}
	}
	if l.attnNorm == nil {
		dx := g
		if !input {
			dx = ggml.Mat{}
		}
		return m.backward(l.qkv, l.qkvAll, dx, true, r.dqkv, x, 1, c, p)
	}
	return m.throughNorm(l.attnNorm, l.qkv, l.qkvAll, g, r.dqkv, c.h, x, c.rstd, input, c, p)
}

// throughNorm goes back through projections and the norm before them: hid is
// the norm of x, dy the gradient of the projections' results. The gradient of x
// is added to g where input is set.
func (m *Model) throughNorm(norm *vector, projs []*proj, all *proj, g, dy, hid, x ggml.Mat, rstd []float32, input bool, c *acts, p *pass) error {
	dh := m.run.dh
	if !input && !norm.trained() {
		dh = ggml.Mat{}
	}
	if err := m.backward(projs, all, dh, false, dy, hid, 1, c, p); err != nil || dh.Data == nil {
		return err
	}
	n := m.norm(norm, x, dh, rstd)
	n.DW, n.Add = norm.grad(), true
	if input {
		n.DX = g
	}
	m.pool.NormBack(n)
	return nil
}

// backwardResidual goes from g, the gradient of x + r * norm(W in), to that of
// in, which it returns where deeper is set. g is also the gradient of x.
func (m *Model) backwardResidual(w *proj, post *vector, din, g, in, raw ggml.Mat, rstd []float32, deeper bool, c *acts, p *pass) (ggml.Mat, error) {
	if !deeper {
		din = ggml.Mat{}
	}
	alpha, dy := m.Hparams.ResidScale, g
	if post != nil {
		n := m.norm(post, raw, g, rstd)
		n.DX, n.DW = m.run.dh, post.grad()
		if alpha != 1 { // the norm's gradient needs the factor, too
			m.pool.AXPBY(m.run.d, 0, g, alpha)
			n.Y, alpha = m.run.d, 1
		}
		m.pool.NormBack(n)
		dy = m.run.dh
	}
	return din, m.backward([]*proj{w}, nil, din, false, dy, in, alpha, c, p)
}
