package graph

import (
	"fmt"
	"math"

	"gollama/internal/engine/ggml"
)

// ropes holds what the rotary embedding needs: the factors of the file, and
// the tables of the positions in use.
type ropes struct {
	m                  *Model
	freqs, long, short []float32 // RopeDim/2 divisors of the angles; nil: none
	tables             [2]table  // of layers without and with a sliding window
}

type table struct {
	positions []int32
	factors   *float32 // which of the above
	block     []float32
	cs        []float32 // a row per position: cosines, sines
}

func (r *ropes) init(m *Model) error {
	r.m = m
	n := m.Hparams.RopeDim / 2
	for _, f := range []struct {
		name string
		dst  *[]float32
	}{{"rope_freqs.weight", &r.freqs}, {"rope_factors_long.weight", &r.long}, {"rope_factors_short.weight", &r.short}} {
		if !m.src.has(f.name) {
			continue
		}
		var err error
		if *f.dst, err = m.mem.floats(n); err != nil {
			return err
		}
		if err := m.src.fill(m.pool, f.name, 1, n, *f.dst); err != nil {
			return err
		}
		for i, v := range *f.dst {
			if !(v != 0) || math.IsInf(float64(v), 0) {
				return fmt.Errorf("tensor %q: value %g at %d", f.name, v, i)
			}
		}
	}
	return nil
}

// get returns the table for these positions. The long factors are for windows
// longer than the model first saw. Source: llama-model.cpp, get_rope_factors.
func (r *ropes) get(positions []int32, swa bool) ([]float32, error) {
	t := &r.tables[0]
	if swa {
		t = &r.tables[1]
	}
	factors := r.freqs
	if factors == nil {
		factors = r.short
		if len(positions) > r.m.Hparams.NCtxOrig {
			factors = r.long
		}
	}
	var id *float32
	if factors != nil {
		id = &factors[0]
	}
	if t.cs != nil && t.factors == id && equal(t.positions, positions) {
		return t.cs, nil
	}
	dim := r.m.Hparams.RopeDim
	if n := len(positions) * dim; len(t.block) < n {
		var err error
		if t.block, err = r.m.mem.floats(n); err != nil {
			return nil, err
		}
	}
	t.cs = t.block[:len(positions)*dim]
	t.positions, t.factors = append(t.positions[:0], positions...), id
	r.fill(t.cs, positions, factors, swa)
	return t.cs, nil
}

func equal(a, b []int32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// fill computes the angles in float32 step by step, as ggml does, so that the
// model that is trained is the one that is run.
// Source: ggml-cpu/ops.cpp, ggml_rope_cache_init.
func (r *ropes) fill(cs []float32, positions []int32, factors []float32, swa bool) {
	h := &r.m.Hparams
	base, scale := h.RopeBase, h.RopeScale
	if swa {
		base, scale = h.RopeBaseSWA, h.RopeScaleSWA
	}
	half := h.RopeDim / 2
	step := float32(math.Pow(float64(base), float64(float32(-2)/float32(h.RopeDim))))
	for t, pos := range positions {
		row := cs[t*2*half : (t+1)*2*half]
		theta := float32(pos)
		for i := range half {
			angle := theta
			if factors != nil {
				angle /= factors[i]
			}
			sin, cos := math.Sincos(float64(scale * angle))
			row[i], row[half+i] = float32(cos)*h.RopeAttn, float32(sin)*h.RopeAttn
			theta *= step
		}
	}
}

// turn rotates the queries and keys of qkv, or turns their gradients back.
func (m *Model) turn(l *layer, qkv ggml.Mat, p *pass, back bool) error {
	h := &m.Hparams
	if h.NoRope {
		return nil
	}
	cs, err := m.ropes.get(p.positions, l.swa)
	if err != nil {
		return err
	}
	m.pool.Rope(ggml.Rope{ // q and k lie side by side and turn alike
		X: qkv.Sub(0, h.qDim()+h.kvDim()), Heads: h.NHead + h.NHeadKV, HeadDim: h.HeadDim, Dim: h.RopeDim,
		Table: cs, Neox: m.arch.neox, Back: back,
	})
	return nil
}
