package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gollama/internal/completion"
)

const parkPrompt = "Once upon a time there was a small dog who lived in a big house near the park."

// answer runs and returns the JSON result, which must be one.
func answer(t *testing.T, args ...string) completion.Result {
	t.Helper()
	out, msg, code := gollama(t, append([]string{"run", "-m", storyModel, "--temp", "0", "-t", "1", "--json", "--logprobs", "2"}, args...)...)
	var r completion.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 {
		t.Fatalf("%q: status %d, %v, %s", args, code, err, msg)
	}
	return r
}

// bits is all of a result that a session must not change, to the last bit of its log-probabilities.
func bits(t *testing.T, r completion.Result) string {
	t.Helper()
	b, err := json.Marshal([]any{r.Text, r.FinishReason, r.Logprobs, r.Usage.PromptTokens, r.Usage.CompletionTokens})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A text that is cut and goes on is the uncut one, its log-probabilities bit for bit.
func TestSessionGoesOn(t *testing.T) {
	story(t)
	path := filepath.Join(t.TempDir(), "s")
	uncut := answer(t, "-p", parkPrompt, "-n", "36")
	var text string
	var lp []completion.TokenLogprob
	for i, args := range [][]string{{"-p", parkPrompt}, {"-p", ""}, {"-p", ""}} {
		r := answer(t, append(args, "-n", "12", "--session", path)...)
		if want := 30 + 12*i; i > 0 && r.Usage.CachedTokens != want {
			t.Errorf("run %d: %d cached tokens, want %d", i, r.Usage.CachedTokens, want)
		}
		text, lp = text+r.Text, append(lp, r.Logprobs...)
	}
	uncut2 := uncut
	uncut2.Text, uncut2.Logprobs = text, lp
	if bits(t, uncut2) != bits(t, uncut) || !strings.HasPrefix(text, " He had a big box of colors and animals. One day,") {
		t.Errorf("in three runs %q, at once %q, or other log-probabilities", text, uncut.Text)
	}
}

// Prompts that grow, change and shrink: the output with a session is the output without.
func TestSessionEqual(t *testing.T) {
	story(t)
	prompts := []string{parkPrompt, parkPrompt + " The dog", parkPrompt + " The dog was very happy and wanted to see what there was in the garden of the house.",
		parkPrompt + " The cat", "A cat.", parkPrompt}
	for _, shape := range []string{"", "-b 8", "-b 24 -ub 8", "-b 20 -ub 8", "-ub 1", "-fa off -ub 16"} {
		path := filepath.Join(t.TempDir(), "s")
		cached := 0
		for i, p := range prompts {
			args := append(strings.Fields(shape), "-p", p, "-n", "16")
			want := answer(t, args...)
			got := answer(t, append(args, "--session", path)...)
			if bits(t, got) != bits(t, want) {
				t.Errorf("%s: prompt %d: with a session %q, without %q, or other log-probabilities", shape, i, got.Text, want.Text)
			}
			cached += got.Usage.CachedTokens
		}
		if (cached > 0) != (shape != "") { // a prompt of one micro-batch is evaluated whole
			t.Errorf("%s: %d tokens from the session", shape, cached)
		}
	}
}

func TestSessionCache(t *testing.T) {
	story(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	want := answer(t, "-p", parkPrompt, "-n", "24", "-ub", "8")
	answer(t, "-p", parkPrompt, "-n", "12", "-ub", "8", "--prompt-cache", path)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The prompt alone is kept, and going on with it is making its answer.
	r := answer(t, "-p", "", "-n", "24", "-ub", "8", "--prompt-cache", path, "--prompt-cache-all", "--prompt-cache-ro")
	if bits(t, r) != bits(t, want) || r.Usage.CachedTokens != 24 {
		t.Errorf("got %q, %d cached, want %q, 24", r.Text, r.Usage.CachedTokens, want.Text)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("--prompt-cache-ro changed the file, %v", err)
	}
	answer(t, "-p", parkPrompt, "-n", "12", "-ub", "8", "--prompt-cache-all", "--prompt-cache", path)
	r = answer(t, "-p", "", "-n", "12", "-ub", "8", "--session", path, "--session-ro")
	if !strings.HasSuffix(want.Text, r.Text) || r.Usage.CachedTokens != 42 {
		t.Errorf("got %q, %d cached, want the end of %q, 42", r.Text, r.Usage.CachedTokens, want.Text)
	}
}

func TestSessionErrors(t *testing.T) {
	model, err := os.ReadFile(story(t))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	answer(t, "-p", parkPrompt, "-n", "4", "--session", path)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tuned := filepath.Join(dir, "tuned.gguf") // the same, but for one bit of each of its last weights
	for i := len(model) - 20000; i < len(model); i += 4 {
		model[i] ^= 1
	}
	if err := os.WriteFile(tuned, model, 0o666); err != nil {
		t.Fatal(err)
	}
	fails := func(name string, code int, want string, args ...string) {
		t.Helper()
		out, msg, got := gollama(t, append([]string{"run", "-m", storyModel, "-p", "a", "-n", "1", "--session", path}, args...)...)
		if got != code || out != "" || !strings.Contains(msg, want) || strings.Count(msg, "\n") > 2 {
			t.Errorf("%s: status %d, stdout %q, stderr %q, want %d, %q", name, got, out, msg, code, want)
		}
	}
	fails("model", exitFailed, "model: it was made with", "-m", tuned)
	fails("keys", exitFailed, `cache_type_k: it was made with "f16", and this run has "f32"`, "-ctk", "f32")
	fails("rope", exitFailed, "rope: it was made with", "--rope-freq-base", "20000")
	if _, msg, code := gollama(t, "run", "-m", storyModel, "-p", "a", "-n", "300", "--on-overflow", "shift", "--ignore-eos", "--session", path); code != 0 || !strings.Contains(msg, "is not written: the context was shifted") {
		t.Errorf("shifted: status %d, %q, want a warning", code, msg)
	}
	fails("not there", exitFailed, "no such file", "--session", filepath.Join(dir, "none"), "--session-ro")
	fails("no folder", exitWrite, "no such file", "--session", filepath.Join(dir, "none", "s"))
	fails("not a session", exitFailed, "it is not a session file", "--session", tuned)
	for i := range 40 {
		bad := bytes.Clone(good)
		at := len(bad) * i / 40
		if bad[at] ^= 0x10; i%2 == 0 {
			bad = bad[:at]
		}
		if err := os.WriteFile(path, bad, 0o666); err != nil {
			t.Fatal(err)
		}
		if at > bytes.IndexByte(good, '\n') || i%2 == 0 {
			fails(fmt.Sprint("damaged at ", at), exitFailed, path+": the session cannot be used")
		}
	}
}
