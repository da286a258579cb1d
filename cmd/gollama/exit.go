package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"gollama/internal/completion"
	"gollama/internal/pipeline"
)

// Exit codes, the same for every subcommand. 2 is left to crashes.
const (
	exitOK         = 0
	exitFailed     = 1   // model, adapter, internal
	exitRecords    = 3   // finished, some records failed
	exitInput      = 4   // missing, undecodable, too long for the context
	exitIncomplete = 5   // the output was cut
	exitWrite      = 6   // could not write
	exitUsage      = 64  // bad command line or config
	exitInterrupt  = 130 // SIGINT
	exitTerminate  = 143 // SIGTERM
)

// usageError is a wrong command line, environment or config.
type usageError struct {
	msg  string
	hint string
}

func (e *usageError) Error() string { return e.msg }

func usagef(format string, args ...any) *usageError {
	return &usageError{msg: fmt.Sprintf(format, args...)}
}

// withHint returns e with a hint line.
func (e *usageError) withHint(format string, args ...any) *usageError {
	e.hint = fmt.Sprintf(format, args...)
	return e
}

// inputError is input that is missing or of no use.
type inputError struct {
	err  error
	hint string
}

func (e *inputError) Error() string { return e.err.Error() }
func (e *inputError) Unwrap() error { return e.err }

// recordsError says that the work is done but for some records.
type recordsError struct{ msg string }

func (e *recordsError) Error() string { return e.msg }

// incompleteError is output that ended before it was whole.
type incompleteError struct{ msg string }

func (e *incompleteError) Error() string { return e.msg }

// writeError is output that could not be written.
type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

// signalError is the cause of a context that a signal canceled.
type signalError struct {
	name string
	code int
}

func (e *signalError) Error() string { return e.name }

var (
	errInterrupted = &signalError{"interrupted", exitInterrupt}
	errTerminated  = &signalError{"terminated", exitTerminate}
)

// errBrokenPipe says that the reader of standard output has gone: it ends the
// run without a word.
var errBrokenPipe = errors.New("standard output: the reader has gone")

// exitCode is the one place that decides a code.
func exitCode(err error) int {
	var (
		usage      *usageError
		input      *inputError
		tooLong    *completion.PromptTooLongError
		incomplete *incompleteError
		records    *recordsError
		write      *writeError
		sig        *signalError
	)
	switch {
	case errors.Is(err, errBrokenPipe):
		return exitOK
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &write):
		return exitWrite
	case errors.As(err, &sig):
		return sig.code
	case err == nil:
		return exitOK
	case errors.As(err, &input), errors.As(err, &tooLong):
		return exitInput
	case errors.As(err, &records):
		return exitRecords
	case errors.As(err, &incomplete):
		return exitIncomplete
	}
	return exitFailed
}

// hintOf returns the hint that belongs to err, or "".
func hintOf(err error) string {
	var usage *usageError
	if errors.As(err, &usage) {
		return usage.hint
	}
	var input *inputError
	if errors.As(err, &input) && input.hint != "" {
		return input.hint
	}
	var hinted *hintedError
	if errors.As(err, &hinted) {
		return hinted.hint
	}
	var tooLong *completion.PromptTooLongError
	if errors.As(err, &tooLong) {
		return "raise -c, shorten the prompt, or give --on-overflow truncate"
	}
	return ""
}

// oneLine makes err's text one line.
func oneLine(err error) string {
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	kept := lines[:0]
	for _, l := range lines {
		if l = strings.TrimSpace(l); l != "" {
			kept = append(kept, l)
		}
	}
	return strings.Join(kept, "; ")
}

// withoutCall is the text of err, with no system call before the path of a file: of "stat a: no such file or directory"
// it leaves "a: no such file", and the path once.
func withoutCall(err error) string {
	text := err.Error()
	var pe *fs.PathError
	if !errors.As(err, &pe) {
		return text
	}
	path := pe.Path + ": "
	text = strings.Replace(text, pe.Error(), path+pipeline.Cause(pe).Error(), 1)
	return strings.Replace(text, path+path, path, 1)
}

func isBrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }
