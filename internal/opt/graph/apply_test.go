//go:build cgo

package graph

import (
	"context"
	"errors"
	"slices"
	"testing"

	"gollama/internal/engine/ggml"
	"gollama/internal/opt/data"
)

// BackwardApply hands out each gradient once, with Backward's bits, although each
// parameter is spoiled as soon as its gradient was seen; what is handed out
// afterwards is not changed by that, and at the end all gradients are zero.
func TestBackwardApply(t *testing.T) {
	for name, s := range testModels() {
		for _, lora := range []*LoRA{nil, {Rank: 4, Alpha: 4, Dropout: 0.2}} {
			if lora != nil {
				s.typ = ggml.TypeF16
			}
			for _, budget := range []int64{0, 1} {
				m := open(t, s.write(t), Config{Threads: 2, LoRA: lora, MemoryBudget: budget})
				fillB(m)
				ex := packedExample()
				wantLoss, want := gradsOf(t, m, ex) // leaves gradients behind
				got, saved := map[*Param][]float32{}, map[*Param][]float32{}
				l, err := m.BackwardApply(context.Background(), ex, 1, 3, func(l Loss, params []*Param) error {
					if l.Sum != wantLoss {
						t.Errorf("%s: loss %v, want %v", name, l.Sum, wantLoss)
					}
					for _, p := range params {
						if got[p] != nil {
							t.Errorf("%s: %s is handed out twice", name, p.Name)
						}
						got[p], saved[p] = slices.Clone(p.Grad), slices.Clone(p.Data)
						for i := range p.Data {
							p.Data[i] = 1e3
						}
					}
					return nil
				})
				if err != nil || l.Sum != wantLoss {
					t.Fatalf("%s: loss %v, want %v (%v)", name, l.Sum, wantLoss, err)
				}
				var all []float32
				for _, p := range m.Params() {
					all = append(all, got[p]...)
					copy(p.Data, saved[p])
				}
				if !slices.Equal(all, want) {
					t.Errorf("%s, lora %v, budget %d: other gradients, by %g", name, lora != nil, budget, relDiff(all, want))
				}
				if slices.ContainsFunc(grads(m), func(g float32) bool { return g != 0 }) {
					t.Errorf("%s, lora %v: gradients are left", name, lora != nil)
				}
				if _, again := gradsOf(t, m, ex); !slices.Equal(again, want) {
					t.Errorf("%s, lora %v: other gradients afterwards", name, lora != nil)
				}
			}
		}
	}
}

// A cancelled context ends a pass before the first call, and not after it; an
// error of apply ends it at once.
func TestBackwardApplyStops(t *testing.T) {
	s := testModels()["llama"]
	m := open(t, s.write(t), Config{Threads: 1})
	ctx, cancel := context.WithCancel(context.Background())
	calls := 0
	seen := func(Loss, []*Param) error { calls++; cancel(); return nil }
	if _, err := m.BackwardApply(ctx, example(30, 1), 1, 0, seen); err != nil || calls != len(m.layers)+2 {
		t.Errorf("cancelled at the first call: %d calls, %v, want %d", calls, err, len(m.layers)+2)
	}
	calls = 0
	if _, err := m.BackwardApply(ctx, example(30, 1), 1, 0, seen); !errors.Is(err, context.Canceled) || calls != 0 {
		t.Errorf("cancelled before: %d calls, %v", calls, err)
	}
	stop := errors.New("stop")
	_, err := m.BackwardApply(context.Background(), example(30, 1), 1, 0, func(Loss, []*Param) error { calls++; return stop })
	if !errors.Is(err, stop) || calls != 1 {
		t.Errorf("an error: %d calls, %v", calls, err)
	}
	blank := &data.Example{Tokens: []int32{5, 6}, Labels: []int32{data.NoLabel, data.NoLabel}}
	if _, err := m.BackwardApply(context.Background(), blank, 1, 0, seen); err != nil || calls != 1 {
		t.Errorf("without a label: %d calls, %v", calls, err)
	}
}
