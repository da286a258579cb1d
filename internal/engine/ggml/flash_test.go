//go:build cgo

package ggml

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// flashCase is an attention with few queries, whose heads of keys and values have rank queries each.
type flashCase struct {
	name                   string
	keys, queries, heads   int
	kv, dim, vdim, texts   int
	typ                    Type
	masked, perHead, sinks bool
	open                   bool // the mask is 0
	shared                 bool // all texts have one mask
	valuesQ8               bool // values are q8_0, whatever keys are
	bias, cap              float32
	k, v                   []float32 // as the tensors hold them
	kb, vb                 []byte
	q, sink                []float32
	mask                   []float32 // [maskTexts][maskHeads][queries][keys]
	maskHeads, maskTexts   int
}

func (c *flashCase) vtyp() Type {
	if c.valuesQ8 {
		return TypeQ8_0
	}
	return c.typ
}

func (c *flashCase) fill() {
	c.q = normals(c.dim*c.queries*c.heads*c.texts, 1)
	pack := func(typ Type, n, row int, seed uint64) ([]byte, []float32) {
		b := must(Quantize(typ, normals(n, seed), row, nil))
		return b, must(Dequantize(typ, b, n))
	}
	c.kb, c.k = pack(c.typ, c.dim*c.keys*c.kv*c.texts, c.dim, 2)
	c.vb, c.v = pack(c.vtyp(), c.vdim*c.keys*c.kv*c.texts, c.vdim, 3)
	c.sink = normals(c.heads, 4)
	c.maskHeads, c.maskTexts = 1, c.texts
	if c.perHead {
		c.maskHeads = c.heads
	}
	if c.shared {
		c.maskTexts = 1
	}
	c.mask = make([]float32, c.maskTexts*c.maskHeads*c.queries*c.keys)
	if c.open {
		return
	}
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range c.mask {
		switch row, key := i/c.keys, i%c.keys; {
		case row%5 == 4: // a query that sees nothing
			c.mask[i] = float32(math.Inf(-1))
		case row%5 == 3 && key > 0: // one that sees one key
			c.mask[i] = float32(math.Inf(-1))
		case row%5 == 2 && rng.IntN(3) > 0: // holes
			c.mask[i] = float32(math.Inf(-1))
		case row%5 == 1: // biases
			c.mask[i] = -float32(rng.IntN(64)) / 16
		case row%5 == 0 && key >= c.keys-c.keys/4: // the end is free
			c.mask[i] = float32(math.Inf(-1))
		}
	}
}

// run returns what ggml makes of it with so many threads: [texts][queries][heads][vdim].
func (c *flashCase) run(t *testing.T, threads int) []float32 {
	t.Helper()
	r := newRig(t, threads)
	k := must(r.w.NewTensor(c.typ, c.dim, c.keys, c.kv, c.texts))
	v := must(r.w.NewTensor(c.vtyp(), c.vdim, c.keys, c.kv, c.texts))
	sinks := must(r.w.NewTensor(TypeF32, c.heads))
	mask := must(r.w.NewTensor(TypeF16, c.keys, c.queries, c.maskHeads, c.maskTexts))
	half := make([]byte, 0, 2*len(c.mask))
	for _, m := range c.mask {
		half = binary.LittleEndian.AppendUint16(half, f16Bits(m))
	}
	if err := errors.Join(r.s.AllocTensors(r.w, "cpu"), k.Set(c.kb), v.Set(c.vb), sinks.SetF32(c.sink), mask.Set(half)); err != nil {
		t.Fatal(err)
	}
	a := FlashParams{Scale: 1 / float32(math.Sqrt(float64(c.dim))), MaxBias: c.bias, SoftCap: c.cap}
	if c.masked {
		a.Mask = mask
	}
	if c.sinks {
		a.Sinks = sinks
	}
	q := must(r.c.NewTensor(TypeF32, c.dim, c.queries, c.heads, c.texts))
	o := must(r.c.FlashAttention(q, k, v, a))
	if got, want := o.Shape(), [4]int{c.vdim, c.heads, c.queries, c.texts}; got != want {
		t.Fatalf("shape %v, want %v", got, want)
	}
	g := must(r.c.NewGraph())
	got := make([]float32, c.vdim*c.heads*c.queries*c.texts)
	if err := errors.Join(g.Build(o), r.s.Alloc(g), q.SetF32(c.q), r.s.Compute(g), o.GetF32(got)); err != nil {
		t.Fatal(err)
	}
	return got
}

// want returns the same in float64, and for each value the sum of the absolute values of what was added up for it.
func (c *flashCase) want() (out, size []float64) {
	for text := range c.texts {
		for query := range c.queries {
			for head := range c.heads {
				o, s := c.row(text, query, head)
				out, size = append(out, o...), append(size, s...)
			}
		}
	}
	return out, size
}

func (c *flashCase) row(text, query, head int) (out, size []float64) {
	kv := head / (c.heads / c.kv)
	q := c.q[((text*c.heads+head)*c.queries+query)*c.dim:]
	slope := 1.0
	if c.bias > 0 { // ALiBi, Press et al.: geometric over the largest power of two, then the odd ones between
		n := math.Exp2(math.Floor(math.Log2(float64(c.heads))))
		if slope = math.Exp2(-float64(c.bias) / n * float64(head+1)); float64(head) >= n {
			slope = math.Exp2(-float64(c.bias) / 2 / n * (2*(float64(head)-n) + 1))
		}
	}
	out, size = make([]float64, c.vdim), make([]float64, c.vdim)
	scores, top := make([]float64, c.keys), math.Inf(-1)
	for key := range c.keys {
		k := c.k[((text*c.kv+kv)*c.keys+key)*c.dim:]
		for d := range c.dim {
			scores[key] += float64(q[d]) * float64(k[d]) / math.Sqrt(float64(c.dim))
		}
		if c.cap > 0 {
			scores[key] = float64(c.cap) * math.Tanh(scores[key]/float64(c.cap))
		}
		if c.masked {
			scores[key] += slope * float64(c.mask[((text%c.maskTexts*c.maskHeads+head%c.maskHeads)*c.queries+query)*c.keys+key])
		}
		top = max(top, scores[key])
	}
	if math.IsInf(top, -1) {
		return out, size
	}
	var sum float64
	if c.sinks {
		sum = math.Exp(float64(c.sink[head]) - top)
	}
	for key, s := range scores {
		w := math.Exp(s - top)
		sum += w
		for d := range c.vdim {
			x := w * float64(c.v[((text*c.kv+kv)*c.keys+key)*c.vdim+d])
			out[d] += x
			size[d] += math.Abs(x)
		}
	}
	for d := range c.vdim {
		out[d] /= sum
		size[d] /= sum
	}
	return out, size
}

// Attention is float32's: a score of D products of standard normals errs by sqrt(D) * 2^-24 or so, so a weight
// by that part of itself, and ggml's exp by 2 ulp; 32 * 2^-24 of what is added up leaves room for any order. Upstream's
// kernel, which adds up in float16, is off by 120 to 16,000. The bits are the same with any number of threads.
func TestFlashAttention(t *testing.T) {
	cases := []flashCase{
		{name: "one key", keys: 1, queries: 1, heads: 1, kv: 1, dim: 64, vdim: 64, texts: 1, typ: TypeF16},
		{name: "a part of a chunk", keys: 77, queries: 1, heads: 9, kv: 3, dim: 64, vdim: 64, texts: 1, typ: TypeF16},
		{name: "many chunks", keys: 1500, queries: 1, heads: 9, kv: 3, dim: 64, vdim: 64, texts: 1, typ: TypeF16, masked: true},
		{name: "float32", keys: 700, queries: 5, heads: 8, kv: 2, dim: 32, vdim: 32, texts: 1, typ: TypeF32, masked: true},
		{name: "bfloat16", keys: 300, queries: 5, heads: 4, kv: 4, dim: 40, vdim: 40, texts: 2, typ: TypeBF16, masked: true},
		{name: "quantized", keys: 300, queries: 5, heads: 8, kv: 1, dim: 64, vdim: 96, texts: 1, typ: TypeQ8_0, masked: true},
		{name: "quantized, tiles' queries", keys: 200, queries: 70, heads: 2, kv: 1, dim: 32, vdim: 32, texts: 1, typ: TypeQ4_0, masked: true},
		{name: "tiles", keys: 201, queries: 70, heads: 6, kv: 2, dim: 64, vdim: 64, texts: 1, typ: TypeF16, masked: true},
		{name: "tiles, odd sizes", keys: 131, queries: 131, heads: 3, kv: 1, dim: 44, vdim: 40, texts: 2, typ: TypeF16, masked: true, bias: 8},
		{name: "tiles, soft cap, no mask", keys: 201, queries: 70, heads: 4, kv: 2, dim: 64, vdim: 64, texts: 1, typ: TypeF16, cap: 2},
		{name: "tiles, soft cap, a mask of 0", keys: 201, queries: 70, heads: 4, kv: 2, dim: 64, vdim: 64, texts: 1, typ: TypeF32, masked: true, open: true, cap: 2},
		{name: "odd sizes", keys: 131, queries: 5, heads: 6, kv: 2, dim: 20, vdim: 13, texts: 3, typ: TypeF16, masked: true},
		{name: "many heads for one", keys: 400, queries: 2, heads: 40, kv: 1, dim: 72, vdim: 64, texts: 1, typ: TypeF16, masked: true},
		{name: "more than a wave", keys: 4000, queries: 1, heads: 128, kv: 1, dim: 72, vdim: 512, texts: 1, typ: TypeF16, masked: true},
		{name: "sequences", keys: 260, queries: 1, heads: 4, kv: 2, dim: 64, vdim: 64, texts: 15, typ: TypeF16, masked: true},
		{name: "a mask for each head", keys: 333, queries: 5, heads: 4, kv: 2, dim: 64, vdim: 64, texts: 2, typ: TypeF16, masked: true, perHead: true},
		{name: "slopes", keys: 333, queries: 5, heads: 12, kv: 4, dim: 64, vdim: 64, texts: 1, typ: TypeF16, masked: true, bias: 8},
		{name: "soft cap and sinks", keys: 333, queries: 5, heads: 8, kv: 2, dim: 128, vdim: 128, texts: 1, typ: TypeF16, masked: true, cap: 2, sinks: true},
		{name: "values of another type", keys: 140, queries: 5, heads: 6, kv: 2, dim: 80, vdim: 96, texts: 1, typ: TypeF16, valuesQ8: true, masked: true},
		{name: "values of another type, tiles' queries", keys: 140, queries: 66, heads: 3, kv: 1, dim: 40, vdim: 32, texts: 1, typ: TypeF32, valuesQ8: true, masked: true, sinks: true},
		{name: "one mask for all texts", keys: 140, queries: 5, heads: 4, kv: 2, dim: 96, vdim: 96, texts: 3, typ: TypeF16, masked: true, shared: true},
		{name: "tiles, all of it", keys: 127, queries: 67, heads: 6, kv: 2, dim: 80, vdim: 80, texts: 2, typ: TypeF32, masked: true, shared: true, sinks: true, bias: 8, cap: 3},
		{name: "tiles, one key", keys: 1, queries: 64, heads: 2, kv: 1, dim: 64, vdim: 64, texts: 1, typ: TypeF16, masked: true, sinks: true},
		{name: "tiles, a latent cache", keys: 130, queries: 65, heads: 2, kv: 1, dim: 576, vdim: 512, texts: 1, typ: TypeF16, masked: true, open: true},
		{name: "a latent cache, quantized", keys: 140, queries: 2, heads: 17, kv: 1, dim: 576, vdim: 512, texts: 1, typ: TypeQ8_0, masked: true, open: true},
		{name: "many values a head", keys: 129, queries: 3, heads: 4, kv: 1, dim: 192, vdim: 256, texts: 1, typ: TypeBF16, masked: true, cap: 30},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.fill()
			got := c.run(t, 1)
			want, size := c.want()
			var worst float64
			for i := range want {
				if e := math.Abs(float64(got[i])-want[i]) * (1 << 24); !(e <= 32*size[i]) {
					t.Fatalf("value %d of text, query, head %v: %g, want %g: off by %.3g units of %g, want 32",
						i%c.vdim, c.place(i), got[i], want[i], e/size[i], size[i])
				} else if size[i] > 0 {
					worst = max(worst, e/size[i])
				}
			}
			t.Logf("off by at most %.3g units of 2^-24", worst)
			for _, threads := range []int{2, 3, 16} {
				if i := firstOther(got, c.run(t, threads)); i >= 0 {
					t.Errorf("%d threads: value %d of %v is another", threads, i%c.vdim, c.place(i))
				}
			}
		})
	}
}

func (c *flashCase) place(i int) string {
	i /= c.vdim
	return fmt.Sprint([]int{i / c.heads / c.queries, i / c.heads % c.queries, i % c.heads})
}

// firstOther returns the first index at which two slices differ in a bit, or -1.
func firstOther(a, b []float32) int {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return i
		}
	}
	return -1
}

// A query's result is the same bits alone, beside others, with its keys at another place of the cache, and with free cells
// between them.
func TestFlashAttentionAlone(t *testing.T) {
	const keys, heads, kv, dim, shift = 300, 6, 2, 64, 41
	one := flashCase{keys: keys, queries: 1, heads: heads, kv: kv, dim: dim, vdim: dim, texts: 1, typ: TypeF32, masked: true}
	one.fill()
	clear(one.mask)
	want := one.run(t, 2)

	far := one
	far.keys, far.queries = 2*keys+shift, 3
	far.q = make([]float32, 3*len(one.q))
	for h := range heads {
		for query := range 3 {
			copy(far.q[(h*3+query)*dim:][:dim], one.q[h*dim:][:dim])
		}
	}
	spread := func(x []float32) []float32 {
		out := normals(far.keys*kv*dim, 9)
		for h := range kv {
			for key := range keys {
				copy(out[(h*far.keys+shift+2*key)*dim:][:dim], x[(h*keys+key)*dim:][:dim])
			}
		}
		return out
	}
	far.k, far.v = spread(one.k), spread(one.v)
	far.kb, far.vb = must(Quantize(TypeF32, far.k, dim, nil)), must(Quantize(TypeF32, far.v, dim, nil))
	far.mask = slices.Repeat([]float32{float32(math.Inf(-1))}, 3*far.keys)
	for key := range keys { // the middle one sees the keys of the one; the others see other keys
		far.mask[far.keys+shift+2*key] = 0
		far.mask[key], far.mask[2*far.keys+2*key] = 0, -1
	}
	got := far.run(t, 2)[heads*dim:][:heads*dim]
	if i := firstOther(got, want); i >= 0 {
		t.Errorf("head %d, value %d: %g, alone %g", i/dim, i%dim, got[i], want[i])
	}
}

// A NaN among the keys that are seen is not lost, and one among those that are not changes nothing.
func TestFlashAttentionNaN(t *testing.T) {
	c := flashCase{keys: 150, queries: 1, heads: 2, kv: 1, dim: 32, vdim: 32, texts: 1, typ: TypeF32, masked: true}
	c.fill()
	for _, seen := range []bool{false, true} {
		for i := range c.mask {
			c.mask[i] = float32(math.Inf(-1))
		}
		c.mask[3] = 0
		at := 4
		if seen {
			at = 3
		}
		k := slices.Clone(c.k)
		for d := range c.dim {
			k[at*c.dim+d] = float32(math.NaN())
		}
		for i, x := range k {
			binary.LittleEndian.PutUint32(c.kb[4*i:], math.Float32bits(x))
		}
		for i, x := range c.run(t, 2) {
			if math.IsNaN(float64(x)) != seen {
				t.Fatalf("seen %v: value %d is %g", seen, i, x)
			}
		}
	}
}

func TestFlashAttentionRefuses(t *testing.T) {
	r := newRig(t, 1)
	f := func(typ Type, ne ...int) *Tensor { return must(r.c.NewTensor(typ, ne...)) }
	q, k, v := f(TypeF32, 32, 2, 4), f(TypeF16, 32, 7, 2), f(TypeF16, 32, 7, 2)
	for name, tt := range map[string]struct {
		err  func() error
		want string
	}{
		"queries in f16": {func() error { _, err := r.c.FlashAttention(k, k, v, FlashParams{}); return err }, "operand 0 is f16"},
		"keys in i32":    {func() error { _, err := r.c.FlashAttention(q, f(TypeI32, 32, 7, 2), v, FlashParams{}); return err }, "keys are i32"},
		"sizes":          {func() error { _, err := r.c.FlashAttention(q, f(TypeF16, 16, 7, 2), v, FlashParams{}); return err }, "[16 7 2 1]"},
		"heads":          {func() error { _, err := r.c.FlashAttention(q, f(TypeF16, 32, 7, 3), v, FlashParams{}); return err }, "[32 7 3 1]"},
		"bias":           {func() error { _, err := r.c.FlashAttention(q, k, v, FlashParams{MaxBias: 8}); return err }, "without a mask"},
		"mask":           {func() error { _, err := r.c.FlashAttention(q, k, v, FlashParams{Mask: f(TypeF32, 7, 2)}); return err }, "mask f32 [7 2 1 1]"},
		"sinks":          {func() error { _, err := r.c.FlashAttention(q, k, v, FlashParams{Sinks: f(TypeF32, 3)}); return err }, "sinks [3 1 1 1]"},
		"none":           {func() error { _, err := r.c.FlashAttention(q, nil, v, FlashParams{}); return err }, "keys"},
	} {
		if err := tt.err(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want an error with %q", name, err, tt.want)
		}
	}
}
