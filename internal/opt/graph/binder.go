package graph

import (
	"fmt"
	"slices"
	"strings"

	"gollama/internal/engine/ggml"
)

// binder finds a model's tensors, decides which are trained, and, when all are
// known, takes memory for these and fills it.
type binder struct {
	m        *Model
	resume   *adapterFile // nil: none
	matrices []*matrix    // trained
	vectors  []*vector    // all
	targets  []*matrix    // that get an adapter
	err      error        // the first
}

func newBinder(m *Model) (*binder, error) {
	b := &binder{m: m}
	if m.cfg.LoRA == nil || m.cfg.LoRA.Resume == "" {
		return b, nil
	}
	var err error
	l := *m.cfg.LoRA // openAdapter sets its alpha; the caller's stays
	m.cfg.LoRA = &l
	b.resume, err = openAdapter(l.Resume, m.Hparams.Arch, &l)
	return b, err
}

// full reports whether the tensor itself is trained.
func (b *binder) full(name string) bool {
	if b.m.cfg.LoRA != nil {
		return false
	}
	p := b.m.cfg.Patterns
	return len(p) == 0 || matches(p, name, strings.TrimSuffix(name, ".weight"))
}

// matrix finds a tensor of [rows, cols] that must be there.
func (b *binder) matrix(name string, rows, cols int) *matrix {
	m := &matrix{name: name}
	if b.err != nil {
		return m
	}
	w, err := b.m.src.matrix(name, rows, cols)
	switch {
	case err != nil:
		b.err = err
		return m
	case w == nil:
		b.err = fmt.Errorf("tensor %q: it is missing", name)
		return m
	}
	m.w = *w
	if b.full(name) {
		m.param = &Param{Name: name, Shape: []int64{int64(cols), int64(rows)}, Matrix: !isTable(name), Decay: true}
		b.matrices = append(b.matrices, m)
		b.m.params = append(b.m.params, m.param)
		return m
	}
	if b.target(name) {
		b.targets = append(b.targets, m)
	}
	return m
}

// isTable tells the embedding and the output, whose rows stand for tokens.
func isTable(name string) bool { return name == "token_embd.weight" || name == "output.weight" }

// target reports whether the matrix gets an adapter.
func (b *binder) target(name string) bool {
	l := b.m.cfg.LoRA
	if l == nil {
		return false
	}
	if b.resume != nil {
		return b.resume.has(name)
	}
	block, base := splitName(name)
	if block >= 0 {
		last := l.Last
		if last <= 0 {
			last += b.m.Hparams.NLayer - 1
		}
		return block >= l.First && block <= last && (len(l.Targets) == 0 || matches(l.Targets, base, base+".weight"))
	}
	// The tables outside the blocks only by name: "*" means what is in the blocks.
	return slices.Contains(l.Targets, base) || slices.Contains(l.Targets, name)
}

// vector finds a norm or a bias that must be there.
func (b *binder) vector(name string, n int) *vector {
	v := &vector{name: name}
	if b.err != nil {
		return v
	}
	w, err := b.m.src.matrix(name, 1, n)
	switch {
	case err != nil:
		b.err = err
		return v
	case w == nil:
		b.err = fmt.Errorf("tensor %q: it is missing", name)
		return v
	}
	v.n = n
	if b.full(name) {
		v.param = &Param{Name: name, Shape: []int64{int64(n)}}
		b.m.params = append(b.m.params, v.param)
	}
	b.vectors = append(b.vectors, v)
	return v
}

// finish takes the memory and reads the values.
func (b *binder) finish() error {
	if err := b.checkTargets(); err != nil {
		return err
	}
	if err := b.fillMatrices(); err != nil {
		return err
	}
	if err := b.fillVectors(); err != nil {
		return err
	}
	for _, w := range b.targets {
		if err := b.m.addAdapter(w, b.resume); err != nil {
			return err
		}
	}
	if b.resume != nil {
		if err := b.resume.src.close(); err != nil {
			return err
		}
	}
	if len(b.m.params) == 0 {
		return fmt.Errorf("no tensor matches %s: nothing to train", strings.Join(b.m.cfg.Patterns, ", "))
	}
	return nil
}

// fillMatrices lays the trained matrices one after another, so that those that
// stand side by side in the graph can be one operand.
func (b *binder) fillMatrices() error {
	layOut := func(a *arena, into func(w *matrix, at int)) {
		for _, w := range b.matrices {
			at := a.n
			a.take(w.w.Rows * w.w.Cols)
			if into != nil {
				into(w, at)
			}
		}
	}
	var size arena
	layOut(&size, nil)
	if size.n == 0 {
		return nil
	}
	data, err := b.m.mem.floats(size.n)
	if err != nil {
		return err
	}
	grads, err := b.m.mem.floats(size.n)
	if err != nil {
		return err
	}
	layOut(new(arena), func(w *matrix, at int) {
		n := w.w.Rows * w.w.Cols
		w.data, w.grads, w.at = data, grads, at
		w.param.Data, w.param.Grad = data[at:at+n:at+n], grads[at:at+n:at+n]
		if e := b.m.src.fill(b.m.pool, w.name, w.w.Rows, w.w.Cols, w.param.Data); err == nil {
			err = e
		}
		w.w.Type, w.w.Data = ggml.TypeF32, ggml.Bytes(w.param.Data)
	})
	return err
}

func (b *binder) fillVectors() error {
	for _, v := range b.vectors {
		var err error
		if v.data, err = b.m.mem.floats(v.n); err != nil {
			return err
		}
		if err := b.m.src.fill(b.m.pool, v.name, 1, v.n, v.data); err != nil {
			return err
		}
		if v.param == nil {
			continue
		}
		v.param.Data = v.data
		if v.param.Grad, err = b.m.mem.floats(v.n); err != nil {
			return err
		}
	}
	return nil
}

// checkTargets refuses adapters that could not be used, and patterns that
// match nothing.
func (b *binder) checkTargets() error {
	l := b.m.cfg.LoRA
	if l == nil {
		return nil
	}
	h := &b.m.Hparams
	last := l.Last
	if last <= 0 {
		last += h.NLayer - 1
	}
	if b.resume == nil && (l.First < 0 || l.First > last || last >= h.NLayer) {
		return fmt.Errorf("lora: layers %d to %d, want a range within 0 to %d", l.First, last, h.NLayer-1)
	}
	for _, w := range b.targets {
		if w.name != "token_embd.weight" {
			continue
		}
		if h.Tied {
			return unsupported("lora: target %q: it is also the output matrix, and llama.cpp cannot run such an adapter", w.name)
		}
		return unsupported("lora: target %q: an adapter of the embedding\nhint: train it in full with a pattern", w.name)
	}
	if b.resume != nil {
		return b.resume.checkUsed(b.targets)
	}
	for _, p := range l.Targets {
		if !slices.ContainsFunc(b.targets, func(w *matrix) bool {
			_, base := splitName(w.name)
			return matches([]string{p}, base, base+".weight")
		}) {
			if h.Tied && (p == "output" || p == "output.weight") {
				return unsupported("lora: target %q: the output matrix is the token embedding, and llama.cpp cannot run such an adapter", p)
			}
			return fmt.Errorf("lora: target %q matches no matrix of the model", p)
		}
	}
	return nil
}
