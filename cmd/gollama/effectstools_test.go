package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gollama/internal/lora"
)

var seconds = regexp.MustCompile(`[0-9]+\.[0-9]+ s\b`)

// effect is a flag, with others that it needs, and what it is compared with.
type effect struct{ with, without string }

// differences runs a subcommand with and without each flag, and fails where nothing that can be seen differs: the status, what is
// written to standard output and messages without times, and what look says of the files. What differs from run to run shows
// nothing, and fails.
func differences(t *testing.T, base []string, cases []effect, look func() string) {
	t.Helper()
	differencesOf(t, base, cases, func(args ...string) (string, string, int) { return gollama(t, args...) }, look)
}

// differencesOf is differences with another way to run the program.
func differencesOf(t *testing.T, base []string, cases []effect, run func(args ...string) (stdout, stderr string, code int), look func() string) {
	t.Helper()
	see := func(flags string) string {
		args := slices.Clone(base)
		for _, f := range strings.Fields(flags) {
			args = append(args, strings.ReplaceAll(f, "~", " ")) // a value with blanks
		}
		out, msg, code := run(args...)
		if code == 2 || code == -1 || strings.Contains(msg, "unknown flag") {
			t.Errorf("%s: status %d: %s", flags, code, msg)
		}
		return fmt.Sprint(code, "\n", out, seconds.ReplaceAllString(msg, "? s"), look())
	}
	known := map[string]string{}
	for _, c := range cases {
		if known[c.without] == "" {
			a, b := see(c.without), see(c.without)
			if known[c.without] = b; a != b {
				t.Logf("%s %q, two runs differ%s", base[0], c.without, firstDifference(a, b))
				// One of some thousands differed, on a busy machine, and has not done so again; what changes with each run does.
				if again := see(c.without); again != a && again != b {
					t.Fatalf("%s %q gives something else each time%s", base[0], c.without, firstDifference(b, again))
				}
			}
		}
		if with := see(c.with); with == known[c.without] {
			t.Errorf("%s: %q and %q give the same: %.300s", base[0], c.with, c.without, with)
		}
	}
}

// firstDifference shows what is around the first byte in which two texts differ.
func firstDifference(a, b string) string {
	at := 0
	for at < min(len(a), len(b)) && a[at] == b[at] {
		at++
	}
	from := max(0, at-100)
	return fmt.Sprintf(", from byte %d:\n%.300s\n%.300s", at, a[from:], b[from:])
}

// engineLog checks the flags of the engine's log.
func engineLog(t *testing.T, base []string) {
	t.Helper()
	_, plain, _ := gollama(t, append(slices.Clone(base), "-lv", "3")...)
	for flag, want := range map[string]*regexp.Regexp{
		"": regexp.MustCompile("(?m)^print_info: "), "--log-prefix": regexp.MustCompile("(?m)^I print_info: "), "--log-timestamps": regexp.MustCompile(`(?m)^[0-9]+\.[0-9]{3} print_info: `),
		"--log-colors on": regexp.MustCompile("\x1b\\["), "--log-json": regexp.MustCompile(`(?m)^\{"type":"log",.*"msg":"print_info: `),
	} {
		_, msg, code := gollama(t, slices.Concat(base, []string{"-lv", "4"}, strings.Fields(flag))...)
		if code != 0 || !want.MatchString(msg) || flag != "" && want.MatchString(plain) {
			t.Errorf("%s -lv 4 %s: status %d, no %s in the messages, or without it too: %.300s", base[0], flag, code, want, msg)
		}
	}
}

// engineEffects are flags of the model and its context, that each subcommand which evaluates texts hands on. Where nothing but
// speed, memory or the place differ, as with -lm, -tb, --numa or -ot, no run can show it; the tests of the engine do.
var engineEffects = []effect{
	{"--override-kv llama.rope.freq_base=float:100", ""},
	{"-fa off", ""},
	{"-ctk bf16 -ctv bf16", ""},
	{"--rope-scaling linear --rope-scale 4", ""},
	{"--rope-scaling yarn --rope-scale 4", "--rope-scaling linear --rope-scale 4"},
	{"-ngl 3", ""}, {"-sm row", ""}, {"-ts 1,1", ""}, {"-mg 1", ""}, // no device: a warning
	{"-dev nope", ""}, {"--rpc 127.0.0.1:1", ""}, // errors
}

// yarnEffects are what imatrix, mtmd and run have beside them.
var yarnEffects = []effect{
	{"--rope-freq-base 100", ""}, {"--rope-freq-scale 0.1", ""},
	{"--rope-scaling yarn --rope-scale 4 --yarn-ext-factor 0.1", "--rope-scaling yarn --rope-scale 4"},
	{"--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 16", "--rope-scaling yarn --rope-scale 4"},
	{"--rope-scaling yarn --rope-scale 4 --yarn-beta-slow 8", "--rope-scaling yarn --rope-scale 4"},
	{"--rope-scaling yarn --rope-scale 4 --yarn-beta-fast 2", "--rope-scaling yarn --rope-scale 4"},
	{"--rope-scaling yarn --rope-scale 4 --yarn-ext-factor 0 --yarn-attn-factor 3", "--rope-scaling yarn --rope-scale 4 --yarn-ext-factor 0"},
}

func TestMTMDFlagEffects(t *testing.T) {
	base, dir := mediaArgs(t, "mmproj-mlp"), t.TempDir()
	base = slices.DeleteFunc(base, func(a string) bool { return a == "-q" })
	for name, text := range map[string]string{
		"t.jinja": "{% for m in messages %}[{{m.role}}] {{m.content}}\n{% endfor %}{% if add_generation_prompt %}[assistant]{{x}}{% endif %}",
		"sys.txt": "Be kind.", "now.jinja": "{{ strftime_now('%Y') }} {% for m in messages %}{{m.content}}{% endfor %}",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	sampling := []effect{
		{"-s 4", ""}, {"--samplers top_k", ""}, {"--sampler-seq k", ""}, {"--top-k 2", ""}, {"--top-p 0.1", ""}, {"--min-p 0.9", ""}, {"--top-nsigma 0.3", ""},
		{"--xtc-probability 1 --xtc-threshold 0.05", "--xtc-probability 1 --xtc-threshold 0.4"}, {"--xtc-probability 1", "--xtc-probability 0"}, {"--typical 0.2", ""},
		{"--repeat-penalty 2", ""}, {"--repeat-penalty 2 --repeat-last-n 1", "--repeat-penalty 2"}, {"--presence-penalty 2", ""}, {"--frequency-penalty 2", ""},
		{"--dry-multiplier 5 --dry-allowed-length 1", ""}, {"--dry-multiplier 5 --dry-allowed-length 1", "--dry-multiplier 5 --dry-allowed-length 9"},
		{"--dynatemp-range 1", ""}, {"--dynatemp-range 1 --dynatemp-exp 3", "--dynatemp-range 1"}, {"--mirostat 2", ""}, {"--mirostat 2 --mirostat-lr 0.9", "--mirostat 2"},
		{"--mirostat 2 --mirostat-ent 1", "--mirostat 2"}, {"-l 1+100", ""}, {"--grammar root~::=~[a-b]+", ""}, {"-j {\"type\":\"integer\"}", ""},
		{"--samplers top_k;adaptive_p --adaptive-target 0.05", "--samplers top_k;adaptive_p"},
		{"--samplers top_k;adaptive_p --adaptive-target 0.5 --adaptive-decay 0.1", "--samplers top_k;adaptive_p --adaptive-target 0.5"},
	}
	own := []effect{
		{"--special -l 1+100", "-l 1+100"}, {"--require-complete", ""}, {"--special -l 1+100 --stop-token 1", "--special -l 1+100"},
		{"-sys brief", ""}, {"-sysf " + at("sys.txt"), ""}, {"--prefill It", ""},
		{"--chat-template-file " + at("t.jinja") + " --chat-template-kwargs {\"x\":\"yes\"}", "--chat-template-file " + at("t.jinja")},
		{"--chat-template-file " + at("now.jinja") + " --now 1000000000", "--chat-template-file " + at("now.jinja") + " --now 2000000000"},
		{"--no-jinja", ""}, {"--transcript x", ""}, {"-p a\\nb -e", "-p a\\nb"}, {"-p <s>a --special-in-input parse", "-p <s>a"},
		{"-mmdev nope", ""}, {"--lora-scaled " + at("no") + ":1", ""}, {"--control-vector-scaled " + at("no") + ":1", ""},
	}
	red := filepath.Join(mediaFixtures, "media/red.png")
	record, _ := json.Marshal(map[string]string{"media": red, "prompt": "look"})
	if err := os.WriteFile(at("r.jsonl"), record, 0o666); err != nil {
		t.Fatal(err)
	}
	common := append(base, "-n", "12", "--seed", "3", "--temp", "1.2", "--ignore-eos", "-c", "512")
	base = append(slices.Clone(common), "--image", red)
	bf16 := func(e effect) bool { return strings.HasPrefix(e.with, "-fa") || strings.HasPrefix(e.with, "-ct") } // too little in 12 letters; logprobs show it
	differences(t, base, slices.Concat(own, sampling, yarnEffects, slices.DeleteFunc(slices.Clone(engineEffects), bf16)), func() string { return "" })
	differences(t, append(common, "--records", at("r.jsonl"), "--logprobs", "1", "--no-perf"),
		append(slices.DeleteFunc(slices.Clone(engineEffects), func(e effect) bool { return !bf16(e) }), effect{"--logprobs 2", ""}), func() string { return "" })
	engineLog(t, base)
	sizes := append(mediaArgs(t, "mmproj-qwen2vl"), "--image", filepath.Join(mediaFixtures, "media/tall.png"), "--count-only")
	differences(t, sizes, []effect{{"--image-max-tokens 4", ""}, {"--image-min-tokens 300", ""}}, func() string { return "" })
}

// The order of files, names that end with a zero, and sidecars that are there.
func TestMTMDFilesFlagEffects(t *testing.T) {
	base, dir := mediaArgs(t, "mmproj-mlp"), t.TempDir()
	names := pictures(t, dir, 2)
	if newer := time.Now().Add(time.Hour); os.Chtimes(names[0], newer, newer) != nil {
		t.Skip("no times of files")
	}
	if err := os.Chmod(names[0], 0o666); err != nil {
		t.Fatal(err)
	}
	side := strings.TrimSuffix(names[0], ".png") + ".txt"
	reset := func() string {
		b, _ := os.ReadFile(side)
		_ = os.Remove(strings.TrimSuffix(names[1], ".png") + ".txt") // if it is there
		if err := os.WriteFile(side, []byte("mine"), 0o666); err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	reset()
	list := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(list, []byte(strings.Join(names, "\x00")), 0o666); err != nil {
		t.Fatal(err)
	}
	base = append(base, "--no-perf")
	differences(t, append(slices.Clone(base), "--dir", dir), []effect{{"--order mtime", ""}, {"--sidecar .txt --overwrite", "--sidecar .txt"}}, reset)
	differences(t, append(slices.Clone(base), "--files-from", list), []effect{{"-0", ""}}, func() string { return "" })
}

func TestImatrixFlagEffects(t *testing.T) {
	dir := t.TempDir()
	text, out, vector, adapter := imatrixText(t, dir), filepath.Join(dir, "o.gguf"), storyVector, filepath.Join(dir, "a.gguf")
	if err := lora.WriteGGUF(adapter, storyAdapter()); err != nil {
		t.Fatal(err)
	}
	base := []string{"imatrix", "-m", storyModel, "-f", text, "-c", "64", "-b", "128", "-ub", "128", "--chunks", "4", "-o", out, "-t", "1"}
	stats := func() string { // without what the command line says
		s, _, _ := gollama(t, "imatrix", "stats", out, "--json")
		_ = os.Remove(out)
		return s
	}
	differences(t, base, slices.Concat(engineEffects, yarnEffects, []effect{
		{"--lora-scaled " + adapter + ":1", ""}, {"--lora-scaled " + adapter + ":1", "--lora-scaled " + adapter + ":2"},
		{"--control-vector-scaled " + vector + ":5", ""}, {"--control-vector-scaled " + vector + ":5 --control-vector-layer-range 2 3", "--control-vector-scaled " + vector + ":5"},
		{"-q", ""},
	}), stats)
	engineLog(t, base)
	nan := filepath.Join(dir, "nan.gguf")
	writeNaN(t, storyModel, nan)
	for _, c := range []string{"imatrix -f " + text + " -o " + out, "cvector-generate -o " + out, "mtmd -p a --chat-template chatml"} {
		args := append(strings.Fields(c), "-m", nan, "--check-tensors")
		if _, msg, code := gollama(t, args...); code != exitFailed || !strings.Contains(msg, "nan.gguf") || !strings.Contains(msg, "invalid") {
			t.Errorf("%s --check-tensors with a NaN in the file: status %d: %s", c, code, msg)
		}
	}
	prompt := []string{"imatrix", "-m", storyModel, "-c", "16", "-o", out, "-t", "1", "-p", strings.Repeat(`The cat </s> sat.\n`, 20)}
	differences(t, prompt, []effect{{"-e", ""}, {"--parse-special", ""}, {"--no-ppl", ""}}, stats)
	whole := func() string {
		b, _ := os.ReadFile(out)
		_ = os.Remove(out)
		return string(b)
	}
	exampleMatrices(t, dir)
	part := filepath.Join(dir, "part1.gguf")
	for _, tool := range [][]string{{"imatrix", "merge", part, "-o", out}, {"imatrix", "convert", part, "-o", out}} {
		differences(t, tool, []effect{{"--plain", ""}}, whole)
	}
	plain := strings.TrimSuffix(out, ".gguf")
	differences(t, []string{"imatrix", "convert", part, "-o", plain}, []effect{{"--output-format dat", ""}}, func() string {
		b, _ := os.ReadFile(plain)
		return string(b[:4])
	})
}

func TestCVectorFlagEffects(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "o.gguf")
	happy, sad := filepath.Join(dir, "happy.txt"), filepath.Join(dir, "sad.txt")
	for path, text := range map[string]string{happy: "Tom was happy. He smiled\nThe girl was glad and laughed\nMom felt good\n", sad: "Tom was sad. He cried\nThe girl was upset and wept\nMom felt bad\n"} {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	adapter := filepath.Join(dir, "a.gguf")
	if err := lora.WriteGGUF(adapter, storyAdapter()); err != nil {
		t.Fatal(err)
	}
	base := []string{"cvector-generate", "-m", story(t), "--positive-file", happy, "--negative-file", sad, "-o", out, "-t", "1"}
	differences(t, base, slices.Concat(engineEffects, []effect{
		{"--lora-scaled " + adapter + ":1", ""}, {"-c 4", ""}, {"-q", ""},
	}), func() string {
		s, _, _ := gollama(t, "cvector-generate", "info", out, "--json")
		_ = os.Remove(out)
		var info struct{ Layers json.RawMessage } // without the command line
		_ = json.Unmarshal([]byte(s), &info)
		return string(info.Layers)
	})
	engineLog(t, base)
}

// TestLogFlagEffects: each subcommand writes its error to --log-file too, as JSON with --log-json, and one that hands the engine's
// log on says so.
func TestLogFlagEffects(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "no.gguf")
	for name, args := range map[string]string{
		"run": "-m NO -p a", "tokenize": "-m NO x", "mtmd": "-m NO --mmproj NO -p a", "imatrix": "-m NO -p a", "cvector-generate": "-m NO -o O", "export-lora": "-m NO --lora NO -o O",
		"finetune": "-m NO --data NO -o O", "rpc-server": "-H 203.0.113.1", "imatrix-merge": "-o O NO", "imatrix-convert": "-o O NO", "imatrix-stats": "NO", "imatrix-diff": "NO NO",
		"imatrix-check": "-m NO NO", "cvector-generate-info": "NO", "cvector-generate-add": "NO -o O", "cvector-generate-scale": "NO --unit -o O", "cvector-generate-shift": "NO -o O",
	} {
		c := findCommand(name)
		log := filepath.Join(dir, name+".log")
		line := slices.Concat(strings.Fields(c.shown()), strings.Fields(strings.NewReplacer("NO", missing, "O", filepath.Join(dir, "o.gguf")).Replace(args)))
		_, plain, code := gollama(t, append(slices.Clone(line), "--log-file", log)...)
		written, err := os.ReadFile(log)
		if err != nil || code == 0 || string(written) != plain || !strings.Contains(plain, "gollama "+c.shown()+": error: ") {
			t.Errorf("%s: status %d, the log file has %q (%v), the messages %q", c.shown(), code, written, err, plain)
		}
		_, msg, _ := gollama(t, append(line, "--log-json")...)
		for _, l := range strings.Split(strings.TrimSpace(msg), "\n") {
			var m struct{ Level, Msg string }
			if err := json.Unmarshal([]byte(l), &m); err != nil || m.Level == "" || m.Msg == "" {
				t.Errorf("%s --log-json: %q: %v", c.shown(), l, err)
			}
		}
	}
}

// Each subcommand has flags of the log but those that write none of the engine's lines.
func TestLogFlags(t *testing.T) {
	for _, c := range commands() {
		for _, f := range flagTable {
			engines := slices.Contains([]string{"log-prefix", "log-timestamps", "log-colors"}, f.name)
			if engines && f.takenBy(c.name) && c.parent != "" {
				t.Errorf("%s takes --%s, which is about the engine's log; it has none", c.shown(), f.name)
			}
		}
	}
}
