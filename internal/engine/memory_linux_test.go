//go:build cgo

package engine

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

// TestContextMemory: a context takes memory as it fills, not for all that it could hold (patch 0003): the cache of these
// 400,000 tokens is 256 MB.
func TestContextMemory(t *testing.T) {
	p := testParams(needStory(t))
	p.NCtx = 400_000
	m := openModel(t, p)
	before := residentMiB(t)
	c := openContext(t, m, p)
	if got := generate(t, c, &p.Sampling, "Once upon a time", 20); !strings.HasPrefix(got, ", there was a little girl named Lily") {
		t.Errorf("the text is %q", got)
	}
	if after := residentMiB(t); after > before+100 {
		t.Errorf("a context of %d tokens, 24 of them used, takes %d MiB", c.NCtx(), after-before)
	}
}

func residentMiB(t *testing.T) int {
	t.Helper()
	debug.FreeOSMemory()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "VmRSS:")
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib / 1024
}
