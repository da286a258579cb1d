// Package crosscheck holds tests that compare internal/gguf with an independent reader of the format,
// github.com/gpustack/gguf-parser-go. They are here and not in internal/gguf, because that module needs a dozen others
// (gonum, x/crypto, an HTTP logger) that the program must not depend on.
package crosscheck
