package lora

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gollama/internal/engine/ggml"
	"gollama/internal/gguf"
)

// Scaled is an adapter with the user's factor on everything it changes.
type Scaled struct {
	*Adapter
	Scale float32
}

// Options say how a model is merged. The zero value keeps all types.
type Options struct {
	OutType    OutType    // zero: Keep
	Threads    int        // that convert and merge; 0 means those that fit the machine
	Float64    bool       // accumulate in float64; the result is rounded once to float32
	Importance Importance // weighs the columns where a tensor is quantized; may be nil
	Force      bool       // merge an aLoRA, which then acts always
	Measure    bool       // [Report] is about all rows, not a sample
	Keys       gguf.KVs   // provenance, added to the model's keys
}

// Plan is a merge that was checked: what Run reads, computes and writes.
type Plan struct {
	Keys     gguf.KVs          // of the output
	Tensors  []gguf.TensorInfo // of the output, in order
	Warnings []string          // what the user should know before it is done
	base     *gguf.File
	targets  []*target // one for each of Tensors
	opt      Options
}

// target is one tensor of the output.
type target struct {
	info   gguf.TensorInfo // as written
	src    int             // the tensor of the base that it is made of
	from   gguf.Type
	parts  []part
	weight []float32 // importance; nil: none
	stats  stats
}

// part is what one adapter has for a target.
type part struct {
	tensor *Tensor
	user   float64 // the user's factor
	scale  float64 // of B * A, the user's factor included
}

// merged reports whether adapters change the tensor.
func (t *target) merged() bool { return len(t.parts) > 0 }

// copied reports whether the tensor goes into the output byte for byte.
func (t *target) copied() bool { return !t.merged() && t.info.Type == t.from }

// NewPlan checks that the adapters fit base and that the result can be written, without reading tensor data. Errors
// about an adapter name its file and wrap [ErrAdapter].
func NewPlan(base *gguf.File, adapters []Scaled, opt Options) (*Plan, error) {
	if opt.OutType.Name == "" {
		opt.OutType = Keep
	}
	if opt.Threads < 1 {
		opt.Threads = ggml.DefaultThreads()
	}
	p := &Plan{base: base, opt: opt}
	if err := p.checkBase(); err != nil {
		return nil, err
	}
	if len(adapters) == 0 {
		return nil, errors.New("no adapter given")
	}
	for _, a := range adapters {
		if err := p.checkAdapter(a); err != nil {
			return nil, err
		}
	}
	for i, info := range base.Tensors {
		p.targets = append(p.targets, &target{info: info, src: i, from: info.Type})
	}
	if err := p.untie(adapters); err != nil {
		return nil, err
	}
	for _, a := range adapters {
		if err := p.assign(a); err != nil {
			return nil, fmt.Errorf("%s: %w", a.Path, err)
		}
	}
	if err := p.chooseTypes(); err != nil {
		return nil, err
	}
	p.setKeys()
	return p, nil
}

func (p *Plan) path() string { return strings.Join(p.base.Paths[:min(1, len(p.base.Paths))], "") }

func (p *Plan) checkBase() error {
	if _, err := p.base.Architecture(); err != nil {
		return fmt.Errorf("%s: %w", p.path(), err)
	}
	if p.base.ByteOrder.String() != "LittleEndian" {
		return fmt.Errorf("%s: it is big endian, which is not supported here", p.path())
	}
	return nil
}

func (p *Plan) checkAdapter(a Scaled) error {
	if arch, _ := p.base.Str(keyArch); a.Arch != arch {
		return adapterErrorf("%s: it is for the architecture %q, the model's is %q", a.Path, a.Arch, arch)
	}
	if len(a.InvocationTokens) > 0 {
		if !p.opt.Force {
			return adapterErrorf("%s: it is an aLoRA, which acts only after its invocation tokens; merged, it would act always", a.Path)
		}
		p.Warnings = append(p.Warnings, fmt.Sprintf("%s is an aLoRA: merged, it acts always", a.Path))
	}
	return nil
}

const (
	embdName   = "token_embd.weight"
	outputName = "output.weight"
)

// alwaysTied are architectures that have an output but no tensor of its own for it: a file with one does not load.
// Source: src/models/*.cpp at v0.5.0, those without LLM_TENSOR_OUTPUT.
var alwaysTied = []string{"bitnet", "cohere2", "command-r", "gemma", "gemma2", "gemma4-assistant", "openelm"}

// encoder reports whether models of the architecture have no output over the vocabulary.
func encoder(arch string) bool { return strings.Contains(arch, "bert") || arch == "t5encoder" }

// untie gives the output a tensor of its own where the model uses the embedding for it and an adapter changes one of
// the two.
func (p *Plan) untie(adapters []Scaled) error {
	arch, _ := p.base.Str(keyArch)
	src, ok := p.base.Tensor(embdName)
	if _, has := p.base.Tensor(outputName); has || !ok || encoder(arch) {
		return nil
	}
	for _, a := range adapters {
		for i := range a.Tensors {
			name := a.Tensors[i].Base
			if name != embdName && name != outputName || name == embdName && a.Tied && a.Tensors[i].A == nil {
				continue
			}
			if slices.Contains(alwaysTied, arch) {
				return adapterErrorf("%s: tensor %q cannot be changed alone: models of the architecture %s use the embedding as their output", a.Path, name, arch)
			}
			info := p.base.Tensors[src]
			info.Name = outputName
			p.targets = append(p.targets, &target{info: info, src: src, from: info.Type})
			p.Warnings = append(p.Warnings, fmt.Sprintf("the adapter changes %s, which the model shares with its output: %s becomes a tensor of its own", name, outputName))
			return nil
		}
	}
	return nil
}

// maxNamed is how many tensors an error lists.
const maxNamed = 5

// assign gives the parts of a to their targets.
func (p *Plan) assign(a Scaled) error {
	byName := make(map[string]*target, len(p.targets))
	for _, t := range p.targets {
		byName[t.info.Name] = t
	}
	var missing []string
	for i := range a.Tensors {
		t := &a.Tensors[i]
		to := byName[t.Base]
		if to == nil {
			missing = append(missing, fmt.Sprintf("%q", t.Base))
			continue
		}
		if err := fits(t, to.info); err != nil {
			return err
		}
		to.parts = append(to.parts, part{tensor: t, user: float64(a.Scale), scale: float64(a.Scale) * a.scale(t)})
	}
	if n := len(missing); n > 0 {
		more := ""
		if n > maxNamed {
			missing, more = missing[:maxNamed], fmt.Sprintf(" and %d more", n-maxNamed)
		}
		return adapterErrorf("the model has no tensor %s%s: the adapter is for another model", strings.Join(missing, ", "), more)
	}
	return nil
}

// fits compares the shapes of an adapter's tensor with the model's.
func fits(t *Tensor, info gguf.TensorInfo) error {
	want := [4]uint64{1, 1, 1, 1}
	copy(want[:], info.Shape)
	if t.Whole != nil {
		for i := range want {
			if t.Whole.dim(i) != want[i] {
				return adapterErrorf("tensor %q: shape %v, the model's is %v", t.Base, t.Whole.Shape, info.Shape)
			}
		}
	}
	if t.A == nil {
		return nil
	}
	if s := t.shape(); want != [4]uint64{s[0], s[1], s[2], 1} {
		return adapterErrorf("tensor %q: lora_a of shape %v and lora_b of shape %v make %v, the model's is %v", t.Base, t.A.Shape, t.B.Shape, s, info.Shape)
	}
	return nil
}

// chooseTypes sets the types of the output and checks that each can be made.
func (p *Plan) chooseTypes() error {
	names := make([]string, len(p.targets))
	for i, t := range p.targets {
		names[i] = t.info.Name
	}
	c := newChooser(p.opt.OutType, p.base.KVs, names, p.opt.Importance != nil)
	for _, t := range p.targets {
		t.info.Type = c.of(t.info)
		p.Tensors = append(p.Tensors, t.info)
		if t.copied() {
			continue
		}
		if err := p.setWeight(t); err != nil {
			return err
		}
		if err := canWrite(t.info.Type, t.weight != nil); err != nil {
			return fmt.Errorf("tensor %q: %w", t.info.Name, &typeError{err})
		}
		if !canRead(t.from) {
			return fmt.Errorf("tensor %q is of type %s, which cannot be changed", t.info.Name, t.from)
		}
	}
	return nil
}

// Importance holds, by tensor name, the mean squares of the activations that each column of a tensor meets: ne[0]
// values, for experts ne[0] for each.
type Importance map[string][]float32

// ErrOutType is wrapped by the error that a tensor cannot be written in the type that was asked for or that it has.
var ErrOutType = errors.New("output type")

type typeError struct{ err error }

func (e *typeError) Error() string        { return e.err.Error() }
func (e *typeError) Unwrap() error        { return e.err }
func (e *typeError) Is(target error) bool { return target == ErrOutType }

// setWeight finds the importance of a tensor's columns.
func (p *Plan) setWeight(t *target) error {
	w := p.opt.Importance[t.info.Name]
	if w == nil || t.info.Type.BlockSize() == 1 {
		return nil
	}
	want := t.info.Shape[0]
	if len(t.info.Shape) > 2 {
		want *= t.info.Shape[2]
	}
	if uint64(len(w)) != want {
		if t.info.Name == embdName {
			return nil // its importance would be that of the output
		}
		return fmt.Errorf("tensor %q: the importance matrix has %d values, want %d", t.info.Name, len(w), want)
	}
	t.weight = w
	return nil
}

// Keys of what was done to the model.
const (
	keyFileType     = "general.file_type"
	keyQuantVersion = "general.quantization_version"
	quantVersion    = 2 // GGML_QNT_VERSION
)

// setKeys makes the keys of the output: the base's, the file type where types were changed, and provenance.
func (p *Plan) setKeys() {
	p.Keys = p.base.KVs
	if p.opt.OutType.Name != Keep.Name {
		p.Keys = p.Keys.With(keyFileType, gguf.ValueOf(p.opt.OutType.fileType))
		if p.opt.OutType.typ.BlockSize() > 1 {
			p.Keys = p.Keys.With(keyQuantVersion, gguf.ValueOf(uint32(quantVersion)))
		}
	}
	for _, kv := range p.opt.Keys {
		p.Keys = p.Keys.With(kv.Key, kv.Value)
	}
}

// Size returns the bytes of tensor data that Run writes.
func (p *Plan) Size() uint64 {
	n := uint64(0)
	for _, t := range p.Tensors {
		n += t.Size()
	}
	return n
}

// Merged returns the number of tensors that adapters change.
func (p *Plan) Merged() int {
	n := 0
	for _, t := range p.targets {
		if t.merged() {
			n++
		}
	}
	return n
}
