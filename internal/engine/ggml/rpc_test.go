package ggml

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// fakeRPC answers each connection with the given messages, one per command; a
// nil message hangs up, and after the last one it stays silent.
func fakeRPC(t *testing.T, answers ...[]byte) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serveFake(c, answers)
		}
	}()
	return l.Addr().String()
}

func serveFake(c net.Conn, answers [][]byte) {
	defer c.Close()
	for _, a := range answers {
		var head [9]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, c, int64(binary.LittleEndian.Uint64(head[1:]))); err != nil {
			return
		}
		if a == nil {
			return
		}
		if _, err := c.Write(a); err != nil {
			return
		}
	}
	_, _ = io.Copy(io.Discard, c) // until the client hangs up
}

// answer puts the length before a payload.
func answer(b ...byte) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(b))), b...)
}

func hello(major, minor byte) []byte {
	return answer(append([]byte{major, minor, 0, 0}, make([]byte, rpcCapsSize)...)...)
}

func TestCheckRPC(t *testing.T) {
	for _, tt := range []struct {
		name    string
		answers [][]byte
		want    string // in the error; empty for none
	}{
		{"good", [][]byte{hello(7, 0), answer(1, 0, 0, 0)}, ""},
		{"older major", [][]byte{hello(6, 0)}, "protocol 6.0.0, want 7.0"},
		{"newer minor", [][]byte{hello(7, 1)}, "protocol 7.1.0, want 7.0"},
		{"no devices", [][]byte{hello(7, 0), answer(0, 0, 0, 0)}, "0 devices"},
		{"too many devices", [][]byte{hello(7, 0), answer(0, 1, 0, 0)}, "256 devices"},
		{"hangs up", [][]byte{nil}, "not a ggml rpc server"},
		{"hangs up later", [][]byte{hello(7, 0), nil}, "device count"},
		{"silent", nil, "timeout"},
		{"http", [][]byte{[]byte("HTTP/1.1 400 Bad Request\r\n\r\n")}, "not a ggml rpc server of this version"},
		{"short", [][]byte{answer(7, 0, 0)}, "answer of 3 bytes, want 28"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			addr := fakeRPC(t, tt.answers...)
			timeout := 5 * time.Second
			if tt.name == "silent" {
				timeout = 100 * time.Millisecond
			}
			err := CheckRPC(addr, timeout)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("CheckRPC = %v, want no error", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), addr)):
				t.Errorf("CheckRPC = %v, want an error with %q and %q", err, tt.want, addr)
			}
		})
	}
}

func TestAddRPCErrors(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := l.Addr().String()
	l.Close() // now nobody listens there
	many := make([]string, rpcMaxServers+1)
	for i := range many {
		many[i] = "127.0.0.1:" + string(rune('1'+i%9)) + string(rune('0'+i/9))
	}
	good := fakeRPC(t, hello(7, 0), answer(1, 0, 0, 0))
	for _, tt := range []struct {
		endpoints []string
		want      string
	}{
		{[]string{dead}, dead},
		{[]string{good, dead}, dead}, // nothing is registered when one fails
		{[]string{"localhost"}, `"localhost": want host:port`},
		{[]string{""}, "want host:port"},
		{[]string{":50052"}, "want host:port"},
		{[]string{"h:"}, "want host:port"},
		{[]string{"[::1]:50052"}, "IPv4"},
		{[]string{"::1:50052"}, "want host:port"},
		{[]string{"a:1:2"}, "IPv4"},
		{[]string{"a b:1"}, "IPv4"},
		{[]string{"h:0"}, "1 to 65535"},
		{[]string{"h:65536"}, "1 to 65535"},
		{[]string{"h:+1"}, "1 to 65535"},
		{[]string{"h:1x"}, "1 to 65535"},
		{many, "17 rpc servers, want at most 16"},
	} {
		if err := AddRPC(tt.endpoints); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("AddRPC(%q) = %v, want an error with %q", tt.endpoints, err, tt.want)
		}
	}
	for _, d := range Devices() {
		if strings.HasPrefix(d.Name, "RPC") {
			t.Errorf("device %q is registered after failures", d.Name)
		}
	}
}

func TestServeRPCRefusesNetwork(t *testing.T) {
	for _, e := range []string{"0.0.0.0:50052", "192.0.2.1:50052", "example.org:50052", "127.0.0.1"} {
		if _, err := (&RPCServer{Endpoint: e, Threads: 1}).check(); err == nil {
			t.Errorf("%q: no error, want one", e)
		}
	}
	for _, e := range []string{"127.0.0.1:50052", "localhost:50052", "127.9.9.9:1"} {
		if !(&RPCServer{Endpoint: e}).Loopback() {
			t.Errorf("%q is not a loopback address, want it to be", e)
		}
	}
}

func TestServeNames(t *testing.T) {
	have := []Device{{Name: "CUDA0", Type: "gpu"}, {Name: "BLAS", Type: "accel"}, {Name: "CPU", Type: "cpu"}}
	for _, tt := range []struct {
		have  []Device
		asked []string
		want  string
	}{
		{have, nil, "CUDA0"},
		{have[1:], nil, "CPU"},
		{have, []string{"CPU", "CUDA0"}, "CPU,CUDA0"},
		{have, []string{"none"}, ""},
		{nil, nil, ""},
	} {
		got, err := serveNames(tt.have, tt.asked)
		if strings.Join(got, ",") != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("serveNames(%v, %v) = %v, %v, want %q", tt.have, tt.asked, got, err, tt.want)
		}
	}
}
