#include "guard.hpp"

#include "_cgo_export.h"

#include "common.h"
#include "fit.h"
#include "ggml-backend.h"
#include "llama.h"
#include "log.h"
#include "mtmd-helper.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <unistd.h>

// ---- process ----

// The model that was loaded last: what llama.cpp asserts on is mostly a file's fault.
static std::string last_model;

// The last words: one line on stderr and exit code 1, never a backtrace or a core file. They allocate nothing: the end of memory
// may be what they are about.
static void last_words(const char * what) {
    static std::atomic_flag said = ATOMIC_FLAG_INIT;
    if (!said.test_and_set()) {
        static char  line[8192];
        const char * model = last_model.c_str();
        const int    n     = snprintf(line, sizeof(line), "gollama: error: internal engine error: %s%s%s%s", what, *model ? " (model " : "", model, *model ? ")" : "");
        const size_t size  = std::min((size_t) std::max(n, 0), sizeof(line) - 1);
        std::replace(line, line + size, '\n', ' ');
        line[size] = '\n';
        if (write(STDERR_FILENO, line, size + 1) < 0) {
            // nobody is left to tell
        }
    }
    _exit(1);
}

// Some models' sizes are divided by hyperparameters that are not checked. Go code never raises this signal.
static void on_division(int) { last_words("division by zero"); }

static thread_local int catching_aborts = 0;

gl_catch_aborts::gl_catch_aborts() { catching_aborts++; }
gl_catch_aborts::~gl_catch_aborts() { catching_aborts--; }

// The message begins with the source file. A kernel's threads wait for one another, so nothing may leave one.
static void on_abort(const char * what) {
    if (catching_aborts > 0 && !strstr(what, "/ggml-cpu/") && !strstr(what, "/ggml-cuda/") && !strstr(what, "/ggml-metal/") &&
        !strstr(what, "/ggml-vulkan/")) {
        const std::string path(what, strcspn(what, ":"));
        const size_t      slash = path.rfind('/');
        throw std::runtime_error(std::string("it does not fit together: ") + (slash == path.npos ? what : what + slash + 1));
    }
    last_words(what);
}

static void on_terminate() {
    try {
        if (std::current_exception()) {
            std::rethrow_exception(std::current_exception());
        }
    } catch (const std::bad_alloc &) { // of a destructor that allocates, as nlohmann::json's
        last_words("out of memory");
    } catch (const std::exception & e) {
        last_words(e.what());
    } catch (...) {
    }
    last_words("terminated");
}

// llama.cpp's levels in the project's order: 1 error, 2 warning, 3 info, 5 debug.
static int log_level(enum ggml_log_level level) {
    switch (level) {
        case GGML_LOG_LEVEL_ERROR: return 1;
        case GGML_LOG_LEVEL_WARN:  return 2;
        case GGML_LOG_LEVEL_DEBUG: return 5;
        default:                   return 3;
    }
}

static std::atomic<int>  log_max{0};
static std::atomic<bool> capturing{false};
static std::mutex        capture_mutex;
static std::string       captured;

static void log_line(int level, const std::string & line) {
    if (line.empty()) {
        return;
    }
    if (level == 1 && capturing) {
        std::lock_guard<std::mutex> lock(capture_mutex);
        if (captured.empty()) {
            captured = line;
        }
    }
    if (level <= log_max) {
        gollamaLog(level, const_cast<char *>(line.data()), (int) line.size());
    }
}

// Whole lines only: a message may come in parts, continued with GGML_LOG_LEVEL_CONT.
static void on_log(enum ggml_log_level level, const char * text, void *) {
    thread_local std::string part;
    thread_local int         part_level = 3;
    if (level != GGML_LOG_LEVEL_CONT) {
        if (!part.empty()) {
            log_line(part_level, part);
            part.clear();
        }
        part_level = log_level(level);
    }
    if (part_level > log_max && !(part_level == 1 && capturing)) {
        return;
    }
    part += text;
    for (size_t nl; (nl = part.find('\n')) != std::string::npos;) {
        log_line(part_level, part.substr(0, nl));
        part.erase(0, nl + 1);
    }
}

void gl_init(void) {
    setenv("GGML_NO_BACKTRACE", "1", 1);
    ggml_set_abort_callback(on_abort);
    std::set_terminate(on_terminate);
    struct sigaction division = {};
    division.sa_handler = on_division;
    division.sa_flags   = SA_ONSTACK; // Go's rule for handlers
    sigaction(SIGFPE, &division, nullptr);
    llama_log_set(on_log, nullptr);
    ggml_log_set(on_log, nullptr);
    mtmd_helper_log_set(on_log, nullptr);
    // common's logger writes to stdout from a thread of its own: below 0 nothing reaches it.
    common_log_set_verbosity_thold(-1);
    llama_backend_init();
}

void gl_log_level(int level) { log_max = level; }

void gl_capture_begin(void) {
    std::lock_guard<std::mutex> lock(capture_mutex);
    captured.clear();
    capturing = true;
}

void gl_capture_end(char * dst, size_t n) {
    std::lock_guard<std::mutex> lock(capture_mutex);
    capturing = false;
    snprintf(dst, n, "%s", captured.c_str());
}

bool gl_numa_init(int strategy) {
    if (!ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU)) {
        return false;
    }
    llama_numa_init((enum ggml_numa_strategy) strategy);
    return true;
}

int32_t * gl_flag_new(void) { return (int32_t *) calloc(1, sizeof(int32_t)); }
void gl_flag_set(int32_t * f, int32_t v) { __atomic_store_n(f, v, __ATOMIC_RELEASE); }
void gl_flag_free(int32_t * f) { free(f); }

// ---- model ----

struct load_state {
    const gl_model_params * p;
    int64_t                 last_us = 0;
};

// Go is called 20 times a second at most; the cancel flag is read every time.
static bool on_progress(float progress, void * data) {
    auto * st = (load_state *) data;
    if (st->p->cancel && __atomic_load_n(st->p->cancel, __ATOMIC_ACQUIRE)) {
        return false;
    }
    const int64_t now = ggml_time_us();
    if (!st->p->progress || (st->last_us != 0 && progress < 1.0f && now - st->last_us < 50000)) {
        return true;
    }
    st->last_us = now;
    return gollamaProgress(st->p->progress, progress) != 0;
}

static ggml_backend_buffer_type_t find_buft(const std::string & name) {
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        auto * buft = ggml_backend_dev_buffer_type(ggml_backend_dev_get(i));
        if (buft && name == ggml_backend_buft_name(buft)) {
            return buft;
        }
    }
    throw std::runtime_error("unknown buffer type " + name);
}

static llama_model_kv_override to_override(const gl_kv & kv) {
    llama_model_kv_override o = {};
    o.tag = (enum llama_model_kv_override_type) kv.tag;
    snprintf(o.key, sizeof(o.key), "%s", kv.key);
    switch (o.tag) {
        case LLAMA_KV_OVERRIDE_TYPE_INT:   o.val_i64 = kv.i; break;
        case LLAMA_KV_OVERRIDE_TYPE_FLOAT: o.val_f64 = kv.f; break;
        case LLAMA_KV_OVERRIDE_TYPE_BOOL:  o.val_bool = kv.b; break;
        case LLAMA_KV_OVERRIDE_TYPE_STR:   snprintf(o.val_str, sizeof(o.val_str), "%s", kv.s); break;
    }
    return o;
}

llama_context_params gl_to_context_params(const gl_ctx_params * p); // shim_ctx.cpp

struct model_params {
    llama_model_params                            m = llama_model_default_params();
    std::vector<ggml_backend_dev_t>               devices;
    std::vector<llama_model_tensor_buft_override> bufts;
    std::vector<llama_model_kv_override>          kvs;
    std::vector<float>                            split;
};

static void fill_model_params(const gl_model_params * p, model_params & o) {
    for (int i = 0; i < p->n_devices; i++) {
        auto * dev = ggml_backend_dev_by_name(p->devices[i]);
        if (!dev) {
            throw std::runtime_error(std::string("unknown device ") + p->devices[i]);
        }
        o.devices.push_back(dev);
    }
    if (!o.devices.empty() || p->no_devices) {
        o.devices.push_back(nullptr);
        o.m.devices = o.devices.data();
    }
    for (int i = 0; i < p->n_bufts; i++) {
        o.bufts.push_back({ p->buft_patterns[i], find_buft(p->bufts[i]) });
    }
    if (!o.bufts.empty()) {
        o.bufts.push_back({ nullptr, nullptr });
        o.m.tensor_buft_overrides = o.bufts.data();
    }
    for (int i = 0; i < p->n_kvs; i++) {
        o.kvs.push_back(to_override(p->kvs[i]));
    }
    if (!o.kvs.empty()) {
        o.kvs.push_back({});
        o.m.kv_overrides = o.kvs.data();
    }
    o.split.assign(std::max<size_t>(llama_max_devices(), 128), 0.0f);
    for (int i = 0; i < p->n_tensor_split && i < (int) llama_max_devices(); i++) {
        o.split[i] = p->tensor_split[i];
    }
    o.m.tensor_split    = o.split.data();
    o.m.n_gpu_layers    = p->n_gpu_layers;
    o.m.main_gpu        = p->main_gpu;
    o.m.split_mode      = (enum llama_split_mode) p->split_mode;
    o.m.load_mode       = (enum llama_load_mode) p->load_mode;
    o.m.lazy_mode       = (enum llama_lazy_mode) p->lazy_mode;
    o.m.vocab_only      = p->vocab_only;
    o.m.check_tensors   = p->check_tensors;
    o.m.use_extra_bufts = !p->no_extra_bufts;
    o.m.no_host         = p->no_host;
    o.m.no_alloc        = p->no_alloc;
}

// Lowers what the user left open until the model fits the devices; see common/fit.h.
static void fit(const gl_model_params * p, gl_ctx_params * cp, model_params & o) {
    auto cparams = gl_to_context_params(cp);
    o.bufts.resize(llama_max_tensor_buft_overrides(), { nullptr, nullptr });
    o.m.tensor_buft_overrides = p->n_bufts > 0 ? o.bufts.data() : nullptr;
    std::vector<size_t> margins(llama_max_devices(), 1024 * 1024 * 1024);
    for (int i = 0; i < p->n_fit_target && i < (int) margins.size(); i++) {
        margins[i] = p->fit_target[i];
    }
    // A fit that fails leaves the parameters as they were, and loading says what is wrong.
    common_fit_params(p->paths[0], &o.m, &cparams, o.split.data(), o.bufts.data(), margins.data(), p->fit_min_ctx,
                      nullptr, GGML_LOG_LEVEL_ERROR);
    cp->n_ctx = cparams.n_ctx;
}

struct llama_model * gl_model_load(const gl_model_params * p, gl_ctx_params * cp, gl_err * err) {
    return guard(err, (llama_model *) nullptr, [&]() -> llama_model * {
        last_model = p->paths[0];
        model_params o;
        fill_model_params(p, o);
        if (p->fit) {
            fit(p, cp, o);
        }
        load_state st{ p };
        o.m.progress_callback           = on_progress;
        o.m.progress_callback_user_data = &st;
        llama_model * m = p->n_paths > 1 ? llama_model_load_from_splits(p->paths, p->n_paths, o.m)
                                         : llama_model_load_from_file(p->paths[0], o.m);
        if (!m) {
            err->code = GL_FAIL;
        }
        return m;
    });
}

// A vocabulary is hundreds of thousands of small pieces, which glibc would keep for itself.
void gl_model_free(struct llama_model * m) {
    llama_model_free(m);
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

bool gl_have_gpu(void) {
    return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_GPU) || ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_IGPU);
}

void gl_model_get_info(const struct llama_model * m, gl_model_info * o) {
    const llama_vocab * v = llama_model_get_vocab(m);
    o->size          = llama_model_size(m);
    o->n_params      = llama_model_n_params(m);
    o->n_ctx_train   = llama_model_n_ctx_train(m);
    o->n_embd        = llama_model_n_embd(m);
    o->n_layer       = llama_model_n_layer(m);
    o->n_vocab       = llama_vocab_n_tokens(v);
    o->n_swa         = llama_model_n_swa(m);
    o->vocab_type    = llama_vocab_type(v);
    o->has_encoder   = llama_model_has_encoder(m);
    o->has_decoder   = llama_model_has_decoder(m);
    o->recurrent     = llama_model_is_recurrent(m);
    o->hybrid        = llama_model_is_hybrid(m);
    o->diffusion     = llama_model_is_diffusion(m);
    o->decoder_start = llama_model_decoder_start_token(m);
    // These two abort for a model without layers, which is what vocab_only gives.
    o->n_head    = o->n_layer > 0 ? llama_model_n_head(m) : 0;
    o->n_head_kv = o->n_layer > 0 ? llama_model_n_head_kv(m) : 0;
}

int gl_model_desc(const struct llama_model * m, char * dst, size_t n) { return llama_model_desc(m, dst, n); }

int gl_model_ftype(const struct llama_model * m, char * dst, size_t n) {
    const char * name = llama_ftype_name(llama_model_ftype(m));
    return name ? snprintf(dst, n, "%s", name) : -1;
}

int gl_model_meta_count(const struct llama_model * m) { return llama_model_meta_count(m); }

int gl_model_meta_key(const struct llama_model * m, int i, char * dst, size_t n) {
    return llama_model_meta_key_by_index(m, i, dst, n);
}

int gl_model_meta_val(const struct llama_model * m, const char * key, char * dst, size_t n) {
    return llama_model_meta_val_str(m, key, dst, n);
}

const char * gl_model_chat_template(const struct llama_model * m, const char * name) {
    return llama_model_chat_template(m, name);
}
