//go:build slow && linux

package main

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The fault matrix: each job of faultjobs_slow_test.go is killed, interrupted, given a full disk, too little memory, too many
// threads, a reader that goes, and damaged inputs. Whatever happens, the status is one of ours, a file is whole or absent,
// nothing else is left, and no message looks like a crash.

// faults is how often each job is sent each signal, and a quarter of how often each of its inputs is damaged.
var faults = flag.Int("faults", 15, "TestFault: signals of each kind to a job; four times as many changes of an input")

// jobTimeout is for a job that takes a second alone: one that is not done then hangs.
const jobTimeout = 3 * time.Minute

// job is a command whose faults are tried. In args, IN/ and OUT/ stand for
// the folders of inputs and outputs.
type job struct {
	name    string
	args    []string
	outs    []string // files in OUT when it is done, the first is the result
	keeps   []string // files and folders that may be in OUT after an interruption
	again   []string // what is added to args to go on after an interruption
	records bool     // the result grows line by line
	partial bool     // the result may be the beginning after SIGINT and SIGTERM
	saves   bool     // the result may be another file after SIGINT and SIGTERM, with which it goes on
}

// outcome is how a job ended.
type outcome struct {
	code   int // -1: by a signal
	stderr string
	took   time.Duration
	hung   bool
}

// command is a job as a process to start.
func (j *job) command(t *testing.T, in, out string, extra ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	at := strings.NewReplacer("IN/", in+"/", "OUT/", "")
	args := []string{}
	for _, a := range append(slices.Clone(j.args), extra...) {
		args = append(args, at.Replace(a))
	}
	cmd := exec.Command(self, args...)
	cmd.Args[0] = "gollama"
	cmd.Dir = out // the command line, which files may hold, is the same each time
	return cmd
}

// start begins a job. wait waits for it.
func (j *job) start(t *testing.T, in, out string, extra ...string) (cmd *exec.Cmd, wait func() outcome) {
	t.Helper()
	cmd = j.command(t, in, out, extra...)
	var msg bytes.Buffer
	cmd.Stderr = &msg
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	o := outcome{}
	limit := time.AfterFunc(jobTimeout, func() { o.hung = true; _ = cmd.Process.Kill() })
	return cmd, func() outcome {
		_ = cmd.Wait() // the status is looked at
		if !limit.Stop() {
			t.Errorf("%q does not end", cmd.Args)
		}
		o.code, o.stderr, o.took = cmd.ProcessState.ExitCode(), msg.String(), time.Since(begin)
		return o
	}
}

func (j *job) do(t *testing.T, in, out string, extra ...string) outcome {
	t.Helper()
	_, wait := j.start(t, in, out, extra...)
	return wait()
}

// crashed says whether messages look like those of a crash.
func (o outcome) crashed() bool {
	for _, mark := range []string{"GGML_ASSERT", "goroutine ", "SIG", "terminate called", "stack smashing", "internal engine error", "panic:"} {
		if strings.Contains(o.stderr, mark) {
			return true
		}
	}
	return o.code == 2 || o.code == -1
}

// reference does a job undisturbed and returns its outputs.
func (j *job) reference(t *testing.T, in string) (want map[string][]byte, took time.Duration) {
	t.Helper()
	out := t.TempDir()
	o := j.do(t, in, out)
	if o.code != 0 {
		t.Fatalf("undisturbed: status %d: %s", o.code, o.stderr)
	}
	want = map[string][]byte{}
	for _, name := range j.outs {
		b, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		want[name] = b
	}
	j.look(t, out, want, 0, nil)
	return want, o.took
}

// look checks a folder of outputs after a job that ended with code, by sig if
// that is not nil: each file is whole or absent, or the beginning where that is
// the rule, and there is nothing else.
func (j *job) look(t *testing.T, out string, want map[string][]byte, code int, sig os.Signal) {
	t.Helper()
	entries, err := os.ReadDir(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		// A kill between the two steps of replacing a file leaves a temporary; the next run takes it away.
		if between := sig == syscall.SIGKILL && temporary.MatchString(e.Name()) && j.saves; !between && !slices.Contains(j.outs, e.Name()) && !slices.Contains(j.keeps, e.Name()) {
			t.Errorf("%s is left", e.Name())
		}
	}
	handled := sig != nil && sig != syscall.SIGKILL
	for i, name := range j.outs {
		got, err := os.ReadFile(filepath.Join(out, name))
		if errors.Is(err, fs.ErrNotExist) {
			if code == 0 {
				t.Errorf("it says it is done, and there is no %s", name)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(bytes.ReplaceAll(got, []byte(",\n    \"--resume\""), nil), want[name]) { // the command line of FILE.run.json
			continue
		}
		begins := i == 0 && code != 0 && (j.records || handled && j.partial) && bytes.HasPrefix(want[name], got)
		if saved := code != 0 && j.saves; !begins && !saved { // what was saved proves whole when the job goes on with it
			t.Errorf("%s has %d bytes that are neither the result nor a beginning of it", name, len(got))
		}
	}
}

var temporary = regexp.MustCompile(`^\.gollama-[0-9a-f]{16}-[0-9]+\.tmp$`)
