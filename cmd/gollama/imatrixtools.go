package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"gollama/internal/engine/ggml"
	"gollama/internal/gguf"
	"gollama/internal/imatrix"
)

// anyNumber is how many positional arguments a subcommand takes that takes any number.
const anyNumber = 1 << 20

var imatrixMergeCommand = &command{
	name: "imatrix-merge", parent: "imatrix", posArgs: anyNumber,
	synopsis: "-o FILE [flags] FILE...",
	short:    "Add importance matrices up.",
	long: `Reads files of gollama imatrix or llama-imatrix, in GGUF or the format before it.
Writes their sum to -o: what one run over all of the data would have given,
whatever the order of the files. No model is needed. Data that was measured in
two files is an error, as are files that do not fit together.

Examples:
  gollama imatrix merge -o all.gguf part1.gguf part2.gguf
  gollama imatrix merge -o all.gguf --chunk-size 512 old.dat part1.gguf`,
}

var imatrixConvertCommand = &command{
	name: "imatrix-convert", parent: "imatrix", posArgs: 1,
	synopsis: "FILE -o FILE [flags]",
	short:    "Turn an importance matrix into the other format.",
	long: `Reads a file in GGUF or the format before it. Writes it to -o, whose name decides
the format: .dat is the one before GGUF. That has no counts of experts: what is
lost is said. It does not say how many tokens a chunk had, either, which
--chunk-size must when it is read.

Examples:
  gollama imatrix convert part1.gguf -o part1.dat
  gollama imatrix convert old.dat -o old.gguf --chunk-size 512
  gollama imatrix convert part1.gguf -o small.gguf --plain`,
}

func init() {
	imatrixMergeCommand.run = imatrixMerge
	imatrixConvertCommand.run = imatrixConvert
}

// imatrixTool checks what all subcommands of imatrix need and sets up the log.
func imatrixTool(e *env, o *options, c *command, args []string, least int, what string) (*logging, error) {
	if err := o.finish(c.name); err != nil {
		return nil, err
	}
	if len(args) < least {
		return nil, usagef("no %s given", what).withHint("gollama %s %s", c.shown(), c.synopsis)
	}
	return setupLogging(e, "gollama "+c.shown(), o)
}

// openImatrix reads a file; needChunks says that the tokens in a chunk must be known.
func openImatrix(o *options, path string, needChunks bool) (*imatrix.File, error) {
	f, err := imatrix.Open(path, o.imx.chunkSize)
	if err != nil {
		return nil, &inputError{err: err}
	}
	if needChunks && f.ChunkSize < 1 {
		return nil, &inputError{fmt.Errorf("%s: it is in the format before GGUF and does not say how many tokens a chunk had", path),
			"--chunk-size N, the -c of the run that made it"}
	}
	return f, nil
}

func imatrixMerge(ctx context.Context, e *env, o *options, args []string) error {
	l, err := imatrixTool(e, o, imatrixMergeCommand, args, 1, "files")
	if err != nil {
		return err
	}
	defer l.close()
	if err := checkImatrixOut(o, args); err != nil {
		return err
	}
	f, err := mergeImatrix(ctx, e, l, o, args)
	if err != nil {
		return canceledBy(ctx, err)
	}
	return writeImatrix(e, l, o, f)
}

// mergeImatrix adds files up. The next one is read while one is added.
func mergeImatrix(ctx context.Context, e *env, l *logging, o *options, paths []string) (*imatrix.File, error) {
	type read struct {
		f   *imatrix.File
		err error
	}
	next := make(chan read)
	done := make(chan struct{})
	defer close(done)
	go func() {
		for _, path := range paths {
			f, err := openImatrix(o, path, true)
			select {
			case next <- read{f, err}:
			case <-done:
				return
			}
		}
	}()
	bar := l.progress(e, "merging", "")
	defer bar.done()
	m := imatrix.Merger{Force: o.imx.force}
	for i, path := range paths {
		r := <-next
		if r.err != nil {
			return nil, r.err
		}
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		if err := m.Add(path, r.f); err != nil {
			return nil, mergeProblem(err)
		}
		bar.set(float64(i+1)/float64(len(paths)), fmt.Sprintf(" of %d files", len(paths)))
	}
	bar.done()
	f, err := m.Result(imatrixKeys(e))
	if err != nil {
		return nil, &inputError{err: err}
	}
	for _, w := range m.Warnings {
		l.warnf("%s", w)
	}
	return f, nil
}

// mergeProblem says what can be done about an error of a merge.
func mergeProblem(err error) error {
	if errors.Is(err, imatrix.ErrTwice) || errors.Is(err, imatrix.ErrTorn) {
		return &inputError{err, "--force merges it all the same"}
	}
	return &inputError{err: err}
}

// imatrixKeys says how a file was made.
func imatrixKeys(e *env) gguf.KVs {
	str := func(key, value string) gguf.KV { return gguf.KV{Key: key, Value: gguf.ValueOf(value)} }
	return gguf.KVs{
		str("gollama.version", version),
		str("gollama.engine", "llama.cpp v"+ggml.BuildInfo().Pin),
		str("gollama.command_line", strings.Join(append([]string{"gollama"}, e.args[1:]...), " ")),
	}
}

// legacyOut reports whether the output is to be in the format before GGUF.
func (o *options) legacyOut() bool {
	return o.imx.format == "dat" || o.imx.format == "" && strings.EqualFold(filepath.Ext(o.OutFile), ".dat")
}

// checkImatrixOut checks where a file is to go, which none of the inputs may be unless it is read whole before.
func checkImatrixOut(o *options, inputs []string) error {
	switch ext := strings.ToLower(filepath.Ext(o.OutFile)); {
	case o.OutFile == "":
		return usagef("no output given").withHint("-o FILE.gguf")
	case o.imx.format == "gguf" && ext == ".dat", o.imx.format == "dat" && ext == ".gguf":
		return usagef("-o %s and --output-format %s contradict each other", o.OutFile, o.imx.format)
	case o.OutFile == "-" && o.legacyOut():
		return usagef("-o -: the format before GGUF needs a file")
	case o.legacyOut() && o.imx.plain:
		return usagef("--plain is for GGUF")
	}
	if o.logFile != "" && sameFile(o.logFile, o.OutFile) {
		return usagef("-o and --log-file are the same file, %s", o.OutFile)
	}
	for _, in := range inputs {
		if in == "-" {
			return usagef("-: importance matrices are read from files")
		}
	}
	return nil
}

// writeImatrix writes a file in the format that is asked for, and says what is lost by it.
func writeImatrix(e *env, l *logging, o *options, f *imatrix.File) error {
	if o.OutFile == "-" {
		err := f.Stream(e.out, o.imx.plain)
		if err != nil && e.out.err == nil {
			return &inputError{err: err}
		}
		return err
	}
	if !o.legacyOut() {
		if err := f.Write(o.OutFile, o.imx.plain); err != nil {
			return &writeError{fmt.Errorf("--output: %w", err)}
		}
		return nil
	}
	empty, partial, err := f.WriteLegacy(o.OutFile)
	if err != nil {
		return &writeError{fmt.Errorf("--output: %w", err)}
	}
	if len(empty) > 0 {
		l.warnf("%d entries without a token are left out, such as %s", len(empty), empty[0])
	}
	if len(partial) > 0 {
		l.warnf("%d entries have experts that met no token, such as %s: they are written as ones, as if measured", len(partial), partial[0])
	}
	experts := 0
	for _, entry := range f.Entries {
		experts += min(entry.Experts(), 1)
	}
	if experts > 0 {
		l.warnf("the counts of experts, of %d entries, have no place in this format: merging it later would weigh them wrongly", experts)
	}
	return nil
}

func imatrixConvert(_ context.Context, e *env, o *options, args []string) error {
	l, err := imatrixTool(e, o, imatrixConvertCommand, args, 1, "file")
	if err != nil {
		return err
	}
	defer l.close()
	if err := checkImatrixOut(o, args); err != nil {
		return err
	}
	f, err := openImatrix(o, args[0], true)
	if err != nil {
		return err
	}
	if torn := f.Torn(); torn != "" {
		l.warnf("%s: %s", args[0], torn)
	}
	return writeImatrix(e, l, o, f)
}
