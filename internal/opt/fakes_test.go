package opt

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"gollama/internal/engine/ggml"
	"gollama/internal/opt/data"
	"gollama/internal/opt/graph"
)

// needEngine skips what needs the optimizers' arithmetic.
func needEngine(t testing.TB) {
	t.Helper()
	if err := ggml.SGD(nil, ggml.SGDParams{}, 1); err != nil {
		t.Skipf("built without the engine: %v", err)
	}
}

// bigram is a softmax regression: the logits of the next token are a row of w,
// by the token before, plus b.
type bigram struct {
	n       int // tokens in the vocabulary
	w, b    *graph.Param
	updated int
	calls   int
	hook    func(call int) error // before each Backward
	steps   []uint64
}

func newBigram(n int) *bigram {
	rng := rand.New(rand.NewPCG(1, 2))
	m := &bigram{n: n,
		w: &graph.Param{Name: "w.weight", Shape: []int64{int64(n), int64(n)}, Matrix: true, Decay: true},
		b: &graph.Param{Name: "b.bias", Shape: []int64{int64(n)}},
	}
	for _, p := range m.Params() {
		size := int64(1)
		for _, ne := range p.Shape {
			size *= ne
		}
		p.Data, p.Grad = make([]float32, size), make([]float32, size)
		for i := range p.Data {
			p.Data[i] = float32(0.1 * rng.NormFloat64())
		}
	}
	return m
}

func (m *bigram) Params() []*graph.Param { return []*graph.Param{m.w, m.b} }
func (m *bigram) Updated() error         { m.updated++; return nil }

func (m *bigram) ZeroGrad() {
	clear(m.w.Grad)
	clear(m.b.Grad)
}

func (m *bigram) Loss(ctx context.Context, ex *data.Example) (graph.Loss, error) {
	return m.eval(ctx, ex, 0)
}

func (m *bigram) Backward(ctx context.Context, ex *data.Example, scale float64, step uint64) (graph.Loss, error) {
	m.calls++
	m.steps = append(m.steps, step)
	if m.hook != nil {
		if err := m.hook(m.calls); err != nil {
			return graph.Loss{}, err
		}
	}
	return m.eval(ctx, ex, scale)
}

// BackwardApply hands out the bias first: the order is a model's own.
func (m *bigram) BackwardApply(ctx context.Context, ex *data.Example, scale float64, step uint64, apply func(graph.Loss, []*graph.Param) error) (graph.Loss, error) {
	m.ZeroGrad()
	l, err := m.Backward(ctx, ex, scale, step)
	for _, p := range []*graph.Param{m.b, m.w} {
		if err == nil && l.Scored > 0 {
			err = apply(l, []*graph.Param{p})
			clear(p.Grad)
		}
	}
	return l, err
}

func (m *bigram) eval(ctx context.Context, ex *data.Example, scale float64) (l graph.Loss, err error) {
	if err := ctx.Err(); err != nil {
		return l, err
	}
	p := make([]float64, m.n)
	for i, tok := range ex.Tokens {
		label := ex.Labels[i]
		if label == data.NoLabel {
			continue
		}
		weight := 1.0
		if ex.Weights != nil {
			weight = float64(ex.Weights[i])
		}
		row := m.w.Data[int(tok)*m.n:][:m.n]
		best := 0
		for j := range p {
			p[j] = float64(row[j]) + float64(m.b.Data[j])
			if p[j] > p[best] {
				best = j
			}
		}
		top, sum := p[best], 0.0
		l.Sum += weight * (top - p[label])
		for j := range p {
			p[j] = math.Exp(p[j] - top)
			sum += p[j]
		}
		l.Sum += weight * math.Log(sum)
		l.Weight += weight
		l.Scored++
		if best == int(label) {
			l.Correct++
		}
		for j := range p {
			g := p[j] / sum
			if j == int(label) {
				g--
			}
			m.w.Grad[int(tok)*m.n+j] += float32(scale * weight * g)
			m.b.Grad[j] += float32(scale * weight * g)
		}
	}
	return l, nil
}

// examples is a Dataset in memory.
type examples []*data.Example

func (e examples) Len() int                             { return len(e) }
func (e examples) Example(i int) (*data.Example, error) { return e[i], nil }

// walk makes n examples of a random walk over v tokens in which most steps are
// by one, of 3 to 12 tokens each.
func walk(seed uint64, n, v int) examples {
	rng := rand.New(rand.NewPCG(seed, 0))
	var list examples
	for range n {
		ex := &data.Example{}
		tok := rng.IntN(v)
		for range 3 + rng.IntN(10) {
			next := (tok + 1) % v
			if rng.Float64() < 0.2 {
				next = rng.IntN(v)
			}
			ex.Tokens = append(ex.Tokens, int32(tok))
			label := int32(next)
			if rng.Float64() < 0.1 {
				label = data.NoLabel
			}
			ex.Labels = append(ex.Labels, label)
			tok = next
		}
		list = append(list, ex)
	}
	return list
}

// testConfig trains for 3 epochs of 25 updates on walk(_, 100, _).
func testConfig() Config {
	p := DefaultOptimizerParams()
	p.LR, p.WeightDecay, p.Clip = 0.05, 0.01, 1
	return Config{Params: Scheduled(p, Schedule{Shape: Cosine, LR: p.LR, Warmup: 5, Steps: 75}), Epochs: 3, Batch: 4, RowTokens: 20, Shuffle: true, Seed: 7, EvalEvery: 10, Threads: 1}
}

func mustFit(t *testing.T, m Trainable, cfg Config) Summary {
	t.Helper()
	s, err := Fit(context.Background(), m, walk(1, 100, 16), walk(2, 20, 16), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func openRun(t *testing.T, dir string, resume bool) *Run {
	t.Helper()
	r, err := OpenRun(RunConfig{Dir: dir, Resume: resume, Keep: 2, Settings: map[string]string{"lr": "0.05"}}, func(s string) { t.Log(s) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// results reads what a run left: the files of its newest checkpoint but the
// times, and the metrics without them.
func results(t *testing.T, dir string, step string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range []string{"params.gguf", optimizerName} {
		b, err := os.ReadFile(filepath.Join(dir, checkpointsName, "step-"+step, name))
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(b)
	}
	out[metricsName] = metricsWithoutTimes(t, dir)
	return out
}
