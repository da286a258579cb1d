// The reference of adapters.golden: what llama.cpp's own common library makes
// of a LoRA adapter and a control vector. It shares no code with gollama.
//
//   go test ./internal/engine -run TestAdaptersLikePeer -args -adapters /tmp/a
//   g++ -O2 -I$SRC/include -I$SRC/ggml/include -I$SRC/common adapters.cpp $LIBS -o adapters
//   ./adapters ../../../../shared/models/stories260K.gguf /tmp/a > adapters.golden
//
// $SRC is the pinned llama.cpp without our patches, $LIBS what its build links
// llama-completion with (LINK_LIBRARIES in build.ninja, less
// libllama-completion-impl.a and httplib's if it is not there). GGML_NATIVE=ON.

#include "common.h"
#include "llama.h"

#include <clocale>
#include <cstdio>
#include <string>

static int row(const char * name, const std::string & model, const std::string & lora, const std::string & vec, int from, int to) {
    common_params p;
    p.model.path          = model;
    p.warmup              = false;
    p.cpuparams.n_threads = 2;
    p.cpuparams_batch     = p.cpuparams; // as the argument parser does
    if (!lora.empty()) {
        common_adapter_lora_info l{};
        l.path  = lora;
        l.scale = 0.5f;
        p.lora_adapters.push_back(l);
    }
    if (!vec.empty()) {
        p.control_vectors.push_back({ 1.5f, vec });
        p.control_vector_layer_start = from;
        p.control_vector_layer_end   = to;
    }
    auto            init = common_init_from_params(p);
    llama_context * ctx  = init->context();
    if (!ctx) {
        fprintf(stderr, "%s: no context\n", name);
        return 1;
    }
    auto tokens = common_tokenize(ctx, "Once upon a time", true, false);
    if (llama_decode(ctx, llama_batch_get_one(tokens.data(), (int32_t) tokens.size())) != 0) {
        return 1;
    }
    const float * logits = llama_get_logits_ith(ctx, -1);
    const int     n      = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(ctx)));
    printf("%s", name);
    for (int i = 0; i < n; i += 16) {
        printf(" %.5f", logits[i]);
    }
    printf("\n");
    return 0;
}

int main(int argc, char ** argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: adapters MODEL DIR\n");
        return 1;
    }
    setlocale(LC_NUMERIC, "C");
    common_init();
    llama_backend_init();
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    const std::string m = argv[1], lora = std::string(argv[2]) + "/lora.gguf", vec = std::string(argv[2]) + "/vector.gguf";
    return row("none", m, "", "", -1, -1) || row("lora", m, lora, "", -1, -1) || row("vector", m, "", vec, -1, -1) ||
           row("vector-2-3", m, "", vec, 2, 3) || row("both", m, lora, vec, 2, 3);
}
