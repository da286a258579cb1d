// Package graph is what a training step computes: a transformer's loss on one
// row of tokens, and the exact gradient of the loss with respect to the weights
// that are trained.
//
// [Open] reads a GGUF model, [New] makes one with random weights. [Model.Loss]
// runs forward, [Model.Backward] forward and backward, adding to the gradients
// of [Model.Params]. There is no KV cache, so keys and values have gradients as
// everything else; each operation's derivative is written out (layer.go,
// layerback.go), and a model with an operation or a tensor that is not known
// here is refused ([ErrUnsupported]) before any work.
//
// Weights that are not trained stay in the file, mapped and in their own type;
// products widen them block by block, forward and backward alike, so gradients
// are those of the function that is computed. Results do not depend on the
// number of threads or on the memory budget, to the bit.
package graph
