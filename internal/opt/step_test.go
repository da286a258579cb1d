package opt

import (
	"context"
	"errors"
	"math"
	"testing"

	"gollama/internal/opt/data"
	"gollama/internal/opt/graph"
)

// watched counts the rows that go through a model in either way, and the most
// parameters that are handed out at once.
type watched struct {
	*graph.Model
	plain, fused, most int
}

func (w *watched) Backward(ctx context.Context, ex *data.Example, scale float64, step uint64) (graph.Loss, error) {
	w.plain++
	return w.Model.Backward(ctx, ex, scale, step)
}

func (w *watched) BackwardApply(ctx context.Context, ex *data.Example, scale float64, step uint64, apply func(graph.Loss, []*graph.Param) error) (graph.Loss, error) {
	w.fused++
	return w.Model.BackwardApply(ctx, ex, scale, step, func(l graph.Loss, params []*graph.Param) error {
		w.most = max(w.most, len(params))
		return apply(l, params)
	})
}

// An update within the backward pass ends with the bits of one after it: with
// each optimizer, tied and not, and any number of threads. A limit that no norm
// reaches asks for the latter.
func TestFused(t *testing.T) {
	needEngine(t)
	for _, kind := range []Kind{AdamW, SGD, Muon} {
		for _, tied := range []bool{false, true} {
			fit := func(clip float64, threads int) (*watched, []Report) {
				h := graph.Hparams{Arch: "llama", NVocab: 300, NEmbd: 32, NLayer: 3, NHead: 4, NHeadKV: 2, NFF: 48, NCtxTrain: 64, Tied: tied}
				m, err := graph.New(h, graph.Config{Threads: threads, Seed: 3})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = m.Close() })
				p := DefaultOptimizerParams()
				p.LR, p.WeightDecay, p.Momentum, p.Clip = 1e-2, 0.1, 0.9, clip
				w, reports := &watched{Model: m}, []Report(nil)
				_, err = Fit(context.Background(), w, walk(1, 12, 300), walk(2, 3, 300), Config{Kind: kind, Params: Constant(p), Epochs: 1, Batch: 1, Threads: threads,
					OnReport: func(r Report) { r.Timing = nil; reports = append(reports, r) }})
				if err != nil {
					t.Fatal(err)
				}
				return w, reports
			}
			want, wantReports := fit(1e9, 1)
			if want.fused != 0 || want.plain != 12 {
				t.Fatalf("clipped: %d rows within the pass, %d after it, want 0 and 12", want.fused, want.plain)
			}
			for _, threads := range []int{1, 2} {
				got, reports := fit(0, threads)
				if got.fused != 12 || got.plain != 0 || got.most > 9 {
					t.Errorf("not clipped: %d rows within the pass, %d after it, %d parameters at once; want 12, 0 and at most a layer's 9", got.fused, got.plain, got.most)
				}
				for i, p := range got.Params() {
					for j, q := range want.Params()[i].Data {
						if math.Float32bits(p.Data[j]) != math.Float32bits(q) {
							t.Fatalf("%s, tied %v, %d threads: %s[%d] is %g, want %g", kind, tied, threads, p.Name, j, p.Data[j], q)
						}
					}
				}
				for i, r := range reports[1:] {
					if w := wantReports[i+1]; *r.GradNorm != *w.GradNorm || *r.Loss != *w.Loss {
						t.Errorf("%s, tied %v, %d threads: update %d: norm %v, loss %v, want %v, %v", kind, tied, threads, i+1, *r.GradNorm, *r.Loss, *w.GradNorm, *w.Loss)
					}
				}
			}
		}
	}
}

// A gradient that is no number ends the run at its update, before the parameter
// moves, also where another one has.
func TestFusedDiverged(t *testing.T) {
	needEngine(t)
	m := newBigram(16)
	last := float32(0)
	bad := &spoiled{bigram: m, at: 4}
	_, err := Fit(context.Background(), bad, walk(1, 10, 16), nil, Config{Params: Constant(DefaultOptimizerParams()), Epochs: 1, Batch: 1,
		OnReport: func(Report) { last = m.w.Data[0] }})
	var diverged *DivergedError
	if !errors.As(err, &diverged) || diverged.Step != 4 {
		t.Errorf("%v, want a DivergedError at step 4", err)
	}
	if m.w.Data[0] != last {
		t.Errorf("the parameter moved from %g to %g", last, m.w.Data[0])
	}
}

// spoiled has a gradient of w that is no number in its call of the number at.
type spoiled struct {
	*bigram
	at int
}

func (s *spoiled) BackwardApply(ctx context.Context, ex *data.Example, scale float64, step uint64, apply func(graph.Loss, []*graph.Param) error) (graph.Loss, error) {
	return s.bigram.BackwardApply(ctx, ex, scale, step, func(l graph.Loss, params []*graph.Param) error {
		if s.calls == s.at && params[0] == s.w {
			s.w.Grad[0] = float32(math.NaN())
		}
		return apply(l, params)
	})
}
