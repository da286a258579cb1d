package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gollama/internal/engine"
	"gollama/internal/gguf"
	"gollama/internal/imatrix"
)

// chatTemplates are templates of models that differ in what they write.
var chatTemplates = []string{"llama-cpp-deepseek-r1.jinja", "Qwen-Qwen3-0.6B.jinja", "google-gemma-2-2b-it.jinja", "meta-llama-Llama-3.1-8B-Instruct.jinja",
	"CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja", "mistralai-Ministral-3-14B-Reasoning-2512.jinja"}

// Records through templates: what is measured is what the template yields, token for token, and the names of special
// tokens in what a user says stay text.
func TestImatrixChat(t *testing.T) {
	model, dir := story(t), t.TempDir()
	p := engine.DefaultParams()
	p.Model, p.VocabOnly = model, true
	m, err := engine.LoadModel(t.Context(), &p)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	conversations := [][]engine.ChatMessage{
		{{Role: "user", Content: "Hello world"}, {Role: "assistant", Content: "Once upon a time there was a girl."}},
		{{Role: "user", Content: "What is </s> and <s>?"}, {Role: "assistant", Content: "Two names."}, {Role: "user", Content: "Go on."}, {Role: "assistant", Content: "No."}},
	}
	var lines []string
	for _, c := range conversations {
		line, err := json.Marshal(map[string]any{"messages": c})
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(line))
	}
	records := filepath.Join(dir, "chat.jsonl")
	if err := os.WriteFile(records, []byte(strings.Join(lines, "\n")), 0o666); err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, name := range append([]string{"chatml"}, chatTemplates...) {
		args, opt := []string{"--chat-template", name}, engine.ChatTemplateOptions{Source: name}
		if name != "chatml" {
			path := filepath.Join("../../.engine/src/models/templates", name)
			data, err := os.ReadFile(path)
			if err != nil {
				continue
			}
			args, opt.Source = []string{"--chat-template-file", path}, string(data)
		}
		tried++
		tmpl, err := engine.NewChatTemplate(m, opt)
		if err != nil {
			t.Fatal(err)
		}
		want, bos := 0, map[bool]int{}
		for i, c := range conversations {
			p, err := tmpl.Apply(&engine.ChatInput{Messages: c, Now: chatClock})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			tokens, err := tmpl.Tokenize(p)
			if err != nil {
				t.Fatal(err)
			}
			want += len(tokens)
			for _, tok := range tokens {
				if tok == m.Vocab().BOS() || tok == m.Vocab().EOS() {
					bos[i == 1]++
				}
			}
		}
		// Both conversations are told apart by their length only: the second names two tokens and has not more of them.
		if bos[true] > 2*bos[false]+1 {
			t.Errorf("%s: %d special tokens in one conversation, %d in the other", name, bos[false], bos[true])
		}
		_ = tmpl.Close()
		for _, size := range []string{"1024", "37"} { // pieces of 37 tokens: nothing is lost at their ends
			stdout, msg, code := gollama(t, append([]string{"imatrix", "-q", "-m", model, "--records", records, "-c", size, "-o", filepath.Join(dir, "o.gguf"), "--json"}, args...)...)
			if code != 0 || !strings.Contains(stdout, fmt.Sprintf(`"tokens":%d,`, want)) {
				t.Errorf("%s, -c %s: status %d, %s%s, want %d tokens", name, size, code, stdout, msg, want)
			}
		}
	}
	if tried < 6 {
		t.Errorf("%d templates were tried, want 6", tried)
	}
}

// Records give the sums that each alone gives.
func TestImatrixRecordsSum(t *testing.T) {
	model, dir := story(t), t.TempDir()
	var all []string
	var m imatrix.Merger
	out := filepath.Join(dir, "o.gguf")
	run := func(text string, args ...string) *imatrix.File {
		t.Helper()
		path := filepath.Join(dir, "r.jsonl")
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, msg, code := gollama(t, append([]string{"imatrix", "-q", "-m", model, "--records", path, "-c", "128", "-fa", "off", "-o", out}, args...)...); code != 0 {
			t.Fatalf("status %d, %s", code, msg)
		}
		return readImatrix(t, out)
	}
	for i := range 6 {
		line := fmt.Sprintf(`{"text":%q}`, strings.Repeat(fmt.Sprintf("Once upon %d times there was a dog. ", i), 1+3*i))
		all = append(all, line)
		if err := m.Add(line, run(line)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := m.Result(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{nil, {"--shuffle-seed", "3"}, {"-ub", "64"}} {
		for _, x := range imatrix.Compare(want, run(strings.Join(all, "\n"), args...)).Tensors {
			// Kernels round by how many tokens there are at once: 1e-6 of a value.
			if x.TokensA != x.TokensB || x.Max > 1e-5 {
				t.Errorf("%q: %+v", args, x)
			}
		}
	}
}

// changed copies the story model with some of a tensor's float32 values replaced.
func changed(t *testing.T, tensor string, from, to int, value float32) string {
	t.Helper()
	f, err := gguf.Open(story(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	i, ok := f.Tensor(tensor)
	if !ok {
		t.Fatalf("no tensor %s", tensor)
	}
	data, err := os.ReadFile(storyModel)
	if err != nil {
		t.Fatal(err)
	}
	at := int(f.DataOffset) + int(f.Tensors[i].Offset)
	for k := from; k < to; k++ {
		bits := math.Float32bits(value)
		copy(data[at+4*k:], []byte{byte(bits), byte(bits >> 8), byte(bits >> 16), byte(bits >> 24)})
	}
	path := filepath.Join(t.TempDir(), "changed.gguf")
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// A token that makes no numbers ends the run with what was measured before it, or is left out with its chunk.
func TestImatrixNonFinite(t *testing.T) {
	dir := t.TempDir()
	out, text := filepath.Join(dir, "o.gguf"), filepath.Join(dir, "t.txt")
	p := engine.DefaultParams()
	p.Model, p.VocabOnly = story(t), true
	m, err := engine.LoadModel(t.Context(), &p)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := m.Vocab().Tokenize("?", false, false)
	_ = m.Close()
	if err != nil {
		t.Fatal(err)
	}
	bad := int(tokens[len(tokens)-1])
	broken := changed(t, "token_embd.weight", 64*bad, 64*bad+1, float32(math.Inf(1)))
	sentence := "Once upon a time, there was a little girl named Lily. She loved to play outside in the sun. "
	if err := os.WriteFile(text, []byte(strings.Repeat(sentence, 6)+"Why?"+strings.Repeat(sentence, 6)), 0o666); err != nil {
		t.Fatal(err)
	}
	args := []string{"imatrix", "-m", broken, "-f", text, "-c", "32", "-b", "32", "-o", out}
	_, msg, code := gollama(t, args...)
	if code != exitFailed || !strings.Contains(msg, "the input of blk.0.attn_") || !strings.Contains(msg, "error: chunk ") || !strings.Contains(msg, "hint: --on-nonfinite skip") {
		t.Errorf("status %d, %s", code, msg)
	}
	before := readImatrix(t, out)
	if before.Torn() != "" || before.Chunks() < 1 {
		t.Errorf("%d chunks, torn %q", before.Chunks(), before.Torn())
	}
	for _, batch := range []string{"32", "128"} { // alone, and among others
		args[8] = batch
		_, msg, code = gollama(t, append(args, "--on-nonfinite", "skip")...)
		after := readImatrix(t, out)
		if code != 0 || !strings.Contains(msg, "1 chunks are left out") || after.Chunks() <= before.Chunks() || after.Torn() != "" {
			t.Errorf("skip: status %d, %d chunks, %s", code, after.Chunks(), msg)
		}
	}
	_, msg, code = gollama(t, "imatrix", "-m", changed(t, "blk.2.attn_norm.weight", 0, 64, float32(math.NaN())), "-f", text, "-c", "32", "-o", filepath.Join(dir, "n"), "--on-nonfinite", "skip")
	if code != exitInput || !strings.Contains(msg, "nothing was measured") || outputExists(filepath.Join(dir, "n")) {
		t.Errorf("all skipped: status %d, %s", code, msg)
	}
}

// imatrixArgs is a run that takes a while: 296 chunks of the text, each a checkpoint.
func imatrixArgs(text, out string) []string {
	return []string{"imatrix", "-q", "-m", storyModel, "-f", text, "-c", "128", "-b", "128", "-ub", "128", "-t", "1", "-ofreq", "1", "-o", out}
}

// killRuns is how often a run is killed: as often as there is time for. A long test has more.
var killRuns = 4

// Killed at random points, a file that is there has whole chunks, and --resume ends with the bytes of a run that was not
// stopped.
func TestImatrixKill(t *testing.T) {
	dir := t.TempDir()
	text := imatrixText(t, dir)
	whole, out := filepath.Join(dir, "whole.gguf"), filepath.Join(dir, "cut00.gguf")
	begin := time.Now()
	if _, msg, code := gollama(t, imatrixArgs(text, whole)...); code != 0 {
		t.Fatalf("status %d, %s", code, msg)
	}
	length := time.Since(begin)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for i := range killRuns {
		sig, want := syscall.SIGKILL, -1
		if i%2 == 1 {
			sig, want = syscall.SIGINT, exitInterrupt
		}
		cmd := exec.Command(self, append(imatrixArgs(text, out), "--resume")...)
		cmd.Args[0] = "gollama"
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(length/20 + time.Duration(i)*length/time.Duration(2*killRuns))
		_ = cmd.Process.Signal(sig)
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != want && code != 0 {
			t.Errorf("kill %d: status %d, want %d", i, code, want)
		}
		if !outputExists(out) {
			continue
		}
		f := readImatrix(t, out)
		for _, e := range f.Entries {
			if len(f.Entries) != 35 || e.Counts[0] != uint64(128*f.Chunks()) {
				t.Fatalf("kill %d: %d entries, %s has %d tokens in %d chunks", i, len(f.Entries), e.Name, e.Counts[0], f.Chunks())
			}
		}
	}
	// A kill between naming a new file and putting it in the old one's place leaves it beside that: whole.
	left, err := filepath.Glob(filepath.Join(dir, ".gollama-*"))
	if err != nil || len(left) > (killRuns+1)/2 {
		t.Errorf("left behind: %q, %v", left, err)
	}
	for _, path := range left {
		if f := readImatrix(t, path); f.Torn() != "" {
			t.Errorf("%s: %s", path, f.Torn())
		}
	}
	stdout, msg, code := gollama(t, append(imatrixArgs(text, out), "--resume")...)
	if code != 0 || !strings.Contains(stdout, "Final estimate: PPL = 156.3") {
		t.Errorf("status %d, %q, %s", code, stdout, msg)
	}
	a, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(bytes.ReplaceAll(a, []byte("whole.gguf"), []byte("cut00.gguf")), b) {
		t.Error("the resumed run ended with other bytes")
	}
}

// A file that llama-imatrix saved in the middle of a chunk is never gone on with.
func TestImatrixTorn(t *testing.T) {
	dir := t.TempDir()
	text := imatrixText(t, dir)
	out, torn := filepath.Join(dir, "o.gguf"), filepath.Join(dir, "torn.gguf")
	measure(t, storyModel, text, out, "--chunks", "4")
	f := readImatrix(t, out)
	for _, e := range f.Entries {
		if e.Name != "blk.0.attn_q.weight" {
			e.Counts[0] = 384
		}
	}
	if err := f.Write(torn, false); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"resume":  append(imatrixArgs(text, torn), "--chunks", "4", "--resume"),
		"in-file": append(imatrixArgs(text, out), "--in-file", torn),
		"merge":   {"imatrix", "merge", torn, "-o", out},
	} {
		_, msg, code := gollama(t, args...)
		if code == 0 || !strings.Contains(msg, "in the middle of a chunk") && !strings.Contains(msg, "made with another") {
			t.Errorf("%s: status %d, %s", name, code, msg)
		}
	}
	stdout, _, code := gollama(t, "imatrix", "check", "-m", storyModel, torn)
	if code != exitRecords || !strings.Contains(stdout, "in the middle of a chunk") {
		t.Errorf("check: status %d, %s", code, stdout)
	}
}

// Every test's file is one that gollama run describes.
func TestImatrixModelInfo(t *testing.T) {
	dir := t.TempDir()
	text, out := imatrixText(t, dir), filepath.Join(dir, "o.gguf")
	measure(t, storyModel, text, out, "--chunks", "2")
	if stdout, msg, code := gollama(t, "run", "-m", out, "--model-info"); code != 0 || !strings.Contains(stdout, "imatrix") {
		t.Errorf("status %d, %s%s", code, stdout, msg)
	}
	f, err := gguf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var keys []string
	for _, kv := range f.KVs {
		keys = append(keys, kv.Key)
	}
	for _, want := range []string{"gollama.version", "gollama.engine", "gollama.command_line", "gollama.imatrix.model", "gollama.imatrix.ranges", "gollama.imatrix.settings"} {
		if !slices.Contains(keys, want) {
			t.Errorf("no key %s", want)
		}
	}
}
