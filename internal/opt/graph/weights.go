package graph

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/edsrzf/mmap-go"

	"gollama/internal/engine/ggml"
	"gollama/internal/gguf"
)

// Param is a trained tensor. Data and Grad have the values in the tensor's
// order, row after row; they are not on the Go heap and live until Close.
type Param struct {
	Name   string  // in the GGUF file
	Shape  []int64 // ne order: values of a row first
	Data   []float32
	Grad   []float32
	Matrix bool // two-dimensional, no embedding: may be orthogonalized
	Decay  bool // weight decay applies: no norm, no bias
}

// matrix is a weight of [rows, cols], stored row by row.
type matrix struct {
	name  string
	w     ggml.Weights // in the file's type, or F32 over param.Data
	param *Param       // nil: frozen
	lora  *adapter     // nil: none

	data, grads []float32 // the blocks that param's values lie in, at the same place
	at          int
}

func (m *matrix) grad() []float32 {
	if m.param == nil {
		return nil
	}
	return m.param.Grad
}

// trained reports whether anything of m has a gradient.
func (m *matrix) trained() bool { return m.param != nil || m.lora != nil }

// params lists what is trained of m.
func (m *matrix) params() []*Param {
	switch {
	case m.param != nil:
		return []*Param{m.param}
	case m.lora != nil:
		return []*Param{m.lora.a, m.lora.b}
	}
	return nil
}

// vector is a norm's weight or a bias, always in F32.
type vector struct {
	name  string
	n     int
	data  []float32
	param *Param // nil: frozen
}

func (v *vector) grad() []float32 {
	if v == nil || v.param == nil {
		return nil
	}
	return v.param.Grad
}

func (v *vector) trained() bool { return v != nil && v.param != nil }

func (v *vector) params() []*Param {
	if !v.trained() {
		return nil
	}
	return []*Param{v.param}
}

// source is where the tensors of a model come from.
type source interface {
	// matrix returns the weights as stored, nil where there is no such tensor.
	matrix(name string, rows, cols int) (*ggml.Weights, error)
	// has reports whether a tensor exists.
	has(name string) bool
	// fill writes the values of a tensor of this shape to dst. The pool converts.
	fill(p *ggml.Pool, name string, rows, cols int, dst []float32) error
	// left names tensors that were never asked for.
	left() []string
	close() error
}

// fileSource maps a model file, or the files of a split one, read-only.
type fileSource struct {
	file  *gguf.File
	maps  map[*os.File]mmap.MMap
	asked map[string]bool
}

func newFileSource(f *gguf.File) (*fileSource, error) {
	if f.ByteOrder != binary.LittleEndian {
		return nil, unsupported("a big-endian file")
	}
	return &fileSource{file: f, maps: map[*os.File]mmap.MMap{}, asked: map[string]bool{}}, nil
}

func (s *fileSource) has(name string) bool {
	_, ok := s.file.Tensor(name)
	return ok
}

// data returns the mapped bytes of tensor i.
func (s *fileSource) data(i int) ([]byte, error) {
	r, off, n := s.file.TensorReader(i).Outer()
	f, ok := r.(*os.File)
	if !ok {
		return nil, fmt.Errorf("tensor %q: not in a file", s.file.Tensors[i].Name)
	}
	m, ok := s.maps[f]
	if !ok {
		var err error
		if m, err = mmap.Map(f, mmap.RDONLY, 0); err != nil {
			return nil, fmt.Errorf("map %s: %w", f.Name(), err)
		}
		s.maps[f] = m
	}
	if off+n > int64(len(m)) {
		return nil, fmt.Errorf("tensor %q: ends at byte %d of %d: the file has shrunk", s.file.Tensors[i].Name, off+n, len(m))
	}
	return m[off : off+n : off+n], nil
}

func (s *fileSource) matrix(name string, rows, cols int) (*ggml.Weights, error) {
	i, ok := s.file.Tensor(name)
	if !ok {
		return nil, nil
	}
	s.asked[name] = true
	t := s.file.Tensors[i]
	shape := slices.Clone(t.Shape)
	for len(shape) > 1 && shape[len(shape)-1] == 1 {
		shape = shape[:len(shape)-1]
	}
	if len(shape) == 1 && rows == 1 {
		shape = append(shape, 1)
	}
	if len(shape) != 2 || shape[0] != uint64(cols) || shape[1] != uint64(rows) {
		return nil, fmt.Errorf("tensor %q: shape %v, want [%d %d]", name, t.Shape, cols, rows)
	}
	info, err := ggml.Type(t.Type).Info()
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", name, err)
	}
	if !info.CanDequantize {
		return nil, unsupported("tensor %q of type %s", name, info.Name)
	}
	b, err := s.data(i)
	if err != nil {
		return nil, err
	}
	return &ggml.Weights{Type: ggml.Type(t.Type), Data: b, Rows: rows, Cols: cols}, nil
}

func (s *fileSource) fill(p *ggml.Pool, name string, rows, cols int, dst []float32) error {
	w, err := s.matrix(name, rows, cols)
	if err != nil {
		return err
	}
	if w == nil {
		return fmt.Errorf("tensor %q: it is missing", name)
	}
	if w.Type == ggml.TypeF32 { // read, not mapped: no page of the file stays with the process
		i, _ := s.file.Tensor(name)
		if _, err := io.ReadFull(s.file.TensorReader(i), ggml.Bytes(dst)); err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		return nil
	}
	p.Gather(ggml.NewMat(dst, rows, cols), *w, nil, 1)
	return nil
}

// left leaves out what a model does not compute with.
func (s *fileSource) left() []string {
	var names []string
	for _, t := range s.file.Tensors {
		if !s.asked[t.Name] && !strings.HasPrefix(t.Name, "rope_") {
			names = append(names, t.Name)
		}
	}
	return names
}

func (s *fileSource) close() error {
	var first error
	for _, m := range s.maps {
		if err := m.Unmap(); err != nil && first == nil {
			first = err
		}
	}
	s.maps = map[*os.File]mmap.MMap{}
	if err := s.file.Close(); err != nil && first == nil {
		first = err
	}
	return first
}
