package pipeline

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestKilled kills a process that writes: the old file stays and nothing else does.
func TestKilled(t *testing.T) {
	const child = "PIPELINE_TEST_KILLED"
	if path := os.Getenv(child); path != "" {
		f, err := CreateAtomic(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(make([]byte, 4<<20)); err != nil {
			t.Fatal(err)
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	dir := t.TempDir()
	if f, ok := openUnnamed(dir); ok {
		_ = f.Close()
	} else {
		t.Skip("this file system has no files without a name")
	}
	path := filepath.Join(dir, "a")
	put(t, path, "old", 0o644)
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), child+"="+path)
	out, err := cmd.CombinedOutput()
	if exit, ok := err.(*exec.ExitError); !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the child ended with %v, want a kill:\n%s", err, out)
	}
	if got := folder(t, dir) + " " + read(t, path); got != "a old" {
		t.Errorf("got %q, want a old", got)
	}
}
