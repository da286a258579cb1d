//go:build cgo

package engine

// The order is that of static linking: users before what they use. ggml names every backend that it
// registers, so it comes before them.

/*
#cgo CXXFLAGS: -std=c++17 -O3
#cgo CPPFLAGS: -I${SRCDIR}/../../.engine/include -I${SRCDIR}/../../.engine/include/common
#cgo CPPFLAGS: -I${SRCDIR}/../../.engine/include/private
#cgo LDFLAGS: -L${SRCDIR}/../../.engine/lib
#cgo LDFLAGS: -lmtmd -lllama-common -lllama-common-base -lvendor-hash -lllama -lggml -lggml-rpc -lggml-cpu -lggml-base
#cgo LDFLAGS: -static-libstdc++ -static-libgcc -lm -lpthread -ldl
*/
import "C"
