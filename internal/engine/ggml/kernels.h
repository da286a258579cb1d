// C face of the training kernels (kernels.cpp): what forward and backward
// passes need beyond ggml's own operations, on float32 in host memory.
//
// Matrices are row-major: element (i, j) is at p[i*ld + j], ld in floats. A
// token is a row. Nothing here checks its arguments: kernels.go does.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void (*gk_to_float)(const void * src, float * dst, int64_t n);

// C[m, n] = (add ? C : 0) + alpha * op(A)[m, k] * op(B)[k, n].
typedef struct gk_gemm {
    int64_t       m, n, k;
    const float * a;       // a_trans ? [k, m] : [m, k]
    int64_t       a_ld;
    bool          a_trans;
    const void *  b;       // b_trans ? [n, k] : [k, n]
    int64_t       b_ld;    // floats, or bytes where to_float is set
    bool          b_trans;
    bool          add;
    float         alpha;
    float *       c;
    int64_t       c_ld;
    gk_to_float   to_float; // 0: B is float32
    int64_t       b_block, b_bytes; // values and bytes of a block of B's type
} gk_gemm;

// RMS norm of `rows` rows of n values; a token's row holds `groups` of them.
typedef struct gk_norm {
    int64_t       rows, n, groups;
    const float * x;
    int64_t       x_ld;
    const float * w;
    float *       y;    // forward
    const float * dy;   // backward, strided as y
    int64_t       y_ld;
    float *       rstd; // [rows]
    float *       dx;
    int64_t       dx_ld;
    float *       dw;
    bool          add;
    float         eps;
} gk_norm;

typedef struct gk_rope {
    float *       x;
    int64_t       rows, ld, heads, head_dim, half;
    const float * cs; // [rows, 2*half]: cosines, then sines
    bool          neox;
    float         sign;
} gk_rope;

// gu is [rows, 2n]: gate, then up.
typedef struct gk_glu {
    const float * gu;
    float *       y;   // [rows, n]
    const float * dy;
    float *       dgu; // [rows, 2n]
    int64_t       rows, n;
    bool          gelu;
} gk_glu;

typedef struct gk_rows {
    const float *   x;
    int64_t         x_ld;
    float *         y;
    int64_t         y_ld;
    int64_t         rows, n;
    float           a, b;
    const int32_t * ids;
    uint64_t        seed;
    uint32_t        drop; // of 2^32: the share that becomes 0
} gk_rows;

typedef struct gk_xent {
    float *         logits; // [rows, n]
    int64_t         rows, n;
    const int32_t * labels;
    const float *   weights; // or 0
    double *        nll;
    uint8_t *       right; // 1 where the label has the largest logit
    float           cap;
    double          scale;
    bool            grad;
} gk_xent;

typedef struct gk_attn {
    int64_t         n, heads, kv_heads, head_dim;
    const float *   q, * k, * v;
    int64_t         q_ld, k_ld, v_ld;
    float *         o;
    int64_t         o_ld;
    float *         lse; // [heads, n]
    const int32_t * lo;  // [n] first key that a query sees; does not fall
    float           scale, cap;
    const float *   go_; // backward: the gradient of o
    int64_t         go_ld;
    float *         dq, * dk, * dv;
    int64_t         dq_ld, dk_ld, dv_ld;
    float *         kt, * vt, * kr, * vr, * dkh, * dvh; // set by kernels.cpp
    int64_t         pack, s_ld;
} gk_attn;

// y[t] = scale * row ids[t] of w, whatever its type.
typedef struct gk_gather {
    const char *    w;
    int64_t         row_bytes, rows, n;
    gk_to_float     to_float; // 0: float32
    const int32_t * ids;      // 0: row t
    float *         y;
    int64_t         y_ld;
    float           scale;
} gk_gather;

typedef struct gk_pool gk_pool;

// Starts n-1 threads; NULL where they cannot be started.
gk_pool *    gk_pool_new(int n);
void         gk_pool_free(gk_pool * p);
// Floats in a vector of the kernels in use, and a way to use others, if this
// CPU runs them: between operations, for tests.
int  gk_vector(void);
bool gk_use_vector(int vw);

// Conversion of rows of a ggml type by the kernels in use; NULL where it is
// left to ggml.
gk_to_float gk_widen(int type);

bool gk_run_gemm(gk_pool * p, const gk_gemm * jobs, int n_jobs);
void gk_run_norm(gk_pool * p, const gk_norm * a);
void gk_run_norm_back(gk_pool * p, const gk_norm * a);
void gk_run_rope(gk_pool * p, const gk_rope * a);
void gk_run_glu(gk_pool * p, const gk_glu * a);
void gk_run_glu_back(gk_pool * p, const gk_glu * a);
void gk_run_axpby(gk_pool * p, const gk_rows * a);
void gk_run_dropout(gk_pool * p, const gk_rows * a);
void gk_run_col_sum(gk_pool * p, const gk_rows * a);
void gk_run_gather(gk_pool * p, const gk_gather * a);
void gk_run_scatter(gk_pool * p, const gk_rows * a);
void gk_run_xent(gk_pool * p, const gk_xent * a);
bool gk_run_attn(gk_pool * p, const gk_attn * a);
bool gk_run_attn_back(gk_pool * p, const gk_attn * a);

#ifdef __cplusplus
}

// Block sizes of the products: K, columns of B and rows of A packed at once,
// so that B's panels and A's lie in the level 2 cache together.
constexpr int64_t GK_KC = 256, GK_NC = 256, GK_MC = 120;
// Floats between panels, so that they do not share sets of the level 1 cache.
constexpr int64_t GK_PAD = 16;
// Queries of a block of the attention.
constexpr int64_t GK_BQ = 48;

// One instruction set's kernels.
struct gk_ops {
    int vw, mr;
    void (*gemm)(const gk_gemm *, int64_t m0, int64_t m1, int64_t n0, int64_t n1, float * scratch);
    void (*rms_norm)(const gk_norm *, int64_t, int64_t);
    void (*rms_norm_dx)(const gk_norm *, int64_t, int64_t);
    void (*rms_norm_dw)(const gk_norm *, int64_t, int64_t);
    void (*rope)(const gk_rope *, int64_t, int64_t);
    void (*glu)(const gk_glu *, int64_t, int64_t);
    void (*glu_back)(const gk_glu *, int64_t, int64_t);
    void (*axpby)(const gk_rows *, int64_t, int64_t);
    void (*dropout)(const gk_rows *, int64_t, int64_t);
    void (*col_sum)(const gk_rows *, int64_t, int64_t);
    void (*scatter)(const gk_rows *, int64_t, int64_t);
    void (*xent)(const gk_xent *, int64_t, int64_t);
    void (*attn_pack)(const gk_attn *, int64_t, int64_t);
    void (*attn_forward)(const gk_attn *, int64_t head, int64_t i0, float * scratch);
    void (*attn_backward)(const gk_attn *, int64_t head, float * scratch);
    void (*attn_reduce)(const gk_attn *, int64_t, int64_t);
    gk_to_float q4_0, q5_0, q8_0, q4_k, q5_k, q6_k; // rows of these types
};

#define GK_CAT2(a, b) a##b
#define GK_CAT(a, b)  GK_CAT2(a, b)
#endif
