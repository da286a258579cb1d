// Sums of squares of the activations that a model's weights meet, for importance matrices.
//
// The scheduler asks about every tensor of a graph before it computes it, and calls again after those that are wanted.
// Wanted are products of a weight with activations. Weights that share an input, as attention's three and the two of
// a gated feed-forward do, are seen by that: the input is added up at the first of them and credited to the others.
//
// Source: IMatrixCollector::collect_imatrix in tools/imatrix/imatrix.cpp of llama.cpp v0.5.0, which adds float32 to
// float32 on one thread, once for each weight, and leaves batches of fewer than 16 tokens out.
#include "guard.hpp"

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

// The context's side of gl_ctx is in shim_ctx.cpp.
ggml_threadpool * gl_pool(gl_ctx * c, int * n_threads);

namespace {

// Input is one distinct input since the last reset, with the weights that share it.
struct Input {
    int64_t             width;  // columns, of all matrices of the weight
    bool                experts;
    std::vector<double> sum2, sum;
    std::vector<int64_t> counts;
    std::vector<int>    weights;
    uint64_t            passes = 0; // graphs that were added
};

// Part is rows of activations that are added to the same sums.
struct Part {
    const float * const * rows;
    int64_t n;
    double *sum2, *sum;
};

struct Job {
    const Part *     parts;
    size_t           n_parts;
    int64_t          width; // columns of a row
    std::atomic<int> bad{ 0 };
};

// Done is an input that was added in the present graph.
struct Done {
    Input *             input;
    const ggml_tensor * ids; // the experts' choice, null for a weight that all tokens meet
    int64_t             n_mat;
};

} // namespace

struct gl_collect {
    std::map<std::string, int, std::less<>> names;
    std::vector<Input *>                    input_of; // by weight; null if it was not met since the reset
    std::vector<uint64_t>                   passes;   // by weight
    std::vector<std::unique_ptr<Input>>     inputs;
    std::unordered_map<const ggml_tensor *, Done> done;

    bool on = false, share = true, skip_head = false;
    gl_collect_state state{};

    // The head of the model, whose computing can be skipped once it is known what it is computed from.
    std::string         head_input;
    const ggml_tensor * stop = nullptr; // the head's input, in the present graph
    int                 head = -1;      // the head's weight, if it is collected

    // How work is shared among the threads of the context.
    ggml_threadpool *             pool      = nullptr;
    int                           n_threads = 1;
    ggml_context *                ctx       = nullptr;
    ggml_cgraph *                 graph     = nullptr;
    std::vector<uint8_t>          work;
    Job *                         job = nullptr;
    std::vector<uint8_t>          host, host_ids; // copies of what a device has
    std::vector<const float *>    rows;
    std::vector<Part>             parts;

    ~gl_collect() {
        if (ctx) {
            ggml_free(ctx);
        }
    }
};

// ---- sums ----

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define GL_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define GL_CLONES
#endif

// Adds columns from to to of n rows, whose terms a column adds in the order of the rows: the result does not depend on
// how columns are split. A square of a float is exact as a double. Returns whether a sum is not finite.
GL_CLONES static bool add_rows(const float * const * rows, int64_t n, int64_t from, int64_t to, double * __restrict sum2, double * __restrict sum) {
    int64_t r = 0;
    for (; r + 4 <= n; r += 4) {
        const float * __restrict a = rows[r];
        const float * __restrict b = rows[r + 1];
        const float * __restrict c = rows[r + 2];
        const float * __restrict d = rows[r + 3];
        for (int64_t j = from; j < to; j++) {
            const double p = a[j], q = b[j], u = c[j], v = d[j];
            sum2[j] = (((sum2[j] + p * p) + q * q) + u * u) + v * v;
            sum[j]  = (((sum[j] + p) + q) + u) + v;
        }
    }
    for (; r < n; r++) {
        const float * __restrict a = rows[r];
        for (int64_t j = from; j < to; j++) {
            const double p = a[j];
            sum2[j] += p * p;
            sum[j] += p;
        }
    }
    double all = 0; // NaN if a sum is not finite
    for (int64_t j = from; j < to; j++) {
        all += sum2[j] * 0.0;
    }
    return all != 0.0;
}

static void share_of(Job * job, int ith, int nth) {
    // 16 floats are a line of the cache.
    const int64_t blocks = (job->width + 15) / 16;
    const int64_t from = 16 * (blocks * ith / nth), to = std::min(job->width, 16 * (blocks * (ith + 1) / nth));
    bool bad = false;
    for (size_t i = 0; i < job->n_parts && from < to; i++) {
        const Part & p = job->parts[i];
        bad |= add_rows(p.rows, p.n, from, to, p.sum2, p.sum);
    }
    if (bad) {
        job->bad = 1;
    }
}

static void op(ggml_tensor *, int ith, int nth, void * data) { share_of(((gl_collect *) data)->job, ith, nth); }

// Threads cost some microseconds to wake: this many values are worth it.
static constexpr int64_t worth_threads = 1 << 16;

// Runs the job on the context's threads, which wait while the scheduler calls back.
static void run(gl_collect * c, Job * job, int64_t values) {
    if (c->n_threads < 2 || values < worth_threads) {
        share_of(job, 0, 1);
        return;
    }
    if (!c->graph) {
        ggml_init_params p = { ggml_tensor_overhead() * 4 + ggml_graph_overhead_custom(4, false) + 1024, nullptr, false };
        c->ctx = ggml_init(p);
        if (!c->ctx) {
            throw std::runtime_error("no memory for a graph");
        }
        c->graph = ggml_new_graph_custom(c->ctx, 4, false);
        ggml_build_forward_expand(c->graph, ggml_custom_4d(c->ctx, GGML_TYPE_F32, 1, 1, 1, 1, nullptr, 0, op, GGML_N_TASKS_MAX, c));
    }
    c->job = job;
    ggml_cplan plan = ggml_graph_plan(c->graph, c->n_threads, c->pool);
    c->work.resize(plan.work_size);
    plan.work_data = c->work.data();
    if (ggml_graph_compute(c->graph, &plan) != GGML_STATUS_SUCCESS) {
        throw std::runtime_error("the threads failed");
    }
}

// ---- what is wanted ----

// The name between two '#', which the scheduler puts around that of a copy.
static std::string_view weight_name(const char * name) {
    std::string_view s = name;
    const size_t     a = s.find('#');
    if (a == std::string_view::npos) {
        return s;
    }
    s.remove_prefix(a + 1);
    return s.substr(0, s.find('#'));
}

static const ggml_tensor * ids_of(const ggml_tensor * t) { return t->op == GGML_OP_MUL_MAT_ID ? t->src[2] : nullptr; }

static int64_t matrices_of(const ggml_tensor * t) { return t->src[0]->ne[2] * t->src[0]->ne[3]; }

// Credits weight w with an input that was added in this graph; false if it must be added for w itself.
static bool credit(gl_collect * c, int w, const ggml_tensor * t) {
    auto it = c->done.find(t->src[1]);
    // What nothing computes, such as a copy between devices, is not known to be of this graph.
    if (!c->share || it == c->done.end() || t->src[1]->op == GGML_OP_NONE || it->second.ids != ids_of(t) || it->second.n_mat != matrices_of(t)) {
        return false;
    }
    Input * in = it->second.input;
    if (!c->input_of[w] && in->passes == 1) {
        c->input_of[w] = in;
        in->weights.push_back(w);
    }
    if (c->input_of[w] != in || c->passes[w] + 1 != in->passes) {
        c->state.conflict = true; // it was wired in another way in an earlier graph
        return false;
    }
    c->passes[w]++;
    return true;
}

static bool ask(gl_collect * c, ggml_tensor * t) {
    c->done.erase(t); // what was known of this tensor is of an earlier graph
    if (c->stop == t) {
        c->stop = nullptr;
    }
    if (!c->on) {
        return false;
    }
    if (c->skip_head && !c->head_input.empty() && c->head_input == t->name) {
        c->stop = t;
        return true;
    }
    if (t->op != GGML_OP_MUL_MAT && t->op != GGML_OP_MUL_MAT_ID) {
        return false;
    }
    const auto name = weight_name(t->src[0]->name);
    const auto it   = c->names.find(name);
    if (t->op == GGML_OP_MUL_MAT && (name == "output.weight" || name == "token_embd.weight")) {
        c->head_input = t->src[1]->type == GGML_TYPE_F32 ? t->src[1]->name : "";
        c->head       = it == c->names.end() ? -1 : it->second;
    }
    if (it == c->names.end()) {
        return false;
    }
    if (t->src[1]->type != GGML_TYPE_F32) {
        c->state.unsupported = it->second + 1;
        return false;
    }
    return !credit(c, it->second, t);
}

// ---- adding ----

// Input of weight w, with n_counts counts of width columns.
static Input * input_for(gl_collect * c, int w, int64_t width, int64_t n_counts, bool experts) {
    Input * in = c->input_of[w];
    if (!in) {
        c->inputs.push_back(std::make_unique<Input>());
        in = c->inputs.back().get();
        in->width   = width;
        in->experts = experts;
        in->sum2.resize(width * n_counts);
        in->sum.resize(width * n_counts);
        in->counts.resize(n_counts);
        in->weights.push_back(w);
        c->input_of[w] = in;
    }
    if (in->width != width || (int64_t) in->counts.size() != n_counts) {
        throw std::runtime_error("a weight has inputs of different sizes");
    }
    for (int other : in->weights) {
        if (c->passes[other] != in->passes) {
            c->state.conflict = true; // it did not share the last one
        }
    }
    in->passes++;
    c->passes[w] = in->passes;
    return in;
}

static const uint8_t * on_host(const ggml_tensor * t, std::vector<uint8_t> & copy) {
    ggml_backend_buffer_t buffer = t->view_src ? t->view_src->buffer : t->buffer;
    if (buffer && ggml_backend_buffer_is_host(buffer)) {
        return (const uint8_t *) t->data;
    }
    copy.resize(ggml_nbytes(t));
    ggml_backend_tensor_get(t, copy.data(), 0, copy.size());
    return copy.data();
}

// Rows of a weight that all tokens meet: one part for each of its matrices.
static Input * dense(gl_collect * c, int w, const ggml_tensor * x, int64_t ne2, int64_t ne3) {
    const int64_t n_mat = ne2 * ne3, width = x->ne[0];
    Input *       in    = input_for(c, w, width * n_mat, 1, false);
    const auto *  data  = on_host(x, c->host);
    const int64_t each  = ggml_nrows(x) / n_mat;
    c->rows.clear();
    c->rows.reserve(ggml_nrows(x));
    for (int64_t m = 0; m < n_mat; m++) {
        for (int64_t i3 = 0; i3 < x->ne[3]; i3++) {
            for (int64_t i2 = 0; i2 < x->ne[2]; i2++) {
                if ((i3 % ne3) * ne2 + i2 % ne2 != m) {
                    continue;
                }
                for (int64_t i1 = 0; i1 < x->ne[1]; i1++) {
                    c->rows.push_back((const float *) (data + i1 * x->nb[1] + i2 * x->nb[2] + i3 * x->nb[3]));
                }
            }
        }
    }
    for (int64_t m = 0; m < n_mat; m++) {
        c->parts.push_back({ c->rows.data() + m * each, each, in->sum2.data() + m * width, in->sum.data() + m * width });
    }
    in->counts[0] += each;
    return in;
}

// Rows of experts: x is [columns, 1 or chosen, tokens], ids [chosen, tokens]. A part for each expert that was chosen.
static Input * experts(gl_collect * c, int w, const ggml_tensor * t) {
    const ggml_tensor * x = t->src[1];
    const ggml_tensor * ids = t->src[2];
    const int64_t n_expert = t->src[0]->ne[2], width = x->ne[0];
    if (ids->ne[1] != x->ne[2] || x->ne[3] != 1 || ids->type != GGML_TYPE_I32) {
        throw std::runtime_error("the experts' input has an unknown layout");
    }
    Input *      in     = input_for(c, w, width, n_expert, true);
    const auto * data   = on_host(x, c->host);
    const auto * choice = on_host(ids, c->host_ids);
    auto chosen = [&](int64_t i, int64_t token) { return *(const int32_t *) (choice + i * ids->nb[0] + token * ids->nb[1]); };
    std::vector<int64_t> count(n_expert + 1, 0); // then the start of each expert's rows
    for (int64_t token = 0; token < ids->ne[1]; token++) {
        for (int64_t i = 0; i < ids->ne[0]; i++) {
            const int32_t e = chosen(i, token);
            if (e < 0 || e >= n_expert) {
                throw std::runtime_error("expert " + std::to_string(e) + " is chosen of " + std::to_string(n_expert));
            }
            count[e + 1]++;
            in->counts[e]++;
        }
    }
    for (int64_t e = 0; e < n_expert; e++) {
        count[e + 1] += count[e];
    }
    c->rows.resize(count[n_expert]);
    std::vector<int64_t> at(count.begin(), count.end() - 1);
    for (int64_t token = 0; token < ids->ne[1]; token++) {
        for (int64_t i = 0; i < ids->ne[0]; i++) {
            c->rows[at[chosen(i, token)]++] = (const float *) (data + (i % x->ne[1]) * x->nb[1] + token * x->nb[2]);
        }
    }
    for (int64_t e = 0; e < n_expert; e++) {
        if (count[e + 1] > count[e]) {
            c->parts.push_back({ c->rows.data() + count[e], count[e + 1] - count[e], in->sum2.data() + e * width, in->sum.data() + e * width });
        }
    }
    return in;
}

// Finds the first value that is not finite.
static void find_bad(gl_collect * c, int w, int64_t width) {
    for (const Part & p : c->parts) {
        for (int64_t r = 0; r < p.n; r++) {
            for (int64_t j = 0; j < width; j++) {
                if (!std::isfinite(p.rows[r][j])) {
                    c->state.bad = true;
                    c->state.bad_weight = w;
                    c->state.bad_row    = r;
                    c->state.bad_column = j;
                    c->state.bad_value  = p.rows[r][j];
                    return;
                }
            }
        }
    }
}

// Adds the rows of x for weight w; t is the product, null where x is taken before the head is computed.
static void add(gl_collect * c, int w, const ggml_tensor * x, const ggml_tensor * t) {
    if (x->nb[0] != sizeof(float)) {
        throw std::runtime_error("the input has an unknown layout");
    }
    c->parts.clear();
    Input * in = t && t->op == GGML_OP_MUL_MAT_ID ? experts(c, w, t) : dense(c, w, x, t ? t->src[0]->ne[2] : 1, t ? t->src[0]->ne[3] : 1);
    Job job;
    job.parts   = c->parts.data();
    job.n_parts = c->parts.size();
    job.width   = x->ne[0];
    run(c, &job, x->ne[0] * (int64_t) c->rows.size());
    if (job.bad) {
        find_bad(c, w, job.width);
        c->on = false;
    }
    if (t) {
        c->done[x] = { in, ids_of(t), matrices_of(t) };
    }
}

// The scheduler's callback. Returning false after a tensor leaves the rest of the graph uncomputed.
static bool on_eval(ggml_tensor * t, bool asking, void * data) {
    auto * c = (gl_collect *) data;
    try {
        if (asking) {
            return ask(c, t);
        }
        if (t == c->stop) {
            if (c->head >= 0) {
                add(c, c->head, t, nullptr);
            }
            return false;
        }
        add(c, c->names.find(weight_name(t->src[0]->name))->second, t->src[1], t);
    } catch (const std::exception & e) {
        // It must not unwind through the scheduler, which is C in part.
        snprintf(c->state.error, sizeof(c->state.error), "%s: %s", t->src[0] ? t->src[0]->name : t->name, e.what());
        c->on = false;
    }
    return true;
}

// ---- interface ----

gl_collect * gl_collect_new(const char ** names, int n, gl_err * err) {
    return guard(err, (gl_collect *) nullptr, [&] {
        auto c = std::make_unique<gl_collect>();
        for (int i = 0; i < n; i++) {
            c->names[names[i]] = i;
        }
        c->input_of.resize(n);
        c->passes.resize(n);
        return c.release();
    });
}

void gl_collect_free(gl_collect * c) { delete c; }

void * gl_collect_eval(void) { return (void *) on_eval; }

void gl_collect_bind(gl_collect * c, gl_ctx * ctx) { c->pool = gl_pool(ctx, &c->n_threads); }

void gl_collect_mode(gl_collect * c, bool on, bool skip_head) {
    c->on        = on;
    c->skip_head = skip_head;
}

void gl_collect_reset(gl_collect * c, bool share) {
    c->share = share;
    c->state = {};
    c->done.clear();
    c->stop = nullptr;
    std::fill(c->input_of.begin(), c->input_of.end(), nullptr);
    std::fill(c->passes.begin(), c->passes.end(), 0);
    c->inputs.clear();
}

gl_collect_state gl_collect_check(gl_collect * c) {
    for (const auto & in : c->inputs) {
        for (int w : in->weights) {
            c->state.conflict |= c->passes[w] != in->passes;
        }
    }
    return c->state;
}

int gl_collect_inputs(const gl_collect * c) { return (int) c->inputs.size(); }

gl_collect_input gl_collect_get(const gl_collect * c, int i) {
    const Input & in = *c->inputs[i];
    return { in.sum2.data(), in.sum.data(), in.counts.data(), (int64_t) in.sum2.size(), (int64_t) in.counts.size(), in.weights.data(), (int) in.weights.size() };
}
