package ggml

import "errors"

// ErrNoCgo is returned by everything that needs the C libraries in a program
// built with CGO_ENABLED=0.
var ErrNoCgo = errors.New("built without cgo: the engine is not available")

// ErrClosed is returned by a method of a value whose Close has been called.
var ErrClosed = errors.New("ggml: used after Close")

// Device describes one compute device that a linked backend offers.
type Device struct {
	Name        string // name for --device, for example CPU, CUDA0, RPC0
	Description string // the maker's name of the device, or the RPC endpoint
	Type        string // cpu, gpu, igpu, accel or meta
	Backend     string // the backend that drives it: CPU, CUDA, MTL, RPC
	MemFree     uint64 // bytes; 0 when the backend does not say
	MemTotal    uint64 // bytes; 0 when the backend does not say
}

// Build says which ggml is linked in.
type Build struct {
	Pin    string // release of llama.cpp, for example 0.5.0; see tools/engine/pin
	Commit string // commit of llama.cpp
	GGML   string // ggml's own version, as the library reports it
	// Flags is the rest of tools/engine's build-info, "key: value" per line
	// (compiler, CPU target, CMake flags, patches). Empty where the assembler
	// cannot embed the file.
	Flags string
}

// Release and commit that tools/engine/pin names; a test compares them.
const (
	pinVersion = "0.5.0"
	pinCommit  = "de3ff815ea7d559ee917f063901b8986f038abc6"
)

// maxThreads is GGML_MAX_N_THREADS (ggml.h); more make ggml assert.
const maxThreads = 512

// Type is a number of enum ggml_type, as it stands in GGUF files.
type Type int

// The types that code refers to by name; ParseType and Types give all of them.
const (
	TypeF32  Type = 0
	TypeF16  Type = 1
	TypeQ4_0 Type = 2
	TypeQ8_0 Type = 8
	TypeQ4_K Type = 12
	TypeQ6_K Type = 14
	TypeI32  Type = 26
	TypeBF16 Type = 30
)

// TypeInfo describes the layout of a tensor type and what can be done with it.
type TypeInfo struct {
	Type          Type
	Name          string // f32, q4_K, ...
	BlockSize     int    // values in a block; 1 for plain numbers
	BlockBytes    int    // bytes of a block
	Quantized     bool   // a block shares a scale
	NeedsImatrix  bool   // Quantize refuses a nil imatrix
	CanQuantize   bool   // Quantize can write it
	CanDequantize bool   // Dequantize can read it
	CanMulMat     bool   // may be the first operand of MulMat on the CPU
}
