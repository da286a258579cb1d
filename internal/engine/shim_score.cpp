// Log-probabilities of given tokens, many rows at once.
#include "guard.hpp"

#include "llama.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

// The context's side of gl_ctx is in shim_ctx.cpp.
llama_context * gl_llama(gl_ctx * c);

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define GL_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define GL_CLONES
#endif

// expf of x from -150 to 0, in a form that compilers turn into vectors: in double 2^n times a polynomial for the rest, which
// lies within half of ln 2 and is off by 1e-13 there, then rounded. libm's expf is nearly always the nearest float, too: the
// sums agree to some 1e-13.
__attribute__((always_inline)) static inline float exp_above_150(float x) {
    const double t = x;
    const double shifted = t * 1.4426950408889634 + 6755399441055744.0; // 1.5 * 2^52: a whole number n stands in the last bits
    const double n = shifted - 6755399441055744.0;
    const double r = t - n * 0.6931471805599453;
    double p = 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof(bits));
    bits = (bits + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof(scale));
    return (float) (p * scale);
}

// As llama-perplexity's: exponentials in float, their sum in double. The result is NaN if a logit is, or the largest is
// infinite.
GL_CLONES static double log_softmax(const float * logits, int n, int token) {
    constexpr int lanes = 16, block = 256;
    float maxs[lanes];
    std::fill_n(maxs, lanes, -INFINITY);
    int i = 0;
    for (; i + lanes <= n; i += lanes) {
        for (int l = 0; l < lanes; l++) {
            maxs[l] = logits[i + l] > maxs[l] ? logits[i + l] : maxs[l];
        }
    }
    float max = *std::max_element(maxs, maxs + lanes);
    for (; i < n; i++) {
        max = logits[i] > max ? logits[i] : max;
    }
    int nan = 0;
    for (i = 0; i < n; i++) {
        nan |= logits[i] != logits[i];
    }
    if (nan || std::isinf(max)) {
        return NAN;
    }
    double sum = 0;
    for (i = 0; i < n; i += block) { // loops each of a kind that becomes vectors
        float     e[block];
        const int m = std::min(block, n - i);
        for (int k = 0; k < m; k++) {
            const float x = logits[i + k] - max;
            e[k] = x > -150.0f ? x : -150.0f;
        }
        for (int k = 0; k < m; k++) {
            e[k] = exp_above_150(e[k]);
        }
        double part[8] = {};
        for (int k = 0; k + 8 <= m; k += 8) {
            for (int l = 0; l < 8; l++) {
                part[l] += e[k + l];
            }
        }
        for (int k = m - m % 8; k < m; k++) {
            part[0] += e[k];
        }
        for (double p : part) {
            sum += p;
        }
    }
    return logits[token] - max - std::log(sum); // in float, then in double
}

double gl_log_softmax(const float * logits, int n, int token) { return log_softmax(logits, n, token); }

bool gl_logprobs(gl_ctx * c, const int32_t * rows, const int32_t * tokens, int n, double * out, gl_err * err) {
    return guard(err, false, [&] {
        llama_context *           lctx    = gl_llama(c);
        const int                 n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(lctx)));
        std::vector<const float *> logits(n);
        for (int i = 0; i < n; i++) {
            logits[i] = llama_get_logits_ith(lctx, rows[i]);
            if (!logits[i]) {
                throw std::runtime_error("row " + std::to_string(rows[i]) + " has no logits");
            }
        }
        std::atomic<int> next{ 0 };
        auto work = [&] {
            for (int i = next++; i < n; i = next++) {
                out[i] = log_softmax(logits[i], n_vocab, tokens[i]);
            }
        };
        // A thread costs as much as some 10,000 exponentials.
        const int n_threads = std::min<long>(llama_n_threads_batch(lctx), (long) n * n_vocab / 100000);
        std::vector<std::thread> threads;
        for (int t = 1; t < n_threads; t++) {
            try {
                threads.emplace_back(work);
            } catch (const std::system_error &) {
                break; // the system gives no more: the others do it
            }
        }
        work();
        for (auto & t : threads) {
            t.join();
        }
        return true;
    });
}
