// Package completion turns a prompt into text: it evaluates the prompt, samples
// tokens, stops where it was told to, and reports what happened.
//
// It is pure Go over small interfaces, which the types of package engine
// satisfy; tests use fakes. Text is bytes: a model may emit any, and all of
// them arrive. What is written as JSON, where that cannot be said, carries
// U+FFFD for what is not UTF-8 and the exact bytes in a field beside it.
package completion
