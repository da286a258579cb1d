package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gollama/internal/engine/ggml"
	"gollama/internal/gguf"
	"gollama/internal/lora"
)

// seenElsewhere are flags that each subcommand shares, and whose effect another test sees for all of them.
var seenElsewhere = map[string]string{"log-file": "TestLogFlagEffects", "log-json": "TestLogFlagEffects"}

// complete fails for each flag that a subcommand takes and of which no case shows the effect. A case must differ from what it is
// compared with in one flag, and so be about that one. others are flags that the caller sees the effect of, or that have none
// but on speed. What is refused must end with a usage error.
func complete(t *testing.T, cmd string, cases []effect, others ...string) {
	t.Helper()
	names, seen := spellings(cmd), map[string]bool{}
	split := func(line string) map[string]string { // flag and its value, by name
		m := map[string]string{}
		at := ""
		for _, word := range strings.Fields(line) {
			if s, ok := lookup(names, word); ok && strings.HasPrefix(word, "-") {
				at = s.flag.name
				word = s.value
			}
			m[at] += " " + word
		}
		return m
	}
	for _, c := range cases {
		without, changed := split(c.without), []string{}
		for name, value := range split(c.with) {
			if name != "" && without[name] != value {
				changed = append(changed, name)
			}
		}
		if len(changed) != 1 {
			t.Errorf("%s: %q and %q differ in %q, want one flag", cmd, c.with, c.without, changed)
			continue
		}
		seen[changed[0]] = true
	}
	for _, f := range flagTable {
		switch {
		case !f.takenBy(cmd):
		case f.reject != "":
			args := append([]string{"--" + f.name}, slices.Repeat([]string{"x"}, map[bool]int{true: 1}[f.takesValue()])...)
			if _, _, err := settingsOf(cmd, args, nil); exitCode(err) != exitUsage {
				t.Errorf("%s: --%s is refused, and %q gives %v", cmd, f.name, args, err)
			}
		case !seen[f.name] && !slices.Contains(others, f.name) && seenElsewhere[f.name] == "":
			t.Errorf("%s: no case shows what --%s does", cmd, f.name)
		}
	}
}

// contents tells a folder's files and their first bytes, of models without what they say about their making, and empties it.
func contents(t *testing.T, dir string) string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range files {
		path := filepath.Join(dir, e.Name())
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, ".gguf") {
			f, err := gguf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			data = data[f.DataOffset:]
			_ = f.Close() // it was only read from
		}
		fmt.Fprintf(&b, "%s %x\n", e.Name(), sha256.Sum256(data))
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// writeFiles writes files into a folder.
func writeFiles(t *testing.T, dir string, texts map[string]string) {
	t.Helper()
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTokenizeFlagEffects(t *testing.T) {
	model, dir, out := story(t), t.TempDir(), t.TempDir()
	writeFiles(t, dir, map[string]string{
		"A": "Once upon\na time\n", "B": "the dog\n", "N": "Once\x00upon\x00", "J": `{"text":"Once","x":"upon"}` + "\n", "X": "a\xff", "C": "format: ids\n",
		"L": filepath.Join(dir, "A") + "\n" + filepath.Join(dir, "B") + "\n",
	})
	fill := func(cases []effect, pairs ...string) []effect {
		r := strings.NewReplacer(pairs...)
		for i, c := range cases {
			cases[i] = effect{r.Replace(c.with), r.Replace(c.without)}
		}
		return cases
	}
	look := func() string { return contents(t, out) }
	texts := fill([]effect{
		{"-p hi -m MODEL", "-p hi"},
		{"-p hi", "-p ho"}, {`-p a\nb -e`, `-p a\nb`},
		{"-f DIR/A", "-f DIR/B"}, {"-f DIR/A --files-from DIR/L", "-f DIR/A"}, {"-f DIR/A --lines", "-f DIR/A"}, {"-f DIR/N -0", "-f DIR/N"},
		{"-f DIR/J --jsonl", "-f DIR/J"}, {"-f DIR/J --jsonl --field x", "-f DIR/J --jsonl"},
		{"-p hi -o OUT/o", "-p hi"}, {"-p hi --format ids", "-p hi"}, {"-p hi --ids", "-p hi"}, {"-p hi --ids --show-count", "-p hi --ids"}, {"-p éa --offsets rune", "-p éa"},
		{"-p 403 --decode", "-p 403"}, {"-p hi --vocab", "-p hi"}, {"-p hi --stats", "-p hi"}, {"-p hi --stats --plot OUT/p.svg", "-p hi --stats"},
		{"-p hi --bos off", "-p hi"}, {"-p hi --eos on", "-p hi"}, {"-p hi --eos on --no-bos", "-p hi --eos on"}, {"-p </s> --special literal", "-p </s>"},
		{"-f DIR/X --invalid-utf8 replace", "-f DIR/X"}, {"-p hi -lv 3 --encoder engine", "-p hi -lv 3"},
		{"-p hello --max-tokens 2", "-p hello"}, {"-p hello --max-tokens 2 --truncate", "-p hello --max-tokens 2"}, {"-p hello --fail-over 2", "-p hello"},
		{"-p hello --chunk 3", "-p hello"}, {"-p hello --chunk 3 --overlap 1", "-p hello --chunk 3"}, {"-f DIR/A --lines --format ids --pack 4", "-f DIR/A --lines --format ids"},
		{"-p <s>hi -q", "-p <s>hi"}, {"-p <s>hi -lv 1", "-p <s>hi"}, {"-p hi --config DIR/C", "-p hi"}, {"-p hi --print-config", "-p hi"},
	}, "MODEL", model, "DIR", dir, "OUT", out)
	differences(t, []string{"tokenize"}, texts, look)
	engineLog(t, []string{"tokenize", "-m", model, "-p", "hi", "--encoder", "engine"})
	text := program(t, "tokenize", "-m", model, "--stdin", "--format", "ids")
	text.Stdin = strings.NewReader("Once upon a time")
	if got, err := text.Output(); err != nil || string(got) != "1 403 407 261 378\n" {
		t.Errorf("--stdin: %q, %v", got, err)
	}

	models := mediaArgs(t, "mmproj-qwen2vl")[1:5] // -m and --mmproj
	media := fill([]effect{
		{"-p look --mmproj MLP --media IN/red.png", "-p look --mmproj MLP"}, {"-p look --mmproj QWEN --media IN/red.png", "-p look --mmproj MLP --media IN/red.png"},
		{"-p a<x>b --mmproj MLP --media IN/red.png --media-marker <x>", "-p a<x>b --mmproj MLP --media IN/red.png"},
		{"-p look --mmproj QWEN --media IN/exif-6.jpg --no-exif", "-p look --mmproj QWEN --media IN/exif-6.jpg"},
		{"-p look --mmproj QWEN --media IN/tall.png --image-max-tokens 4", "-p look --mmproj QWEN --media IN/tall.png"},
		{"-p look --mmproj QWEN --media IN/tall.png --image-min-tokens 300", "-p look --mmproj QWEN --media IN/tall.png"},
	}, "MLP", filepath.Join(mediaFixtures, "models/mmproj-mlp-2l.gguf"), "QWEN", models[3], "IN", filepath.Join(mediaFixtures, "media"))
	differences(t, append([]string{"tokenize"}, models[:2]...), media, look)
	complete(t, "tokenize", slices.Concat(texts, media), "stdin", "log-colors", "log-prefix", "log-timestamps",
		"jobs") // speed alone: tokens.TestRun has the same bytes for each number
}

func TestExportLoRAFlagEffects(t *testing.T) {
	model, dir, out := story(t), t.TempDir(), t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, kind := range map[string]string{"a.gguf": "", "b.gguf": "head", "alora.gguf": "alora"} {
		if err := lora.WriteGGUF(at(name), storyAdapter(kind)); err != nil {
			t.Fatal(err)
		}
	}
	weights := at("i.gguf")
	if _, msg, code := gollama(t, "imatrix", "-m", model, "-f", imatrixText(t, dir), "-c", "64", "--chunks", "1", "-o", weights, "-t", "1"); code != 0 {
		t.Fatal(msg)
	}
	writeFiles(t, dir, map[string]string{"C": "out-type: f16\n"})
	r := strings.NewReplacer("BASE", "-m "+model+" --lora "+at("a.gguf")+" -o "+filepath.Join(out, "o.gguf"), "MODEL", model, "DIR", dir, "OUT", out)
	cases := []effect{
		{"BASE", "--lora DIR/a.gguf -o OUT/o.gguf"}, {"-m MODEL --lora DIR/b.gguf -o OUT/o.gguf", "BASE"},
		{"-m MODEL --lora DIR/a.gguf -o OUT/other.gguf", "BASE"}, {"BASE --lora-scaled DIR/b.gguf:0.5", "BASE"}, {"BASE --out-type f16", "BASE"},
		{"BASE --out-type q4_0 --imatrix DIR/i.gguf", "BASE --out-type q4_0"}, {"BASE --split-max-size 1M", "BASE"}, {"BASE --split-max-tensors 20", "BASE"},
		{"BASE --verify 1", "BASE"}, {"BASE --dry-run", "BASE"}, {"BASE --report OUT/r.json", "BASE"}, {"BASE --float64", "BASE"},
		{"-m MODEL --lora DIR/alora.gguf -o OUT/o.gguf --force", "-m MODEL --lora DIR/alora.gguf -o OUT/o.gguf"},
		{"-m MODEL --lora DIR/alora.gguf -o OUT/o.gguf --force -q", "-m MODEL --lora DIR/alora.gguf -o OUT/o.gguf --force"},
		{"-m MODEL --lora DIR/alora.gguf -o OUT/o.gguf --force -lv 1", "-m MODEL --lora DIR/alora.gguf -o OUT/o.gguf --force"},
		{"BASE --config DIR/C", "BASE"}, {"BASE --print-config", "BASE"},
	}
	for i, c := range cases {
		cases[i] = effect{r.Replace(c.with), r.Replace(c.without)}
	}
	differences(t, []string{"export-lora"}, cases, func() string { return contents(t, out) })
	engineLog(t, append([]string{"export-lora", "--verify", "1", "-t", "1"}, strings.Fields(r.Replace("BASE"))...))
	complete(t, "export-lora", cases, "log-colors", "log-prefix", "log-timestamps",
		"threads") // speed alone: TestExportLoRAForms has the same values for each number
}

// tasks returns how many threads a process has.
func tasks(t *testing.T, pid int) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Skip("no /proc")
	}
	return len(list)
}

// closing is what a server says of a client's end, if there was time for it.
var closing = regexp.MustCompile("Client connection closed|recv returned|closing socket")

// serveOnce starts a server, asks it once if it listens, and ends it. Its lines come sorted: what it prints comes through a pipe,
// what it logs does not.
func serveOnce(t *testing.T, args []string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := program(t, args...)
	var out, msg bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &msg
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	p := args[slices.Index(args, "-p")+1]
	for begin := time.Now(); ggml.CheckRPC("127.0.0.1:"+p, time.Second) != nil && time.Since(begin) < 30*time.Second; {
		select {
		case <-ended:
			return out.String(), msg.String(), cmd.ProcessState.ExitCode() // it does not serve
		case <-time.After(10 * time.Millisecond):
		}
	}
	time.Sleep(100 * time.Millisecond)      // what it says goes through a pipe of its own, and may come after it answers
	_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	<-ended
	lines := slices.DeleteFunc(strings.SplitAfter(msg.String(), "\n"), closing.MatchString)
	slices.Sort(lines)
	return out.String(), strings.Join(lines, ""), cmd.ProcessState.ExitCode()
}

func TestRPCServerFlagEffects(t *testing.T) {
	story(t)
	dir := t.TempDir()
	cache := filepath.Join(dir, "cache")
	t.Setenv("LLAMA_CACHE", cache)
	writeFiles(t, dir, map[string]string{"C": "quiet: true\n"})
	port := func() string {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		_, p, _ := strings.Cut(l.Addr().String(), ":")
		return p
	}
	one, other := port(), port()
	look := func() string {
		_, err := os.Stat(filepath.Join(cache, "rpc"))
		_ = os.RemoveAll(cache)
		return fmt.Sprint(err == nil)
	}
	base := "-p " + one
	cases := []effect{
		{"-p " + other, base}, {base + " -H 0.0.0.0", base}, {base + " -d nope", base}, {base + " -c", base},
		{base + " -q", base}, {base + " -lv 1", base}, {base + " --config " + filepath.Join(dir, "C"), base}, {base + " --print-config", base},
		{base + " --log-prefix", base}, {base + " --log-json", base}, {base + " --log-timestamps", base}, {base + " -lv 5 --log-colors on", base + " -lv 5"},
	}
	t.Setenv("GGML_RPC_DEBUG", "1") // lines of a level that has a colour
	differencesOf(t, []string{"rpc-server"}, cases, func(args ...string) (string, string, int) { return serveOnce(t, args) }, look)
	complete(t, "rpc-server", cases, "threads") // TestRPCServerThreads
}

// A graph of a client runs on as many threads as -t says.
func TestRPCServerThreads(t *testing.T) {
	model := story(t)
	const n = 24
	counts := map[string]int{}
	for _, threads := range []string{"1", fmt.Sprint(n)} {
		s := startServer(t, "-t", threads)
		client := program(t, "run", "-m", model, "-p", "Once", "-n", "60", "--ignore-eos", "--rpc", s.addr, "-ngl", "99", "-q")
		ended := make(chan error, 1)
		go func() { ended <- client.Run() }()
		for done := false; !done; {
			select {
			case err := <-ended:
				if err != nil {
					t.Fatal(err)
				}
				done = true
			case <-time.After(time.Millisecond):
			}
			counts[threads] = max(counts[threads], tasks(t, s.cmd.Process.Pid))
		}
	}
	if got := counts[fmt.Sprint(n)] - counts["1"]; got < n/2 { // Go has some of its own
		t.Errorf("-t %d: %d threads more than with -t 1", n, got)
	}
}

// version and devices have one flag.
func TestInfoFlagEffects(t *testing.T) {
	for _, cmd := range []string{"version", "devices"} {
		cases := []effect{{"--json", ""}}
		if !hasEngine() {
			t.Skip("no engine")
		}
		complete(t, cmd, cases)
		plain, _, _ := gollama(t, cmd)
		if out, msg, code := gollama(t, cmd, "--json"); code != 0 || !strings.HasPrefix(out, `{"type":"`+cmd+`"`) || strings.HasPrefix(plain, "{") {
			t.Errorf("%s --json: status %d, %q, %s", cmd, code, out, msg)
		}
	}
}
