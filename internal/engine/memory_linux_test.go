//go:build cgo

package engine

import (
	"runtime/debug"
	"strings"
	"testing"

	"gollama/internal/engine/ggml"
)

// TestContextMemory: a context takes memory as it fills, not for all that it could hold (patch 0003): the cache of these
// 400,000 tokens is 256 MB.
func TestContextMemory(t *testing.T) {
	p := testParams(needStory(t))
	p.NCtx = 400_000
	m := openModel(t, p)
	debug.FreeOSMemory()
	before := ggml.ProcessMemory("VmRSS")
	c := openContext(t, m, p)
	if got := generate(t, c, &p.Sampling, "Once upon a time", 20); !strings.HasPrefix(got, ", there was a little girl named Lily") {
		t.Errorf("the text is %q", got)
	}
	debug.FreeOSMemory()
	if after := ggml.ProcessMemory("VmRSS"); after > before+100<<20 {
		t.Errorf("a context of %d tokens, 24 of them used, takes %d MiB", c.NCtx(), (after-before)>>20)
	}
}
