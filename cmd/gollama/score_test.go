package main

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestPerplexity: the numbers are those of the pin's own tool, whose batch shapes and kernels --windows has,
//
//	head -c 60000 shakespeare.txt >s; llama-perplexity -m stories260K.gguf -f s -c 128 # or 256
//
// to the last digit, where make peers has built it. They depend on the CPU, as its kernels do: those below are of an EPYC
// (AVX2), and a Xeon with AVX-512 VNNI is 9e-5 and 2.4e-4 off, so elsewhere they hold to 5e-4. With -b 128 another kernel is used,
// see completion.Windows.
func TestPerplexity(t *testing.T) {
	model := story(t)
	text, err := os.ReadFile("../../../shared/data/shakespeare.txt")
	if err != nil {
		t.Skipf("no text to score: %v", err)
	}
	path := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(path, text[:60000], 0o666); err != nil {
		t.Fatal(err)
	}
	result := regexp.MustCompile(`^scored (\d+)\nsum -[0-9.]+\nperplexity ([0-9.]+)\nerror ([0-9.]+)\nwindows (\d+)\n$`)
	theirs := regexp.MustCompile(`Final estimate: PPL = ([0-9.]+) \+/- ([0-9.]+)`)
	for _, tt := range []struct {
		args                               string
		scored, perplexity, error, windows string
	}{
		{"-c 128", "18648", "156.3528", "4.11001", "296"},
		{"-c 128 -b 128", "18648", "156.3390", "4.10958", "296"},
		{"-c 256", "18796", "143.0323", "3.71581", "148"},
	} {
		out, msg, code := gollama(t, append([]string{"run", "-m", model, "--score", "--windows", "-f", path, "-t", "1"}, strings.Fields(tt.args)...)...)
		got := result.FindStringSubmatch(out)
		if code != 0 || got == nil || got[1] != tt.scored || got[4] != tt.windows {
			t.Errorf("%s: status %d, %q, %s, want %+v", tt.args, code, out, msg, tt)
			continue
		}
		tool := exec.Command(filepath.Join(peersDir, "llama-perplexity"), append([]string{"-m", model, "-f", path, "-t", "1"}, strings.Fields(tt.args)...)...)
		if b, err := tool.CombinedOutput(); err == nil {
			if want := theirs.FindSubmatch(b); want == nil || got[2] != string(want[1]) || got[3] != string(want[2]) {
				t.Errorf("%s: perplexity %s, error %s, llama-perplexity says %q", tt.args, got[2], got[3], want)
			}
		}
		for i, want := range map[int]string{2: tt.perplexity, 3: tt.error} {
			g, _ := strconv.ParseFloat(got[i], 64)
			if w, _ := strconv.ParseFloat(want, 64); !(math.Abs(g/w-1) < 5e-4) {
				t.Errorf("%s: %q, want %s", tt.args, out, want)
			}
		}
	}
}
