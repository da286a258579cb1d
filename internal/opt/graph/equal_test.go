//go:build cgo

package graph

import (
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"gollama/internal/engine/ggml"
	"gollama/internal/gguf"
	"gollama/internal/opt/data"
)

func grads(m *Model) []float32 {
	var all []float32
	for _, p := range m.Params() {
		all = append(all, p.Grad...)
	}
	return all
}

// gradsOf returns loss and gradients of examples, added up.
func gradsOf(t *testing.T, m *Model, exs ...*data.Example) (float64, []float32) {
	t.Helper()
	m.ZeroGrad()
	var sum float64
	for _, ex := range exs {
		sum += backward(t, m, ex, 1, 3).Sum
	}
	return sum, grads(m)
}

// relDiff is the size of a-b relative to that of b.
func relDiff(a, b []float32) float64 {
	var num, den float64
	for i := range b {
		d := float64(a[i]) - float64(b[i])
		num += d * d
		den += float64(b[i]) * float64(b[i])
	}
	return math.Sqrt(num / den)
}

// The same bits again, with any number of threads, and whether activations are
// kept or computed again.
func TestBits(t *testing.T) {
	for _, name := range []string{"llama", "llama-biases", "phi3", "gemma3", "olmo2-swa"} {
		for _, lora := range []*LoRA{nil, {Rank: 4, Alpha: 4, Dropout: 0.2}} {
			s := testModels()[name]
			if lora != nil {
				s.typ = ggml.TypeF16
			}
			path := s.write(t)
			exs := []*data.Example{example(70, 1), packedExample(), example(33, 2)}
			var sum float64
			var want []float32
			for i, cfg := range []Config{{Threads: 1}, {Threads: 1}, {Threads: 2}, {Threads: 5}, {Threads: 2, MemoryBudget: 1}, {Threads: 1, MemoryBudget: 200_000}} {
				cfg.LoRA = lora
				m := open(t, path, cfg)
				fillB(m)
				if cfg.MemoryBudget == 1 && m.keep(70) != len(m.layers) {
					t.Errorf("a budget of 1 byte keeps layers %d and up", m.keep(70))
				}
				got, g := gradsOf(t, m, exs...)
				if i == 0 {
					sum, want = got, g
					continue
				}
				if got != sum || !slices.Equal(g, want) {
					t.Errorf("%s, lora %v, %+v: other bits (loss %.17g, want %.17g, gradients differ by %g)", name, lora != nil, cfg, got, sum, relDiff(g, want))
				}
			}
		}
	}
}

func join(exs ...*data.Example) *data.Example {
	out := &data.Example{}
	for s, ex := range exs {
		for i := range ex.Tokens {
			out.Segments, out.Positions = append(out.Segments, int32(s)), append(out.Positions, int32(i))
		}
		out.Tokens, out.Labels = append(out.Tokens, ex.Tokens...), append(out.Labels, ex.Labels...)
	}
	return out
}

func TestPacking(t *testing.T) {
	for _, name := range []string{"llama", "gemma3", "olmo2-swa"} {
		s := testModels()[name]
		m := open(t, s.write(t), Config{})
		a, b, c := example(20, 1), example(50, 2), example(31, 3)
		sum1, g1 := gradsOf(t, m, a, b, c)
		sum2, g2 := gradsOf(t, m, join(a, b, c))
		if math.Abs(sum1-sum2) > 1e-5*sum1 {
			t.Errorf("%s: packed loss %.9g, want %.9g", name, sum2, sum1)
		}
		if d := relDiff(g2, g1); d > 1e-5 {
			t.Errorf("%s: packed gradients differ by %g, want at most 1e-5", name, d)
		}
		// One document does not touch the loss of another in any bit.
		only := join(a, b, c)
		for i := range only.Labels {
			if only.Segments[i] != 1 {
				only.Labels[i] = data.NoLabel
			}
		}
		before, err := m.Loss(context.Background(), only)
		if err != nil {
			t.Fatal(err)
		}
		for i := range only.Tokens {
			if only.Segments[i] != 1 {
				only.Tokens[i] = (only.Tokens[i] + 7) % nTestVocab
			}
		}
		if after, err := m.Loss(context.Background(), only); err != nil || after != before {
			t.Errorf("%s: loss %+v after changes in other documents, want %+v (%v)", name, after, before, err)
		}
	}
}

// Eight rows at once (as segments of one) and one by one give the same sums:
// the update of a batch does not depend on how it is cut.
func TestBatch(t *testing.T) {
	s := testModels()["llama"]
	m := open(t, s.write(t), Config{})
	var exs []*data.Example
	for i := range 8 {
		exs = append(exs, example(5+7*i, uint64(i)))
	}
	sum1, g1 := gradsOf(t, m, exs...)
	sum2, g2 := gradsOf(t, m, join(exs...))
	if d := relDiff(g2, g1); d > 1e-6 || math.Abs(sum1-sum2) > 1e-6*sum1 {
		t.Errorf("batch: loss %.9g, want %.9g, gradients differ by %g", sum2, sum1, d)
	}
}

func TestMaskedLabel(t *testing.T) {
	s := testModels()["llama"]
	m := open(t, s.write(t), Config{})
	ex := example(20, 1)
	ex.Weights = slices.Repeat([]float32{1}, 20)
	ex.Weights[4] = 0
	ex.Labels[7] = data.NoLabel
	sum1, g1 := gradsOf(t, m, ex)
	ex.Labels[4] = (ex.Labels[4] + 1) % nTestVocab
	sum2, g2 := gradsOf(t, m, ex)
	if sum1 != sum2 || !slices.Equal(g1, g2) {
		t.Error("a label with weight 0 has an effect")
	}
	// Without any label there is no loss and no gradient.
	for i := range ex.Labels {
		ex.Labels[i] = data.NoLabel
	}
	m.ZeroGrad()
	if l := backward(t, m, ex, 1, 0); l != (Loss{}) {
		t.Errorf("loss %+v without labels", l)
	}
	for _, g := range grads(m) {
		if g != 0 {
			t.Fatal("a gradient without labels")
		}
	}
}

func TestLossCounts(t *testing.T) {
	s := testModels()["llama"]
	m := open(t, s.write(t), Config{})
	ex := packedExample()
	l, err := m.Loss(context.Background(), ex)
	if err != nil {
		t.Fatal(err)
	}
	logits, err := m.Logits(context.Background(), ex)
	if err != nil {
		t.Fatal(err)
	}
	var want Loss
	for i, label := range ex.Labels {
		if label == data.NoLabel || ex.Weights[i] == 0 {
			continue
		}
		want.Scored++
		want.Weight += float64(ex.Weights[i])
		row := logits[i*nTestVocab : (i+1)*nTestVocab]
		if row[label] == slices.Max(row) {
			want.Correct++
		}
	}
	want.Sum = newReference(m).loss(ex)
	if l.Scored != want.Scored || l.Weight != want.Weight || l.Correct != want.Correct || math.Abs(l.Sum-want.Sum) > 1e-5*want.Sum {
		t.Errorf("Loss = %+v, want %+v", l, want)
	}
	if b := backward(t, m, ex, 0.5, 0); b != l {
		t.Errorf("Backward's loss %+v, want Loss's %+v", b, l)
	}
}

// A new adapter changes nothing, and it is the same for the same seed only.
func TestLoRAStart(t *testing.T) {
	s := testModels()["llama"]
	s.typ = ggml.TypeQ8_0
	s.embd, s.ff, s.dim = 64, 64, 16
	path := s.write(t)
	sum, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ex := example(30, 1)
	ctx := context.Background()
	frozen := open(t, path, Config{Patterns: []string{"output_norm"}})
	want, err := frozen.Loss(ctx, ex)
	if err != nil {
		t.Fatal(err)
	}
	a, b, c := open(t, path, Config{Seed: 1, LoRA: &LoRA{Rank: 4}}), open(t, path, Config{Seed: 1, LoRA: &LoRA{Rank: 4}}), open(t, path, Config{Seed: 2, LoRA: &LoRA{Rank: 4}})
	got, err := a.Loss(ctx, ex)
	if err != nil || math.Abs(got.Sum-want.Sum) > 1e-6*want.Sum {
		t.Errorf("loss with a new adapter %.9g, want %.9g (%v)", got.Sum, want.Sum, err)
	}
	seen := map[float32]string{}
	for i, p := range a.Params() {
		if !slices.Equal(p.Data, b.Params()[i].Data) {
			t.Errorf("%s: not the same for the same seed", p.Name)
		}
		if !strings.HasSuffix(p.Name, ".lora_a") {
			continue
		}
		if slices.Equal(p.Data, c.Params()[i].Data) {
			t.Errorf("%s: the same for another seed", p.Name)
		}
		if other := seen[p.Data[0]]; other != "" {
			t.Errorf("%s starts as %s does", p.Name, other)
		}
		seen[p.Data[0]] = p.Name
		bound := 1 / math.Sqrt(float64(p.Shape[0]))
		for _, v := range p.Data {
			if math.Abs(float64(v)) > bound {
				t.Fatalf("%s: %g, want at most %g", p.Name, v, bound)
			}
		}
	}
	gradsOf(t, a, ex)
	if after, err := os.ReadFile(path); err != nil || !slices.Equal(after, sum) {
		t.Errorf("the base file has changed (%v)", err)
	}
}

// writeAdapter writes a model's adapter as finetune does.
func writeAdapter(t *testing.T, m *Model) string {
	t.Helper()
	path := t.TempDir() + "/adapter.gguf"
	var list []gguf.TensorInfo
	for _, p := range m.Params() {
		list = append(list, gguf.TensorInfo{Name: p.Name, Type: gguf.TypeF32, Shape: []uint64{uint64(p.Shape[0]), uint64(p.Shape[1])}})
	}
	w, err := gguf.Create(path, gguf.KVs{
		{Key: "general.type", Value: gguf.ValueOf("adapter")}, {Key: "general.architecture", Value: gguf.ValueOf(m.Hparams.Arch)},
		{Key: "adapter.type", Value: gguf.ValueOf("lora")}, {Key: "adapter.lora.alpha", Value: gguf.ValueOf(m.AdapterAlpha())},
	}, list)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range m.Params() {
		if err := w.WriteTensor(p.Name, strings.NewReader(string(ggml.Bytes(p.Data)))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// An adapter that is written, read again or run by llama.cpp computes the same.
func TestLoRAFile(t *testing.T) {
	for _, l := range []LoRA{{Rank: 4, Alpha: 8}, {Rank: 4, Alpha: 8, RSLoRA: true}, {Rank: 3, Targets: []string{"attn_*", "output"}, First: 1}} {
		s := testModels()["llama"]
		path := s.write(t)
		m := open(t, path, Config{LoRA: &l})
		fillB(m)
		ex := example(30, 1)
		file := writeAdapter(t, m)
		again := open(t, path, Config{LoRA: &LoRA{Resume: file}})
		sum1, g1 := gradsOf(t, m, ex)
		sum2, g2 := gradsOf(t, again, ex)
		if math.Abs(sum1-sum2) > 1e-6*sum1 || relDiff(g2, g1) > 1e-5 {
			t.Errorf("%+v: resumed loss %.9g, want %.9g, gradients differ by %g", l, sum2, sum1, relDiff(g2, g1))
		}
		got, err := m.Logits(context.Background(), ex)
		if err != nil {
			t.Fatal(err)
		}
		if d := maxDiff(got, engineLogits(t, path, file, ex.Tokens)); d > 1e-3 {
			t.Errorf("%+v: logits differ from llama.cpp's with the adapter by %g", l, d)
		}
	}
}

func TestRefusals(t *testing.T) {
	ex := func(change func(e *data.Example)) *data.Example {
		e := packedExample()
		change(e)
		return e
	}
	llama, tied := testModels()["llama"], testModels()["llama-tied"]
	for _, tt := range []struct {
		name, want  string
		change      func(s *sizes)
		cfg         Config
		unsupported bool
	}{
		{"architecture", `architecture "gpt2"`, func(s *sizes) { s.extra = gguf.KVs{}; s.arch = "gpt2" }, Config{}, true},
		{"experts", "mixture of 8 experts", func(s *sizes) { s.extra = gguf.KVs{kv("expert_count", 8)} }, Config{}, true},
		{"yarn", `rope scaling "yarn"`, func(s *sizes) { s.extra = gguf.KVs{kv("rope.scaling.type", "yarn")} }, Config{}, true},
		{"value length", "values of 10", func(s *sizes) { s.extra = gguf.KVs{kv("attention.value_length", 10)} }, Config{}, true},
		{"heads", "want a multiple", func(s *sizes) { s.kvHeads = 3 }, Config{}, false},
		{"rank", "rank 0", nil, Config{LoRA: &LoRA{}}, false},
		{"dropout", "dropout 1", nil, Config{LoRA: &LoRA{Rank: 1, Dropout: 1}}, false},
		{"target", `target "nope" matches no matrix`, nil, Config{LoRA: &LoRA{Rank: 1, Targets: []string{"nope"}}}, false},
		{"pattern", "nothing to train", nil, Config{Patterns: []string{"nope"}}, false},
		{"bad pattern", "syntax error", nil, Config{Patterns: []string{"["}}, false},
		{"layers", "layers 2 to 7", nil, Config{LoRA: &LoRA{Rank: 1, First: 2, Last: 7}}, false},
		{"embedding adapter", "adapter of the embedding", nil, Config{LoRA: &LoRA{Rank: 1, Targets: []string{"token_embd"}}}, true},
		{"tied output adapter", "cannot run such an adapter", func(s *sizes) { *s = tied }, Config{LoRA: &LoRA{Rank: 1, Targets: []string{"output"}}}, true},
		{"budget", "memory budget", nil, Config{MemoryBudget: -1}, false},
		{"resume", "no such file", nil, Config{LoRA: &LoRA{Resume: "/nowhere.gguf"}}, false},
	} {
		s := llama
		if tt.change != nil {
			tt.change(&s)
		}
		a := s.arch
		if arches[a] == nil { // its tensors do not matter
			s.arch = "llama"
		}
		path := writeAs(t, s, a)
		m, err := Open(path, tt.cfg)
		if err == nil {
			m.Close() //nolint:errcheck // a test
			t.Errorf("%s: Open succeeds", tt.name)
			continue
		}
		if !strings.Contains(err.Error(), tt.want) || errors.Is(err, ErrUnsupported) != tt.unsupported {
			t.Errorf("%s: error %q, want one with %q, unsupported %v", tt.name, err, tt.want, tt.unsupported)
		}
	}
	m := open(t, llama.write(t), Config{})
	for name, e := range map[string]*data.Example{
		"0 tokens":     {},
		"labels":       ex(func(e *data.Example) { e.Labels = e.Labels[1:] }),
		"weights":      ex(func(e *data.Example) { e.Weights = e.Weights[1:] }),
		"positions":    ex(func(e *data.Example) { e.Positions = e.Positions[1:] }),
		"segment":      ex(func(e *data.Example) { e.Segments = e.Segments[1:] }),
		"token 260":    ex(func(e *data.Example) { e.Tokens[3] = nTestVocab }),
		"label -2":     ex(func(e *data.Example) { e.Labels[3] = -2 }),
		"weight NaN":   ex(func(e *data.Example) { e.Weights[3] = float32(math.NaN()) }),
		"segment 0 go": ex(func(e *data.Example) { e.Segments[18] = 0 }),
		"position 2":   ex(func(e *data.Example) { e.Positions[4] = 2 }),
	} {
		if _, err := m.Backward(context.Background(), e, 1, 0); err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(name, " go")) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := m.Loss(canceled, packedExample()); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// writeAs writes a model that says it is of another architecture.
func writeAs(t *testing.T, s sizes, arch string) string {
	t.Helper()
	path := s.write(t)
	if arch == s.arch {
		return path
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // a test
	out := path + ".other"
	w, err := gguf.Create(out, f.KVs.With("general.architecture", gguf.ValueOf(arch)), f.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	for i, ti := range f.Tensors {
		if err := w.WriteTensor(ti.Name, f.TensorReader(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestUnknownTensor(t *testing.T) {
	s := testModels()["qwen3"]
	s.arch = "qwen2" // which has no norms of queries and keys
	path := testModels()["qwen3"]
	f := path.write(t)
	g, err := gguf.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close() //nolint:errcheck // a test
	out := f + ".qwen2"
	w, err := gguf.Create(out, s.keys(), g.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	for i, ti := range g.Tensors {
		if err := w.WriteTensor(ti.Name, g.TensorReader(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(out, Config{}); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "attn_") {
		t.Errorf("Open = %v, want a refusal that names the tensor", err)
	}
}

// Plain AdamW makes the model know one window by heart: the gradients lead down.
func TestOverfit(t *testing.T) {
	s := testModels()["llama"]
	s.layers = 2
	m := open(t, s.write(t), Config{})
	ex := example(32, 1)
	type moments struct{ m, v []float64 }
	state := map[*Param]moments{}
	for _, p := range m.Params() {
		state[p] = moments{make([]float64, len(p.Data)), make([]float64, len(p.Data))}
	}
	for step := 1; ; step++ {
		m.ZeroGrad()
		l := backward(t, m, ex, 1.0/32, uint64(step))
		if l.Sum/32 < 0.05 {
			t.Logf("loss %.4f after %d steps", l.Sum/32, step-1)
			return
		}
		if step > 30 {
			t.Fatalf("loss %.4f after 30 steps, want below 0.05", l.Sum/32)
		}
		for _, p := range m.Params() {
			s := state[p]
			for i, g := range p.Grad {
				s.m[i] = 0.9*s.m[i] + 0.1*float64(g)
				s.v[i] = 0.999*s.v[i] + 0.001*float64(g)*float64(g)
				mh, vh := s.m[i]/(1-math.Pow(0.9, float64(step))), s.v[i]/(1-math.Pow(0.999, float64(step)))
				p.Data[i] -= float32(0.02 * mh / (math.Sqrt(vh) + 1e-8))
			}
		}
	}
}
