#include "lowrank.h"

#include <string.h>

// ggml's own mul_mat would need A transposed, and is slow where the shared dimension is a rank of 8 to 64.
//
// KERNEL makes the function for one instruction set, W floats a vector. Four rows by two vectors of sums stay in
// registers; a tile of columns of A stays in the first-level cache while all rows pass. Sums start at zero and are
// added to x once, so that x, the larger number, is rounded once.
#define KERNEL(NAME, TARGET, W)                                                                            \
    TARGET static void NAME(float * x, const float * a, const float * b, int64_t rows, int64_t n, int64_t r) { \
        typedef float V __attribute__((vector_size(W * 4), aligned(4), may_alias));                        \
        const int64_t tile = 64;                                                                           \
        for (int64_t j0 = 0; j0 < n; j0 += tile) {                                                         \
            const int64_t j1 = j0 + tile < n ? j0 + tile : n;                                              \
            const int64_t jv = j0 + (j1 - j0) / (2 * W) * (2 * W);                                         \
            int64_t       i  = 0;                                                                          \
            for (; i + 4 <= rows; i += 4) {                                                                \
                const float * b0 = b + i * r;                                                              \
                for (int64_t j = j0; j < jv; j += 2 * W) {                                                 \
                    V s00 = {}, s01 = {}, s10 = {}, s11 = {}, s20 = {}, s21 = {}, s30 = {}, s31 = {};      \
                    const float * p = a + j;                                                               \
                    for (int64_t k = 0; k < r; k++, p += n) {                                              \
                        const V v0 = *(const V *) p, v1 = *(const V *) (p + W);                            \
                        const float c0 = b0[k], c1 = b0[r + k], c2 = b0[2 * r + k], c3 = b0[3 * r + k];    \
                        s00 += v0 * c0;                                                                    \
                        s01 += v1 * c0;                                                                    \
                        s10 += v0 * c1;                                                                    \
                        s11 += v1 * c1;                                                                    \
                        s20 += v0 * c2;                                                                    \
                        s21 += v1 * c2;                                                                    \
                        s30 += v0 * c3;                                                                    \
                        s31 += v1 * c3;                                                                    \
                    }                                                                                      \
                    float * q = x + i * n + j;                                                             \
                    *(V *) q += s00, *(V *) (q + W) += s01, q += n;                                        \
                    *(V *) q += s10, *(V *) (q + W) += s11, q += n;                                        \
                    *(V *) q += s20, *(V *) (q + W) += s21, q += n;                                        \
                    *(V *) q += s30, *(V *) (q + W) += s31;                                                \
                }                                                                                          \
                rest(x, a, b, i, i + 4, jv, j1, n, r);                                                     \
            }                                                                                              \
            rest(x, a, b, i, rows, j0, j1, n, r);                                                          \
        }                                                                                                  \
    }

// The edges: rows i to i1, columns j0 to j1.
static void rest(float * x, const float * a, const float * b, int64_t i, int64_t i1, int64_t j0, int64_t j1, int64_t n, int64_t r) {
    for (; i < i1; i++) {
        for (int64_t j = j0; j < j1; j++) {
            float s = 0;
            for (int64_t k = 0; k < r; k++) {
                s += b[i * r + k] * a[k * n + j];
            }
            x[i * n + j] += s;
        }
    }
}

KERNEL(low_rank_base, , 4)

#if defined(__x86_64__) && defined(__GNUC__)
KERNEL(low_rank_avx2, __attribute__((target("avx2,fma"))), 8)
KERNEL(low_rank_avx512, __attribute__((target("avx512f"))), 16)
#endif

extern "C" void gg_add_low_rank(float * x, const float * a, const float * b, int64_t rows, int64_t n, int64_t r) {
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx512f")) {
        return low_rank_avx512(x, a, b, rows, n, r);
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return low_rank_avx2(x, a, b, rows, n, r);
    }
#endif
    low_rank_base(x, a, b, rows, n, r);
}

extern "C" uint32_t gg_max_abs_bits(const float * x, int64_t n) {
    typedef int32_t V __attribute__((vector_size(16), aligned(4), may_alias));
    V               m0 = {}, m1 = {};
    int64_t         i  = 0;
    for (; i + 8 <= n; i += 8) {
        const V v0 = *(const V *) (x + i) & 0x7fffffff, v1 = *(const V *) (x + i + 4) & 0x7fffffff;
        m0 = v0 > m0 ? v0 : m0;
        m1 = v1 > m1 ? v1 : m1;
    }
    m0           = m1 > m0 ? m1 : m0;
    int32_t best = 0;
    for (int k = 0; k < 4; k++) {
        best = m0[k] > best ? m0[k] : best;
    }
    for (; i < n; i++) {
        int32_t v;
        memcpy(&v, x + i, sizeof(v));
        v &= 0x7fffffff;
        best = v > best ? v : best;
    }
    return (uint32_t) best;
}
