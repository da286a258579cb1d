// C face of what ggml.go and its neighbours need from ggml. Functions that can
// throw take a gg_err and run in guard() (shim.cpp); they return false or NULL
// after filling it. Sizes, types and states are checked by the Go callers:
// GGML_ASSERT ends the process.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml-rpc.h"
#include "ggml.h"
#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

// code is 0 for no error.
typedef struct gg_err {
    int  code;
    char msg[512];
} gg_err;

// Name and type of device i, memory in bytes. The strings live as long as the
// process.
typedef struct gg_device {
    const char * name;
    const char * description;
    const char * backend;
    int          type;
    size_t       mem_free;
    size_t       mem_total;
} gg_device;

size_t gg_device_count(gg_err * err);
bool   gg_device_get(size_t i, gg_device * out, gg_err * err);

// Text of .engine/build-info; not zero-terminated, empty where it is not embedded.
const char * gg_build_info(size_t * size);

// Connects to endpoint and registers its devices.
bool gg_rpc_add(const char * endpoint, gg_err * err);
// Serves devices; returns only on an error. What the server says goes to the descriptor said, in place of standard output.
bool gg_rpc_serve(const char * endpoint, const char * cache_dir, size_t n_threads, const char ** devices, size_t n_devices, int said, gg_err * err);

// Rows. Each returns the bytes written, or 0.
size_t gg_quantize(int type, const float * src, void * dst, int64_t nrows, int64_t n_per_row, const float * imatrix, gg_err * err);
bool   gg_dequantize(int type, const void * src, float * dst, int64_t n, gg_err * err);
// The CPU backend's conversion of a type to float32; NULL where it has none.
gk_to_float gg_to_float(int type);
// Whether descriptor 1 was closed when the program was started.
bool gg_stdout_closed(void);
void ggml_cpu_set_flash_attn_ref(bool ref); // of patch 0007, in none of ggml's headers
void ggml_cpu_set_panels_ref(bool ref);     // of patch 0009
bool   gg_validate(int type, const void * src, size_t nbytes, gg_err * err);

// Backends and scheduler.
ggml_backend_t       gg_backend_init(size_t device, int n_threads, gg_err * err);
ggml_backend_sched_t gg_sched_new(ggml_backend_t * backends, int n, size_t graph_size, bool op_offload, gg_err * err);
bool                 gg_sched_alloc(ggml_backend_sched_t sched, struct ggml_cgraph * graph, gg_err * err);
int                  gg_sched_compute(ggml_backend_sched_t sched, struct ggml_cgraph * graph, gg_err * err);
bool                 gg_sched_reset(ggml_backend_sched_t sched, gg_err * err);
ggml_backend_buffer_t gg_alloc_ctx(struct ggml_context * ctx, ggml_backend_t backend, gg_err * err);
bool                 gg_tensor_set(struct ggml_tensor * t, const void * data, size_t size, gg_err * err);
bool                 gg_tensor_get(const struct ggml_tensor * t, void * data, size_t size, gg_err * err);

// Threadpool: mask has GGML_MAX_N_THREADS entries or is NULL.
struct ggml_threadpool * gg_threadpool_new(int n, const bool * mask, int prio, uint32_t poll, bool strict, bool paused, gg_err * err);

#ifdef __cplusplus
}
#endif
