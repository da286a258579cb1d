//go:build cgo && vulkan

package engine

// Built with ENGINE_VULKAN=1 make engine.

/*
#cgo LDFLAGS: -L${SRCDIR}/../../.engine/lib -lggml -lggml-vulkan -lggml-base -lvulkan
*/
import "C"
