// Vocabulary, grammars and schemas.
#include "guard.hpp"

#include "json-schema-to-grammar.h"
#include "json.h"
#include "llama-grammar.h"
#include "llama.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

struct stack_job {
    const std::function<void()> & f;
    size_t                        size; // of the stack
    std::exception_ptr            thrown = nullptr;
};

static thread_local size_t stack_size = 0;

size_t gl_stack_size() { return stack_size; }

static void * run_and_keep(void * data) {
    auto * job = (stack_job *) data;
    stack_size = job->size;
    try {
        job->f();
    } catch (...) {
        job->thrown = std::current_exception();
    }
    return nullptr;
}

static constexpr size_t least_stack = (size_t) 1 << 24, most_stack = (size_t) 1 << 30;

// The stack is mapped, not touched, so it costs address space only. Where that is limited (ulimit -v), a quarter of what is left
// still serves all but hostile input, and leaves room for what f allocates and for other such threads.
static size_t fair_stack() {
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return most_stack;
    }
    size_t pages = 0;
    if (FILE * f = fopen("/proc/self/statm", "re")) { // there is none but on Linux, and no limit is enforced elsewhere
        if (fscanf(f, "%zu", &pages) != 1) {
            pages = 0;
        }
        fclose(f);
    }
    const size_t used = pages * (size_t) sysconf(_SC_PAGESIZE), all = limit.rlim_cur;
    return std::clamp((all - std::min(used, all)) / 4 & ~(least_stack - 1), least_stack, most_stack);
}

void gl_on_big_stack(const std::function<void()> & f) {
    stack_job      job{ f, fair_stack() };
    pthread_attr_t attr;
    pthread_t      thread;
    pthread_attr_init(&attr);
    int rc;
    while (pthread_attr_setstacksize(&attr, job.size), rc = pthread_create(&thread, &attr, run_and_keep, &job), rc != 0 && job.size > least_stack) {
        job.size >>= 1;
    }
    pthread_attr_destroy(&attr);
    if (rc != 0) {
        throw std::runtime_error(std::string("cannot start a thread: ") + strerror(rc));
    }
    pthread_join(thread, nullptr);
    if (job.thrown) {
        std::rethrow_exception(job.thrown);
    }
}

void gl_vocab_specials(const struct llama_model * m, gl_specials * o) {
    const llama_vocab * v = llama_model_get_vocab(m);
    o->bos     = llama_vocab_bos(v);
    o->eos     = llama_vocab_eos(v);
    o->eot     = llama_vocab_eot(v);
    o->sep     = llama_vocab_sep(v);
    o->nl      = llama_vocab_nl(v);
    o->pad     = llama_vocab_pad(v);
    o->mask    = llama_vocab_mask(v);
    o->add_bos = llama_vocab_get_add_bos(v);
    o->add_eos = llama_vocab_get_add_eos(v);
    o->add_sep = llama_vocab_get_add_sep(v);
}

int32_t gl_tokenize(const struct llama_model * m, const char * text, int32_t len, int32_t * out, int32_t cap,
                    bool add_special, bool parse_special, gl_err * err) {
    return guard(err, (int32_t) 0, [&] {
        const llama_vocab * v = llama_model_get_vocab(m);
        int32_t n = 0;
        gl_on_big_stack([&] { n = llama_tokenize(v, text, len, out, cap, add_special, parse_special); });
        return n;
    });
}

int64_t gl_pieces(const struct llama_model * m, const int32_t * tokens, int n, bool special, char * dst, int64_t cap, gl_err * err) {
    return guard(err, (int64_t) 0, [&]() -> int64_t {
        const llama_vocab * v = llama_model_get_vocab(m);
        int64_t need = 0;
        bool    fits = true;
        for (int i = 0; i < n; i++) {
            const int32_t room = fits ? (int32_t) std::min<int64_t>(cap - need, INT32_MAX) : 0;
            const int32_t got  = llama_token_to_piece(v, tokens[i], dst + need * (fits ? 1 : 0), room, 0, special);
            fits = fits && got >= 0;
            need += got < 0 ? -(int64_t) got : got;
        }
        return fits ? need : -need;
    });
}

int gl_special_ids(const struct llama_model * m, int32_t * ids, int cap) {
    const llama_vocab * v = llama_model_get_vocab(m);
    int n = 0;
    for (int32_t t = 0; t < llama_vocab_n_tokens(v); t++) {
        if (llama_vocab_get_attr(v, t) & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_USER_DEFINED | LLAMA_TOKEN_ATTR_UNKNOWN)) {
            if (n < cap) {
                ids[n] = t;
            }
            n++;
        }
    }
    return n;
}

int gl_token_attr(const struct llama_model * m, int32_t t) { return llama_vocab_get_attr(llama_model_get_vocab(m), t); }
bool gl_is_eog(const struct llama_model * m, int32_t t) { return llama_vocab_is_eog(llama_model_get_vocab(m), t); }
bool gl_is_control(const struct llama_model * m, int32_t t) { return llama_vocab_is_control(llama_model_get_vocab(m), t); }
const char * gl_token_text(const struct llama_model * m, int32_t t) { return llama_vocab_get_text(llama_model_get_vocab(m), t); }
float gl_token_score(const struct llama_model * m, int32_t t) { return llama_vocab_get_score(llama_model_get_vocab(m), t); }

// ---- grammar ----

// parse_space of src/llama-grammar.cpp, which is static there.
static const char * skip_space(const char * p) {
    for (;; p++) {
        if (*p == '#') {
            p += strcspn(p, "\r\n");
        }
        if (*p != ' ' && *p != '\t' && *p != '\r' && *p != '\n') {
            return p;
        }
    }
}

// llama_grammar_parser::parse prints its errors on stderr, so this is its loop, throwing.
static void parse_rules(llama_grammar_parser & parser, const char * gbnf) {
    for (const char * p = skip_space(gbnf); *p;) {
        p = parser.parse_rule(p);
    }
    for (const auto & rule : parser.rules) {
        if (rule.empty()) {
            throw std::runtime_error("a rule is not defined");
        }
        for (const auto & e : rule) {
            if (e.type != LLAMA_GRETYPE_RULE_REF || (e.value < parser.rules.size() && !parser.rules[e.value].empty())) {
                continue;
            }
            for (const auto & kv : parser.symbol_ids) {
                if (kv.second == e.value) {
                    throw std::runtime_error("rule '" + kv.first + "' is not defined");
                }
            }
        }
    }
    if (parser.rules.empty()) {
        throw std::runtime_error("it has no rules");
    }
    if (!parser.symbol_ids.count("root")) {
        throw std::runtime_error("it has no rule named root");
    }
}

bool gl_grammar_check(const struct llama_model * m, const char * gbnf, gl_err * err) {
    return guard(err, false, [&] {
        gl_on_big_stack([&] {
            const llama_vocab *  vocab = m ? llama_model_get_vocab(m) : nullptr;
            llama_grammar_parser parser(vocab);
            parse_rules(parser, gbnf);
            auto rules = parser.c_rules();
            llama_grammar * g = llama_grammar_init_impl(vocab, rules.data(), rules.size(), parser.symbol_ids.at("root"));
            if (!g) {
                throw std::runtime_error("a rule refers to itself on its left side");
            }
            const bool none = llama_grammar_get_stacks(g).empty();
            llama_grammar_free_impl(g);
            if (none) {
                throw std::runtime_error("no text matches it");
            }
        });
        return true;
    });
}

char * gl_schema_to_grammar(const char * schema, char ** incomplete, gl_err * err) {
    *incomplete = nullptr;
    return guard(err, (char *) nullptr, [&] {
        std::string gbnf, widened;
        // json_schema_incomplete belongs to the thread that converts.
        gl_on_big_stack([&] {
            gbnf = json_schema_to_grammar(common_json::parse(schema), true);
#ifndef GOLLAMA_UNPATCHED
            widened = json_schema_incomplete;
#endif
        });
        *incomplete = strdup(widened.c_str());
        return strdup(gbnf.c_str());
    });
}
