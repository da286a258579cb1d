//go:build cgo

package graph

import (
	"math"

	"gollama/internal/engine/ggml"
	"gollama/internal/opt/data"
)

// reference computes a model's loss in float64, from the formulas, one token
// and one value at a time. It shares no code with the passes under test.
type reference struct {
	m    *Model
	w    map[string][]float64 // frozen and trained alike
	step uint64
	drop float32
}

func newReference(m *Model) *reference {
	r := &reference{m: m, w: map[string][]float64{}}
	put := func(name string, v []float32) {
		out := make([]float64, len(v))
		for i, x := range v {
			out[i] = float64(x)
		}
		r.w[name] = out
	}
	mat := func(w *matrix) {
		v, err := ggml.Dequantize(w.w.Type, w.w.Data, w.w.Rows*w.w.Cols)
		if err != nil {
			panic(err)
		}
		put(w.name, v)
		if w.lora != nil {
			put(w.lora.a.Name, w.lora.a.Data)
			put(w.lora.b.Name, w.lora.b.Data)
		}
	}
	vec := func(v *vector) {
		if v != nil {
			put(v.name, v.data)
		}
	}
	mat(m.embd)
	mat(m.out)
	vec(m.outNorm)
	for _, l := range m.layers {
		for _, v := range []*vector{l.attnNorm, l.ffnNorm, l.attnPost, l.ffnPost, l.qNorm, l.kNorm} {
			vec(v)
		}
		for _, p := range l.projs() {
			mat(p.w)
			vec(p.bias)
		}
	}
	return r
}

func (r *reference) norm(v *vector, x []float64, groups int) []float64 {
	if v == nil {
		return x
	}
	w := r.w[v.name]
	y := make([]float64, len(x))
	n := len(x) / groups
	for g := range groups {
		var s float64
		for _, a := range x[g*n : (g+1)*n] {
			s += a * a
		}
		s = 1 / math.Sqrt(s/float64(n)+float64(r.m.Hparams.Eps))
		for i := range n {
			y[g*n+i] = x[g*n+i] * s * w[i]
		}
	}
	return y
}

// keepDrop is the dropout mask of one value, written anew from its definition.
func keepDrop(seed uint64, index int, p float32) float64 {
	z := seed + uint64(index)*0x9e3779b97f4a7c15
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	z ^= z >> 31
	if float64(z>>32)/(1<<32) < float64(p) {
		return 0
	}
	return 1 / (1 - float64(p))
}

// linear returns W x + b + s B A drop(x) for token t.
func (r *reference) linear(p *proj, x []float64, t int) []float64 {
	w, rows, cols := r.w[p.w.name], p.w.w.Rows, p.w.w.Cols
	y := make([]float64, rows)
	for i := range y {
		for j := range cols {
			y[i] += w[i*cols+j] * x[j]
		}
		if p.bias != nil {
			y[i] += r.w[p.bias.name][i]
		}
	}
	ad := p.w.lora
	if ad == nil {
		return y
	}
	a, b := r.w[ad.a.Name], r.w[ad.b.Name]
	for k := range ad.rank {
		var s float64
		for j := range cols {
			keep := 1.0
			if r.drop > 0 {
				keep = keepDrop(ad.seed+r.step*0xd1342543de82ef95, t*cols+j, r.drop)
			}
			s += a[k*cols+j] * x[j] * keep
		}
		for i := range y {
			y[i] += float64(ad.scale) * b[i*ad.rank+k] * s
		}
	}
	return y
}

func (r *reference) rope(x []float64, pos int32, swa bool) {
	h := &r.m.Hparams
	if h.NoRope {
		return
	}
	base, scale := float64(h.RopeBase), float64(h.RopeScale)
	if swa {
		base, scale = float64(h.RopeBaseSWA), float64(h.RopeScaleSWA)
	}
	half := h.RopeDim / 2
	for i := range half {
		a := float64(pos) * math.Pow(base, -2*float64(i)/float64(h.RopeDim))
		if r.m.ropes.freqs != nil {
			a /= float64(r.m.ropes.freqs[i])
		}
		sin, cos := math.Sincos(a * scale)
		p, q := 2*i, 2*i+1
		if r.m.arch.neox {
			p, q = i, i+half
		}
		x[p], x[q] = x[p]*cos-x[q]*sin, x[p]*sin+x[q]*cos
	}
}

func (r *reference) act(x float64) float64 {
	if r.m.arch.gelu {
		return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}
	return x / (1 + math.Exp(-x))
}

func softcap(x float64, c float32) float64 {
	if c == 0 {
		return x
	}
	return float64(c) * math.Tanh(x/float64(c))
}

func (r *reference) attend(l *layer, q, k, v [][]float64, ex *data.Example, pos []int32, t int) []float64 {
	h := &r.m.Hparams
	o := make([]float64, h.qDim())
	for head := range h.NHead {
		kv := head / (h.NHead / h.NHeadKV)
		var s []float64
		var idx []int
		top := math.Inf(-1)
		for j := 0; j <= t; j++ {
			if ex.Segments != nil && ex.Segments[j] != ex.Segments[t] || l.swa && pos[t]-pos[j] >= int32(h.Window) {
				continue
			}
			var d float64
			for i := range h.HeadDim {
				d += q[t][head*h.HeadDim+i] * k[j][kv*h.HeadDim+i]
			}
			d = softcap(d*float64(h.AttnScale), h.AttnCap)
			s, idx, top = append(s, d), append(idx, j), max(top, d)
		}
		var sum float64
		for i := range s {
			s[i] = math.Exp(s[i] - top)
			sum += s[i]
		}
		for i, j := range idx {
			for d := range h.HeadDim {
				o[head*h.HeadDim+d] += s[i] / sum * v[j][kv*h.HeadDim+d]
			}
		}
	}
	return o
}

// logits returns the logits of every token.
func (r *reference) logits(ex *data.Example) [][]float64 {
	m, h := r.m, &r.m.Hparams
	n := len(ex.Tokens)
	pos := ex.Positions
	if pos == nil {
		for i := range n {
			pos = append(pos, int32(i))
		}
	}
	x := make([][]float64, n)
	for t, id := range ex.Tokens {
		for _, e := range r.w[m.embd.name][int(id)*h.NEmbd : (int(id)+1)*h.NEmbd] {
			x[t] = append(x[t], e*float64(h.EmbdScale))
		}
	}
	join := func(projs []*proj, in []float64, t int) (out []float64) {
		for _, p := range projs {
			out = append(out, r.linear(p, in, t)...)
		}
		return out
	}
	add := func(x, f []float64, post *vector) []float64 {
		f = r.norm(post, f, 1)
		y := make([]float64, len(x))
		for i := range y {
			y[i] = x[i] + float64(h.ResidScale)*f[i]
		}
		return y
	}
	groups := [2]int{h.NHead, h.NHeadKV}
	if m.arch.qkNormWide {
		groups = [2]int{1, 1}
	}
	for _, l := range m.layers {
		q, k, v := make([][]float64, n), make([][]float64, n), make([][]float64, n)
		for t := range n {
			qkv := join(l.qkv, r.norm(l.attnNorm, x[t], 1), t)
			q[t], k[t], v[t] = qkv[:h.qDim()], qkv[h.qDim():h.qDim()+h.kvDim()], qkv[h.qDim()+h.kvDim():]
			q[t], k[t] = r.norm(l.qNorm, q[t], groups[0]), r.norm(l.kNorm, k[t], groups[1])
			for i := range h.NHead {
				r.rope(q[t][i*h.HeadDim:(i+1)*h.HeadDim], pos[t], l.swa)
			}
			for i := range h.NHeadKV {
				r.rope(k[t][i*h.HeadDim:(i+1)*h.HeadDim], pos[t], l.swa)
			}
		}
		for t := range n {
			x1 := add(x[t], r.linear(l.attnOut, r.attend(l, q, k, v, ex, pos, t), t), l.attnPost)
			gu := join(l.gateUp, r.norm(l.ffnNorm, x1, 1), t)
			a := make([]float64, h.NFF)
			for i := range a {
				a[i] = r.act(gu[i]) * gu[h.NFF+i]
			}
			x[t] = add(x1, r.linear(l.down, a, t), l.ffnPost)
		}
	}
	out := make([][]float64, n)
	scored := 0 // the head's dropout counts scored rows
	for t := range n {
		out[t] = r.linear(m.outProj[0], r.norm(m.outNorm, x[t], 1), scored)
		if ex.Labels[t] >= 0 && (ex.Weights == nil || ex.Weights[t] > 0) {
			scored++
		}
		for i := range out[t] {
			out[t][i] = softcap(out[t][i]*float64(h.LogitScale), h.LogitCap)
		}
	}
	return out
}

// loss returns sum w * nll.
func (r *reference) loss(ex *data.Example) float64 {
	var sum float64
	for t, l := range r.logits(ex) {
		w := 1.0
		if ex.Weights != nil {
			w = float64(ex.Weights[t])
		}
		if ex.Labels[t] < 0 || w == 0 {
			continue
		}
		top := math.Inf(-1)
		for _, v := range l {
			top = max(top, v)
		}
		var s float64
		for _, v := range l {
			s += math.Exp(v - top)
		}
		sum += w * (math.Log(s) + top - l[ex.Labels[t]])
	}
	return sum
}
