package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"gollama/internal/engine/ggml"
)

// server is a gollama rpc-server.
type server struct {
	cmd    *exec.Cmd
	addr   string
	stdout bytes.Buffer
	stderr bytes.Buffer
}

// startServer starts one on a free port of this machine, and waits for it.
func startServer(t *testing.T, flags ...string) *server {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{addr: l.Addr().String()}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(s.addr, ":")
	s.cmd = program(t, append([]string{"rpc-server", "-p", port, "-t", "1"}, flags...)...)
	s.cmd.Stdout, s.cmd.Stderr = &s.stdout, &s.stderr
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill(); _ = s.cmd.Wait() })
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) { // another process: nothing else tells
		if err = ggml.CheckRPC(s.addr, time.Second); err == nil {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not answer: %v\n%s", s.addr, err, &s.stderr)
		}
	}
}

// program is the program with arguments, not started.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Args[0] = "gollama"
	return cmd
}

// A run over two servers writes the bytes of a local run.
func TestRPCServers(t *testing.T) {
	model := story(t)
	args := []string{"run", "-m", model, "-p", "Once upon a time", "-n", "64", "--temp", "0"}
	want, _, code := gollama(t, args...)
	if code != 0 || want == "" {
		t.Fatalf("local: status %d, %q", code, want)
	}
	a, b := startServer(t), startServer(t)
	args = append(args, "--rpc", a.addr+","+b.addr, "-ngl", "99")
	for range 2 { // a server outlives its clients
		got, msg, code := gollama(t, append(args, "-v")...)
		if code != 0 || got != want {
			t.Errorf("over rpc: status %d, %q, want %q", code, got, want)
		}
		for _, s := range []string{"RPC0", "RPC1"} {
			if !strings.Contains(msg, s) {
				t.Errorf("the run's log does not name %s", s)
			}
		}
	}
	for s, sig := range map[*server]syscall.Signal{a: syscall.SIGINT, b: syscall.SIGTERM} {
		if err := s.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		var exit *exec.ExitError
		if err := s.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 128+int(sig) {
			t.Errorf("%v: %v, want status %d", sig, err, 128+int(sig))
		}
		if s.stdout.Len() > 0 || !strings.Contains(s.stderr.String(), "Accepted client connection") {
			t.Errorf("stdout %q, want nothing; stderr %q, want ggml's messages", &s.stdout, &s.stderr)
		}
		if strings.Contains(s.stderr.String(), "warning:") {
			t.Errorf("a warning on the loopback address: %s", &s.stderr)
		}
	}
}

// The second server on a port says so; one that others can reach is warned about.
func TestRPCServerAddress(t *testing.T) {
	story(t)
	s := startServer(t, "-H", "0.0.0.0")
	if !strings.Contains(s.stderr.String(), "gollama rpc-server: warning: --host 0.0.0.0: other machines can reach the server") {
		t.Errorf("stderr %q, want a warning", &s.stderr)
	}
	_, port, _ := strings.Cut(s.addr, ":")
	_, msg, code := gollama(t, "rpc-server", "-p", port)
	if code != exitFailed || !strings.Contains(msg, fmt.Sprintf("error: rpc server \"127.0.0.1:%s\"", port)) || !strings.Contains(msg, "in use") {
		t.Errorf("second server: status %d, %q, want %d and the address in use", code, msg, exitFailed)
	}
}

// A server that dies ends the run with status 1 and one line: ggml aborts, and what was written stays.
func TestRPCServerDies(t *testing.T) {
	model := story(t)
	s := startServer(t)
	run := program(t, "run", "-m", model, "-p", "Once", "-n", "100000", "--on-overflow", "shift", "--ignore-eos", "--rpc", s.addr, "-ngl", "99")
	var msg bytes.Buffer
	run.Stderr = &msg
	out, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	if _, err := r.Peek(8); err != nil {
		t.Fatalf("no text: %v, %s", err, &msg)
	}
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = r.WriteTo(new(bytes.Buffer))
	var exit *exec.ExitError
	if err := run.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitFailed || strings.Count(msg.String(), "\n") != 1 {
		t.Errorf("%v, stderr %q, want status 1 and one line", err, &msg)
	}
}
