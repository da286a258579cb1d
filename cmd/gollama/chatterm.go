package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/peterh/liner"
	"golang.org/x/term"
)

// terminal reads lines from the terminal that the program runs in, with editing and a history.
type terminal struct {
	line  *liner.State
	plain liner.ModeApplier // as the terminal was, for all but reading a line
	edit  liner.ModeApplier
	out   *output
	color bool
	past  *history // nil without
}

// errInterruptedLine says that Ctrl-C was pressed at the prompt.
var errInterruptedLine = errors.New("interrupted")

// openTerminal takes over the terminal. What is not at both ends a terminal is never talked with.
func openTerminal(e *env, o *options) (*terminal, error) {
	for _, f := range []struct {
		file *os.File
		name string
		hint string
	}{
		{e.stdin, "standard input", "--messages FILE or -cnv -p TEXT answers without a terminal"},
		{e.stdout, "standard output", "--transcript FILE keeps the conversation"},
	} {
		if !term.IsTerminal(int(f.file.Fd())) {
			return nil, usagef("-i needs a terminal, and %s is none", f.name).withHint("%s", f.hint)
		}
	}
	t := &terminal{out: e.out}
	t.color = e.getenv("NO_COLOR") == "" && e.getenv("TERM") != "dumb" && o.logColors != "off"
	var err error
	if t.plain, err = liner.TerminalMode(); err != nil {
		return nil, err
	}
	t.line = liner.NewLiner()
	t.line.SetCtrlCAborts(true)
	t.line.SetMultiLineMode(true)
	t.line.SetBeep(false)
	if t.edit, err = liner.TerminalMode(); err == nil {
		err = t.plain.ApplyMode()
	}
	if err != nil {
		t.close()
		return nil, err
	}
	if !o.noHistory {
		var lines []string
		t.past, lines = openHistory(e.getenv)
		for _, line := range lines {
			t.line.AppendHistory(line)
		}
	}
	return t, nil
}

// close gives the terminal back.
func (t *terminal) close() {
	_ = t.line.Close() // it only puts the mode back, as plain does
	_ = t.plain.ApplyMode()
}

// complete offers words for the Tab key.
func (t *terminal) complete(words []string) {
	t.line.SetCompleter(func(line string) (list []string) {
		for _, w := range words {
			if strings.HasPrefix(w, line) {
				list = append(list, w)
			}
		}
		return list
	})
}

// read reads a line. At the end of the input the error is io.EOF, after Ctrl-C errInterruptedLine, and if
// ctx is cancelled its cause. The terminal is in the mode for it only so long: a program that ends
// in the engine leaves it as it was.
func (t *terminal) read(ctx context.Context, prompt string) (string, error) {
	if err := t.edit.ApplyMode(); err != nil {
		return "", io.EOF // the terminal has gone
	}
	defer func() { _ = t.plain.ApplyMode() }()
	type read struct {
		line string
		err  error
	}
	ch := make(chan read, 1)
	go func() {
		line, err := t.line.Prompt(prompt)
		ch <- read{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case r := <-ch:
		switch {
		case errors.Is(r.err, liner.ErrPromptAborted):
			return "", errInterruptedLine
		case r.err != nil:
			return "", io.EOF
		}
		if strings.TrimSpace(r.line) != "" {
			t.line.AppendHistory(r.line)
			t.past.add(r.line)
		}
		return r.line, nil
	}
}

const (
	dim   = "\x1b[2m"
	undim = "\x1b[0m"
)

// write writes a piece of text of the model's: control characters, which would reach the terminal as
// commands, in the way of ^[.
func (t *terminal) write(text string, dimmed bool) error {
	text = visible(text)
	if dimmed && t.color {
		text = dim + text + undim
	}
	return t.out.text(text)
}

func visible(text string) string {
	if strings.IndexFunc(text, isControl) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case !isControl(r):
			b.WriteRune(r)
		case r < 0x20:
			b.WriteString("^" + string('@'+r))
		default:
			b.WriteRune('\ufffd')
		}
	}
	return b.String()
}

func isControl(r rune) bool { return r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 }
