//go:build slow

package main

import (
	"context"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gollama/internal/engine/ggml"
	"gollama/internal/gguf"
	"gollama/internal/lora"
)

// Two epochs over 60,000 bytes of Shakespeare reach what ggml's own graph
// without a KV cache reaches, 2.590 and 2.442; llama-finetune ends at 3.067.
func TestFinetuneShakespeare(t *testing.T) {
	text, dir := shakespeare(t, 60000), t.TempDir()
	tune(t, "-m", storyModel, "-f", text, "-o", filepath.Join(dir, "o.gguf"), "--run-dir", filepath.Join(dir, "run"), "-c", "256", "-b", "256", "-ub", "256", "-lr", "1e-4", "-epochs", "2")
	list := reports(t, filepath.Join(dir, "run"))
	if n := len(list); n != 2*279+1 {
		t.Fatalf("%d reports, want one for each of 279 windows in 2 epochs, and one before", n)
	}
	for i, want := range map[int][2]float64{279: {3.2528, 2.5899}, 558: {2.7912, 2.4420}} {
		if train, val := *list[i].PassLoss, *list[i].ValLoss; math.Abs(train-want[0]) > 1e-3 || math.Abs(val-want[1]) > 1e-3 {
			t.Errorf("update %d: loss %.4f, validation loss %.4f, want %v", i, train, val, want)
		}
	}
}

// With a vocabulary of 128k and 512 tokens, training all weights with AdamW takes less than 250 MB above the weights (228
// were measured; dense logits and their gradient alone would be 525), an adapter less than 150.
func TestFinetuneVocabulary128k(t *testing.T) {
	vocab, err := filepath.Abs("../../.engine/src/models/ggml-vocab-llama-bpe.gguf")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(vocab); err != nil {
		t.Skipf("%v: this test reads the engine's sources", err)
	}
	dir, text := t.TempDir(), shakespeare(t, 12000)
	file := func(name string) string { return filepath.Join(dir, name) }
	config := "tokenizer: " + vocab + "\ncontext: 512\nembedding: 64\nlayers: 4\nheads: 4\nkv-heads: 2\nfeed-forward: 128\n"
	if err := os.WriteFile(file("new.yaml"), []byte(config), 0o666); err != nil {
		t.Fatal(err)
	}
	const weights, mb = 2 * 4 * 64 * 128256, 1e6 // embeddings and head: the layers are 0.6 MB
	args := []string{"finetune", "-q", "-f", text, "-c", "512", "-b", "512", "-ub", "512", "-t", "1", "--max-steps", "2"}
	tune := func(limit float64, more ...string) {
		above := float64(maxRSS(t, slices.Concat(args, more)...)<<10) - weights
		t.Logf("%v: %.0f MB above the weights", more, above/mb)
		if above > limit*mb {
			t.Errorf("%v: %.0f MB above the weights, want less than %g", more, above/mb, limit)
		}
	}
	tune(250, "--init", file("new.yaml"), "-o", file("model.gguf"), "--run-dir", file("run"))
	tune(150, "-m", file("model.gguf"), "-o", file("adapter.gguf"), "--run-dir", file("lora"), "--method", "lora")
}

// An adapter on a quantized base learns as much as on the base that it was made
// of: to 0.02.
func TestFinetuneQLoRA(t *testing.T) {
	text, dir := shakespeare(t, 60000), t.TempDir()
	val := func(model string) float64 {
		run := filepath.Join(t.TempDir(), "run")
		tune(t, "-m", model, "-f", text, "-o", filepath.Join(dir, "a.gguf"), "--run-dir", run, "-c", "256", "-lr", "1e-3", "-epochs", "1", "--method", "lora", "--rank", "8", "--alpha", "16")
		list := reports(t, run)
		return *list[len(list)-1].ValLoss
	}
	want := val(storyModel)
	for _, typ := range []string{"q8_0", "q4_0", "q4_k_m"} {
		model := filepath.Join(dir, typ+".gguf")
		quantizeModel(t, storyModel, model, typ)
		if got := val(model); math.Abs(got-want) > 0.02 {
			t.Errorf("%s: validation loss %.4f, on F32 %.4f", typ, got, want)
		} else {
			t.Logf("%s: validation loss %.4f, on F32 %.4f", typ, got, want)
		}
	}
}

// An adapter that was trained here does in llama.cpp's own program what it does
// in run.
func TestFinetuneStock(t *testing.T) {
	peer, err := filepath.Abs("../../.peers/llama-completion")
	if err == nil {
		_, err = os.Stat(peer)
	}
	if err != nil {
		t.Skipf("make peers builds it: %v", err)
	}
	text, adapter := shakespeare(t, 20000), filepath.Join(t.TempDir(), "a.gguf")
	tune(t, "-m", storyModel, "-f", text, "-o", adapter, "-c", "128", "-lr", "5e-3", "-epochs", "1", "--method", "lora", "--rank", "4", "--max-steps", "40")
	args := []string{"-m", storyModel, "-p", "Once upon a time", "-n", "32", "--temp", "0", "-c", "256"}
	with := append(slices.Clone(args), "--lora", adapter)
	plain, _, _ := gollama(t, append([]string{"run"}, args...)...)
	want, msg, code := gollama(t, append([]string{"run"}, with...)...)
	if code != 0 || want == plain {
		t.Fatalf("status %d, %s; %q with the adapter, %q without", code, msg, want, plain)
	}
	var got string
	for range 5 { // it sometimes ends before all of its output is written
		out, err := exec.Command(peer, append(with, "-no-cnv", "--no-display-prompt", "-lv", "0", "-t", "1")...).Output()
		if err != nil {
			t.Fatal(err)
		}
		if got = strings.TrimRight(string(out), "\n"); got == want {
			return
		}
	}
	t.Errorf("llama-completion continues with %q, want %q", got, want)
}

// quantizeModel writes the types that llama-quantize chooses.
func quantizeModel(t *testing.T, from, to, typ string) {
	t.Helper()
	f, err := gguf.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	out, err := lora.ParseOutType(typ)
	if err != nil {
		t.Fatal(err)
	}
	const name = "output_norm.weight"
	i, _ := f.Tensor(name)
	b, err := f.ReadTensor(i)
	if err != nil {
		t.Fatal(err)
	}
	same, err := ggml.Dequantize(ggml.TypeF32, b, len(b)/4)
	if err != nil {
		t.Fatal(err)
	}
	// An adapter that changes nothing: what is left of a merge is the conversion.
	none := &lora.Adapter{Arch: "llama", Tensors: []lora.Tensor{{Base: name, Whole: &lora.Matrix{Shape: f.Tensors[i].Shape, Data: same}}}}
	plan, err := lora.NewPlan(f, []lora.Scaled{{Adapter: none, Scale: 1}}, lora.Options{OutType: out})
	if err != nil {
		t.Fatal(err)
	}
	w, err := gguf.Create(to, plan.Keys, plan.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Run(context.Background(), w, nil); err != nil {
		t.Fatal(err)
	}
}

// Fifty kills, also while a checkpoint is written, change no bit.
func TestFinetuneKilled(t *testing.T) {
	text := shakespeare(t, 60000)
	args := func(dir string) []string {
		return []string{"finetune", "-q", "-m", storyModel, "-f", text, "-o", filepath.Join(dir, "o.gguf"), "--run-dir", filepath.Join(dir, "run"),
			"-c", "64", "-lr", "1e-3", "-epochs", "1", "--save-every", "3", "--eval-every", "200", "-t", "2"}
	}
	whole := t.TempDir()
	if _, msg, code := gollama(t, args(whole)...); code != 0 {
		t.Fatal(msg)
	}
	list := reports(t, filepath.Join(whole, "run"))
	steps := int(list[len(list)-1].Step)
	want := trainedState(t, filepath.Join(whole, "run"), "weights.gguf", steps)
	dir, kills := t.TempDir(), 0
	for kills < 50 {
		msg, code := interrupt(t, filepath.Join(dir, "run"), syscall.SIGKILL, append(args(dir), "--resume")...)
		switch code {
		case -1:
			kills++
		case 0:
			dir = t.TempDir() // it was over; begin another
		default:
			t.Fatalf("status %d after %d kills: %s", code, kills, msg)
		}
	}
	if _, msg, code := gollama(t, append(args(dir), "--resume")...); code != 0 {
		t.Fatal(msg)
	}
	if got := trainedState(t, filepath.Join(dir, "run"), "weights.gguf", steps); !reflect.DeepEqual(got, want) {
		t.Error("the run that was killed ends differently")
	}
}
