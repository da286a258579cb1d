//go:build slow && linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gollama/internal/lora"
)

// job is a command whose faults are tried. In args, IN/ and OUT/ stand for
// the folders of inputs and outputs.
type job struct {
	name    string
	args    []string
	outs    []string // files in OUT when it is done, the first is the result
	keeps   []string // files and folders that may be in OUT after an interruption
	records bool     // the result grows line by line, and --resume goes on
	partial bool     // the result may be the beginning after SIGINT and SIGTERM
}

// jobs has one for each subcommand that writes files, on the story model.
var jobs = []job{
	{name: "run", args: []string{"run", "-m", "IN/model.gguf", "-f", "IN/prompt.txt", "--temp", "0", "-n", "100", "--ignore-eos", "-o", "OUT/o.txt"},
		outs: []string{"o.txt"}, partial: true},
	{name: "run --records", args: []string{"run", "-m", "IN/model.gguf", "--records", "IN/requests.jsonl", "-np", "4", "-n", "12", "-o", "OUT/o.jsonl"},
		outs: []string{"o.jsonl", "o.jsonl.run.json"}, records: true},
	{name: "run --session", args: []string{"run", "-m", "IN/model.gguf", "-f", "IN/prompt.txt", "--temp", "0", "-n", "60", "--ignore-eos", "--session", "OUT/s.session"},
		outs: []string{"s.session"}},
	{name: "tokenize", args: []string{"tokenize", "-m", "IN/model.gguf", "--lines", "--format", "bin", "-o", "OUT/o.bin", "IN/train.txt"},
		outs: []string{"o.bin", "o.bin.idx", "o.bin.json"}},
	{name: "export-lora", args: []string{"export-lora", "-m", "IN/model.gguf", "--lora", "IN/adapter.gguf", "-o", "OUT/o.gguf"},
		outs: []string{"o.gguf"}},
	{name: "finetune", args: []string{"finetune", "-m", "IN/model.gguf", "--data", "IN/train.jsonl", "-o", "OUT/o.gguf", "-c", "64", "--epochs", "1", "--save-every", "2", "--run-dir", "OUT/run", "--resume"},
		outs: []string{"o.gguf"}, keeps: []string{"run"}},
}

// faultInputs makes the folder IN.
func faultInputs(t *testing.T) string {
	t.Helper()
	in := t.TempDir()
	model, err := os.ReadFile(story(t))
	if err != nil {
		t.Fatal(err)
	}
	var requests, train strings.Builder
	for i := range 40 {
		fmt.Fprintf(&requests, `{"id":%d,"prompt":"Once upon a time, number %d","seed":%d}`+"\n", i, i, i)
		fmt.Fprintf(&train, `{"prompt":"Once upon a time","completion":" there were %d cats."}`+"\n", i)
	}
	for name, data := range map[string][]byte{
		"model.gguf": model, "prompt.txt": []byte("Once upon a time"), "requests.jsonl": []byte(requests.String()), "train.jsonl": []byte(train.String()),
		"train.txt": []byte(strings.Repeat("Once upon a time, there was a little girl named Lily.\n", 20000)),
	} {
		if err := os.WriteFile(filepath.Join(in, name), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := lora.WriteGGUF(filepath.Join(in, "adapter.gguf"), storyAdapter()); err != nil {
		t.Fatal(err)
	}
	return in
}

// outcome is how a job ended.
type outcome struct {
	code   int // -1: by a signal
	stderr string
	took   time.Duration
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
	return cmd, func() outcome {
		_ = cmd.Wait() // the status is looked at
		return outcome{cmd.ProcessState.ExitCode(), msg.String(), time.Since(begin)}
	}
}

func (j *job) do(t *testing.T, in, out string, extra ...string) outcome {
	t.Helper()
	_, wait := j.start(t, in, out, extra...)
	return wait()
}

// crashed says whether messages look like those of a crash.
func (o outcome) crashed() bool {
	for _, mark := range []string{"GGML_ASSERT", "goroutine ", "SIG", "terminate called", "stack smashing", "internal engine error"} {
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
	return want, o.took
}

// look checks a folder of outputs: each file is whole or absent, or the
// beginning where that is the rule, and there is nothing else.
func (j *job) look(t *testing.T, out string, want map[string][]byte, done, beginning bool) {
	t.Helper()
	entries, err := os.ReadDir(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(j.outs, e.Name()) && !slices.Contains(j.keeps, e.Name()) {
			t.Errorf("%s is left", e.Name())
		}
	}
	for i, name := range j.outs {
		got, err := os.ReadFile(filepath.Join(out, name))
		if errors.Is(err, fs.ErrNotExist) {
			if done {
				t.Errorf("it says it is done, and there is no %s", name)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		whole := bytes.Equal(got, want[name])
		begins := i == 0 && !done && (j.records || beginning && j.partial) && bytes.HasPrefix(want[name], got)
		if !whole && !begins {
			t.Errorf("%s has %d bytes that are neither the result nor a beginning of it", name, len(got))
		}
	}
}

// TestFaultSignals ends each job by signals at random moments.
func TestFaultSignals(t *testing.T) {
	in := faultInputs(t)
	for _, j := range jobs {
		t.Run(j.name, func(t *testing.T) {
			want, took := j.reference(t, in)
			counts := map[int]int{}
			for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT, syscall.SIGTERM} {
				for range 15 {
					out := t.TempDir()
					cmd, wait := j.start(t, in, out)
					time.Sleep(time.Duration(rand.Int64N(int64(took))))
					_ = cmd.Process.Signal(s) // it may have ended
					o := wait()
					counts[o.code]++
					if ok := map[syscall.Signal]int{syscall.SIGKILL: -1, syscall.SIGINT: 130, syscall.SIGTERM: 143}[s]; o.code != 0 && o.code != ok {
						// Before main has its handler, the system ends the process.
						if o.code != -1 {
							t.Errorf("%v: status %d: %s", s, o.code, o.stderr)
						}
					}
					if s != syscall.SIGKILL && o.code != -1 && o.crashed() {
						t.Errorf("%v: %s", s, o.stderr)
					}
					j.look(t, out, want, o.code == 0, s != syscall.SIGKILL)
					if j.records {
						if o := j.do(t, in, out, "--resume"); o.code != 0 {
							t.Errorf("--resume after %v: status %d: %s", s, o.code, o.stderr)
						}
						j.look(t, out, want, true, false)
					}
				}
			}
			t.Logf("45 signals in %v; statuses %v", took, counts)
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
				if o.code != 6 && !(o.code == 0 && opts != "") || o.crashed() {
					t.Errorf("%q: status %d, want 6: %s", opts, o.code, o.stderr)
				}
				j.look(t, out, want, o.code == 0, false)
				if err := syscall.Unmount(out, 0); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestFaultInputs cuts and alters each input of each job.
func TestFaultInputs(t *testing.T) {
	in := faultInputs(t)
	for _, j := range jobs {
		t.Run(j.name, func(t *testing.T) {
			for _, arg := range j.args {
				name, ok := strings.CutPrefix(arg, "IN/")
				if !ok {
					continue
				}
				good, err := os.ReadFile(filepath.Join(in, name))
				if err != nil {
					t.Fatal(err)
				}
				rng := rand.New(rand.NewPCG(1, uint64(len(good))))
				for i := range 40 {
					bad := slices.Clone(good)
					if i < 20 {
						bad = bad[:rng.IntN(len(bad))]
					} else {
						for range 1 + rng.IntN(20) {
							bad[rng.IntN(min(len(bad), 20000))] = byte(rng.Uint32())
						}
					}
					if err := os.WriteFile(filepath.Join(in, name), bad, 0o666); err != nil {
						t.Fatal(err)
					}
					out := t.TempDir()
					o := j.do(t, in, out)
					if !slices.Contains([]int{0, 1, 3, 4, 5, 64}, o.code) || o.crashed() {
						t.Errorf("%s, change %d: status %d: %s", name, i, o.code, o.stderr)
					}
					if _, err := os.Stat(filepath.Join(out, j.outs[0])); err == nil && o.code != 0 && o.code != 3 && o.code != 5 && !j.records {
						t.Errorf("%s, change %d: status %d, and there is a %s", name, i, o.code, j.outs[0])
					}
				}
				if err := os.WriteFile(filepath.Join(in, name), good, 0o666); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestFaultThreads gives each job ten times the threads that there are CPUs.
func TestFaultThreads(t *testing.T) {
	in := faultInputs(t)
	for _, j := range jobs {
		t.Run(j.name, func(t *testing.T) {
			want, _ := j.reference(t, in)
			out := t.TempDir()
			if o := j.do(t, in, out, "-t", strconv.Itoa(10*runtime.NumCPU())); o.code != 0 {
				t.Fatalf("status %d: %s", o.code, o.stderr)
			}
			for name := range want {
				if strings.HasSuffix(name, ".json") || strings.HasSuffix(name, ".gguf") || strings.HasSuffix(name, ".session") {
					delete(want, name) // the command line with -t is in it
				}
			}
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
				if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_AS, &unix.Rlimit{Cur: mib << 20, Max: mib << 20}, nil); err != nil {
					t.Fatal(err)
				}
				o := wait()
				if o.code == 0 {
					j.look(t, out, want, true, false)
				} else {
					t.Logf("%d MiB: status %d: %.200s", mib, o.code, o.stderr)
					j.look(t, out, want, false, true)
				}
			}
		})
	}
}

// TestFaultPipe closes the reader of what goes to standard output.
func TestFaultPipe(t *testing.T) {
	in := faultInputs(t)
	for _, args := range [][]string{
		{"run", "-m", "IN/model.gguf", "-f", "IN/prompt.txt", "-n", "100", "--ignore-eos"},
		{"run", "-m", "IN/model.gguf", "--records", "IN/requests.jsonl", "-n", "20"},
		{"tokenize", "-m", "IN/model.gguf", "IN/train.txt"},
		{"finetune", "--help"}, {"man"}, {"completion", "bash"}, {"version"}, {"devices"},
	} {
		j := job{args: args}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := j.command(t, in, "")
		cmd.Stdout = w
		var msg bytes.Buffer
		cmd.Stderr = &msg
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Run() // the status is looked at
		_ = w.Close()
		if code := cmd.ProcessState.ExitCode(); code != 0 || msg.Len() > 0 && strings.Contains(msg.String(), "error") {
			t.Errorf("%q: status %d: %s", args, code, msg.String())
		}
	}
}
