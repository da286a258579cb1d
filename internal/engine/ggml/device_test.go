//go:build cgo

package ggml

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestMain also plays the RPC server and its client: ggml's server prints on
// stdout and never returns, and a client cannot forget a server that has died,
// so each gets a process of its own.
func TestMain(m *testing.M) {
	var err error
	switch addr := os.Getenv("GGML_TEST_RPC_ADDR"); os.Getenv("GGML_TEST_RPC") {
	case "serve":
		err = ServeRPC(RPCServer{Endpoint: addr, Threads: 1})
	case "client":
		err = rpcClient(addr)
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// rpcClient multiplies on the server's device and here, and prints OK when the
// results agree bit for bit: both run the same CPU code.
func rpcClient(addr string) error {
	if err := errors.Join(AddRPC([]string{addr, addr}), AddRPC([]string{addr})); err != nil {
		return err
	}
	var names []string
	for _, d := range Devices() {
		names = append(names, d.Name+" "+d.Type+" "+d.Backend+" "+d.Description)
	}
	fmt.Println(strings.Join(names, "|"))
	var results [][]float32
	for _, dev := range []string{"RPC0", "CPU"} {
		y, err := multiplyOn(dev)
		if err != nil {
			return fmt.Errorf("%s: %w", dev, err)
		}
		results = append(results, y)
	}
	if fmt.Sprint(results[0]) != fmt.Sprint(results[1]) {
		return fmt.Errorf("RPC0 gives %v, CPU %v", results[0], results[1])
	}
	fmt.Println("OK")
	return nil
}

func multiplyOn(dev string) ([]float32, error) {
	const K, M, N = 64, 8, 3
	s, err := NewSched(SchedConfig{Devices: []string{dev}, Threads: 1, MaxNodes: 16})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	w, c := must(NewContext(1)), must(NewContext(8))
	defer w.Close()
	defer c.Close()
	wt, x := must(w.NewTensor(TypeF32, K, M)), must(c.NewTensor(TypeF32, K, N))
	y := must(c.MulMat(wt, x))
	g := must(c.NewGraph())
	out := make([]float32, M*N)
	for _, step := range []func() error{
		func() error { return s.AllocTensors(w, dev) },
		func() error { return wt.SetF32(normals(K*M, 1)) },
		func() error { return g.Build(y) },
		func() error { return s.Alloc(g) },
		func() error { return x.SetF32(normals(K*N, 2)) },
		func() error { return s.Compute(g) },
		func() error { return y.GetF32(out) },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func TestRPC(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	play := func(role string) *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "GGML_TEST_RPC="+role, "GGML_TEST_RPC_ADDR="+addr)
		return cmd
	}
	server := play("serve")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	deadline := time.Now().Add(20 * time.Second)
	for CheckRPC(addr, time.Second) != nil {
		if time.Now().After(deadline) {
			t.Fatalf("the server at %s does not answer: %v", addr, CheckRPC(addr, time.Second))
		}
		time.Sleep(20 * time.Millisecond) // the server is another process; nothing else tells
	}
	out, err := play("client").CombinedOutput()
	if err != nil {
		t.Fatalf("client: %v\n%s", err, out)
	}
	sc := bufio.NewScanner(strings.NewReader(string(out)))
	sc.Scan()
	if want := "RPC0 gpu RPC " + addr; !strings.Contains(sc.Text(), want) || strings.Contains(sc.Text(), "RPC1") {
		t.Errorf("devices %q, want one %q", sc.Text(), want)
	}
	if !strings.HasSuffix(string(out), "OK\n") {
		t.Errorf("client prints %q, want OK at the end", out)
	}
}

func TestDevices(t *testing.T) {
	found := false
	for _, d := range Devices() {
		if d.Name == "" || d.Backend == "" || d.Description == "" {
			t.Errorf("device with empty fields: %+v", d)
		}
		if d.Type == "cpu" {
			found = true
			if d.Backend != "CPU" || d.MemTotal == 0 || d.MemFree > d.MemTotal {
				t.Errorf("CPU device: %+v", d)
			}
		}
	}
	if !found {
		t.Errorf("Devices() = %+v, want a CPU among them", Devices())
	}
	if len(CPUFeatures()) == 0 {
		t.Error("CPUFeatures() is empty")
	}
}
