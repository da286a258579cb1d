// Usage: power ROWS VALUES THREADS. The first axis of ROWS x VALUES random numbers by the method of
// llama-cvector-generator's PCA (tools/cvector-generator/pca.hpp of llama.cpp v0.5.0), without its fault of reading
// tensors whose memory was used again: the matrix of second moments on the CPU backend, and 1,000 iterations of b = Ab/|Ab|,
// 100 in a graph. Prints the seconds that this
// took, by the clock and of processor time, as JSON; that the result is an eigenvector is checked.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <vector>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

static void check(bool ok, const char * what) {
    if (!ok) {
        fprintf(stderr, "power: error: %s\n", what);
        exit(1);
    }
}

// compute runs a graph for out.
static void compute(ggml_backend_t backend, ggml_gallocr_t alloc, ggml_cgraph * graph, ggml_tensor * out) {
    ggml_set_output(out);
    ggml_build_forward_expand(graph, out);
    check(ggml_gallocr_alloc_graph(alloc, graph), "no memory");
    check(ggml_backend_graph_compute(backend, graph) == GGML_STATUS_SUCCESS, "the graph failed");
}

static ggml_context * new_context(void) {
    ggml_init_params params = { ggml_tensor_overhead() * 2048 + ggml_graph_overhead(), nullptr, true };
    return ggml_init(params);
}

int main(int argc, char ** argv) {
    check(argc == 4, "want ROWS VALUES THREADS");
    const int64_t n = atoll(argv[1]), e = atoll(argv[2]);
    const int threads = atoi(argv[3]), iterations = 1000, batch = 100;
    check(n > 0 && e > 0 && threads > 0, "want ROWS, VALUES and THREADS from 1");

    ggml_backend_t backend = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(backend, threads);
    ggml_context * fixed = new_context();
    ggml_tensor * x = ggml_new_tensor_2d(fixed, GGML_TYPE_F32, n, e); // a column of the rows for each value
    ggml_tensor * a = ggml_new_tensor_2d(fixed, GGML_TYPE_F32, e, e);
    ggml_tensor * b = ggml_new_tensor_1d(fixed, GGML_TYPE_F32, e);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(fixed, backend);
    check(buffer != nullptr, "no memory");

    std::mt19937 rng(42);
    std::normal_distribution<float> normal;
    std::vector<float> data(n * e), v(e);
    std::vector<float> first(n), second(n);
    for (int64_t i = 0; i < n; i++) {
        first[i] = 400 * normal(rng);
        second[i] = 200 * normal(rng);
    }
    for (int64_t k = 0; k < e; k++) {
        for (int64_t i = 0; i < n; i++) {
            data[k * n + i] = normal(rng) + (first[i] + (k % 2 ? -second[i] : second[i])) / std::sqrt((float) e);
        }
    }
    for (float & f : v) {
        f = normal(rng);
    }
    ggml_backend_tensor_set(x, data.data(), 0, data.size() * sizeof(float));
    ggml_backend_tensor_set(b, v.data(), 0, v.size() * sizeof(float));

    const auto began = std::chrono::steady_clock::now();
    const clock_t before = clock();
    ggml_gallocr_t alloc = ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend));
    ggml_context * ctx = new_context();
    compute(backend, alloc, ggml_new_graph(ctx), ggml_cpy(ctx, ggml_mul_mat(ctx, x, x), a));
    ggml_free(ctx);
    for (int i = 0; i < iterations; i += batch) {
        ctx = new_context();
        ggml_tensor * next = b;
        for (int k = 0; k < batch; k++) {
            next = ggml_mul_mat(ctx, a, next);
            next = ggml_div(ctx, next, ggml_sqrt(ctx, ggml_sum(ctx, ggml_sqr(ctx, next))));
        }
        compute(backend, alloc, ggml_new_graph(ctx), ggml_cpy(ctx, next, b));
        ggml_free(ctx);
    }
    const double cpu = (double) (clock() - before) / CLOCKS_PER_SEC;
    const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();

    ctx = new_context();
    ggml_tensor * ab = ggml_mul_mat(ctx, a, b);
    compute(backend, alloc, ggml_new_graph(ctx), ab);
    std::vector<float> image(e);
    ggml_backend_tensor_get(ab, image.data(), 0, e * sizeof(float));
    ggml_backend_tensor_get(b, v.data(), 0, e * sizeof(float));
    double value = 0, rest = 0;
    for (int64_t k = 0; k < e; k++) {
        value += (double) image[k] * v[k];
    }
    for (int64_t k = 0; k < e; k++) {
        const double d = image[k] - value * v[k];
        rest += d * d;
    }
    check(std::isfinite(value) && std::sqrt(rest) < 1e-3 * value, "no eigenvector");
    printf("{\"wall\": %.6f, \"cpu\": %.6f}\n", wall, cpu);
    ggml_free(ctx);
    ggml_gallocr_free(alloc);
    ggml_backend_buffer_free(buffer);
    ggml_free(fixed);
    ggml_backend_free(backend);
}
