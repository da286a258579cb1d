//go:build cgo

package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"gollama/internal/gguf"
)

// tapped opens a context with a tap on layers first to last.
func tapped(t *testing.T, m *Model, p *Params, first, last int) (*Context, *States) {
	t.Helper()
	s, err := NewStates(m, first, last)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewContextTap(m, p, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	return c, s
}

// states decodes tokens in sequence 0 and returns the sum of the states of those with a slot.
func states(t *testing.T, c *Context, s *States, tokens []Token, count func(i int) bool) []float64 {
	t.Helper()
	c.ClearMemory()
	var b Batch
	var slots []int32
	for i, tok := range tokens {
		slot := int32(-1)
		if count(i) {
			slot = 0
		}
		slots = append(slots, slot)
		b.Add(tok, i, 0, slot == 0)
	}
	sum := make([]float64, s.Width())
	if err := s.Decode(context.Background(), c, &b, slots, sum); err != nil {
		t.Fatal(err)
	}
	return sum
}

func floats(t *testing.T, f *gguf.File, name string) []float64 {
	t.Helper()
	i, ok := f.Tensor(name)
	if !ok || f.Tensors[i].Type != gguf.TypeF32 {
		t.Fatalf("no tensor %s in 32 bits", name)
	}
	data, err := f.ReadTensor(i)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float64, len(data)/4)
	for k := range out {
		out[k] = float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*k:])))
	}
	return out
}

// The state of the last layer, normed and multiplied with the output matrix in 64 bits, is the model's logits.
func TestStatesMakeLogits(t *testing.T) {
	p := testParams(needStory(t))
	m := openModel(t, p)
	tokens, err := m.Vocab().Tokenize("Once upon a time", true, false)
	if err != nil {
		t.Fatal(err)
	}
	n := m.Info().NLayer
	c, s := tapped(t, m, p, n-1, n-1)
	h := states(t, c, s, tokens, func(i int) bool { return i == len(tokens)-1 })
	plain := openContext(t, m, p)
	if err := plain.DecodePrompt(context.Background(), tokens, 0, 0, nil); err != nil {
		t.Fatal(err)
	}
	logits, err := plain.Logits(-1)
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(p.Model)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	eps, _ := f.Float("llama.attention.layer_norm_rms_epsilon")
	norm, output := floats(t, f, "output_norm.weight"), floats(t, f, "output.weight")
	var square float64
	for _, x := range h {
		square += x * x
	}
	scale := 1 / math.Sqrt(square/float64(len(h))+eps)
	for v, got := range logits {
		var want float64
		for k, x := range h {
			want += x * scale * norm[k] * output[v*len(h)+k]
		}
		if math.Abs(float64(got)-want) > 1e-4 { // the engine adds up in 32 bits
			t.Fatalf("logit %d is %g, from the hidden state %g", v, got, want)
		}
	}
}

// A text has the same states in one micro-batch, beside others, and in parts; a slot has the sum of its tokens.
func TestStatesBatches(t *testing.T) {
	p := testParams(needStory(t))
	p.NParallel, p.NCtx = 3, 3*256
	m := openModel(t, p)
	tokens, err := m.Vocab().Tokenize("Tom had a big party with cake and balloons.", true, false)
	if err != nil {
		t.Fatal(err)
	}
	n := m.Info().NLayer
	c, s := tapped(t, m, p, 0, n-1)
	want := states(t, c, s, tokens, func(i int) bool { return i == len(tokens)-1 })

	var b Batch
	var slots []int32
	for seq := range 3 {
		for i, tok := range tokens {
			slot := int32(-1)
			if i == len(tokens)-1 {
				slot = int32(seq)
			}
			slots = append(slots, slot)
			b.Add(tok, i, seq, slot >= 0)
		}
	}
	c.ClearMemory()
	sum := make([]float64, 3*s.Width())
	if err := s.Decode(context.Background(), c, &b, slots, sum); err != nil {
		t.Fatal(err)
	}
	for i, x := range sum {
		if math.Abs(x-want[i%len(want)]) > 1e-5 {
			t.Fatalf("three at once: value %d is %g, want %g", i, x, want[i%len(want)])
		}
	}

	whole := states(t, c, s, tokens, func(int) bool { return true })
	each := make([]float64, s.Width())
	for k := range tokens {
		for i, x := range states(t, c, s, tokens, func(i int) bool { return i == k }) {
			each[i] += x
		}
	}
	for i, x := range whole {
		if math.Abs(x-each[i]) > 1e-4 {
			t.Fatalf("sum of all tokens: value %d is %g, want %g", i, x, each[i])
		}
	}

	p.NBatch, p.NUBatch = 8, 8
	small, tap := tapped(t, m, p, 0, n-1)
	for i, x := range states(t, small, tap, tokens, func(i int) bool { return i == len(tokens)-1 }) {
		if math.Abs(x-want[i]) > 2e-3 { // attention adds in another order, in 16 bits
			t.Fatalf("in parts of 8: value %d is %g, want %g", i, x, want[i])
		}
	}
}

// Sequences that llama.cpp would put into another order are an error, not other states.
func TestStatesOrder(t *testing.T) {
	p := testParams(needStory(t))
	p.NParallel, p.NCtx = 2, 512
	m := openModel(t, p)
	c, s := tapped(t, m, p, 0, 1)
	var b Batch
	for i := range 4 {
		b.Add(Token(10+i), i, 0, i == 3)
		b.Add(Token(20+i), i, 1, i == 3)
	}
	err := s.Decode(context.Background(), c, &b, make([]int32, 8), make([]float64, s.Width()))
	if err == nil {
		t.Fatal("interleaved sequences gave states")
	}
}

func TestStatesBad(t *testing.T) {
	p := testParams(needStory(t))
	m := openModel(t, p)
	n := m.Info().NLayer
	for _, r := range [][2]int{{-1, 0}, {2, 1}, {0, n}} {
		if s, err := NewStates(m, r[0], r[1]); err == nil {
			s.Close()
			t.Errorf("layers %d to %d: no error", r[0], r[1])
		}
	}
	c, s := tapped(t, m, p, 0, n-1)
	b := Batch{}
	b.Add(5, 0, 0, false)
	for name, call := range map[string]func() error{
		"slots":  func() error { return s.Decode(context.Background(), c, &b, nil, make([]float64, s.Width())) },
		"room":   func() error { return s.Decode(context.Background(), c, &b, []int32{1}, make([]float64, s.Width())) },
		"output": func() error { return s.Decode(context.Background(), c, &b, []int32{0}, make([]float64, s.Width())) },
	} {
		if err := call(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	plain := openContext(t, m, p)
	b.Output[0] = true
	if err := s.Decode(context.Background(), plain, &b, []int32{0}, make([]float64, s.Width())); !errors.Is(err, ErrModel) {
		t.Errorf("a context without the tap: error %v", err)
	}
	for name, dirs := range map[string][]float32{"length": make([]float32, 3), "NaN": slices.Repeat([]float32{float32(math.NaN())}, 64*(n-1))} {
		if err := plain.SetDirections(dirs, -1, -1); err == nil {
			t.Errorf("directions, %s: no error", name)
		}
	}
}

// A direction moves the output of its block by itself, to the bit, and what is below not at all; a shorter vector after a
// longer one leaves nothing of it.
func TestDirections(t *testing.T) {
	p := testParams(needStory(t))
	m := openModel(t, p)
	n, width := m.Info().NLayer, m.Info().NEmbd
	tokens, err := m.Vocab().Tokenize("The little dog", true, false)
	if err != nil {
		t.Fatal(err)
	}
	c, s := tapped(t, m, p, 0, n-1)
	last := func(i int) bool { return i == len(tokens)-1 }
	base := states(t, c, s, tokens, last)
	for k := 1; k < n; k++ {
		dirs := make([]float32, width*(n-1))
		for i := range width {
			dirs[(k-1)*width+i] = float32(i-20) / 16
		}
		if err := c.SetDirections(dirs, -1, -1); err != nil {
			t.Fatal(err)
		}
		moved := states(t, c, s, tokens, last)
		if !slices.Equal(moved[:k*width], base[:k*width]) {
			t.Errorf("direction.%d moves a block below %d", k, k)
		}
		for i := range width {
			if want := float32(base[k*width+i]) + dirs[(k-1)*width+i]; float32(moved[k*width+i]) != want {
				t.Fatalf("direction.%d, element %d: %g, want %g", k, i, moved[k*width+i], want)
			}
		}
	}
	full := slices.Repeat([]float32{0.5}, width*(n-1))
	if err := c.SetDirections(full, -1, -1); err != nil {
		t.Fatal(err)
	}
	zero := writeVector(t, vectorKeys(), uint64(width), 1) // random values
	if err := c.SetControlVector([]ControlVectorInfo{{Path: zero, Strength: 0}}, -1, -1); err != nil {
		t.Fatal(err)
	}
	if got := states(t, c, s, tokens, last); !slices.Equal(got, base) {
		t.Error("after a vector of zeros for one layer, the states are not those without a vector")
	}
}

// Tokens that two sequences have in common are evaluated once, and the logits of each are those of the sequence alone.
func TestSharedTokens(t *testing.T) {
	p := testParams(needStory(t))
	p.NParallel, p.KVUnified = 2, true
	c := openContext(t, openModel(t, p), p)
	begin, ends := []Token{1, 403, 407}, [][]Token{{261, 378}, {300, 301, 302}}
	var b Batch
	for i, tok := range begin {
		b.AddShared(tok, i, 0, 2, false)
	}
	for seq, end := range ends {
		for i, tok := range end {
			b.AddShared(tok, len(begin)+i, seq, 1, i == len(end)-1)
		}
	}
	if err := c.Decode(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	var got [2][]float32
	for seq, row := range []int{4, 7} {
		l, err := c.Logits(row)
		if err != nil {
			t.Fatal(err)
		}
		got[seq] = slices.Clone(l)
	}
	for seq, end := range ends {
		c.ClearMemory()
		b.Reset()
		for i, tok := range append(slices.Clone(begin), end...) {
			b.Add(tok, i, 0, i == len(begin)+len(end)-1)
		}
		if err := c.Decode(context.Background(), &b); err != nil {
			t.Fatal(err)
		}
		want, err := c.Logits(len(b.Tokens) - 1)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if math.Abs(float64(got[seq][i]-want[i])) > 2e-5 { // one row of the last feed-forward, or two
				t.Fatalf("sequence %d, logit %d: %v, alone %v", seq, i, got[seq][i], want[i])
			}
		}
	}
	b.Reset()
	b.AddShared(1, 0, 1, 2, true)
	if err := c.Decode(context.Background(), &b); err == nil {
		t.Error("a token of sequences 1 and 2, of which there are 0 and 1: no error")
	}
	p.KVUnified = false
	apart := openContext(t, c.Model(), p)
	b.Reset()
	b.AddShared(1, 0, 0, 2, true)
	if err := apart.Decode(context.Background(), &b); err == nil {
		t.Error("a token in two caches: no error")
	}
}
