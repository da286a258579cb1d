//go:build slow

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMTMDTexts300 is TestMTMDTexts for a folder of 300.
func TestMTMDTexts300(t *testing.T) { checkMediaTexts(t, 300, 20) }

// TestMTMDColours100 is TestMTMDColours for a folder of 100.
func TestMTMDColours100(t *testing.T) { checkColours(t, 100) }

// TestMTMDRepeat: 200 answers, to a pipe and to a file in turns, are the same bytes; each of 200 failing runs says one line
// of error and nothing else.
func TestMTMDRepeat(t *testing.T) {
	args := mediaArgs(t, "mmproj-mlp")
	picture := filepath.Join(mediaFixtures, "media", "grad.png")
	answer := append(slices.Clone(args), "--image", picture)
	want, msg, code := gollama(t, answer...)
	if code != 0 || want == "" {
		t.Fatalf("status %d, %q: %s", code, want, msg)
	}
	file := filepath.Join(t.TempDir(), "out")
	for i := range 200 {
		got, msg, code := "", "", 0
		if i%2 == 0 {
			got, msg, code = gollama(t, answer...)
		} else {
			_, msg, code = gollama(t, append(slices.Clone(answer), "-o", file)...)
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got = string(data)
		}
		if code != 0 || got != want || msg != "" {
			t.Fatalf("run %d: status %d, %q, want %q; %s", i, code, got, want, msg)
		}
	}
	bad := [][]string{{"--image", filepath.Join(mediaFixtures, "gen_media.py")}, {"--image", picture, "--mmproj", filepath.Join(mediaFixtures, "models", "text-chat.gguf")}, {"--image", mediaFixtures}, {"--lora", picture}}
	for i := range 200 {
		out, msg, code := gollama(t, append(slices.Clone(args), bad[i%len(bad)]...)...)
		if n := strings.Count(msg, "error: "); code == 0 || out != "" || n != 1 || strings.Count(msg, "\n") > 2 {
			t.Fatalf("failing run %d: status %d, %q, %q", i, code, out, msg)
		}
	}
}

// maxRSS runs the program and returns the most memory that it had, KiB.
func maxRSS(t *testing.T, args ...string) int64 {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Args[0] = "gollama"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %.500s", err, out)
	}
	return cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
}

// TestMTMDMemory: 300 pictures take no more memory than 20, but for 5 %, and 8 MiB that the Go heap comes and goes by (48.4 MB
// after 100 and 50.0 after 300 were measured, and 51 after 20). Tiles kept of each picture would be 280 times about 100 KiB.
func TestMTMDMemory(t *testing.T) {
	dir := t.TempDir()
	few, many := filepath.Join(dir, "few"), filepath.Join(dir, "many")
	for d, n := range map[string]int{few: 20, many: 300} {
		if err := os.Mkdir(d, 0o777); err != nil {
			t.Fatal(err)
		}
		pictures(t, d, n)
	}
	args := append(mediaArgs(t, "mmproj-internvl"), "--embd-cache", "1", "-np", "8") // by itself it is no more than there are pictures
	a, b := maxRSS(t, append(slices.Clone(args), "--dir", few)...), maxRSS(t, append(slices.Clone(args), "--dir", many)...)
	t.Logf("20 pictures %d KiB, 300 %d KiB", a, b)
	if float64(b) > 1.05*float64(a)+8192 {
		t.Errorf("300 pictures take %d KiB, 20 take %d", b, a)
	}
}

// TestMTMDInterrupted kills and interrupts a run over a folder at many moments; what --resume makes of the output is what
// an uninterrupted run writes.
func TestMTMDInterrupted(t *testing.T) {
	dir := t.TempDir()
	pics := filepath.Join(dir, "pics")
	if err := os.Mkdir(pics, 0o777); err != nil {
		t.Fatal(err)
	}
	pictures(t, pics, 60)
	args := append(mediaArgs(t, "mmproj-mlp"), "--dir", pics, "--no-perf", "-n", "40", "--deterministic")
	want, _, code := gollama(t, args...)
	if code != 0 {
		t.Fatal(code)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for i, sig := range []os.Signal{os.Interrupt, os.Kill, syscall.SIGTERM, os.Kill, os.Interrupt, os.Kill, os.Interrupt, os.Kill} {
		out := filepath.Join(dir, "out.jsonl")
		_ = os.Remove(out)
		_ = os.Remove(out + ".run.json")
		cmd := exec.Command(self, append(slices.Clone(args), "-o", out)...)
		cmd.Args[0] = "gollama"
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(150+100*i) * time.Millisecond)
		_ = cmd.Process.Signal(sig)
		err := cmd.Wait()
		if sig == os.Interrupt && err != nil && cmd.ProcessState.ExitCode() != exitInterrupt {
			t.Errorf("after %v: status %d, want %d", sig, cmd.ProcessState.ExitCode(), exitInterrupt)
		}
		part, err := os.ReadFile(out)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if whole := part[:bytes.LastIndexByte(part, '\n')+1]; sig != os.Kill && len(whole) != len(part) || !strings.HasPrefix(want, string(whole)) {
			t.Errorf("after %v: %d bytes, which are not what the whole begins with", sig, len(part))
		}
		for _, line := range bytes.Split(bytes.TrimSuffix(part, []byte("\n")), []byte("\n")) {
			if len(line) > 0 && sig != os.Kill && !json.Valid(line) {
				t.Errorf("after %v: %.80s", sig, line)
			}
		}
		if _, msg, code := gollama(t, append(slices.Clone(args), "-o", out, "--resume")...); code != 0 {
			t.Fatalf("--resume: %d: %s", code, msg)
		}
		if got, err := os.ReadFile(out); err != nil || string(got) != want {
			t.Errorf("after %v and --resume: %d bytes, want %d (%v)", sig, len(got), len(want), err)
		}
	}
}
