//go:build vulkan

package ggml

// Build the libraries with ENGINE_VULKAN=1 make engine, then go build -tags vulkan.

/*
#cgo LDFLAGS: -L${SRCDIR}/../../../.engine/lib -lggml -lggml-vulkan -lggml-base -lvulkan
*/
import "C"
