// Package pipeline moves data in and out of the program: files that appear
// under their name only when they are complete, and input that may be
// compressed or come from standard input.
//
// It knows nothing of models and is pure Go.
package pipeline
