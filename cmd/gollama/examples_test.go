package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gollama/internal/lora"
)

// TestHelpExamples runs the examples of each subcommand's help as a reader
// would, with the story model in place of theirs.
func TestHelpExamples(t *testing.T) {
	model, err := filepath.Abs(storyModel)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range commands() {
		if len(examples(c.long)) == 0 {
			t.Errorf("the help of %s has no examples", c.name)
		}
		for _, line := range examples(c.long) {
			t.Run(c.name, func(t *testing.T) {
				if strings.Contains(line, "model.gguf") {
					if _, err := os.Stat(model); err != nil || !hasEngine() {
						t.Skipf("no model to run %q with", line)
					}
				}
				for _, tool := range []string{"jq", "man", "less"} {
					if _, err := exec.LookPath(tool); err != nil && strings.Contains(line, "| "+tool) {
						t.Skipf("no %s to run %q with", tool, line)
					}
				}
				dir := t.TempDir()
				if err := os.MkdirAll(filepath.Join(dir, ".config/fish/completions"), 0o777); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, "prompt.txt"), []byte("Once upon a time"), 0o666); err != nil {
					t.Fatal(err)
				}
				for name, text := range map[string]string{
					"prompts.jsonl":   `{"prompt":"Once upon a time"}`,
					"happy.txt":       "Tom was happy. He smiled\nThe girl was glad and laughed\nMom felt good\n",
					"sad.txt":         "Tom was sad. He cried\nThe girl was upset and wept\nMom felt bad\n",
					"contrasts.jsonl": `{"positive":"I am glad.","negative":"I am sorry.","completions":[" Today"," The sun"," My dog"]}` + "\n",
					"train.txt":       strings.Repeat("Once upon a time, there was a little girl named Lily. ", 20),
					"pairs.jsonl":     strings.Repeat(`{"prompt": "Once upon a time", "completion": " there was a cat."}`+"\n", 20),
				} {
					if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
						t.Fatal(err)
					}
				}
				vector, err := os.ReadFile(storyVector)
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, "vector.gguf"), vector, 0o666)
				}
				if err != nil {
					t.Fatal(err)
				}
				if err := lora.WriteGGUF(filepath.Join(dir, "adapter.gguf"), storyAdapter()); err != nil {
					t.Fatal(err)
				}
				exampleMatrices(t, dir)
				base := model
				if c == mtmdCommand {
					base = mediaExample(t, dir)
				}
				replace := strings.NewReplacer("model.gguf", base, "${fpath[1]}", dir, "/usr/local/share/man/man1", dir)
				if out, err := bash(t, dir, "set -o pipefail; "+replace.Replace(line)).CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%s", line, err, out)
				}
			})
		}
	}
}

// examples returns the indented command lines below "Examples:".
func examples(long string) []string {
	_, text, _ := strings.Cut(long, "Examples:\n")
	var list []string
	for _, line := range strings.Split(text, "\n") {
		if !strings.HasPrefix(line, "  ") {
			break
		}
		list = append(list, strings.TrimSpace(line))
	}
	return list
}

// mediaExample puts a projector and images into dir, and returns the path of a model that goes with it.
func mediaExample(t *testing.T, dir string) string {
	t.Helper()
	fixtures, err := filepath.Abs(mediaFixtures)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(fixtures); err != nil {
		t.Skipf("no projector to run it with: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "photos"), 0o777); err != nil {
		t.Fatal(err)
	}
	for to, from := range map[string]string{"mmproj.gguf": "models/mmproj-mlp.gguf", "photo.png": "media/red.png", "b.png": "media/blue.png",
		"photos/grad.png": "media/grad.png"} {
		data, err := os.ReadFile(filepath.Join(fixtures, from))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), data, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(fixtures, "models/text-chat.gguf")
}
