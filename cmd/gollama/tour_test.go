package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	language "gollama/internal/builtin/story"
)

// tour returns the commands of the README's tour.
func tour(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## A tour\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !ok {
		t.Fatal("README.md has no section \"A tour\"")
	}
	var lines []string
	for line := range strings.SplitSeq(section, "\n") {
		for _, mark := range []string{"$ ", "> "} {
			if command, ok := strings.CutPrefix(line, mark); ok {
				lines = append(lines, command)
			}
		}
	}
	return strings.Join(lines, "\n")
}

// shell runs a script in dir and returns its standard output.
func shell(t *testing.T, dir, script string) string {
	t.Helper()
	if !hasEngine() {
		t.Skip("no engine")
	}
	cmd := bash(t, dir, "set -euo pipefail\n"+script, "HOME=/nonexistent", "XDG_CACHE_HOME=")
	var messages strings.Builder
	cmd.Stderr = &messages
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, messages.String())
	}
	return string(out)
}

// told returns what generated records say.
func told(t *testing.T, lines string) (list []string) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(lines))
	for dec.More() {
		var r struct{ Text string }
		if err := dec.Decode(&r); err != nil {
			t.Fatal(err)
		}
		list = append(list, r.Text)
	}
	return list
}

// The README's tour does what it says, on a machine where nothing but a temporary folder can be written.
func TestTour(t *testing.T) {
	dir := t.TempDir()
	out := shell(t, dir, tour(t))
	if !strings.Contains(out, "The sky is blue.") || !strings.Contains(out, "\" upon\"\n") || !strings.Contains(out, "It is red.") {
		t.Errorf("no answer about the sky or the picture, or no token: %s", out)
	}
	made, err := os.ReadFile(filepath.Join(dir, "stories.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	stories := told(t, string(made))
	grammatical := 0
	for _, s := range stories {
		if language.Grammatical("Once upon a time" + s) {
			grammatical++
		}
	}
	if len(stories) != 64 || grammatical < 55 {
		t.Errorf("%d stories, %d of them grammatical, want 64 and 55", len(stories), grammatical)
	}
	// What is written names the model and not where it was put for llama.cpp.
	shell(t, dir, "gollama cvector-generate -q --positive-file happy.txt --negative-file sad.txt -o h.gguf --report report.json")
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if b, err := os.ReadFile(filepath.Join(dir, f.Name())); f.Type().IsRegular() && (err != nil || bytes.Contains(b, []byte("/proc/self"))) {
			t.Errorf("%s holds the name of the model's memory file (%v)", f.Name(), err)
		}
	}
	compareTable(t, dir)
	const ending = " Then they all ate pancakes."
	ask := "for i in $(seq 16); do echo '{\"prompt\":\"Once upon a time\"}'; done | gollama run --records - -n 250 -q "
	count := map[string]int{}
	for _, flags := range []string{"", "--lora pancakes.gguf", "-m pancake-teller.gguf"} {
		for _, s := range told(t, shell(t, dir, ask+flags)) {
			if strings.HasSuffix(s, ending) {
				count[flags]++
			}
		}
	}
	if count[""] != 0 || count["--lora pancakes.gguf"] < 13 || count["-m pancake-teller.gguf"] < 13 {
		t.Errorf("of 16 stories each, these end with pancakes: %v, want 0 without the adapter and at least 13 with", count)
	}
}

// tableCommand is a command in the README's table, and the status that it says.
var tableCommand = regexp.MustCompile("\\| `(gollama [^`]+)`(?: \\(status ([0-9]+)\\))? \\|\n")

// compareTable runs the commands of the README's table in the folder that the tour left.
func compareTable(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := tableCommand.FindAllStringSubmatch(string(text), -1)
	if len(commands) != 9 {
		t.Errorf("%d commands in the table, want 9", len(commands))
	}
	for _, c := range commands {
		want := c[2]
		if want == "" {
			want = "0"
		}
		if got := shell(t, dir, "status=0; { "+c[1]+"; } > /dev/null || status=$?; echo $status"); got != want+"\n" {
			t.Errorf("%s: status %s, want %s", c[1], got, want)
		}
	}
}

// The built-in model is said to be used, once, when it was not asked for; not with --quiet, nor when it was.
func TestBuiltinModel(t *testing.T) {
	if !hasEngine() {
		t.Skip("no engine")
	}
	const line = "gollama run: no -m given: using the built-in model"
	first, messages, code := gollama(t, "run", "-p", "Once upon a time", "-n", "40", "--seed", "1")
	if code != 0 || !strings.HasPrefix(messages, line) || strings.Count(messages, "\n") != 1 {
		t.Errorf("status %d, messages %q", code, messages)
	}
	for _, args := range [][]string{{"-q"}, {"-m", "builtin"}, {"-m", "builtin", "--format", "json"}} {
		out, messages, code := gollama(t, append([]string{"run", "-p", "Once upon a time", "-n", "40", "--seed", "1"}, args...)...)
		if len(args) > 2 {
			var r struct {
				Text  string
				Model struct{ Path string }
			}
			if err := json.Unmarshal([]byte(out), &r); err != nil || r.Model.Path != "builtin" {
				t.Errorf("%v: %v, model %q", args, err, r.Model.Path)
			}
			out = r.Text
		}
		if code != 0 || messages != "" || out != first {
			t.Errorf("%v: status %d, messages %q, text %q, want %q", args, code, messages, out, first)
		}
	}
	t.Setenv("LLAMA_ARG_MODEL", "builtin")
	if out, messages, code := gollama(t, "run", "-p", "Once upon a time", "-n", "40", "--seed", "1"); code != 0 || messages != "" || out != first {
		t.Errorf("LLAMA_ARG_MODEL=builtin: status %d, messages %q, text %q", code, messages, out)
	}
}

// The model tells stories of its language: at least 90 of these 100 hold, and 60 of them to the end. The figures of its
// making stand in tools/tinymodel/README.md.
func TestBuiltinStories(t *testing.T) {
	dir := t.TempDir()
	var lines strings.Builder
	for seed := 1; seed <= 100; seed++ {
		fmt.Fprintf(&lines, "{\"prompt\":\"Once upon a time\",\"max_tokens\":200,\"seed\":%d}\n", seed)
	}
	if err := os.WriteFile(filepath.Join(dir, "p.jsonl"), []byte(lines.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	grammatical, complete := 0, 0
	for _, s := range told(t, shell(t, dir, "gollama run --records p.jsonl -q")) {
		found, err := language.Parse("Once upon a time" + s)
		if err != nil {
			t.Log(err)
			continue
		}
		grammatical++
		if found.Complete {
			complete++
		}
	}
	t.Logf("%d grammatical, %d complete", grammatical, complete)
	if grammatical < 90 || complete < 60 {
		t.Errorf("of 100 stories %d are grammatical and %d complete, want 90 and 60", grammatical, complete)
	}
}
