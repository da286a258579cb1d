package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"gollama/internal/cvector"
	"gollama/internal/engine/ggml"
	"gollama/internal/gguf"
)

// The subcommands of cvector-generate that work on files alone.

var cvectorInfoCommand = &command{
	name: "cvector-generate-info", parent: "cvector-generate", posArgs: 1000,
	synopsis: "FILE... [--json]",
	short:    "Tell what control vector files hold.",
	long: `Reads control vectors, those of llama.cpp, repeng and others among them. Writes for
each layer the length of its direction, its largest element and its cosine to the
layer below, and the file's keys; with --json an object a file.

Examples:
  gollama cvector-generate info vector.gguf
  gollama cvector-generate info vector.gguf --json
  gollama cvector-generate info vector.gguf vector.gguf -q`,
}

var cvectorAddCommand = &command{
	name: "cvector-generate-add", parent: "cvector-generate", posArgs: 1000,
	synopsis: "FILE[:WEIGHT]... -o FILE",
	short:    "Write the weighted sum of control vectors.",
	long: `Reads control vectors for one model, each with a weight after a colon (1 if there is
none; a file whose name ends so is given as ./NAME:1:WEIGHT). Adds in 64 bits and
writes the sum to -o.

Examples:
  gollama cvector-generate add vector.gguf:0.5 vector.gguf:-0.25 -o sum.gguf
  gollama cvector-generate add vector.gguf vector.gguf -o sum.gguf
  gollama cvector-generate add vector.gguf:2 -o - > sum.gguf`,
}

var cvectorScaleCommand = &command{
	name: "cvector-generate-scale", parent: "cvector-generate", posArgs: 1,
	synopsis: "FILE (--factor N | --unit) -o FILE",
	short:    "Make the directions of a control vector longer or shorter.",
	long: `Reads a control vector and writes it to -o, its directions times --factor or, with
--unit, each of length 1.

Examples:
  gollama cvector-generate scale vector.gguf --factor 0.5 -o half.gguf
  gollama cvector-generate scale vector.gguf --factor -1 -o opposite.gguf
  gollama cvector-generate scale vector.gguf --unit -o unit.gguf`,
}

var cvectorShiftCommand = &command{
	name: "cvector-generate-shift", parent: "cvector-generate", posArgs: 1,
	synopsis: "FILE [--by N] -o FILE",
	short:    "Move the directions of a control vector to other layers.",
	long: `Reads a control vector and writes it to -o with direction.K as direction.K+N. By
itself N is -1: llama-cvector-generator and others write the direction of the
output of block K-1 as direction.K, which llama.cpp then adds to the output of
block K. What would come below layer 1 is left out with a warning.

Examples:
  gollama cvector-generate shift vector.gguf -o shifted.gguf
  gollama cvector-generate shift vector.gguf --by 1 -o up.gguf
  gollama cvector-generate shift vector.gguf --by -2 -o down.gguf`,
}

func init() {
	cvectorInfoCommand.run = cvectorInfo
	cvectorAddCommand.run = cvectorAdd
	cvectorScaleCommand.run = cvectorScale
	cvectorShiftCommand.run = cvectorShift
}

// cvectorFileOptions are the settings of these subcommands.
type cvectorFileOptions struct {
	factor float32
	unit   bool
	by     int
}

const groupVector = "Control vector"

func cvectorFileFlags() []flagDef {
	type o = *options
	const add, scale, shift = " cvector-generate-add ", " cvector-generate-scale ", " cvector-generate-shift "
	return inGroup(groupVector,
		flagDef{name: "output", alias: []string{"-o"}, arg: "FILE", def: "none, must be given", help: "the control vector that is written; - is standard output", in: add + scale + shift,
			binding: fileVar(func(o o) *string { return &o.OutFile })},
		flagDef{name: "factor", arg: "N", def: "none", help: "what the directions are multiplied with", in: scale,
			binding: floatVar(func(o o) *float32 { return &o.vectorFile.factor }, -maxFloat, maxFloat).when(func(o o) bool { return o.isSet("factor") })},
		flagDef{name: "unit", help: "make each direction of length 1", in: scale, binding: boolVar(func(o o) *bool { return &o.vectorFile.unit })},
		flagDef{name: "by", arg: "N", help: "layers to move by", in: shift, binding: intVar(func(o o) *int { return &o.vectorFile.by }, -100000, 100000)},
	)
}

// vectorFileCommands are the names of these subcommands, as the flag table has them.
var vectorFileCommands = []string{" cvector-generate-info ", " cvector-generate-add ", " cvector-generate-scale ", " cvector-generate-shift "}

// sharedWithVectorFiles are the flags that they take from the others.
var sharedWithVectorFiles = []string{"quiet", "verbosity", "log-file", "log-json", "config", "print-config"}

// readVector reads a control vector; what is wrong with it is bad input.
func readVector(path string) (*cvector.Vector, error) {
	v, err := cvector.Read(path)
	switch {
	case err == nil:
		return v, nil
	case errors.Is(err, cvector.ErrVector), errors.Is(err, gguf.ErrFormat):
		return nil, &inputError{err: err}
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return nil, &inputError{err: err}
	}
	return nil, err
}

// oneVector reads the only argument.
func oneVector(args []string) (*cvector.Vector, error) {
	if len(args) == 0 {
		return nil, usagef("no control vector given").withHint("give a FILE.gguf")
	}
	return readVector(args[0])
}

// writeVector writes v to -o.
func writeVector(e *env, path string, v *cvector.Vector) error {
	if path == "-" {
		return v.Encode(e.out)
	}
	if err := v.Write(path); err != nil {
		return &writeError{fmt.Errorf("--output: %w", err)}
	}
	return nil
}

// vectorLog starts the log of one of these subcommands and checks -o.
func vectorLog(e *env, c *command, o *options, writes bool) (*logging, error) {
	if err := o.finish(c.name); err != nil {
		return nil, err
	}
	if writes && o.OutFile == "" {
		return nil, usagef("no output given").withHint("-o FILE.gguf")
	}
	return setupLogging(e, "gollama "+c.shown(), o)
}

// provenanceKeys say how a file was made.
func provenanceKeys(e *env) gguf.KVs {
	str := func(key, value string) gguf.KV { return gguf.KV{Key: key, Value: gguf.ValueOf(value)} }
	return gguf.KVs{
		str("gollama.version", version),
		str("gollama.engine", "llama.cpp v"+ggml.BuildInfo().Pin),
		str("gollama.command_line", strings.Join(append([]string{"gollama"}, e.args[1:]...), " ")),
	}
}

// made returns v with the keys of this run in place of those of an earlier one.
func made(e *env, v *cvector.Vector) *cvector.Vector {
	for _, kv := range provenanceKeys(e) {
		v.Keys = v.Keys.With(kv.Key, kv.Value)
	}
	return v
}

// vectorInfo is what info writes of a file.
type vectorInfo struct {
	Type   string              `json:"type"` // control_vector
	Path   string              `json:"path"`
	Hint   string              `json:"model_hint"`
	Count  int                 `json:"layer_count"`
	NEmbd  int                 `json:"n_embd"`
	Layers []cvector.LayerInfo `json:"layers"`
	Keys   map[string]string   `json:"keys"`
}

func cvectorInfo(_ context.Context, e *env, o *options, args []string) error {
	l, err := vectorLog(e, cvectorInfoCommand, o, false)
	if err != nil {
		return err
	}
	defer l.close()
	if len(args) == 0 {
		return usagef("no control vector given").withHint("give a FILE.gguf")
	}
	for _, path := range args {
		v, err := readVector(path)
		if err != nil {
			return err
		}
		info := vectorInfo{"control_vector", path, v.Hint, v.Count, v.NEmbd, v.Info(), map[string]string{}}
		for _, kv := range v.Keys {
			info.Keys[kv.Key] = kv.Value.String()
		}
		text := info.text(v.Keys)
		if o.json {
			b, err := json.Marshal(info)
			if err != nil {
				return err
			}
			text = string(b) + "\n"
		}
		if err := e.out.text(text); err != nil {
			return err
		}
	}
	return nil
}

func (i *vectorInfo) text(keys gguf.KVs) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d directions of %d elements, %d layers, for %q\n", i.Path, len(i.Layers), i.NEmbd, i.Count, i.Hint)
	for _, kv := range keys {
		fmt.Fprintf(&b, "%s: %s\n", kv.Key, kv.Value.String())
	}
	b.WriteString("layer       norm        max  cos to layer below\n")
	for _, l := range i.Layers {
		fmt.Fprintf(&b, "%5d %10.6g %10.6g %8.4f\n", l.Layer, l.Norm, l.Max, l.CosLow)
	}
	return b.String()
}

// parseTerm reads FILE or FILE:WEIGHT; a file of the whole name is that file.
func parseTerm(arg string) (path string, weight float32) {
	i := strings.LastIndexByte(arg, ':')
	if i <= 0 {
		return arg, 1
	}
	if _, err := os.Stat(arg); err == nil {
		return arg, 1
	}
	weight, err := parseFloat(arg[i+1:], -maxFloat, maxFloat)
	if err != nil {
		return arg, 1 // C:\vector.gguf
	}
	return arg[:i], weight
}

func cvectorAdd(_ context.Context, e *env, o *options, args []string) error {
	l, err := vectorLog(e, cvectorAddCommand, o, true)
	if err != nil {
		return err
	}
	defer l.close()
	if len(args) == 0 {
		return usagef("no control vector given").withHint("give FILE.gguf or FILE.gguf:WEIGHT")
	}
	var terms []cvector.Term
	for _, arg := range args {
		path, weight := parseTerm(arg)
		v, err := readVector(path)
		if err != nil {
			return err
		}
		terms = append(terms, cvector.Term{Vector: v, Weight: exact(weight)})
	}
	sum, err := cvector.Add(terms)
	if err != nil {
		return &inputError{err: err}
	}
	return writeVector(e, o.OutFile, made(e, sum))
}

func cvectorScale(_ context.Context, e *env, o *options, args []string) error {
	l, err := vectorLog(e, cvectorScaleCommand, o, true)
	if err != nil {
		return err
	}
	defer l.close()
	if o.vectorFile.unit == o.isSet("factor") {
		return usagef("give one of --factor and --unit")
	}
	v, err := oneVector(args)
	if err != nil {
		return err
	}
	if o.vectorFile.unit {
		v, err = v.Normalized()
	} else {
		v, err = v.Times(exact(o.vectorFile.factor))
	}
	if err != nil {
		return &inputError{err: err}
	}
	return writeVector(e, o.OutFile, made(e, v))
}

func cvectorShift(_ context.Context, e *env, o *options, args []string) error {
	l, err := vectorLog(e, cvectorShiftCommand, o, true)
	if err != nil {
		return err
	}
	defer l.close()
	v, err := oneVector(args)
	if err != nil {
		return err
	}
	if base, _ := v.Keys.Str(cvector.KeyLayerBase); base == cvector.BaseRuntime && o.vectorFile.by == -1 {
		l.warnf("%s says that its directions are where the runtime applies them: after the shift they are not", args[0])
	}
	out, lost, err := v.Shifted(o.vectorFile.by)
	if err != nil {
		return &inputError{err: err}
	}
	for _, k := range lost {
		l.warnf("direction.%d is left out: it would be direction.%d, and there is none below 1", k, k+o.vectorFile.by)
	}
	return writeVector(e, o.OutFile, made(e, out))
}
