//go:build cgo

package engine

/*
#cgo CXXFLAGS: -std=c++17 -O3
#cgo CPPFLAGS: -I${SRCDIR}/../../.engine/include -I${SRCDIR}/../../.engine/include/common
#cgo CPPFLAGS: -I${SRCDIR}/../../.engine/include/private
#cgo LDFLAGS: -L${SRCDIR}/../../.engine/lib
#cgo LDFLAGS: -lmtmd -lllama-common -lllama-common-base -lvendor-hash -lllama -lggml -lggml-rpc -lggml-metal -lggml-cpu
#cgo LDFLAGS: -lggml-base -lc++
#cgo LDFLAGS: -framework Accelerate -framework Foundation -framework Metal -framework MetalKit
*/
import "C"
