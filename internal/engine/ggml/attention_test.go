//go:build cgo

package ggml

import (
	"fmt"
	"math"
	"testing"
)

// attentionCase holds inputs in float64 for the reference.
type attentionCase struct {
	n, heads, kv, dim int
	q, k, v           []float64
	lo                []int32
	scale, limit      float64
}

// forward returns the result of every query and head.
func (c *attentionCase) forward() []float64 {
	o := make([]float64, c.n*c.heads*c.dim)
	for h := range c.heads {
		kv := h / (c.heads / c.kv)
		for i := range c.n {
			var s []float64
			var sum float64
			for j := int(c.lo[i]); j <= i; j++ {
				var d float64
				for x := range c.dim {
					d += c.q[(i*c.heads+h)*c.dim+x] * c.k[(j*c.kv+kv)*c.dim+x]
				}
				d *= c.scale
				if c.limit != 0 {
					d = c.limit * math.Tanh(d/c.limit)
				}
				s = append(s, math.Exp(d))
				sum += math.Exp(d)
			}
			for j, e := range s {
				for x := range c.dim {
					o[(i*c.heads+h)*c.dim+x] += e / sum * c.v[((int(c.lo[i])+j)*c.kv+kv)*c.dim+x]
				}
			}
		}
	}
	return o
}

func wide(s []float32) []float64 {
	out := make([]float64, len(s))
	for i, v := range s {
		out[i] = float64(v)
	}
	return out
}

// Forward against the formula, backward against its differences.
func TestAttention(t *testing.T) {
	eachVector(t, func(t *testing.T) {
		for _, s := range [][4]int{{1, 1, 1, 2}, {7, 2, 1, 5}, {50, 4, 2, 8}, {100, 3, 3, 20}, {130, 2, 1, 33}} {
			for _, limit := range []float64{0, 2} {
				for _, lo := range []string{"causal", "window", "segments"} {
					t.Run(fmt.Sprint(s, limit, lo), func(t *testing.T) { testAttention(t, s, limit, lo) })
				}
			}
		}
	})
}

func testAttention(t *testing.T, s [4]int, limit float64, lo string) {
	p := newPool(t, 2)
	n, heads, kv, dim := s[0], s[1], s[2], s[3]
	q, k, v, do := floats(t, n*heads*dim, 1), floats(t, n*kv*dim, 2), floats(t, n*kv*dim, 3), floats(t, n*heads*dim, 4)
	a := Attention{
		Heads: heads, KVHeads: kv, HeadDim: dim, Q: NewMat(q, n, heads*dim), K: NewMat(k, n, kv*dim), V: NewMat(v, n, kv*dim),
		O: NewMat(floats(t, n*heads*dim, 0), n, heads*dim), LSE: floats(t, n*heads, 0), Lo: make([]int32, n), Scale: 0.4, Cap: float32(limit),
		DO: NewMat(do, n, heads*dim), DQ: NewMat(floats(t, n*heads*dim, 5), n, heads*dim),
		DK: NewMat(floats(t, n*kv*dim, 6), n, kv*dim), DV: NewMat(floats(t, n*kv*dim, 7), n, kv*dim),
	}
	for i := range a.Lo {
		switch lo {
		case "window":
			a.Lo[i] = int32(max(0, i-8))
		case "segments":
			a.Lo[i] = int32(i / 17 * 17)
		}
	}
	if err := p.Attention(a); err != nil {
		t.Fatal(err)
	}
	if err := p.AttentionBack(a); err != nil {
		t.Fatal(err)
	}
	c := &attentionCase{n: n, heads: heads, kv: kv, dim: dim, q: wide(q), k: wide(k), v: wide(v), lo: a.Lo, scale: float64(a.Scale), limit: limit}
	compare(t, "o", a.O.Data, c.forward(), 1e-5)
	loss := func() (sum float64) {
		for i, o := range c.forward() {
			sum += o * float64(do[i])
		}
		return sum
	}
	for _, g := range []struct {
		name string
		in   []float64
		got  []float32
	}{{"dq", c.q, a.DQ.Data}, {"dk", c.k, a.DK.Data}, {"dv", c.v, a.DV.Data}} {
		for i := 0; i < len(g.in); i += max(1, len(g.in)/7) {
			const h = 1e-5
			was := g.in[i]
			g.in[i] = was + h
			up := loss()
			g.in[i] = was - h
			down := loss()
			g.in[i] = was
			if d := math.Abs((up-down)/(2*h) - float64(g.got[i])); d > 1e-4 {
				t.Errorf("%s: element %d is %g, differences give %g", g.name, i, g.got[i], (up-down)/(2*h))
			}
		}
	}
}
