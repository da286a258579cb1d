package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPerplexity: the numbers are those of the pin's own tool,
//
//	head -c 60000 shakespeare.txt >s; llama-perplexity -m stories260K.gguf -f s -c 128 # or 256
//
// whose batch shapes --windows has. With -b 128 that tool says 156.3390 for 128: another kernel, see completion.Windows.
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
	for _, tt := range []struct{ args, want string }{
		{"-c 128", "scored 18648\nperplexity 156.3528\nerror 4.11001\nwindows 296\n"},
		{"-c 128 -b 128", "scored 18648\nperplexity 156.3390\nerror 4.10958\nwindows 296\n"},
		{"-c 256", "scored 18796\nperplexity 143.0323\nerror 3.71581\nwindows 148\n"},
	} {
		out, msg, code := gollama(t, append([]string{"run", "-m", model, "--score", "--windows", "-f", path, "-t", "1"}, strings.Fields(tt.args)...)...)
		lines := strings.SplitAfter(out, "\n")
		if code != 0 || len(lines) != 6 || lines[0]+strings.Join(lines[2:], "") != tt.want {
			t.Errorf("%s: status %d, %q, %s, want %q", tt.args, code, out, msg, tt.want)
		}
	}
}
