package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gollama/internal/gguf"
	"gollama/internal/lora"
)

// goWords are what encoding/json says of a damaged file in place of JSON's words.
var goWords = regexp.MustCompile(`json: (cannot|unknown|unsupported|invalid)|unmarshal|Go (struct|value)|\bu?int(8|16|32|64)?\b|float(32|64)|map\[|\[\]`)

// ownFile is a file with JSON in it that gollama writes and reads again.
type ownFile struct {
	path  string // below the folder of all
	line  bool   // it has a document a line, of which the first is damaged
	key   string // of the GGUF file that has the JSON
	from  string // where a field's value is made one of the wrong type; "" for the whole
	to    string // by this,
	place string // which the error places here
	noun  string // what the error says of a text that is not JSON; "" for its place
	code  int
	args  []string // of the run that reads it; FILE is the file, DIR its folder
}

var ownFiles = []ownFile{
	{path: "run/ckpt/step-2/state.json", from: `"updates": `, to: `"updates": "a", "x": `, place: "updates: got a string, want a whole number",
		args: []string{"finetune", "--run-dir", "DIR/run", "--resume"}},
	{path: "run/metrics.jsonl", line: true, from: `"step":`, to: `"step":"a","x":`, place: ":1: step: got a string, want a whole number",
		args: []string{"finetune", "--run-dir", "DIR/run", "--resume"}},
	{path: "peft/adapter_config.json", from: `"r": `, to: `"r": "a", "x": `, place: "r: got a string, want a whole number", code: exitFailed,
		args: []string{"export-lora", "-m", storyModel, "--lora", "DIR/peft", "-o", "DIR/x.gguf"}},
	{path: "i.gguf", key: keyImatrixSettings, place: "key " + keyImatrixSettings + ": got an array, want an object", code: exitInput,
		args: []string{"imatrix", "-m", storyModel, "-f", "DIR/text.txt", "-c", "32", "-o", "FILE", "--resume"}},
	{path: "session", line: true, from: `"tokens":`, to: `"tokens":"a","x":`, place: "header, line 1: tokens: got a string, want a whole number", code: exitFailed,
		noun: "it is not a session file", args: []string{"run", "-m", storyModel, "-p", "", "-n", "1", "--session", "FILE"}},
	{path: "o.jsonl", line: true, from: `"fingerprint":`, to: `"fingerprint":7,"x":`, place: "line 1: it is no result: fingerprint: got a number, want a string", code: exitInput,
		args: []string{"run", "-m", storyModel, "--records", "DIR/in.jsonl", "-n", "2", "-o", "FILE", "--resume"}},
	{path: "t.bin.json", from: `"n_tokens": `, to: `"n_tokens": [], "x": `, place: "n_tokens: got an array, want a whole number", code: exitInput,
		args: []string{"finetune", "-m", storyModel, "--data", "DIR/t.bin", "-c", "32", "-o", "DIR/x.gguf"}},
	{path: "talk.json", from: `"content": `, to: `"content": {}, "x": `, place: "messages[0].content: got an object, want a string or an array of parts", code: exitInput,
		args: []string{"run", "-m", storyModel, "--chat-template", "chatml", "--messages", "FILE", "-n", "1"}},
}

// TestOwnFiles: whatever of gollama's own files is damaged, and wherever it is read, one line says which file it is, where in it
// and what is wrong, in the words of JSON.
func TestOwnFiles(t *testing.T) {
	good := makeOwnFiles(t)
	for i := range ownFiles {
		f := &ownFiles[i]
		t.Run(f.path, func(t *testing.T) {
			t.Parallel()
			for _, d := range []struct{ name, want string }{
				{"nothing", ""}, {"a field", f.place}, {"cut", "unexpected end of JSON input"}, {"no JSON", "byte 1: invalid character '<'"},
			} {
				if d.name == "no JSON" && f.noun != "" {
					d.want = f.noun
				}
				dir := filepath.Join(t.TempDir(), "d")
				if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(dir, f.path)
				f.damage(t, path, d.name)
				_, msg, code := gollama(t, f.command(dir, path)...)
				checkOwn(t, f, d.name, d.want, msg, code)
			}
		})
	}
}

// checkOwn looks at what a run said of a damaged file.
func checkOwn(t *testing.T, f *ownFile, damage, want, msg string, code int) {
	t.Helper()
	name := filepath.Base(f.path)
	if f.key == "" {
		name = strings.TrimPrefix(f.path, "run/")
	}
	var about []string
	for line := range strings.Lines(msg) {
		if strings.Contains(line, name+":") && (strings.Contains(line, "error: ") || strings.Contains(line, "warning: ")) {
			about = append(about, line)
		}
	}
	if damage == "nothing" {
		if code != exitOK || len(about) > 0 {
			t.Errorf("undamaged: status %d, %q", code, msg)
		}
		return
	}
	if code != f.code || len(about) != 1 || !strings.Contains(about[0], want) || goWords.MatchString(strings.Join(about, "")) {
		t.Errorf("%s: status %d, %q, want %d and one line with %q", damage, code, msg, f.code, want)
	}
}

// command is the command line of a run on the file at path in dir.
func (f *ownFile) command(dir, path string) []string {
	var args []string
	for _, a := range f.args {
		args = append(args, strings.Replace(strings.Replace(a, "FILE", path, 1), "DIR", dir, 1))
	}
	return args
}

// damage does to the JSON in the file at path what the name says.
func (f *ownFile) damage(t *testing.T, path, name string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text, rest := string(data), ""
	if f.key != "" {
		rewriteKey(t, path, f.key, func(s string) string { return f.damaged(t, s, name) })
		return
	}
	if f.line {
		end := strings.Index(text, "\n")
		text, rest = text[:end], text[end:]
	}
	if err := os.WriteFile(path, []byte(f.damaged(t, text, name)+rest), 0o666); err != nil {
		t.Fatal(err)
	}
}

func (f *ownFile) damaged(t *testing.T, text, name string) string {
	t.Helper()
	switch name {
	case "cut":
		return text[:len(text)/2]
	case "no JSON":
		return "<" + text
	case "a field":
		if f.from == "" {
			return "[" + text + "]"
		}
		if !strings.Contains(text, f.from) {
			t.Fatalf("there is no %s in %s", f.from, text)
		}
		return strings.Replace(text, f.from, f.to, 1)
	}
	return text
}

// rewriteKey changes a text in a GGUF file.
func rewriteKey(t *testing.T, path, key string, change func(string) string) {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // it was read
	text, ok := f.Str(key)
	if !ok {
		t.Fatalf("%s has no %s", path, key)
	}
	var out bytes.Buffer
	w, err := gguf.NewWriter(&out, f.KVs.With(key, gguf.ValueOf(change(text))), f.Tensors)
	for i := range f.Tensors {
		if err == nil {
			var b []byte
			if b, err = f.ReadTensor(i); err == nil {
				err = w.WriteTensor(f.Tensors[i].Name, bytes.NewReader(b))
			}
		}
	}
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		err = os.WriteFile(path, out.Bytes(), 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// makeOwnFiles makes a folder with all of ownFiles.
func makeOwnFiles(t *testing.T) string {
	t.Helper()
	m, dir := story(t), t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{
		"text.txt":  strings.Repeat("Once upon a time there was a little dog who saw a big cat. ", 20),
		"in.jsonl":  `{"id": "a", "prompt": "Once"}` + "\n",
		"talk.json": `{"type": "transcript", "model": "m", "messages": [{"role": "user", "content": "a"}]}`,
	} {
		if err := os.WriteFile(at(name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := lora.WritePEFT(at("peft"), storyAdapter()); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"finetune", "-m", m, "-f", at("text.txt"), "-o", at("out.gguf"), "--run-dir", at("run"), "-c", "32", "-b", "32", "--max-steps", "2", "-t", "1"},
		{"imatrix", "-m", m, "-f", at("text.txt"), "-c", "32", "-o", at("i.gguf")},
		{"run", "-m", m, "-p", parkPrompt, "-n", "2", "--session", at("session")},
		{"run", "-m", m, "--records", at("in.jsonl"), "-n", "2", "-o", at("o.jsonl")},
		{"tokenize", "-m", m, "--format", "bin", "-o", at("t.bin"), at("text.txt")},
	} {
		if _, msg, code := gollama(t, args...); code != exitOK {
			t.Fatalf("%q: status %d, %s", args, code, msg)
		}
	}
	return dir
}
