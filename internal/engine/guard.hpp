// What the shim's source files share.
#pragma once

#include "shim.h"

#include <cstdio>
#include <exception>
#include <functional>

// Runs f; an exception becomes an error and the result bad.
template <typename T, typename F> T guard(gl_err * err, T bad, F f) {
    err->code   = GL_OK;
    err->msg[0] = 0;
    try {
        return f();
    } catch (const std::exception & e) {
        err->code = GL_FAIL;
        snprintf(err->msg, sizeof(err->msg), "%s", e.what());
    } catch (...) {
        err->code = GL_FAIL;
        snprintf(err->msg, sizeof(err->msg), "unknown C++ exception");
    }
    return bad;
}

// While one lives, an assertion that fails on its thread outside of ggml's kernels throws: what libmtmd asserts on while it
// reads a file or builds a graph is the file's or the picture's fault, and nothing has begun to compute then.
struct gl_catch_aborts {
    gl_catch_aborts();
    ~gl_catch_aborts();
};

// Runs f on a thread with a stack of 1 GiB, of which only the pages used cost anything. The
// tokenizers' regular expressions and the grammar and schema parsers recurse with their input.
void gl_on_big_stack(const std::function<void()> & f);

// The size in bytes of the stack of the thread that gl_on_big_stack has made.
size_t gl_stack_size();

// Runs f on such a thread, where templates are bounded in time, memory and depth. Beyond, it throws. input is the size in bytes
// of what f works on, and work how many steps it may take.
void gl_on_budget(size_t input, size_t work, const std::function<void()> & f);

struct common_params_sampling;
struct llama_vocab;

// Sets what belongs to the answer to a conversation (gl_sampling.answer).
void gl_read_answer(common_params_sampling & s, const llama_vocab * v, const char * json);
