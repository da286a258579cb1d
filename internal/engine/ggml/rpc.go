package ggml

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The RPC protocol of the pinned ggml (ggml/include/ggml-rpc.h,
// ggml/src/ggml-rpc/ggml-rpc.cpp and transport.h). shim.cpp
// compares those that the header exports.
const (
	rpcMajor          = 7
	rpcMinor          = 0
	rpcMaxServers     = 16
	rpcCapsSize       = 24
	rpcCmdHello       = 14
	rpcCmdDeviceCount = 15
	rpcTimeout        = 5 * time.Second
	// rpcMaxDevices bounds what a server may claim; ggml's scheduler takes at
	// most 16 backends (GGML_SCHED_MAX_BACKENDS).
	rpcMaxDevices = 16
)

var (
	rpcMu    sync.Mutex
	rpcAdded = map[string]bool{} // endpoints that are registered with ggml
)

// AddRPC makes the devices of the RPC servers at endpoints ("host:port", IPv4
// or a name) available as RPC0, RPC1, ... in Devices. All are checked with
// CheckRPC before the first is registered, because ggml aborts the process on
// a server that does not answer. An endpoint that was added before is left as
// it is. The error names the endpoint.
//
// A server that dies later still ends the process: ggml's RPC client aborts on
// a lost connection. It sends without MSG_NOSIGNAL, so unless the program has
// called signal.Ignore(syscall.SIGPIPE), the signal ends it without a word.
func AddRPC(endpoints []string) error {
	rpcMu.Lock()
	defer rpcMu.Unlock()
	var fresh []string
	for _, e := range endpoints {
		if rpcAdded[e] || slices.Contains(fresh, e) {
			continue
		}
		fresh = append(fresh, e)
	}
	if n := len(rpcAdded) + len(fresh); n > rpcMaxServers {
		return fmt.Errorf("%d rpc servers, want at most %d", n, rpcMaxServers)
	}
	for _, e := range fresh {
		if err := CheckRPC(e, rpcTimeout); err != nil {
			return err
		}
	}
	for _, e := range fresh {
		if err := addRPC(e); err != nil {
			return fmt.Errorf("rpc server %q: %w", e, err)
		}
		rpcAdded[e] = true
	}
	return nil
}

// CheckRPC connects to the RPC server at endpoint, compares protocol versions,
// asks for the number of devices, and hangs up. timeout bounds all of it
// together. A server talks to one client at a time, so one that is busy with
// another client does not answer in time and is an error.
func CheckRPC(endpoint string, timeout time.Duration) error {
	if err := checkEndpoint(endpoint); err != nil {
		return err
	}
	if err := probeRPC(endpoint, timeout); err != nil {
		return fmt.Errorf("rpc server %q: %w", endpoint, err)
	}
	return nil
}

// checkEndpoint holds an endpoint to what ggml's parse_endpoint understands:
// it cuts at the first colon, so IPv6 addresses cannot be written.
func checkEndpoint(endpoint string) error {
	host, port, ok := strings.Cut(endpoint, ":")
	if !ok || host == "" || port == "" {
		return fmt.Errorf("rpc server %q: want host:port", endpoint)
	}
	if strings.ContainsAny(endpoint, "[] \t\r\n,/\x00") || strings.Contains(port, ":") {
		return fmt.Errorf("rpc server %q: want host:port with a name or an IPv4 address", endpoint)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || port[0] == '+' {
		return fmt.Errorf("rpc server %q: port %q, want 1 to 65535", endpoint, port)
	}
	return nil
}

// probeRPC says HELLO and DEVICE_COUNT as ggml's client would and checks the
// answers that ggml asserts.
func probeRPC(endpoint string, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	d := net.Dialer{Deadline: deadline}
	c, err := d.Dial("tcp4", endpoint) // ggml's sockets are IPv4 only
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // nothing was written that could be lost
	if err := c.SetDeadline(deadline); err != nil {
		return err
	}
	hello, err := rpcCall(c, rpcCmdHello, make([]byte, rpcCapsSize), 4+rpcCapsSize)
	if err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	if hello[0] != rpcMajor || hello[1] > rpcMinor {
		return fmt.Errorf("protocol %d.%d.%d, want %d.%d", hello[0], hello[1], hello[2], rpcMajor, rpcMinor)
	}
	count, err := rpcCall(c, rpcCmdDeviceCount, nil, 4)
	if err != nil {
		return fmt.Errorf("device count: %w", err)
	}
	if n := binary.LittleEndian.Uint32(count); n < 1 || n > rpcMaxDevices {
		return fmt.Errorf("%d devices, want 1 to %d", n, rpcMaxDevices)
	}
	return nil
}

// rpcCall sends one command and returns its answer of exactly want bytes.
// Both ways the payload follows its length as a little-endian uint64.
func rpcCall(c net.Conn, cmd byte, payload []byte, want int) ([]byte, error) {
	msg := binary.LittleEndian.AppendUint64([]byte{cmd}, uint64(len(payload)))
	if _, err := c.Write(append(msg, payload...)); err != nil {
		return nil, err
	}
	var size [8]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, fmt.Errorf("not a ggml rpc server, or busy with another client: %w", err)
	}
	if n := binary.LittleEndian.Uint64(size[:]); n != uint64(want) {
		return nil, fmt.Errorf("not a ggml rpc server of this version: answer of %d bytes, want %d", n, want)
	}
	buf := make([]byte, want)
	if _, err := io.ReadFull(c, buf); err != nil {
		return nil, err
	}
	return buf, nil
}

// RPCServer is what ServeRPC serves.
type RPCServer struct {
	Endpoint string   // host:port, as for AddRPC
	Threads  int      // of the CPU device, 1 to 512
	Devices  []string // by name; none means all but the CPU, or the CPU where there is nothing else
	CacheDir string   // where tensors of 10 MiB and more are kept between clients; empty for nowhere
	// Network allows an address that other machines can reach. ggml's server has no
	// authentication and trusts what a client says.
	Network bool
	// Say is called with each line of what the server says that it does, on another goroutine; nil is standard error.
	Say func(line string)
}

// check returns the names of the devices to serve.
func (s *RPCServer) check() ([]string, error) {
	if err := checkEndpoint(s.Endpoint); err != nil {
		return nil, err
	}
	if !s.Network && !s.Loopback() {
		return nil, fmt.Errorf("rpc server %q: want a loopback address, such as 127.0.0.1", s.Endpoint)
	}
	if s.Threads < 1 || s.Threads > maxThreads {
		return nil, fmt.Errorf("rpc server %q: %d threads, want 1 to %d", s.Endpoint, s.Threads, maxThreads)
	}
	names, err := serveNames(Devices(), s.Devices)
	if err != nil {
		return nil, fmt.Errorf("rpc server %q: %w", s.Endpoint, err)
	}
	// ggml only says that it failed.
	l, err := net.Listen("tcp4", s.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("rpc server %q: %w", s.Endpoint, err)
	}
	return names, l.Close()
}

// serveNames returns which of the devices there are to serve, as ggml-rpc-server chooses them.
func serveNames(have []Device, asked []string) ([]string, error) {
	var all, names, cpu []string
	for _, d := range have {
		all = append(all, d.Name)
		switch d.Type {
		case "cpu":
			cpu = append(cpu, d.Name)
		case "accel":
		default:
			names = append(names, d.Name)
		}
	}
	for _, name := range asked {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("unknown device %q, want one of %s", name, strings.Join(all, ", "))
		}
	}
	switch {
	case len(asked) > 0:
		names = asked
	case len(names) == 0:
		names = cpu[:min(len(cpu), 1)]
	}
	if len(names) < 1 || len(names) > rpcMaxDevices {
		return nil, fmt.Errorf("%d devices, want 1 to %d", len(names), rpcMaxDevices)
	}
	return names, nil
}

// Loopback reports whether only this machine can reach the endpoint.
func (s *RPCServer) Loopback() bool {
	host, _, _ := strings.Cut(s.Endpoint, ":")
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
