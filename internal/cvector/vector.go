package cvector

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"gollama/internal/gguf"
)

// ErrVector is what errors about a file that is no control vector, or one that does not fit, wrap.
var ErrVector = errors.New("not a control vector that can be used")

// Keys of a control vector file. LayerBase is ours: files in the wild follow two conventions and do not say which.
const (
	keyArch       = "general.architecture"
	keyHint       = "controlvector.model_hint"
	keyLayerCount = "controlvector.layer_count"
	KeyLayerBase  = "gollama.cvector.layer_base"

	archVector = "controlvector"
	maxLayer   = 1 << 16
)

// Layer bases: what direction.k was made of.
const (
	BaseRuntime = "runtime"         // the output of block k, to which the runtime adds it
	BaseLegacy  = "llamacpp-legacy" // that of block k-1, as llama-cvector-generator has it
)

// Vector is a control vector: directions by layer.
type Vector struct {
	Hint   string            // architecture of the model; may be empty
	Count  int               // layer_count of the file; the number of layers that could have a direction
	NEmbd  int               // length of each direction
	Dirs   map[int][]float32 // by layer, from 1
	Keys   gguf.KVs          // all other keys
	Source string            // path that it was read from, for messages
}

// Layers returns the layers that have a direction, in order.
func (v *Vector) Layers() []int { return slices.Sorted(maps.Keys(v.Dirs)) }

// Read reads the file of a control vector: llama.cpp's, repeng's and ours. Errors about what it holds wrap ErrVector or
// gguf.ErrFormat; every value is finite, and every direction of one length.
func Read(path string) (*Vector, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	v, err := fromFile(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	v.Source = path
	return v, nil
}

func fromFile(f *gguf.File) (*Vector, error) {
	if a, ok := f.Str(keyArch); ok && a != archVector {
		return nil, fmt.Errorf("%w: general.architecture is %q, want %q", ErrVector, a, archVector)
	}
	v := &Vector{Dirs: map[int][]float32{}, Keys: f.KVs.Without(keyArch, keyHint, keyLayerCount, gguf.KeyAlignment)}
	v.Hint, _ = f.Str(keyHint)
	if len(f.Tensors) == 0 {
		return nil, fmt.Errorf("%w: it has no directions", ErrVector)
	}
	for i, t := range f.Tensors {
		layer, err := v.layerOf(t)
		if err != nil {
			return nil, err
		}
		data, err := f.ReadTensor(i)
		if err != nil {
			return nil, err
		}
		dir := make([]float32, v.NEmbd)
		for k := range dir {
			dir[k] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*k:]))
			if d := dir[k]; d-d != 0 {
				return nil, fmt.Errorf("%w: tensor %q, element %d, is not finite", ErrVector, t.Name, k)
			}
		}
		v.Dirs[layer] = dir
		v.Count = max(v.Count, layer)
	}
	if n, ok := f.Int(keyLayerCount); ok && n > int64(v.Count) && n <= maxLayer {
		v.Count = int(n)
	}
	return v, nil
}

// layerOf checks a tensor's name, type and shape.
func (v *Vector) layerOf(t gguf.TensorInfo) (int, error) {
	num, ok := strings.CutPrefix(t.Name, "direction.")
	layer, err := strconv.Atoi(num)
	switch {
	case !ok || err != nil || strconv.Itoa(layer) != num:
		return 0, fmt.Errorf("%w: tensor %q is not named direction.N", ErrVector, t.Name)
	case layer < 1 || layer > maxLayer:
		return 0, fmt.Errorf("%w: tensor %q: layers are 1 to %d", ErrVector, t.Name, maxLayer)
	case t.Type != gguf.TypeF32:
		return 0, fmt.Errorf("%w: tensor %q is of type %s, want f32", ErrVector, t.Name, t.Type)
	case t.Elements() == 0 || len(t.Shape) == 0 || t.Shape[0] != t.Elements():
		return 0, fmt.Errorf("%w: tensor %q has shape %v, want one row", ErrVector, t.Name, t.Shape)
	case v.NEmbd != 0 && t.Elements() != uint64(v.NEmbd):
		return 0, fmt.Errorf("%w: tensor %q has %d elements, another has %d", ErrVector, t.Name, t.Elements(), v.NEmbd)
	}
	v.NEmbd = int(t.Elements())
	return layer, nil
}

// header returns keys and tensors in the order in which llama-cvector-generator writes them, and then ours.
func (v *Vector) header() (gguf.KVs, []gguf.TensorInfo) {
	kvs := gguf.KVs{
		{Key: keyArch, Value: gguf.ValueOf(archVector)},
		{Key: keyHint, Value: gguf.ValueOf(v.Hint)},
		{Key: keyLayerCount, Value: gguf.ValueOf(int32(v.Count))},
	}
	var tensors []gguf.TensorInfo
	for _, k := range v.Layers() {
		tensors = append(tensors, gguf.TensorInfo{Name: fmt.Sprintf("direction.%d", k), Type: gguf.TypeF32, Shape: []uint64{uint64(v.NEmbd)}})
	}
	return append(kvs, v.Keys...), tensors
}

// Write makes the file at path, which appears when it is whole.
func (v *Vector) Write(path string) error {
	kvs, tensors := v.header()
	w, err := gguf.Create(path, kvs, tensors)
	if err != nil {
		return err
	}
	return v.data(w)
}

// Encode writes the file's bytes to out.
func (v *Vector) Encode(out io.Writer) error {
	kvs, tensors := v.header()
	w, err := gguf.NewWriter(out, kvs, tensors)
	if err != nil {
		return err
	}
	return v.data(w)
}

func (v *Vector) data(w *gguf.Writer) error {
	defer w.Abort()
	for _, k := range v.Layers() {
		if err := w.Next(fmt.Sprintf("direction.%d", k)); err != nil {
			return err
		}
		b := make([]byte, 0, 4*v.NEmbd)
		for _, x := range v.Dirs[k] {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return w.Close()
}

// Flat returns the directions one after the other for layers 1 to n, zeros where there is none, times strength: what
// engine.Context.SetDirections takes. Layers above n are an error.
func (v *Vector) Flat(n int, strength float64) ([]float32, error) {
	out := make([]float32, n*v.NEmbd)
	for k, dir := range v.Dirs {
		if k > n {
			return nil, fmt.Errorf("%w: direction.%d, the model takes 1 to %d", ErrVector, k, n)
		}
		for i, x := range dir {
			out[(k-1)*v.NEmbd+i] = float32(float64(x) * strength)
		}
	}
	return out, nil
}
