package main

import (
	"encoding/json"
	"fmt"
	"image"
	"image/draw"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	language "gollama/internal/builtin/story"
)

// colourFolder writes n pictures of one colour each, of many sizes, and returns the colour of each by its name.
func colourFolder(t *testing.T, dir string, n int) map[string]string {
	t.Helper()
	plain := language.PlainColours()
	words := slices.Sorted(maps.Keys(plain))
	of := map[string]string{}
	for i := range n {
		word := words[i%len(words)]
		img := image.NewRGBA(image.Rect(0, 0, 8+i*7%120, 8+i*11%90))
		draw.Draw(img, img.Rect, image.NewUniform(plain[word]), image.Point{}, draw.Src)
		name := fmt.Sprintf("p%03d.png", i)
		writePNG(t, filepath.Join(dir, name), img)
		of[name] = word
	}
	return of
}

// checkColours asks the built-in model about a folder of n pictures, interrupts the run, resumes it, and judges the answers.
func checkColours(t *testing.T, n int) {
	if !hasEngine() {
		t.Skip("no engine")
	}
	dir := t.TempDir()
	pics, out := filepath.Join(dir, "pics"), filepath.Join(dir, "out.jsonl")
	if err := os.Mkdir(pics, 0o777); err != nil {
		t.Fatal(err)
	}
	of := colourFolder(t, pics, n)
	args := []string{"mtmd", "--dir", pics, "-p", "What colour is this?", "--temp", "0", "-n", "12", "-c", "256", "-t", "1", "--no-perf", "-q"}
	want, msg, code := gollama(t, args...)
	if code != 0 {
		t.Fatalf("status %d: %s", code, msg)
	}
	args = append(args, "-o", out)
	interruptAfter(t, out, append(slices.Clone(args), "-np", "1"))
	part, err := os.ReadFile(out)
	if err != nil || len(part) == 0 || len(part) >= len(want) || !strings.HasPrefix(want, string(part)) {
		t.Fatalf("%d bytes after the interruption, which are not what the whole of %d begins with (%v)", len(part), len(want), err)
	}
	if _, msg, code := gollama(t, append(slices.Clone(args), "--resume")...); code != 0 {
		t.Fatalf("--resume: status %d: %s", code, msg)
	}
	got, err := os.ReadFile(out)
	if err != nil || string(got) != want {
		t.Fatalf("resumed: %d bytes, want %d (%v)", len(got), len(want), err)
	}
	right := 0
	for line := range strings.Lines(want) {
		var r struct{ ID, Text string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Text == "It is "+of[r.ID]+"." {
			right++
		} else {
			t.Logf("%s is %s: %q", r.ID, of[r.ID], r.Text)
		}
	}
	if right < n*9/10 {
		t.Errorf("%d of %d colours are named right, want 9 of 10", right, n)
	}
	t.Logf("%d of %d, interrupted after %d", right, n, strings.Count(string(part), "\n"))
}

// interruptAfter runs gollama and interrupts it once there is a result in a file.
func interruptAfter(t *testing.T, out string, args []string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Args[0] = "gollama"
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for sent := false; ; {
		select {
		case <-ended:
			if code := cmd.ProcessState.ExitCode(); !sent || code != exitInterrupt {
				t.Fatalf("status %d (interrupted: %v), want %d", code, sent, exitInterrupt)
			}
			return
		case <-time.After(time.Millisecond):
			if st, err := os.Stat(out); err == nil && st.Size() > 0 && !sent {
				sent = true
				_ = cmd.Process.Signal(os.Interrupt) // it may have ended
			}
		}
	}
}

// TestMTMDColours is a folder of pictures from the command line to the judged answers, in short.
func TestMTMDColours(t *testing.T) { checkColours(t, 40) }
