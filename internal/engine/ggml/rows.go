package ggml

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"math"
	"sync"
	"unsafe"
)

// StdoutClosed reports whether standard output was closed when the program was
// started: Go opens /dev/null in its place, and what is written there is lost.
func StdoutClosed() bool { return bool(C.gg_stdout_closed()) }

// cpuInit fills the tables that the CPU backend's conversions look up.
var cpuInit = sync.OnceFunc(func() { C.ggml_cpu_init() })

// F32ToF16 rounds src to IEEE halves, nearest and ties to even, into dst.
// Values beyond 65504 become infinite. It panics when the lengths differ.
// Source: ggml-cpu.c, ggml_cpu_fp32_to_fp16.
func F32ToF16(dst []uint16, src []float32) {
	sameLen("F32ToF16", len(dst), len(src))
	if len(src) == 0 {
		return
	}
	cpuInit()
	C.ggml_cpu_fp32_to_fp16((*C.float)(&src[0]), (*C.ggml_fp16_t)(&dst[0]), C.int64_t(len(src)))
}

// F16ToF32 widens src into dst exactly. It panics when the lengths differ.
// Source: ggml-cpu.c, ggml_cpu_fp16_to_fp32.
func F16ToF32(dst []float32, src []uint16) {
	sameLen("F16ToF32", len(dst), len(src))
	if len(src) == 0 {
		return
	}
	cpuInit()
	C.ggml_cpu_fp16_to_fp32((*C.ggml_fp16_t)(&src[0]), (*C.float)(&dst[0]), C.int64_t(len(src)))
}

// F32ToBF16 rounds src to bfloat16, nearest and ties to even, into dst. It
// panics when the lengths differ. Source: ggml.c, ggml_fp32_to_bf16_row_ref;
// the one without _ref flushes subnormals on some CPUs.
func F32ToBF16(dst []uint16, src []float32) {
	sameLen("F32ToBF16", len(dst), len(src))
	if len(src) == 0 {
		return
	}
	C.ggml_fp32_to_bf16_row_ref((*C.float)(&src[0]), (*C.ggml_bf16_t)(unsafe.Pointer(&dst[0])), C.int64_t(len(src)))
}

// BF16ToF32 widens src into dst exactly. It panics when the lengths differ.
// Source: ggml.c, ggml_bf16_to_fp32_row.
func BF16ToF32(dst []float32, src []uint16) {
	sameLen("BF16ToF32", len(dst), len(src))
	if len(src) == 0 {
		return
	}
	C.ggml_bf16_to_fp32_row((*C.ggml_bf16_t)(unsafe.Pointer(&src[0])), (*C.float)(&dst[0]), C.int64_t(len(src)))
}

// Quantize converts src, len(src)/nPerRow rows of nPerRow values each, to type
// t and returns the packed rows one after another. nPerRow must be a multiple
// of the type's block size. imatrix weighs the columns of every row (mean
// squares of their activations, nPerRow values, finite and not negative); nil
// means equal weights and is an error for the types that need one. Values must
// be finite and within ±65504 for every type but f32 and bf16, because the
// scales are halves. src and imatrix are only read.
//
// Source: ggml.c, ggml_quantize_chunk; the conditions are those it asserts.
func Quantize(t Type, src []float32, nPerRow int, imatrix []float32) ([]byte, error) {
	info, err := t.Info()
	if err != nil {
		return nil, err
	}
	if err := checkQuantize(info, src, nPerRow, imatrix); err != nil {
		return nil, err
	}
	if len(src) == 0 {
		return nil, nil
	}
	var w *C.float
	if imatrix != nil {
		w = (*C.float)(&imatrix[0])
	}
	nRows := len(src) / nPerRow
	dst := make([]byte, nRows*(nPerRow/info.BlockSize)*info.BlockBytes)
	cpuInit()
	var e C.gg_err
	n := C.gg_quantize(C.int(t), (*C.float)(&src[0]), unsafe.Pointer(&dst[0]), C.int64_t(nRows), C.int64_t(nPerRow), w, &e)
	if err := shimError(&e); err != nil {
		return nil, err
	}
	if int(n) != len(dst) {
		return nil, fmt.Errorf("quantize to %s: %d bytes, want %d", info.Name, int(n), len(dst))
	}
	if !C.gg_validate(C.int(t), unsafe.Pointer(&dst[0]), C.size_t(len(dst)), &e) {
		return nil, fmt.Errorf("quantize to %s: a block scale is not finite", info.Name)
	}
	return dst, nil
}

// checkQuantize holds the arguments to what ggml asserts.
func checkQuantize(info TypeInfo, src []float32, nPerRow int, imatrix []float32) error {
	switch {
	case !info.CanQuantize:
		return fmt.Errorf("quantize to %s: ggml cannot write this type", info.Name)
	case nPerRow < 1 || nPerRow%info.BlockSize != 0:
		return fmt.Errorf("quantize to %s: rows of %d values, want a multiple of %d", info.Name, nPerRow, info.BlockSize)
	case len(src)%nPerRow != 0:
		return fmt.Errorf("quantize to %s: %d values, want a multiple of the row length %d", info.Name, len(src), nPerRow)
	case imatrix == nil && info.NeedsImatrix:
		return fmt.Errorf("quantize to %s: this type needs an importance matrix", info.Name)
	case imatrix != nil && len(imatrix) != nPerRow:
		return fmt.Errorf("quantize to %s: importance matrix of %d values, want %d", info.Name, len(imatrix), nPerRow)
	}
	limit := float32(maxF16)
	if info.Type == TypeF32 || info.Type == TypeBF16 {
		limit = math.MaxFloat32
	}
	for i, v := range src {
		if !(v >= -limit && v <= limit) { // also false for NaN
			return fmt.Errorf("quantize to %s: value %g at row %d, column %d, want a finite one within ±%g",
				info.Name, v, i/nPerRow, i%nPerRow, limit)
		}
	}
	return checkImatrix(info, imatrix)
}

// checkImatrix refuses weights that lead ggml's searches to NaN, on which they
// abort.
func checkImatrix(info TypeInfo, imatrix []float32) error {
	for i, v := range imatrix {
		if !(v >= 0 && v <= maxImatrix) {
			return fmt.Errorf("quantize to %s: importance %g at column %d, want 0 to %g", info.Name, v, i, float32(maxImatrix))
		}
	}
	return nil
}

const (
	maxF16 = 65504 // largest finite half
	// maxImatrix keeps the sums of importance * value^2 over a row far from
	// the float32 range; activations of real models stay below 1e8.
	maxImatrix = 1e12
)

// Dequantize converts n values of type t packed in src to float32. len(src)
// must be exactly the bytes of n values, n a multiple of the block size. src is
// only read.
func Dequantize(t Type, src []byte, n int) ([]float32, error) {
	info, err := t.Info()
	if err != nil {
		return nil, err
	}
	if !info.CanDequantize {
		return nil, fmt.Errorf("dequantize %s: ggml cannot read this type", info.Name)
	}
	if n < 0 || n%info.BlockSize != 0 {
		return nil, fmt.Errorf("dequantize %s: %d values, want a multiple of %d", info.Name, n, info.BlockSize)
	}
	if n/info.BlockSize != len(src)/info.BlockBytes || len(src)%info.BlockBytes != 0 {
		return nil, fmt.Errorf("dequantize %s: %d bytes for %d values, want %d", info.Name, len(src), n, n/info.BlockSize*info.BlockBytes)
	}
	if n == 0 {
		return nil, nil
	}
	dst := make([]float32, n)
	if t == TypeF32 { // ggml has no conversion of f32 to itself
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&dst[0])), len(src)), src)
		return dst, nil
	}
	cpuInit()
	var e C.gg_err
	if !C.gg_dequantize(C.int(t), unsafe.Pointer(&src[0]), (*C.float)(&dst[0]), C.int64_t(n), &e) {
		return nil, shimError(&e)
	}
	return dst, nil
}
