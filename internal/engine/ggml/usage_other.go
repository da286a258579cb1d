//go:build !unix

package ggml

import "time"

// ProcessorTime returns the processor time that this process has used; here, where that is not told, 0.
func ProcessorTime() time.Duration { return 0 }
