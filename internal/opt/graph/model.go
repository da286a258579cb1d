package graph

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"gollama/internal/engine/ggml"
	"gollama/internal/gguf"
)

// Model is a transformer with some weights to train. It is used by one
// goroutine at a time.
type Model struct {
	Hparams Hparams

	cfg    Config
	arch   *arch
	pool   *ggml.Pool
	src    source
	mem    memory
	params []*Param
	bind   *binder // only while the model is put together

	embd    *matrix
	outNorm *vector
	out     *matrix // embd where the model is tied
	layers  []*layer
	outProj []*proj // out, as a list of one
	ropes   ropes
	jobs    []ggml.Gemm // reused
	run     *run        // buffers for rows of one length; nil before the first
	touched []int32     // rows of embd's gradient that are not 0, where only lookups write to it
	dirty   bool        // there may be gradients that are not 0
}

// layer is one block: projections into q, k, v side by side, and into gate and
// up side by side, so that a file's fused and separate matrices are one case.
type layer struct {
	index                   int
	attnNorm, ffnNorm       *vector // nil: none
	attnPost, ffnPost       *vector // nil: none
	qNorm, kNorm            *vector // nil: none
	qkv, gateUp             []*proj
	attnOut, down           *proj
	qkvAll, gateUpAll       *proj // all of the above in one, nil where they do not lie together
	trainedAttn, trainedFFN bool
	params                  []*Param // trained in it
	swa                     bool
}

// proj is a matrix whose results go to columns [at, at+w.Rows), with a bias.
type proj struct {
	w    *matrix
	bias *vector // nil: none
	at   int
	slot int // in acts.slots
}

// Open reads the model at path, one file or the first of a split one. Its
// weights stay in the file, mapped, except those that are trained, which are
// widened to float32. Errors wrap ErrUnsupported where the model cannot be
// trained; they come before any weight is read.
func Open(path string, cfg Config) (*Model, error) {
	f, err := gguf.OpenModel(path)
	if err != nil {
		return nil, err
	}
	m, err := openFile(f, cfg)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

func openFile(f *gguf.File, cfg Config) (*Model, error) {
	nVocab := 0
	if i, ok := f.Tensor("token_embd.weight"); ok && len(f.Tensors[i].Shape) == 2 {
		nVocab = int(f.Tensors[i].Shape[1])
	}
	_, untied := f.Tensor("output.weight")
	h, a, err := readHparams(f.KVs, nVocab, !untied)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	src, err := newFileSource(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return build(h, a, src, cfg)
}

// build puts a model together; it closes src if it fails.
func build(h *Hparams, a *arch, src source, cfg Config) (*Model, error) {
	m := &Model{Hparams: *h, cfg: cfg, arch: a, src: src}
	err := m.assemble()
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *Model) assemble() error {
	if err := m.cfg.validate(); err != nil {
		return err
	}
	if m.cfg.Threads < 1 {
		m.cfg.Threads = ggml.DefaultThreads()
	}
	if m.cfg.MemoryBudget == 0 {
		m.cfg.MemoryBudget = defaultBudget
	}
	var err error
	if m.pool, err = ggml.NewPool(m.cfg.Threads); err != nil {
		return err
	}
	if m.bind, err = newBinder(m); err != nil {
		return err
	}
	if err := m.bindAll(); err != nil {
		return err
	}
	if left := m.src.left(); len(left) > 0 {
		return unsupported("architecture %s with tensor %q", m.Hparams.Arch, left[0])
	}
	if err := m.bind.finish(); err != nil {
		return err
	}
	m.bind = nil
	m.outProj = []*proj{{w: m.out}}
	for _, l := range m.layers {
		l.setUp()
	}
	return m.ropes.init(m)
}

// bindAll finds all tensors in the order of the graph.
func (m *Model) bindAll() error {
	h, b := &m.Hparams, m.bind
	m.embd = b.matrix("token_embd.weight", h.NVocab, h.NEmbd)
	m.outNorm = b.vector("output_norm.weight", h.NEmbd)
	m.out = m.embd
	if !h.Tied {
		m.out = b.matrix("output.weight", h.NVocab, h.NEmbd)
	}
	switch {
	case m.arch.alwaysTied && !h.Tied:
		return unsupported("architecture %s with tensor %q", h.Arch, "output.weight")
	case m.arch.neverTied && h.Tied:
		return fmt.Errorf("tensor %q: it is missing", "output.weight")
	}
	for i := range h.NLayer {
		m.layers = append(m.layers, m.bindLayer(i))
	}
	return b.err
}

func (m *Model) bindLayer(i int) *layer {
	h, a, b := &m.Hparams, m.arch, m.bind
	at := "blk." + strconv.Itoa(i) + "."
	l := &layer{index: i, swa: h.swa(i)}
	norm := func(name string, n int) *vector { return b.vector(at+name+".weight", n) }
	if !a.noPreNorm {
		l.attnNorm, l.ffnNorm = norm("attn_norm", h.NEmbd), norm("ffn_norm", h.NEmbd)
	}
	if a.postNorm[0] != "" {
		l.attnPost, l.ffnPost = norm(a.postNorm[0], h.NEmbd), norm(a.postNorm[1], h.NEmbd)
	}
	if a.qkNorm {
		nq, nk := h.HeadDim, h.HeadDim
		if a.qkNormWide {
			nq, nk = h.qDim(), h.kvDim()
		}
		l.qNorm, l.kNorm = norm("attn_q_norm", nq), norm("attn_k_norm", nk)
	}
	p := func(name string, rows, cols, col int) *proj { return m.bindProj(at, name, rows, cols, col) }
	if q, kv := h.qDim(), h.kvDim(); m.src.has(at + "attn_qkv.weight") {
		l.qkv = []*proj{p("attn_qkv", q+2*kv, h.NEmbd, 0)}
	} else {
		l.qkv = []*proj{p("attn_q", q, h.NEmbd, 0), p("attn_k", kv, h.NEmbd, q), p("attn_v", kv, h.NEmbd, q+kv)}
	}
	l.attnOut = p("attn_output", h.NEmbd, h.qDim(), 0)
	if a.fusedUp {
		l.gateUp = []*proj{p("ffn_up", 2*h.NFF, h.NEmbd, 0)}
	} else {
		l.gateUp = []*proj{p("ffn_gate", h.NFF, h.NEmbd, 0), p("ffn_up", h.NFF, h.NEmbd, h.NFF)}
	}
	l.down = p("ffn_down", h.NEmbd, h.NFF, 0)
	return l
}

func (m *Model) bindProj(at, name string, rows, cols, col int) *proj {
	p := &proj{w: m.bind.matrix(at+name+".weight", rows, cols), at: col}
	for _, b := range m.arch.biases {
		if b == name && m.src.has(at+name+".bias") {
			p.bias = m.bind.vector(at+name+".bias", rows)
		}
	}
	return p
}

// setUp derives what the passes ask about a layer.
func (l *layer) setUp() {
	some := func(projs ...*proj) bool {
		for _, p := range projs {
			if p.w.trained() || p.bias.trained() {
				return true
			}
		}
		return false
	}
	l.trainedAttn = some(l.qkv...) || some(l.attnOut) || l.attnNorm.trained() || l.attnPost.trained() || l.qNorm.trained() || l.kNorm.trained()
	l.trainedFFN = some(l.gateUp...) || some(l.down) || l.ffnNorm.trained() || l.ffnPost.trained()
	for i, p := range l.projs() {
		p.slot = i
	}
	l.qkvAll, l.gateUpAll = together(l.qkv), together(l.gateUp)
	for _, v := range []*vector{l.attnNorm, l.ffnNorm, l.attnPost, l.ffnPost, l.qNorm, l.kNorm} {
		l.params = append(l.params, v.params()...)
	}
	for _, p := range l.projs() {
		l.params = append(append(l.params, p.w.params()...), p.bias.params()...)
	}
}

// together returns the projections as one where their trained weights lie one
// after another, else nil. One large product is faster than three small ones.
func together(projs []*proj) *proj {
	first := projs[0].w
	if len(projs) == 1 || first.param == nil {
		return nil
	}
	rows := 0
	for _, p := range projs {
		w := p.w
		if w.param == nil || w.w.Cols != first.w.Cols || w.at != first.at+rows*first.w.Cols {
			return nil
		}
		rows += w.w.Rows
	}
	n := rows * first.w.Cols
	data, grad := first.data[first.at:first.at+n], first.grads[first.at:first.at+n]
	return &proj{w: &matrix{
		name:  first.name,
		w:     ggml.Weights{Type: ggml.TypeF32, Data: ggml.Bytes(data), Rows: rows, Cols: first.w.Cols},
		param: &Param{Data: data, Grad: grad},
	}}
}

// Params returns what is trained, in a fixed order.
func (m *Model) Params() []*Param { return m.params }

// GradBytes returns the most memory that the gradients take at once: all of them
// in Backward, in BackwardApply (fused) those of one layer or of the head, besides
// a tied embedding's.
func (m *Model) GradBytes(fused bool) int64 {
	size := func(params []*Param) (n int64) {
		for _, p := range params {
			n += 4 * int64(len(p.Grad))
		}
		return n
	}
	if !fused {
		return size(m.params)
	}
	embd := size(m.embd.params())
	most := size(m.headParams())
	for _, l := range m.layers {
		most = max(most, size(l.params))
	}
	if m.out == m.embd {
		return embd + most
	}
	return max(embd, most)
}

// headParams lists what is complete once the head has gone back.
func (m *Model) headParams() []*Param {
	if m.out == m.embd {
		return m.outNorm.params()
	}
	return append(m.outNorm.params(), m.out.params()...)
}

// ZeroGrad sets all gradients to 0.
func (m *Model) ZeroGrad() {
	if m.dirty {
		m.zero(m.params)
		m.dirty = false
	}
}

func (m *Model) zero(params []*Param) {
	for _, p := range params {
		if m.embd.param == p && m.out != m.embd {
			m.zeroTouched()
			continue
		}
		ggml.ZeroFloats(p.Grad)
	}
}

// zeroTouched clears the rows of the embedding's gradient that were written, so
// that the pages of the others stay untouched: most of a vocabulary never
// occurs in a text.
func (m *Model) zeroTouched() {
	n := m.Hparams.NEmbd
	for _, id := range m.touched {
		clear(m.embd.param.Grad[int(id)*n : (int(id)+1)*n])
	}
	m.touched = m.touched[:0]
}

// Updated is called after Data of a Param has changed. Nothing is derived from
// the weights at present; it is there so that callers need not know.
func (m *Model) Updated() error { return nil }

// Threads returns how many threads compute.
func (m *Model) Threads() int { return m.pool.Threads() }

// Close gives back the threads and all memory, Param's included. It may be
// called twice and on nil.
func (m *Model) Close() error {
	if m == nil {
		return nil
	}
	m.pool.Close()
	m.pool = nil
	m.params = nil
	var errs []error
	if m.run != nil {
		errs = append(errs, m.run.close())
		m.run = nil
	}
	errs = append(errs, m.mem.close())
	if m.src != nil {
		errs = append(errs, m.src.close())
		m.src = nil
	}
	return errors.Join(errs...)
}

// block returns the number of the block of a tensor, -1 where it is in none,
// and its name without block and ".weight".
func splitName(name string) (block int, base string) {
	base = strings.TrimSuffix(name, ".weight")
	rest, ok := strings.CutPrefix(base, "blk.")
	if !ok {
		return -1, base
	}
	num, tail, ok := strings.Cut(rest, ".")
	n, err := strconv.Atoi(num)
	if !ok || err != nil {
		return -1, base
	}
	return n, tail
}
