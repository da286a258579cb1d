//go:build !linux

package ggml

// ZeroFloats sets s, which lies in what [NewFloats] returned, to zeros.
// TODO: give the pages back once a system other than Linux is there to measure it on.
func ZeroFloats(s []float32) { clear(s) }
