//go:build slow

package ggml

// withSlow adds the types with large search tables (iq1, iq2) to the tests.
const withSlow = true
