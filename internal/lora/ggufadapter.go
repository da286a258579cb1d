package lora

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"gollama/internal/engine/ggml"
	"gollama/internal/gguf"
)

// Keys of an adapter in GGUF. Source: src/llama-arch.cpp, LLM_KV_ADAPTER_*.
const (
	keyArch        = "general.architecture"
	keyType        = "general.type"
	keyName        = "general.name"
	keyAdapterType = "adapter.type"
	keyAlpha       = "adapter.lora.alpha"
	keyTask        = "adapter.lora.task_name"
	keyPrefix      = "adapter.lora.prompt_prefix"
	keyInvocation  = "adapter.alora.invocation_tokens"
	keyTied        = "gollama.adapter.tied" // ours: llama.cpp has no whole tensors in adapters
)

const (
	suffixA = ".lora_a"
	suffixB = ".lora_b"
)

// openGGUF reads an adapter from a GGUF file.
func openGGUF(path string) (*Adapter, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	a, err := fromGGUF(f)
	if err != nil {
		_ = f.Close() // only read from
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	a.closer = f
	return a, nil
}

// fromGGUF makes an adapter of f, which must stay open as long as it is used.
func fromGGUF(f *gguf.File) (*Adapter, error) {
	a := &Adapter{}
	for _, want := range []struct{ key, value string }{{keyType, "adapter"}, {keyAdapterType, "lora"}} {
		got, ok := f.Str(want.key)
		if !ok {
			return nil, adapterErrorf("it is not a LoRA adapter: the key %s is missing", want.key)
		}
		if got != want.value {
			return nil, adapterErrorf("it is not a LoRA adapter: %s is %q, want %q", want.key, got, want.value)
		}
	}
	a.Arch, _ = f.Str(keyArch)
	if a.Arch == "" {
		return nil, adapterErrorf("the key %s is missing", keyArch)
	}
	if v, ok := f.Get(keyAlpha); ok {
		alpha, ok := v.Float()
		if !ok {
			return nil, adapterErrorf("%s is of kind %s, want f32", keyAlpha, v.Kind())
		}
		a.Alpha = float32(alpha)
	}
	a.Name, _ = f.Str(keyName)
	a.TaskName, _ = f.Str(keyTask)
	a.PromptPrefix, _ = f.Str(keyPrefix)
	if v, ok := f.Get(keyInvocation); ok {
		if a.InvocationTokens, ok = gguf.As[[]uint32](v); !ok {
			return nil, adapterErrorf("%s is of kind %s, want an array of u32", keyInvocation, v.Kind())
		}
	}
	a.Tied, _ = f.Bool(keyTied)
	a.Keys = f.Without(keyArch, keyType, keyName, keyAdapterType, keyAlpha, keyTask, keyPrefix, keyInvocation, keyTied, gguf.KeyAlignment)
	return a, a.addGGUFTensors(f)
}

// addGGUFTensors sorts the tensors of f into pairs and whole ones.
func (a *Adapter) addGGUFTensors(f *gguf.File) error {
	index := map[string]int{}
	for i, info := range f.Tensors {
		m := &Matrix{Shape: info.Shape, read: func() ([]float32, error) { return readFloats(f, i) }}
		base, part := info.Name, (**Matrix)(nil)
		if s, ok := strings.CutSuffix(base, suffixA); ok {
			base = s
		} else if s, ok := strings.CutSuffix(base, suffixB); ok {
			base = s
		}
		if _, ok := index[base]; !ok {
			index[base] = len(a.Tensors)
			a.Tensors = append(a.Tensors, Tensor{Base: base})
		}
		t := &a.Tensors[index[base]]
		switch info.Name {
		case base + suffixA:
			part = &t.A
		case base + suffixB:
			part = &t.B
		default:
			part = &t.Whole
			m.readRows = func(first, n int) ([]float32, error) { return readSomeFloats(f, i, first, n) }
		}
		if *part != nil {
			return adapterErrorf("tensor %q: it is there twice", info.Name)
		}
		*part = m
	}
	return nil
}

// readFloats returns tensor i of f as float32.
func readFloats(f *gguf.File, i int) ([]float32, error) {
	b, err := f.ReadTensor(i)
	if err != nil {
		return nil, err
	}
	info := f.Tensors[i]
	x := make([]float32, info.Elements())
	if err := toFloats(x, info.Type, b); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", info.Name, err)
	}
	return x, nil
}

// readSomeFloats returns n values of tensor i of f from number first, both multiples of the type's block size.
func readSomeFloats(f *gguf.File, i, first, n int) ([]float32, error) {
	info := f.Tensors[i]
	from, ok1 := info.Type.RowSize(uint64(first))
	size, ok2 := info.Type.RowSize(uint64(n))
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("tensor %q: %d values from number %d are not whole blocks of %s", info.Name, n, first, info.Type)
	}
	b := make([]byte, size)
	if err := readFull(f.TensorReader(i), b, int64(from)); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", info.Name, err)
	}
	x := make([]float32, n)
	return x, toFloats(x, info.Type, b)
}

// toFloats converts the values of type t packed in b to float32; len(x) must be their number.
func toFloats(x []float32, t gguf.Type, b []byte) error {
	switch t {
	case gguf.TypeF32:
		copy(byteView(x), b)
	case gguf.TypeF16:
		ggml.F16ToF32(x, halves(b))
	case gguf.TypeBF16:
		ggml.BF16ToF32(x, halves(b))
	case gguf.TypeF64:
		for i := range x {
			x[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:])))
		}
	default:
		y, err := ggml.Dequantize(ggml.Type(t), b, len(x))
		if err != nil {
			return err
		}
		copy(x, y)
	}
	return nil
}

// WriteGGUF writes a to path as a GGUF file of float32 tensors that llama.cpp reads. The file appears when it is whole;
// until then an old one stays. A scale that a tensor has of its own is multiplied into its B, because the format has
// one alpha for all; Heads and KVHeads are not stored. Errors name what is wrong with a.
func WriteGGUF(path string, a *Adapter) error {
	return a.writeGGUF(path, func(kvs gguf.KVs, infos []gguf.TensorInfo) (*gguf.Writer, error) {
		return gguf.Create(path, kvs, infos)
	})
}

// writeGGUF is WriteGGUF to what create returns; errors name path.
func (a *Adapter) writeGGUF(path string, create func(gguf.KVs, []gguf.TensorInfo) (*gguf.Writer, error)) error {
	if a.Arch == "" {
		return adapterErrorf("%s: the adapter has no architecture", path)
	}
	if err := a.check(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	var infos []gguf.TensorInfo
	var data []func() ([]float32, error)
	add := func(name string, m *Matrix, read func() ([]float32, error)) {
		infos = append(infos, gguf.TensorInfo{Name: name, Type: gguf.TypeF32, Shape: m.Shape})
		data = append(data, read)
	}
	for i := range a.Tensors {
		t := &a.Tensors[i]
		if t.Whole != nil {
			add(t.Base, t.Whole, t.Whole.Floats)
		}
		if t.A != nil {
			add(t.Base+suffixA, t.A, t.A.Floats)
			add(t.Base+suffixB, t.B, func() ([]float32, error) { return scaled(t.B, a.scale(t)/a.sharedScale(t)) })
		}
	}
	w, err := create(a.ggufKeys(), infos)
	if err != nil {
		return err
	}
	defer w.Abort()
	for i, info := range infos {
		x, err := data[i]()
		if err != nil {
			return err
		}
		if err := checkFinite(info.Name, x); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := w.WriteTensor(info.Name, floatReader(x)); err != nil {
			return err
		}
	}
	return w.Close()
}

func (a *Adapter) ggufKeys() gguf.KVs {
	kvs := gguf.KVs{
		{Key: keyArch, Value: gguf.ValueOf(a.Arch)},
		{Key: keyType, Value: gguf.ValueOf("adapter")},
		{Key: keyAdapterType, Value: gguf.ValueOf("lora")},
		{Key: keyAlpha, Value: gguf.ValueOf(a.Alpha)},
	}
	for _, s := range []struct{ key, value string }{{keyName, a.Name}, {keyTask, a.TaskName}, {keyPrefix, a.PromptPrefix}} {
		if s.value != "" {
			kvs = append(kvs, gguf.KV{Key: s.key, Value: gguf.ValueOf(s.value)})
		}
	}
	if len(a.InvocationTokens) > 0 {
		kvs = append(kvs, gguf.KV{Key: keyInvocation, Value: gguf.ValueOf(a.InvocationTokens)})
	}
	if a.Tied {
		kvs = append(kvs, gguf.KV{Key: keyTied, Value: gguf.ValueOf(true)})
	}
	return append(kvs, a.Keys...)
}

// scaled returns m's values times s.
func scaled(m *Matrix, s float64) ([]float32, error) {
	x, err := m.Floats()
	if err != nil || s == 1 {
		return x, err
	}
	x = slices.Clone(x)
	for i, v := range x {
		x[i] = float32(float64(v) * s)
	}
	return x, nil
}

func checkFinite(name string, x []float32) error {
	for i, v := range x {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return adapterErrorf("tensor %q: value %g at position %d, want a finite number", name, v, i)
		}
	}
	return nil
}

func floatReader(x []float32) io.Reader { return bytes.NewReader(byteView(x)) }
