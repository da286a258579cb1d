// Threads of the training kernels, and how each operation is shared among them.
#include "kernels.h"

#include "ggml.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

extern const gk_ops gk_ops_base;
#if defined(__x86_64__)
extern const gk_ops gk_ops_avx2, gk_ops_avx512;
#endif

// The kernels of a vector length if this CPU runs them, else NULL.
static const gk_ops * ops_of(int vw) {
    if (vw == gk_ops_base.vw) return &gk_ops_base;
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (vw == gk_ops_avx2.vw && avx2) return &gk_ops_avx2;
    if (vw == gk_ops_avx512.vw && avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")) {
        return &gk_ops_avx512;
    }
#endif
    return nullptr;
}

// The widest kernels that this CPU runs; a test may choose others.
static gk_ops ops = [] {
    for (int vw : {16, 8}) {
        if (const gk_ops * o = ops_of(vw)) return *o;
    }
    return gk_ops_base;
}();

int gk_vector(void) { return ops.vw; }

bool gk_use_vector(int vw) {
    const gk_ops * o = ops_of(vw);
    if (o != nullptr) ops = *o;
    return o != nullptr;
}

gk_to_float gk_widen(int type) {
    switch (type) {
        case GGML_TYPE_Q4_0: return ops.q4_0;
        case GGML_TYPE_Q5_0: return ops.q5_0;
        case GGML_TYPE_Q8_0: return ops.q8_0;
        case GGML_TYPE_Q4_K: return ops.q4_k;
        case GGML_TYPE_Q5_K: return ops.q5_k;
        case GGML_TYPE_Q6_K: return ops.q6_k;
    }
    return nullptr;
}

namespace {

// Memory that grows and is not kept on growth.
struct buffer {
    float * p = nullptr;
    size_t  n = 0;

    ~buffer() { free(p); }
    bool grow(size_t want) {
        if (want <= n) return true;
        free(p);
        n = 0;
        p = static_cast<float *>(aligned_alloc(64, (want * sizeof(float) + 63) / 64 * 64));
        if (p == nullptr) return false;
        n = want;
        return true;
    }
};

inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

typedef void (*task_fn)(const void * arg, int64_t task, float * scratch);

// How often a thread looks for work before it sleeps: some 20 microseconds,
// longer than the gaps between the operations of one pass.
constexpr int spins = 600;

} // namespace

struct gk_pool {
    std::vector<std::thread> threads;
    std::vector<buffer>      scratch; // one a thread, the caller's first
    buffer                   shared;  // packed operands of the running operation

    // The running operation. state holds its number above, odd while it takes
    // helpers, and the number of helpers at work in the low 16 bits. A thread
    // that wakes too late finds the operation closed and is not waited for, so
    // that a core taken by another process costs its share and no more.
    task_fn                 fn;
    const void *            arg;
    int64_t                 n_tasks;
    std::atomic<int64_t>    next{0};
    std::atomic<uint64_t>   state{0};
    std::atomic<bool>       stop{false};
    std::atomic<int>        asleep{0};
    std::mutex              mutex;
    std::condition_variable wake;

    static constexpr uint64_t number = 1 << 16;

    static bool open(uint64_t s) { return s / number % 2 == 1; }

    void work(size_t thread) {
        for (int64_t t; (t = next.fetch_add(1, std::memory_order_relaxed)) < n_tasks;) fn(arg, t, scratch[thread].p);
    }

    void loop(size_t thread) {
        for (uint64_t seen = 0;;) {
            auto fresh = [&] { return stop || (open(state) && state / number != seen); };
            for (int i = 0; i < spins && !fresh(); i++) relax();
            if (!fresh()) {
                std::unique_lock<std::mutex> lock(mutex);
                asleep++;
                wake.wait(lock, fresh);
                asleep--;
            }
            if (stop) return;
            uint64_t s = state;
            if (!open(s) || s / number == seen) continue;
            if (!state.compare_exchange_strong(s, s + 1)) continue;
            seen = s / number;
            work(thread);
            state.fetch_sub(1);
        }
    }

    void run(int64_t n, task_fn f, const void * a) {
        if (threads.empty() || n <= 1) {
            for (int64_t t = 0; t < n; t++) f(a, t, scratch[0].p);
            return;
        }
        fn = f, arg = a, n_tasks = n;
        next = 0;
        state += number;
        if (asleep > 0) {
            std::lock_guard<std::mutex> lock(mutex);
            wake.notify_all();
        }
        work(0);
        state += number;
        for (int i = 0; state % number > 0; i++) {
            if (i < spins) relax();
            else std::this_thread::yield();
        }
    }

    bool reserve(size_t floats) {
        for (auto & s : scratch) {
            if (!s.grow(floats)) return false;
        }
        return true;
    }

    int64_t size() const { return (int64_t) scratch.size(); }
};

gk_pool * gk_pool_new(int n) {
    gk_pool * p = new (std::nothrow) gk_pool;
    if (p == nullptr) return nullptr;
    try {
        p->scratch.resize(n);
        for (int i = 1; i < n; i++) p->threads.emplace_back(&gk_pool::loop, p, (size_t) i);
    } catch (...) {
        gk_pool_free(p);
        return nullptr;
    }
    return p;
}

void gk_pool_free(gk_pool * p) {
    if (p == nullptr) return;
    {
        std::lock_guard<std::mutex> lock(p->mutex);
        p->stop = true;
    }
    p->wake.notify_all();
    for (auto & t : p->threads) t.join();
    delete p;
}

namespace {

// Runs kernel(args, begin, end) over n rows or columns in pieces.
template <typename A> struct ranges {
    const A * args;
    void (*kernel)(const A *, int64_t, int64_t);
    int64_t n, piece;

    static void task(const void * self, int64_t t, float *) {
        const auto * r = static_cast<const ranges *>(self);
        r->kernel(r->args, t * r->piece, std::min(r->n, (t + 1) * r->piece));
    }
};

// Pieces are multiples of grain, about three a thread.
template <typename A> void split(gk_pool * p, const A * args, void (*kernel)(const A *, int64_t, int64_t), int64_t n, int64_t grain) {
    const int64_t pieces = p->size() == 1 ? 1 : 3 * p->size();
    const int64_t piece = std::max<int64_t>(1, (n + pieces * grain - 1) / (pieces * grain)) * grain;
    ranges<A> r{args, kernel, n, piece};
    p->run((n + piece - 1) / piece, ranges<A>::task, &r);
}

// A product is cut into blocks of C: first in strips of columns, because each
// strip of B is packed once; then in rows, if there are too few strips.
struct gemm_plan {
    const gk_gemm * job;
    int64_t         mb, nb, n_rows, first; // rows and columns of a block, blocks of rows, number of the first
};

struct gemm_run {
    std::vector<gemm_plan> plans;

    static void task(const void * self, int64_t t, float * scratch) {
        const auto & plans = static_cast<const gemm_run *>(self)->plans;
        size_t i = plans.size() - 1;
        while (plans[i].first > t) i--;
        const gemm_plan & p = plans[i];
        const int64_t at = t - p.first, n0 = at / p.n_rows * p.nb, m0 = at % p.n_rows * p.mb;
        ops.gemm(p.job, m0, std::min(p.job->m, m0 + p.mb), n0, std::min(p.job->n, n0 + p.nb), scratch);
    }
};

int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

} // namespace

bool gk_run_gemm(gk_pool * p, const gk_gemm * jobs, int n_jobs) {
    const size_t scratch = (GK_KC + GK_PAD) * (GK_NC + 2 * ops.vw) + (GK_KC + GK_PAD) * (GK_MC + ops.mr) + std::max(8 * GK_KC, GK_NC + 2 * ops.vw);
    if (!p->reserve(scratch)) return false;
    gemm_run run;
    int64_t  tasks = 0;
    const int64_t want = p->size() == 1 ? 1 : (3 * p->size() + n_jobs - 1) / n_jobs; // blocks of each job
    for (int i = 0; i < n_jobs; i++) {
        const gk_gemm & g = jobs[i];
        if (g.m == 0 || g.n == 0) continue;
        gemm_plan plan{&g, 0, 0, 0, tasks};
        // A row of a quantized B can only be cut between blocks of its type.
        const int64_t unit = std::max<int64_t>(2 * ops.vw, g.to_float && !g.b_trans ? g.b_block : 1);
        plan.nb = std::min<int64_t>(GK_NC, round_up((g.n + want - 1) / want, std::max<int64_t>(unit, std::min<int64_t>(64, GK_NC))));
        plan.nb = round_up(plan.nb, unit);
        const int64_t strips = (g.n + plan.nb - 1) / plan.nb, rows = std::max<int64_t>(1, (want + strips - 1) / strips);
        plan.mb = round_up((g.m + rows - 1) / rows, 12);
        plan.n_rows = (g.m + plan.mb - 1) / plan.mb;
        tasks += strips * plan.n_rows;
        run.plans.push_back(plan);
    }
    if (tasks > 0) p->run(tasks, gemm_run::task, &run);
    return true;
}

void gk_run_norm(gk_pool * p, const gk_norm * a) { split(p, a, ops.rms_norm, a->rows, 4); }

void gk_run_norm_back(gk_pool * p, const gk_norm * a) {
    if (a->dw) split(p, a, ops.rms_norm_dw, a->n, 4 * ops.vw);
    if (a->dx) split(p, a, ops.rms_norm_dx, a->rows, 4);
}

void gk_run_rope(gk_pool * p, const gk_rope * a) { split(p, a, ops.rope, a->rows, 4); }
void gk_run_glu(gk_pool * p, const gk_glu * a) { split(p, a, ops.glu, a->rows, 4); }
void gk_run_glu_back(gk_pool * p, const gk_glu * a) { split(p, a, ops.glu_back, a->rows, 4); }
void gk_run_axpby(gk_pool * p, const gk_rows * a) { split(p, a, ops.axpby, a->rows, 8); }
void gk_run_dropout(gk_pool * p, const gk_rows * a) { split(p, a, ops.dropout, a->rows, 4); }
void gk_run_col_sum(gk_pool * p, const gk_rows * a) { split(p, a, ops.col_sum, a->n, 4 * ops.vw); }
void gk_run_scatter(gk_pool * p, const gk_rows * a) { split(p, a, ops.scatter, a->n, 4 * ops.vw); }

void gk_run_gather(gk_pool * p, const gk_gather * a) {
    split<gk_gather>(p, a, [](const gk_gather * g, int64_t t0, int64_t t1) {
        for (int64_t t = t0; t < t1; t++) {
            const char * row = g->w + (g->ids ? g->ids[t] : t) * g->row_bytes;
            float * y = g->y + t * g->y_ld;
            if (g->to_float) g->to_float(row, y, g->n);
            else std::copy_n(reinterpret_cast<const float *>(row), g->n, y);
            if (g->scale == 1) continue;
            for (int64_t i = 0; i < g->n; i++) y[i] *= g->scale;
        }
    }, a->rows, 8);
}

void gk_run_xent(gk_pool * p, const gk_xent * a) { split(p, a, ops.xent, a->rows, 4); }

namespace {

// Lays out the packed operands: n_packs of them and, for the way back, the
// shares of dk and dv.
bool attn_prepare(gk_pool * p, gk_attn * a, bool back) {
    const int64_t D = a->head_dim, T = a->n, w = 2 * ops.vw, dpad = D <= ops.vw ? ops.vw : round_up(D, w);
    a->pack = round_up(std::max(round_up(T, w) * D, T * dpad), 16);
    a->s_ld = round_up(T, w) + 16; // no power of two, whose rows would share cache sets
    const int64_t all = a->kv_heads * a->pack, share = back ? a->heads * T * D : 0;
    if (!p->shared.grow((back ? 3 : 2) * all + 2 * share)) return false;
    if (!p->reserve(GK_BQ * ((back ? 2 : 1) * a->s_ld + 2 * dpad))) return false;
    float * f = p->shared.p;
    a->kt = f;
    a->vt = back ? f + all : nullptr;
    a->kr = back ? f + 2 * all : nullptr;
    a->vr = back ? nullptr : f + all;
    a->dkh = f + 3 * all;
    a->dvh = a->dkh + share;
    split(p, static_cast<const gk_attn *>(a), ops.attn_pack, a->kv_heads, 1);
    return true;
}

} // namespace

bool gk_run_attn(gk_pool * p, const gk_attn * args) {
    gk_attn a = *args;
    if (!attn_prepare(p, &a, false)) return false;
    const int64_t blocks = (a.n + GK_BQ - 1) / GK_BQ;
    p->run(a.heads * blocks, [](const void * arg, int64_t t, float * scratch) {
        const auto * x = static_cast<const gk_attn *>(arg);
        const int64_t n = (x->n + GK_BQ - 1) / GK_BQ;
        ops.attn_forward(x, t / n, (n - 1 - t % n) * GK_BQ, scratch); // the long ones first
    }, &a);
    return true;
}

bool gk_run_attn_back(gk_pool * p, const gk_attn * args) {
    gk_attn a = *args;
    if (!attn_prepare(p, &a, true)) return false;
    p->run(a.heads, [](const void * arg, int64_t t, float * scratch) {
        ops.attn_backward(static_cast<const gk_attn *>(arg), t, scratch);
    }, &a);
    split(p, static_cast<const gk_attn *>(&a), ops.attn_reduce, a.n, 8);
    return true;
}
