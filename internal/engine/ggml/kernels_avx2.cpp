// Kernels for x86 CPUs with AVX2 and FMA (Haswell, Zen and later).
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#define NS  avx2
#define VW  8
#define MR  6
#define MR1 12
#define VMAX(a, b) _mm256_max_ps(a, b)
#define VMIN(a, b) _mm256_min_ps(a, b)
#define VU8(p) _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *) (p)))
#define VS8(p) _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *) (p)))
#include "kernels_body.hpp"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
