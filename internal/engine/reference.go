package engine

import "gollama/internal/engine/ggml"

// SetReference says whether the CPU's kernels are llama.cpp's own where ours add up in another order or type: flash attention of
// fewer than 64 queries, and products of quantized weights. It moves logits by up to 1e-2. It holds for the process, and is off.
// Only to give the numbers of llama.cpp's tools; to be set before the model is loaded, as theirs repack some weights.
func SetReference(on bool) { ggml.SetReference(on) }
