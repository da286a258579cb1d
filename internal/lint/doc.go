// Package lint holds tests of the source tree itself: which package may import
// which, where C may stand, how long files and functions are, and that no path
// of one machine is left in the sources. It has no code of its own.
package lint
