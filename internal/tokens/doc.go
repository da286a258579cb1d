// Package tokens turns text into token ids at corpus speed, and writes and
// reads files of them.
//
// What an id is, llama.cpp decides: [Model] gives for every text what
// llama_tokenize of the pinned llama.cpp gives. For byte-level BPE and for
// SentencePiece BPE (SPM) the package has its own code, which is many times
// faster; it is used only for vocabularies whose every property is known here.
// All others go through llama_tokenize itself. The tests hold both equal.
//
// The fast path in short: [Vocab] reads the vocabulary from the GGUF file
// alone. An [Encoder] cuts out special tokens (special.go), splits the rest
// into words by hand-written code for each pre-tokenizer (pretokens.go), looks
// each word up in a cache, and merges the symbols of those it has not met
// (merge.go).
package tokens
