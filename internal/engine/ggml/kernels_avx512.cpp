// Kernels for x86 CPUs with AVX-512 (Skylake-X, Zen 4 and later).
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma,prefer-vector-width=512")
#endif
#define NS  avx512
#define VW  16
#define MR  12
#define MR1 12
#define VMAX(a, b) _mm512_max_ps(a, b)
#define VMIN(a, b) _mm512_min_ps(a, b)
#define VU8(p) _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *) (p)))
#define VS8(p) _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *) (p)))
#include "kernels_body.hpp"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
