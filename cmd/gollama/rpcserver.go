package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gollama/internal/engine/ggml"
)

var rpcServerCommand = &command{
	name:     "rpc-server",
	synopsis: "[flags]",
	short:    "Offer this machine's devices to gollama run --rpc on another.",
	long: `Serves until it is ended, one client after another: ggml's own RPC server, of the
same engine as run, so both ends must be of one version. Reads and writes no file,
but for --cache. What it does is on standard error; standard output stays empty.

It has no authentication and no encryption: whoever reaches the port owns the
process. It listens on this machine only (127.0.0.1) unless --host says otherwise;
use a private network or a tunnel. If a server dies, ggml cannot go on: the run
that uses it ends with status 1 and an "internal engine error".

Examples:
  timeout 1 gollama rpc-server -p 50053; [ $? = 124 ]
  timeout 1 gollama rpc-server --port 50054 --device CPU -t 2; [ $? = 124 ]
  timeout 1 gollama rpc-server -p 50055 --cache; [ $? = 124 ]

Flags are those of ggml-rpc-server. Exit status: 130 after SIGINT, 143 after
SIGTERM, 1 if the address is in use.`,
}

func init() { rpcServerCommand.run = rpcServer }

const (
	inRPCServer = " rpc-server "
	groupServer = "Server"
)

// rpcOptions are the settings of rpc-server.
type rpcOptions struct {
	host    string
	port    int
	devices []string
	cache   bool
}

// sharedWithRPCServer are the flags of run that mean the same here.
var sharedWithRPCServer = []string{"threads", "quiet", "verbosity", "log-file", "log-json", "log-colors", "log-prefix",
	"log-timestamps", "config", "print-config"}

func rpcServerFlags() []flagDef {
	type o = *options
	rows := inGroup(groupServer,
		flagDef{name: "host", alias: []string{"-H"}, arg: "HOST", help: "address to listen on, a name or an IPv4 address; 0.0.0.0 is every one of this machine", binding: stringVar(func(o o) *string { return &o.rpc.host })},
		flagDef{name: "port", alias: []string{"-p"}, arg: "PORT", help: "port to listen on", binding: intVar(func(o o) *int { return &o.rpc.port }, 1, 65535)},
		flagDef{name: "device", alias: []string{"-d"}, arg: "NAME,...", def: "all but the CPU, or the CPU alone", help: "devices to offer, as gollama devices lists them", binding: commaVar(func(o o) *[]string { return &o.rpc.devices }, parseList)},
		flagDef{name: "cache", alias: []string{"-c"}, help: "keep large tensors in a folder, so that they are sent once: $LLAMA_CACHE/rpc, or llama.cpp/rpc in the user's cache folder, as ggml-rpc-server", binding: boolVar(func(o o) *bool { return &o.rpc.cache })},
	)
	for i := range rows {
		rows[i].in = inRPCServer
	}
	return rows
}

// rpcCacheDir is ggml-rpc-server's folder (tools/rpc/rpc-server.cpp, fs_get_cache_directory).
func rpcCacheDir(getenv func(string) string) (string, error) {
	if dir := getenv("LLAMA_CACHE"); dir != "" {
		return filepath.Join(dir, "rpc"), nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", usagef("--cache: %s", err).withHint("name a folder in LLAMA_CACHE")
	}
	return filepath.Join(dir, "llama.cpp", "rpc"), nil
}

// serverLine takes a line of what the server does. It is the program's own message, which needs no verbosity, in the form of
// the engine's log.
func (l *logging) serverLine(text string) {
	if !l.quiet {
		_ = l.log.Handler().Handle(context.Background(), slog.NewRecord(time.Now(), slog.LevelInfo, text, 0)) // it never fails
	}
}

func rpcServer(ctx context.Context, e *env, o *options, _ []string) error {
	if err := o.finish("rpc-server"); err != nil {
		return err
	}
	if strings.ContainsAny(o.rpc.host, ":[]") || o.rpc.host == "" {
		return usagef("--host %q: want a name or an IPv4 address", o.rpc.host)
	}
	l, err := setupLogging(e, "gollama rpc-server", o)
	if err != nil {
		return err
	}
	defer l.close()
	s := ggml.RPCServer{Endpoint: fmt.Sprintf("%s:%d", o.rpc.host, o.rpc.port), Threads: o.CPUParams.NThreads, Devices: o.rpc.devices, Network: true, Say: l.serverLine}
	if s.Threads < 0 {
		s.Threads = ggml.DefaultThreads()
	}
	if o.rpc.cache {
		if s.CacheDir, err = rpcCacheDir(e.getenv); err != nil {
			return err
		}
		if err := os.MkdirAll(s.CacheDir, 0o777); err != nil {
			return &writeError{fmt.Errorf("--cache: %w", err)}
		}
	}
	if !s.Loopback() {
		l.warnf("--host %s: other machines can reach the server, and it trusts whoever does: never offer it to an open network", o.rpc.host)
	}
	// The engine's server cannot be stopped but by the end of the process.
	ended := make(chan error, 1)
	go func() { ended <- ggml.ServeRPC(s) }()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case err := <-ended:
		return err
	}
}
