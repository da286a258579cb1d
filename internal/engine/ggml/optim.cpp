#include "optim.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>

// The loops below are simple enough for the compiler to vectorize. cgo compiles
// for the oldest CPU of the platform, so where the loader can choose between
// versions of a function there is one for AVX2 too. Both do the same operations
// in the same order on each value.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
#define KERNEL __attribute__((target_clones("arch=x86-64-v3", "default"), optimize("O3", "no-math-errno", "no-trapping-math")))
#else
#define KERNEL
#endif

extern "C" {

// True if all bits are 0.
KERNEL static bool all_zero(int64_t n, const float * x) {
    uint32_t bits = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t b;
        memcpy(&b, x + i, sizeof(b));
        bits |= b;
    }
    return bits == 0;
}

KERNEL static void adamw_part(int64_t n, float * __restrict w, const float * __restrict g, float * __restrict m,
                              float * __restrict v, const gg_adamw_params q) {
    const float d1 = 1 - q.beta1, d2 = 1 - q.beta2;
    for (int64_t i = 0; i < n; i++) {
        const float x = g[i] * q.scale;
        m[i]          = q.beta1 * m[i] + d1 * x;
        v[i]          = q.beta2 * v[i] + d2 * x * x;
        w[i]          = w[i] * q.keep - q.lr * (m[i] * q.c1) / (sqrtf(v[i] * q.c2) + q.eps);
    }
}

// Most rows of a large embedding never have a gradient. What would not change is
// not written, so that its pages of zeros take no memory.
void gg_adamw(int64_t n, float * w, const float * g, float * m, float * v, const gg_adamw_params * p) {
    const int64_t part = 1024; // a page of floats
    for (int64_t i = 0; i < n; i += part) {
        const int64_t k = n - i < part ? n - i : part;
        if (p->keep == 1 && all_zero(k, g + i) && all_zero(k, m + i) && all_zero(k, v + i)) {
            continue;
        }
        adamw_part(k, w + i, g + i, m + i, v + i, *p);
    }
}

KERNEL void gg_sgd(int64_t n, float * __restrict w, const float * __restrict g, float * __restrict m, const gg_sgd_params * p) {
    const gg_sgd_params q = *p;
    if (m == nullptr) {
        for (int64_t i = 0; i < n; i++) {
            w[i] = w[i] * q.keep - q.lr * (g[i] * q.scale);
        }
        return;
    }
    const float mix = q.nesterov ? q.momentum : 1, own = q.nesterov ? 1 : 0;
    for (int64_t i = 0; i < n; i++) {
        const float x = g[i] * q.scale;
        m[i]          = q.momentum * m[i] + x;
        w[i]          = w[i] * q.keep - q.lr * (own * x + mix * m[i]);
    }
}

KERNEL void gg_muon_momentum(int64_t n, const float * __restrict g, float * __restrict m, float * __restrict out, float momentum,
                             float scale) {
    for (int64_t i = 0; i < n; i++) {
        const float x = g[i] * scale;
        m[i]          = momentum * m[i] + x;
        out[i]        = x + momentum * m[i];
    }
}

KERNEL void gg_descend(int64_t n, float * __restrict w, const float * __restrict d, float lr, float keep) {
    for (int64_t i = 0; i < n; i++) {
        w[i] = w[i] * keep - lr * d[i];
    }
}

KERNEL static void scaled_copy(int64_t n, const float * __restrict x, float scale, float * __restrict y) {
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i] * scale;
    }
}

// Sums in double: a float's square is exact there, and the order of the eight
// partial sums is fixed.
KERNEL double gg_sum_squares(int64_t n, const float * __restrict x) {
    enum { LANES = 8 };
    double  s[LANES] = {};
    int64_t i        = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) {
            s[j] += (double) x[i + j] * (double) x[i + j];
        }
    }
    for (; i < n; i++) {
        s[i % LANES] += (double) x[i] * (double) x[i];
    }
    double sum = 0;
    for (double part : s) {
        sum += part;
    }
    return sum;
}

// A graph of five iterations and its memory.
struct gg_ortho {
    ggml_backend_t        backend = nullptr;
    ggml_gallocr_t        alloc   = nullptr;
    struct ggml_context * ctx     = nullptr;
    struct ggml_cgraph *  graph   = nullptr;
    struct ggml_tensor *  in      = nullptr;
    struct ggml_tensor *  out     = nullptr;
    int64_t               n       = 0;
};

void gg_ortho_free(gg_ortho * o) {
    if (o == nullptr) {
        return;
    }
    ggml_gallocr_free(o->alloc);
    ggml_free(o->ctx);
    if (o->backend) {
        ggml_backend_free(o->backend);
    }
    delete o;
}

// Coefficients of Keller Jordan, "Muon" (2024): they push all singular values
// of a matrix of norm 1 towards 1, to about 0.7 to 1.2 in five iterations.
static constexpr float ORTHO_A = 3.4445f, ORTHO_B = -4.7750f, ORTHO_C = 2.0315f;
static constexpr int   ORTHO_ITERATIONS = 5;

static void ortho_build(gg_ortho * o, int64_t n0, int64_t n1) {
    ggml_context * c = o->ctx;
    o->in            = ggml_new_tensor_2d(c, GGML_TYPE_F32, n0, n1);
    ggml_set_input(o->in);
    // X has the smaller dimension as its rows, so that X·Xᵀ is the smaller product.
    const bool    flip = n1 > n0;
    ggml_tensor * x    = flip ? ggml_cont(c, ggml_transpose(c, o->in)) : o->in;
    for (int i = 0; i < ORTHO_ITERATIONS; i++) {
        ggml_tensor * a  = ggml_mul_mat(c, x, x); // symmetric, as is b
        ggml_tensor * b  = ggml_add(c, ggml_scale(c, a, ORTHO_B), ggml_scale(c, ggml_mul_mat(c, a, a), ORTHO_C));
        ggml_tensor * xt = ggml_cont(c, ggml_transpose(c, x));
        x                = ggml_add(c, ggml_scale(c, x, ORTHO_A), ggml_mul_mat(c, xt, b));
    }
    o->out = flip ? ggml_cont(c, ggml_transpose(c, x)) : x;
    ggml_set_output(o->out);
    ggml_build_forward_expand(o->graph, o->out);
}

gg_ortho * gg_ortho_new(int64_t n0, int64_t n1, int n_threads, gg_err * err) {
    err->code    = 0;
    gg_ortho * o = nullptr;
    try {
        const size_t nodes = 16 * ORTHO_ITERATIONS + 16;
        o                  = new gg_ortho;
        o->n               = n0 * n1;
        o->backend         = ggml_backend_cpu_init();
        o->ctx             = ggml_init({ nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(nodes, false), nullptr, true });
        if (o->backend && o->ctx) {
            ggml_backend_cpu_set_n_threads(o->backend, n_threads);
            o->graph = ggml_new_graph_custom(o->ctx, nodes, false);
            ortho_build(o, n0, n1);
            o->alloc = ggml_gallocr_new(ggml_backend_get_default_buffer_type(o->backend));
            if (o->alloc && ggml_gallocr_alloc_graph(o->alloc, o->graph)) {
                return o;
            }
        }
    } catch (const std::exception &) {
        // the same message as for a NULL
    }
    gg_ortho_free(o);
    err->code = 1;
    snprintf(err->msg, sizeof(err->msg), "orthogonalize %lld x %lld: out of memory", (long long) n0, (long long) n1);
    return nullptr;
}

bool gg_ortho_run(gg_ortho * o, const float * x, float scale, float * y, gg_err * err) {
    err->code = 0;
    scaled_copy(o->n, x, scale, (float *) o->in->data);
    ggml_status status = GGML_STATUS_FAILED;
    try {
        status = ggml_backend_graph_compute(o->backend, o->graph);
    } catch (const std::exception &) {
        // the same message as for a status
    }
    if (status != GGML_STATUS_SUCCESS) {
        err->code = 1;
        snprintf(err->msg, sizeof(err->msg), "orthogonalize: compute: %s", ggml_status_to_string(status));
        return false;
    }
    scaled_copy(o->n, (const float *) o->out->data, 1, y);
    return true;
}

} // extern "C"
