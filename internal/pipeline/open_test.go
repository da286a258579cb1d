package pipeline

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

func gz(t *testing.T, s string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, s); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zst(t *testing.T, s string) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll([]byte(s), nil)
}

func TestOpen(t *testing.T) {
	const text = "one\ntwo\n\x00three"
	long := strings.Repeat(text, 100_000)
	for name, tt := range map[string]struct {
		data []byte
		want string
	}{
		"empty":         {nil, ""},
		"one byte":      {[]byte{0x1f}, "\x1f"},
		"plain":         {[]byte(text), text},
		"gzip":          {gz(t, text), text},
		"gzip twice":    {append(gz(t, text), gz(t, "more")...), text + "more"},
		"gzip, long":    {gz(t, long), long},
		"zstd":          {zst(t, text), text},
		"zstd twice":    {append(zst(t, text), zst(t, "more")...), text + "more"},
		"zstd, long":    {zst(t, long), long},
		"zstd of empty": {zst(t, ""), ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(path, tt.data, 0o666); err != nil {
				t.Fatal(err)
			}
			r, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(r)
			if err != nil || string(got) != tt.want {
				t.Errorf("got %d bytes, %v, want %d", len(got), err, len(tt.want))
			}
			if err := r.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			if err := r.Close(); err != nil {
				t.Errorf("close again: %v", err)
			}
		})
	}
}

// TestOpenDamaged cuts and alters compressed files: an error that names the path, or all of the text, never less of it.
func TestOpenDamaged(t *testing.T) {
	text := strings.Repeat("a line of text\n", 50)
	for _, data := range [][]byte{gz(t, text), zst(t, text)} {
		path := filepath.Join(t.TempDir(), "file")
		check := func(what string, data []byte) {
			t.Helper()
			if err := os.WriteFile(path, data, 0o666); err != nil {
				t.Fatal(err)
			}
			r, err := Open(path)
			var got []byte
			if err == nil {
				got, err = io.ReadAll(r)
				_ = r.Close() // read only
			}
			if err != nil && !strings.Contains(err.Error(), path) {
				t.Errorf("%s: the error does not name the file: %v", what, err)
			}
			if err == nil && strings.HasPrefix(what, "cut") && string(got) != text {
				t.Errorf("%s: %d of %d bytes and no error", what, len(got), len(text))
			}
		}
		for n := 5; n < len(data); n++ {
			check("cut", data[:n])
		}
		for i := range data {
			bad := bytes.Clone(data)
			bad[i] ^= 0xff
			check("altered", bad)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "none")} {
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("Open(%q) = %v, want an error that names it", path, err)
		}
	}
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte("plain"))
	f.Add([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff})
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x00})
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		r, err := Open(path)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(r, 1<<20)) // it must only not panic
		_ = r.Close()
	})
}

// OpenAt reads what Open reads, a regular file without a copy.
func TestOpenAt(t *testing.T) {
	text := strings.Repeat("a line of text\n", 10000)
	packed := gz(t, text)
	for name, data := range map[string]string{"plain": text, "packed.gz": string(packed), "empty": "", "short": "ab"} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := OpenAt(path)
		if err != nil {
			t.Fatal(err)
		}
		want := data
		if name == "packed.gz" {
			want = text
		}
		got, err := io.ReadAll(f)
		if err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, %v, want %d", name, len(got), err, len(want))
		}
		if len(want) > 100 {
			part := make([]byte, 20)
			if _, err := f.ReadAt(part, 30); err != nil || string(part) != want[30:50] {
				t.Errorf("%s: at 30: %q, %v", name, part, err)
			}
		}
		if name == "plain" && f.Name() != path {
			t.Errorf("a copy %s was made of a plain file", f.Name())
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, path := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none")} {
		if f, err := OpenAt(path); err == nil {
			t.Errorf("%s: no error", path)
			f.Close()
		}
	}
	cut := filepath.Join(t.TempDir(), "cut.gz")
	if err := os.WriteFile(cut, packed[:len(packed)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := OpenAt(cut); err == nil {
		t.Error("half a compressed file: no error")
		f.Close()
	}
}
