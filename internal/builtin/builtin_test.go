package builtin

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"gollama/internal/gguf"
)

func TestFiles(t *testing.T) {
	if n := len(model) + len(projector); n > 4<<20 {
		t.Errorf("%d bytes are built in, want at most 4 MiB", n)
	}
	for name, open := range map[string]func() (string, error){"model": Model, "projector": Projector} {
		path, err := open()
		if err != nil {
			t.Fatal(err)
		}
		f, err := gguf.OpenModel(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"general.name", "general.license", "general.description"} {
			if v, _ := f.Str(key); v == "" {
				t.Errorf("%s: no %s", name, key)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if Label(path) != Name || Label("x.gguf") != "x.gguf" {
			t.Errorf("labels %q and %q", Label(path), Label("x.gguf"))
		}
		if again, err := open(); err != nil || again != path {
			t.Errorf("%s: a second path %q, %v", name, again, err)
		}
	}
}

func TestMemoryFile(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no files in memory")
	}
	path, err := memoryFile("x", "hello")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); string(text) != "hello" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if err := os.WriteFile(path, []byte("HELLO"), 0); err == nil {
		t.Error("the file can be changed")
	}
}

func TestCacheFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	text := strings.Repeat("0123456789", 10000)
	path, err := cacheFile(dir, "x.gguf", text)
	if err != nil {
		t.Fatal(err)
	}
	// What is not the text, byte for byte, is replaced.
	for _, bad := range []string{text, text[1:], text + "x", text[:len(text)-1] + "x", "", strings.Repeat("0123456789", 6554)[:1<<16]} {
		if err := os.WriteFile(path, []byte(bad), 0o666); err != nil {
			t.Fatal(err)
		}
		if same(path, text) != (bad == text) {
			t.Errorf("%d bytes ending in %.3q: same %v", len(bad), bad, bad != text)
		}
		again, err := cacheFile(dir, "x.gguf", text)
		if err != nil || again != path || !same(path, text) {
			t.Errorf("%d bytes: %q, %v", len(bad), again, err)
		}
	}
	if other, err := cacheFile(dir, "x.gguf", "another"); err != nil || other == path {
		t.Errorf("another text has the path %q, %v", other, err)
	}
	if _, err := cacheFile(filepath.Join(path, "c"), "x.gguf", text); err == nil {
		t.Error("a file as the folder is no error")
	}
}
