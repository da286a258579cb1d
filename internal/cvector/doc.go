// Package cvector makes control vectors: for each layer a direction in the space of hidden states that tells texts of
// one kind from texts of another, and that, added to the states at run time, turns what a model writes from one to the
// other.
//
// It reads pairs of texts, gets their hidden states from the engine, finds a direction a layer (the mean difference, or
// the leading eigenvector of a matrix of second moments), tells how well each direction separates pairs that it was not
// made of, and reads and writes the files, those of llama.cpp and repeng among them.
//
// Layers are counted as the runtime does: direction.k is added to the output of block k, the blocks being counted from
// 0, so that there is none for block 0.
package cvector
