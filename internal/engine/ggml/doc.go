// Package ggml wraps the parts of ggml that gollama uses below the model:
// devices and backends, the thread count, row conversions and quantization,
// and small tensor graphs run by ggml's scheduler.
//
// It is, with package engine, the only one that talks to C. GGML_ASSERT ends
// the process and cannot be caught, so everything ggml would assert is checked
// in Go first and comes back as an error. C++ is reached through shim.h, where
// exceptions become error values. Without cgo the pure Go parts (DefaultThreads,
// CheckRPC, the f16 and bf16 rows) work and the rest returns ErrNoCgo.
package ggml
