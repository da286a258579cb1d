// Hidden states: sums of rows of the tensors l_out-k, taken while the graph is computed.
#include "guard.hpp"

#include "ggml-backend.h"
#include "ggml.h"

#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

struct gl_states {
    int n_embd, first, last; // layers, both ends included
    // The call in progress; null between calls.
    const int32_t * tokens = nullptr;
    const int8_t *  out    = nullptr;
    const int32_t * slot   = nullptr;
    double *        sum    = nullptr;
    int             n      = 0;
    int64_t         added  = 0; // rows
    // The micro-batch in progress: tokens begin to end of the call.
    int              begin = 0, end = 0;
    bool             fresh = false; // none of its layers has come yet
    std::vector<int> outputs;       // its tokens with output
    std::vector<float> row;
    std::string        error;
};

// start_ubatch is called when the embeddings of a micro-batch are looked up. llama.cpp computes the tokens of a batch in
// their order, or not: it may put those of different sequences into another, and only the ids tell.
static void start_ubatch(gl_states * s, const ggml_tensor * ids) {
    if (s->fresh) {
        return; // an architecture may look the same tokens up in several tables
    }
    const int n = (int) ggml_nelements(ids);
    std::vector<int32_t> got(n);
    ggml_backend_tensor_get(ids, got.data(), 0, n * sizeof(int32_t));
    s->begin = s->end;
    s->end += n;
    s->fresh = true;
    if (s->end > s->n || memcmp(got.data(), s->tokens + s->begin, n * sizeof(int32_t)) != 0) {
        throw std::runtime_error("hidden states: the model computes the tokens of a batch in an order of its own");
    }
    s->outputs.clear();
    for (int i = s->begin; i < s->end; i++) {
        if (s->out[i]) {
            s->outputs.push_back(i);
        }
    }
}

// add_layer adds the rows of a layer to their slots. The last layer has those of the outputs only.
static void add_layer(gl_states * s, const ggml_tensor * t, int layer) {
    const int64_t rows = t->ne[1], all = s->end - s->begin;
    if (t->type != GGML_TYPE_F32 || t->ne[0] != s->n_embd || t->nb[0] != sizeof(float) || t->ne[2] * t->ne[3] != 1 ||
        (rows != all && rows != (int64_t) s->outputs.size())) {
        char text[200];
        snprintf(text, sizeof(text), "hidden states: %s has %lld x %lld x %lld values of type %s, want %d for each of %lld tokens", t->name,
                 (long long) t->ne[0], (long long) rows, (long long) t->ne[2], ggml_type_name(t->type), s->n_embd, (long long) all);
        throw std::runtime_error(text);
    }
    s->fresh = false;
    const int layers = s->last - s->first + 1;
    for (int64_t r = 0; r < rows; r++) {
        const int i = rows == all ? s->begin + (int) r : s->outputs[r];
        if (s->slot[i] < 0) {
            continue;
        }
        ggml_backend_tensor_get(t, s->row.data(), r * t->nb[1], s->n_embd * sizeof(float));
        double * dst = s->sum + ((int64_t) s->slot[i] * layers + layer - s->first) * s->n_embd;
        for (int k = 0; k < s->n_embd; k++) {
            dst[k] += s->row[k];
        }
        s->added++;
    }
}

// layer_of returns k of a tensor named l_out-k, or -1.
static int layer_of(const ggml_tensor * t) {
    int layer = -1, end = 0;
    return strncmp(t->name, "l_out-", 6) == 0 && sscanf(t->name + 6, "%d%n", &layer, &end) == 1 && t->name[6 + end] == 0 ? layer : -1;
}

// A ggml_backend_sched_eval_callback: with ask whether the tensor is wanted, then with what was computed. False for the
// latter ends the computation, which the layers above and the output are not needed for.
static bool on_tensor(ggml_tensor * t, bool ask, void * data) {
    auto * s = (gl_states *) data;
    if (!s->tokens || !s->error.empty()) {
        return !ask;
    }
    try {
        if (ask && t->op == GGML_OP_GET_ROWS && strstr(t->src[1]->name, "inp_tokens")) {
            start_ubatch(s, t->src[1]);
        }
        const int layer = layer_of(t);
        if (layer < s->first || layer > s->last) {
            return !ask;
        }
        if (ask) {
            return true;
        }
        add_layer(s, t, layer);
        return layer < s->last;
    } catch (const std::exception & e) {
        s->error = e.what();
        return false;
    }
}

void * gl_states_eval(void) { return (void *) on_tensor; }

gl_states * gl_states_new(int n_embd, int first, int last) {
    auto * s  = new gl_states;
    s->n_embd = n_embd;
    s->first  = first;
    s->last   = last;
    s->row.resize(n_embd);
    return s;
}

void gl_states_free(gl_states * s) { delete s; }

int gl_decode_states(gl_ctx * c, gl_states * s, const int32_t * tokens, const int32_t * pos, const int32_t * seq, const int32_t * n_seq,
                     const int8_t * out, int n, const int32_t * slot, double * sum, int64_t * added, gl_err * err) {
    s->tokens = tokens;
    s->out    = out;
    s->slot   = slot;
    s->sum    = sum;
    s->n      = n;
    s->added  = 0;
    s->begin = s->end = 0;
    s->fresh          = false;
    s->error.clear();
    const int rc = gl_decode(c, false, tokens, pos, seq, n_seq, out, n, err);
    s->tokens = nullptr;
    *added    = s->added;
    if (rc == 0 && !s->error.empty()) {
        err->code = GL_FAIL;
        snprintf(err->msg, sizeof(err->msg), "%s", s->error.c_str());
        return -1;
    }
    return rc;
}
