//go:build !slow

package ggml

// withSlow is set by -tags slow.
const withSlow = false
