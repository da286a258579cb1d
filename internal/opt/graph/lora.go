package graph

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"gollama/internal/engine/ggml"
	"gollama/internal/gguf"
)

// adapter adds scale * B (A x) to a matrix's result. A is [rank, in], B is
// [out, rank].
type adapter struct {
	a, b  *Param
	rank  int
	scale float32
	seed  uint64 // of the dropout of its input
}

func (a *adapter) matA() ggml.Mat { return ggml.NewMat(a.a.Data, a.rank, int(a.a.Shape[0])) }
func (a *adapter) matB() ggml.Mat { return ggml.NewMat(a.b.Data, int(a.b.Shape[1]), a.rank) }

func (a *adapter) gradA() ggml.Mat { return ggml.NewMat(a.a.Grad, a.rank, int(a.a.Shape[0])) }
func (a *adapter) gradB() ggml.Mat { return ggml.NewMat(a.b.Grad, int(a.b.Shape[1]), a.rank) }

// mix spreads a seed and a name over 64 bits, so that each tensor has its own.
func mix(seed uint64, name string) uint64 {
	h := fnv.New64a()
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], seed)
	h.Write(b[:]) //nolint:errcheck // never fails
	h.Write([]byte(name))
	return h.Sum64()
}

// addAdapter gives w an adapter: A uniform within 1/sqrt(in), as PEFT's
// Kaiming initialization, B zero; or the values of the file.
func (m *Model) addAdapter(w *matrix, from *adapterFile) error {
	rank := m.cfg.LoRA.Rank
	if from != nil {
		var err error
		if rank, err = from.rank(w); err != nil {
			return err
		}
	}
	ad := &adapter{rank: rank, scale: m.cfg.LoRA.scale(rank), seed: mix(m.cfg.Seed, w.name+".dropout")}
	in, out := w.w.Cols, w.w.Rows
	var err error
	param := func(suffix string, cols, rows int) *Param {
		p := &Param{Name: w.name + suffix, Shape: []int64{int64(cols), int64(rows)}, Matrix: true, Decay: true}
		for _, s := range []*[]float32{&p.Data, &p.Grad} {
			if err == nil {
				*s, err = m.mem.floats(cols * rows)
			}
		}
		return p
	}
	ad.a, ad.b = param(".lora_a", in, rank), param(".lora_b", rank, out)
	if err != nil {
		return err
	}
	if from != nil {
		if err := from.fill(m.pool, ad); err != nil {
			return err
		}
	} else {
		bound := 1 / math.Sqrt(float64(in))
		r := rand.New(rand.NewPCG(mix(m.cfg.Seed, w.name), 0))
		for i := range ad.a.Data {
			ad.a.Data[i] = float32((2*r.Float64() - 1) * bound)
		}
	}
	w.lora = ad
	m.params = append(m.params, ad.a, ad.b)
	return nil
}

// AdapterAlpha returns the value for adapter.lora.alpha in a GGUF file with
// this model's adapter: a program that divides it by the rank, as llama.cpp
// does, gets the scale that was trained with. It is 0 without an adapter.
func (m *Model) AdapterAlpha() float32 {
	l := m.cfg.LoRA
	if l == nil {
		return 0
	}
	if l.RSLoRA {
		return float32(float64(l.Alpha) * math.Sqrt(float64(l.Rank)))
	}
	return l.Alpha
}

// adapterFile is an adapter to go on with.
type adapterFile struct {
	path string
	src  *fileSource
}

// openAdapter reads the description of an adapter for a model of architecture
// arch, and puts its alpha into the model's configuration.
func openAdapter(path, arch string, l *LoRA) (*adapterFile, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	fail := func(format string, args ...any) (*adapterFile, error) {
		_ = f.Close() // only read from
		return nil, fmt.Errorf("%s: %s", path, fmt.Sprintf(format, args...))
	}
	for _, k := range [][2]string{{"general.type", "adapter"}, {"adapter.type", "lora"}, {"general.architecture", arch}} {
		if got, _ := f.KVs.Str(k[0]); got != k[1] {
			return fail("key %q: got %q, want %q", k[0], got, k[1])
		}
	}
	alpha, ok := f.KVs.Float("adapter.lora.alpha")
	if !ok || math.IsNaN(alpha) || math.IsInf(alpha, 0) {
		return fail("key %q: it is missing or not a finite number", "adapter.lora.alpha")
	}
	src, err := newFileSource(f)
	if err != nil {
		return fail("%v", err)
	}
	l.Alpha, l.RSLoRA = float32(alpha), false // the file's alpha is one that is divided by the rank
	return &adapterFile{path: path, src: src}, nil
}

func (f *adapterFile) has(name string) bool { return f.src.has(name + ".lora_a") }

// rank returns the rank of w's pair after checking both shapes.
func (f *adapterFile) rank(w *matrix) (int, error) {
	var shape [2][]uint64
	for i, suffix := range []string{".lora_a", ".lora_b"} {
		t, ok := f.src.file.Tensor(w.name + suffix)
		if !ok {
			return 0, fmt.Errorf("%s: tensor %q: it is missing", f.path, w.name+suffix)
		}
		shape[i] = f.src.file.Tensors[t].Shape
		if len(shape[i]) != 2 {
			return 0, fmt.Errorf("%s: tensor %q: shape %v, want two dimensions", f.path, w.name+suffix, shape[i])
		}
	}
	r := shape[0][1]
	if shape[0][0] != uint64(w.w.Cols) || shape[1][1] != uint64(w.w.Rows) || shape[1][0] != r || r < 1 || r > maxRank {
		return 0, fmt.Errorf("%s: tensors %q and .lora_b: shapes %v and %v, want [%d r] and [r %d]", f.path, w.name+".lora_a", shape[0], shape[1], w.w.Cols, w.w.Rows)
	}
	return int(r), nil
}

func (f *adapterFile) fill(p *ggml.Pool, ad *adapter) error {
	for _, q := range []*Param{ad.a, ad.b} {
		if err := f.src.fill(p, q.Name, int(q.Shape[1]), int(q.Shape[0]), q.Data); err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
	}
	return nil
}

// checkUsed makes sure that every tensor of the file belongs to a target.
func (f *adapterFile) checkUsed(targets []*matrix) error {
	for _, t := range f.src.file.Tensors {
		base := strings.TrimSuffix(strings.TrimSuffix(t.Name, ".lora_a"), ".lora_b")
		if base == t.Name || !slices.ContainsFunc(targets, func(w *matrix) bool { return w.name == base }) {
			return fmt.Errorf("%s: tensor %q belongs to no matrix that can have an adapter", f.path, t.Name)
		}
	}
	if len(targets) == 0 {
		return fmt.Errorf("%s: no tensors", f.path)
	}
	return nil
}
