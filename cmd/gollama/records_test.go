package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gollama/internal/gguf"
)

// writeRecords writes lines to a file and returns its path.
func writeRecords(t *testing.T, lines []string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "in.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// texts returns the text of each result by id.
func texts(t *testing.T, out string) map[string]string {
	t.Helper()
	m := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		var r struct {
			ID   json.RawMessage
			Text string
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		m[string(r.ID)] = r.Text
	}
	return m
}

// TestRecordsParallel: 8 prompts, shuffled, with long ones in between, have the
// same texts whatever the number of slots. The first five are llama.cpp's own
// answers, those of run-tokenize.md, R1 and R6.
func TestRecordsParallel(t *testing.T) {
	model := story(t)
	want := map[string]string{
		`"0"`: " was a big, red ball. He liked to play with his ball. He liked to play with his ball. He liked",
		`"1"`: " boy named Tim went to the park with his mom. They saw a big box with a big box. Tim want",
		`"2"`: " Lily. \"What are you doing?\"\n\"I'm sorry,\" said Lily. \"I'm s",
		`"3"`: " angry. She loved to play with her toys. One day, she saw a big box with a big bo",
		`"4"`: ", there was a little girl named Lily. She loved to play outside in the park. One day, she saw",
	}
	prompts := []string{"The dog", "One day, a big", `"Hello," said`, "She was very", "Once upon a time", "A cat", "The sun", "Tom and Sam"}
	long := strings.Repeat("Once upon a time there was a dog. ", 60)
	var lines []string
	for i, p := range prompts {
		raw, _ := json.Marshal(p)
		lines = append(lines, fmt.Sprintf(`{"id":"%d","prompt":%s}`, i, raw),
			fmt.Sprintf(`{"id":"long%d","prompt":"%s","max_tokens":%d}`, i, long[:300+200*i], 1+i))
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for k, np := range []string{"1", "2", "3", "8", "32"} {
		rnd.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
		args := []string{"run", "-m", model, "--records", writeRecords(t, lines), "-n", "32", "--temp", "0", "-c", "1024", "-np", np, "-q", "-t", "1"}
		if k == 4 {
			args = append(args, "--unordered", "-b", "64", "-ub", "64") // prompts in many parts
		}
		out, msg, code := gollama(t, args...)
		if code != 0 || msg != "" {
			t.Fatalf("-np %s: status %d, %s", np, code, msg)
		}
		got := texts(t, out)
		if len(got) != len(lines) {
			t.Fatalf("-np %s: %d results of %d records", np, len(got), len(lines))
		}
		for id, text := range got {
			if w, ok := want[id]; ok && text != w {
				t.Errorf("-np %s: %s: got %q, want %q", np, id, text, w)
			}
			want[id] = text // the first run's are the others' reference
		}
	}
}

// badLine is a record that fails, of each kind in turn.
func badLine(i int) string {
	kinds := []string{"{bad", "", `{"id":"dup","prompt":"x"}`, `{"prompt":"x","foo":1}`, `{"prompt":1}`, `[1]`, `{"prompt":"x","temp":-1}`,
		`{"prompt":"x","json_schema":{"type":3}}`, `{"prompt":"x","grammar":"root ::= ("}`, `{"id":1.5,"prompt":"x"}`, `{"prompt":[999999]}`,
		`{"prompt":"` + strings.Repeat("Once upon a time. ", 200) + `"}`, `{"messages":[]}`, `{"prompt":"x","stop":""}`,
		`{"custom_id":"c` + fmt.Sprint(i) + `","method":"GET","url":"/v1/completions","body":{"prompt":"x"}}`, "{\"prompt\":\"\xff\"}", `{"prompt":"\ud800"}`}
	return kinds[i%len(kinds)]
}

// TestRecordsMany: 10,000 records with 1 % bad ones of every kind.
func TestRecordsMany(t *testing.T) {
	model := story(t)
	const n = 10000
	lines := []string{`{"id":"dup","prompt":"The"}`}
	bad := 0
	for i := 1; i < n; i++ {
		if i%100 == 0 {
			lines = append(lines, badLine(bad))
			bad++
			continue
		}
		lines = append(lines, fmt.Sprintf(`{"id":"r%d","prompt":"%d"}`, i, i%7))
	}
	out, msg, code := gollama(t, "run", "-m", model, "--records", writeRecords(t, lines), "-n", "2", "--temp", "0", "-c", "256", "-np", "64", "-t", "1")
	if code != exitRecords || !strings.Contains(msg, fmt.Sprintf("%d of %d records failed", bad, n)) {
		t.Fatalf("status %d, %s", code, msg)
	}
	got := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if len(got) != n {
		t.Fatalf("%d results of %d records", len(got), n)
	}
	failed := 0
	for i, line := range got {
		isBad := i > 0 && i%100 == 0
		if isError := strings.Contains(line, `"error":{`); isError != isBad {
			t.Errorf("line %d: %s", i+1, line)
		} else if isError {
			failed++
		}
		if !isBad && i > 0 && !strings.Contains(line, fmt.Sprintf(`"id":"r%d"`, i)) {
			t.Errorf("line %d is %s", i+1, line)
		}
	}
	if failed != bad {
		t.Errorf("%d failed, want %d", failed, bad)
	}
}

// killMoments is how often TestRecordsKill kills; the slow tests do it 50 times.
var killMoments = 4

// TestRecordsKill: a run that is killed, at any moment, and resumed, gives the
// file of one that was not.
func TestRecordsKill(t *testing.T) {
	model := story(t)
	var lines []string
	for i := range 200 {
		switch i {
		case 20:
			lines = append(lines, "{bad")
		case 40:
			lines = append(lines, "")
		case 60:
			lines = append(lines, `{"id":"long","prompt":"`+strings.Repeat("Once upon a time there was a dog. ", 60)+`"}`)
		case 80:
			lines = append(lines, `{"prompt":"x","nonsense":1}`)
		default:
			lines = append(lines, fmt.Sprintf(`{"id":"r%d","prompt":"Once %d","n":%d}`, i, i%11, 1+i%3))
		}
	}
	in := writeRecords(t, lines)
	dir := t.TempDir()
	args := func(out string, more ...string) []string {
		return append([]string{"run", "-m", model, "--records", in, "-n", "24", "--seed", "3", "-c", "256", "-np", "5", "-t", "1", "-o", filepath.Join(dir, out)}, more...)
	}
	begin := time.Now()
	if _, msg, code := gollama(t, args("whole")...); code != exitRecords {
		t.Fatalf("status %d, %s", code, msg)
	}
	took := time.Since(begin)
	want, err := os.ReadFile(filepath.Join(dir, "whole"))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Count(want, []byte("\n")) != 200 {
		t.Fatalf("%d results, want 200", bytes.Count(want, []byte("\n")))
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	cut := 0
	for i := range killMoments {
		out := fmt.Sprint("killed", i)
		cmd := exec.Command(self, args(out)...)
		cmd.Args[0] = "gollama"
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rnd.Int64N(int64(took))))
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if part, _ := os.ReadFile(filepath.Join(dir, out)); len(part) < len(want) {
			cut++
			if !bytes.HasPrefix(want, part) {
				t.Errorf("what was killed is not the beginning of the whole:\n%s", part)
			}
		}
		_, msg, code := gollama(t, args(out, "--resume")...)
		if got, err := os.ReadFile(filepath.Join(dir, out)); err != nil || !bytes.Equal(got, want) || code != exitRecords {
			t.Errorf("resumed: %v, status %d, %s: %d bytes, want the %d of the whole", err, code, msg, len(got), len(want))
		}
	}
	t.Logf("%d of %d runs were killed before their end", cut, killMoments)
}

// chatStory is the story model with a chat template.
func chatStory(t *testing.T) string {
	t.Helper()
	f, err := gguf.Open(story(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	const chatML = "{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' -}}{%- endfor -%}" +
		"{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
	path := filepath.Join(t.TempDir(), "chat.gguf")
	w, err := gguf.Create(path, f.KVs.With("tokenizer.chat_template", gguf.ValueOf(chatML)), f.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	for i, tensor := range f.Tensors {
		if err := w.WriteTensor(tensor.Name, f.TensorReader(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRecordsMessages: messages go through the model's template. The answer is
// llama.cpp's own, that of run-tokenize.md, R10.
func TestRecordsMessages(t *testing.T) {
	in := writeRecords(t, []string{
		`{"id":"own","messages":[{"role":"user","content":"Hello"}]}`,
		`{"custom_id":"open","method":"POST","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"Hello"}],"logprobs":true,"top_logprobs":1}}`,
		`{"id":"text","prompt":"<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"}`,
		`{"id":"role","messages":[{"content":"Hello"}]}`,
		`{"id":"none","messages":[]}`,
	})
	out, msg, code := gollama(t, "run", "-m", chatStory(t), "--records", in, "-n", "8", "--temp", "0", "-c", "512", "-np", "2", "-t", "1")
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if code != exitRecords || len(lines) != 5 || !strings.Contains(msg, "2 of 5 records failed") {
		t.Fatalf("status %d, %s\n%s", code, msg, out)
	}
	for i, want := range []string{`"text":"\"Here?\" A`, `"message":{"role":"assistant","content":"\"Here?\" A`, `"text":"\"Here?\" A`,
		`"error":{"code":"invalid_value","message":"messages: `, `"error":{"code":"invalid_value","message":"messages: `} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %d: got %s, want %s in it", i+1, lines[i], want)
		}
	}
	if !strings.Contains(lines[1], `"object":"chat.completion"`) || !strings.Contains(lines[1], `"logprobs":{"content":[{"token":`) {
		t.Errorf("got %s", lines[1])
	}
	// A model without a template has no messages.
	out, _, code = gollama(t, "run", "-m", story(t), "--records", in, "-n", "1", "-q")
	if code != exitRecords || !strings.Contains(out, `"id":"own","line":1,"error":{"code":"unsupported"`) {
		t.Errorf("status %d, %s", code, out)
	}
}
