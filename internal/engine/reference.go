package engine

import "gollama/internal/engine/ggml"

// SetReference says which of the CPU's kernels are llama.cpp's own where ours add up in another order or type: flash attention of
// fewer than 64 queries, and products of quantized weights. Each moves logits by up to 1e-2. It holds for the process; both are
// off. Only to give the numbers of llama.cpp's tools; to be set before the model is loaded, as theirs repack some weights.
func SetReference(attention, products bool) { ggml.SetReference(attention, products) }
