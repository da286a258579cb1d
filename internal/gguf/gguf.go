// Package gguf reads and writes GGUF files, the container of ggml models.
//
// Reading: [Open] takes one file, [OpenModel] a model that may be split in several, [Read] any io.ReaderAt.
// Keys, tensor descriptions and their order are read at once; tensor data is read when asked for. Versions 2 and 3
// and both byte orders are understood. A file that breaks the format gives a [FormatError].
//
// Writing: [Create], [CreateSplit] and [NewWriter] take all keys and all tensor descriptions, write the header and
// then accept the data of each tensor in the declared order. Version 3, little endian, is written. [File.WriteTo]
// writes what was read, byte for byte if it is little endian with its tensors in order and without gaps.
//
// Source: the layout in ggml/include/gguf.h and the limits in ggml/src/gguf.cpp of llama.cpp v0.5.0.
package gguf

import (
	"errors"
	"fmt"
)

// Limits of the format. The first four are upstream's (GGML_MAX_DIMS, GGML_MAX_NAME, GGUF_MAX_STRING_LENGTH,
// GGUF_MAX_ARRAY_ELEMENTS), maxKey is the GGUF specification's; the rest keep the memory for a hostile file bounded
// and are far above what any model holds.
const (
	maxDims     = 4
	maxName     = 63      // bytes of a tensor name
	maxString   = 1 << 30 // bytes
	maxElements = 1 << 30 // elements of an array value
	maxKey      = 65535   // bytes of a key
	maxKVs      = 1 << 16
	maxTensors  = 1 << 18
	maxDepth    = 8 // arrays that an array may lie in
)

const (
	magic            = "GGUF"
	writeVersion     = 3
	defaultAlignment = 32 // bytes; GGUF_DEFAULT_ALIGNMENT

	// minKVSize and minTensorSize are the fewest bytes a key with its value and a tensor description take.
	minKVSize     = 8 + 1 + 4 + 1
	minTensorSize = 8 + 4 + 4 + 8
)

// KeyAlignment is the key of the alignment of the data section: a uint32, a power of two, 32 if absent.
const KeyAlignment = "general.alignment"

// ErrFormat is what every [FormatError] wraps.
var ErrFormat = errors.New("invalid GGUF file")

// FormatError says where and how a file breaks the format.
type FormatError struct {
	Offset int64  // bytes from the start of the file
	Field  string // what is stored there, e.g. `tensor "output.weight" type`
	Msg    string // the value got and the value wanted
}

// Error returns offset, field and message in one line.
func (e *FormatError) Error() string {
	return fmt.Sprintf("offset %d: %s: %s", e.Offset, e.Field, e.Msg)
}

// Unwrap returns [ErrFormat].
func (e *FormatError) Unwrap() error { return ErrFormat }

// pad rounds n up to a multiple of align, a power of two. ok is false if that is beyond 64 bits.
func pad(n, align uint64) (padded uint64, ok bool) {
	padded = (n + align - 1) &^ (align - 1)
	return padded, padded >= n
}
