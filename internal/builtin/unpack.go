package builtin

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"gollama/internal/pipeline"
)

// unpack gives text a path.
func unpack(name, text string) (string, error) {
	path, err := memoryFile(name, text)
	if err != nil {
		var dir string
		if dir, err = os.UserCacheDir(); err == nil {
			path, err = cacheFile(filepath.Join(dir, "gollama"), name, text)
		}
	}
	if err != nil {
		return "", fmt.Errorf("unpack the built-in %s: %w", name, err)
	}
	mu.Lock()
	defer mu.Unlock()
	unpacked[path] = true
	return path, nil
}

// cacheFile returns the path of a file in dir with this text, which is written if it is not there as it should be. The
// name has the text's SHA-256, so that two versions of the program do not replace each other's.
func cacheFile(dir, name, text string) (string, error) {
	sum := sha256.Sum256([]byte(text))
	path := filepath.Join(dir, fmt.Sprintf("%x-%s", sum[:6], name))
	if same(path, text) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	f, err := pipeline.CreateAtomic(path)
	if err != nil {
		return "", err
	}
	defer f.Abort()
	if _, err := io.Copy(f, strings.NewReader(text)); err != nil {
		return "", err
	}
	return path, f.Commit()
}

// same says whether the file at path is text, to the byte.
func same(path, text string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // only read from
	buf := make([]byte, 1<<16)
	for {
		n, err := io.ReadFull(f, buf)
		if n > len(text) || string(buf[:n]) != text[:n] {
			return false
		}
		text = text[n:]
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return text == ""
		case err != nil:
			return false
		}
	}
}
