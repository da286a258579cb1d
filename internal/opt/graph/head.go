package graph

import (
	"context"

	"gollama/internal/engine/ggml"
	"gollama/internal/opt/data"
)

// head computes the loss from the last layer's result. Only rows with a label
// go through the output matrix, some at a time. Where train is set it adds to
// the gradients of the output's weights and leaves that of the last layer's
// result in run.g.
func (m *Model) head(p *pass, scale float64, train bool) (Loss, error) {
	r := m.run
	m.scored(p.ex)
	n := len(r.rows)
	loss := Loss{Scored: int64(n)}
	if n == 0 {
		return loss, nil
	}
	x := r.inputs[len(m.layers)]
	if n < p.n {
		m.pool.Gather(r.xs.Slice(0, n), asWeights(x), r.rows, 1)
		x = r.xs.Slice(0, n)
	}
	hs, dhs := r.hs.Slice(0, n), r.dhs.Slice(0, n)
	m.pool.Norm(m.norm(m.outNorm, x, hs, r.rstd))
	below := m.lowest() < len(m.layers) || m.outNorm.trained()
	for from := 0; from < n; from += r.chunk {
		rows := min(r.chunk, n-from)
		d := ggml.Mat{}
		if below {
			d = dhs.Slice(from, rows)
		}
		if err := m.headChunk(p, from, rows, hs.Slice(from, rows), d, scale, train); err != nil {
			return loss, err
		}
	}
	for i, nll := range r.nll[:n] {
		loss.Sum += float64(r.weights[i]) * nll
		loss.Weight += float64(r.weights[i])
		loss.Correct += int64(r.right[i])
	}
	if !train || !below {
		return loss, nil
	}
	norm := m.norm(m.outNorm, x, dhs, r.rstd)
	norm.DW, norm.DX = m.outNorm.grad(), r.g
	if n < p.n {
		norm.DX = r.d.Slice(0, n)
	}
	m.pool.NormBack(norm)
	if n < p.n {
		clear(r.g.Data[:p.n*m.Hparams.NEmbd])
		m.pool.Scatter(r.g, norm.DX, r.rows, 1)
	}
	return loss, nil
}

// headChunk computes logits, losses and, in training, the gradients of one
// chunk of scored rows.
func (m *Model) headChunk(p *pass, from, rows int, hs, dhs ggml.Mat, scale float64, train bool) error {
	if err := p.ctx.Err(); err != nil {
		return err
	}
	r, h := m.run, &m.Hparams
	part := *p
	part.salt = uint64(from)
	logits := ggml.NewMat(r.logits, rows, h.NVocab)
	acts := r.headActs
	if len(acts.slots) > 0 {
		acts.slots = []slot{{ax: acts.slots[0].ax.Slice(0, rows)}}
	}
	if err := m.forward(m.outProj, nil, logits, false, hs, h.LogitScale, &acts, &part); err != nil {
		return err
	}
	m.pool.CrossEntropy(ggml.CrossEntropy{
		Logits: logits, Labels: r.labels[from : from+rows], Weights: r.weights[from : from+rows], Cap: h.LogitCap,
		Grad: train, Scale: scale, NLL: r.nll[from:], Right: r.right[from:],
	})
	if !train {
		return nil
	}
	return m.backward(m.outProj, nil, dhs, false, logits, hs, h.LogitScale, &acts, &part)
}

// scored lists the rows with a label and a weight.
func (m *Model) scored(ex *data.Example) {
	r := m.run
	r.rows, r.labels, r.weights = r.rows[:0], r.labels[:0], r.weights[:0]
	for i, l := range ex.Labels {
		w := float32(1)
		if ex.Weights != nil {
			w = ex.Weights[i]
		}
		if l == data.NoLabel || w == 0 {
			continue
		}
		r.rows, r.labels, r.weights = append(r.rows, int32(i)), append(r.labels, l), append(r.weights, w)
	}
	if n := len(r.rows); len(r.nll) < n {
		r.nll, r.right = make([]float64, n), make([]uint8, n)
	}
}

func asWeights(x ggml.Mat) ggml.Weights {
	return ggml.Weights{Type: ggml.TypeF32, Data: ggml.Bytes(x.Data[:x.Rows*x.Cols]), Rows: x.Rows, Cols: x.Cols}
}

// Logits returns the logits of every token of an example, row after row, as a
// program that runs the model would see them. Labels and weights are ignored.
func (m *Model) Logits(ctx context.Context, ex *data.Example) ([]float32, error) {
	all := *ex
	all.Labels, all.Weights = make([]int32, len(ex.Tokens)), nil
	p, err := m.begin(ctx, &all)
	if err != nil {
		return nil, err
	}
	if err := m.forwardAll(p); err != nil {
		return nil, err
	}
	r, v := m.run, m.Hparams.NVocab
	m.scored(&all)
	m.pool.Norm(m.norm(m.outNorm, r.inputs[len(m.layers)], r.hs, r.rstd))
	out := make([]float32, 0, p.n*v)
	for from := 0; from < p.n; from += r.chunk {
		rows := min(r.chunk, p.n-from)
		// The loss is not asked for, but the soft cap is applied on the way.
		if err := m.headChunk(p, from, rows, r.hs.Slice(from, rows), ggml.Mat{}, 0, false); err != nil {
			return nil, err
		}
		out = append(out, r.logits[:rows*v]...)
	}
	return out, nil
}
