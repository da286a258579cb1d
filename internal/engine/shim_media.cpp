// Images and sound: libmtmd.
#include "guard.hpp"
#include "shim_media.h"

#include "_cgo_export.h"

#include "ggml-backend.h"
#include "llama.h"
#include "mtmd-helper.h"
#include "mtmd.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

// These are in shim_ctx.cpp.
llama_context * gl_llama(gl_ctx * c);
int gl_decode_batch(gl_ctx * c, const llama_batch & b);

struct gl_media {
    mtmd_context * ctx = nullptr;
    int            n_embd  = 0; // floats of an embedding, the text model's
    int32_t        abort   = 0;
    int64_t        last_us = 0; // when on_node looked
};

struct gl_chunks {
    mtmd::input_chunks_ptr list;
    std::vector<bool>      non_causal;
};

// Lets an encode be stopped: what follows a node that is asked for is computed after this has looked. Each look costs a
// synchronization, so there are few of them.
static bool on_node(ggml_tensor *, bool ask, void * data) {
    constexpr int64_t every_us = 100000;
    auto * m = (gl_media *) data;
    if (!ask) {
        return __atomic_load_n(&m->abort, __ATOMIC_ACQUIRE) == 0;
    }
    const int64_t now = ggml_time_us();
    if (now - m->last_us < every_us) {
        return false;
    }
    m->last_us = now;
    return true;
}

static bool on_progress(float progress, void * handle) { return gollamaProgress((uintptr_t) handle, progress) != 0; }

gl_media * gl_media_new(struct llama_model * model, const gl_media_params * p, gl_err * err) {
    auto m = std::make_unique<gl_media>();
    return guard(err, (gl_media *) nullptr, [&]() -> gl_media * {
        gl_catch_aborts catching;
        auto mp = mtmd_context_params_default();
        mp.use_gpu          = p->use_gpu;
        mp.print_timings    = false;
        mp.n_threads        = p->n_threads;
        mp.flash_attn_type  = (enum llama_flash_attn_type) p->flash_attn;
        mp.warmup           = p->warmup;
        mp.image_min_tokens = p->min_tokens;
        mp.image_max_tokens = p->max_tokens;
        mp.batch_max_tokens = p->batch_max_tokens;
        mp.cb_eval           = on_node;
        mp.cb_eval_user_data = m.get();
        if (p->progress) {
            mp.progress_callback           = on_progress;
            mp.progress_callback_user_data = (void *) p->progress;
        }
        if (p->device[0]) {
            mp.device = ggml_backend_dev_by_name(p->device);
            if (!mp.device) {
                throw std::runtime_error(std::string("there is no device \"") + p->device + "\"");
            }
        }
        m->ctx = mtmd_init_from_file(p->path, model, mp);
        if (!m->ctx) {
            err->code = GL_FAIL;
            return nullptr;
        }
        m->n_embd = llama_model_n_embd_inp(model);
        return m.release();
    });
}

void gl_media_free(gl_media * m) {
    mtmd_free(m->ctx);
    delete m;
}

void gl_media_get_info(gl_media * m, gl_media_info * out) {
    *out = {};
    out->vision      = mtmd_support_vision(m->ctx);
    out->audio       = mtmd_support_audio(m->ctx);
    out->mrope       = mtmd_decode_use_mrope(m->ctx);
    out->n_embd      = m->n_embd;
    out->sample_rate = mtmd_get_audio_sample_rate(m->ctx);
    out->non_causal_image = out->vision && mtmd_decode_use_non_causal(m->ctx, nullptr);
}

int32_t * gl_media_abort_flag(gl_media * m) { return &m->abort; }

int gl_model_n_embd_inp(const struct llama_model * m) { return llama_model_n_embd_inp(m); }

// ---- tokenize ----

// The number of a media part becomes the name of its chunks.
static mtmd::bitmap_ptr to_bitmap(const gl_media_part & p, int number) {
    mtmd::bitmap_ptr b(p.kind == 1 ? mtmd_bitmap_init(p.nx, p.ny, p.rgb) : mtmd_bitmap_init_from_audio(p.n_samples, p.pcm));
    mtmd_bitmap_set_id(b.get(), std::to_string(number).c_str());
    return b;
}

static gl_chunks * tokenize(gl_media * m, const gl_media_part * parts, int n) {
    gl_catch_aborts catching;
    std::vector<mtmd::bitmap_ptr>        bitmaps;
    std::vector<mtmd_input_text>         texts(n);
    std::vector<mtmd_input_part>         list(n);
    std::vector<const mtmd_input_part *> ptrs(n);
    for (int i = 0; i < n; i++) {
        if (parts[i].kind == 0) {
            texts[i] = { parts[i].text, parts[i].len, false, parts[i].parse_special };
            list[i]  = { &texts[i], nullptr };
        } else {
            bitmaps.push_back(to_bitmap(parts[i], (int) bitmaps.size()));
            list[i] = { nullptr, bitmaps.back().get() };
        }
        ptrs[i] = &list[i];
    }
    auto out = std::make_unique<gl_chunks>();
    out->list.reset(mtmd_input_chunks_init());
    if (mtmd_tokenize_from_parts(m->ctx, out->list.get(), ptrs.data(), ptrs.size(), false) != 0) {
        return nullptr;
    }
    for (size_t i = 0; i < mtmd_input_chunks_size(out->list.get()); i++) {
        const auto * c = mtmd_input_chunks_get(out->list.get(), i);
        const bool media = mtmd_input_chunk_get_type(c) != MTMD_INPUT_CHUNK_TYPE_TEXT;
        out->non_causal.push_back(media && mtmd_decode_use_non_causal(m->ctx, c));
    }
    return out.release();
}

gl_chunks * gl_media_tokenize(gl_media * m, const gl_media_part * parts, int n, gl_err * err) {
    return guard(err, (gl_chunks *) nullptr, [&] {
        gl_chunks * out = nullptr;
        gl_on_big_stack([&] { out = tokenize(m, parts, n); });
        if (!out) {
            err->code = GL_FAIL;
        }
        return out;
    });
}

void gl_chunks_free(gl_chunks * c) { delete c; }
int gl_chunks_count(const gl_chunks * c) { return (int) mtmd_input_chunks_size(c->list.get()); }

void gl_chunks_get(const gl_chunks * c, gl_chunk * out) {
    for (int i = 0; i < gl_chunks_count(c); i++) {
        const auto * chunk = mtmd_input_chunks_get(c->list.get(), i);
        out[i] = {};
        out[i].kind       = (int) mtmd_input_chunk_get_type(chunk);
        out[i].n_tokens   = (int) mtmd_input_chunk_get_n_tokens(chunk);
        out[i].n_pos      = mtmd_input_chunk_get_n_pos(chunk);
        out[i].non_causal = c->non_causal[i];
        size_t n = 0;
        out[i].tokens = mtmd_input_chunk_get_tokens_text(chunk, &n);
        out[i].media  = out[i].kind == 0 ? -1 : atoi(mtmd_input_chunk_get_id(chunk));
    }
}

// ---- encode and decode ----

using batch_ptr = std::unique_ptr<mtmd_batch, decltype(&mtmd_batch_free)>;

int gl_media_encode(gl_media * m, const gl_chunks * c, const int32_t * idx, int n, float * out, gl_err * err) {
    return guard(err, 0, [&] {
        gl_catch_aborts catching;
        m->last_us = ggml_time_us();
        // libmtmd finds a batch's output by the chunk's address: the batch ends here, its chunks live on.
        batch_ptr batch(mtmd_batch_init(m->ctx), mtmd_batch_free);
        int taken = 0;
        while (taken < n && mtmd_batch_add_chunk(batch.get(), mtmd_input_chunks_get(c->list.get(), idx[taken])) == 0) {
            taken++;
        }
        if (taken == 0 || mtmd_batch_encode(batch.get()) != 0) {
            err->code = GL_FAIL;
            return 0;
        }
        if (__atomic_load_n(&m->abort, __ATOMIC_ACQUIRE) != 0) {
            throw std::runtime_error("aborted");
        }
        for (int i = 0; i < taken; i++) {
            const auto *  chunk = mtmd_input_chunks_get(c->list.get(), idx[i]);
            const float * embd  = mtmd_batch_get_output_embd(batch.get(), chunk);
            if (!embd) {
                throw std::runtime_error("the encoder gives no embeddings");
            }
            const size_t floats = mtmd_input_chunk_get_n_tokens(chunk) * m->n_embd;
            std::copy_n(embd, floats, out);
            out += floats;
        }
        return taken;
    });
}

// Embeddings as llama_decode takes them; of positions there are several to an embedding under M-RoPE, in pos[0], pos[1], ...
struct embeddings {
    std::vector<std::vector<llama_pos>> pos;
    std::vector<llama_seq_id>           seq;
    std::vector<int8_t>                 out;
    std::vector<float>                  copied; // of several spans
    const float *                       embd = nullptr;

    int size() const { return (int) seq.size(); }
};

static void add_span(embeddings & e, const gl_span & s) {
    const auto *              chunk = mtmd_input_chunks_get(s.chunks->list.get(), s.chunk);
    const int                 n     = (int) mtmd_input_chunk_get_n_tokens(chunk);
    const mtmd_image_tokens * image = mtmd_input_chunk_get_tokens_image(chunk);
    for (int i = 0; i < n; i++) {
        const auto at = (uint32_t) (s.pos0 + i);
        mtmd_decoder_pos p = { at, at, at, at };
        if (e.pos.size() > 1 && image) {
            p = mtmd_image_tokens_get_decoder_pos(image, s.pos0, i);
        }
        const uint32_t sections[] = { p.t, p.y, p.x, p.z };
        for (size_t k = 0; k < e.pos.size(); k++) {
            e.pos[k].push_back((llama_pos) sections[k]);
        }
        e.seq.push_back(s.seq);
        e.out.push_back(s.logits && i == n - 1);
    }
}

// Without causal attention while it lives.
struct non_causal {
    llama_context * ctx;
    explicit non_causal(llama_context * c) : ctx(c) {
        if (ctx) {
            llama_set_causal_attn(ctx, false);
        }
    }
    ~non_causal() {
        if (ctx) {
            llama_set_causal_attn(ctx, true);
        }
    }
};

// As mtmd_helper_decode_image_chunk, but that this can have logits and several sequences.
int gl_media_decode(gl_media * m, gl_ctx * ctx, const gl_span * spans, int n, gl_err * err) {
    return guard(err, -100, [&] {
        embeddings e;
        e.pos.resize(mtmd_decode_use_mrope(m->ctx) ? 4 : 1);
        e.embd = spans[0].embd;
        for (int i = 0; i < n; i++) {
            const int before = e.size();
            add_span(e, spans[i]);
            if (n > 1) {
                e.copied.insert(e.copied.end(), spans[i].embd, spans[i].embd + (size_t) (e.size() - before) * m->n_embd);
            }
        }
        if (n > 1) {
            e.embd = e.copied.data();
        }
        std::vector<int32_t>        n_seq(e.size(), 1);
        std::vector<llama_seq_id *> seqs;
        for (auto & s : e.seq) {
            seqs.push_back(&s);
        }
        non_causal scope(spans[0].chunks->non_causal[spans[0].chunk] ? gl_llama(ctx) : nullptr);
        const int step = (int) llama_n_batch(gl_llama(ctx));
        for (int from = 0; from < e.size(); from += step) {
            const int count = std::min(step, e.size() - from);
            std::vector<llama_pos> pos; // all first ones, then all second ones
            for (const auto & p : e.pos) {
                pos.insert(pos.end(), p.begin() + from, p.begin() + from + count);
            }
            llama_batch b = { count, nullptr, const_cast<float *>(e.embd) + (size_t) from * m->n_embd, pos.data(), n_seq.data(), seqs.data() + from,
                              e.out.data() + from };
            if (const int rc = gl_decode_batch(ctx, b)) {
                return rc;
            }
        }
        return 0;
    });
}

float * gl_media_audio(gl_media * m, const uint8_t * data, size_t n, size_t * n_samples, gl_err * err) {
    return guard(err, (float *) nullptr, [&]() -> float * {
        const auto w = mtmd_helper_bitmap_init_from_buf(m->ctx, data, n, false, mtmd_helper_init_opt_default());
        mtmd::bitmap_ptr b(w.bitmap);
        if (!b || !mtmd_bitmap_is_audio(b.get())) {
            throw std::runtime_error("it cannot be decoded");
        }
        const size_t bytes = mtmd_bitmap_get_n_bytes(b.get());
        auto * out = (float *) malloc(bytes + 1);
        if (!out) {
            throw std::bad_alloc();
        }
        if (bytes > 0) {
            memcpy(out, mtmd_bitmap_get_data(b.get()), bytes);
        }
        *n_samples = bytes / sizeof(float);
        return out;
    });
}
