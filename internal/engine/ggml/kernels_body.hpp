// The training kernels, compiled once per instruction set: kernels_*.cpp define
// VW (floats in a vector), MR (rows of a tile), MR1 (rows of a tile one vector
// wide) and NS (the namespace), set the target and include this file.
//
// Every value depends only on its inputs and on the order in which its terms
// are added, and that order depends on shapes alone: not on how rows, columns
// or heads are shared among threads. So one thread and many give equal bits.
//
// No standard C++ header here: its inline functions would be compiled for the
// instruction set of this file and may be the ones the linker keeps.

namespace NS {

typedef float   vf __attribute__((vector_size(VW * 4)));
typedef int32_t vi __attribute__((vector_size(VW * 4)));

#define INL static inline __attribute__((always_inline))

INL vf ld(const float * p) { vf v; __builtin_memcpy(&v, p, sizeof v); return v; }
INL void st(float * p, vf v) { __builtin_memcpy(p, &v, sizeof v); }
INL vf set1(float x) { return x - (vf) {}; }
#ifdef VMAX // one instruction; compilers make a compare and a blend of the other form
INL vf vmax(vf a, vf b) { return VMAX(a, b); }
INL vf vmin(vf a, vf b) { return VMIN(a, b); }
#else
INL vf vmax(vf a, vf b) { return a > b ? a : b; }
INL vf vmin(vf a, vf b) { return a < b ? a : b; }
#endif

INL float hsum(vf v) {
    float t[VW];
    st(t, v);
    for (int w = VW / 2; w > 0; w /= 2) {
        for (int i = 0; i < w; i++) t[i] += t[i + w];
    }
    return t[0];
}

INL float hmax(vf v) {
    float t[VW];
    st(t, v);
    for (int i = 1; i < VW; i++) t[0] = t[i] > t[0] ? t[i] : t[0];
    return t[0];
}

// e^x for x in [-87, 88], clamped outside; relative error below 2e-7. The
// polynomial is that of Cephes' expf.
INL vf vexp(vf x) {
    x = vmin(vmax(x, set1(-87.0f)), set1(88.0f));
    const vf magic = set1(0x1.8p23f); // adding it rounds to an integer
    vf z = x * 1.44269504088896341f + magic;
    vf n = z - magic;
    vf r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    vf p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    vi e = ((vi) z) << 23;
    return (vf) ((vi) p + e); // p is in [0.7, 1.5]; the exponent stays in range
}

INL vf vtanh(vf x) { return 1.0f - 2.0f / (vexp(x + x) + 1.0f); }

INL vf sigmoid(vf x) { return 1.0f / (1.0f + vexp(-x)); }

// The first n values of v, zeros behind them.
INL vf first(vf v, int64_t n) {
    vi lane;
    for (int i = 0; i < VW; i++) lane[i] = i;
    return (vf) ((vi) v & (lane < (vi) {} + (int32_t) (n < VW ? n : VW)));
}

// Loads n < VW floats, zeros behind them.
INL vf ld_tail(const float * p, int64_t n) {
    float t[VW] = {};
    for (int64_t i = 0; i < n; i++) t[i] = p[i];
    return ld(t);
}

INL void st_tail(float * p, vf v, int64_t n) {
    float t[VW];
    st(t, v);
    for (int64_t i = 0; i < n; i++) p[i] = t[i];
}

// Calls f(i, load, store) for the vectors of n floats, the last perhaps partial.
#define EACH(i, n, ...)                                                                   \
    do {                                                                                  \
        int64_t i = 0;                                                                    \
        for (; i + VW <= (n); i += VW) {                                                  \
            auto L = [=](const float * p) __attribute__((always_inline)) { return ld(p + i); };        \
            auto S = [=](float * p, vf v) __attribute__((always_inline)) { st(p + i, v); };            \
            __VA_ARGS__                                                                   \
        }                                                                                 \
        if (i < (n)) {                                                                    \
            const int64_t rest = (n) - i;                                                 \
            auto L = [=](const float * p) __attribute__((always_inline)) { return ld_tail(p + i, rest); }; \
            auto S = [=](float * p, vf v) __attribute__((always_inline)) { st_tail(p + i, v, rest); };     \
            __VA_ARGS__                                                                   \
        }                                                                                 \
    } while (0)

INL float dot(const float * a, const float * b, int64_t n) {
    vf s = {};
    EACH(i, n, s = s + L(a) * L(b); (void) S;);
    return hsum(s);
}

// ---- Quantized rows --------------------------------------------------------

#include "kernels_widen.hpp"

// ---- Matrix products -------------------------------------------------------

// One tile: C[M, NV*VW] = (add ? C : 0) + alpha * A[M, k] * B[k, NV*VW]. B is
// packed. ROWS says how A lies: true: a[i*s + k], false: a[i + k*s].
template <int M, int NV, bool ROWS>
INL void tile(int64_t k, const float * a, int64_t s, const float * b, float * c, int64_t ldc, float alpha, bool add) {
    // C comes from further away than A and B; ask for it now.
#pragma GCC unroll 16
    for (int i = 0; i < M; i++) {
        for (int j = 0; j < NV * VW; j += 16) __builtin_prefetch(c + i * ldc + j, 1);
    }
    vf acc[M][NV] = {};
    for (int64_t p = 0; p < k; p++) {
        vf bv[NV];
#pragma GCC unroll 4
        for (int j = 0; j < NV; j++) bv[j] = ld(b + p * (NV * VW) + j * VW);
#pragma GCC unroll 16
        for (int i = 0; i < M; i++) {
            vf av = set1(ROWS ? a[i * s + p] : a[p * s + i]);
#pragma GCC unroll 4
            for (int j = 0; j < NV; j++) acc[i][j] = acc[i][j] + av * bv[j];
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < M; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < NV; j++) {
            float * q = c + i * ldc + j * VW;
            st(q, add ? ld(q) + alpha * acc[i][j] : alpha * acc[i][j]);
        }
    }
}

template <int M, int NV, bool ROWS>
static __attribute__((noinline)) void tile_n(int64_t k, const float * a, int64_t s, const float * b, float * c, int64_t ldc, float alpha, bool add) {
    tile<M, NV, ROWS>(k, a, s, b, c, ldc, alpha, add);
}

// The remaining m < MAX rows of a column of tiles.
template <int MAX, int NV, bool ROWS>
struct few {
    static void run(int64_t m, int64_t k, const float * a, int64_t s, const float * b, float * c, int64_t ldc, float alpha, bool add) {
        if (m == MAX) {
            tile_n<MAX, NV, ROWS>(k, a, s, b, c, ldc, alpha, add);
        } else {
            few<MAX - 1, NV, ROWS>::run(m, k, a, s, b, c, ldc, alpha, add);
        }
    }
};
template <int NV, bool ROWS>
struct few<0, NV, ROWS> {
    static void run(int64_t, int64_t, const float *, int64_t, const float *, float *, int64_t, float, bool) {}
};

// C[m, n] = (add ? C : 0) + alpha * A[m, k] * B[k, n] on one thread. B lies in
// panels of NV*VW columns, pstride floats apart, zeros behind column n. a_panel
// is not 0 when A is packed in panels of the tile's rows, that many floats
// apart; it is then read as ROWS = false with s = M.
template <int NV, bool ROWS>
static void block(int64_t m, int64_t n, int64_t k, const float * a, int64_t s, int64_t a_panel, const float * b, int64_t pstride, float * c, int64_t ldc, float alpha, bool add) {
    constexpr int M = NV == 1 ? MR1 : MR, W = NV * VW;
    for (int64_t j = 0; j < n; j += W, b += pstride) {
        for (int64_t i = 0; i < m; i += M) {
            const float * ai = a_panel ? a + i / M * a_panel : a + (ROWS ? i * s : i);
            const int64_t rows = m - i < M ? m - i : M;
            if (n - j >= W) {
                if (rows == M) {
                    tile<M, NV, ROWS>(k, ai, s, b, c + i * ldc + j, ldc, alpha, add);
                } else {
                    few<M - 1, NV, ROWS>::run(rows, k, ai, s, b, c + i * ldc + j, ldc, alpha, add);
                }
                continue;
            }
            float t[M * W]; // the columns behind n are not ours to write
            few<M, NV, ROWS>::run(rows, k, ai, s, b, t, W, alpha, false);
            for (int64_t r = 0; r < rows; r++) {
                for (int64_t q = 0; q < n - j; q++) {
                    float * p = c + (i + r) * ldc + j + q;
                    *p = add ? *p + t[r * W + q] : t[r * W + q];
                }
            }
        }
    }
}

// Picks the tile: one vector wide where n fits in one.
INL int width(int64_t n) { return n <= VW ? VW : 2 * VW; }

INL int64_t panels(int64_t n) { return (n + width(n) - 1) / width(n); }

static void blockw(int w, int64_t m, int64_t n, int64_t k, const float * a, int64_t s, bool rows, const float * b, int64_t pstride, float * c, int64_t ldc, float alpha, bool add) {
    if (w == VW) {
        if (rows) block<1, true>(m, n, k, a, s, 0, b, pstride, c, ldc, alpha, add);
        else block<1, false>(m, n, k, a, s, 0, b, pstride, c, ldc, alpha, add);
    } else {
        if (rows) block<2, true>(m, n, k, a, s, 0, b, pstride, c, ldc, alpha, add);
        else block<2, false>(m, n, k, a, s, 0, b, pstride, c, ldc, alpha, add);
    }
}

// Packs B[k, n] with n contiguous: dst[panel][k][w].
static void pack_rows(int w, int64_t k, int64_t n, const float * b, int64_t ldb, float * dst, int64_t pstride) {
    for (int64_t p = 0; p < k; p++, b += ldb, dst += w) {
        float * d = dst;
        int64_t j = 0;
        for (; j + w <= n; j += w, d += pstride) {
            for (int q = 0; q < w; q += VW) st(d + q, ld(b + j + q));
        }
        for (int64_t q = 0; j < n && q < w; q++) d[q] = j + q < n ? b[j + q] : 0;
    }
}

// Transposes 8 x 8 (or 4 x 4) floats.
#if VW >= 8
#define TW 8
typedef float v8 __attribute__((vector_size(32)));
INL void transpose(const float * src, int64_t lds, float * dst, int64_t ldd) {
    v8 r[8], t[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) __builtin_memcpy(&r[i], src + i * lds, 32);
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
#pragma GCC unroll 2
    for (int h = 0; h < 8; h += 4) {
        r[h] = __builtin_shufflevector(t[h], t[h + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        r[h + 1] = __builtin_shufflevector(t[h], t[h + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        r[h + 2] = __builtin_shufflevector(t[h + 1], t[h + 3], 0, 1, 8, 9, 4, 5, 12, 13);
        r[h + 3] = __builtin_shufflevector(t[h + 1], t[h + 3], 2, 3, 10, 11, 6, 7, 14, 15);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[i] = __builtin_shufflevector(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        t[i + 4] = __builtin_shufflevector(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) __builtin_memcpy(dst + i * ldd, &t[i], 32);
}
#else
#define TW 4
INL void transpose(const float * src, int64_t lds, float * dst, int64_t ldd) {
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) dst[j * ldd + i] = src[i * lds + j];
    }
}
#endif

// Packs B[k, n] given as n rows of k: dst[panel][k][w].
static void pack_cols(int w, int64_t k, int64_t n, const float * b, int64_t ldb, float * dst, int64_t pstride) {
    for (int64_t j = 0; j < n; j += w, dst += pstride) {
        const int64_t cols = n - j < w ? n - j : w;
        int64_t q = 0;
        for (; q + TW <= cols; q += TW) {
            const float * src = b + (j + q) * ldb;
            int64_t p = 0;
            for (; p + TW <= k; p += TW) transpose(src + p, ldb, dst + p * w + q, w);
            for (; p < k; p++) {
                for (int i = 0; i < TW; i++) dst[p * w + q + i] = src[i * ldb + p];
            }
        }
        for (; q < w; q++) {
            for (int64_t p = 0; p < k; p++) dst[p * w + q] = q < cols ? b[(j + q) * ldb + p] : 0;
        }
    }
}

// Packs columns [n0, n1) of rows [p0, p0+kc) of the job's B into panels.
static void pack_b(const gk_gemm * g, int w, int64_t p0, int64_t kc, int64_t n0, int64_t n1, float * dst, int64_t pstride, float * row) {
    const int64_t n = n1 - n0;
    if (!g->to_float) {
        const float * b = (const float *) g->b;
        if (g->b_trans) pack_cols(w, kc, n, b + n0 * g->b_ld + p0, g->b_ld, dst, pstride);
        else pack_rows(w, kc, n, b + p0 * g->b_ld + n0, g->b_ld, dst, pstride);
        return;
    }
    const char * b = (const char *) g->b;
    if (g->b_trans) {
        for (int64_t j = 0; j < n; j += TW) { // TW rows of B at a time
            const int64_t cols = n - j < TW ? n - j : TW;
            for (int64_t q = 0; q < cols; q++) {
                g->to_float(b + (n0 + j + q) * g->b_ld + p0 / g->b_block * g->b_bytes, row + q * kc, kc);
            }
            float * d = dst + j / w * pstride + j % w;
            int64_t p = 0;
            if (cols == TW) {
                for (; p + TW <= kc; p += TW) transpose(row + p, kc, d + p * w, w);
            }
            for (; p < kc; p++) {
                for (int64_t q = 0; q < TW; q++) d[p * w + q] = q < cols ? row[q * kc + p] : 0;
            }
        }
        for (int64_t j = (n + TW - 1) / TW * TW; j % w; j++) {
            for (int64_t p = 0; p < kc; p++) dst[j / w * pstride + p * w + j % w] = 0;
        }
        return;
    }
    for (int64_t p = 0; p < kc; p++) {
        g->to_float(b + (p0 + p) * g->b_ld + n0 / g->b_block * g->b_bytes, row, n);
        pack_rows(w, 1, n, row, n, dst + p * w, pstride);
    }
}

// Copies mc rows of kc values of A, whose rows would share the sets of the
// level 1 cache where their distance is a multiple of 2 KiB.
static void copy_a(int64_t mc, int64_t kc, const float * a, int64_t lda, float * dst) {
    for (int64_t i = 0; i < mc; i++) __builtin_memcpy(dst + i * (kc + GK_PAD), a + i * lda, kc * sizeof(float));
}

// Packs A given as kc rows of mc values: dst[panel][kc][M].
template <int M>
static void pack_a(int64_t mc, int64_t kc, const float * a, int64_t lda, float * dst) {
    const int64_t stride = kc * M + GK_PAD;
    for (int64_t p = 0; p < kc; p++, a += lda, dst += M) {
        float * d = dst;
        int64_t i = 0;
        for (; i + M <= mc; i += M, d += stride) __builtin_memcpy(d, a + i, M * sizeof(float));
        if (i < mc) __builtin_memcpy(d, a + i, (mc - i) * sizeof(float));
    }
}

template <int NV>
static void gemm_block(const gk_gemm * g, int64_t m0, int64_t m1, int64_t n0, int64_t n1, float * scratch) {
    constexpr int W = NV * VW, M = NV == 1 ? MR1 : MR;
    float * bp = scratch, * ap = bp + (GK_KC + GK_PAD) * (GK_NC + 2 * VW), * row = ap + (GK_KC + GK_PAD) * (GK_MC + M);
    const bool copy = g->a_ld % 512 == 0;
    for (int64_t p0 = 0; p0 < g->k; p0 += GK_KC) {
        const int64_t kc = g->k - p0 < GK_KC ? g->k - p0 : GK_KC, pstride = kc * W + GK_PAD;
        const bool    add = g->add || p0 > 0;
        pack_b(g, W, p0, kc, n0, n1, bp, pstride, row);
        for (int64_t i = m0; i < m1; i += GK_MC) {
            const int64_t mc = m1 - i < GK_MC ? m1 - i : GK_MC;
            float * c = g->c + i * g->c_ld + n0;
            if (g->a_trans) {
                pack_a<M>(mc, kc, g->a + p0 * g->a_ld + i, g->a_ld, ap);
                block<NV, false>(mc, n1 - n0, kc, ap, M, kc * M + GK_PAD, bp, pstride, c, g->c_ld, g->alpha, add);
            } else if (copy) {
                copy_a(mc, kc, g->a + i * g->a_ld + p0, g->a_ld, ap);
                block<NV, true>(mc, n1 - n0, kc, ap, kc + GK_PAD, 0, bp, pstride, c, g->c_ld, g->alpha, add);
            } else {
                block<NV, true>(mc, n1 - n0, kc, g->a + i * g->a_ld + p0, g->a_ld, 0, bp, pstride, c, g->c_ld, g->alpha, add);
            }
        }
    }
}

// Rows [m0, m1) and columns [n0, n1) of a job.
static void gemm(const gk_gemm * g, int64_t m0, int64_t m1, int64_t n0, int64_t n1, float * scratch) {
    if (g->n <= VW) gemm_block<1>(g, m0, m1, n0, n1, scratch);
    else gemm_block<2>(g, m0, m1, n0, n1, scratch);
}

// ---- Rows ------------------------------------------------------------------

// y = w * x / sqrt(mean(x^2) + eps); rstd keeps the factor for the way back.
static void rms_norm(const gk_norm * a, int64_t r0, int64_t r1) {
    for (int64_t r = r0; r < r1; r++) {
        const int64_t t = r / a->groups, g = r % a->groups;
        const float * x = a->x + t * a->x_ld + g * a->n, * w = a->w;
        float * y = a->y + t * a->y_ld + g * a->n;
        const float s = 1.0f / __builtin_sqrtf(dot(x, x, a->n) / a->n + a->eps);
        a->rstd[r] = s;
        EACH(i, a->n, S(y, L(x) * s * L(w)););
    }
}

// dx (+)= rstd * (w*dy - x * rstd^2 * mean(w*dy*x)).
static void rms_norm_dx(const gk_norm * a, int64_t r0, int64_t r1) {
    for (int64_t r = r0; r < r1; r++) {
        const int64_t t = r / a->groups, g = r % a->groups;
        const float * x = a->x + t * a->x_ld + g * a->n, * w = a->w, * dy = a->dy + t * a->y_ld + g * a->n;
        float * dx = a->dx + t * a->dx_ld + g * a->n;
        const float s = a->rstd[r];
        vf sum = {};
        EACH(i, a->n, sum = sum + L(w) * L(dy) * L(x); (void) S;);
        const float c = hsum(sum) * s * s / a->n;
        if (a->add) EACH(i, a->n, S(dx, L(dx) + s * (L(w) * L(dy) - c * L(x))););
        else EACH(i, a->n, S(dx, s * (L(w) * L(dy) - c * L(x))););
    }
}

// dw += sum over rows of dy * x * rstd, for columns [c0, c1).
static void rms_norm_dw(const gk_norm * a, int64_t c0, int64_t c1) {
    for (int64_t c = c0; c < c1; c += 4 * VW) {
        const int64_t n = c1 - c < 4 * VW ? c1 - c : 4 * VW;
        float acc[4 * VW] = {};
        for (int64_t r = 0; r < a->rows; r++) {
            const int64_t t = r / a->groups, g = r % a->groups;
            const float * x = a->x + t * a->x_ld + g * a->n + c, * dy = a->dy + t * a->y_ld + g * a->n + c;
            const float s = a->rstd[r];
            EACH(i, n, S(acc, L(acc) + L(dy) * L(x) * s););
        }
        float * dw = a->dw + c;
        EACH(i, n, S(dw, L(dw) + L(acc)););
    }
}

// Rotates pairs of the first 2*half values of each head; cs holds cos, then
// sin, half values each, a row per token. sign -1 is the way back.
static void rope(const gk_rope * a, int64_t t0, int64_t t1) {
    for (int64_t t = t0; t < t1; t++) {
        const float * c = a->cs + t * 2 * a->half, * s = c + a->half;
        for (int64_t h = 0; h < a->heads; h++) {
            float * x = a->x + t * a->ld + h * a->head_dim;
            if (a->neox) {
                float * x1 = x + a->half;
                EACH(i, a->half, {
                    vf u = L(x), v = L(x1), cc = L(c), ss = a->sign * L(s);
                    S(x, u * cc - v * ss);
                    S(x1, u * ss + v * cc);
                });
                continue;
            }
            for (int64_t i = 0; i < a->half; i++) {
                const float u = x[2 * i], v = x[2 * i + 1], ss = a->sign * s[i];
                x[2 * i] = u * c[i] - v * ss;
                x[2 * i + 1] = u * ss + v * c[i];
            }
        }
    }
}

// tanh-approximated GELU and its derivative.
INL void gelu(vf x, vf * y, vf * dy) {
    const float c = 0.79788456080286535588f, k = 0.044715f;
    vf t = vtanh(c * x * (1.0f + k * x * x));
    *y = 0.5f * x * (1.0f + t);
    *dy = 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * c * (1.0f + 3.0f * k * x * x);
}

// y = act(gate) * up.
static void glu(const gk_glu * a, int64_t t0, int64_t t1) {
    for (int64_t t = t0; t < t1; t++) {
        const float * g = a->gu + t * 2 * a->n, * u = g + a->n;
        float * y = a->y + t * a->n;
        if (a->gelu) {
            EACH(i, a->n, { vf v, d; gelu(L(g), &v, &d); S(y, v * L(u)); });
        } else {
            EACH(i, a->n, { vf x = L(g); S(y, x * sigmoid(x) * L(u)); });
        }
    }
}

// dgate = dy * up * act'(gate), dup = dy * act(gate).
static void glu_back(const gk_glu * a, int64_t t0, int64_t t1) {
    for (int64_t t = t0; t < t1; t++) {
        const float * g = a->gu + t * 2 * a->n, * u = g + a->n, * dy = a->dy + t * a->n;
        float * dg = a->dgu + t * 2 * a->n, * du = dg + a->n;
        if (a->gelu) {
            EACH(i, a->n, { vf v, d, e = L(dy); gelu(L(g), &v, &d); S(dg, e * L(u) * d); S(du, e * v); });
        } else {
            EACH(i, a->n, {
                vf x = L(g), s = sigmoid(x), e = L(dy);
                S(dg, e * L(u) * s * (1.0f + x * (1.0f - s)));
                S(du, e * x * s);
            });
        }
    }
}

// y = a*x + b*y, rows of n.
static void axpby(const gk_rows * a, int64_t t0, int64_t t1) {
    for (int64_t t = t0; t < t1; t++) {
        const float * x = a->x + t * a->x_ld;
        float * y = a->y + t * a->y_ld;
        if (a->b == 0) EACH(i, a->n, S(y, a->a * L(x)););
        else EACH(i, a->n, S(y, a->a * L(x) + a->b * L(y)););
    }
}

// y = x * mask / (1-p) or y += ...; the mask is a function of seed and index.
static void dropout(const gk_rows * a, int64_t t0, int64_t t1) {
    const float scale = a->a;
    for (int64_t t = t0; t < t1; t++) {
        const float * x = a->x + t * a->x_ld;
        float * y = a->y + t * a->y_ld;
        for (int64_t i = 0; i < a->n; i++) {
            uint64_t z = a->seed + (uint64_t) (t * a->n + i) * 0x9e3779b97f4a7c15ull; // splitmix64
            z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
            z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
            z ^= z >> 31;
            const float v = (uint32_t) (z >> 32) < a->drop ? 0 : x[i] * scale;
            y[i] = a->b != 0 ? y[i] + v : v;
        }
    }
}

// y[c] += a * sum over rows of x[row, c], for columns [c0, c1).
static void col_sum(const gk_rows * a, int64_t c0, int64_t c1) {
    for (int64_t c = c0; c < c1; c += 4 * VW) {
        const int64_t n = c1 - c < 4 * VW ? c1 - c : 4 * VW;
        float acc[4 * VW] = {};
        for (int64_t t = 0; t < a->rows; t++) {
            const float * x = a->x + t * a->x_ld + c;
            EACH(i, n, S(acc, L(acc) + L(x)););
        }
        float * y = a->y + c;
        EACH(i, n, S(y, L(y) + a->a * L(acc)););
    }
}

// grad[token] += a * x, for columns [c0, c1), in the order of the tokens.
static void scatter(const gk_rows * a, int64_t c0, int64_t c1) {
    for (int64_t t = 0; t < a->rows; t++) {
        const float * x = a->x + t * a->x_ld + c0;
        float * y = a->y + (int64_t) a->ids[t] * a->y_ld + c0;
        EACH(i, c1 - c0, S(y, L(y) + a->a * L(x)););
    }
}

// ---- Loss ------------------------------------------------------------------

// Sum in double of e^(l - top) over n logits, which are replaced by their
// exponentials where store is set.
INL double exp_sum(float * l, int64_t n, float top, bool store) {
    typedef double vd __attribute__((vector_size(VW * 8)));
    vd sum = {};
    int64_t j = 0;
    for (; j + VW <= n; j += VW) {
        vf e = vexp(ld(l + j) - top);
        sum = sum + __builtin_convertvector(e, vd);
        if (store) st(l + j, e);
    }
    double total = 0;
    for (int i = 0; i < VW; i++) total += sum[i];
    if (j < n) {
        vf e = vexp(ld_tail(l + j, n - j) - top);
        for (int64_t i = 0; i < n - j; i++) total += e[i];
        if (store) st_tail(l + j, e, n - j);
    }
    return total;
}

INL float max_of(const float * x, int64_t n) {
    vf m = set1(x[0]);
    int64_t i = 0;
    for (; i + VW <= n; i += VW) m = vmax(m, ld(x + i));
    float top = hmax(m);
    for (; i < n; i++) top = x[i] > top ? x[i] : top;
    return top;
}

// Cross entropy of rows of logits, soft-capped first where cap is not 0. The
// sum of exponentials is in double. Where grad is set, logits become the
// gradient of scale * weight * nll with respect to the logits before the cap.
static void xent(const gk_xent * a, int64_t r0, int64_t r1) {
    for (int64_t r = r0; r < r1; r++) {
        float * l = a->logits + r * a->n, * own = l + a->labels[r];
        const float * lc = l;
        if (a->cap != 0) EACH(i, a->n, S(l, a->cap * vtanh(L(lc) / a->cap)););
        const float  top = max_of(l, a->n), label = *own;
        const double sum = exp_sum(l, a->n, top, a->grad && a->cap == 0);
        a->nll[r] = __builtin_log(sum) + top - label;
        a->right[r] = label == top;
        if (!a->grad) continue;
        const double w = a->scale * (a->weights ? a->weights[r] : 1.0f);
        const float  f = (float) (w / sum);
        if (a->cap == 0) {
            EACH(j, a->n, S(l, L(lc) * f););
            *own -= (float) w;
        } else {
            EACH(j, a->n, { vf y = L(lc), t = y / a->cap; S(l, vexp(y - top) * f * (1.0f - t * t)); });
            const float t = label / a->cap;
            *own -= (float) w * (1.0f - t * t);
        }
    }
}

// ---- Attention -------------------------------------------------------------

// Head-wise panels of K and V, made once for all blocks of queries. kt and vt
// are [T x head_dim] transposed (for Q*K' and dO*V'), kr and vr are not.
static void attn_pack(const gk_attn * a, int64_t h0, int64_t h1) {
    const int64_t D = a->head_dim, T = a->n;
    const int     W = 2 * VW, wd = width(D);
    for (int64_t h = h0; h < h1; h++) {
        pack_cols(W, D, T, a->k + h * D, a->k_ld, a->kt + h * a->pack, D * W);
        if (a->vt) pack_cols(W, D, T, a->v + h * D, a->v_ld, a->vt + h * a->pack, D * W);
        if (a->kr) pack_rows(wd, T, D, a->k + h * D, a->k_ld, a->kr + h * a->pack, T * wd);
        if (a->vr) pack_rows(wd, T, D, a->v + h * D, a->v_ld, a->vr + h * a->pack, T * wd);
    }
}

// The scores of queries [i0, i0+nq) of head h with keys [k0, i0+nq), k0 the
// first key that any of them sees, rounded down to a panel.
INL int64_t first_key(const gk_attn * a, int64_t i0) { return a->lo[i0] / (2 * VW) * (2 * VW); }

static void attn_scores(const gk_attn * a, int64_t h, int64_t i0, int64_t nq, int64_t k0, float * s) {
    const int64_t D = a->head_dim, W = 2 * VW, kv = h / (a->heads / a->kv_heads);
    const int64_t n = (i0 + nq - k0 + W - 1) / W * W; // whole panels: what is too much is masked
    blockw(W, nq, n, D, a->q + i0 * a->q_ld + h * D, a->q_ld, true, a->kt + kv * a->pack + k0 / W * D * W, D * W, s, a->s_ld, a->scale, false);
    if (a->cap == 0) return;
    for (int64_t i = 0; i < nq; i++) {
        float * p = s + i * a->s_ld;
        for (int64_t j = 0; j < n; j += VW) st(p + j, a->cap * vtanh(ld(p + j) / a->cap));
    }
}

// Zeros behind and before the keys that a query sees.
INL void mask_row(float * p, int64_t from, int64_t to, int64_t n) {
    for (int64_t j = 0; j < from; j++) p[j] = 0;
    for (int64_t j = to; j < n; j++) p[j] = 0;
}

// Queries of one block and head: o = softmax(scale q K') V, and the
// log-sum-exp of each row, which the way back starts from.
static void attn_forward(const gk_attn * a, int64_t h, int64_t i0, float * scratch) {
    const int64_t D = a->head_dim, T = a->n, kv = h / (a->heads / a->kv_heads);
    const int64_t nq = T - i0 < GK_BQ ? T - i0 : GK_BQ, k0 = first_key(a, i0), nk = i0 + nq - k0;
    const int     wd = width(D);
    float inv[GK_BQ];
    attn_scores(a, h, i0, nq, k0, scratch);
    for (int64_t i = 0; i < nq; i++) {
        const int64_t from = a->lo[i0 + i] - k0, n = i0 + i + 1 - a->lo[i0 + i];
        float * p = scratch + i * a->s_ld;
        float * q = p + from;
        const float top = max_of(q, n);
        vf sum = {}, sum2 = {};
        int64_t j = 0;
        for (; j + 2 * VW <= n; j += 2 * VW) {
            vf e = vexp(ld(q + j) - top), f = vexp(ld(q + j + VW) - top);
            sum = sum + e, sum2 = sum2 + f;
            st(q + j, e), st(q + j + VW, f);
        }
        for (; j < n; j += VW) { // the row goes on behind the keys, with values that do not count
            vf e = first(vexp(ld(q + j) - top), n - j);
            sum = sum + e;
            st(q + j, e);
        }
        sum = sum + sum2;
        mask_row(p, from, from + j, nk);
        const float total = hsum(sum);
        inv[i] = 1.0f / total;
        a->lse[h * T + i0 + i] = top + (float) __builtin_log((double) total);
    }
    float * o = a->o + i0 * a->o_ld + h * D;
    blockw(wd, nq, D, nk, scratch, a->s_ld, true, a->vr + kv * a->pack + k0 * wd, T * wd, o, a->o_ld, 1, false);
    for (int64_t i = 0; i < nq; i++, o += a->o_ld) EACH(d, D, S(o, L(o) * inv[i]););
}

// All queries of one head: dq, and this head's share of dk and dv.
static void attn_backward(const gk_attn * a, int64_t h, float * scratch) {
    const int64_t D = a->head_dim, T = a->n, kv = h / (a->heads / a->kv_heads);
    const int     W = 2 * VW, wd = width(D);
    const int64_t dpad = panels(D) * wd;
    float * p = scratch, * ds = p + GK_BQ * a->s_ld, * qp = ds + GK_BQ * a->s_ld, * op = qp + GK_BQ * dpad;
    float * dk = a->dkh + h * T * D, * dv = a->dvh + h * T * D;
    __builtin_memset(dk, 0, T * D * sizeof(float));
    __builtin_memset(dv, 0, T * D * sizeof(float));
    for (int64_t i0 = 0; i0 < T; i0 += GK_BQ) {
        const int64_t nq = T - i0 < GK_BQ ? T - i0 : GK_BQ, k0 = first_key(a, i0), nk = i0 + nq - k0;
        const float * go = a->go_ + i0 * a->go_ld + h * D, * q = a->q + i0 * a->q_ld + h * D;
        attn_scores(a, h, i0, nq, k0, p);
        blockw(W, nq, (nk + W - 1) / W * W, D, go, a->go_ld, true, a->vt + kv * a->pack + k0 / W * D * W, D * W, ds, a->s_ld, 1, false);
        for (int64_t i = 0; i < nq; i++) {
            const int64_t from = a->lo[i0 + i] - k0, n = i0 + i + 1 - a->lo[i0 + i];
            const float lse = a->lse[h * T + i0 + i], cap = a->cap;
            const float delta = dot(go + i * a->go_ld, a->o + (i0 + i) * a->o_ld + h * D, D);
            float * pi = p + i * a->s_ld, * di = ds + i * a->s_ld;
            for (int64_t j = from; j < from + n; j += VW) {
                vf y = ld(pi + j), d = ld(di + j) - delta, e = vexp(y - lse);
                if (cap != 0) {
                    vf t = y / cap;
                    d = d * (1.0f - t * t);
                }
                if (from + n - j < VW) e = first(e, from + n - j), d = first(d, from + n - j);
                st(pi + j, e), st(di + j, e * d);
            }
            const int64_t to = from + (n + VW - 1) / VW * VW;
            mask_row(pi, from, to, nk);
            mask_row(di, from, to, nk);
        }
        blockw(wd, nq, D, nk, ds, a->s_ld, true, a->kr + kv * a->pack + k0 * wd, T * wd, a->dq + i0 * a->dq_ld + h * D, a->dq_ld, a->scale, false);
        pack_rows(wd, nq, D, q, a->q_ld, qp, nq * wd);
        pack_rows(wd, nq, D, go, a->go_ld, op, nq * wd);
        blockw(wd, nk, D, nq, p, a->s_ld, false, op, nq * wd, dv + k0 * D, D, 1, true);
        blockw(wd, nk, D, nq, ds, a->s_ld, false, qp, nq * wd, dk + k0 * D, D, a->scale, true);
    }
}

// dk and dv of kv heads: the sums over the query heads that share them.
static void attn_reduce(const gk_attn * a, int64_t t0, int64_t t1) {
    const int64_t D = a->head_dim, T = a->n, group = a->heads / a->kv_heads;
    for (int64_t t = t0; t < t1; t++) {
        for (int64_t kv = 0; kv < a->kv_heads; kv++) {
            float * dk = a->dk + t * a->dk_ld + kv * D, * dv = a->dv + t * a->dv_ld + kv * D;
            for (int64_t g = 0; g < group; g++) {
                const float * sk = a->dkh + ((kv * group + g) * T + t) * D, * sv = a->dvh + ((kv * group + g) * T + t) * D;
                if (g == 0) EACH(d, D, { S(dk, L(sk)); S(dv, L(sv)); });
                else EACH(d, D, { S(dk, L(dk) + L(sk)); S(dv, L(dv) + L(sv)); });
            }
        }
    }
}

} // namespace NS

extern const gk_ops GK_CAT(gk_ops_, NS);
const gk_ops GK_CAT(gk_ops_, NS) = {
    VW, MR > MR1 ? MR : MR1, NS::gemm, NS::rms_norm, NS::rms_norm_dx, NS::rms_norm_dw, NS::rope, NS::glu, NS::glu_back,
    NS::axpby, NS::dropout, NS::col_sum, NS::scatter, NS::xent, NS::attn_pack, NS::attn_forward, NS::attn_backward, NS::attn_reduce,
    NS::widen_q4_0, NS::widen_q5_0, NS::widen_q8_0, NS::widen_k45<false>, NS::widen_k45<true>, NS::widen_q6_k,
};
