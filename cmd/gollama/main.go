// Command gollama works with GGUF models: gollama run turns a prompt into
// text.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"gollama/internal/engine/ggml"
)

// version is set by the build.
var version = "unknown"

func main() {
	os.Exit(mainCode())
}

// mainCode is main without its os.Exit, for the tests.
func mainCode() int {
	e := &env{args: os.Args, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv}
	ctx, sig, stop := handleSignals(context.Background())
	defer stop()
	e.signals = sig
	return e.main(ctx)
}

// env is what a subcommand knows of the world.
type env struct {
	args   []string
	stdin  *os.File
	stdout *os.File
	stderr io.Writer
	getenv func(string) string

	out     *output // standard output, checked
	signals *signals
}

// command is a subcommand.
type command struct {
	name     string
	parent   string         // of imatrix-merge, which is written gollama imatrix merge: imatrix
	synopsis string         // after the name
	short    string         // one sentence
	long     string         // what it reads and writes, examples, exit status
	posArgs  int            // positional arguments it takes
	noConfig bool           // takes neither config nor environment
	defaults func(*options) // those of its own; may be nil
	run      func(ctx context.Context, e *env, o *options, args []string) error
}

// commands returns the subcommands in the order of the help.
func commands() []*command {
	return []*command{
		runCommand, tokenizeCommand, mtmdCommand,
		imatrixCommand, imatrixMergeCommand, imatrixConvertCommand, imatrixStatsCommand, imatrixDiffCommand, imatrixCheckCommand,
		cvectorCommand, cvectorInfoCommand, cvectorAddCommand, cvectorScaleCommand, cvectorShiftCommand,
		exportLoRACommand, finetuneCommand,
		rpcServerCommand, versionCommand, devicesCommand,
		completionCommand, manCommand,
	}
}

func commandNames() []string {
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	return names
}

func findCommand(name string) *command {
	for _, c := range commands() {
		if c.name == name {
			return c
		}
	}
	return nil
}

// commandOf returns the subcommand of a command line, nil if there is none of that name, and what follows it.
func commandOf(args []string) (*command, []string) {
	if len(args) > 1 {
		if c := findCommand(args[0] + "-" + args[1]); c != nil && c.parent == args[0] {
			return c, args[2:]
		}
	}
	return findCommand(args[0]), args[1:]
}

// shown is the name as it is written on the command line.
func (c *command) shown() string {
	if c.parent == "" {
		return c.name
	}
	return c.parent + " " + strings.TrimPrefix(c.name, c.parent+"-")
}

// children returns the subcommands of a subcommand.
func (c *command) children() []*command {
	var list []*command
	for _, other := range commands() {
		if other.parent == c.name {
			list = append(list, other)
		}
	}
	return list
}

func isCommand(name string) bool { return findCommand(name) != nil }

// main runs a command line and returns its exit code.
func (e *env) main(ctx context.Context) int {
	e.out = newOutput(e.stdout)
	if e.stdout == os.Stdout && ggml.StdoutClosed() {
		e.out.w = closedStream{}
	}
	who := "gollama"
	defer func() { current.end() }()
	err := e.dispatch(ctx, &who)
	if cerr := e.out.finish(); err == nil {
		err = cerr
	}
	code := exitCode(err)
	if err == nil || errors.Is(err, errBrokenPipe) {
		return code
	}
	e.report(who, err)
	return code
}

// report writes an error as its line and a hint.
func (e *env) report(who string, err error) {
	var usage *usageError
	isUsage := errors.As(err, &usage)
	log := logger(who, e.stderr)
	text, hint, _ := strings.Cut(withoutCall(err), "\nhint: ") // as packages write it
	log.message("error", oneLine(errors.New(text)))
	if own := hintOf(err); own != "" {
		hint = own
	}
	if hint != "" {
		log.message("hint", hint)
	}
	if isUsage {
		log.see(who + " --help")
	}
}

// dispatch finds the subcommand, reads its settings and runs it.
func (e *env) dispatch(ctx context.Context, who *string) error {
	args := e.args[1:]
	if len(args) == 0 || args[0] == "--" {
		return usagef("no subcommand given").withHint("gollama run -p TEXT")
	}
	if isHelp(args[0]) || args[0] == "help" {
		return e.help(args)
	}
	if args[0] == "--version" || args[0] == "-version" {
		args = append([]string{"version"}, args[1:]...)
	}
	c, args := commandOf(args)
	if c == nil {
		return unknownCommand(e.args[1])
	}
	*who = "gollama " + c.shown()
	line, written, help, err := canonical(c.name, args)
	if err != nil {
		return err
	}
	if help {
		return e.out.text(commandHelp(c))
	}
	values, rest, err := parseWithCLI(c, line)
	if err != nil {
		return err
	}
	o, err := e.settings(c, values, written)
	if err != nil {
		return err
	}
	if len(rest) > c.posArgs {
		return leftOver(c, rest[c.posArgs])
	}
	if o.printConfig {
		if err := o.finish(c.name); err != nil {
			return err
		}
		return writeConfig(e.out, c.name, o)
	}
	if err := o.useBuiltin(c); err != nil {
		return err
	}
	return c.run(ctx, e, o, rest)
}

// help shows the help of the program, or for "help SUBCOMMAND" of that.
func (e *env) help(args []string) error {
	if isHelp(args[0]) || len(args) == 1 || isHelp(args[1]) {
		return e.out.text(rootHelp())
	}
	c, rest := commandOf(args[1:])
	if c == nil {
		return unknownCommand(args[1])
	}
	if len(rest) > 0 {
		return usagef("unexpected argument %q", rest[0])
	}
	return e.out.text(commandHelp(c))
}

// upstreamNames says what stands in for tools of llama.cpp that have another name there.
var upstreamNames = map[string]string{
	"cli": "gollama run -i", "chat": "gollama run -i", "perplexity": "gollama run --score --windows", "batched": "gollama run --records FILE",
	"parallel": "gollama run --records FILE", "mtmd-cli": "gollama mtmd", "cvector-generator": "gollama cvector-generate",
	"server": "gollama run --records FILE, or -i to talk", "gguf": "gollama run --model-info",
}

func unknownCommand(name string) error {
	if strings.HasPrefix(name, "-") {
		return usagef("%s comes before a subcommand", name).withHint("write gollama run %s ...", name)
	}
	e := usagef("unknown subcommand %q", name)
	bare := strings.TrimPrefix(name, "llama-")
	if line := upstreamNames[bare]; line != "" {
		return e.withHint("that is %s", line)
	}
	var names []string
	for _, c := range commands() {
		if distance(c.name, bare) < 3 {
			return e.withHint("did you mean %s?", c.shown())
		}
		if c.parent == "" {
			names = append(names, c.name)
		}
	}
	return e.withHint("the subcommands are %s", strings.Join(names, ", "))
}

func leftOver(c *command, arg string) error {
	e := usagef("unexpected argument %q", arg)
	if _, err := parseBool(arg); err == nil && c.name == "run" {
		return e.withHint("a truth value is joined to its flag: --warmup=%s", arg)
	}
	if c.name == "run" {
		return e.withHint("a prompt is given with -p, and quoted if it has blanks")
	}
	if list := c.children(); len(list) > 0 {
		var names []string
		for _, child := range list {
			names = append(names, child.shown())
		}
		return e.withHint("the subcommands are %s", strings.Join(names, ", "))
	}
	return e
}

// options returns the settings of a subcommand before any is given.
func (c *command) options() *options {
	o := defaultOptions()
	if c.defaults != nil {
		c.defaults(o)
	}
	return o
}

// settings puts defaults, config file, environment and command line together.
func (e *env) settings(c *command, values []recorded, written []string) (*options, error) {
	o := c.options()
	onLine := argAssignments(values, written)
	var list []assignment
	if !c.noConfig {
		for _, a := range onLine {
			if a.flag.name == "config" {
				o.config = a.value
			}
		}
		if o.config == "" && c == finetuneCommand {
			if err := o.apply(onLine); err != nil {
				return nil, err
			}
			path := o.resumeConfig()
			o = c.options()
			o.config = path
		}
		o.stdin = e.stdin
		if o.config != "" {
			data, err := o.read("config", o.config)
			if err != nil {
				return nil, usagef("--config: %s", withoutCall(err))
			}
			if list, err = configAssignments(c.name, o.config, data); err != nil {
				return nil, err
			}
		}
		list = append(list, envAssignments(c.name, e.getenv)...)
	}
	return o, o.apply(append(list, onLine...))
}

// recorded is a flag that urfave/cli met, with its value.
type recorded struct {
	flag  *flagDef
	value string
}

// recorder is the cli.Generic behind every flag: it keeps the order of all
// flags, which one variable a flag would lose.
type recorder struct {
	flag *flagDef
	list *[]recorded
}

func (r recorder) Set(s string) error {
	*r.list = append(*r.list, recorded{r.flag, s})
	return nil
}

func (r recorder) String() string { return "" }

// cliFlags makes the flags of a subcommand from the table.
func cliFlags(cmd string, list *[]recorded) []cli.Flag {
	var flags []cli.Flag
	for i := range flagTable {
		f := &flagTable[i]
		if !f.takenBy(cmd) || f.reject != "" {
			continue
		}
		flags = append(flags, &cli.GenericFlag{Name: f.name, Usage: f.help, Category: f.group, Value: recorder{f, list}})
	}
	return flags
}

// parseWithCLI parses canonical arguments. Nothing here writes or exits:
// errors come back as values, help is ours.
func parseWithCLI(c *command, args []string) (values []recorded, rest []string, err error) {
	onUsage := func(_ *cli.Context, err error, _ bool) error {
		return usagef("%s", oneLine(err))
	}
	app := &cli.App{
		Name:                      "gollama",
		Usage:                     "work with GGUF models",
		HideHelp:                  true,
		HideHelpCommand:           true,
		HideVersion:               true,
		DisableSliceFlagSeparator: true,
		OnUsageError:              onUsage,
		ExitErrHandler:            func(*cli.Context, error) {},
		Writer:                    io.Discard,
		ErrWriter:                 io.Discard,
		Action: func(*cli.Context) error {
			return fmt.Errorf("no subcommand")
		},
		Commands: []*cli.Command{{
			Name:         c.name,
			Usage:        c.short,
			HideHelp:     true,
			Flags:        cliFlags(c.name, &values),
			OnUsageError: onUsage,
			Action: func(ctx *cli.Context) error {
				rest = ctx.Args().Slice()
				return nil
			},
		}},
	}
	err = app.Run(append([]string{"gollama", c.name}, args...))
	return values, rest, err
}
