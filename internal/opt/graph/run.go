package graph

import (
	"context"
	"fmt"
	"math"

	"gollama/internal/engine/ggml"
	"gollama/internal/opt/data"
)

// Loss is the loss of one example.
type Loss struct {
	Sum     float64 // sum of weight * negative log-likelihood, nats
	Weight  float64 // sum of the weights of the scored tokens
	Scored  int64   // tokens with a label and a weight above 0
	Correct int64   // of these, those whose label has the largest logit
}

// pass is one example on its way through the model.
type pass struct {
	ctx       context.Context
	ex        *data.Example
	n         int
	positions []int32
	lo, loSWA []int32 // first token that each token sees
	dropout   float32 // 0 where nothing is trained by this pass
	step      uint64
	salt      uint64               // tells apart the parts of a row that go through an adapter one by one
	apply     func([]*Param) error // takes gradients that are complete; nil: they stay
}

// run holds the buffers for rows of n tokens, made once and used for every row
// of that length.
type run struct {
	n      int
	block  []float32
	inputs []ggml.Mat // of each layer, and the last one's result
	acts   []*acts    // of each layer; those that are not kept share one
	kept   int        // layers [kept, NLayer) have activations of their own

	g                        ggml.Mat // the gradient on its way down
	d, dh, dqkv, do, dgu, da ggml.Mat // gradients inside a layer
	dax, drop                []float32
	xs, hs, dhs              ggml.Mat // scored rows: last layer's result, its norm, gradients of either
	rstd                     []float32
	logits                   []float32
	chunk                    int // rows of logits at a time
	headActs                 acts
	nll                      []float64
	right                    []uint8
	rows, labels             []int32
	weights                  []float32
	positions, lo, loSWA     []int32
}

// logitsBytes bounds the logits held at a time, and minChunk is the least number
// of rows: it is enough for the products to run near their full speed.
const (
	logitsBytes = 16 << 20
	minChunk    = 64
)

// prepare makes the buffers for rows of n tokens.
func (m *Model) prepare(n int) error {
	if m.run != nil && m.run.n == n {
		return nil
	}
	r := &run{n: n}
	if m.run != nil {
		r.block = m.run.block
		m.run.block = nil
	}
	r.kept = m.keep(n)
	var size arena
	m.layOut(r, &size)
	if len(r.block) < size.n {
		if err := ggml.FreeFloats(r.block); err != nil {
			return err
		}
		r.block = nil
		var err error
		if r.block, err = ggml.NewFloats(size.n); err != nil {
			return fmt.Errorf("activations of %d tokens: %w\nhint: shorter rows, or a smaller memory budget", n, err)
		}
	}
	m.layOut(r, &arena{block: r.block})
	m.run = r
	return nil
}

func (r *run) close() error {
	b := r.block
	r.block = nil
	return ggml.FreeFloats(b)
}

// keep returns the first layer whose activations are kept for the way back: as
// many as the budget allows, from the last one down.
func (m *Model) keep(n int) int {
	budget := m.cfg.MemoryBudget
	first := len(m.layers)
	for first > max(m.lowest(), 0) {
		var size arena
		m.newActs(&size, m.layers[first-1], n)
		if budget -= int64(4 * size.n); budget < 0 {
			break
		}
		first--
	}
	return first
}

// lowest returns the first layer in which something is trained: -1 stands for
// the embedding, NLayer for the head alone.
func (m *Model) lowest() int {
	if m.embd.param != nil {
		return -1
	}
	for i, l := range m.layers {
		if l.trainedAttn || l.trainedFFN {
			return i
		}
	}
	return len(m.layers)
}

func (m *Model) layOut(r *run, a *arena) {
	h, n := &m.Hparams, r.n
	e := h.NEmbd
	r.inputs, r.acts = r.inputs[:0], r.acts[:0]
	spare := [2]ggml.Mat{a.mat(n, e), a.mat(n, e)}
	for i := range len(m.layers) + 1 {
		if i < m.lowest() {
			r.inputs = append(r.inputs, spare[i%2]) // never read again
			continue
		}
		r.inputs = append(r.inputs, a.mat(n, e))
	}
	var shared *acts
	for i, l := range m.layers {
		if i >= r.kept {
			r.acts = append(r.acts, m.newActs(a, l, n))
			continue
		}
		if shared == nil {
			shared = m.newActs(a, m.widest(), n)
		}
		r.acts = append(r.acts, shared)
	}
	r.g, r.d, r.dh = a.mat(n, e), a.mat(n, e), a.mat(n, e)
	r.dqkv, r.do = a.mat(n, h.qDim()+2*h.kvDim()), a.mat(n, h.qDim())
	r.dgu, r.da = a.mat(n, 2*h.NFF), a.mat(n, h.NFF)
	r.xs, r.hs, r.dhs, r.rstd = a.mat(n, e), a.mat(n, e), a.mat(n, e), a.take(n)
	r.chunk = min(n, max(minChunk, logitsBytes/4/h.NVocab/16*16))
	r.logits = a.take(r.chunk * h.NVocab)
	rank, in := m.adapterSizes()
	r.dax = a.take(n * rank)
	if m.cfg.LoRA != nil && m.cfg.LoRA.Dropout > 0 {
		r.drop = a.take(n * in)
	}
	r.headActs = acts{}
	if m.out.lora != nil {
		r.headActs.slots = []slot{{ax: a.mat(n, m.out.lora.rank)}}
	}
}

// widest returns the layer whose adapters, if any, take most: its activations
// have room for any layer's.
func (m *Model) widest() *layer {
	best, most := m.layers[0], -1
	for _, l := range m.layers {
		var size arena
		m.newActs(&size, l, 1)
		if size.n > most {
			best, most = l, size.n
		}
	}
	return best
}

// adapterSizes returns the largest rank and the widest input of all adapters.
func (m *Model) adapterSizes() (rank, in int) {
	see := func(w *matrix) {
		if w.lora != nil {
			rank, in = max(rank, w.lora.rank), max(in, w.w.Cols)
		}
	}
	see(m.out)
	for _, l := range m.layers {
		for _, p := range l.projs() {
			see(p.w)
		}
	}
	return rank, in
}

// Loss computes the loss of an example, forward only. Errors name what is wrong
// with the example, or are ctx's.
func (m *Model) Loss(ctx context.Context, ex *data.Example) (Loss, error) {
	p, err := m.begin(ctx, ex)
	if err != nil {
		return Loss{}, err
	}
	if err := m.forwardAll(p); err != nil {
		return Loss{}, err
	}
	return m.head(p, 0, false)
}

// Backward computes the loss of an example as Loss does, and adds the gradient
// of scale * Sum to Grad of each Param. step seeds the dropout: the same step
// gives the same bits. After an error the gradients are of no use.
func (m *Model) Backward(ctx context.Context, ex *data.Example, scale float64, step uint64) (Loss, error) {
	return m.backwardPass(ctx, ex, scale, step, nil)
}

// BackwardApply computes the same gradients from zero and hands each out as soon
// as it is complete and nothing that is still to be computed depends on the
// parameter: apply gets the example's loss and some parameters, each of them
// once, and may change their Data. Their gradients are then zero again, so that
// at no time all of them take memory. An error of apply ends the pass. Once it
// was called, a cancelled ctx ends it no more: all parameters change or none.
func (m *Model) BackwardApply(ctx context.Context, ex *data.Example, scale float64, step uint64, apply func(Loss, []*Param) error) (Loss, error) {
	m.ZeroGrad()
	loss, err := m.backwardPass(ctx, ex, scale, step, apply)
	m.dirty = err != nil
	return loss, err
}

func (m *Model) backwardPass(ctx context.Context, ex *data.Example, scale float64, step uint64, apply func(Loss, []*Param) error) (Loss, error) {
	if math.IsNaN(scale) || math.IsInf(scale, 0) {
		return Loss{}, fmt.Errorf("scale of the loss %g, want a finite number", scale)
	}
	p, err := m.begin(ctx, ex)
	if err != nil {
		return Loss{}, err
	}
	p.step = step
	if m.cfg.LoRA != nil {
		p.dropout = m.cfg.LoRA.Dropout
	}
	if err := m.forwardAll(p); err != nil {
		return Loss{}, err
	}
	m.dirty = true
	loss, err := m.head(p, scale, true)
	if err != nil || loss.Scored == 0 {
		return loss, err
	}
	if apply != nil {
		p.apply = func(params []*Param) error { return apply(loss, params) }
	}
	return loss, m.backwardAll(p)
}

// complete hands out the gradients of params, which nothing is added to any more.
func (m *Model) complete(p *pass, params []*Param) error {
	if p.apply == nil || len(params) == 0 {
		return nil
	}
	p.ctx = context.WithoutCancel(p.ctx)
	if err := p.apply(params); err != nil {
		return err
	}
	m.zero(params)
	return nil
}

// forwardAll runs the embedding and all layers.
func (m *Model) forwardAll(p *pass) error {
	r := m.run
	m.pool.Gather(r.inputs[0], m.embd.w, p.ex.Tokens, m.Hparams.EmbdScale)
	for i, l := range m.layers {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		if err := m.forwardLayer(l, r.acts[i], r.inputs[i+1], r.inputs[i], p); err != nil {
			return err
		}
	}
	return nil
}

// backwardAll goes from the gradient of the last layer's result down to the
// lowest that is trained.
func (m *Model) backwardAll(p *pass) error {
	r, lowest := m.run, m.lowest()
	if err := m.complete(p, m.headParams()); err != nil {
		return err
	}
	for i := len(m.layers) - 1; i >= max(lowest, 0); i-- {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		l, c := m.layers[i], r.acts[i]
		if i < r.kept {
			if err := m.recompute(l, c, r.inputs[i], p); err != nil {
				return err
			}
		}
		if err := m.backwardLayer(l, c, r.inputs[i], r.g, i > lowest, p); err != nil {
			return err
		}
		if err := m.complete(p, l.params); err != nil {
			return err
		}
	}
	if m.embd.param == nil {
		return nil
	}
	m.pool.Scatter(ggml.NewMat(m.embd.param.Grad, m.Hparams.NVocab, m.Hparams.NEmbd), r.g, p.ex.Tokens, m.Hparams.EmbdScale)
	if m.out != m.embd {
		m.touched = append(m.touched, p.ex.Tokens...)
	}
	return m.complete(p, m.embd.params())
}

// begin checks an example and derives positions and what each token sees.
func (m *Model) begin(ctx context.Context, ex *data.Example) (*pass, error) {
	if m.pool == nil {
		return nil, ggml.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := m.checkExample(ex); err != nil {
		return nil, err
	}
	n := len(ex.Tokens)
	if err := m.prepare(n); err != nil {
		return nil, err
	}
	r := m.run
	p := &pass{ctx: ctx, ex: ex, n: n, positions: ex.Positions}
	if p.positions == nil {
		r.positions = r.positions[:0]
		for i := range n {
			r.positions = append(r.positions, int32(i))
		}
		p.positions = r.positions
	}
	r.lo, r.loSWA = r.lo[:0], r.loSWA[:0]
	start, from := 0, 0
	for i := range n {
		if i > 0 && ex.Segments != nil && ex.Segments[i] != ex.Segments[i-1] {
			start = i
		}
		for from = max(from, start); p.positions[i]-p.positions[from] >= int32(max(m.Hparams.Window, 1)) && from < i; {
			from++
		}
		r.lo, r.loSWA = append(r.lo, int32(start)), append(r.loSWA, int32(from))
	}
	p.lo, p.loSWA = r.lo, r.loSWA
	return p, nil
}

const maxTokens = 1 << 20 // of a row

func (m *Model) checkExample(ex *data.Example) error {
	n, v := len(ex.Tokens), m.Hparams.NVocab
	switch {
	case n < 1 || n > maxTokens:
		return fmt.Errorf("example of %d tokens, want 1 to %d", n, maxTokens)
	case len(ex.Labels) != n:
		return fmt.Errorf("example of %d tokens has %d labels", n, len(ex.Labels))
	case ex.Weights != nil && len(ex.Weights) != n:
		return fmt.Errorf("example of %d tokens has %d weights", n, len(ex.Weights))
	case ex.Positions != nil && len(ex.Positions) != n:
		return fmt.Errorf("example of %d tokens has %d positions", n, len(ex.Positions))
	case ex.Segments != nil && len(ex.Segments) != n:
		return fmt.Errorf("example of %d tokens has %d segment numbers", n, len(ex.Segments))
	}
	for i, t := range ex.Tokens {
		if t < 0 || int(t) >= v {
			return fmt.Errorf("example: token %d at %d, want 0 to %d", t, i, v-1)
		}
		if l := ex.Labels[i]; l != data.NoLabel && (l < 0 || int(l) >= v) {
			return fmt.Errorf("example: label %d at %d, want 0 to %d, or %d", l, i, v-1, data.NoLabel)
		}
		if ex.Weights != nil && !(ex.Weights[i] >= 0 && ex.Weights[i] <= math.MaxFloat32) {
			return fmt.Errorf("example: weight %g at %d, want a finite number, 0 or more", ex.Weights[i], i)
		}
	}
	return checkSegments(ex)
}

// checkSegments requires that a document is one run of tokens, with positions
// that grow.
func checkSegments(ex *data.Example) error {
	seen := map[int32]bool{}
	for i := range ex.Tokens {
		starts := i == 0 || ex.Segments != nil && ex.Segments[i] != ex.Segments[i-1]
		if starts && ex.Segments != nil {
			if s := ex.Segments[i]; seen[s] {
				return fmt.Errorf("example: segment %d goes on at %d after another one", s, i)
			}
			seen[ex.Segments[i]] = true
		}
		if ex.Positions == nil {
			continue
		}
		if ex.Positions[i] < 0 || !starts && ex.Positions[i] <= ex.Positions[i-1] {
			return fmt.Errorf("example: position %d at %d, want positions of 0 or more that grow within a segment", ex.Positions[i], i)
		}
	}
	return nil
}
