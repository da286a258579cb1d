package opt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gollama/internal/opt/data"
	"gollama/internal/opt/graph"
)

// metricsWithoutTimes returns the lines of metrics.jsonl without timing, which
// is the last field of each.
func metricsWithoutTimes(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, metricsName))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(b)) {
		head, _, ok := strings.Cut(line, `,"timing":{`)
		if !ok {
			t.Fatalf("%s: a line without timing: %q", dir, line)
		}
		out.WriteString(head + "\n")
	}
	return out.String()
}

// The walk's own entropy: a step by one has probability 0.8 + 0.2/16, the
// others 0.2/16 each.
var walkEntropy = -(0.8125*math.Log(0.8125) + 15*0.0125*math.Log(0.0125))

func TestFitLearns(t *testing.T) {
	needEngine(t)
	for _, kind := range []Kind{AdamW, SGD, Muon} {
		t.Run(kind.String(), func(t *testing.T) {
			cfg := testConfig()
			cfg.Kind = kind
			p := DefaultOptimizerParams()
			switch kind {
			case SGD:
				p.LR, p.Momentum = 2, 0.9
				cfg.Params = Constant(p)
			case Muon:
				p.LR = 0.3
				cfg.Params = Constant(p)
			}
			var reports []Report
			cfg.OnReport = func(r Report) { reports = append(reports, r) }
			s := mustFit(t, newBigram(16), cfg)
			if s.Steps != 75 || len(reports) != 76 {
				t.Errorf("%d updates and %d reports, want 75 and one more", s.Steps, len(reports))
			}
			first, last := *reports[0].ValLoss, *reports[75].ValLoss
			if first < 2.5 || last > walkEntropy+0.6 || last < walkEntropy-0.2 {
				t.Errorf("validation loss from %.3f to %.3f, want from ln 16 to near %.3f", first, last, walkEntropy)
			}
			if got, _ := s.Val.Loss(); got != last || s.Best.Loss > last {
				t.Errorf("summary: loss %v, best %+v, want %v", got, s.Best, last)
			}
			if a, unc := s.Val.Accuracy(); a < 0.7 || a > 0.95 || unc < 0.01 || unc > 0.05 {
				t.Errorf("accuracy %.3f ± %.3f, want about 0.81 ± 0.03", a, unc)
			}
			for _, r := range reports[1:] {
				if (r.ValLoss != nil) != (r.Step%10 == 0 || r.Step == 75) {
					t.Errorf("step %d: evaluated %v", r.Step, r.ValLoss != nil)
				}
				if math.Abs(r.Epoch-float64(r.Step)/25) > 1e-12 {
					t.Errorf("step %d: epoch %v", r.Step, r.Epoch)
				}
			}
		})
	}
}

// constant has a gradient of scale times the weight of the example.
type constant struct {
	p []*graph.Param
	g float32
}

func (c *constant) Params() []*graph.Param { return c.p }
func (c *constant) ZeroGrad()              { clear(c.p[0].Grad) }
func (c *constant) Updated() error         { return nil }
func (c *constant) Loss(context.Context, *data.Example) (graph.Loss, error) {
	return graph.Loss{Sum: 1, Weight: 1, Scored: 1}, nil
}
func (c *constant) BackwardApply(ctx context.Context, ex *data.Example, scale float64, step uint64, apply func(graph.Loss, []*graph.Param) error) (graph.Loss, error) {
	c.ZeroGrad()
	l, err := c.Backward(ctx, ex, scale, step)
	return l, errors.Join(err, apply(l, c.p))
}
func (c *constant) Backward(_ context.Context, ex *data.Example, scale float64, _ uint64) (graph.Loss, error) {
	w := weightOf(ex)
	c.p[0].Grad[0] += c.g * float32(scale*w)
	return graph.Loss{Sum: w, Weight: w, Scored: int64(len(ex.Labels))}, nil
}

// Each update moves by lr*g and no more, whether its batch has one example or
// several: nothing is left of the updates before.
func TestConstantGradient(t *testing.T) {
	needEngine(t)
	for _, batch := range []int{1, 2, 4} {
		m := &constant{p: []*graph.Param{{Name: "x", Shape: []int64{1}, Data: []float32{8}, Grad: make([]float32, 1)}}, g: 0.25}
		var list examples
		for range 6 * batch {
			list = append(list, &data.Example{Tokens: []int32{0, 0}, Labels: []int32{1, 1}})
		}
		step := 0
		_, err := Fit(context.Background(), m, list, nil, Config{Kind: SGD, Params: Constant(OptimizerParams{LR: 0.5, Eps: 1e-8}), Epochs: 1, Batch: batch, Threads: 1,
			OnReport: func(Report) {
				step++
				if got, want := m.p[0].Data[0], 8-0.125*float32(step); got != want {
					t.Errorf("batches of %d: after step %d: %g, want %g", batch, step, got, want)
				}
			}})
		if err != nil || step != 6 {
			t.Errorf("batches of %d: %d steps, %v", batch, step, err)
		}
	}
}

// One row of eight examples, eight rows, and any split of them give the same
// update; float32 sums in another order, so to 1e-6.
func TestMicroBatches(t *testing.T) {
	needEngine(t)
	var want *bigram
	for _, rowTokens := range []int{0, 15, 40, 1000} {
		m := newBigram(16)
		cfg := testConfig()
		cfg.Batch, cfg.RowTokens, cfg.MaxSteps = 8, rowTokens, 5
		mustFit(t, m, cfg)
		if want == nil {
			want = m
			if m.calls != 5*8 || m.steps[8] != 1<<microBits {
				t.Errorf("%d calls, the 9th with step %#x", m.calls, m.steps[8])
			}
			continue
		}
		if m.calls >= want.calls {
			t.Errorf("rows of %d tokens: %d calls", rowTokens, m.calls)
		}
		for i := range m.w.Data {
			if d := math.Abs(float64(m.w.Data[i] - want.w.Data[i])); d > 1e-6 {
				t.Fatalf("rows of %d tokens: value %d differs by %g", rowTokens, i, d)
			}
		}
	}
}

// The loss of a step is that of all its tokens, not the mean of the examples'.
func TestTokenWeights(t *testing.T) {
	needEngine(t)
	train := examples{
		{Tokens: []int32{0}, Labels: []int32{1}, Weights: []float32{0.5}},
		{Tokens: []int32{1, 2, 3, 4}, Labels: []int32{2, data.NoLabel, 4, 5}},
		{Tokens: []int32{5}, Labels: []int32{data.NoLabel}},
	}
	m := newBigram(16)
	sum, weight := 0.0, 0.0
	for _, ex := range train {
		l, _ := m.Loss(context.Background(), ex)
		sum, weight = sum+l.Sum, weight+l.Weight
	}
	if weight != 3.5 {
		t.Fatalf("weight %v, want 3.5", weight)
	}
	var got Report
	_, err := Fit(context.Background(), m, train, nil, Config{Params: Constant(DefaultOptimizerParams()), Epochs: 1, Batch: 3, OnReport: func(r Report) { got = r }})
	if err != nil || math.Abs(*got.Loss-sum/3.5) > 1e-12 || got.Tokens != 4 {
		t.Errorf("loss %v over %d tokens, want %v over 4 (%v)", *got.Loss, got.Tokens, sum/3.5, err)
	}
}

func TestBatchWithoutLabels(t *testing.T) {
	needEngine(t)
	blank := &data.Example{Tokens: []int32{5}, Labels: []int32{data.NoLabel}}
	some := &data.Example{Tokens: []int32{5}, Labels: []int32{6}}
	cfg := Config{Params: Constant(DefaultOptimizerParams()), Epochs: 2, Batch: 1}
	s, err := Fit(context.Background(), newBigram(16), examples{blank, some, blank}, nil, cfg)
	if err != nil || s.Steps != 2 || s.Skipped != 4 {
		t.Errorf("%+v, %v, want 2 updates and 4 batches passed over", s, err)
	}
	if _, err := Fit(context.Background(), newBigram(16), examples{blank}, nil, cfg); err == nil {
		t.Error("data without a label was taken")
	}
}

var errStop = errors.New("stop")

// stopAt cancels a run's context at the Backward of the given number.
func stopAt(m *bigram, call int) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	m.hook = func(n int) error {
		if n == call {
			cancel(errStop)
		}
		return nil
	}
	return ctx
}

// A run that is interrupted and resumed, any number of times, ends with the
// same bits as one that is not.
func TestResume(t *testing.T) {
	needEngine(t)
	t.Parallel() // most of the time is waiting for the disk
	for _, kind := range []Kind{AdamW, SGD, Muon} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			cfg := testConfig()
			cfg.Kind = kind
			p := DefaultOptimizerParams()
			p.Momentum = 0.9
			p.LR = 0.05
			cfg.Params = Scheduled(p, Schedule{Shape: WSD, LR: 0.05, Warmup: 10, DecaySteps: 20, Steps: 75})
			cfg.ReportEvery, cfg.EvalEvery = 3, 25
			whole := t.TempDir()
			cfg.Run = openRun(t, whole, false)
			mustFit(t, newBigram(16), cfg)
			want := results(t, whole, "75")
			for _, calls := range [][]int{{1}, {2}, {16, 60}, {40}, {89, 3, 5, 2, 2}} {
				dir := t.TempDir()
				for i, call := range calls {
					m := newBigram(16)
					cfg.Run = openRun(t, dir, i > 0)
					_, err := Fit(stopAt(m, call), m, walk(1, 100, 16), walk(2, 20, 16), cfg)
					if !errors.Is(err, errStop) {
						t.Fatalf("calls %v: %v, want the cause of the cancel", calls, err)
					}
					if err := cfg.Run.Close(); err != nil {
						t.Fatal(err)
					}
				}
				cfg.Run = openRun(t, dir, true)
				mustFit(t, newBigram(16), cfg)
				for name, got := range results(t, dir, "75") {
					if got != want[name] {
						t.Errorf("interrupted at calls %v: %s differs", calls, name)
					}
				}
			}
		})
	}
}

// Checkpoints made at other moments change nothing.
func TestCheckpointsChangeNothing(t *testing.T) {
	needEngine(t)
	t.Parallel() // most of the time is waiting for the disk
	var want map[string]string
	for _, every := range []int64{0, 3, 7} {
		dir := t.TempDir()
		cfg := testConfig()
		cfg.SaveEvery, cfg.Run, cfg.Threads = every, openRun(t, dir, false), int(every)
		mustFit(t, newBigram(16), cfg)
		got := results(t, dir, "75")
		if want == nil {
			want = got
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("with a checkpoint every %d updates and as many threads the run ends differently", every)
		}
	}
}

func TestKeepAndBest(t *testing.T) {
	needEngine(t)
	t.Parallel() // most of the time is waiting for the disk
	dir := t.TempDir()
	cfg := testConfig()
	cfg.Epochs, cfg.EvalEvery, cfg.KeepBest, cfg.Run = 60, 25, true, openRun(t, dir, false)
	p := DefaultOptimizerParams()
	p.LR = 0.1 // overfits
	cfg.Params = Constant(p)
	m := newBigram(16)
	s := mustFit(t, m, cfg)
	steps, err := cfg.Run.steps()
	if err != nil {
		t.Fatal(err)
	}
	if s.Best.Step == 0 || s.Best.Step >= s.Steps-50 || s.UsedBy != s.Best.Step {
		t.Fatalf("the run does not overfit: %+v, best %+v", s, s.Best)
	}
	if want := []int64{s.Best.Step, s.Steps - 25, s.Steps}; !slices.Equal(steps, want) {
		t.Errorf("checkpoints %v, want %v", steps, want)
	}
	var sum Result
	for _, ex := range walk(2, 20, 16) {
		l, _ := m.Loss(context.Background(), ex)
		sum.Add(l)
	}
	if got, _ := sum.Loss(); math.Abs(got-s.Best.Loss) > 1e-9 {
		t.Errorf("the model's validation loss is %v, want the best, %v", got, s.Best.Loss)
	}

	cfg.Patience, cfg.Run = 2, openRun(t, t.TempDir(), false)
	s = mustFit(t, newBigram(16), cfg)
	if s.Stopped == "" || s.Steps != s.Best.Step+50 {
		t.Errorf("with patience 2: %+v, best %+v", s, s.Best)
	}
}

// A loss that is no number, or explodes, ends the run before the update, and
// the last checkpoint is from before.
func TestDiverged(t *testing.T) {
	needEngine(t)
	t.Parallel() // most of the time is waiting for the disk
	t.Run("explodes", func(t *testing.T) {
		dir := t.TempDir()
		cfg := testConfig()
		p := DefaultOptimizerParams()
		p.LR = 1000
		cfg.Params, cfg.Run, cfg.SaveEvery = Constant(p), openRun(t, dir, false), 1
		_, err := Fit(context.Background(), newBigram(16), walk(1, 100, 16), walk(2, 20, 16), cfg)
		var bad *DivergedError
		if !errors.As(err, &bad) || !strings.Contains(bad.What, "explodes") {
			t.Fatalf("%v, want a DivergedError", err)
		}
		steps, err := cfg.Run.steps()
		if err != nil || len(steps) == 0 || steps[len(steps)-1] > 2 {
			t.Errorf("checkpoints %v, want none from after the loss rose (%v)", steps, err)
		}
	})
	t.Run("at the end", func(t *testing.T) {
		cfg := testConfig()
		p := DefaultOptimizerParams()
		p.LR = 1000
		cfg.Params, cfg.MaxSteps, cfg.EvalEvery = Constant(p), 3, 100
		if _, err := Fit(context.Background(), newBigram(16), walk(1, 100, 16), nil, cfg); err == nil {
			t.Error("a run that ends with a loss of hundreds is called good")
		}
	})
	t.Run("NaN", func(t *testing.T) {
		m := newBigram(16)
		dir := t.TempDir()
		cfg := testConfig()
		cfg.Run, cfg.SaveEvery = openRun(t, dir, false), 1
		cfg.OnReport = func(r Report) {
			if r.Step == 8 {
				m.b.Data[3] = float32(math.NaN())
			}
		}
		_, err := Fit(context.Background(), m, walk(1, 100, 16), nil, cfg)
		var bad *DivergedError
		if !errors.As(err, &bad) || bad.Step != 9 {
			t.Errorf("%v, want a DivergedError at step 9", err)
		}
	})
	t.Run("one hard example is no explosion", func(t *testing.T) {
		g := guard{}
		for i, loss := range []float64{5, 4.8, 4.9, 40, 4.7, 30, 30, 4.6} {
			if err := g.add(int64(i), loss); err != nil {
				t.Errorf("loss %v: %v", loss, err)
			}
		}
		if math.Abs(g.Mean-4.8) > 1e-9 {
			t.Errorf("running mean %v, want that of the usual losses, 4.8", g.Mean)
		}
	})
}

func TestFitRefuses(t *testing.T) {
	needEngine(t)
	good := Config{Params: Constant(DefaultOptimizerParams()), Epochs: 1, Batch: 1}
	for name, change := range map[string]func(*Config){
		"epochs":      func(c *Config) { c.Epochs = 0 },
		"batch":       func(c *Config) { c.Batch = 0 },
		"parameters":  func(c *Config) { c.Params = nil },
		"run folder":  func(c *Config) { c.KeepBest = true },
		"validation":  func(c *Config) { c.Patience = 1 },
		"beta1":       func(c *Config) { c.Params = Constant(OptimizerParams{Beta1: 1, Eps: 1}) },
		"eps":         func(c *Config) { c.Params = Constant(OptimizerParams{}) },
		"turn weight": func(c *Config) { c.Params = Constant(OptimizerParams{Eps: 1, LR: 10, WeightDecay: 0.2}) },
	} {
		cfg := good
		change(&cfg)
		if _, err := Fit(context.Background(), newBigram(16), walk(1, 2, 16), nil, cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Fit(context.Background(), newBigram(16), examples{}, nil, good); err == nil {
		t.Error("no data was taken")
	}
}

func TestResultSurvivesJSON(t *testing.T) {
	var r Result
	for i := range 100 {
		r.Add(graph.Loss{Sum: math.Sqrt(float64(i)) / 3, Weight: 1 + float64(i)/7, Scored: int64(i), Correct: int64(i / 2)})
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Result
	if err := json.Unmarshal(b, &back); err != nil || back != r {
		t.Errorf("%+v, %v, want %+v", back, err, r)
	}
}

// With equal weights the uncertainty is the textbook one.
func TestResult(t *testing.T) {
	var r Result
	x := []float64{1, 2, 4, 5}
	for _, v := range x {
		r.Add(graph.Loss{Sum: 2 * v, Weight: 2, Scored: 2, Correct: 1})
	}
	mean, unc := r.Loss()
	want := math.Sqrt((4 + 1 + 1 + 4) / 3.0 / 4)
	if mean != 3 || math.Abs(unc-want) > 1e-12 {
		t.Errorf("loss %v ± %v, want 3 ± %v", mean, unc, want)
	}
	share, unc := r.Accuracy()
	if share != 0.5 || math.Abs(unc-math.Sqrt(0.25/7)) > 1e-12 {
		t.Errorf("accuracy %v ± %v", share, unc)
	}
	var none Result
	if mean, unc := none.Loss(); !math.IsNaN(mean) || !math.IsNaN(unc) {
		t.Errorf("of nothing: %v ± %v", mean, unc)
	}
}

func TestShuffle(t *testing.T) {
	for _, shard := range []int{0, 1, 3, 10, 200} {
		a, b := Shuffle(100, shard, 1, 0), Shuffle(100, shard, 1, 1)
		if !slices.Equal(a, Shuffle(100, shard, 1, 0)) {
			t.Errorf("shards of %d: not the same twice", shard)
		}
		if shard < 100 && slices.Equal(a, b) {
			t.Errorf("shards of %d: the epochs have one order", shard)
		}
		for i, v := range a {
			if shard > 1 && v%shard != 0 && (i == 0 || a[i-1] != v-1) {
				t.Errorf("shards of %d: %d comes after %d", shard, v, a[max(i-1, 0)])
			}
		}
		slices.Sort(a)
		if !slices.Equal(a, InOrder(100)) {
			t.Errorf("shards of %d: no permutation", shard)
		}
	}
}

func TestMerge(t *testing.T) {
	a := &data.Example{Tokens: []int32{1, 2, 3}, Labels: []int32{2, 3, 4}}
	b := &data.Example{Tokens: []int32{5, 6, 7}, Labels: []int32{6, 7, 8}, Positions: []int32{0, 0, 1}, Segments: []int32{0, 1, 1}, Weights: []float32{1, 0.5, 2}}
	got := Merge([]*data.Example{a, b, a, a}, 9)
	want := []*data.Example{{
		Tokens: []int32{1, 2, 3, 5, 6, 7, 1, 2, 3}, Labels: []int32{2, 3, 4, 6, 7, 8, 2, 3, 4},
		Positions: []int32{0, 1, 2, 0, 0, 1, 0, 1, 2}, Segments: []int32{0, 0, 0, 1, 2, 2, 3, 3, 3},
		Weights: []float32{1, 1, 1, 1, 0.5, 2, 1, 1, 1},
	}, a}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %s", fmt.Sprint(got[0]))
	}
	if got := Merge([]*data.Example{a, b}, 2); len(got) != 2 || got[0] != a || got[1] != b {
		t.Errorf("examples longer than the limit: %v", got)
	}
}
