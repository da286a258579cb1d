package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// errNoOutput is of a program that wrote nothing: llama.cpp's tools lose their output now and then.
var errNoOutput = errors.New("nothing on stdout")

// process is a program that has run.
type process struct {
	stdout, stderr []byte
	first, last    float64 // ms from the start to the first and to the last byte of stdout
	wall           float64 // ms from the start to the end
	cpu            float64 // ms of processor time, in user and system mode, with all children that were waited for
	memory         float64 // MiB, peak resident
}

// rate is the speed of the n-1 tokens that came after the first, in tokens/s. It holds sampling and writing for every
// program alike.
func (p *process) rate(n int) float64 { return perSecond(float64(n-1), p.last-p.first) }

// outcome has what is measured of every process.
func (p *process) outcome() outcome {
	return outcome{wall: p.wall / 1000, cpu: p.cpu / 1000, memory: p.memory}
}

// perSecond returns the rate of n in ms milliseconds; 0 if they are 0.
func perSecond(n, ms float64) float64 {
	if ms == 0 {
		return 0
	}
	return n / ms * 1000
}

// start runs a program that writes to stdout.
func start(ctx context.Context, name string, args ...string) (*process, error) {
	p, err := execute(ctx, name, args...)
	if err == nil && len(p.stdout) == 0 {
		return p, fmt.Errorf("%s: %w", filepath.Base(name), errNoOutput)
	}
	return p, err
}

// execute runs a program. If it fails the error ends with the end of what it wrote to stderr.
func execute(ctx context.Context, name string, args ...string) (*process, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	ms := func() float64 { return float64(time.Since(began).Microseconds()) / 1000 }
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var p process
	buf := make([]byte, 4096)
	var readErr error
	for readErr == nil {
		var n int
		if n, readErr = pipe.Read(buf); n == 0 {
			continue
		}
		p.last = ms()
		if p.stdout == nil {
			p.first = p.last
		}
		p.stdout = append(p.stdout, buf[:n]...)
	}
	err = cmd.Wait()
	p.wall, p.stderr = ms(), stderr.Bytes()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", filepath.Base(name), err, tail(p.stderr, 600))
	}
	if !errors.Is(readErr, io.EOF) {
		return nil, fmt.Errorf("%s: read its output: %w", filepath.Base(name), readErr)
	}
	s := cmd.ProcessState
	p.cpu = float64((s.UserTime() + s.SystemTime()).Microseconds()) / 1000
	// Linux counts from what this process had at the fork, so this one stays small: what takes memory is done in
	// processes of its own.
	if u, ok := s.SysUsage().(*syscall.Rusage); ok {
		p.memory = float64(u.Maxrss) / 1024
		if runtime.GOOS == "darwin" { // bytes there, KiB elsewhere
			p.memory /= 1024
		}
	}
	return &p, nil
}

// tail returns the last n bytes of b, of a text.
func tail(b []byte, n int) string { return string(bytes.TrimSpace(b[max(0, len(b)-n):])) }
