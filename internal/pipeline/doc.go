// Package pipeline moves data in and out of the program: so far, files that
// appear under their name only when they are complete.
//
// It knows nothing of models, is pure Go and uses the standard library alone.
package pipeline
