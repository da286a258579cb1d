package engine

import "gollama/internal/engine/ggml"

// SetReferenceAttention says whether flash attention of fewer than 64 queries adds up as llama.cpp's own does on the CPU: values
// of f16 in f16, which moves logits by up to 1e-2. It holds for the process, and is off. Only to give the numbers of llama.cpp's
// tools, and not while something is evaluated.
func SetReferenceAttention(on bool) { ggml.SetReferenceAttention(on) }
