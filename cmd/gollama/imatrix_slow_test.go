//go:build slow

package main

import (
	"path/filepath"
	"runtime"
	"testing"
)

func init() { killRuns = 50 }

// Without logits no buffer grows with the context: 16 times the chunk takes hardly more memory.
func TestImatrixMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the memory of a process is read as Linux gives it")
	}
	dir := t.TempDir()
	text := imatrixText(t, dir)
	peak := func(args ...string) int64 {
		return maxRSS(t, append([]string{"imatrix", "-q", "-m", storyModel, "-f", text, "-o", filepath.Join(dir, "o"), "--chunks", "1", "-ub", "128", "-t", "1"}, args...)...) << 10
	}
	small, large := peak("-c", "512", "-b", "512", "--no-ppl"), peak("-c", "8192", "-b", "8192", "--no-ppl")
	// The cache of 8192 tokens and their masks take 4 MiB; logits of all of them would take 16 MiB more.
	const cache, logits = 8192 * 5 * 2 * 32 * 2, 8192 * 512 * 4
	if large-small > cache+logits/2+6<<20 {
		t.Errorf("%d MiB for -c 8192, %d for -c 512", large>>20, small>>20)
	}
}
