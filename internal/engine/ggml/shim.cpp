#include "shim.h"

#include <cstdio>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <vector>

// What the Go side repeats (rpc.go, ggml.go, tensor.go).
static_assert(RPC_PROTO_MAJOR_VERSION == 7 && RPC_PROTO_MINOR_VERSION == 0, "rpc.go: rpcMajor, rpcMinor");
static_assert(GGML_RPC_MAX_SERVERS == 16, "rpc.go: rpcMaxServers");
static_assert(GGML_MAX_N_THREADS == 512, "ggml.go: maxThreads");
static_assert(GGML_MAX_DIMS == 4, "tensor.go: maxDims");
static_assert(GGML_DEFAULT_GRAPH_SIZE == 2048, "sched.go: defaultMaxNodes");
static_assert(GGML_SCHED_PRIO_LOW == -1 && GGML_SCHED_PRIO_REALTIME == 3, "config.go: Priority");
static_assert(GGML_TYPE_Q4_K == 12 && GGML_TYPE_BF16 == 30 && GGML_TYPE_COUNT == 43, "ggml.go: Type");

namespace {

// An exception that leaves a C function unwinds into Go and kills the process.
template <typename R, typename F> R guard(gg_err * err, R fallback, F f) {
    err->code = 0;
    err->msg[0] = 0;
    try {
        return f();
    } catch (const std::exception & e) {
        err->code = 1;
        snprintf(err->msg, sizeof(err->msg), "%s", e.what());
    } catch (...) {
        err->code = 1;
        snprintf(err->msg, sizeof(err->msg), "unknown C++ exception");
    }
    return fallback;
}

template <typename R> R fail(gg_err * err, R fallback, const std::string & msg) {
    err->code = 2;
    snprintf(err->msg, sizeof(err->msg), "%s", msg.c_str());
    return fallback;
}

} // namespace

// The assembler finds the file through the include path, "../" from .engine/include.
// clang's does not search there, so macOS goes without.
#if defined(__linux__) && defined(__has_include)
#if __has_include("../build-info")
#define GG_BUILD_INFO
#endif
#endif

#ifdef GG_BUILD_INFO
__asm__(".pushsection .rodata\n"
        ".globl gg_build_info_begin\n.hidden gg_build_info_begin\ngg_build_info_begin:\n"
        ".incbin \"../build-info\"\n"
        ".globl gg_build_info_end\n.hidden gg_build_info_end\ngg_build_info_end:\n"
        ".byte 0\n"
        ".popsection\n");
extern "C" const char gg_build_info_begin[];
extern "C" const char gg_build_info_end[];

const char * gg_build_info(size_t * size) {
    *size = (size_t) (gg_build_info_end - gg_build_info_begin);
    return gg_build_info_begin;
}
#else
const char * gg_build_info(size_t * size) {
    *size = 0;
    return "";
}
#endif

// ---- devices -----------------------------------------------------------------------------------

size_t gg_device_count(gg_err * err) {
    return guard(err, (size_t) 0, [&] { return ggml_backend_dev_count(); });
}

bool gg_device_get(size_t i, gg_device * out, gg_err * err) {
    return guard(err, false, [&] {
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        out->name = ggml_backend_dev_name(dev);
        out->description = ggml_backend_dev_description(dev);
        out->backend = ggml_backend_reg_name(ggml_backend_dev_backend_reg(dev));
        out->type = ggml_backend_dev_type(dev);
        ggml_backend_dev_memory(dev, &out->mem_free, &out->mem_total);
        return true;
    });
}

// ---- rpc ---------------------------------------------------------------------------------------

bool gg_rpc_add(const char * endpoint, gg_err * err) {
    return guard(err, false, [&] {
        ggml_backend_reg_t reg = ggml_backend_rpc_add_server(endpoint);
        if (reg == nullptr) {
            return fail(err, false, "no devices");
        }
        ggml_backend_register(reg);
        return true;
    });
}

bool gg_rpc_serve(const char * endpoint, const char * cache_dir, size_t n_threads, const char ** devices, size_t n_devices, int said,
                  gg_err * err) {
    return guard(err, false, [&] {
        std::vector<ggml_backend_dev_t> devs;
        for (size_t i = 0; i < n_devices; i++) {
            ggml_backend_dev_t dev = ggml_backend_dev_by_name(devices[i]);
            if (dev == nullptr) {
                return fail(err, false, std::string("no device ") + devices[i]);
            }
            devs.push_back(dev);
        }
        // The server says what it does on the standard output, which is for results.
        fflush(stdout);
        dup2(said, STDOUT_FILENO);
        ggml_backend_rpc_start_server(endpoint, cache_dir, n_threads, devs.size(), devs.data());
        return fail(err, false, "the server ended; its reason is on the standard error");
    });
}

// ---- rows --------------------------------------------------------------------------------------

size_t gg_quantize(int type, const float * src, void * dst, int64_t nrows, int64_t n_per_row, const float * imatrix,
                   gg_err * err) {
    return guard(err, (size_t) 0, [&] {
        return ggml_quantize_chunk((ggml_type) type, src, dst, 0, nrows, n_per_row, imatrix);
    });
}

bool gg_dequantize(int type, const void * src, float * dst, int64_t n, gg_err * err) {
    return guard(err, false, [&] {
        auto to_float = ggml_get_type_traits((ggml_type) type)->to_float;
        if (to_float == nullptr) {
            return fail(err, false, "no conversion to f32");
        }
        to_float(src, dst, n);
        return true;
    });
}

gk_to_float gg_to_float(int type) {
    if (gk_to_float f = gk_widen(type)) return f;
    // ggml-base widens halves one by one; the CPU backend has vectors for it.
    switch (type) {
        case GGML_TYPE_F16:
            return [](const void * src, float * dst, int64_t n) { ggml_cpu_fp16_to_fp32((const ggml_fp16_t *) src, dst, n); };
        case GGML_TYPE_BF16:
            return [](const void * src, float * dst, int64_t n) { ggml_cpu_bf16_to_fp32((const ggml_bf16_t *) src, dst, n); };
    }
    return ggml_get_type_traits((ggml_type) type)->to_float;
}

// Asked before Go starts, which opens /dev/null in the place of closed descriptors.
static const bool stdout_closed = fcntl(STDOUT_FILENO, F_GETFD) == -1;

bool gg_stdout_closed(void) { return stdout_closed; }

bool gg_validate(int type, const void * src, size_t nbytes, gg_err * err) {
    return guard(err, false, [&] { return ggml_validate_row_data((ggml_type) type, src, nbytes); });
}

// ---- backends and scheduler --------------------------------------------------------------------

ggml_backend_t gg_backend_init(size_t device, int n_threads, gg_err * err) {
    return guard(err, (ggml_backend_t) nullptr, [&] {
        ggml_backend_dev_t dev = ggml_backend_dev_get(device);
        ggml_backend_t backend = ggml_backend_dev_init(dev, nullptr);
        if (backend == nullptr) {
            return fail(err, backend, std::string("device ") + ggml_backend_dev_name(dev) + " cannot be opened");
        }
        ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(dev);
        auto set = (ggml_backend_set_n_threads_t) ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads");
        if (set != nullptr && n_threads > 0) {
            set(backend, n_threads);
        }
        return backend;
    });
}

ggml_backend_sched_t gg_sched_new(ggml_backend_t * backends, int n, size_t graph_size, bool op_offload, gg_err * err) {
    return guard(err, (ggml_backend_sched_t) nullptr, [&] {
        return ggml_backend_sched_new(backends, nullptr, n, graph_size, false, op_offload);
    });
}

bool gg_sched_alloc(ggml_backend_sched_t sched, ggml_cgraph * graph, gg_err * err) {
    return guard(err, false, [&] {
        ggml_backend_sched_reset(sched);
        return ggml_backend_sched_alloc_graph(sched, graph) ? true : fail(err, false, "not enough memory for the graph");
    });
}

int gg_sched_compute(ggml_backend_sched_t sched, ggml_cgraph * graph, gg_err * err) {
    return guard(err, (int) GGML_STATUS_FAILED, [&] { return (int) ggml_backend_sched_graph_compute(sched, graph); });
}

bool gg_sched_reset(ggml_backend_sched_t sched, gg_err * err) {
    return guard(err, false, [&] {
        ggml_backend_sched_reset(sched);
        return true;
    });
}

ggml_backend_buffer_t gg_alloc_ctx(ggml_context * ctx, ggml_backend_t backend, gg_err * err) {
    return guard(err, (ggml_backend_buffer_t) nullptr, [&] {
        ggml_backend_buffer_t buf = ggml_backend_alloc_ctx_tensors(ctx, backend);
        return buf != nullptr ? buf : fail(err, buf, "not enough memory for the tensors");
    });
}

bool gg_tensor_set(ggml_tensor * t, const void * data, size_t size, gg_err * err) {
    return guard(err, false, [&] {
        ggml_backend_tensor_set(t, data, 0, size);
        return true;
    });
}

bool gg_tensor_get(const ggml_tensor * t, void * data, size_t size, gg_err * err) {
    return guard(err, false, [&] {
        ggml_backend_tensor_get(t, data, 0, size);
        return true;
    });
}

// ---- threads -----------------------------------------------------------------------------------

struct ggml_threadpool * gg_threadpool_new(int n, const bool * mask, int prio, uint32_t poll, bool strict, bool paused,
                                           gg_err * err) {
    return guard(err, (struct ggml_threadpool *) nullptr, [&] {
        ggml_threadpool_params p = ggml_threadpool_params_default(n);
        if (mask != nullptr) {
            memcpy(p.cpumask, mask, sizeof(p.cpumask));
        }
        p.prio = (ggml_sched_priority) prio;
        p.poll = poll;
        p.strict_cpu = strict;
        p.paused = paused;
        return ggml_threadpool_new(&p);
    });
}
