package pipeline

import (
	"errors"
	"fmt"
	"io/fs"
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

// TestKilledTogether kills a process at random moments while it replaces three files that belong together: where there is a
// head, all are of one time.
func TestKilledTogether(t *testing.T) {
	const child = "PIPELINE_TEST_TOGETHER"
	names := []string{"head", "data", "index"}
	if dir := os.Getenv(child); dir != "" {
		for n := 0; ; n++ {
			files := make([]*File, len(names))
			for i, name := range names {
				f, err := CreateAtomic(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := fmt.Fprint(f, n); err != nil {
					t.Fatal(err)
				}
				files[i] = f
			}
			if err := CommitAll(files[0], files[1:]...); err != nil {
				t.Fatal(err)
			}
		}
	}
	headless := 0
	for range 30 {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledTogether$")
		cmd.Env = append(os.Environ(), child+"="+dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if b, err := os.ReadFile(filepath.Join(dir, "index")); err == nil && len(b) > 0 && b[0] != '0' {
				break // it replaces by now
			}
		}
		time.Sleep(time.Duration(rand.Int64N(int64(5 * time.Millisecond))))
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
		head, err := os.ReadFile(filepath.Join(dir, "head"))
		if errors.Is(err, fs.ErrNotExist) {
			headless++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if data, index := read(t, filepath.Join(dir, "data")), read(t, filepath.Join(dir, "index")); data != string(head) || index != string(head) {
			t.Errorf("the head is of %s, data of %s, index of %s", head, data, index)
		}
	}
	t.Logf("%d of 30 kills left no head", headless)
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
