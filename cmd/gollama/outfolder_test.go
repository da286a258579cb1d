package main

import (
	"path/filepath"
	"strings"
	"testing"

	"gollama/internal/lora"
)

// TestOutputFolder: -o with the name of a folder is said to be one, in one line, before any work.
func TestOutputFolder(t *testing.T) {
	m, dir := story(t), t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	writeFiles(t, dir, map[string]string{
		"text.txt": strings.Repeat("Once upon a time there was a little dog. ", 30),
		"in.jsonl": `{"prompt": "a"}` + "\n", "pairs.jsonl": `{"positive": "a", "negative": "b"}` + "\n",
	})
	if err := lora.WriteGGUF(at("a.gguf"), storyAdapter()); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"run", "-p", "a", "-n", "1"},
		{"run", "--records", at("in.jsonl"), "-n", "1"},
		{"run", "--records", at("in.jsonl"), "-n", "1", "--resume"},
		{"tokenize", "--format", "ids", at("text.txt")},
		{"tokenize", "--format", "bin", at("text.txt")},
		{"imatrix", "-f", at("text.txt"), "-c", "32"},
		{"cvector-generate", "--pairs", at("pairs.jsonl")},
		{"export-lora", "--lora", at("a.gguf")},
		{"finetune", "-f", at("text.txt"), "-c", "32", "--max-steps", "1"},
	} {
		out, msg, code := gollama(t, append(args, "-m", m, "-o", dir)...)
		want := "gollama " + args[0] + ": error: --output: " + dir + ": it is a directory\n"
		if code != exitWrite || out != "" || msg != want {
			t.Errorf("%q: status %d, stdout %q, stderr %q, want %d, %q", args, code, out, msg, exitWrite, want)
		}
	}
}
