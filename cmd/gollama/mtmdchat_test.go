//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// askedOnce returns the answer to the last of messages, by a process of its own that reuses nothing.
func askedOnce(t *testing.T, args []string, messages ...map[string]any) string {
	t.Helper()
	line, err := json.Marshal(map[string]any{"messages": messages})
	file := filepath.Join(t.TempDir(), "one.jsonl")
	if err == nil {
		err = os.WriteFile(file, append(line, '\n'), 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	out, msg, code := gollama(t, slices.Concat(args, []string{"--records", file, "--no-reuse"})...)
	var got struct{ Text string }
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
		t.Fatalf("status %d: %v: %s%s", code, err, out, msg)
	}
	return got.Text
}

func seen(text string, images ...string) map[string]any {
	var parts []map[string]string
	for _, path := range images {
		parts = append(parts, map[string]string{"type": "image", "image": path})
	}
	return map[string]any{"role": "user", "content": append(parts, map[string]string{"type": "text", "text": text})}
}

// TestMTMDChat: of two images in one conversation each is answered by what it shows.
func TestMTMDChat(t *testing.T) {
	args := mediaArgs(t, "mmproj-mlp")
	args = slices.Concat(args[:5], args[7:]) // without -p
	media := filepath.Join(mediaFixtures, "media")
	a, b := filepath.Join(media, "red.png"), filepath.Join(media, "blue.png")
	first := askedOnce(t, args, seen("look", a))
	said := map[string]any{"role": "assistant", "content": first}
	second := askedOnce(t, args, seen("look", a), said, seen("look", b))
	if same := askedOnce(t, args, seen("look", a), said, seen("look", a)); same == second || first == second {
		t.Fatalf("the images are too alike for a test: %q, %q, %q", first, second, same)
	}
	self, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = self.Close() })
	d := startTalk(t, self, tty, append(slices.Clone(args), "-i")...)
	_ = tty.Close()
	line := func(text string) string { return strings.ReplaceAll(text, "\n", "\r\n") }
	d.send("/image nothere.png\r")
	d.expect("error: nothere.png: no such file")
	d.send("/image " + a + "\r")
	d.expect("goes before the next message")
	d.send("/tokens\r")
	d.expect("4 of them of media")
	d.send("/drop\r")
	d.prompt()
	d.send("/image " + a + "\r")
	d.expect("goes before the next message")
	d.send("look\r")
	d.expect(line(first))
	d.prompt()
	d.send("/image " + b + "\r")
	d.expect("goes before the next message")
	d.send("look\r")
	d.expect(line(second))
	d.prompt()
	d.send("/clear\r")
	d.prompt()
	d.send("/image " + b + "\r")
	d.expect("goes before the next message")
	d.send("/quit\r")
	d.ends(exitOK)
}
