// Log-probabilities of given tokens, many rows at once.
#include "guard.hpp"

#include "llama.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

// The context's side of gl_ctx is in shim_ctx.cpp.
llama_context * gl_llama(gl_ctx * c);

// As llama-perplexity's: exponentials in float, their sum in double. The result is NaN if a logit is, or all are -inf.
static double log_softmax(const float * logits, int n, int token) {
    float max = -INFINITY;
    for (int i = 0; i < n; i++) {
        max = logits[i] > max ? logits[i] : max;
    }
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += expf(logits[i] - max);
    }
    return (double) logits[token] - max - std::log(sum);
}

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
