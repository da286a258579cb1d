package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// options are what the command line says.
type options struct {
	gollama, peers string
	models         []string // for the group run, instead of the synthetic ones
	text           string   // a long text in English
	dir            string   // where models and texts are kept
	repeat         int      // rounds
	quick          bool
	procs          int // of llama-completion, for the 64 records
}

// bench is what all contests use.
type bench struct {
	options
	work string // folder for what is written, removed at the end
}

// tmp returns a path in the folder that is removed at the end.
func (b *bench) tmp(name string) string { return filepath.Join(b.work, name) }

// peer returns the path of one of llama.cpp's tools.
func (b *bench) peer(name string) string { return filepath.Join(b.peers, name) }

// size returns n, or in a quick run the smaller one.
func (b *bench) size(n, quick int) int {
	if b.quick {
		return quick
	}
	return n
}

// command is a player that is one process; its outcome is that of any process.
func command(name, program string, args ...string) player {
	return player{name, func(ctx context.Context) (outcome, error) {
		p, err := execute(ctx, program, args...)
		if err != nil {
			return nil, err
		}
		return p.outcome(), nil
	}}
}

// own is a command of gollama.
func (b *bench) own(args ...string) player { return command(ours, b.gollama, args...) }

// limit is a player that always takes what is allowed: for targets that are no comparison.
func limit(of string, v float64) player {
	return player{"limit", func(context.Context) (outcome, error) { return outcome{of: v}, nil }}
}

// program returns the first line of what gollama says of itself.
func (b *bench) program(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, b.gollama, "version").Output()
	if err != nil {
		return "gollama, of unknown version"
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}

// machine names the processor and the number of cores that may be used.
func machine() string {
	cpu := runtime.GOARCH
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close() //nolint:errcheck // only read from
		for s := bufio.NewScanner(f); s.Scan(); {
			if name, v, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
				cpu = strings.TrimSpace(v)
				break
			}
		}
	}
	return fmt.Sprintf("%s, %d cores, %s/%s", cpu, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
}

// load returns the average number of runnable processes of the last minute, where the system tells.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(text), " ")
	return one
}

func str(n int) string { return strconv.Itoa(n) }
