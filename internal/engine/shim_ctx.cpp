// Context, adapters and sampler.
#include "guard.hpp"

#include "common.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "llama-context.h"
#include "llama.h"
#include "sampling.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

struct gl_ctx {
    llama_context * lctx  = nullptr;
    ggml_threadpool * pool  = nullptr;
    ggml_threadpool * batch = nullptr; // null when pool serves batches too
    bool borrowed = false;             // the pools are another context's
    int32_t abort = 0;
    bool own_thread = false; // compute on a thread of ours, see compute()
};

struct gl_sampler {
    common_sampler *       smpl;
    common_params_sampling params;
    const llama_vocab *    vocab;
    bool                   has_grammar;
    bool                   greedy; // see takes_largest
    size_t                 seen = 0; // bytes of the answer that a lazy grammar has looked for its trigger in
};

// Above so many bytes a lazy grammar's regular expressions, which recurse with the text, get a stack for it.
static constexpr size_t lazy_small = 4096;

// ---- context ----

llama_context * gl_llama(gl_ctx * c) { return c->lctx; }

// The threads that compute batches.
ggml_threadpool * gl_pool(gl_ctx * c, int * n_threads) {
    *n_threads = llama_n_threads_batch(c->lctx);
    return c->batch ? c->batch : c->pool;
}

static bool on_abort(void * data) { return __atomic_load_n((int32_t *) data, __ATOMIC_ACQUIRE) != 0; }

llama_context_params gl_to_context_params(const gl_ctx_params * p) {
    auto c = llama_context_default_params();
    c.n_ctx                 = p->n_ctx;
    c.n_batch               = p->n_batch;
    c.n_ubatch              = p->n_ubatch;
    c.n_seq_max             = p->n_seq_max;
    c.n_outputs_max         = p->n_outputs_max;
    c.n_outputs_max_per_seq = p->n_outputs_max_per_seq;
    c.rope_scaling_type     = (enum llama_rope_scaling_type) p->rope_scaling;
    c.pooling_type          = (enum llama_pooling_type) p->pooling;
    c.attention_type        = (enum llama_attention_type) p->attention;
    c.flash_attn_type       = (enum llama_flash_attn_type) p->flash_attn;
    c.rope_freq_base        = p->rope_freq_base;
    c.rope_freq_scale       = p->rope_freq_scale;
    c.yarn_ext_factor       = p->yarn_ext;
    c.yarn_attn_factor      = p->yarn_attn;
    c.yarn_beta_fast        = p->yarn_beta_fast;
    c.yarn_beta_slow        = p->yarn_beta_slow;
    c.yarn_orig_ctx         = p->yarn_orig_ctx;
    c.type_k                = (enum ggml_type) p->type_k;
    c.type_v                = (enum ggml_type) p->type_v;
    c.offload_kqv           = !p->no_kv_offload;
    c.no_perf               = p->no_perf;
    c.op_offload            = !p->no_op_offload;
    c.swa_full              = p->swa_full;
    c.kv_unified            = p->kv_unified;
    c.cb_eval               = (ggml_backend_sched_eval_callback) p->eval;
    c.cb_eval_user_data     = p->eval_data;
    return c;
}

static ggml_threadpool_params pool_params(const gl_threads * t) {
    ggml_threadpool_params p;
    ggml_threadpool_params_init(&p, t->n_threads);
    for (int i = 0; i < t->n_cpus; i++) {
        p.cpumask[t->cpus[i]] = true;
    }
    p.prio       = (enum ggml_sched_priority) t->prio;
    p.poll       = t->poll;
    p.strict_cpu = t->strict;
    return p;
}

static ggml_threadpool * new_pool(ggml_threadpool_params & p) {
    ggml_threadpool * pool = ggml_threadpool_new(&p);
    if (!pool) {
        throw std::runtime_error("cannot start " + std::to_string(p.n_threads) + " threads");
    }
    return pool;
}

static void make_pools(gl_ctx * c, const gl_threads * gen, const gl_threads * batch) {
    auto pg = pool_params(gen);
    auto pb = pool_params(batch);
    if (!ggml_threadpool_params_match(&pg, &pb)) {
        c->batch = new_pool(pb);
        // The generation pool starts paused: llama.cpp resumes the one it uses and pauses the other.
        pg.paused = true;
    }
    c->pool = new_pool(pg);
    llama_attach_threadpool(c->lctx, c->pool, c->batch);
    c->own_thread = gen->n_cpus > 0 || batch->n_cpus > 0 || gen->prio != 0 || batch->prio != 0;
}

gl_ctx * gl_ctx_new(struct llama_model * m, const gl_ctx_params * p, const gl_threads * gen, const gl_threads * batch,
                    gl_ctx * host, gl_err * err) {
    auto * c = new gl_ctx;
    const bool ok = guard(err, false, [&] {
        auto cp = gl_to_context_params(p);
        cp.n_threads           = gen->n_threads;
        cp.n_threads_batch     = batch->n_threads;
        if (host) { // a graph must not be planned for more threads than its pool has: ggml warns each time
            cp.n_threads       = std::min(cp.n_threads, llama_n_threads(host->lctx));
            cp.n_threads_batch = std::min(cp.n_threads_batch, llama_n_threads_batch(host->lctx));
        }
        cp.abort_callback      = on_abort;
        cp.abort_callback_data = host ? &host->abort : &c->abort;
        c->lctx = llama_init_from_model(m, cp);
        if (!c->lctx) {
            err->code = GL_FAIL;
            return false;
        }
        if (host) {
            // Idle threads of a second pool would spin where those of the first work.
            c->pool = host->pool, c->batch = host->batch, c->own_thread = host->own_thread, c->borrowed = true;
            llama_attach_threadpool(c->lctx, c->pool, c->batch);
        } else {
            make_pools(c, gen, batch);
        }
        return true;
    });
    if (!ok) {
        gl_ctx_free(c);
        return nullptr;
    }
    return c;
}

void gl_ctx_free(gl_ctx * c) {
    if (c->lctx) {
        llama_free(c->lctx);
    }
    if (c->batch && !c->borrowed) {
        ggml_threadpool_free(c->batch);
    }
    if (c->pool && !c->borrowed) {
        ggml_threadpool_free(c->pool);
    }
    delete c;
}

void gl_ctx_rest(gl_ctx * c) {
    for (auto * pool : { c->pool, c->batch }) {
        if (pool) {
            ggml_threadpool_pause(pool);
        }
    }
}

bool gl_set_priority(int prio) { return set_process_priority((enum ggml_sched_priority) prio); }

void gl_ctx_get_info(const gl_ctx * c, gl_ctx_info * o) {
    o->n_ctx     = llama_n_ctx(c->lctx);
    o->n_ctx_seq = llama_n_ctx_seq(c->lctx);
    o->n_batch   = llama_n_batch(c->lctx);
    o->n_ubatch  = llama_n_ubatch(c->lctx);
    o->n_seq_max = llama_n_seq_max(c->lctx);
    o->pooling   = llama_pooling_type(c->lctx);
    o->causal    = c->lctx->get_cparams().causal_attn;
}

int32_t * gl_ctx_abort_flag(gl_ctx * c) { return &c->abort; }

// ggml makes the calling thread a worker and leaves the pool's CPU mask and priority on it. Go
// would hand that thread to other goroutines, so it must not be one of Go's.
template <typename F> static auto compute(gl_ctx * c, F f) -> decltype(f()) {
    if (!c->own_thread) {
        return f();
    }
    decltype(f())      result{};
    std::exception_ptr thrown;
    std::thread([&] {
        try {
            result = f();
        } catch (...) {
            thrown = std::current_exception();
        }
    }).join();
    if (thrown) {
        std::rethrow_exception(thrown);
    }
    return result;
}

void gl_compute(gl_ctx * c, const std::function<void()> & f) {
    compute(c, [&] {
        f();
        return true;
    });
}

int gl_decode(gl_ctx * c, bool encode, const int32_t * tokens, const int32_t * pos, const int32_t * seq, const int32_t * n_seq,
              const int8_t * out, int n, gl_err * err) {
    return guard(err, -100, [&] {
        std::vector<int32_t>   counts(n, 1), ids(llama_n_seq_max(c->lctx));
        std::vector<int32_t *> seqs(n + 1, nullptr);
        std::iota(ids.begin(), ids.end(), 0);
        for (int i = 0; i < n; i++) {
            seqs[i]   = ids.data() + seq[i];
            counts[i] = n_seq ? n_seq[i] : 1;
        }
        llama_batch b = { n, const_cast<int32_t *>(tokens), nullptr, const_cast<int32_t *>(pos), counts.data(), seqs.data(),
                          const_cast<int8_t *>(out) };
        return compute(c, [&] {
            const int rc = encode ? llama_encode(c->lctx, b) : llama_decode(c->lctx, b);
            llama_synchronize(c->lctx);
            return rc;
        });
    });
}

// For shim_media.cpp.
int gl_decode_batch(gl_ctx * c, const llama_batch & b) {
    return compute(c, [&] {
        const int rc = llama_decode(c->lctx, b);
        llama_synchronize(c->lctx);
        return rc;
    });
}

// One run before anything is timed, as common_init_from_params does it.
bool gl_warmup(gl_ctx * c, gl_err * err) {
    return guard(err, false, [&] {
        const llama_model * m = llama_get_model(c->lctx);
        const llama_vocab * v = llama_model_get_vocab(m);
        std::vector<llama_token> tokens;
        for (llama_token t : { llama_vocab_bos(v), llama_vocab_eos(v) }) {
            if (t != LLAMA_TOKEN_NULL) {
                tokens.push_back(t);
            }
        }
        if (tokens.empty()) {
            tokens.push_back(0);
        }
        compute(c, [&] {
            if (llama_model_has_encoder(m)) {
                llama_encode(c->lctx, llama_batch_get_one(tokens.data(), std::min<int>(tokens.size(), llama_n_ubatch(c->lctx))));
                llama_token start = llama_model_decoder_start_token(m);
                tokens.assign(1, start != LLAMA_TOKEN_NULL ? start : tokens[0]);
            }
            if (llama_model_has_decoder(m)) {
                llama_decode(c->lctx, llama_batch_get_one(tokens.data(), std::min<int>(tokens.size(), llama_n_ubatch(c->lctx))));
            }
            llama_synchronize(c->lctx);
            return true;
        });
        llama_memory_clear(llama_get_memory(c->lctx), true);
        llama_perf_context_reset(c->lctx);
        return true;
    });
}

float * gl_logits(gl_ctx * c, int i) { return llama_get_logits_ith(c->lctx, i); }

float * gl_embeddings(gl_ctx * c, int i, int seq) {
    return seq >= 0 ? llama_get_embeddings_seq(c->lctx, seq) : llama_get_embeddings_ith(c->lctx, i);
}

// ---- memory and state ----

void gl_mem_clear(gl_ctx * c) { llama_memory_clear(llama_get_memory(c->lctx), true); }
bool gl_mem_rm(gl_ctx * c, int seq, int p0, int p1) { return llama_memory_seq_rm(llama_get_memory(c->lctx), seq, p0, p1); }
void gl_mem_cp(gl_ctx * c, int src, int dst, int p0, int p1) { llama_memory_seq_cp(llama_get_memory(c->lctx), src, dst, p0, p1); }
void gl_mem_keep(gl_ctx * c, int seq) { llama_memory_seq_keep(llama_get_memory(c->lctx), seq); }
void gl_mem_add(gl_ctx * c, int seq, int p0, int p1, int delta) {
    llama_memory_seq_add(llama_get_memory(c->lctx), seq, p0, p1, delta);
}
int gl_mem_min(gl_ctx * c, int seq) { return llama_memory_seq_pos_min(llama_get_memory(c->lctx), seq); }
int gl_mem_max(gl_ctx * c, int seq) { return llama_memory_seq_pos_max(llama_get_memory(c->lctx), seq); }
bool gl_mem_can_shift(gl_ctx * c) { return llama_memory_can_shift(llama_get_memory(c->lctx)); }

size_t gl_state_size(gl_ctx * c, int seq, gl_err * err) {
    return guard(err, (size_t) 0, [&] { return seq < 0 ? llama_state_get_size(c->lctx) : llama_state_seq_get_size(c->lctx, seq); });
}

size_t gl_state_get(gl_ctx * c, int seq, uint8_t * dst, size_t n, gl_err * err) {
    return guard(err, (size_t) 0,
                 [&] { return seq < 0 ? llama_state_get_data(c->lctx, dst, n) : llama_state_seq_get_data(c->lctx, dst, n, seq); });
}

size_t gl_state_set(gl_ctx * c, int seq, const uint8_t * src, size_t n, gl_err * err) {
    return guard(err, (size_t) 0,
                 [&] { return seq < 0 ? llama_state_set_data(c->lctx, src, n) : llama_state_seq_set_data(c->lctx, src, n, seq); });
}

void gl_perf_get(gl_ctx * c, gl_perf * o) {
    const auto d = llama_perf_context(c->lctx);
    *o = { d.t_load_ms, d.t_p_eval_ms, d.t_eval_ms, d.n_p_eval, d.n_eval };
}

void gl_perf_reset(gl_ctx * c) { llama_perf_context_reset(c->lctx); }

// ---- adapters ----

void * gl_lora_load(struct llama_model * m, const char * path, gl_err * err) {
    return guard(err, (void *) nullptr, [&]() -> void * {
        void * a = llama_adapter_lora_init(m, path);
        if (!a) {
            err->code = GL_FAIL;
        }
        return a;
    });
}

void gl_lora_free(void * adapter) { llama_adapter_lora_free((llama_adapter_lora *) adapter); }

bool gl_lora_set(gl_ctx * c, void ** adapters, float * scales, int n, gl_err * err) {
    return guard(err, false, [&] { return llama_set_adapters_lora(c->lctx, (llama_adapter_lora **) adapters, n, scales) == 0; });
}

bool gl_cvec_set(gl_ctx * c, const float * data, size_t n, int n_embd, int start, int end, gl_err * err) {
    return guard(err, false, [&] { return llama_set_adapter_cvec(c->lctx, data, n, n_embd, start, end) == 0; });
}

// ---- sampler ----

static common_params_sampling to_sampling(const llama_model * m, const gl_sampling * p) {
    common_params_sampling s;
    s.seed               = p->seed;
    s.n_prev             = p->n_prev;
    s.n_probs            = p->n_probs;
    s.min_keep           = p->min_keep;
    s.top_k              = p->top_k;
    s.top_p              = p->top_p;
    s.min_p              = p->min_p;
    s.xtc_probability    = p->xtc_probability;
    s.xtc_threshold      = p->xtc_threshold;
    s.typ_p              = p->typ_p;
    s.temp               = p->temp;
    s.dynatemp_range     = p->dynatemp_range;
    s.dynatemp_exponent  = p->dynatemp_exponent;
    s.penalty_last_n     = p->penalty_last_n;
    s.penalty_repeat     = p->penalty_repeat;
    s.penalty_freq       = p->penalty_freq;
    s.penalty_present    = p->penalty_present;
    s.dry_multiplier     = p->dry_multiplier;
    s.dry_base           = p->dry_base;
    s.dry_allowed_length = p->dry_allowed_length;
    s.dry_penalty_last_n = p->dry_penalty_last_n;
    s.adaptive_target    = p->adaptive_target;
    s.adaptive_decay     = p->adaptive_decay;
    s.mirostat           = p->mirostat;
    s.top_n_sigma        = p->top_n_sigma;
    s.mirostat_tau       = p->mirostat_tau;
    s.mirostat_eta       = p->mirostat_eta;
    s.ignore_eos         = p->ignore_eos;
    s.no_perf            = p->no_perf;
    s.dry_sequence_breakers.assign(p->dry_breakers, p->dry_breakers + p->n_dry_breakers);
    s.samplers.clear();
    for (int i = 0; i < p->n_samplers; i++) {
        s.samplers.push_back((enum common_sampler_type) p->samplers[i]);
    }
    if (p->grammar[0]) {
        s.grammar = common_grammar(COMMON_GRAMMAR_TYPE_USER, p->grammar);
    }
    for (int i = 0; i < p->n_biases; i++) {
        s.logit_bias.push_back({ p->biases[i].token, p->biases[i].bias });
    }
    const llama_vocab * v = llama_model_get_vocab(m);
    for (llama_token t = 0; s.ignore_eos && t < llama_vocab_n_tokens(v); t++) {
        if (llama_vocab_is_eog(v, t)) {
            s.logit_bias.push_back({ t, -INFINITY });
        }
    }
    return s;
}

// takes_largest tells whether the chain always ends at the largest logit, unless a bias is on it: then there is no need
// to build and sort a list of the whole vocabulary for each token.
static bool takes_largest(const gl_sampler * s) {
    const auto & p = s->params;
    const bool penalties = p.penalty_last_n != 0 && (p.penalty_repeat != 1.0f || p.penalty_freq != 0.0f || p.penalty_present != 0.0f);
    bool temperature = false;
    for (auto t : p.samplers) {
        if (t == COMMON_SAMPLER_TYPE_INFILL || t == COMMON_SAMPLER_TYPE_ADAPTIVE_P) {
            return false;
        }
        temperature |= t == COMMON_SAMPLER_TYPE_TEMPERATURE;
    }
    for (const auto & b : p.logit_bias) {
        if (!(b.bias <= 0)) {
            return false;
        }
    }
    return temperature && p.temp <= 0 && p.dynatemp_range == 0 && p.mirostat == 0 && p.xtc_probability <= 0 && p.typ_p >= 1 &&
           p.dry_multiplier == 0 && !penalties && !s->has_grammar && p.reasoning_budget_end.empty();
}

// largest returns the token of the largest of n logits, or -1 if two share it: the chain decides then.
static int32_t largest(const float * logits, int n) {
    constexpr int lanes = 16;
    float best[lanes];
    std::fill_n(best, lanes, -INFINITY);
    for (int k = 0; k + lanes <= n; k += lanes) {
        for (int l = 0; l < lanes; l++) {
            best[l] = logits[k + l] > best[l] ? logits[k + l] : best[l];
        }
    }
    for (int k = n - n % lanes; k < n; k++) {
        best[0] = std::max(best[0], logits[k]);
    }
    const float max = *std::max_element(best, best + lanes);
    return std::count(logits, logits + n, max) == 1 ? (int32_t) (std::find(logits, logits + n, max) - logits) : -1;
}

gl_sampler * gl_sampler_new(const struct llama_model * m, const gl_sampling * p, gl_err * err) {
    return guard(err, (gl_sampler *) nullptr, [&] {
        auto * s = new gl_sampler{ nullptr, to_sampling(m, p), llama_model_get_vocab(m), p->grammar[0] != 0, false };
        try {
            gl_on_big_stack([&] {
                if (p->answer[0]) {
                    gl_read_answer(s->params, s->vocab, p->answer);
                }
                s->greedy = takes_largest(s);
                s->smpl   = common_sampler_init(m, s->params);
            });
        } catch (...) {
            delete s;
            throw;
        }
        return s;
    });
}

gl_sampler * gl_sampler_clone(gl_sampler * s, gl_err * err) {
    return guard(err, (gl_sampler *) nullptr,
                 [&] { return new gl_sampler{ common_sampler_clone(s->smpl), s->params, s->vocab, s->has_grammar, s->greedy, s->seen }; });
}

void gl_sampler_free(gl_sampler * s) {
    common_sampler_free(s->smpl);
    delete s;
}

void gl_sampler_reset(gl_sampler * s) {
    common_sampler_reset(s->smpl);
    s->seen = 0;
}

int32_t gl_sampler_sample(gl_sampler * s, gl_ctx * c, int i, gl_err * err) {
    return guard(err, (int32_t) -1, [&] {
        const float * logits = llama_get_logits_ith(c->lctx, i);
        if (!logits) {
            throw std::runtime_error("there are no logits to sample from");
        }
        // The samplers read outside their arrays when nothing compares.
        const int n   = llama_vocab_n_tokens(s->vocab);
        int       nan = 0;
        for (int k = 0; k < n; k++) {
            nan |= logits[k] != logits[k];
        }
        if (nan) {
            throw std::runtime_error("the model's output has NaN values");
        }
        if (s->greedy) {
            const int32_t id   = largest(logits, n);
            const auto &  bias = s->params.logit_bias;
            if (id >= 0 && std::none_of(bias.begin(), bias.end(), [&](const auto & b) { return b.token == id; })) {
                return id;
            }
        }
        const llama_token id = common_sampler_sample(s->smpl, c->lctx, i);
        const auto * cur = common_sampler_get_candidates(s->smpl, false);
        if (id < 0 || id >= n || cur->selected < 0 || !(cur->data[cur->selected].logit > -INFINITY)) {
            throw std::runtime_error(s->has_grammar ? "no token of the vocabulary fits the grammar here" : "every token is excluded");
        }
        return (int32_t) id;
    });
}

bool gl_sampler_accept(gl_sampler * s, int32_t token, bool generated, gl_err * err) {
    return guard(err, false, [&] {
        // At the end of a grammar an end token changes nothing in it; anywhere else llama.cpp aborts.
        const bool to_grammar = generated && !(s->has_grammar && llama_vocab_is_eog(s->vocab, token));
        if (s->has_grammar && s->params.grammar_lazy && generated) {
            s->seen += common_token_to_piece(s->vocab, token).size();
        }
        if (s->seen > lazy_small) {
            gl_on_big_stack([&] { common_sampler_accept(s->smpl, token, to_grammar); });
        } else {
            common_sampler_accept(s->smpl, token, to_grammar);
        }
        return true;
    });
}

char * gl_sampler_describe(gl_sampler * s, gl_err * err) {
    return guard(err, (char *) nullptr,
                 [&] { return strdup((common_sampler_print(s->smpl) + "\n" + s->params.print()).c_str()); });
}
