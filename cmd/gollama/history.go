package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"gollama/internal/pipeline"
)

// Bounds of the file with the lines that were typed: of a file that has grown
// to twice as many lines, or to more bytes, the last lines are kept.
const (
	maxHistoryLines = 1000
	maxHistoryBytes = 1 << 20
)

// history is the file that lines typed at a prompt are kept in, for the
// conversations to come; only its owner reads it.
type history struct {
	path string
	err  error // the first; a conversation goes on without
}

// openHistory returns the history and its lines. The file lies where the XDG base directories put a program's state; without a
// home there is none.
func openHistory(getenv func(string) string) (h *history, lines []string) {
	dir := getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) { // as the specification says of relative ones
		home := getenv("HOME")
		if home == "" {
			return nil, nil
		}
		dir = filepath.Join(home, ".local", "state")
	}
	h = &history{path: filepath.Join(dir, "gollama", "history")}
	info, err := os.Stat(h.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return h, nil
	case err == nil && !info.Mode().IsRegular():
		err = fmt.Errorf("%s is no regular file", h.path)
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(h.path)
	}
	if err != nil {
		h.err = err
		return h, nil
	}
	lines = strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	if len(lines) >= 2*maxHistoryLines || len(data) > maxHistoryBytes {
		lines = lastLines(lines)
		h.err = h.rewrite(lines)
	}
	return h, lastLines(lines)
}

// lastLines returns the lines at the end that are within half of the bounds.
func lastLines(lines []string) []string {
	n := 0
	for i := len(lines) - 1; i >= 0; i-- {
		if n += len(lines[i]) + 1; n > maxHistoryBytes/2 || len(lines)-i > maxHistoryLines {
			return lines[i+1:]
		}
	}
	return lines
}

// rewrite puts lines in the file's place.
func (h *history) rewrite(lines []string) error {
	f, err := pipeline.CreateAtomic(h.path)
	if err != nil {
		return err
	}
	defer f.Abort()
	var b bytes.Buffer
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	if err := f.Chmod(0o600); err != nil {
		return err
	}
	if _, err := f.Write(b.Bytes()); err != nil {
		return err
	}
	return f.Commit()
}

// add appends a line at once: the program may be killed, and another one may
// run beside it.
func (h *history) add(line string) {
	if h == nil || h.err != nil {
		return
	}
	h.err = func() error {
		if err := os.MkdirAll(filepath.Dir(h.path), 0o700); err != nil {
			return err
		}
		f, err := os.OpenFile(h.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		if _, err := f.WriteString(line + "\n"); err != nil {
			_ = f.Close()
			return err
		}
		return f.Close()
	}()
}
