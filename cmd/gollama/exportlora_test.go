package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"gollama/internal/gguf"
	"gollama/internal/lora"
)

// storyAdapter makes an adapter for stories260K (5 layers, 64 wide, 172 in the feed-forward part, 512 tokens). kinds
// add what a test needs: absent, shape, alora, norm, head, huge.
func storyAdapter(kinds ...string) *lora.Adapter {
	n := 0
	matrix := func(scale float32, shape ...uint64) *lora.Matrix {
		m := &lora.Matrix{Shape: shape}
		size := uint64(1)
		for _, d := range shape {
			size *= d
		}
		for range size {
			m.Data = append(m.Data, float32((37*n+11)%101-50)/50*scale)
			n++
		}
		return m
	}
	pair := func(base string, in, out uint64) lora.Tensor {
		return lora.Tensor{Base: base + ".weight", A: matrix(0.2, in, 4), B: matrix(0.2, 4, out)}
	}
	a := &lora.Adapter{Arch: "llama", Alpha: 8, Heads: 8, KVHeads: 4}
	for i := range 5 {
		a.Tensors = append(a.Tensors, pair(fmt.Sprintf("blk.%d.attn_q", i), 64, 64), pair(fmt.Sprintf("blk.%d.ffn_up", i), 64, 172))
	}
	for _, k := range kinds {
		switch k {
		case "absent":
			a.Tensors = append(a.Tensors, pair("blk.9.attn_q", 64, 64))
		case "shape":
			a.Tensors[0] = pair("blk.0.attn_q", 128, 64)
		case "alora":
			a.InvocationTokens = []uint32{7}
		case "norm":
			a.Tensors = append(a.Tensors, lora.Tensor{Base: "output_norm.weight", Whole: matrix(2, 64)})
		case "head":
			a.Tensors = append(a.Tensors, pair("output", 64, 512))
		case "huge":
			a.Tensors[0].B = matrix(1e6, 4, 64)
		}
	}
	return a
}

// adapterCommand is "adapter FILE KIND..." in scripts; a FILE that does not end in .gguf is a folder for PEFT.
func adapterCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: adapter FILE KIND...")
	}
	path, a := ts.MkAbs(args[0]), storyAdapter(args[1:]...)
	if strings.HasSuffix(path, ".gguf") {
		ts.Check(lora.WriteGGUF(path, a))
		return
	}
	ts.Check(lora.WritePEFT(path, a))
}

// The files of all three ways to give an adapter hold the same tensors.
func TestExportLoRAForms(t *testing.T) {
	base, dir := story(t), t.TempDir()
	adapter, peft := filepath.Join(dir, "a.gguf"), filepath.Join(dir, "peft")
	if err := lora.WriteGGUF(adapter, storyAdapter()); err != nil {
		t.Fatal(err)
	}
	if err := lora.WritePEFT(peft, storyAdapter()); err != nil {
		t.Fatal(err)
	}
	read := func(name string, args ...string) *gguf.File {
		out := filepath.Join(dir, name)
		if _, msg, code := gollama(t, append([]string{"export-lora", "-m", base, "-o", out}, args...)...); code != 0 {
			t.Fatalf("%v: status %d, %s", args, code, msg)
		}
		if slices.Contains(args, "--split-max-tensors") {
			out = strings.TrimSuffix(out, ".gguf") + "-00001-of-00003.gguf"
		}
		f, err := gguf.OpenModel(out)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	want := read("one.gguf", "--lora", adapter)
	for _, f := range []*gguf.File{
		read("peft.gguf", "--lora", peft),
		read("split.gguf", "--lora", adapter, "--split-max-tensors", "20"),
		read("threads.gguf", "--lora-scaled", adapter+":1", "-t", "1"),
	} {
		if len(f.Tensors) != len(want.Tensors) {
			t.Fatalf("%s: %d tensors", f.Paths[0], len(f.Tensors))
		}
		for i := range want.Tensors {
			x, err := want.ReadTensor(i)
			if err != nil {
				t.Fatal(err)
			}
			y, err := f.ReadTensor(i)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(x, y) {
				t.Errorf("%s: %s differs", f.Paths[0], f.Tensors[i].Name)
			}
		}
	}
	if v, ok := want.Str("gollama.command_line"); !ok || !strings.HasPrefix(v, "gollama export-lora -m") {
		t.Errorf("command line %q", v)
	}
}

func TestExportLoRAReport(t *testing.T) {
	base, dir := story(t), t.TempDir()
	adapter, report := filepath.Join(dir, "a.gguf"), filepath.Join(dir, "r.json")
	if err := lora.WriteGGUF(adapter, storyAdapter("norm")); err != nil {
		t.Fatal(err)
	}
	_, msg, code := gollama(t, "export-lora", "-m", base, "--lora-scaled", adapter+":0.5", "-o", filepath.Join(dir, "m.gguf"), "--out-type", "q4_0", "--report", report)
	if code != 0 {
		t.Fatalf("status %d, %s", code, msg)
	}
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var r exportReport
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Tensors) != 11 || r.OutType != "q4_0" {
		t.Fatalf("%d tensors, type %q", len(r.Tensors), r.OutType)
	}
	for _, x := range r.Tensors {
		if x.Name == "output_norm.weight" {
			if x.Ranks[0] != 0 || x.Scales[0] != 0.5 || x.To != "f32" || x.Noise > 1e-6 {
				t.Errorf("norm: %+v", x)
			}
			continue
		}
		// The weights are off Q4_0's grid, so rounding neither takes nor gives on average.
		if x.Ranks[0] != 4 || x.Scales[0] != 1 || x.Survived < 0.7 || x.Survived > 1.3 || x.Noise < 0.01 || x.Delta <= 0 || x.Relative <= 0 {
			t.Errorf("%s: %+v", x.Name, x)
		}
	}
}

// Ended at any time, the program leaves the old file or the whole new one, and nothing else; the model that --verify compares
// with, which has the whole tensors of the adapter, is gone too.
func TestExportLoRAKilled(t *testing.T) {
	base, dir := story(t), t.TempDir()
	adapter, peft := filepath.Join(t.TempDir(), "a.gguf"), filepath.Join(t.TempDir(), "peft")
	if err := errors.Join(lora.WriteGGUF(adapter, storyAdapter()), lora.WritePEFT(peft, storyAdapter("norm", "head"))); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out.gguf")
	write := func() {
		if err := os.WriteFile(out, []byte("old"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write()
	merge := []string{"export-lora", "-m", base, "-o", out, "-q", "-t", "1", "--lora"}
	begin := time.Now()
	if _, msg, code := gollama(t, append(merge, peft, "--verify", "8")...); code != 0 {
		t.Fatalf("status %d: %s", code, msg)
	}
	whole := time.Since(begin)
	ends := map[string]int{}
	for i := range 24 {
		args, wait := append(merge[:len(merge):len(merge)], adapter), time.Duration(i)*4*time.Millisecond
		if i%3 > 0 {
			args, wait = append(merge[:len(merge):len(merge)], peft, "--verify", "8"), whole*time.Duration(i)/24
		}
		cmd := program(t, args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill := map[bool]os.Signal{true: os.Kill, false: os.Interrupt}[i%2 == 0]
		time.Sleep(wait)
		_ = cmd.Process.Signal(kill) // it may have ended
		_ = cmd.Wait()
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(files) != 1 {
			t.Errorf("%s after %v and %v: %d files in the folder", args, wait, kill, len(files))
		}
		data, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if string(data) == "old" {
			ends["old"]++
			continue
		}
		ends["new"]++
		f, err := gguf.Open(out)
		if err != nil {
			t.Fatalf("after %v: %v", kill, err)
		}
		f.Close()
		write()
	}
	t.Logf("ends: %v", ends)
}

// A full disk is status 6.
func TestExportLoRAFull(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full")
	}
	adapter := filepath.Join(t.TempDir(), "a.gguf")
	if err := lora.WriteGGUF(adapter, storyAdapter()); err != nil {
		t.Fatal(err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "export-lora", "-m", story(t), "--lora", adapter, "-o", "-")
	cmd.Args[0] = "gollama"
	var msg strings.Builder
	cmd.Stdout, cmd.Stderr = full, &msg
	_ = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != exitWrite || !strings.Contains(msg.String(), "no space left") {
		t.Errorf("status %d, %q", code, msg.String())
	}
}
