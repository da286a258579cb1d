package pipeline

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// A scratch file can be opened by its path, and is gone when it is closed.
func TestScratch(t *testing.T) {
	for name, unnamed := range map[string]func(string) (*os.File, bool){"named": func(string) (*os.File, bool) { return nil, false }, "default": openUnnamed} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			left := tempName(filepath.Join(dir, scratchName), 0)
			put(t, left, "of a process that was killed", 0o600)
			a, err := scratch(dir, unnamed)
			if err != nil {
				t.Fatal(err)
			}
			b, err := scratch(dir, unnamed) // does not take a for left over
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range []*File{a, b} {
				text := f.Path() + " is mine"
				if _, err := io.WriteString(f, text); err != nil {
					t.Fatal(err)
				}
				if got := read(t, f.Path()); got != text {
					t.Errorf("%s: got %q, want %q", f.Path(), got, text)
				}
			}
			if names := folder(t, dir); a.temp == "" && names != "" {
				t.Errorf("files without a name, and the folder has %s", names)
			}
			a.Abort()
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if names := folder(t, dir); names != "" {
				t.Errorf("left behind: %s", names)
			}
		})
	}
	if _, err := Scratch(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("in a folder that is not there: no error")
	}
	f, err := Scratch("")
	if err != nil {
		t.Fatal(err)
	}
	f.Abort()
}
