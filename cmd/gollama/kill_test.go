//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gollama/internal/tokens"
)

// killer is a job that replaces files of an earlier one and is killed, again and again.
type killer struct {
	dir   string // the outputs and nothing else
	names []string
	args  []string
	old   map[string]string // what is there before; by name, like new
	new   map[string]string // what is there after a run that nobody kills
	took  time.Duration     // of that run
}

// undisturbed runs the job once.
func (k *killer) undisturbed(t *testing.T) {
	t.Helper()
	begin := time.Now()
	if _, msg, code := gollama(t, k.args...); code != 0 {
		t.Fatalf("status %d: %s", code, msg)
	}
	k.took = time.Since(begin)
	k.new = k.contents(t)
}

// contents returns the files in dir. Others than the outputs are errors.
func (k *killer) contents(t *testing.T) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(k.dir)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(k.dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got[e.Name()] = string(data)
	}
	return got
}

// fileNumber tells the file at path from another one that takes its place. It is asked without a pause, and os.Stat would write
// each question down for the cache of results of go test: 1.9 GB in 50 kills, over which that sat for longer than the test took.
func fileNumber(path string) (uint64, error) {
	var s syscall.Stat_t
	err := syscall.Stat(path, &s)
	return s.Ino, err
}

// kill puts the old files in place and kills the job: at a random moment, or in the instant in which the first of its names is
// replaced or taken away. It returns what the job left, in which each output is the old file, the new one or absent.
func (k *killer) kill(t *testing.T, atReplacing bool) map[string]string {
	t.Helper()
	for name, text := range k.old {
		if err := os.WriteFile(filepath.Join(k.dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	first := filepath.Join(k.dir, k.names[0])
	before, err := fileNumber(first)
	if err != nil {
		t.Fatal(err)
	}
	cmd := program(t, k.args...)
	// Where files for a while would lie that do not fit in memory.
	scratch := t.TempDir()
	cmd.Env = append(os.Environ(), "TMPDIR="+scratch)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if atReplacing {
		for end := time.Now().Add(20 * k.took); time.Now().Before(end); {
			if now, err := fileNumber(first); err != nil || now != before {
				break
			}
		}
	} else {
		time.Sleep(time.Duration(rand.Int64N(int64(k.took))))
	}
	_ = cmd.Process.Kill() // it may have ended
	_ = cmd.Wait()
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		t.Errorf("%d files are left in TMPDIR (%v)", len(left), err)
	}
	left := k.contents(t)
	for name, text := range left {
		if leftOver := strings.HasPrefix(name, ".gollama-"); leftOver { // of the instant of replacing; the next run takes it away
			delete(left, name)
		} else if text != k.old[name] && text != k.new[name] {
			t.Errorf("%s has %d bytes that are neither the old file nor the new one", name, len(text))
		}
	}
	return left
}

// again runs the job to its end over what a kill left.
func (k *killer) again(t *testing.T) {
	t.Helper()
	if _, msg, code := gollama(t, k.args...); code != 0 {
		t.Fatalf("again: status %d: %s", code, msg)
	}
	got := k.contents(t)
	for _, name := range k.names {
		if got[name] != k.new[name] {
			t.Errorf("again: %s differs", name)
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("again: %s is left", name)
	}
}

// A token file is that of before, the new one or absent, with the index and the manifest that belong to it, wherever a kill
// comes. The two have the same sizes, so that nothing but the bytes tells them apart.
func TestTokenizeKill(t *testing.T) {
	model, dir := story(t), t.TempDir()
	var text strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&text, "Once upon a time, there was a girl who had %d dogs.\n", i%7)
	}
	in := filepath.Join(t.TempDir(), "in.txt")
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(in, []byte(s), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(dir, "o.bin")
	k := &killer{dir: dir, names: []string{"o.bin", "o.bin.idx", "o.bin.json"},
		args: []string{"tokenize", "-q", "-m", model, "--lines", "--format", "bin", "-o", out, in}}
	write(strings.ReplaceAll(text.String(), "3 dogs", "8 dogs"))
	k.undisturbed(t)
	k.old = k.new
	write(text.String())
	k.undisturbed(t)
	if len(k.old["o.bin"]) != len(k.new["o.bin"]) || k.old["o.bin"] == k.new["o.bin"] || k.old["o.bin.idx"] != k.new["o.bin.idx"] {
		t.Fatal("the old file is no other one of the same size")
	}
	ends := map[string]int{}
	for i := range killMoments {
		left := k.kill(t, i%2 == 0)
		f, err := tokens.OpenFile(out)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if _, there := left["o.bin"]; there {
				t.Errorf("o.bin is there: %v", err)
			}
			ends["absent"]++
		case err != nil:
			t.Error(err)
		default:
			if err := errors.Join(f.Verify(), f.Close()); err != nil {
				t.Error(err)
			}
			ends[map[bool]string{true: "old", false: "new"}[left["o.bin"] == k.old["o.bin"]]]++
		}
		k.again(t)
	}
	t.Logf("%d kills, the token file after them: %v", killMoments, ends)
}

// A vector, its report and its chart are each that of before or the new one, wherever a kill comes.
func TestCVectorKill(t *testing.T) {
	model, dir := story(t), t.TempDir()
	n := 80
	if killMoments > 4 {
		n = 2200 // states that do not fit in memory
	}
	var pairs bytes.Buffer
	for i := range n {
		fmt.Fprintf(&pairs, `{"positive":"The girl with %d dogs was glad","negative":"The girl with %d dogs was sad"}`+"\n", i, i)
	}
	in := filepath.Join(t.TempDir(), "pairs.jsonl")
	if err := os.WriteFile(in, pairs.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	k := &killer{dir: dir, names: []string{"o.gguf", "r.json", "p.svg"},
		args: []string{"cvector-generate", "-q", "-m", model, "-t", "1", "--pairs", in, "--method", "pca",
			"-o", filepath.Join(dir, "o.gguf"), "--report", filepath.Join(dir, "r.json"), "--plot", filepath.Join(dir, "p.svg")}}
	k.undisturbed(t)
	k.old = map[string]string{"o.gguf": "old", "r.json": "old", "p.svg": "old"}
	counts := map[string]int{}
	for i := range killMoments {
		left := k.kill(t, i%2 == 0)
		for _, name := range k.names {
			if _, there := left[name]; !there {
				t.Errorf("%s is absent", name)
			}
			if left[name] == k.new[name] {
				counts[name]++
			}
		}
		k.again(t)
	}
	t.Logf("%d kills; how often a file was the new one: %v", killMoments, counts)
}
