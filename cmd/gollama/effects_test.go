package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gollama/internal/engine"
	"gollama/internal/gguf"
)

// TestRunFlagEffects compares a run with a flag and without it: one that is
// accepted has an effect that can be seen.
func TestRunFlagEffects(t *testing.T) {
	model := story(t)
	nan := filepath.Join(t.TempDir(), "nan.gguf")
	writeNaN(t, model, nan)
	base := []string{"run", "-m", model, "-p", "Once upon a time, Once upon a time", "-n", "60", "--temp", "1.2", "--seed", "5", "--ignore-eos", "-q"}
	for _, c := range []struct{ with, without string }{
		{with: "--top-nsigma 0.3"},
		{with: "--xtc-probability 1 --xtc-threshold 0.05", without: "--xtc-probability 1 --xtc-threshold 0.4"},
		{with: "--xtc-probability 1", without: "--xtc-probability 0"},
		{with: "--typical 0.2"},
		{with: "--frequency-penalty 1.5"},
		{with: "--dry-multiplier 2"},
		{with: "--dry-multiplier 2 --dry-allowed-length 1", without: "--dry-multiplier 2 --dry-allowed-length 6"},
		{with: "--dry-multiplier 2 --dry-penalty-last-n 2", without: "--dry-multiplier 2"},
		{with: "--samplers top_k;adaptive_p --adaptive-target 0.05", without: "--samplers top_k;adaptive_p"},
		{with: "--dynatemp-range 1"},
		{with: "--dynatemp-range 1 --dynatemp-exp 3", without: "--dynatemp-range 1"},
		{with: "--mirostat 2 --mirostat-lr 0.9", without: "--mirostat 2"},
		{with: "--mirostat 2 --mirostat-ent 1", without: "--mirostat 2"},
		{with: "--rope-scaling yarn --rope-scale 2", without: "--rope-scaling linear --rope-scale 2"},
		{with: "--rope-scaling yarn --rope-scale 2 --yarn-orig-ctx 16", without: "--rope-scaling yarn --rope-scale 2"},
		{with: "--rope-scaling yarn --rope-scale 4 --yarn-ext-factor 0.1", without: "--rope-scaling yarn --rope-scale 4"},
		{with: "--rope-scaling yarn --rope-scale 4 --yarn-ext-factor 0 --yarn-attn-factor 3", without: "--rope-scaling yarn --rope-scale 4 --yarn-ext-factor 0"},
		{with: "--rope-scaling yarn --rope-scale 4 --yarn-beta-slow 8", without: "--rope-scaling yarn --rope-scale 4"},
		{with: "--rope-scaling yarn --rope-scale 4 --yarn-beta-fast 2", without: "--rope-scaling yarn --rope-scale 4"},
	} {
		with, _, _ := gollama(t, append(base[:len(base):len(base)], strings.Fields(c.with)...)...)
		without, _, code := gollama(t, append(base[:len(base):len(base)], strings.Fields(c.without)...)...)
		if code != 0 || with == "" || with == without {
			t.Errorf("%q and %q give the same: %.60q (status %d)", c.with, c.without, with, code)
		}
	}
	if _, msg, code := gollama(t, "run", "-m", nan, "-p", "Once", "-n", "1", "--check-tensors"); code != 1 || !strings.Contains(msg, "nan.gguf") {
		t.Errorf("--check-tensors with a NaN in the file: status %d: %s", code, msg)
	}
	for _, c := range []struct{ with, want string }{
		{"--verbose-prompt -lv 3", "Once"}, {"--log-prefix -lv 3", "(?m)^I print_info"}, {"--log-timestamps -lv 3", `(?m)^\d+\.\d{3} `},
	} {
		args, want := []string{"run", "-m", model, "-p", "Once", "-n", "1"}, regexp.MustCompile(c.want)
		_, msg, _ := gollama(t, append(args, strings.Fields(c.with)...)...)
		if _, plain, _ := gollama(t, append(args, "-lv", "3")...); !want.MatchString(msg) || want.MatchString(plain) {
			t.Errorf("%s: no %s in the messages, or without it too: %.300s", c.with, want, msg)
		}
	}
}

// What llama.cpp takes and does not use is said.
func TestNoEffect(t *testing.T) {
	for name, s := range ofSampler {
		if !slices.ContainsFunc(flagTable, func(f flagDef) bool { return f.name == name && strings.Contains(f.in, inRun) }) {
			t.Errorf("ofSampler has %s, which is no flag of run", name)
		}
		if _, err := engine.ParseSamplers(s); err != nil {
			t.Errorf("ofSampler: %s: %v", name, err)
		}
	}
	_, msg, code := gollama(t, "run", "-m", story(t), "-p", "Once", "-n", "1", "--adaptive-target", "0.1", "--yarn-attn-factor", "2", "--samplers", "top_k", "--min-p", "0.1")
	for _, want := range []string{"--adaptive-target has no effect: adaptive_p is not in --samplers", "--min-p has no effect", "--yarn-attn-factor has no effect: it is for --yarn-ext-factor 0"} {
		if code != 0 || !strings.Contains(msg, "warning: "+want) {
			t.Errorf("status %d: no %q in %q", code, want, msg)
		}
	}
	if _, msg, _ := gollama(t, "run", "-m", story(t), "-p", "Once", "-n", "1", "--min-p", "0.1", "--samplers", "min_p;adaptive_p", "--adaptive-target", "0.1"); msg != "" {
		t.Errorf("a warning for nothing: %q", msg)
	}
}

// writeNaN copies a model and makes a weight a NaN.
func writeNaN(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	i, _ := f.Tensor("blk.0.attn_q.weight")
	at := f.DataOffset + int64(f.Tensors[i].Offset)
	for k, b := range []byte{0, 0, 0xc0, 0x7f} {
		data[at+int64(k)] = b
	}
	if err := os.WriteFile(to, data, 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestFinetuneFlagEffects does the same for training: a flag changes the losses
// of a short run, or what is said there.
func TestFinetuneFlagEffects(t *testing.T) {
	model, dir := story(t), t.TempDir()
	write := func(name string, line func(i int) string) string {
		var b strings.Builder
		for i := range 24 {
			b.WriteString(line(i) + "\n")
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pairs := write("pairs.jsonl", func(i int) string {
		return fmt.Sprintf(`{"prompt":"Once upon a time","completion":" there were %d</s> cats. The end."}`, i)
	})
	val := write("val.jsonl", func(int) string { return `{"prompt":"The dog","completion":" was big."}` })
	plain := write("plain", func(i int) string { return fmt.Sprintf(`{"text":"There were %d dogs."}`, i) })
	n := 0
	losses := func(flags string) string {
		n++
		run := filepath.Join(dir, fmt.Sprint("run", n))
		args := []string{"-m", model, "-o", filepath.Join(dir, fmt.Sprint("o", n)), "--run-dir", run, "-c", "48", "--batch", "4", "--epochs", "2", "-lr", "1e-2", "--no-pack"}
		if !strings.Contains(flags, "--data") {
			args = append(args, "--data", pairs)
		}
		tune(t, append(args, strings.Fields(flags)...)...)
		var b strings.Builder
		for _, r := range reports(t, run) {
			for _, x := range []*float64{r.Loss, r.LR, r.GradNorm, r.ValLoss} {
				if x == nil {
					x = new(float64)
					*x = math.NaN()
				}
				fmt.Fprintf(&b, "%.5g ", *x)
			}
			b.WriteByte('\n')
		}
		return b.String()
	}
	known := map[string]string{}
	of := func(flags string) string {
		if known[flags] == "" {
			known[flags] = losses(flags)
		}
		return known[flags]
	}
	for _, c := range []struct{ with, without string }{
		{"--val-data " + val, ""},
		{"--data " + plain + " --data-format text", "--data " + plain + " --data-format jsonl"},
		{"--parse-special", ""},
		{"--no-shuffle", ""},
		{"--method lora --rslora", "--method lora"},
		{"--method lora --dropout 0.5", "--method lora"},
		{"--method lora --layers 0-1", "--method lora"},
		{"--train-tensors blk.*.attn_q.weight", ""},
		{"--schedule halving -lr-min 1e-4 --learning-rate-decay-epochs 1", "--schedule halving -lr-min 1e-4"},
		{"--schedule wsd --decay 0.5", "--schedule wsd"},
		{"--beta1 0.5", ""}, {"--beta2 0.9", ""}, {"--eps 0.1", ""},
		{"-opt sgd --momentum 0.9", "-opt sgd"},
		{"-opt sgd --momentum 0.9 --nesterov", "-opt sgd --momentum 0.9"},
		{"-opt muon --muon-momentum 0.5", "-opt muon"},
		{"--clip 0.01", ""},
		{"--report-every 3", ""},
	} {
		if of(c.with) == of(c.without) {
			t.Errorf("%q and %q give the same losses:\n%s", c.with, c.without, of(c.with))
		}
	}
	cache := filepath.Join(dir, "cache")
	of("--cache-dir " + cache)
	if files, err := os.ReadDir(cache); err != nil || len(files) == 0 {
		t.Errorf("--cache-dir: nothing is in it (%v)", err)
	}
	if of("--cache-dir "+cache) != of("") {
		t.Error("--cache-dir changes the losses")
	}
}
