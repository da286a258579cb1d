// Kernels over rows of float32. They know nothing of ggml's types.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// x[i*n + j] += sum over k of b[i*r + k] * a[k*n + j]: x is rows x n, b is rows x r, a is r x n.
void gg_add_low_rank(float * x, const float * a, const float * b, int64_t rows, int64_t n, int64_t r);

// Bits of the largest magnitude in x; a NaN counts as the largest of all.
uint32_t gg_max_abs_bits(const float * x, int64_t n);

#ifdef __cplusplus
}
#endif
