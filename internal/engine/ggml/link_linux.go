package ggml

// The linker reads static archives once, in order: ggml (the backend registry)
// names the backends, and they name ggml-base. The C++ runtime goes into the
// binary, so that it starts on machines with an older one. There is no
// -lstdc++: go links packages with C++ files by g++, whose -static-libstdc++
// holds only for the library that g++ adds by itself.

/*
#cgo CPPFLAGS: -I${SRCDIR}/../../../.engine/include
#cgo CXXFLAGS: -std=c++17
#cgo LDFLAGS: -L${SRCDIR}/../../../.engine/lib -lggml -lggml-rpc -lggml-cpu -lggml-base
#cgo LDFLAGS: -static-libstdc++ -static-libgcc -lm -lpthread -ldl
*/
import "C"
