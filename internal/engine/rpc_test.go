//go:build cgo

package engine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gollama/internal/engine/ggml"
)

// The test binary also plays an RPC server and its clients, see TestMain:
// ggml's server never returns, and a client cannot forget one that has died.
const (
	roleEnv = "ENGINE_TEST_ROLE"
	addrEnv = "ENGINE_TEST_RPC_ADDR"
)

// playRole is the main function of the child processes.
func playRole(role string) int {
	signal.Ignore(syscall.SIGPIPE) // as cmd/gollama does; see ggml.AddRPC
	var err error
	switch addr := os.Getenv(addrEnv); role {
	case "serve":
		err = ggml.ServeRPC(ggml.RPCServer{Endpoint: addr, Threads: 2})
	case "client":
		err = rpcClient(addr, func() {})
	case "orphan": // says so when it is loaded, and goes on when the server is dead
		err = rpcClient(addr, func() {
			fmt.Println("loaded")
			_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		})
	case "limited":
		err = stackInLimit()
	default:
		err = fmt.Errorf("unknown role %q", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3 // not 1, which is the abort handler's
	}
	return 0
}

// rpcClient prints the greedy tokens of the story model that runs on addr,
// after a line that says how much of it does.
func rpcClient(addr string, loaded func()) error {
	p := testParams(storyPath)
	p.RPCServers, p.NGPULayers = []string{addr}, 99
	var offloaded string
	SetLogger(LogDebug, func(_ int, text string) {
		if strings.Contains(text, "layers to GPU") {
			offloaded = text
		}
	})
	m, err := LoadModel(context.Background(), p)
	if err != nil {
		return err
	}
	defer m.Close()
	SetLogger(0, nil)
	c, err := NewContext(m, p)
	if err != nil {
		return err
	}
	defer c.Close()
	loaded()
	tokens, err := greedy(c, "Once upon a time", 32)
	if err != nil {
		return err
	}
	fmt.Println(offloaded)
	fmt.Println(tokens)
	return nil
}

// greedy returns the n likeliest tokens after prompt.
func greedy(c *Context, prompt string, n int) ([]Token, error) {
	next, err := c.Model().Vocab().Tokenize(prompt, true, false)
	if err != nil {
		return nil, err
	}
	var out []Token
	for pos := 0; len(out) < n; {
		if err := c.DecodePrompt(context.Background(), next, pos, 0, nil); err != nil {
			return nil, err
		}
		pos += len(next)
		l, err := c.Logits(-1)
		if err != nil {
			return nil, err
		}
		next = []Token{Token(slices.Index(l, slices.Max(l)))}
		out = append(out, next...)
	}
	return out, nil
}

func roleCommand(t *testing.T, role, addr string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+role, addrEnv+"="+addr)
	return cmd
}

// freeAddr returns an address where nobody listens.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// startRPC starts a server and returns its address and what ends it.
func startRPC(t *testing.T) (addr string, kill func()) {
	t.Helper()
	addr = freeAddr(t)
	server := roleCommand(t, "serve", addr)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() { _ = server.Process.Kill(); _ = server.Wait() }
	t.Cleanup(kill)
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := ggml.CheckRPC(addr, time.Second)
		if err == nil {
			return addr, kill
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server at %s does not answer: %v", addr, err)
		}
		time.Sleep(20 * time.Millisecond) // the server is another process; nothing else tells
	}
}

func TestRPCStory(t *testing.T) {
	p := testParams(needStory(t))
	want, err := greedy(openContext(t, openModel(t, p), p), "Once upon a time", 32)
	if err != nil {
		t.Fatal(err)
	}
	addr, _ := startRPC(t)
	var stderr bytes.Buffer
	client := roleCommand(t, "client", addr)
	client.Stderr = &stderr
	out, err := client.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("client: %v\n%s%s", err, out, &stderr)
	}
	lines := strings.Split(string(out), "\n")
	if !strings.Contains(lines[0], "offloaded 6/6 layers") {
		t.Errorf("client says %q, want all 6 layers offloaded", lines[0])
	}
	if len(lines) < 2 || lines[1] != fmt.Sprint(want) {
		t.Errorf("over RPC %q, here %v", lines[1:], want)
	}
}

// An address without a server is an error before the model's file is read.
func TestRPCDead(t *testing.T) {
	p := testParams("none.gguf")
	dead := freeAddr(t)
	p.RPCServers = []string{dead}
	_, err := LoadModel(context.Background(), p)
	if err == nil || !strings.Contains(err.Error(), dead) || errors.Is(err, ErrModel) {
		t.Errorf("LoadModel = %v, want an error about %s", err, dead)
	}
}

// ggml aborts when its server dies: that must be one line and exit code 1, not
// a core dump or a Go trace.
func TestAbort(t *testing.T) {
	needStory(t)
	addr, kill := startRPC(t)
	var stderr bytes.Buffer
	client := roleCommand(t, "orphan", addr)
	client.Stderr = &stderr
	stdin, err := client.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := client.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(stdout)
	first, _ := r.ReadString('\n')
	kill()
	_, _ = io.WriteString(stdin, "\n")
	rest, _ := io.ReadAll(r)
	err = client.Wait()
	var exit *exec.ExitError
	if first != "loaded\n" || len(rest) > 0 || !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("client: %v, stdout %q%q, want exit status 1 after \"loaded\"", err, first, rest)
	}
	if s := stderr.String(); !strings.HasPrefix(s, "gollama: error: internal engine error: ") || strings.Count(s, "\n") != 1 || !strings.HasSuffix(s, "\n") {
		t.Errorf("stderr = %q, want one line about an internal engine error", s)
	}
}
