package gguf

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestKilled kills a process that writes: the old file stays and nothing else does.
func TestKilled(t *testing.T) {
	const child = "GGUF_TEST_KILLED"
	tensors := []TensorInfo{{Name: "t", Type: TypeI8, Shape: []uint64{4 << 20}}}
	if path := os.Getenv(child); path != "" {
		w, err := Create(path, nil, tensors)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.WriteTensor("t", bytes.NewReader(make([]byte, 4<<20))); err != nil {
			t.Fatal(err)
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	dir := t.TempDir()
	if f, ok := openUnnamed(dir); ok {
		f.Close()
	} else {
		t.Skip("this file system has no files without a name")
	}
	path := filepath.Join(dir, "m.gguf")
	if err := os.WriteFile(path, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), child+"="+path)
	out, err := cmd.CombinedOutput()
	if exit, ok := err.(*exec.ExitError); !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the child ended with %v, want a kill:\n%s", err, out)
	}
	if got := folder(t, dir); got != "m.gguf" {
		t.Errorf("the folder has %q, want the old file alone", got)
	}
	if old, _ := os.ReadFile(path); string(old) != "old" {
		t.Errorf("the file is %q, want the old one", old)
	}
}
