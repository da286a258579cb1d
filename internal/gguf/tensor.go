package gguf

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// TensorInfo describes one tensor.
type TensorInfo struct {
	Name   string   // at most 63 bytes, unique in the file
	Type   Type     // how the elements are stored
	Shape  []uint64 // elements per dimension, at most 4, ne[0] (contiguous in memory) first; kept as it is in the file
	Offset uint64   // bytes from the DataOffset of the file that holds the tensor; set by reading, ignored in writing
}

// Elements returns the number of elements, 1 for an empty shape, 0 if it is beyond 63 bits.
func (t TensorInfo) Elements() uint64 {
	n := uint64(1)
	if slices.Contains(t.Shape, 0) {
		return 0
	}
	for _, ne := range t.Shape {
		var ok bool
		if n, ok = mul(n, ne); !ok || n > math.MaxInt64 {
			return 0
		}
	}
	return n
}

// Size returns the bytes of the data without padding, 0 if the description is not valid. Tensors of a [File] and
// those a [Writer] accepted are valid.
func (t TensorInfo) Size() uint64 {
	if t.check() != nil {
		return 0
	}
	size, _ := t.Type.RowSize(t.Elements())
	return size
}

// infoError is what is wrong with a tensor description, before it is known where it was read.
type infoError struct {
	field string
	dim   int // the dimension spoken of, if it is one
	msg   string
}

// check applies the rules of gguf_init_from_reader in ggml/src/gguf.cpp to everything but the offset.
func (t TensorInfo) check() *infoError {
	if len(t.Name) > maxName {
		return &infoError{field: "name", msg: fmt.Sprintf("got %d bytes, want at most %d", len(t.Name), maxName)}
	}
	if len(t.Shape) > maxDims {
		return &infoError{field: "dimensions", msg: fmt.Sprintf("got %d, want at most %d", len(t.Shape), maxDims)}
	}
	for i, ne := range t.Shape {
		if ne > math.MaxInt64 {
			return &infoError{field: fmt.Sprintf("dimension %d", i), dim: i, msg: fmt.Sprintf("got %d elements, want at most %d", ne, int64(math.MaxInt64))}
		}
	}
	n := t.Elements()
	if (n == 0 && !slices.Contains(t.Shape, 0)) || n == math.MaxInt64 {
		return &infoError{field: "dimensions", msg: fmt.Sprintf("shape %v has too many elements, want less than %d", t.Shape, int64(math.MaxInt64))}
	}
	if !t.Type.Valid() {
		return &infoError{field: "type", msg: fmt.Sprintf("got %d, want a type of ggml (0 to %d without the removed ones)", uint32(t.Type), len(types)-1)}
	}
	row := uint64(1)
	if len(t.Shape) > 0 {
		row = t.Shape[0]
	}
	if row%t.Type.BlockSize() != 0 {
		return &infoError{field: "type", msg: fmt.Sprintf("%s with rows of %d elements, want a multiple of %d", t.Type, row, t.Type.BlockSize())}
	}
	if size, ok := t.Type.RowSize(n); !ok || size > math.MaxInt64 {
		return &infoError{field: "dimensions", msg: fmt.Sprintf("shape %v of %s has more bytes than fit in 63 bits", t.Shape, t.Type)}
	}
	return nil
}

func mul(a, b uint64) (product uint64, ok bool) {
	hi, lo := bits.Mul64(a, b)
	return lo, hi == 0
}
