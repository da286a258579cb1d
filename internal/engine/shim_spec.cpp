// Speculative decoding: llama.cpp's common_speculative, with what it leaves to its callers.
#include "guard.hpp"

#include "common.h"
#include "llama.h"
#include "speculative.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

// The context's side of gl_ctx is in shim_ctx.cpp.
llama_context * gl_llama(gl_ctx * c);
void            gl_compute(gl_ctx * c, const std::function<void()> & f);

// A stage is a way to draft, or several; a sequence asks the next one only if the one before had nothing.
struct gl_stage {
    common_params_speculative           params;
    bool                                each = false; // a state for each sequence, made anew with each text
    std::vector<common_speculative_ptr> specs;        // one, or one for each sequence

    common_speculative * of(int seq) const { return specs[each ? seq : 0].get(); }
    int id(int seq) const { return each ? 0 : seq; }
};

struct gl_spec {
    gl_ctx *                  target;
    gl_ctx *                  draft; // null without a draft model
    int                       n_seq;
    int                       n_vocab, n_vocab_draft;
    std::vector<gl_stage>     stages;
    std::vector<llama_tokens> history; // per sequence, evaluated or about to be
    std::vector<llama_tokens> drafted; // per sequence, not yet accepted
    std::vector<int>          source;  // per sequence, the stage that drafted; -1 none
};

static bool is_draft(enum common_speculative_type t) {
    return t >= COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE && t <= COMMON_SPECULATIVE_TYPE_DRAFT_DSPARK;
}

static common_speculative_ptr make_spec(gl_stage & st, int n_seq) {
    common_speculative_ptr s(common_speculative_init(st.params, n_seq));
    if (!s) {
        throw std::runtime_error("there is no way to draft");
    }
    return s;
}

static common_params_speculative_ngram_map to_ngram(const gl_ngram & n) {
    common_params_speculative_ngram_map m;
    m.size_n = n.n, m.size_m = n.m, m.min_hits = n.hits;
    return m;
}

static common_params_speculative to_params(const gl_spec * s, const gl_spec_params * p) {
    common_params_speculative o;
    o.types.clear();
    o.draft.n_max       = p->n_max;
    o.draft.n_min       = p->n_min;
    o.draft.p_min       = p->p_min;
    o.draft.ctx_tgt     = gl_llama(s->target);
    o.draft.ctx_dft     = s->draft ? gl_llama(s->draft) : nullptr;
    o.ngram_mod.n_match = p->mod_match;
    o.ngram_mod.n_min   = p->mod_min;
    o.ngram_mod.n_max   = p->mod_max;
    o.ngram_simple      = to_ngram(p->simple);
    o.ngram_map_k       = to_ngram(p->map_k);
    o.ngram_map_k4v     = to_ngram(p->map_k4v);
    return o;
}

// Stages in common_speculative_init's order. ngram-cache does not forget a text when the next one begins, so each text
// has its own; the others have one state for all sequences, which ngram-mod shares between texts on purpose.
static void make_stages(gl_spec * s, const gl_spec_params * p) {
    const auto base = to_params(s, p);
    gl_stage   shared{ base }, cache{ base, true }, model{ base };
    for (int i = 0; i < p->n_types; i++) {
        const auto t = (enum common_speculative_type) p->types[i];
        (is_draft(t) ? model : t == COMMON_SPECULATIVE_TYPE_NGRAM_CACHE ? cache : shared).params.types.push_back(t);
    }
    for (auto * st : { &shared, &cache, &model }) {
        if (st->params.types.empty()) {
            continue;
        }
        for (int i = 0; i < (st->each ? s->n_seq : 1); i++) {
            st->specs.push_back(make_spec(*st, st->each ? 1 : s->n_seq));
        }
        s->stages.push_back(std::move(*st));
    }
}

bool gl_ctx_can_rollback(gl_ctx * c, gl_err * err) {
    return guard(err, false, [&] {
        bool ok = false;
        gl_compute(c, [&] { ok = common_context_can_seq_rm(gl_llama(c)) == COMMON_CONTEXT_SEQ_RM_TYPE_PART; });
        return ok;
    });
}

gl_spec * gl_spec_new(gl_ctx * target, gl_ctx * draft, const gl_spec_params * p, int n_seq, gl_err * err) {
    return guard(err, (gl_spec *) nullptr, [&] {
        auto n_vocab = [](gl_ctx * c) { return llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(gl_llama(c)))); };
        std::unique_ptr<gl_spec> s(new gl_spec{ target, draft, n_seq, n_vocab(target), draft ? n_vocab(draft) : 0, {}, {}, {}, {} });
        s->history.resize(n_seq);
        s->drafted.resize(n_seq);
        s->source.assign(n_seq, -1);
        make_stages(s.get(), p);
        return s.release();
    });
}

void gl_spec_free(gl_spec * s) { delete s; }

static void begin(gl_spec * s, int seq, llama_tokens tokens) {
    s->history[seq] = std::move(tokens);
    s->drafted[seq].clear();
    s->source[seq] = -1;
    for (auto & st : s->stages) {
        if (st.each) {
            st.specs[seq] = make_spec(st, 1);
        }
        // ngram-map keeps what it knows of a shorter text before, unless that is seen to be gone.
        common_speculative_begin(st.of(seq), st.id(seq), {});
        common_speculative_begin(st.of(seq), st.id(seq), s->history[seq]);
    }
}

bool gl_spec_begin(gl_spec * s, int seq, const int32_t * tokens, int n, gl_err * err) {
    return guard(err, false, [&] {
        begin(s, seq, llama_tokens(tokens, tokens + n));
        return true;
    });
}

bool gl_spec_move(gl_spec * s, int from, int to, gl_err * err) {
    return guard(err, false, [&] {
        begin(s, to, s->history[from]);
        return true;
    });
}

bool gl_spec_process(gl_spec * s, const int32_t * tokens, const int32_t * pos, const int32_t * seq, int n, gl_err * err) {
    return guard(err, false, [&] {
        if (!s->draft) {
            return true;
        }
        // The vocabularies may differ in length at the end: a token that the draft lacks is some other to it.
        llama_tokens known(tokens, tokens + n);
        for (auto & t : known) {
            t = t < s->n_vocab_draft ? t : 0;
        }
        std::vector<int32_t>   n_seq(n, 1);
        std::vector<int32_t *> seqs(n);
        for (int i = 0; i < n; i++) {
            seqs[i] = const_cast<int32_t *>(seq + i);
        }
        llama_batch b  = { n, known.data(), nullptr, const_cast<int32_t *>(pos), n_seq.data(), seqs.data(), nullptr };
        bool        ok = true;
        gl_compute(s->draft, [&] {
            for (auto & st : s->stages) {
                ok = ok && common_speculative_process(st.specs[0].get(), b);
            }
            llama_synchronize(gl_llama(s->draft));
        });
        if (!ok) {
            throw std::runtime_error("the draft model cannot evaluate " + std::to_string(n) + " tokens");
        }
        return true;
    });
}

// Asks a stage about the requests that have no draft yet.
static void ask(gl_spec * s, int stage, const gl_spec_req * reqs, int n) {
    const auto & st = s->stages[stage];
    const bool   model = is_draft(st.params.types[0]);
    for (int i = 0; i < n; i++) {
        const auto & r = reqs[i];
        if (!s->drafted[r.seq].empty() || r.max < 1 || (model && r.last >= s->n_vocab_draft)) {
            continue;
        }
        common_speculative_get_draft_params(st.of(r.seq), st.id(r.seq)) = { true, r.max, r.pos, r.last, &s->history[r.seq], &s->drafted[r.seq] };
        if (st.each) {
            common_speculative_draft(st.of(r.seq));
        }
    }
    if (!st.each) {
        common_speculative_draft(st.specs[0].get());
    }
    for (int i = 0; i < n; i++) {
        auto & d = s->drafted[reqs[i].seq];
        if (s->source[reqs[i].seq] >= 0 || d.empty()) {
            continue;
        }
        s->source[reqs[i].seq] = stage;
        d.resize(std::min<size_t>(d.size(), reqs[i].max));
        d.erase(std::find_if(d.begin(), d.end(), [&](llama_token t) { return t < 0 || t >= s->n_vocab; }), d.end());
    }
    if (model) {
        for (int i = 0; i < n; i++) { // what it evaluated comes again, with what the target evaluates
            llama_memory_seq_rm(llama_get_memory(gl_llama(s->draft)), reqs[i].seq, reqs[i].pos, -1);
        }
    }
}

bool gl_spec_draft(gl_spec * s, gl_spec_req * reqs, int n, int32_t * out, int stride, gl_err * err) {
    return guard(err, false, [&] {
        for (int i = 0; i < n; i++) {
            s->drafted[reqs[i].seq].clear();
            s->source[reqs[i].seq] = -1;
        }
        gl_compute(s->draft ? s->draft : s->target, [&] {
            for (size_t k = 0; k < s->stages.size(); k++) {
                ask(s, (int) k, reqs, n);
            }
        });
        for (int i = 0; i < n; i++) {
            const auto & d = s->drafted[reqs[i].seq];
            reqs[i].n = (int) d.size();
            std::copy(d.begin(), d.end(), out + (size_t) i * stride);
            s->history[reqs[i].seq].push_back(reqs[i].last);
        }
        return true;
    });
}

bool gl_spec_accept(gl_spec * s, int seq, int n, gl_err * err) {
    return guard(err, false, [&] {
        auto & d = s->drafted[seq];
        if (n < 0 || n > (int) d.size() || s->source[seq] < 0) {
            throw std::runtime_error("accept " + std::to_string(n) + " of " + std::to_string(d.size()) + " drafted tokens");
        }
        const auto & st = s->stages[s->source[seq]];
        common_speculative_accept(st.of(seq), st.id(seq), n);
        s->history[seq].insert(s->history[seq].end(), d.begin(), d.begin() + n);
        d.clear();
        s->source[seq] = -1;
        return true;
    });
}
