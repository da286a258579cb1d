package graph

import "gollama/internal/engine/ggml"

// slot is what the forward pass of a projection's adapter leaves for the way
// back: A times the input, [tokens, rank].
type slot struct{ ax ggml.Mat }

// forward computes y = (add ? y : 0) + alpha * (W x + bias + adapter) for each
// projection into its columns. all is the projections in one, or nil.
func (m *Model) forward(projs []*proj, all *proj, y ggml.Mat, add bool, x ggml.Mat, alpha float32, c *acts, p *pass) error {
	jobs := m.jobs[:0]
	if all != nil {
		jobs = append(jobs, ggml.Gemm{A: x, B: all.w.w, TransB: true, C: y, Alpha: alpha, Add: add})
	} else {
		for _, q := range projs {
			jobs = append(jobs, ggml.Gemm{A: x, B: q.w.w, TransB: true, C: q.cols(y), Alpha: alpha, Add: add})
		}
	}
	m.jobs = jobs
	if err := m.pool.Gemm(jobs...); err != nil {
		return err
	}
	for _, q := range projs {
		if q.bias != nil {
			m.pool.AddBias(q.cols(y), q.bias.data, alpha)
		}
		if q.w.lora == nil {
			continue
		}
		if err := m.forwardAdapter(q.w.lora, q.cols(y), x, alpha, c.slots[q.slot].ax, p); err != nil {
			return err
		}
	}
	return nil
}

// cols returns the columns of y that belong to q.
func (q *proj) cols(y ggml.Mat) ggml.Mat { return y.Sub(q.at, q.w.w.Rows) }

// forwardAdapter adds alpha * scale * B (A dropout(x)) to y.
func (m *Model) forwardAdapter(ad *adapter, y, x ggml.Mat, alpha float32, ax ggml.Mat, p *pass) error {
	x = m.dropped(ad, x, p)
	a, b := ad.matA(), ad.matB()
	if err := m.pool.Gemm(ggml.Gemm{A: x, BMat: &a, TransB: true, C: ax, Alpha: 1}); err != nil {
		return err
	}
	return m.pool.Gemm(ggml.Gemm{A: ax, BMat: &b, TransB: true, C: y, Alpha: alpha * ad.scale, Add: true})
}

// dropped returns x with dropout, in a buffer that the next call overwrites, or
// x itself where there is none.
func (m *Model) dropped(ad *adapter, x ggml.Mat, p *pass) ggml.Mat {
	if p.dropout == 0 {
		return x
	}
	d := ggml.NewMat(m.run.drop, x.Rows, x.Cols)
	m.pool.Dropout(d, x, p.dropout, p.seed(ad), false)
	return d
}

// seed returns the start of the adapter's dropout sequence in this pass. Odd
// constants keep steps and parts apart: their multiples visit all of 64 bits.
func (p *pass) seed(ad *adapter) uint64 {
	return ad.seed + p.step*0xd1342543de82ef95 + p.salt*0xaf251af3b0f025b5
}

// backward adds the gradients of the projections' weights, given dy, the
// gradient of y, and computes dx = (add ? dx : 0) + alpha * W' dy unless dx is
// empty.
func (m *Model) backward(projs []*proj, all *proj, dx ggml.Mat, add bool, dy, x ggml.Mat, alpha float32, c *acts, p *pass) error {
	list := projs
	if all != nil {
		list = []*proj{all}
	}
	jobs := m.jobs[:0]
	for _, q := range list {
		if g := q.w.grad(); g != nil {
			jobs = append(jobs, ggml.Gemm{A: q.cols(dy), TransA: true, BMat: &x, C: ggml.NewMat(g, q.w.w.Rows, q.w.w.Cols), Alpha: alpha, Add: true})
		}
	}
	// The first product for dx runs beside those for the weights.
	if dx.Data != nil {
		jobs = append(jobs, ggml.Gemm{A: list[0].cols(dy), B: list[0].w.w, C: dx, Alpha: alpha, Add: add})
	}
	m.jobs = jobs
	if err := m.pool.Gemm(jobs...); err != nil {
		return err
	}
	for _, q := range list[1:] {
		if dx.Data == nil {
			break
		}
		if err := m.pool.Gemm(ggml.Gemm{A: q.cols(dy), B: q.w.w, C: dx, Alpha: alpha, Add: true}); err != nil {
			return err
		}
	}
	for _, q := range projs {
		if g := q.bias.grad(); g != nil {
			m.pool.ColSum(g, q.cols(dy), alpha)
		}
		if q.w.lora == nil {
			continue
		}
		if err := m.backwardAdapter(q.w.lora, dx, q.cols(dy), x, alpha, c.slots[q.slot].ax, p); err != nil {
			return err
		}
	}
	return nil
}

// backwardAdapter adds the gradients of A and B, and the adapter's share of dx
// unless that is empty.
func (m *Model) backwardAdapter(ad *adapter, dx, dy, x ggml.Mat, alpha float32, ax ggml.Mat, p *pass) error {
	a, b := ad.matA(), ad.matB()
	dax := ggml.NewMat(m.run.dax, x.Rows, ad.rank)
	err := m.pool.Gemm(
		ggml.Gemm{A: dy, BMat: &b, C: dax, Alpha: alpha * ad.scale},
		ggml.Gemm{A: dy, TransA: true, BMat: &ax, C: ad.gradB(), Alpha: alpha * ad.scale, Add: true},
	)
	if err != nil {
		return err
	}
	xd := m.dropped(ad, x, p)
	if err := m.pool.Gemm(ggml.Gemm{A: dax, TransA: true, BMat: &xd, C: ad.gradA(), Alpha: 1, Add: true}); err != nil {
		return err
	}
	if dx.Data == nil {
		return nil
	}
	if p.dropout == 0 {
		return m.pool.Gemm(ggml.Gemm{A: dax, BMat: &a, C: dx, Alpha: 1, Add: true})
	}
	d := ggml.NewMat(m.run.drop, x.Rows, x.Cols)
	if err := m.pool.Gemm(ggml.Gemm{A: dax, BMat: &a, C: d, Alpha: 1}); err != nil {
		return err
	}
	m.pool.Dropout(dx, d, p.dropout, p.seed(ad), true)
	return nil
}
