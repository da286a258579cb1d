package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gollama/internal/gguf"
)

// story returns the story model's path, or skips.
func story(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(storyModel); err != nil || !hasEngine() {
		t.Skipf("no engine or no model: %v", err)
	}
	return storyModel
}

// gollama runs the program and returns its streams and exit status.
func gollama(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Args[0] = "gollama" // what testscript.Main looks at
	var out, msg bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &msg
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), msg.String(), cmd.ProcessState.ExitCode()
}

func TestTruncatedModel(t *testing.T) {
	data, err := os.ReadFile(story(t))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "cut.gguf")
	for i := range 100 {
		size := len(data) * i / 100
		if i < 25 {
			size = i // the header, densely
		}
		if err := os.WriteFile(path, data[:size], 0o666); err != nil {
			t.Fatal(err)
		}
		out, msg, code := gollama(t, "run", "-m", path, "-p", "a", "-n", "1")
		if code != exitFailed || out != "" || strings.Count(msg, "\n") != 1 || !strings.Contains(msg, path) {
			t.Errorf("%d bytes: status %d, stdout %q, stderr %q", size, code, out, msg)
		}
	}
}

func TestSplitModel(t *testing.T) {
	f, err := gguf.Open(story(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	dir := t.TempDir()
	w, err := gguf.CreateSplit(filepath.Join(dir, "story"), f.KVs, f.Tensors, gguf.SplitLimits{Tensors: (len(f.Tensors) + 2) / 3})
	if err != nil {
		t.Fatal(err)
	}
	for i, tensor := range f.Tensors {
		if err := w.WriteTensor(tensor.Name, f.TensorReader(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	first := filepath.Join(dir, "story-00001-of-00003.gguf")
	out, msg, code := gollama(t, "run", "-m", first, "-p", "Once upon a time", "-n", "4", "--temp", "0")
	if want := ", there was a"; out != want || code != 0 {
		t.Errorf("status %d, stdout %q, want %q, stderr %q", code, out, want, msg)
	}
	if err := os.Remove(filepath.Join(dir, "story-00002-of-00003.gguf")); err != nil {
		t.Fatal(err)
	}
	out, msg, code = gollama(t, "run", "-m", first, "-p", "a")
	if code != exitFailed || out != "" || strings.Count(msg, "\n") != 1 || !strings.Contains(msg, "00002-of-00003") {
		t.Errorf("without the second: status %d, stdout %q, stderr %q", code, out, msg)
	}
}
