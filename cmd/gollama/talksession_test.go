//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestInteractiveSession: a conversation that is left and goes on is that which
// is not left, and evaluates no more.
func TestInteractiveSession(t *testing.T) {
	dir := t.TempDir()
	session, whole, parts := filepath.Join(dir, "s"), filepath.Join(dir, "whole.json"), filepath.Join(dir, "parts.json")
	// Sampling: the seed of an answer is that of its place in the conversation.
	args := []string{"-n", "24", "--temp", "0.8", "--seed", "7"}
	d := talk(t, append(args, "--transcript", whole)...)
	for _, text := range []string{"Once upon a time", "And then?", "Why?"} {
		d.send(text + "\r")
		d.prompt()
	}
	d.send("/stats\r")
	uncut := d.expect("tokens/s, answer")
	d.send("\x04")
	d.ends(exitOK)

	for i, texts := range [][]string{{"Once upon a time", "And then?"}, {"Why?"}} {
		d := talk(t, append(args, "--session", session, "--transcript", parts)...)
		if i > 0 {
			d.mu.Lock()
			if all := d.text.String(); !strings.Contains(all, "goes on: 4 messages") || !strings.Contains(all, "> And then?") {
				t.Errorf("it does not say that the conversation goes on: %q", all)
			}
			d.mu.Unlock()
		}
		for _, text := range texts {
			d.send(text + "\r")
			d.prompt()
		}
		if i > 0 {
			d.send("/stats\r")
			got := d.expect("tokens/s, answer")
			line := func(s string) string {
				_, rest, _ := strings.Cut(s, "last answer: ")
				return strings.SplitN(rest, "\r\n", 2)[0]
			}
			if line(got) != line(uncut) {
				t.Errorf("%q, want %q", line(got), line(uncut))
			}
		}
		d.send("\x04")
		d.ends(exitOK)
	}
	a, b := readTranscript(t, whole), readTranscript(t, parts)
	if len(a.Messages) != 6 || len(b.Messages) != 6 {
		t.Fatalf("%d and %d messages, want 6", len(a.Messages), len(b.Messages))
	}
	for i := range a.Messages {
		if a.Messages[i].Content != b.Messages[i].Content {
			t.Errorf("message %d: %q, want %q", i+1, b.Messages[i].Content, a.Messages[i].Content)
		}
	}

	// Read only, it does not change.
	before, err := os.ReadFile(session)
	if err != nil {
		t.Fatal(err)
	}
	d = talk(t, append(args, "--session", session, "--session-ro")...)
	d.send("More\r")
	d.prompt()
	d.send("/quit\r")
	d.ends(exitOK)
	if after, err := os.ReadFile(session); err != nil || string(after) != string(before) {
		t.Errorf("the session changed, %v", err)
	}
}

// TestHistory: lines that were typed are there in the next conversation, for
// their owner alone, unless --no-history is given.
func TestHistory(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	path := filepath.Join(os.Getenv("XDG_STATE_HOME"), "gollama", "history")
	for i, args := range [][]string{{"-n", "4"}, {"-n", "4", "--no-history"}} {
		d := talk(t, args...)
		d.send([]string{"päper\r", "secret\r"}[i])
		d.prompt()
		d.send("/quit\r")
		d.ends(exitOK)
	}
	data, err := os.ReadFile(path)
	if err != nil || string(data) != "päper\n/quit\n" {
		t.Errorf("%q, %v", data, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v, want mode 0600", info.Mode(), err)
	}
	d := talk(t, "-n", "4")
	d.send("\x1b[A\x1b[A")
	d.expect("päper")
	d.send("\r")
	d.prompt()
	d.send("\x04")
	d.ends(exitOK)
}

func TestHistoryBounds(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	h, lines := openHistory(os.Getenv)
	if h == nil || h.err != nil || lines != nil {
		t.Fatalf("%v, %q", h, lines)
	}
	for range 2*maxHistoryLines - 1 {
		h.add("a")
	}
	h.add("last")
	h, lines = openHistory(os.Getenv)
	if h.err != nil || len(lines) != maxHistoryLines || lines[maxHistoryLines-1] != "last" {
		t.Fatalf("%d lines, %v", len(lines), h.err)
	}
	if data, err := os.ReadFile(h.path); err != nil || strings.Count(string(data), "\n") != maxHistoryLines {
		t.Errorf("%d lines in the file, %v", strings.Count(string(data), "\n"), err)
	}
	h.add(strings.Repeat("b", maxHistoryBytes))
	if _, lines = openHistory(os.Getenv); len(lines) != 0 {
		t.Errorf("%d lines of one that is too long", len(lines))
	}
	// What cannot be written is no reason to end.
	if err := os.Remove(h.path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(h.path, 0o700); err != nil {
		t.Fatal(err)
	}
	h, _ = openHistory(os.Getenv)
	h.add("c")
	if h.err == nil {
		t.Error("no error for a folder in the place of the history")
	}
	if h, _ := openHistory(func(string) string { return "" }); h != nil {
		t.Error("a history without a home")
	}
	h = nil
	h.add("d")
}
