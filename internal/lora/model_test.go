package lora

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gollama/internal/engine/ggml"
	"gollama/internal/gguf"
)

// hasEngine tells a build with cgo from one without.
func hasEngine() bool { return len(ggml.Types()) > 0 }

// weights are the tensors of a model, as float32.
type weights struct {
	infos []gguf.TensorInfo
	data  map[string][]float32
}

// testModel is a random llama that the engine loads. Rows are multiples of 256, so that every type fits.
type testModel struct {
	arch             string
	embd, ff, layers uint64
	heads, kvHeads   uint64
	tied             bool
	typ              gguf.Type // of matrices
	align            uint32    // 0: none given
	experts          uint64
}

func smallModel() testModel {
	return testModel{arch: "llama", embd: 256, ff: 512, layers: 2, heads: 4, kvHeads: 2}
}

const nVocab = 3 + 256 + 26 + 1

func (m testModel) keys() gguf.KVs {
	tokens := []string{"<unk>", "<s>", "</s>"}
	types := []int32{2, 3, 3}
	for i := range 256 {
		tokens, types = append(tokens, fmt.Sprintf("<0x%02X>", i)), append(types, 6)
	}
	for c := 'a'; c <= 'z'; c++ {
		tokens, types = append(tokens, string(c)), append(types, 1)
	}
	tokens, types = append(tokens, "▁"), append(types, 1)
	u := func(k string, v uint64) gguf.KV { return gguf.KV{Key: k, Value: gguf.ValueOf(uint32(v))} }
	kvs := gguf.KVs{
		{Key: "general.architecture", Value: gguf.ValueOf(m.arch)}, {Key: "general.name", Value: gguf.ValueOf("test")},
		u("general.file_type", map[gguf.Type]uint64{gguf.TypeF16: 1, gguf.TypeQ8_0: 7, gguf.TypeQ4_K: 15, gguf.TypeBF16: 32}[m.typ]),
		u(m.arch+".context_length", 512), u(m.arch+".embedding_length", m.embd), u(m.arch+".block_count", m.layers),
		u(m.arch+".feed_forward_length", m.ff), u(m.arch+".attention.head_count", m.heads), u(m.arch+".attention.head_count_kv", m.kvHeads),
		u(m.arch+".rope.dimension_count", m.embd/m.heads),
		{Key: m.arch + ".attention.layer_norm_rms_epsilon", Value: gguf.ValueOf(float32(1e-5))},
		{Key: "tokenizer.ggml.model", Value: gguf.ValueOf("llama")}, {Key: "tokenizer.ggml.tokens", Value: gguf.ValueOf(tokens)},
		{Key: "tokenizer.ggml.scores", Value: gguf.ValueOf(make([]float32, len(tokens)))},
		{Key: "tokenizer.ggml.token_type", Value: gguf.ValueOf(types)},
		u("tokenizer.ggml.bos_token_id", 1), u("tokenizer.ggml.eos_token_id", 2),
	}
	if m.experts > 0 {
		kvs = append(kvs, u(m.arch+".expert_count", m.experts), u(m.arch+".expert_used_count", 2))
	}
	if m.align > 0 {
		kvs = append(kvs, gguf.KV{Key: gguf.KeyAlignment, Value: gguf.ValueOf(m.align)})
	}
	return kvs
}

// linears returns the matrices that adapters usually change, with their shapes.
func (m testModel) linears() []gguf.TensorInfo {
	kv := m.embd / m.heads * m.kvHeads
	var list []gguf.TensorInfo
	for i := range m.layers {
		b := fmt.Sprintf("blk.%d.", i)
		t := func(name string, shape ...uint64) {
			list = append(list, gguf.TensorInfo{Name: b + name, Type: m.typ, Shape: shape})
		}
		t("attn_q.weight", m.embd, m.embd)
		t("attn_k.weight", m.embd, kv)
		t("attn_v.weight", m.embd, kv)
		t("attn_output.weight", m.embd, m.embd)
		if m.experts > 0 {
			t("ffn_gate_exps.weight", m.embd, m.ff, m.experts)
			t("ffn_up_exps.weight", m.embd, m.ff, m.experts)
			t("ffn_down_exps.weight", m.ff, m.embd, m.experts)
			continue
		}
		t("ffn_gate.weight", m.embd, m.ff)
		t("ffn_up.weight", m.embd, m.ff)
		t("ffn_down.weight", m.ff, m.embd)
	}
	return list
}

func (m testModel) weights() weights {
	infos := []gguf.TensorInfo{{Name: embdName, Type: m.typ, Shape: []uint64{m.embd, nVocab}}, {Name: "output_norm.weight", Shape: []uint64{m.embd}}}
	if !m.tied {
		infos = append(infos, gguf.TensorInfo{Name: outputName, Type: m.typ, Shape: []uint64{m.embd, nVocab}})
	}
	infos = append(infos, m.linears()...)
	for i := range m.layers {
		for _, n := range []string{"attn_norm.weight", "ffn_norm.weight"} {
			infos = append(infos, gguf.TensorInfo{Name: fmt.Sprintf("blk.%d.%s", i, n), Shape: []uint64{m.embd}})
		}
		if m.experts > 0 {
			infos = append(infos, gguf.TensorInfo{Name: fmt.Sprintf("blk.%d.ffn_gate_inp.weight", i), Shape: []uint64{m.embd, m.experts}})
		}
	}
	w := weights{infos: infos, data: map[string][]float32{}}
	for i, info := range infos {
		x := random(uint64(i), int(info.Elements()), 0.08)
		if len(info.Shape) == 1 {
			for j := range x {
				x[j]++
			}
		}
		w.data[info.Name] = x
	}
	return w
}

// fromFloats packs x as type t.
func fromFloats(t *testing.T, typ gguf.Type, x []float32, width int) []byte {
	t.Helper()
	half := make([]uint16, len(x))
	switch typ {
	case gguf.TypeF32:
		return byteView(slices.Clone(x))
	case gguf.TypeF16:
		ggml.F32ToF16(half, x)
		return byteView(half)
	case gguf.TypeBF16:
		ggml.F32ToBF16(half, x)
		return byteView(half)
	}
	b, err := ggml.Quantize(ggml.Type(typ), x, width, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// write writes w to path, split if limits say so.
func (w weights) write(t *testing.T, path string, kvs gguf.KVs, limits gguf.SplitLimits) {
	t.Helper()
	out, err := gguf.Create(path, kvs, w.infos)
	if limits != (gguf.SplitLimits{}) {
		out, err = gguf.CreateSplit(strings.TrimSuffix(path, ".gguf"), kvs, w.infos, limits)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer out.Abort()
	for _, info := range w.infos {
		if err := out.WriteTensor(info.Name, bytes.NewReader(fromFloats(t, info.Type, w.data[info.Name], int(info.Shape[0])))); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// writeModel writes a model and returns its path.
func (m testModel) writeModel(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "base.gguf")
	m.weights().write(t, path, m.keys(), gguf.SplitLimits{})
	return path
}

// onLinears returns an adapter for all linears of m.
func (m testModel) onLinears(rank uint64, std float64) *Adapter {
	a := &Adapter{Arch: m.arch, Alpha: float32(rank), Heads: int(m.heads), KVHeads: int(m.kvHeads)}
	for i, info := range m.linears() {
		t := pair(uint64(100+2*i), info.Name, rank, info.Shape[0], info.Shape[1], info.Shape[2:]...)
		t.A.Data, t.B.Data = random(uint64(100+2*i), len(t.A.Data), std), random(uint64(101+2*i), len(t.B.Data), std)
		a.Tensors = append(a.Tensors, t)
	}
	return a
}

func writeAdapter(t *testing.T, a *Adapter) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "adapter.gguf")
	if err := WriteGGUF(path, a); err != nil {
		t.Fatal(err)
	}
	return path
}

// opened is a merge with everything it needs.
type opened struct {
	base     *gguf.File
	adapters []Scaled
	plan     *Plan
}

// open opens base and adapters as the subcommand does.
func open(t *testing.T, base string, opt Options, adapters ...string) (opened, error) {
	t.Helper()
	var o opened
	var err error
	if o.base, err = gguf.OpenModel(base); err != nil {
		return o, err
	}
	t.Cleanup(func() { o.base.Close() })
	for _, path := range adapters {
		a, err := Open(path, BaseOf(o.base))
		if err != nil {
			return o, err
		}
		t.Cleanup(func() { a.Close() })
		o.adapters = append(o.adapters, Scaled{a, 1})
	}
	o.plan, err = NewPlan(o.base, o.adapters, opt)
	return o, err
}

// merge merges into a new file and returns it open.
func merge(t *testing.T, base string, opt Options, adapters ...string) (*gguf.File, opened, error) {
	t.Helper()
	o, err := open(t, base, opt, adapters...)
	if err != nil {
		return nil, o, err
	}
	path := filepath.Join(t.TempDir(), "merged.gguf")
	w, err := gguf.Create(path, o.plan.Keys, o.plan.Tensors)
	if err != nil {
		return nil, o, err
	}
	if err := o.plan.Run(context.Background(), w, nil); err != nil {
		return nil, o, err
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, o, nil
}

// mustMerge is merge for what must work.
func mustMerge(t *testing.T, base string, opt Options, adapters ...string) (*gguf.File, opened) {
	t.Helper()
	f, o, err := merge(t, base, opt, adapters...)
	if err != nil {
		t.Fatal(err)
	}
	return f, o
}

// values reads a tensor as float32.
func values(t *testing.T, f *gguf.File, name string) []float32 {
	t.Helper()
	i, ok := f.Tensor(name)
	if !ok {
		t.Fatalf("no tensor %q", name)
	}
	x, err := readFloats(f, i)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// raw reads a tensor's bytes.
func raw(t *testing.T, f *gguf.File, name string) []byte {
	t.Helper()
	i, ok := f.Tensor(name)
	if !ok {
		t.Fatalf("no tensor %q", name)
	}
	b, err := f.ReadTensor(i)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// reference adds scale * B * A to w in float64: the definition, without any of the code under test.
func reference(w []float32, p *Tensor, scale float64) []float64 {
	in, out, n, rank := int(p.A.dim(0)), int(p.B.dim(1)), int(p.A.dim(2)), int(p.B.dim(0))
	flipped := IsEmbedding(p.Base)
	if flipped {
		in, out = int(p.B.dim(1)), int(p.A.dim(1))
	}
	y := make([]float64, len(w))
	for e := range n {
		for o := range out {
			for i := range in {
				s := 0.0
				for k := range rank {
					if flipped { // A is [rank, n_vocab], B is [rank, n_embd]
						s += float64(p.A.Data[o*rank+k]) * float64(p.B.Data[i*rank+k])
						continue
					}
					s += float64(p.A.Data[(e*rank+k)*in+i]) * float64(p.B.Data[(e*out+o)*rank+k])
				}
				at := (e*out+o)*in + i
				y[at] = float64(w[at]) + scale*s
			}
		}
	}
	return y
}

// far returns the largest difference of got from want, divided by the largest value of want.
func far(got []float32, want []float64) float64 {
	worst, size := 0.0, 0.0
	for i, w := range want {
		worst, size = max(worst, abs(float64(got[i])-w)), max(size, abs(w))
	}
	return worst / size
}

func abs(x float64) float64 { return max(x, -x) }
