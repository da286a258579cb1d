// The C side of media: plain C functions over libmtmd. As in shim.h, what is thrown comes back in gl_err.
#pragma once

#include "shim.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gl_media gl_media;   // an mtmd_context and what can stop it
typedef struct gl_chunks gl_chunks; // a tokenized prompt, with the preprocessed media

typedef struct {
    const char * path;
    bool use_gpu; const char * device; // "" is the first one
    int n_threads, flash_attn;
    bool warmup;
    int min_tokens, max_tokens, batch_max_tokens; // <= 0: the file's
    uintptr_t progress; // cgo.Handle, 0 for none
} gl_media_params;

typedef struct {
    bool vision, audio, mrope, non_causal_image, non_causal_audio;
    int sample_rate, n_embd;
} gl_media_info;

gl_media * gl_media_new(struct llama_model * m, const gl_media_params * p, gl_err * err);
void gl_media_free(gl_media * m);
void gl_media_get_info(gl_media * m, gl_media_info * out);
int32_t * gl_media_abort_flag(gl_media * m); // set while a gl_media_encode runs, it ends that
// The floats of an embedding that the text model takes.
int gl_model_n_embd_inp(const struct llama_model * m);

// One part of a prompt: text if kind is 0, an image if 1, sound if 2. Media without data are placeholders.
typedef struct {
    int kind;
    const char * text; size_t len; bool parse_special;
    const uint8_t * rgb; uint32_t nx, ny;
    const float * pcm; size_t n_samples;
} gl_media_part;

typedef struct {
    int kind; // as of gl_media_part
    int n_tokens, n_pos;
    int media; // number of the media part that it is of, -1 for text
    bool non_causal;
    const int32_t * tokens; // of text
} gl_chunk;

// Without BOS and EOS. Media parts are copied. May run in several threads at once.
gl_chunks * gl_media_tokenize(gl_media * m, const gl_media_part * parts, int n, gl_err * err);
void gl_chunks_free(gl_chunks * c);
int gl_chunks_count(const gl_chunks * c);
void gl_chunks_get(const gl_chunks * c, gl_chunk * out); // gl_chunks_count of them

// Encodes chunks idx[0], idx[1], ... in one run, as many of the n as go together, and writes their embeddings one after
// the other to out. The number of chunks encoded; 0 for an error.
int gl_media_encode(gl_media * m, const gl_chunks * c, const int32_t * idx, int n, float * out, gl_err * err);
// A chunk's embeddings on their way into a sequence.
typedef struct {
    const gl_chunks * chunks; int chunk;
    const float * embd;
    int pos0, seq;
    bool logits; // after the last of them
} gl_span;

// Evaluates spans: one of any length, or several that fit one batch and are alike in causality. llama_decode's return value.
int gl_media_decode(gl_media * m, gl_ctx * ctx, const gl_span * spans, int n, gl_err * err);
// Decodes a sound file to mono at the rate of the media's encoder: malloc'd, NULL for an error.
float * gl_media_audio(gl_media * m, const uint8_t * data, size_t n, size_t * n_samples, gl_err * err);

#ifdef __cplusplus
}
#endif
