package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gollama/internal/gguf"
	"gollama/internal/opt"
)

// shakespeare returns a file with the first n bytes of the shared text, or skips.
func shakespeare(t *testing.T, n int64) string {
	t.Helper()
	story(t)
	in, err := os.Open("../../../shared/data/shakespeare.txt")
	if err != nil {
		t.Skipf("no text to train on: %v", err)
	}
	defer func() { _ = in.Close() }()
	path := filepath.Join(t.TempDir(), "text.txt")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(out, in, n); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// tune trains the story model and fails the test on an error.
func tune(t *testing.T, args ...string) {
	t.Helper()
	out, msg, code := gollama(t, append([]string{"finetune", "-q"}, args...)...)
	if code != 0 || out != "" {
		t.Fatalf("finetune %q: status %d, stdout %q, stderr %q", args, code, out, msg)
	}
}

func reports(t *testing.T, dir string) []opt.Report {
	t.Helper()
	list, err := opt.Reports(dir)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// tensorHashes returns a hash of each tensor of a GGUF file.
func tensorHashes(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	m := map[string]string{}
	for i, info := range f.Tensors {
		b, err := f.ReadTensor(i)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(b)
		m[info.Name] = hex.EncodeToString(sum[:])
	}
	return m
}

// trainedState returns everything of a run that is the same each time.
func trainedState(t *testing.T, dir, weights string, step int) map[string]any {
	t.Helper()
	ckpt := filepath.Join(dir, "ckpt", "step-"+strconv.Itoa(step))
	list := reports(t, dir)
	for i := range list {
		list[i].Timing = nil
	}
	return map[string]any{
		"weights":   tensorHashes(t, filepath.Join(ckpt, weights)),
		"optimizer": tensorHashes(t, filepath.Join(ckpt, "optimizer.gguf")),
		"metrics":   list,
	}
}

var protofitLosses = map[int]float64{1: 5.00846, 2: 6.25316, 3: 7.13073, 10: 6.37445}

// The first losses are those of another engine, ggml's own graph without a KV cache,
// whose loss is that of llama.cpp: on the same tokens, with AdamW 0.9/0.999 and a rate of 1e-4, prints these
// running means.
func TestFinetuneFirstLosses(t *testing.T) {
	text, dir := shakespeare(t, 60000), t.TempDir()
	tune(t, "-m", storyModel, "-f", text, "-o", filepath.Join(dir, "o.gguf"), "--run-dir", dir, "-c", "256", "-b", "256", "-ub", "256", "-lr", "1e-4", "--max-steps", "10")
	sum := 0.0
	for i, r := range reports(t, dir)[1:] {
		sum += *r.Loss
		if want, ok := protofitLosses[i+1]; ok && math.Abs(sum/float64(i+1)-want) > 1e-4 { // it prints five decimals; the sums are in float32
			t.Errorf("mean loss of the first %d windows %.5f, want %.5f", i+1, sum/float64(i+1), want)
		}
	}
}

// A window of 32 tokens is learned by heart, and the model says it.
func TestFinetuneOverfits(t *testing.T) {
	dir := t.TempDir()
	story(t)
	const sentence = "The quick brown fox jumps over the lazy dog and runs away."
	text := filepath.Join(dir, "text.txt")
	if err := os.WriteFile(text, []byte(sentence+" "+sentence), 0o666); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "o.gguf")
	tune(t, "-m", storyModel, "-f", text, "-o", out, "--run-dir", filepath.Join(dir, "run"), "-c", "32", "--val-split", "0", "-lr", "3e-3", "-epochs", "30", "--max-steps", "30")
	list := reports(t, filepath.Join(dir, "run"))
	last := list[len(list)-1]
	if *last.Loss > 0.05 {
		t.Errorf("loss %.4f after %d updates, want below 0.05", *last.Loss, last.Step)
	}
	got, msg, code := gollama(t, "run", "-m", out, "-p", "The quick", "-n", "12", "--temp", "0")
	if code != 0 || !strings.HasPrefix(sentence, "The quick"+got) || len(got) < 12 {
		t.Errorf("status %d, the model says %q, want what follows in %q (%s)", code, got, sentence, msg)
	}
}

// The number of threads and what is kept in memory change no bit.
func TestFinetuneThreads(t *testing.T) {
	text := shakespeare(t, 6000)
	var want map[string]any
	for _, extra := range [][]string{{"-t", "1"}, {"-t", "2"}, {"-t", "2", "--activations", "1"}} {
		dir := t.TempDir()
		tune(t, append([]string{"-m", storyModel, "-f", text, "-o", filepath.Join(dir, "o.gguf"), "--run-dir", filepath.Join(dir, "run"),
			"-c", "64", "-lr", "1e-3", "--max-steps", "12", "--eval-every", "6", "-opt", "muon"}, extra...)...)
		got := trainedState(t, filepath.Join(dir, "run"), "weights.gguf", 12)
		if want == nil {
			want = got
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q changes the result", extra)
		}
	}
}

// The output has the keys of the base and where it comes from, and no others; a
// model whose output is its embedding stays so.
func TestFinetuneMetadata(t *testing.T) {
	text, dir := shakespeare(t, 3000), t.TempDir()
	tied := filepath.Join(dir, "tied.gguf")
	tieModel(t, storyModel, tied)
	for _, model := range []string{storyModel, tied} {
		out := filepath.Join(dir, "out.gguf")
		before := tensorHashes(t, model)
		tune(t, "-m", model, "-f", text, "-o", out, "-c", "64", "-lr", "1e-3", "--max-steps", "2")
		if !reflect.DeepEqual(tensorHashes(t, model), before) {
			t.Fatal("the base has changed")
		}
		a, err := gguf.Open(model)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = a.Close() }()
		b, err := gguf.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = b.Close() }()
		for i, kv := range a.KVs {
			if i >= len(b.KVs) || !reflect.DeepEqual(b.KVs[i], kv) {
				t.Errorf("key %q is not as it was", kv.Key)
			}
		}
		for _, kv := range b.KVs[len(a.KVs):] {
			if !strings.HasPrefix(kv.Key, "gollama.") {
				t.Errorf("key %q was added", kv.Key)
			}
		}
		after := tensorHashes(t, out)
		if len(after) != len(before) {
			t.Errorf("%d tensors, want %d", len(after), len(before))
		}
		for name, h := range before {
			if after[name] == h {
				t.Errorf("tensor %q was not trained", name)
			}
		}
	}
}

// tieModel copies a model without its output matrix.
func tieModel(t *testing.T, from, to string) {
	t.Helper()
	f, err := gguf.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	tensors := slices.DeleteFunc(slices.Clone(f.Tensors), func(i gguf.TensorInfo) bool { return i.Name == "output.weight" })
	w, err := gguf.Create(to, f.KVs, tensors)
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range tensors {
		i, _ := f.Tensor(info.Name)
		if err := w.WriteTensor(info.Name, f.TensorReader(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// A new adapter changes nothing; a trained one says the same as the model that
// it is merged into.
func TestFinetuneLoRA(t *testing.T) {
	text, dir := shakespeare(t, 6000), t.TempDir()
	base := []string{"-m", storyModel, "-f", text, "-c", "64", "-lr", "1e-2"}
	tune(t, append(base, "-o", filepath.Join(dir, "f.gguf"), "--run-dir", filepath.Join(dir, "full"), "--max-steps", "1")...)
	adapter, merged := filepath.Join(dir, "a.gguf"), filepath.Join(dir, "m.gguf")
	tune(t, append(base, "-o", adapter, "--merged", merged, "--run-dir", filepath.Join(dir, "lora"), "--max-steps", "20", "--method", "lora", "--rank", "4")...)
	full, lora := reports(t, filepath.Join(dir, "full")), reports(t, filepath.Join(dir, "lora"))
	if d := math.Abs(*full[0].ValLoss - *lora[0].ValLoss); d > 1e-6 {
		t.Errorf("before the first update the adapter changes the loss by %g", d)
	}
	if last := lora[len(lora)-1]; *last.ValLoss > *lora[0].ValLoss-0.05 {
		t.Errorf("validation loss from %.3f to %.3f", *lora[0].ValLoss, *last.ValLoss)
	}
	// The merged model, trained on with a rate of nearly nothing, is evaluated as it came.
	tune(t, "-m", merged, "-f", text, "-c", "64", "-lr", "1e-12", "-o", filepath.Join(dir, "x.gguf"), "--run-dir", filepath.Join(dir, "x"), "--max-steps", "1")
	if got, want := *reports(t, filepath.Join(dir, "x"))[0].ValLoss, *lora[len(lora)-1].ValLoss; math.Abs(got-want) > 1e-5 { // float32 sums of W + s*B*A
		t.Errorf("the merged model's validation loss is %.6f, the adapter's %.6f", got, want)
	}
}

// A signal saves the state, and the resumed run ends like one that was left alone.
func TestFinetuneSignals(t *testing.T) {
	text := shakespeare(t, 9000)
	args := func(dir string) []string {
		return []string{"finetune", "-m", storyModel, "-f", text, "-o", filepath.Join(dir, "o.gguf"), "--run-dir", filepath.Join(dir, "run"), "-c", "64", "-lr", "1e-3", "-epochs", "1", "-t", "1"}
	}
	whole := t.TempDir()
	if _, msg, code := gollama(t, args(whole)...); code != 0 {
		t.Fatal(msg)
	}
	steps := int(reports(t, filepath.Join(whole, "run"))[len(reports(t, filepath.Join(whole, "run")))-1].Step)
	want := trainedState(t, filepath.Join(whole, "run"), "weights.gguf", steps)
	for _, tt := range []struct {
		signal syscall.Signal
		code   int
	}{{syscall.SIGINT, exitInterrupt}, {syscall.SIGTERM, exitTerminate}, {syscall.SIGKILL, -1}} {
		t.Run(tt.signal.String(), func(t *testing.T) {
			dir := t.TempDir()
			killed := 0
			for range 2 {
				if msg, code := interrupt(t, filepath.Join(dir, "run"), tt.signal, append(args(dir), "--resume")...); code == tt.code {
					killed++
					if code > 0 && !strings.Contains(msg, "the state is saved") {
						t.Errorf("it says %q", msg)
					}
				} else if code != 0 {
					t.Fatalf("status %d, want %d: %s", code, tt.code, msg)
				}
			}
			if killed == 0 {
				t.Error("the run was over before each signal")
			}
			if _, msg, code := gollama(t, "finetune", "--run-dir", filepath.Join(dir, "run"), "--resume"); code != 0 {
				t.Fatalf("resume: status %d, %s", code, msg)
			}
			if got := trainedState(t, filepath.Join(dir, "run"), "weights.gguf", steps); !reflect.DeepEqual(got, want) {
				t.Error("the resumed run ends differently")
			}
			if !reflect.DeepEqual(tensorHashes(t, filepath.Join(dir, "o.gguf")), tensorHashes(t, filepath.Join(whole, "o.gguf"))) {
				t.Error("the models differ")
			}
		})
	}
}

// interrupt sends a signal to a run once it has made some updates, or at a random
// moment for SIGKILL.
func interrupt(t *testing.T, dir string, signal syscall.Signal, args ...string) (msg string, code int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Args[0] = "gollama"
	var b bytes.Buffer
	cmd.Stderr = &b
	metrics := filepath.Join(dir, "metrics.jsonl")
	before := int64(0)
	if st, err := os.Stat(metrics); err == nil {
		before = st.Size()
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	more := int64(500 + rand.IntN(4000)) // bytes: some 3 to 20 updates
	for range 6000 {
		if st, err := os.Stat(metrics); err == nil && st.Size() > before+more {
			break
		}
		select {
		case err = <-done:
			done <- err
		case <-time.After(time.Millisecond):
			continue
		}
		break
	}
	_ = cmd.Process.Signal(signal) // it may be over
	err = <-done
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return b.String(), cmd.ProcessState.ExitCode()
}
