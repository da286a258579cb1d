//go:build asan

package engine

// asan is set under the address sanitizer, which keeps what is freed and puts space round what is allocated: how much memory
// the process has says nothing then.
const asan = true
