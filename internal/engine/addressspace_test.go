//go:build cgo

package engine

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"gollama/internal/engine/ggml"
)

// TestStackInLimit: under ulimit -v the thread with the big stack takes a part of the address space that is left, not the most
// that it gets: it left so little that what ran on it ended the process, and other threads of its kind could not start.
func TestStackInLimit(t *testing.T) {
	needStory(t)
	if asan || ggml.ProcessMemory("VmPeak") == 0 {
		t.Skip("what address space the process has cannot be told, or is the sanitizer's")
	}
	out, err := roleCommand(t, "limited", "").Output()
	var took int64
	if _, scanErr := fmt.Sscan(string(out), &took); err != nil || scanErr != nil {
		t.Fatalf("%v, %q", err, out)
	}
	// A quarter is 320 MiB, and malloc maps 128 to have 64 for the thread. It was 1 GiB.
	if took > 600<<20 {
		t.Errorf("with 1,280 MiB left it takes %d", took>>20)
	}
}

// stackInLimit prints how much more address space than before a long text to tokenize takes when 1,280 MiB are left.
func stackInLimit() error {
	m, err := LoadModel(context.Background(), testParams(storyPath))
	if err != nil {
		return err
	}
	defer m.Close()
	before := ggml.ProcessMemory("VmPeak")
	limit := uint64(ggml.ProcessMemory("VmSize")) + 1280<<20
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		return err
	}
	if _, err := m.Vocab().Tokenize(strings.Repeat("Once upon a time ", 1000), true, false); err != nil {
		return err
	}
	fmt.Println(ggml.ProcessMemory("VmPeak") - before)
	return nil
}
