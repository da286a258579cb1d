package lora

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"gollama/internal/gguf"
)

// ErrAdapter is wrapped by errors about an adapter that is damaged, of another kind, or made for another model.
var ErrAdapter = errors.New("invalid adapter")

// adapterError is an error that wraps ErrAdapter without saying so.
type adapterError struct{ msg string }

func (e *adapterError) Error() string { return e.msg }
func (e *adapterError) Unwrap() error { return ErrAdapter }

func adapterErrorf(format string, args ...any) error {
	return &adapterError{fmt.Sprintf(format, args...)}
}

// Adapter is a set of low-rank updates for the tensors of one model. The zero value is an empty adapter; fill the
// fields to write one.
type Adapter struct {
	Path  string // file or folder it was read from; not written
	Arch  string // architecture of the model, as its general.architecture
	Alpha float32
	// Alpha divided by the rank is the scale of a tensor that has none of its own; 0 means that the scale is 1.

	Name             string   // general.name; may be empty
	TaskName         string   // adapter.lora.task_name; may be empty
	PromptPrefix     string   // adapter.lora.prompt_prefix; may be empty
	InvocationTokens []uint32 // not empty: an aLoRA, which acts only after these tokens
	Tied             bool     // a whole embedding is for the output, too, in a model that shares it
	Keys             gguf.KVs // further keys of a GGUF file

	// Heads and KVHeads are those of the model's attention. Only [WritePEFT] needs them, and only for architectures
	// whose query and key rows llama.cpp keeps in another order than PEFT (llama and its kin).
	Heads, KVHeads int

	Tensors []Tensor // one for each tensor of the model that changes

	closer io.Closer
}

// Tensor is what an adapter has for one tensor W of the model, [in, out] or, for experts, [in, out, n]: the pair A and
// B, a whole tensor, or both. The result is W + Scale * B * A, with Whole in place of W where there is one.
//
// The shapes, ne[0] first as in GGUF, are A [in, rank], B [rank, out], with n last for experts. For the token embedding
// [n_embd, n_vocab] they are flipped: A [rank, n_vocab], B [rank, n_embd]. See [IsEmbedding].
type Tensor struct {
	Base  string  // name of the model's tensor, such as blk.0.attn_q.weight
	A, B  *Matrix // both or none
	Whole *Matrix // nil: the model's own
	Scale float64 // factor of B * A; 0 means Alpha divided by the rank
}

// Matrix is one tensor of an adapter.
type Matrix struct {
	Shape []uint64  // elements per dimension, ne[0] (contiguous) first
	Data  []float32 // the values, row after row; nil if they are still in the file

	read     func() ([]float32, error)
	readRows func(first, n int) ([]float32, error) // n values from number first; nil where they cannot be read alone
}

// Floats returns the values: Data or, where that is nil, what is read from the file anew with each call. The slice may
// be Data itself: it is not to be changed.
func (m *Matrix) Floats() ([]float32, error) {
	if m.Data != nil || m.read == nil {
		return m.Data, nil
	}
	return m.read()
}

// elements returns the number of values, 0 if it does not fit in an int.
func (m *Matrix) elements() int {
	n := gguf.TensorInfo{Shape: m.Shape}.Elements()
	if n > math.MaxInt {
		return 0
	}
	return int(n)
}

// dim returns ne[i], 1 beyond the last dimension.
func (m *Matrix) dim(i int) uint64 {
	if i < len(m.Shape) {
		return m.Shape[i]
	}
	return 1
}

// IsEmbedding reports whether A and B of the tensor called base are flipped. The rule is that of the loader
// (llama_adapter_lora_init_impl); upstream's export has another one for token_embd_norm and per_layer_token_embd.
func IsEmbedding(base string) bool { return strings.HasSuffix(base, "token_embd.weight") }

// Rank returns the rank of the pair, 0 if there is none.
func (t *Tensor) Rank() int {
	if t.B == nil {
		return 0
	}
	return int(t.B.dim(0))
}

// scale returns the factor of B * A.
func (a *Adapter) scale(t *Tensor) float64 {
	if t.Scale != 0 {
		return t.Scale
	}
	return a.sharedScale(t)
}

// sharedScale is what the scale of t is if it has none of its own.
func (a *Adapter) sharedScale(t *Tensor) float64 {
	if a.Alpha == 0 || t.Rank() == 0 {
		return 1
	}
	return float64(a.Alpha) / float64(t.Rank())
}

// Close closes the files behind an adapter that [Open] returned. It may be called twice and on nil.
func (a *Adapter) Close() error {
	if a == nil || a.closer == nil {
		return nil
	}
	c := a.closer
	a.closer = nil
	return c.Close()
}

// Open reads the adapter at path for the model described by base: a GGUF file, or a PEFT folder (or the safetensors file
// in it). Errors name the path; those about the adapter itself wrap [ErrAdapter], those about
// the format of a GGUF file [gguf.ErrFormat].
func Open(path string, base Base) (*Adapter, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	var a *Adapter
	switch {
	case st.IsDir():
		a, err = openPEFT(filepath.Join(path, peftDataFile), base)
	case strings.HasSuffix(path, ".safetensors"):
		a, err = openPEFT(path, base)
	default:
		a, err = openGGUF(path)
	}
	if err != nil {
		return nil, err
	}
	a.Path = path
	if err := a.check(); err != nil {
		_ = a.Close() // only read from
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

// check holds the adapter to what its types promise.
func (a *Adapter) check() error {
	if math.IsNaN(float64(a.Alpha)) || math.IsInf(float64(a.Alpha), 0) {
		return adapterErrorf("alpha is %g, want a finite number", a.Alpha)
	}
	if len(a.Tensors) == 0 {
		return adapterErrorf("it has no tensors")
	}
	seen := make(map[string]bool, len(a.Tensors))
	for i := range a.Tensors {
		t := &a.Tensors[i]
		if seen[t.Base] {
			return adapterErrorf("tensor %q: it is there twice", t.Base)
		}
		seen[t.Base] = true
		if err := t.check(); err != nil {
			return err
		}
	}
	return nil
}

// check compares the parts with each other.
func (t *Tensor) check() error {
	switch {
	case t.A == nil && t.B == nil && t.Whole == nil:
		return adapterErrorf("tensor %q: it has no data", t.Base)
	case t.B == nil && t.A != nil:
		return adapterErrorf("tensor %q: lora_a without lora_b", t.Base)
	case t.A == nil && t.B != nil:
		return adapterErrorf("tensor %q: lora_b without lora_a", t.Base)
	case math.IsNaN(t.Scale) || math.IsInf(t.Scale, 0):
		return adapterErrorf("tensor %q: scale %g, want a finite number", t.Base, t.Scale)
	}
	for _, m := range []*Matrix{t.A, t.B, t.Whole} {
		if m == nil {
			continue
		}
		if n := m.elements(); n == 0 || m.Data != nil && len(m.Data) != n || m.Data == nil && m.read == nil {
			return adapterErrorf("tensor %q: %d values for the shape %v", t.Base, len(m.Data), m.Shape)
		}
	}
	if t.A == nil {
		return nil
	}
	rankOfA := t.A.dim(1)
	if IsEmbedding(t.Base) {
		rankOfA = t.A.dim(0)
	}
	if rankOfA != t.B.dim(0) {
		return adapterErrorf("tensor %q: lora_a of shape %v and lora_b of shape %v differ in rank", t.Base, t.A.Shape, t.B.Shape)
	}
	if t.A.dim(2) != t.B.dim(2) || t.A.dim(3) != 1 || t.B.dim(3) != 1 {
		return adapterErrorf("tensor %q: lora_a of shape %v and lora_b of shape %v do not fit together", t.Base, t.A.Shape, t.B.Shape)
	}
	return nil
}

// shape returns what the model's tensor must look like for the pair to fit: [in, out, n].
func (t *Tensor) shape() [3]uint64 {
	if IsEmbedding(t.Base) {
		return [3]uint64{t.B.dim(1), t.A.dim(1), t.A.dim(2)}
	}
	return [3]uint64{t.A.dim(0), t.B.dim(1), t.A.dim(2)}
}
