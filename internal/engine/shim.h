// The C side of package engine: plain C functions over llama.cpp and its common library.
// Every function that can throw catches what is thrown and reports it in gl_err.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct llama_model;
struct llama_vocab;
typedef struct gl_ctx gl_ctx;         // a llama_context, its thread pools and its abort flag
typedef struct gl_sampler gl_sampler; // a common_sampler

// code 0 is success.
typedef struct { int code; char msg[1000]; } gl_err;

enum { GL_OK = 0, GL_FAIL = 1 };

// ---- process (shim.cpp) ----
void gl_init(void);
void gl_log_level(int level);              // highest level handed to Go, 0 none
void gl_capture_begin(void);               // start to remember error lines
void gl_capture_end(char * dst, size_t n); // the first one since begin, or ""
bool gl_numa_init(int strategy);

int32_t * gl_flag_new(void); // an int32 that C reads while it computes
void gl_flag_set(int32_t * f, int32_t v);
void gl_flag_free(int32_t * f);

// ---- model (shim.cpp) ----
typedef struct { const char * key; int tag; int64_t i; double f; bool b; const char * s; } gl_kv;

typedef struct {
    const char ** paths; size_t n_paths;
    const char ** devices; int n_devices; bool no_devices;
    const char ** buft_patterns; const char ** bufts; int n_bufts;
    const gl_kv * kvs; int n_kvs;
    const float * tensor_split; int n_tensor_split;
    const uint64_t * fit_target; int n_fit_target;
    int n_gpu_layers, main_gpu, split_mode, load_mode, lazy_mode;
    bool vocab_only, check_tensors, no_extra_bufts, no_host, no_alloc;
    bool fit; uint32_t fit_min_ctx;
    uintptr_t progress; // cgo.Handle, 0 for none
    int32_t * cancel;
} gl_model_params;

typedef struct {
    uint32_t n_ctx, n_batch, n_ubatch, n_seq_max, n_outputs_max, n_outputs_max_per_seq, yarn_orig_ctx;
    int rope_scaling, pooling, attention, flash_attn, type_k, type_v;
    float rope_freq_base, rope_freq_scale, yarn_ext, yarn_attn, yarn_beta_fast, yarn_beta_slow;
    bool no_kv_offload, no_perf, no_op_offload, swa_full, kv_unified;
    void * eval, * eval_data; // a tap: ggml_backend_sched_eval_callback and its argument; null for none
} gl_ctx_params;

typedef struct { int n_threads, prio, poll; bool strict; const int * cpus; int n_cpus; } gl_threads;

// Loads a model. cp is what the context will be made with: fitting reads it, and writes n_ctx.
struct llama_model * gl_model_load(const gl_model_params * p, gl_ctx_params * cp, gl_err * err);
void gl_model_free(struct llama_model * m);
bool gl_have_gpu(void);

typedef struct {
    uint64_t size, n_params;
    int n_ctx_train, n_embd, n_layer, n_head, n_head_kv, n_vocab, n_swa, vocab_type;
    bool has_encoder, has_decoder, recurrent, hybrid, diffusion;
    int32_t decoder_start;
} gl_model_info;
void gl_model_get_info(const struct llama_model * m, gl_model_info * out);
// Strings: the length, or -1 for none; at most n bytes with the final 0 are written.
int gl_model_desc(const struct llama_model * m, char * dst, size_t n);
int gl_model_ftype(const struct llama_model * m, char * dst, size_t n);
int gl_model_meta_count(const struct llama_model * m);
int gl_model_meta_key(const struct llama_model * m, int i, char * dst, size_t n);
int gl_model_meta_val(const struct llama_model * m, const char * key, char * dst, size_t n);
const char * gl_model_chat_template(const struct llama_model * m, const char * name);

// ---- vocabulary (shim_text.cpp) ----
typedef struct { int32_t bos, eos, eot, sep, nl, pad, mask; bool add_bos, add_eos, add_sep; } gl_specials;
void gl_vocab_specials(const struct llama_model * m, gl_specials * out);
// The number of tokens, or minus the number that did not fit in cap.
int32_t gl_tokenize(const struct llama_model * m, const char * text, int32_t len, int32_t * out, int32_t cap,
                    bool add_special, bool parse_special, gl_err * err);
// The bytes of the pieces, or minus the number that did not fit.
int64_t gl_pieces(const struct llama_model * m, const int32_t * tokens, int n, bool special, char * dst, int64_t cap, gl_err * err);
// The ids of the special tokens, as the tokenizer defines them; the number there are.
int gl_special_ids(const struct llama_model * m, int32_t * ids, int cap);
bool gl_is_eog(const struct llama_model * m, int32_t t);
bool gl_is_control(const struct llama_model * m, int32_t t);
const char * gl_token_text(const struct llama_model * m, int32_t t);
int gl_token_attr(const struct llama_model * m, int32_t t); // enum llama_token_attr
float gl_token_score(const struct llama_model * m, int32_t t);
// The flags (enum of src/unicode.h) and lower-case forms of n code points from first on.
void gl_unicode(uint32_t first, int n, uint16_t * flags, uint32_t * lower);

// ---- grammar (shim_text.cpp) ----
bool gl_grammar_check(const struct llama_model * m, const char * gbnf, gl_err * err);
// A malloc'd string; *incomplete is malloc'd too and empty if the grammar is exact.
char * gl_schema_to_grammar(const char * schema, char ** incomplete, gl_err * err);

// ---- chat templates (shim_chat.cpp) ----
typedef struct gl_chat gl_chat;               // a compiled template, and the one for tools if there are two
typedef struct gl_chat_parser gl_chat_parser; // reads the outputs of one prompt

// work is how many steps of the interpreter may be taken. source is Jinja text, or with builtin the name of a template that llama.cpp has in C++; tools is
// Jinja text or "". bos and eos are used without a model.
gl_chat * gl_chat_new(const struct llama_model * m, const char * source, const char * tools, bool builtin,
                      const char * bos, const char * eos, size_t work, gl_err * err);
void gl_chat_free(gl_chat * c);
int gl_chat_builtin(const char ** out, int n);
// What comes back is JSON in a malloc'd string; for what goes in and out see chatwire.go.
char * gl_chat_caps(const gl_chat * c, gl_err * err);
char * gl_chat_apply(const gl_chat * c, const char * input, size_t work, gl_err * err);
// The steps that the last gl_chat_new or gl_chat_apply took, and how many it might have: for tests.
size_t gl_template_steps(size_t * allowed);
gl_chat_parser * gl_chat_parser_new(const char * input, gl_err * err);
void gl_chat_parser_free(gl_chat_parser * p);
char * gl_chat_parse(const gl_chat_parser * p, const char * text, size_t n, bool partial, gl_err * err);

// ---- context (shim_ctx.cpp) ----
// A context with a host computes on the host's threads and ends when the host is to; it is freed before it.
gl_ctx * gl_ctx_new(struct llama_model * m, const gl_ctx_params * p, const gl_threads * gen, const gl_threads * batch,
                    gl_ctx * host, gl_err * err);
void gl_ctx_free(gl_ctx * c);
bool gl_set_priority(int prio);

typedef struct { int n_ctx, n_ctx_seq, n_batch, n_ubatch, n_seq_max, pooling; bool causal; } gl_ctx_info;
void gl_ctx_get_info(const gl_ctx * c, gl_ctx_info * out);
int32_t * gl_ctx_abort_flag(gl_ctx * c);
// Puts threads to sleep that wait for the next batch by spinning. It wakes them.
void gl_ctx_rest(gl_ctx * c);

// llama_decode's or llama_encode's return value; err only for an exception.
// Token i belongs to the n_seq[i] sequences from seq[i] on, to that alone without n_seq.
int gl_decode(gl_ctx * c, bool encode, const int32_t * tokens, const int32_t * pos, const int32_t * seq, const int32_t * n_seq,
              const int8_t * out, int n, gl_err * err);
bool gl_warmup(gl_ctx * c, gl_err * err);

// ---- hidden states (shim_states.cpp) ----
typedef struct gl_states gl_states;
void * gl_states_eval(void); // what gl_ctx_params.eval is for it; eval_data is the gl_states
gl_states * gl_states_new(int n_embd, int first, int last);
void gl_states_free(gl_states * s);
// As gl_decode; adds the states of token i to slot[i] of sum, [slot][layer][n_embd], unless that is below 0. *added is
// the number of rows that were added. The pointers are used during the call only.
int gl_decode_states(gl_ctx * c, gl_states * s, const int32_t * tokens, const int32_t * pos, const int32_t * seq, const int32_t * n_seq,
                     const int8_t * out, int n, const int32_t * slot, double * sum, int64_t * added, gl_err * err);

float * gl_logits(gl_ctx * c, int i);
float * gl_embeddings(gl_ctx * c, int i, int seq);
// out[i] is the log-probability of tokens[i] after row rows[i] of the last batch (shim_score.cpp).
bool gl_logprobs(gl_ctx * c, const int32_t * rows, const int32_t * tokens, int n, double * out, gl_err * err);
double gl_log_softmax(const float * logits, int n, int token);

void gl_mem_clear(gl_ctx * c);
bool gl_mem_rm(gl_ctx * c, int seq, int p0, int p1);
void gl_mem_cp(gl_ctx * c, int src, int dst, int p0, int p1);
void gl_mem_keep(gl_ctx * c, int seq);
void gl_mem_add(gl_ctx * c, int seq, int p0, int p1, int delta);
int gl_mem_min(gl_ctx * c, int seq);
int gl_mem_max(gl_ctx * c, int seq);
bool gl_mem_can_shift(gl_ctx * c);

// seq < 0 means the whole context.
size_t gl_state_size(gl_ctx * c, int seq, gl_err * err);
size_t gl_state_get(gl_ctx * c, int seq, uint8_t * dst, size_t n, gl_err * err);
size_t gl_state_set(gl_ctx * c, int seq, const uint8_t * src, size_t n, gl_err * err);

typedef struct { double load_ms, prompt_ms, gen_ms; int n_prompt, n_gen; } gl_perf;
void gl_perf_get(gl_ctx * c, gl_perf * out);
void gl_perf_reset(gl_ctx * c);

void * gl_lora_load(struct llama_model * m, const char * path, gl_err * err);
void gl_lora_free(void * adapter);
bool gl_lora_set(gl_ctx * c, void ** adapters, float * scales, int n, gl_err * err);
bool gl_cvec_set(gl_ctx * c, const float * data, size_t n, int n_embd, int start, int end, gl_err * err);

// ---- sampler (shim_ctx.cpp) ----
typedef struct { int32_t token; float bias; } gl_bias;

typedef struct {
    uint32_t seed;
    int n_prev, n_probs, min_keep, top_k;
    float top_p, min_p, xtc_probability, xtc_threshold, typ_p, temp, dynatemp_range, dynatemp_exponent;
    int penalty_last_n;
    float penalty_repeat, penalty_freq, penalty_present, dry_multiplier, dry_base;
    int dry_allowed_length, dry_penalty_last_n;
    float adaptive_target, adaptive_decay;
    int mirostat;
    float top_n_sigma, mirostat_tau, mirostat_eta;
    bool ignore_eos, no_perf;
    const char ** dry_breakers; int n_dry_breakers;
    const int * samplers; int n_samplers;
    const char * grammar;
    const gl_bias * biases; int n_biases;
    const char * answer; // what belongs to the answer to a conversation, as JSON (shim_chat.cpp); empty for none
} gl_sampling;

gl_sampler * gl_sampler_new(const struct llama_model * m, const gl_sampling * p, gl_err * err);
gl_sampler * gl_sampler_clone(gl_sampler * s, gl_err * err);
void gl_sampler_free(gl_sampler * s);
void gl_sampler_reset(gl_sampler * s);
int32_t gl_sampler_sample(gl_sampler * s, gl_ctx * c, int i, gl_err * err);
bool gl_sampler_accept(gl_sampler * s, int32_t token, bool generated, gl_err * err);
char * gl_sampler_describe(gl_sampler * s, gl_err * err); // malloc'd

// ---- collector of importance matrices (shim_collect.cpp) ----
typedef struct gl_collect gl_collect;

typedef struct {
    bool conflict;   // weights that shared an input did not always: reset it to share none, and do it again
    bool bad;        // a value was not finite: row and column of the input of a weight (of an expert: among its rows)
    int bad_weight;
    int64_t bad_row, bad_column;
    float bad_value;
    int unsupported; // 1 + the number of a weight whose input is not float32; 0 for none
    char error[300]; // "" for none
} gl_collect_state;

// One distinct input since the reset, and the numbers of the weights that share it. The memory is the collector's.
typedef struct {
    const double * sum2, * sum; // n
    const int64_t * counts;     // n_counts
    int64_t n, n_counts;
    const int * weights;
    int n_weights;
} gl_collect_input;

gl_collect * gl_collect_new(const char ** names, int n, gl_err * err);
void gl_collect_free(gl_collect * c);
void * gl_collect_eval(void); // the callback; its argument is the collector
void gl_collect_bind(gl_collect * c, gl_ctx * ctx); // the threads to work with
// on: collect; skip_head: end the graph before the model's head, whose logits are then of no use.
void gl_collect_mode(gl_collect * c, bool on, bool skip_head);
void gl_collect_reset(gl_collect * c, bool share);
gl_collect_state gl_collect_check(gl_collect * c);
int gl_collect_inputs(const gl_collect * c);
gl_collect_input gl_collect_get(const gl_collect * c, int i);

// ---- speculation (shim_spec.cpp) ----
typedef struct gl_spec gl_spec;
typedef struct { int n, m, hits; } gl_ngram; // tokens looked up, tokens drafted, how often they must have come

typedef struct {
    const int * types; int n_types; // enum common_speculative_type
    int n_max, n_min; float p_min;  // of a draft model
    int mod_match, mod_min, mod_max;
    gl_ngram simple, map_k, map_k4v;
} gl_spec_params;

// What may follow token last, which goes to position pos of seq: at most max tokens; n of them came.
typedef struct { int seq, pos, max, n; int32_t last; } gl_spec_req;

// Whether the last tokens of a sequence can be removed. It clears the memory.
bool gl_ctx_can_rollback(gl_ctx * c, gl_err * err);
gl_spec * gl_spec_new(gl_ctx * target, gl_ctx * draft, const gl_spec_params * p, int n_seq, gl_err * err);
void gl_spec_free(gl_spec * s);
bool gl_spec_begin(gl_spec * s, int seq, const int32_t * tokens, int n, gl_err * err);
bool gl_spec_move(gl_spec * s, int from, int to, gl_err * err);
// Gives the draft's context what the target's has evaluated.
bool gl_spec_process(gl_spec * s, const int32_t * tokens, const int32_t * pos, const int32_t * seq, int n, gl_err * err);
// The tokens for request i are at out[i*stride]; stride is the largest max.
bool gl_spec_draft(gl_spec * s, gl_spec_req * reqs, int n, int32_t * out, int stride, gl_err * err);
bool gl_spec_accept(gl_spec * s, int seq, int n, gl_err * err);

#ifdef __cplusplus
}
#endif
