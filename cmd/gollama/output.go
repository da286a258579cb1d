package main

import (
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/term"

	"gollama/internal/pipeline"
)

// output writes results. It is not buffered, and it remembers the first error.
type output struct {
	w        io.Writer
	name     string
	terminal bool
	err      error
	last     byte // last byte written
	n        int64
}

func newOutput(f *os.File) *output {
	return &output{w: f, name: "standard output", terminal: term.IsTerminal(int(f.Fd()))}
}

// closedStream is standard output that was closed when the program started. Go
// opens /dev/null in its place, so that writing to it seems to work.
type closedStream struct{}

func (closedStream) Write([]byte) (int, error) { return 0, syscall.EBADF }

// Write returns a *writeError, or errBrokenPipe if the reader has gone.
func (o *output) Write(p []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := o.w.Write(p)
	o.n += int64(n)
	if n > 0 {
		o.last = p[n-1]
	}
	if err != nil {
		o.err = o.wrap(err)
	}
	return n, o.err
}

func (o *output) wrap(err error) error {
	if isBrokenPipe(err) {
		return errBrokenPipe
	}
	return &writeError{fmt.Errorf("write %s: %w", o.name, pipeline.Cause(err))}
}

// writeWhole makes the file that a flag names of data.
func writeWhole(flag, path string, data []byte) error {
	if err := pipeline.WriteFile(path, data); err != nil {
		return &writeError{fmt.Errorf("%s: %w", flag, err)}
	}
	return nil
}

func (o *output) text(s string) error {
	_, err := io.WriteString(o, s)
	return err
}

// endLine ends the last line for a reader at a terminal.
func (o *output) endLine() error {
	if !o.terminal || o.n == 0 || o.last == '\n' {
		return nil
	}
	return o.text("\n")
}

// finish returns the first error.
func (o *output) finish() error { return o.err }
