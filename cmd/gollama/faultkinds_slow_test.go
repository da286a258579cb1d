//go:build slow && linux

package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestFaultSignals ends each job by signals at random moments, and does it again: then all is as if nothing had happened.
func TestFaultSignals(t *testing.T) {
	in := faultInputs(t)
	for _, j := range jobs {
		t.Run(j.name, func(t *testing.T) {
			want, took := j.reference(t, in)
			counts := map[int]int{}
			for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT, syscall.SIGTERM} {
				for range *faults {
					out := t.TempDir()
					cmd, wait := j.start(t, in, out)
					time.Sleep(time.Duration(rand.Int64N(int64(took))))
					_ = cmd.Process.Signal(s) // it may have ended
					o := wait()
					counts[o.code]++
					// Before main has its handler, the system ends the process.
					if ok := map[syscall.Signal]int{syscall.SIGKILL: -1, syscall.SIGINT: 130, syscall.SIGTERM: 143}[s]; o.code != 0 && o.code != ok && o.code != -1 {
						t.Errorf("%v: status %d: %s", s, o.code, o.stderr)
					}
					if s != syscall.SIGKILL && o.code != -1 && o.crashed() {
						t.Errorf("%v: %s", s, o.stderr)
					}
					j.look(t, out, want, o.code, s)
					if o := j.do(t, in, out, j.again...); o.code != 0 {
						t.Errorf("again after %v: status %d: %s", s, o.code, o.stderr)
					}
					j.look(t, out, want, 0, nil)
				}
			}
			t.Logf("%d signals in %v; statuses %v", 3**faults, took, counts)
		})
	}
}

// TestFaultDisk runs each job on a full disk and on one that is read-only.
func TestFaultDisk(t *testing.T) {
	in := faultInputs(t)
	for _, j := range jobs {
		t.Run(j.name, func(t *testing.T) {
			want, _ := j.reference(t, in)
			for _, opts := range []string{"size=4k", "size=16k", "size=64k", "size=400k", "ro"} {
				out := t.TempDir()
				flags := uintptr(0)
				if opts == "ro" {
					flags, opts = syscall.MS_RDONLY, ""
				}
				if err := syscall.Mount("tmpfs", out, "tmpfs", flags, opts); err != nil {
					t.Skipf("no small disk can be made: %v", err)
				}
				o := j.do(t, in, out)
				if o.code != 6 && (o.code != 0 || opts == "") || o.crashed() {
					t.Errorf("%q: status %d, want 6: %s", opts, o.code, o.stderr)
				}
				j.look(t, out, want, o.code, nil)
				if err := syscall.Unmount(out, 0); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// takes reports whether a job's subcommand has a flag.
func (j *job) takes(flag string) bool {
	name := j.args[0]
	if c := findCommand(name + "-" + j.args[1]); c != nil {
		name = c.name
	}
	return slices.ContainsFunc(flagTable, func(f flagDef) bool { return f.name == flag && f.reject == "" && f.takenBy(name) })
}

// TestFaultThreads gives each job ten times the threads that there are CPUs.
func TestFaultThreads(t *testing.T) {
	in := faultInputs(t)
	for _, j := range jobs {
		if !j.takes("threads") {
			continue
		}
		t.Run(j.name, func(t *testing.T) {
			want, took := j.reference(t, in)
			out := t.TempDir()
			o := j.do(t, in, out, "-t", strconv.Itoa(10*runtime.NumCPU()))
			if o.code != 0 {
				t.Fatalf("status %d: %s", o.code, o.stderr)
			}
			t.Logf("%v, alone %v", o.took, took)
			maps.DeleteFunc(want, func(name string, _ []byte) bool { // the command line with -t is in it
				return strings.HasSuffix(name, ".json") || strings.HasSuffix(name, ".gguf") || strings.HasSuffix(name, ".session")
			})
			for name := range want {
				if got, err := os.ReadFile(filepath.Join(out, name)); err != nil || !bytes.Equal(got, want[name]) {
					t.Errorf("%s differs (%v)", name, err)
				}
			}
		})
	}
}

// TestFaultMemory gives each job less and less address space. It may fail; what
// it leaves must be right all the same.
func TestFaultMemory(t *testing.T) {
	in := faultInputs(t)
	for _, j := range jobs {
		t.Run(j.name, func(t *testing.T) {
			want, _ := j.reference(t, in)
			for _, mib := range []uint64{4000, 2000, 1500, 1000, 500, 250} {
				out := t.TempDir()
				cmd, wait := j.start(t, in, out)
				err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_AS, &unix.Rlimit{Cur: mib << 20, Max: mib << 20}, nil)
				o := wait()
				if err != nil {
					t.Fatal(err)
				}
				if o.code != 0 {
					t.Logf("%d MiB: status %d: %.200s", mib, o.code, o.stderr)
				}
				if o.code == -1 { // C++ code's abort; where Go's runtime finds no memory the status is 2
					t.Errorf("%d MiB: a signal ends it: %s", mib, o.stderr)
				}
				j.look(t, out, j.forgive(out, want), o.code, syscall.SIGTERM)
			}
		})
	}
}

// forgive returns want with the records in it that failed in out, each in its place: too little memory for one is an error of
// its own, and the others go on.
func (j *job) forgive(out string, want map[string][]byte) map[string][]byte {
	got, err := os.ReadFile(filepath.Join(out, j.outs[0]))
	if err != nil || !j.records {
		return want
	}
	lines := bytes.SplitAfter(want[j.outs[0]], []byte("\n"))
	for i, line := range bytes.SplitAfter(got, []byte("\n")) {
		var r struct{ Error json.RawMessage }
		if i < len(lines) && json.Unmarshal(line, &r) == nil && r.Error != nil {
			lines[i] = line
		}
	}
	forgiven := maps.Clone(want)
	forgiven[j.outs[0]] = bytes.Join(lines, nil)
	return forgiven
}

// TestFaultPipe closes the reader of what goes to standard output.
func TestFaultPipe(t *testing.T) {
	in := faultInputs(t)
	for _, args := range [][]string{
		{"run", "-m", "IN/model.gguf", "-f", "IN/prompt.txt", "-n", "100", "--ignore-eos"},
		{"run", "-m", "IN/model.gguf", "--records", "IN/requests.jsonl", "-n", "20"},
		{"run", "-m", "IN/model.gguf", "--score", "-f", "IN/prompt.txt"},
		{"run", "-m", "IN/model.gguf", "--model-info"},
		{"tokenize", "-m", "IN/model.gguf", "IN/train.txt"},
		{"tokenize", "-m", "IN/model.gguf", "--decode", "IN/t.bin"},
		slices.Concat(faultMedia, []string{"--image", "IN/pics/a.png", "-n", "20"}),
		slices.Concat(faultMedia, []string{"--dir", "IN/pics", "-n", "4"}),
		{"mtmd", "--mmproj", "IN/mmproj.gguf", "--caps"},
		{"imatrix", "-q", "-m", "IN/model.gguf", "-f", "IN/calibration.txt", "-c", "64", "--chunks", "2", "-o", "OUT/o.gguf"},
		{"imatrix", "merge", "-o", "-", "IN/part1.gguf", "IN/part2.gguf"},
		{"imatrix", "convert", "-o", "-", "IN/part1.gguf"},
		{"imatrix", "stats", "IN/part1.gguf"},
		{"imatrix", "diff", "IN/part1.gguf", "IN/part2.gguf"},
		{"imatrix", "check", "-m", "IN/model.gguf", "IN/part1.gguf"},
		{"cvector-generate", "-q", "-m", "IN/model.gguf", "--pairs", "IN/pairs.jsonl", "-o", "-"},
		{"cvector-generate", "info", "IN/vector.gguf"},
		{"cvector-generate", "scale", "IN/vector.gguf", "--unit", "-o", "-"},
		{"export-lora", "-m", "IN/model.gguf", "--lora", "IN/adapter.gguf", "--dry-run"},
		{"finetune", "--help"}, {"man"}, {"completion", "bash"}, {"version"}, {"devices"}, {"run", "--print-config"},
	} {
		j := job{args: args}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := j.command(t, in, t.TempDir())
		cmd.Stdout = w
		var msg bytes.Buffer
		cmd.Stderr = &msg
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Run() // the status is looked at
		_ = w.Close()
		if code := cmd.ProcessState.ExitCode(); code != 0 || strings.Contains(msg.String(), "error") {
			t.Errorf("%q: status %d: %s", args, code, msg.String())
		}
	}
}
