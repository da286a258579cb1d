package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"gollama/internal/engine"
)

// messages writes the program's own messages: errors, warnings, hints,
// progress lines. They never go to standard output.
type messages struct {
	mu       sync.Mutex
	w        io.Writer
	who      string // "gollama run"
	json     bool
	quiet    bool     // errors only
	file     *os.File // nil without --log-file
	beforeFn func()   // clears a progress bar
}

// current is the set of messages that logging was set up with; an error that
// comes before has the plain form.
var current *messages

func logger(who string, w io.Writer) *messages {
	if current != nil && current.who == who {
		return current
	}
	return &messages{w: w, who: who}
}

// message writes a line: `gollama run: error: text`, `hint: text`.
func (m *messages) message(level, text string) {
	if m.quiet && level != "error" && level != "hint" {
		return
	}
	line := fmt.Sprintf("%s: %s: %s\n", m.who, level, text)
	switch {
	case m.json:
		line = jsonLine(level, text)
	case level == "hint":
		line = "hint: " + text + "\n"
	case level == "info":
		line = fmt.Sprintf("%s: %s\n", m.who, text)
	}
	m.write(line)
}

func (m *messages) warnf(format string, args ...any) {
	m.message("warning", fmt.Sprintf(format, args...))
}

// see points to the help.
func (m *messages) see(what string) {
	if !m.json {
		m.write("see " + what + "\n")
	}
}

// write passes a whole line to standard error and the log file. Nothing can be
// done about an error of either.
func (m *messages) write(line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.beforeFn != nil {
		m.beforeFn()
	}
	_, _ = io.WriteString(m.w, line)
	if m.file != nil {
		_, _ = io.WriteString(m.file, line)
	}
}

func jsonLine(level, text string) string {
	b, err := json.Marshal(struct {
		Type  string `json:"type"`
		Time  string `json:"time"`
		Level string `json:"level"`
		Msg   string `json:"msg"`
	}{"log", time.Now().UTC().Format(time.RFC3339Nano), level, text})
	if err != nil { // strings always marshal
		return ""
	}
	return string(b) + "\n"
}

// Levels of llama.cpp between slog's.
const levelTrace = slog.LevelDebug + 2

var engineLevels = map[int]slog.Level{
	1: slog.LevelError, 2: slog.LevelWarn, 3: slog.LevelInfo, 4: levelTrace, 5: slog.LevelDebug,
}

// lineHandler is a slog.Handler that writes the engine's lines.
type lineHandler struct {
	m          *messages
	level      slog.Level
	prefix     bool
	timestamps bool
	colors     bool
	start      time.Time
}

func (h *lineHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }
func (h *lineHandler) WithAttrs([]slog.Attr) slog.Handler           { return h }
func (h *lineHandler) WithGroup(string) slog.Handler                { return h }

func (h *lineHandler) Handle(_ context.Context, r slog.Record) error {
	name, color := "debug", "\x1b[90m"
	switch {
	case r.Level >= slog.LevelError:
		name, color = "error", "\x1b[31m"
	case r.Level >= slog.LevelWarn:
		name, color = "warning", "\x1b[35m"
	case r.Level >= slog.LevelInfo:
		name, color = "info", ""
	case r.Level >= levelTrace:
		name, color = "trace", "\x1b[90m"
	}
	if h.m.json {
		h.m.write(jsonLine(name, r.Message))
		return nil
	}
	line := r.Message
	if h.prefix {
		line = strings.ToUpper(name[:1]) + " " + line
	}
	if h.timestamps {
		line = fmt.Sprintf("%.3f ", r.Time.Sub(h.start).Seconds()) + line
	}
	if h.colors && color != "" {
		line = color + line + "\x1b[0m"
	}
	h.m.write(line + "\n")
	return nil
}

// logging is the log of one run.
type logging struct {
	*messages
	log *slog.Logger
}

// setupLogging routes messages and the engine's log by the flags.
func setupLogging(e *env, who string, o *options) (*logging, error) {
	m := &messages{w: e.stderr, who: who, json: o.logJSON, quiet: o.quiet || o.Verbosity < 2}
	l := &logging{messages: m}
	if o.logFile != "" {
		f, err := os.Create(o.logFile)
		if err != nil {
			return nil, &writeError{fmt.Errorf("--log-file: %s: %w", o.logFile, errors.Unwrap(err))} // the folder is missing, not the file
		}
		m.file = f
	}
	verbosity := o.Verbosity
	if o.quiet {
		verbosity = 0
	}
	colors := o.logColors == "on"
	if f, ok := e.stderr.(*os.File); ok && o.logColors == "auto" {
		colors = term.IsTerminal(int(f.Fd())) && e.getenv("NO_COLOR") == "" && o.logFile == ""
	}
	level := slog.LevelError + 4
	if v, ok := engineLevels[verbosity]; ok {
		level = v
	}
	l.log = slog.New(&lineHandler{m: m, level: level, prefix: o.logPrefix, timestamps: o.logTimestamps, colors: colors, start: time.Now()})
	current = m
	// llama.cpp's lines are for who asked for more than warnings: its errors come back as error values, too, and its warnings are
	// about its own concerns.
	most := 0
	if verbosity > 2 {
		most = verbosity
	}
	engine.SetLogger(most, l.engineLine)
	for _, w := range o.warnings {
		m.message("warning", w)
	}
	l.sayBuiltin(o)
	return l, nil
}

// engineLine takes a line of the engine's log.
func (l *logging) engineLine(level int, text string) {
	if level == engine.LogNotice {
		l.message("warning", text)
		return
	}
	l.log.Log(context.Background(), engineLevels[level], text)
}

// close ends the engine's part of the log. The file stays open for how the run ended; main calls end.
func (l *logging) close() { engine.SetLogger(0, nil) }

// end closes the log file. It may be called on nil.
func (m *messages) end() {
	if m == nil || m.file == nil {
		return
	}
	m.mu.Lock()
	f := m.file
	m.file = nil
	m.mu.Unlock()
	if err := f.Close(); err != nil {
		m.warnf("--log-file: %s", err)
	}
}
