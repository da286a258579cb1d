//go:build cgo

package graph

import (
	"context"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gollama/internal/engine/ggml"
	"gollama/internal/opt/data"
)

// example returns n random tokens, each with the next one as its label.
func example(n int, seed uint64) *data.Example {
	r := rand.New(rand.NewPCG(seed, 0))
	ex := &data.Example{}
	for range n {
		ex.Tokens = append(ex.Tokens, r.Int32N(nTestVocab))
		ex.Labels = append(ex.Labels, r.Int32N(nTestVocab))
	}
	return ex
}

// packedExample has two documents, unlabelled and weighted tokens.
func packedExample() *data.Example {
	ex := example(19, 3)
	for i := range ex.Tokens {
		ex.Weights = append(ex.Weights, []float32{1, 0.5, 2, 0}[i%4])
		ex.Segments = append(ex.Segments, int32(i/8))
		ex.Positions = append(ex.Positions, int32(i%8))
	}
	ex.Labels[2], ex.Labels[9] = data.NoLabel, data.NoLabel
	return ex
}

func open(t testing.TB, path string, cfg Config) *Model {
	t.Helper()
	if cfg.Threads == 0 {
		cfg.Threads = 2
	}
	m, err := Open(path, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func backward(t testing.TB, m *Model, ex *data.Example, scale float64, step uint64) Loss {
	t.Helper()
	l, err := m.Backward(context.Background(), ex, scale, step)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// checkGradients compares the gradient of every Param with central differences
// of the float64 reference, along a random direction and along the gradient.
func checkGradients(t *testing.T, m *Model, ex *data.Example, step uint64) {
	t.Helper()
	m.ZeroGrad()
	const scale = 0.25
	loss := backward(t, m, ex, scale, step)
	ref := newReference(m)
	if m.cfg.LoRA != nil {
		ref.step, ref.drop = step, m.cfg.LoRA.Dropout
	}
	if want := ref.loss(ex); math.Abs(loss.Sum-want) > 1e-4*math.Abs(want) {
		t.Errorf("loss %.7f, want %.7f", loss.Sum, want)
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	for _, p := range m.Params() {
		w := ref.w[p.Name]
		var norm float64
		for _, g := range p.Grad {
			norm += float64(g) * float64(g)
		}
		norm = math.Sqrt(norm)
		if norm == 0 {
			t.Errorf("%s: the gradient is zero", p.Name)
			continue
		}
		for _, kind := range []string{"random", "gradient"} {
			dir, analytic := make([]float64, len(w)), 0.0
			for i := range dir {
				switch kind {
				case "random":
					dir[i] = rnd.NormFloat64() / math.Sqrt(float64(len(dir)))
				default:
					dir[i] = float64(p.Grad[i]) / norm
				}
				analytic += dir[i] * float64(p.Grad[i])
			}
			const h = 1e-4
			move := func(s float64) float64 {
				for i := range w {
					w[i] += s * dir[i]
				}
				return ref.loss(ex)
			}
			up := move(h)
			down := move(-2 * h)
			move(h)
			numeric := scale * (up - down) / (2 * h)
			// A random direction sees only a part of the gradient, so its error counts against the whole.
			size := max(math.Abs(numeric), norm/math.Sqrt(float64(len(w))))
			if rel := math.Abs(analytic-numeric) / size; rel > 1e-3 {
				t.Errorf("%s, %s direction: gradient %.6g, differences %.6g, relative error %.1e", p.Name, kind, analytic, numeric, rel)
			}
		}
	}
}

func TestGradients(t *testing.T) {
	for name, s := range testModels() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := open(t, s.write(t), Config{})
			if got, want := len(m.Params()), len(s.tensors()); !s.factors && got != want {
				t.Errorf("%d trained tensors, want all %d", got, want)
			}
			checkGradients(t, m, example(13, 2), 0)
			if name == "llama" || strings.HasPrefix(name, "gemma") || name == "olmo2-swa" {
				checkGradients(t, m, packedExample(), 0)
			}
		})
	}
}

// quantized bases: each matrix in a type, frozen under an adapter or trained in part.
func TestGradientsLoRA(t *testing.T) {
	for _, typ := range []string{"f32", "f16", "bf16", "q8_0", "q4_0", "q4_K", "q6_K", "q2_K", "iq4_nl"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			gt, err := ggml.ParseType(typ)
			if err != nil {
				t.Fatal(err)
			}
			s := sizes{arch: "llama", embd: 64, layers: 2, heads: 4, kvHeads: 2, dim: 16, ff: 96, typ: gt}
			if strings.HasSuffix(typ, "_K") {
				s.embd, s.ff, s.heads, s.dim, s.layers = 256, 256, 4, 64, 1
			}
			m := open(t, s.write(t), Config{LoRA: &LoRA{Rank: 4, Alpha: 8, Targets: []string{"*"}}})
			fillB(m)
			checkGradients(t, m, example(9, 2), 0)
		})
	}
}

// fillB gives B values, because with zeros A has no gradient.
func fillB(m *Model) {
	r := rand.New(rand.NewPCG(5, 5))
	for _, p := range m.Params() {
		if strings.HasSuffix(p.Name, ".lora_b") {
			for i := range p.Data {
				p.Data[i] = 0.2 * float32(r.NormFloat64())
			}
		}
	}
}

func TestGradientsAdapterKinds(t *testing.T) {
	for name, l := range map[string]LoRA{
		"dropout":  {Rank: 3, Alpha: 4, Dropout: 0.3, Targets: []string{"*", "output"}},
		"rslora":   {Rank: 4, Alpha: 4, RSLoRA: true},
		"one":      {Rank: 2, Targets: []string{"attn_v"}, First: 1, Last: 1},
		"ffn last": {Rank: 2, Alpha: 1, Targets: []string{"ffn_down"}, First: 2},
		"head":     {Rank: 17, Alpha: 1, Targets: []string{"output"}},
	} {
		for _, arch := range []string{"llama", "phi3", "olmo2", "gemma3"} {
			s, lora := testModels()[arch], l
			if s.tied && name == "head" {
				continue // refused, see TestRefusals
			}
			t.Run(name+" "+arch, func(t *testing.T) {
				t.Parallel()
				if arch == "gemma3" && name == "dropout" {
					lora.Targets = lora.Targets[:1]
				}
				if s.fused && name == "one" {
					lora.Targets = []string{"attn_qkv"}
				}
				m := open(t, s.write(t), Config{LoRA: &lora})
				fillB(m)
				checkGradients(t, m, packedExample(), 5)
			})
		}
	}
}

func TestGradientsPartial(t *testing.T) {
	for name, patterns := range map[string][]string{
		"bias":   {"blk.1.attn_q.bias"},
		"norm":   {"blk.2.ffn_norm"},
		"qk":     {"blk.0.attn_[qk]*"},
		"up":     {"blk.1.ffn_up"},
		"final":  {"output_norm"},
		"output": {"output.weight"},
		"embd":   {"token_embd"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testModels()["llama-biases"]
			s.typ = ggml.TypeF16
			m := open(t, s.write(t), Config{Patterns: patterns})
			if n := len(m.Params()); n == 0 || n > 6 {
				t.Errorf("%d trained tensors", n)
			}
			checkGradients(t, m, packedExample(), 0)
		})
	}
}
