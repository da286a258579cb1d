// Package engine runs GGUF language models with llama.cpp: parameters, model,
// context, vocabulary, sampler, adapters and logs, as Go values with errors.
//
// It is the only package, with engine/ggml, that talks to C. Everything that
// the C side would answer with an abort is checked here first, so that no
// input, flag or file ends the process. A Model outlives its Contexts; a
// Context is used by one goroutine at a time. Every wrapper has Close, which
// may be called twice; a method on a closed value returns ErrClosed.
package engine
