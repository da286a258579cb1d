package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gollama/internal/builtin/story"
)

func tinymodel(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(args, &out, io.Discard); err != nil {
		t.Fatalf("tinymodel %q: %v", args, err)
	}
	return out.String()
}

func TestWriteAndCheck(t *testing.T) {
	dir := t.TempDir()
	train, heldOut := filepath.Join(dir, "train.jsonl"), filepath.Join(dir, "heldout.jsonl")
	tinymodel(t, "-n", "300", "-seed", "7", "-o", train)
	text, err := os.ReadFile(train)
	if err != nil {
		t.Fatal(err)
	}
	if again := tinymodel(t, "-n", "300", "-seed", "7"); again != string(text) {
		t.Error("the same seed writes other texts")
	}
	if shorter := tinymodel(t, "-n", "200", "-seed", "7"); !strings.HasPrefix(string(text), shorter) {
		t.Error("a longer file does not begin with the shorter one")
	}
	out := tinymodel(t, "-check", train)
	if !strings.HasPrefix(out, "300 samples: 300 grammatical, 300 complete;") {
		t.Errorf("check of drawn texts: %s", out)
	}

	// Held out of the same seed: without -not all stories would be the same.
	tinymodel(t, "-n", "300", "-seed", "7", "-not", train, "-o", heldOut)
	trained, err := readTexts(train)
	if err != nil {
		t.Fatal(err)
	}
	held, err := readTexts(heldOut)
	if err != nil {
		t.Fatal(err)
	}
	if len(trained) < 200 || len(trained) > 250 || len(held) != len(trained) { // 225 expected
		t.Errorf("%d stories in 300 texts, %d held out", len(trained), len(held))
	}
	for story := range held {
		if trained[story] {
			t.Errorf("held out and in the training data: %s", story)
		}
	}
}

const whole = `Once upon a time, there was a little girl named Mia. The sun was shining, and the birds were singing. ` +
	`There was only one thing that Mia wanted, and that was a friend. But the others were always too busy. ` +
	`One day, she met a tall boy named Toby in the park. "Will you play with me?" asked Mia. ` +
	`"Yes, I would love to play!" said Toby. They played pirates until the sun went down. And they lived happily ever after.`

func TestCheckReport(t *testing.T) {
	line := func(r record) string {
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(b) + "\n"
	}
	wrong := strings.Replace(whole, "she met", "he met", 1)
	in := filepath.Join(t.TempDir(), "samples")
	samples := line(record{Text: whole}) + line(record{Text: wrong}) + "\n" + whole[:100] + "\n" + whole + "\n" +
		line(record{Messages: []story.Message{{Role: "user", Content: "What does a cow say?"}, {Role: "assistant", Content: "A cow says moo."}}})
	if err := os.WriteFile(in, []byte(samples), 0o600); err != nil {
		t.Fatal(err)
	}
	out := tinymodel(t, "-check", in)
	want := in + `:2: byte 213: got "he met a tall boy named ", want "she"` + "\n    " + wrong + "\n" +
		"5 samples: 4 grammatical, 3 complete; 3 happy, 0 sad, 2 unclear; 4 distinct; 54.4 words each\n"
	if out != want {
		t.Errorf("got:\n%s\nwant:\n%s", out, want)
	}

	dec := json.NewDecoder(strings.NewReader(tinymodel(t, "-check", in, "-json")))
	var f failure
	var s summary
	if err := dec.Decode(&f); err != nil || f.Type != "failure" || f.Line != 2 || f.Text != wrong || f.Error == "" {
		t.Errorf("first line %+v, %v", f, err)
	}
	if err := dec.Decode(&s); err != nil || s.Type != "summary" || s.Samples != 5 || s.Grammatical != 4 || s.Complete != 3 {
		t.Errorf("summary %+v, %v", s, err)
	}
	for _, tt := range []struct{ args, want string }{
		{"-min-grammatical 0.8 -min-complete 0.6", ""},
		{"-min-grammatical 0.81", "0.800 of the samples are grammatical, want 0.810"},
		{"-min-complete 0.9", "0.600 of the samples are complete, want 0.900"},
	} {
		err := run(append(strings.Fields(tt.args), "-check", in), io.Discard, io.Discard)
		if (err == nil) != (tt.want == "") || err != nil && err.Error() != tt.want {
			t.Errorf("%s: %v, want %q", tt.args, err, tt.want)
		}
	}
}

func TestCheckWithPrompt(t *testing.T) {
	in := filepath.Join(t.TempDir(), "samples")
	if err := os.WriteFile(in, []byte(strings.TrimPrefix(whole, "Once upon")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := tinymodel(t, "-check", in, "-prompt", "Once upon ")
	if !strings.HasPrefix(out, "1 samples: 1 grammatical, 1 complete; 1 happy") {
		t.Error(out)
	}
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	file := func(text string) string {
		path := filepath.Join(dir, "in")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tt := range []struct {
		name string
		text string // of the file given to -check
		args []string
		want string
	}{
		{"argument", "", []string{"stories"}, `argument "stories": want flags only`},
		{"none", "", []string{"-n", "0"}, "-n 0: want at least 1"},
		{"share", "", []string{"-chats", "NaN"}, "share NaN: want 0 to 1"},
		{"no such file", "", []string{"-check", filepath.Join(dir, "absent")}, "absent"},
		{"no such file to leave out", "", []string{"-not", filepath.Join(dir, "absent")}, "absent"},
		{"no such folder", "", []string{"-n", "1", "-o", filepath.Join(dir, "absent", "x")}, "absent"},
		{"nothing to check", "\n", nil, "in: no samples"},
		{"bad JSON", "Once\n{\"text\": 1}\n", nil, "in:2: text: got a number, want a string"},
		{"neither", "{}\n", nil, `in:1: want one of "text" and "messages"`},
		{"long line", strings.Repeat("x", maxLine+1), nil, "in:1: bufio.Scanner: token too long"},
	} {
		args := tt.args
		if args == nil {
			args = []string{"-check", file(tt.text)}
		}
		err := run(args, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}
