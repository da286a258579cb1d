//go:build cgo

package ggml

/*
#include "lowrank.h"
*/
import "C"

func addLowRank(x, a, b []float32, rows, n, r int) {
	C.gg_add_low_rank((*C.float)(&x[0]), (*C.float)(&a[0]), (*C.float)(&b[0]), C.int64_t(rows), C.int64_t(n), C.int64_t(r))
}

func maxAbsBits(x []float32) uint32 {
	return uint32(C.gg_max_abs_bits((*C.float)(&x[0]), C.int64_t(len(x))))
}
