package pipeline

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestKilledNaming kills a process at random moments while it gives a file its name over and over: what a kill leaves of
// a file that replaces another is gone after the next file; a new file leaves nothing.
func TestKilledNaming(t *testing.T) {
	const child = "PIPELINE_TEST_NAMING"
	if path := os.Getenv(child); path != "" {
		for {
			f, err := CreateAtomic(path)
			if err == nil {
				err = f.Commit()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	left := 0
	for range 20 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledNaming$")
		cmd.Env = append(os.Environ(), child+"="+path)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(path); err == nil || time.Now().After(deadline) {
				break
			}
		}
		time.Sleep(time.Duration(rand.Int64N(int64(5 * time.Millisecond))))
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
		if folder(t, dir) != "a" {
			left++
		}
		f, err := CreateAtomic(path)
		if err != nil {
			t.Fatal(err)
		}
		f.Abort()
		if got := folder(t, dir); got != "a" {
			t.Fatalf("folder has %q, want a", got)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d of 20 kills left a temporary until the next run", left)
}

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
