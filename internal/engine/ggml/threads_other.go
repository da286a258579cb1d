//go:build !linux && !darwin

package ggml

import "runtime"

// defaultThreads returns what the Go runtime counts; this system's topology is
// not known here.
func defaultThreads() int {
	return runtime.NumCPU()
}
