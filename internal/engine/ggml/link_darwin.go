package ggml

/*
#cgo CPPFLAGS: -I${SRCDIR}/../../../.engine/include
#cgo CXXFLAGS: -std=c++17
#cgo LDFLAGS: -L${SRCDIR}/../../../.engine/lib -lggml -lggml-rpc -lggml-metal -lggml-cpu -lggml-base
#cgo LDFLAGS: -lc++ -framework Foundation -framework Metal -framework MetalKit -framework Accelerate
*/
import "C"
