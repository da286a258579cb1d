package pipeline

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// both runs a test for files with and without a name; the latter only where the system has them.
func both(t *testing.T, f func(t *testing.T, create func(path string) (*File, error))) {
	t.Run("named", func(t *testing.T) {
		none := func(string) (*os.File, bool) { return nil, false }
		f(t, func(path string) (*File, error) { return create(path, none) })
	})
	t.Run("default", func(t *testing.T) { f(t, CreateAtomic) })
}

func folder(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func put(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // without the umask
		t.Fatal(err)
	}
}

func TestCommit(t *testing.T) {
	both(t, func(t *testing.T, create func(string) (*File, error)) {
		dir := t.TempDir()
		path := filepath.Join(dir, "a")
		for _, text := range []string{"one", "two"} {
			f, err := create(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(f, text); err != nil {
				t.Fatal(err)
			}
			if old, err := os.ReadFile(path); err == nil && string(old) == text {
				t.Error("the file has its name before Commit")
			}
			if err := f.Commit(); err != nil {
				t.Fatal(err)
			}
			f.Abort()
			if err := f.Commit(); !errors.Is(err, fs.ErrClosed) {
				t.Errorf("second Commit: got %v, want %v", err, fs.ErrClosed)
			}
			if got := read(t, path); got != text {
				t.Errorf("got %q, want %q", got, text)
			}
		}
		if got := folder(t, dir); got != "a" {
			t.Errorf("folder has %q, want a", got)
		}
	})
}

func TestAbort(t *testing.T) {
	both(t, func(t *testing.T, create func(string) (*File, error)) {
		dir := t.TempDir()
		path := filepath.Join(dir, "a")
		put(t, path, "old", 0o644)
		for name, end := range map[string]func(*File){
			"abort":        (*File).Abort,
			"close":        func(f *File) { _ = f.Close() },
			"finish abort": func(f *File) { _ = f.Finish(); f.Abort() },
		} {
			f, err := create(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Write([]byte("new")); err != nil {
				t.Fatal(err)
			}
			end(f)
			f.Abort()
			if err := f.Commit(); err == nil {
				t.Errorf("%s: Commit afterwards succeeds", name)
			}
			if got := folder(t, dir) + " " + read(t, path); got != "a old" {
				t.Errorf("%s: got %q, want a old", name, got)
			}
		}
		(*File)(nil).Abort()
	})
}

func TestMode(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no permission bits")
	}
	both(t, func(t *testing.T, create func(string) (*File, error)) {
		path := filepath.Join(t.TempDir(), "a")
		for _, mode := range []fs.FileMode{0o600, 0o666, 0o755, 0o444} {
			_ = os.Remove(path)
			put(t, path, "old", mode)
			f, err := create(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Commit(); err != nil {
				t.Fatal(err)
			}
			st, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if st.Mode() != mode {
				t.Errorf("mode %v, want %v", st.Mode(), mode)
			}
		}
	})
}

func TestSymlink(t *testing.T) {
	both(t, func(t *testing.T, create func(string) (*File, error)) {
		dir := t.TempDir()
		sub := filepath.Join(dir, "sub")
		if err := os.Mkdir(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		link, target := filepath.Join(dir, "link"), filepath.Join(sub, "target")
		if err := os.Symlink("hop", link); err != nil {
			t.Skip(err)
		}
		if err := os.Symlink(filepath.Join("sub", "target"), filepath.Join(dir, "hop")); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"created", "replaced"} {
			f, err := create(link)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(f, text); err != nil {
				t.Fatal(err)
			}
			if err := f.Commit(); err != nil {
				t.Fatal(err)
			}
			if got := read(t, target); got != text {
				t.Errorf("target has %q, want %q", got, text)
			}
			if st, err := os.Lstat(link); err != nil || st.Mode()&fs.ModeSymlink == 0 {
				t.Errorf("the link was replaced: %v, %v", st, err)
			}
		}
		if got := folder(t, sub); got != "target" {
			t.Errorf("folder has %q, want target", got)
		}
		loop := filepath.Join(dir, "loop")
		if err := os.Symlink("loop", loop); err != nil {
			t.Fatal(err)
		}
		if _, err := create(loop); err == nil || !strings.Contains(err.Error(), "symbolic links") {
			t.Errorf("loop: got %v", err)
		}
	})
}

func TestCreateErrors(t *testing.T) {
	both(t, func(t *testing.T, create func(string) (*File, error)) {
		dir := t.TempDir()
		put(t, filepath.Join(dir, "file"), "old", 0o644)
		for _, tt := range []struct {
			path string
			want error
		}{
			{dir, syscall.EISDIR},
			{os.DevNull, ErrNotRegular},
			{filepath.Join(dir, "missing", "a"), fs.ErrNotExist},
			{filepath.Join(dir, "file", "a"), nil},
			{"", fs.ErrNotExist},
		} {
			f, err := create(tt.path)
			if err == nil {
				f.Abort()
			}
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("%q: got %v, want %v", tt.path, err, tt.want)
			}
		}
		if got := folder(t, dir); got != "file" {
			t.Errorf("folder has %q, want file", got)
		}
	})
}

// TestCommitErrors fails the three steps of a commit: sync, name, rename.
func TestCommitErrors(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, f *File, path string){
		"closed": func(_ *testing.T, f *File, _ string) { _ = f.File.Close() },
		"became a folder": func(t *testing.T, _ *File, path string) {
			if err := os.MkdirAll(filepath.Join(path, "x"), 0o755); err != nil {
				t.Fatal(err)
			}
		},
		"folder gone": func(t *testing.T, _ *File, path string) {
			if err := os.RemoveAll(filepath.Dir(path)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, create func(string) (*File, error)) {
				dir := t.TempDir()
				path := filepath.Join(dir, "sub", "a")
				if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				f, err := create(path)
				if err != nil {
					t.Fatal(err)
				}
				spoil(t, f, path)
				if err := f.Commit(); err == nil {
					t.Fatal("Commit succeeds")
				}
				left, _ := filepath.Glob(filepath.Join(dir, "*", ".gollama-*"))
				if len(left) != 0 {
					t.Errorf("left behind: %v", left)
				}
			})
		})
	}
}

// TestCommitAll: files get their names together, or, if one cannot be finished, none does.
func TestCommitAll(t *testing.T) {
	both(t, func(t *testing.T, create func(string) (*File, error)) {
		dir := t.TempDir()
		names := []string{"head", "a", "b"}
		begin := func(text string) (files []*File) {
			for _, name := range names {
				f, err := create(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(f.Abort)
				if _, err := io.WriteString(f, text); err != nil {
					t.Fatal(err)
				}
				files = append(files, f)
			}
			return files
		}
		check := func(want string) {
			t.Helper()
			if got := folder(t, dir); got != "a b head" {
				t.Errorf("folder has %q", got)
			}
			for _, name := range names {
				if got := read(t, filepath.Join(dir, name)); got != want {
					t.Errorf("%s: got %q, want %q", name, got, want)
				}
			}
		}
		for _, text := range []string{"one", "two"} {
			f := begin(text)
			if err := CommitAll(f[0], f[1:]...); err != nil {
				t.Fatal(err)
			}
			check(text)
		}
		for i := range names { // a file that does not get to disk
			f := begin("three")
			_ = f[i].File.Close()
			if err := CommitAll(f[0], f[1:]...); err == nil {
				t.Errorf("%s closed: CommitAll succeeds", names[i])
			}
			for _, f := range f {
				f.Abort()
			}
			check("two")
		}
	})
}

// TestFullDisk writes to a device that is always full.
func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	temp := filepath.Join(dir, ".gollama-x.tmp")
	put(t, temp, "", 0o644)
	put(t, filepath.Join(dir, "a"), "old", 0o644)
	f := &File{File: full, path: filepath.Join(dir, "a"), temp: temp}
	if _, err := f.Write([]byte("x")); err == nil {
		t.Error("write to a full disk succeeds")
	}
	f.Abort()
	if got := folder(t, dir) + " " + read(t, f.path); got != "a old" {
		t.Errorf("got %q, want a old", got)
	}
}

// What a killed process left goes with the next file of the same path, and what a living one writes stays.
func TestSweep(t *testing.T) {
	both(t, func(t *testing.T, create func(string) (*File, error)) {
		dir := t.TempDir()
		path := filepath.Join(dir, "a")
		for k := range 3 {
			put(t, tempName(path, k), "left", 0o600)
		}
		put(t, tempName(filepath.Join(dir, "b"), 0), "of another", 0o600)
		living, err := os.Open(tempName(path, 1))
		if err != nil {
			t.Fatal(err)
		}
		if held, err := Lock(living); err != nil || !held {
			t.Skipf("no locks here: %v", err)
		}
		for _, text := range []string{"made", "replaced"} {
			f, err := create(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(f, text); err != nil {
				t.Fatal(err)
			}
			if err := f.Commit(); err != nil {
				t.Fatal(err)
			}
			if got := read(t, path); got != text {
				t.Errorf("the file has %q, want %q", got, text)
			}
			if got := read(t, living.Name()); got != "left" {
				t.Errorf("the other process's file has %q", got)
			}
		}
		if err := living.Close(); err != nil {
			t.Fatal(err)
		}
		// Number 1 is found once number 0 is there again, as when the process that had 1 is killed beside one that had 0.
		put(t, tempName(path, 0), "left", 0o600)
		f, err := create(path)
		if err != nil {
			t.Fatal(err)
		}
		f.Abort()
		if got, want := folder(t, dir), filepath.Base(tempName(filepath.Join(dir, "b"), 0))+" a"; got != want {
			t.Errorf("folder has %q, want %q", got, want)
		}
	})
}

// Files of the same path that are made at the same time do not take each other's temporaries.
func TestAtOnce(t *testing.T) {
	both(t, func(t *testing.T, create func(string) (*File, error)) {
		dir := t.TempDir()
		path := filepath.Join(dir, "a")
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 20 {
					f, err := create(path)
					if err != nil {
						t.Error(err)
						return
					}
					_, err = io.WriteString(f, "whole")
					if err == nil {
						err = f.Commit()
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		if got := folder(t, dir) + " " + read(t, path); got != "a whole" {
			t.Errorf("got %q, want a whole", got)
		}
	})
}
