package main

import (
	"errors"
	"io"
	"runtime"
	"strings"

	"gollama/internal/completion"
	"gollama/internal/engine"
)

// options holds all settings of a subcommand: the engine's and the program's
// own.
type options struct {
	engine.Params

	promptGiven     bool // -p was given, empty or not
	stopTokens      []string
	overflow        string // error, shift or truncate
	logprobs        int    // alternatives a token; 0 is off
	promptLogprobs  bool
	format          string // text, json or jsonl
	requireComplete bool
	tok             tokenizeOptions
	media           mediaOptions
	grammarFile     string
	schemaFile      string

	scoreOptions
	sessionOptions
	chatOptions
	conversation *completion.Conversation // nil: the prompt is completed as it stands

	rpc rpcOptions
	recordsOptions

	quiet         bool
	logFile       string
	logJSON       bool
	logColors     string
	logPrefix     bool
	logTimestamps bool

	export exportOptions
	tune   tuneOptions
	imx    imatrixOptions

	vectorFile cvectorFileOptions
	vector     cvectorOptions

	builtinUnasked bool // the built-in model is used as no other was given

	config      string
	printConfig bool
	modelInfo   bool
	json        bool // version, devices

	stdin    io.Reader         // what - stands for where a setting is a file
	stdinFor string            // the flag that reads it, "" for none
	given    map[string]level  // flags that were set, by long name
	places   map[string]string // where they were set, for messages
	warnings []string          // to be said once logging is set up
}

// level is where a value came from; a higher one replaces a lower one.
type level int

const (
	levelDefault level = iota
	levelConfig
	levelEnv
	levelArgs
)

func defaultOptions() *options {
	p := engine.DefaultParams()
	return &options{
		Params: p, overflow: "error", format: "text", recordsOptions: recordsOptions{ordered: true, maxErrors: -1, texts: 1},
		scoreOptions: scoreOptions{chunks: -1}, chatOptions: chatOptions{reasoningFormat: "auto", reasoningEffort: "default"},
		rpc: rpcOptions{host: "127.0.0.1", port: 50052}, logColors: "auto", given: map[string]level{}, places: map[string]string{}, stdin: strings.NewReader(""),
		tok: defaultTokenize(), media: mediaDefaults(), export: exportDefaults(), tune: tuneDefaults(),
		imx: imatrixDefaults(), vectorFile: cvectorFileOptions{by: -1}, vector: cvectorDefaults(),
	}
}

func (o *options) isSet(name string) bool { return o.given[name] > levelDefault }

// assignment is one value for one flag, with the place it came from for
// messages.
type assignment struct {
	flag  *flagDef
	value string
	level level
	where string
}

// apply sets values in order. Lists, and flags that stand for one another,
// drop what a lower level gave them.
func (o *options) apply(list []assignment) error {
	shared := map[string]level{}
	for _, a := range list {
		key := a.flag.shareKey()
		if a.level > shared[key] {
			shared[key] = a.level
			for i := range flagTable {
				f := &flagTable[i]
				if f.shareKey() != key {
					continue
				}
				delete(o.given, f.name)
				if f.reset != nil {
					f.reset(o)
				}
			}
		}
		if a.flag.reject != "" && a.level == levelEnv {
			o.warnings = append(o.warnings, a.where+" is set, but has no effect here: "+a.flag.reject)
			continue
		}
		if a.flag.reject != "" {
			return usagef("%s: not supported", a.where).withHint("%s", a.flag.reject)
		}
		if strings.ContainsRune(a.value, 0) && a.flag.name != "prompt" {
			return usagef("%s: the value holds a zero byte", a.where)
		}
		if err := a.flag.set(o, a.value); err != nil {
			var u *usageError
			if errors.As(err, &u) && a.level == levelEnv {
				o.warnings = append(o.warnings, a.where+" is set, but has no effect here: "+u.hint)
				continue
			}
			if errors.As(err, &u) {
				return usagef("%s: %s", a.where, u.msg).withHint("%s", u.hint)
			}
			return usagef("%s: %s", a.where, err)
		}
		o.given[a.flag.name], o.places[a.flag.name] = a.level, a.where
	}
	return nil
}

// place names a flag as the user gave it, in the environment or in a file.
func (o *options) place(name string) string {
	if where := o.places[name]; o.isSet(name) && where != "" {
		return where
	}
	return "--" + name
}

// read reads the file that a flag names; - is standard input, for one flag.
func (o *options) read(flag, path string) ([]byte, error) {
	if path == "-" {
		if o.stdinFor != "" {
			return nil, usagef("--%s and --%s both read standard input", o.stdinFor, flag)
		}
		o.stdinFor = flag
	}
	return readAll(path, o.stdin)
}

// sleepWhenCrowded has idle threads sleep at once where there are more of them than CPUs, unless --poll says otherwise: those
// that poll for work take the CPUs from those that have some. Twenty threads on two CPUs are five times as fast for it.
func (o *options) sleepWhenCrowded() {
	b, m := &o.CPUParamsBatch, &o.CPUParams
	if max(m.NThreads, b.NThreads) <= runtime.NumCPU() || o.isSet("poll") {
		return
	}
	m.Poll = 0
	if !o.isSet("poll-batch") {
		b.Poll = 0
	}
}

// finish checks what single values cannot show and reads the files that flags
// name. After it, nothing about the settings can be wrong but what only the
// model can tell.
func (o *options) finish(cmd string) error {
	b, m := &o.CPUParamsBatch, &o.CPUParams
	for name, inherit := range map[string]func(){
		"threads-batch":    func() { b.NThreads = m.NThreads },
		"cpu-strict-batch": func() { b.StrictCPU = m.StrictCPU },
		"prio-batch":       func() { b.Priority = m.Priority },
		"poll-batch":       func() { b.Poll = m.Poll },
	} {
		if !o.isSet(name) {
			inherit()
		}
	}
	if !o.isSet("cpu-mask-batch") && !o.isSet("cpu-range-batch") {
		b.CPUMask = m.CPUMask
	}
	o.sleepWhenCrowded()
	switch cmd {
	case "run":
		return o.finishRun()
	case "tokenize":
		return o.finishTokenize()
	case "imatrix":
		return o.finishImatrix()
	case "mtmd":
		return o.finishMTMD()
	}
	return nil
}

func (o *options) finishRun() error {
	if err := o.readSystem(); err != nil {
		return err
	}
	if err := o.finishChat(); err != nil {
		return err
	}
	if err := o.finishRecords(); err != nil {
		return err
	}
	if o.isSet("prompt") && o.isSet("file") {
		return usagef("-p and -f both give a prompt: give one of them")
	}
	if o.Escape && o.isSet("file") && o.given["escape"] == levelArgs {
		return usagef("-e works on -p only; the bytes of -f are used as they are")
	}
	text := o.format == "text" && o.recordsFile == ""
	if o.isSet("prompt-logprobs") && o.promptLogprobs && text {
		return usagef("--prompt-logprobs needs a format that can show them").withHint("add --format json")
	}
	if o.logprobs > 0 && text {
		return usagef("--logprobs needs a format that can show them").withHint("add --format json")
	}
	o.CtxShift = o.overflow == "shift"
	o.warnNoEffect()
	o.Sampling.NProbs = o.logprobs
	if err := o.finishGrammar(); err != nil {
		return err
	}
	if err := o.finishScore(); err != nil {
		return err
	}
	if err := o.finishSpec(); err != nil {
		return err
	}
	if o.NUBatch > o.NBatch && o.isSet("ubatch-size") && o.isSet("batch-size") {
		return usagef("-ub %d is larger than -b %d", o.NUBatch, o.NBatch)
	}
	if err := o.Params.Validate(); err != nil {
		return usagef("%s", oneLine(err))
	}
	return nil
}

// finishGrammar reads and checks grammar and schema, so that a wrong one never
// leaves the output unconstrained.
func (o *options) finishGrammar() error {
	var given []string
	for _, name := range []string{"grammar", "grammar-file", "json-schema", "json-schema-file"} {
		if o.isSet(name) {
			given = append(given, "--"+name)
		}
	}
	if len(given) > 1 {
		return usagef("%s: give one of them", strings.Join(given, " and "))
	}
	s := &o.Sampling
	for _, f := range []struct {
		flag, path string
		to         *string
	}{{"grammar-file", o.grammarFile, &s.Grammar}, {"json-schema-file", o.schemaFile, &s.JSONSchema}} {
		if f.path == "" {
			continue
		}
		data, err := o.read(f.flag, f.path)
		var usage *usageError
		switch {
		case errors.As(err, &usage):
			return err
		case err != nil:
			return &inputError{err: err}
		}
		*f.to = string(data)
	}
	for _, path := range []string{o.PromptFile, o.recordsFile, o.prefixFile} {
		if path == "-" && o.stdinFor != "" {
			return usagef("--%s reads standard input, and so does what - is given for besides", o.stdinFor)
		}
	}
	switch {
	case o.isSet("grammar"), o.isSet("grammar-file"):
		if err := engine.CheckGrammar(s.Grammar); err != nil && !errors.Is(err, engine.ErrNoCgo) {
			return usagef("%s: %s", given[0], oneLine(err))
		}
	case o.isSet("json-schema"), o.isSet("json-schema-file"):
		grammar, err := engine.SchemaToGrammar(s.JSONSchema)
		if err == nil {
			err = engine.CheckGrammar(grammar)
		}
		if err != nil && !errors.Is(err, engine.ErrNoCgo) {
			return usagef("%s: %s", given[0], oneLine(err))
		}
	}
	return nil
}

// structured says whether the output follows a grammar.
func (o *options) structured() bool { return o.Sampling.Grammar != "" || o.Sampling.JSONSchema != "" }
