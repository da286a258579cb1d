package lora

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gollama/internal/pipeline"
)

// The files of a PEFT folder.
const (
	peftConfigFile = "adapter_config.json"
	peftDataFile   = "adapter_model.safetensors"
)

// openPEFT reads the adapter whose tensors are in data, beside its config, for the model described by base.
func openPEFT(data string, base Base) (*Adapter, error) {
	path := filepath.Join(filepath.Dir(data), peftConfigFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c, err := parsePEFTConfig(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f, err := pipeline.OpenRegular(data)
	if err != nil {
		return nil, err
	}
	a, err := peftAdapter(f, c, base)
	if err != nil {
		_ = f.Close() // only read from
		return nil, fmt.Errorf("%s: %w", data, err)
	}
	a.closer = f
	return a, nil
}

func peftAdapter(f *os.File, c *peftConfig, base Base) (*Adapter, error) {
	arch, err := peftArchOf(base.Arch)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	list, err := readSafetensors(f, st.Size())
	if err != nil {
		return nil, err
	}
	r := &peftReader{r: f, config: c, base: base, arch: arch}
	for i := range list {
		if err := r.add(&list[i]); err != nil {
			return nil, err
		}
	}
	a := &Adapter{
		Arch: base.Arch, Alpha: float32(c.Alpha), InvocationTokens: c.InvocationTokens,
		Heads: base.Heads, KVHeads: base.KVHeads,
	}
	a.Tensors, err = r.tensors()
	return a, err
}

// peftReader gathers the tensors of a file by the module they belong to.
type peftReader struct {
	r       io.ReaderAt
	config  *peftConfig
	base    Base
	arch    peftArch
	modules []*peftModule
	byName  map[string]*peftModule
}

// peftModule is what the file has for one weight or bias.
type peftModule struct {
	hf     string // module of the model, without .weight
	tensor string // GGUF name
	expert int    // -1: of none
	a, b   *safeTensor
	whole  *safeTensor
}

// peftName takes the name of a tensor apart: module and part. PEFT has written several forms over time.
var peftName = regexp.MustCompile(`^(?:base_model\.model\.)?(.+?)\.(lora_A|lora_B|lora_embedding_A|lora_embedding_B|(?:base_layer\.|modules_to_save\.)?(?:default\.)?(?:weight|bias))(?:\.default)?(?:\.weight)?$`)

// add sorts a tensor of the file in.
func (r *peftReader) add(t *safeTensor) error {
	m := peftName.FindStringSubmatch(t.name)
	if m == nil {
		return adapterErrorf("tensor %q: its name is not one of a LoRA adapter", t.name)
	}
	hf := strings.Replace(strings.Replace(m[1], "model.language_model.", "model.", 1), "language_model.", "", 1)
	name, expert, ok := r.arch.toGGUF(hf)
	if !ok {
		return adapterErrorf("tensor %q: the module %q is not known for the architecture %s", t.name, hf, r.base.Arch)
	}
	suffix := ".weight"
	if strings.HasSuffix(m[2], "bias") {
		suffix = ".bias"
	}
	key := hf + suffix
	if r.byName == nil {
		r.byName = map[string]*peftModule{}
	}
	mod := r.byName[key]
	if mod == nil {
		mod = &peftModule{hf: hf, tensor: name + suffix, expert: expert}
		r.byName[key] = mod
		r.modules = append(r.modules, mod)
	}
	part := &mod.whole
	switch {
	case strings.HasSuffix(m[2], "_A"):
		part = &mod.a
	case strings.HasSuffix(m[2], "_B"):
		part = &mod.b
	}
	if *part != nil {
		return adapterErrorf("tensor %q: the same as %q", t.name, (*part).name)
	}
	if (part == &mod.a || part == &mod.b) && len(t.shape) != 2 {
		return adapterErrorf("tensor %q: shape %v, want two dimensions", t.name, t.shape)
	}
	*part = t
	return nil
}

// tensors returns the adapter's tensors, those of experts stacked.
func (r *peftReader) tensors() ([]Tensor, error) {
	var list []Tensor
	experts := map[string][]*peftModule{}
	for _, m := range r.modules {
		if m.expert >= 0 {
			if _, ok := experts[m.tensor]; !ok {
				list = append(list, Tensor{Base: m.tensor}) // its place
			}
			experts[m.tensor] = append(experts[m.tensor], m)
			continue
		}
		t, err := r.tensor(m)
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	for i := range list {
		if mods := experts[list[i].Base]; mods != nil {
			t, err := r.stack(mods)
			if err != nil {
				return nil, err
			}
			list[i] = t
		}
	}
	return list, nil
}

// tensor makes the parts of one module.
func (r *peftReader) tensor(m *peftModule) (Tensor, error) {
	t := Tensor{Base: m.tensor}
	if m.whole != nil {
		t.Whole = r.whole(m)
	}
	if m.a == nil || m.b == nil {
		if m.a != nil || m.b != nil {
			return t, adapterErrorf("module %q: lora_A without lora_B, or the other way round", m.hf)
		}
		return t, nil
	}
	rank := int(m.b.shape[1])
	var err error
	if t.Scale, err = r.config.scale(m.hf, rank); err != nil {
		return t, err
	}
	t.A = &Matrix{Shape: reversed(m.a.shape), read: func() ([]float32, error) { return m.a.floats(r.r) }}
	t.B = &Matrix{Shape: reversed(m.b.shape), read: func() ([]float32, error) { return r.rows(m, m.b, rank) }}
	if IsEmbedding(t.Base) {
		// PEFT: A [rank, n_vocab], B [n_embd, rank], outermost first. GGUF has A the other way.
		nVocab := int(m.a.shape[1])
		t.A = &Matrix{Shape: []uint64{uint64(rank), uint64(nVocab)}, read: func() ([]float32, error) {
			x, err := m.a.floats(r.r)
			return transpose(x, rank, nVocab), err
		}}
	}
	return t, nil
}

// whole makes a matrix of a tensor that replaces the model's.
func (r *peftReader) whole(m *peftModule) *Matrix {
	width := 1
	for _, d := range m.whole.shape[min(1, len(m.whole.shape)):] {
		width *= int(d)
	}
	w := &Matrix{Shape: reversed(m.whole.shape), read: func() ([]float32, error) {
		x, err := r.rows(m, m.whole, width)
		if err == nil && r.arch.normPlus && strings.Contains(m.tensor, "norm.weight") {
			for i := range x {
				x[i]++
			}
		}
		return x, err
	}}
	if m.tensor == embdName || m.tensor == outputName { // large, and in the same order in both formats
		w.readRows = func(first, n int) ([]float32, error) {
			some, size := *m.whole, safeDtypes[m.whole.dtype]
			some.start += int64(first) * size
			some.size = int64(n) * size
			return some.floats(r.r)
		}
	}
	return w
}

// rows reads t, whose rows of width values are outputs of the module, in the order of llama.cpp.
func (r *peftReader) rows(m *peftModule, t *safeTensor, width int) ([]float32, error) {
	x, err := t.floats(r.r)
	if heads := headsOf(r.arch, m.tensor, r.base.Heads, r.base.KVHeads); err == nil && heads >= 0 {
		x, err = permuteRows(x, heads, width, false)
	}
	return x, err
}

// headsOf returns the heads by which the rows of a tensor are reordered, -1 if they are not.
func headsOf(arch peftArch, tensor string, heads, kvHeads int) int {
	switch _, name, _ := strings.Cut(strings.TrimPrefix(tensor, "blk."), "."); {
	case !arch.permuted:
	case name == "attn_q.weight" || name == "attn_q.bias":
		return heads
	case name == "attn_k.weight" || name == "attn_k.bias":
		return kvHeads
	}
	return -1
}

// stack makes one tensor of the pairs of a layer's experts. Experts that the file lacks change nothing.
func (r *peftReader) stack(mods []*peftModule) (Tensor, error) {
	parts := make([]Tensor, r.base.Experts)
	var first Tensor
	for _, m := range mods {
		t, err := r.tensor(m)
		switch {
		case err != nil:
			return t, err
		case m.expert >= r.base.Experts:
			return t, adapterErrorf("module %q: the model has %d experts", m.hf, r.base.Experts)
		case t.A == nil || t.Whole != nil:
			return t, adapterErrorf("module %q: want lora_A and lora_B only", m.hf)
		}
		if first.A == nil {
			first = t
		}
		if !slices.Equal(t.A.Shape, first.A.Shape) || !slices.Equal(t.B.Shape, first.B.Shape) || t.Scale != first.Scale {
			return t, adapterErrorf("module %q: shape or scale differ from those of other experts of the layer", m.hf)
		}
		parts[m.expert] = t
	}
	join := func(shape []uint64, pick func(*Tensor) *Matrix) *Matrix {
		n := int(shape[0] * shape[1])
		return &Matrix{Shape: []uint64{shape[0], shape[1], uint64(len(parts))}, read: func() ([]float32, error) {
			x := make([]float32, n*len(parts))
			for i := range parts {
				if m := pick(&parts[i]); m != nil {
					y, err := m.Floats()
					if err != nil {
						return nil, err
					}
					copy(x[i*n:], y)
				}
			}
			return x, nil
		}}
	}
	return Tensor{
		Base: first.Base, Scale: first.Scale,
		A: join(first.A.Shape, func(t *Tensor) *Matrix { return t.A }),
		B: join(first.B.Shape, func(t *Tensor) *Matrix { return t.B }),
	}, nil
}

func reversed(shape []uint64) []uint64 {
	s := slices.Clone(shape)
	slices.Reverse(s)
	return s
}

// transpose returns x, rows of cols values, with rows and columns exchanged; nil for nil.
func transpose(x []float32, rows, cols int) []float32 {
	if x == nil {
		return nil
	}
	out := make([]float32, len(x))
	for i := range rows {
		for j := range cols {
			out[j*rows+i] = x[i*cols+j]
		}
	}
	return out
}
