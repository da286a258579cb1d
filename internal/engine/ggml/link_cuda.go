//go:build cuda

package ggml

// Build the libraries with ENGINE_CUDA=1 make engine, then go build -tags cuda.
// ggml (the registry) names ggml-cuda, which names ggml-base; the linker reads
// archives in order, hence the repetition. libcuda comes with the driver, its
// stub with the toolkit.

/*
#cgo LDFLAGS: -L${SRCDIR}/../../../.engine/lib -lggml -lggml-cuda -lggml-base
#cgo LDFLAGS: -L/usr/local/cuda/lib64 -L/usr/local/cuda/lib64/stubs -lcudart -lcublas -lcublasLt -lcuda
*/
import "C"
