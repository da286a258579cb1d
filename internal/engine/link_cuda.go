//go:build cgo && cuda

package engine

// Built with ENGINE_CUDA=1 make engine. libcuda comes with the driver, its stub with the toolkit.

/*
#cgo LDFLAGS: -L${SRCDIR}/../../.engine/lib -lggml -lggml-cuda -lggml-base
#cgo LDFLAGS: -L/usr/local/cuda/lib64 -L/usr/local/cuda/lib64/stubs -lcudart -lcublas -lcublasLt -lcuda
*/
import "C"
