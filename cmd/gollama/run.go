package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"

	"gollama/internal/builtin"
	"gollama/internal/completion"
	"gollama/internal/engine"
	"gollama/internal/engine/ggml"
	"gollama/internal/gguf"
)

var runCommand = &command{
	name:     "run",
	synopsis: "[-m FILE] [flags]",
	short:    "Turn a prompt into text with a GGUF model.",
	long: `Reads a model and one prompt: from -p, from -f FILE, or from standard input when
neither is given and it is no terminal. The prompt's bytes are used as they are.
Writes the text that follows, and nothing else, to standard output. Messages go
to standard error. Without -m, a small model that is built in tells a story.

Examples:
  gollama run -p "Once upon a time"
  gollama run -m model.gguf -p "Once upon a time" -n 32
  gollama run -m model.gguf -f prompt.txt --temp 0 --format json -o answer.json
  echo "Once" | gollama run -m model.gguf -j '{"type":"boolean"}'
  gollama run -m model.gguf --score -f prompt.txt --format json
  gollama run -m model.gguf --score -p "Once upon a" --choice " time" --choice " tree"
  gollama run -m model.gguf -cnv --chat-template chatml -p "Hello" -n 32
  gollama run -m model.gguf --model-info
  gollama run -m model.gguf --records prompts.jsonl -n 32 -o answers.jsonl

With --records FILE there are many prompts: each line of FILE is a JSON object with
a prompt or messages, and settings of its own ({"id":"a","prompt":"Once","n":2}), and
gives a line of JSON. OpenAI's batch form is taken too. Status 3 says that the work
is done but for records that failed, which have an error in their line.

A conversation begins with -cnv, -sys or --messages FILE: the prompt is a message of
the user, written in the model's chat template, and the answer is what the assistant
says; with --json, its reasoning and tool calls stand apart. -i talks at the terminal.

Flags have the names, defaults and environment variables of llama-completion.
Differences: the prompt is not echoed (--echo), escapes are not processed (-e),
stop texts are not written, and only warnings are logged (-lv 2).`,
}

func init() { runCommand.run = run }

// run is the whole of gollama run once the settings are right.
func run(ctx context.Context, e *env, o *options, _ []string) (err error) {
	if err := o.finish("run"); err != nil {
		return err
	}
	if o.modelInfo {
		return showModelInfo(e, o)
	}
	if err := preflight(o); err != nil {
		return err
	}
	l, err := setupLogging(e, "gollama run", o)
	if err != nil {
		return err
	}
	defer l.close()
	if o.recordsFile != "" {
		warnMachine(l, o)
		return runRecords(ctx, e, l, o)
	}
	if err := readInput(ctx, e, l, o); err != nil {
		return err
	}
	warnMachine(l, o)
	if o.interactive {
		return runInteractive(ctx, e, l, o)
	}
	dst, err := openResult(e, o)
	if err != nil {
		return err
	}
	defer dst.abort()
	if o.score {
		return runScore(ctx, e, l, o, dst)
	}
	kept, err := openSession(o)
	if err != nil {
		return err
	}
	s, err := loadSession(ctx, e, l, o)
	defer s.close(l)
	if err != nil {
		return canceledBy(ctx, err)
	}
	s.warnContext(l, o, o.NCtx)
	res, err := s.generate(ctx, e, l, o, dst, kept)
	if err != nil {
		return canceledBy(ctx, err)
	}
	if res.FinishReason == completion.FinishCancelled {
		return dst.keep(l, context.Cause(ctx))
	}
	if err := checkComplete(o, res); err != nil {
		return dst.keep(l, err)
	}
	return dst.commit()
}

// preflight checks what needs no model to be loaded.
func preflight(o *options) error {
	for _, check := range []func(*options) error{checkDevices, checkTokens, checkOverwrite, checkTemplate} {
		if err := check(o); err != nil {
			return err
		}
	}
	return nil
}

// canceledBy returns the signal that ended the work as the error, if one did.
func canceledBy(ctx context.Context, err error) error {
	if errors.Is(err, engine.ErrCanceled) || errors.Is(err, engine.ErrAborted) || errors.Is(err, context.Canceled) {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
	}
	return err
}

// readInput reads the prompt, or the conversation.
func readInput(ctx context.Context, e *env, l *logging, o *options) (err error) {
	if !o.chatting() {
		return readPrompt(ctx, e, l, o)
	}
	o.conversation, err = readConversation(ctx, e, l, o)
	return err
}

// readPrompt gets the prompt's bytes into o.Prompt.
func readPrompt(ctx context.Context, e *env, l *logging, o *options) error {
	if o.promptGiven {
		if o.Escape {
			o.Prompt = unescape(o.Prompt)
		}
		return nil
	}
	path := o.PromptFile
	if path == "" {
		if o.stdinFor != "" {
			return usagef("no prompt given, and --%s reads standard input", o.stdinFor).withHint("-p TEXT or -f FILE")
		}
		if term.IsTerminal(int(e.stdin.Fd())) {
			return usagef("no prompt given").withHint(`-p TEXT, -f FILE, or text on standard input; -p "" for none`)
		}
		path = "-"
	}
	data, err := readWaiting(ctx, e, l, path, "the prompt")
	if err != nil && ctx.Err() == nil {
		err = &inputError{err: fmt.Errorf("prompt: %w", err)}
	}
	if err == nil && len(data) == 0 {
		err = &inputError{err: fmt.Errorf("the prompt is empty: %s holds nothing", inputName(path)), hint: `-p "" generates from an empty prompt`}
	}
	o.Prompt = string(data)
	return err
}

// readWaiting reads all of a file or standard input, says what it waits for if that takes long, and
// returns the cause of ctx when that is cancelled.
func readWaiting(ctx context.Context, e *env, l *logging, path, what string) ([]byte, error) {
	type read struct {
		data []byte
		err  error
	}
	ch := make(chan read, 1)
	go func() {
		data, err := readAll(path, e.stdin)
		ch <- read{data, err}
	}()
	say := time.After(3 * time.Second)
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-say:
			l.message("info", "reading "+what+" from "+inputName(path))
		case r := <-ch:
			return r.data, r.err
		}
	}
}

func inputName(path string) string {
	if path == "-" {
		return "standard input"
	}
	return path
}

// checkTokens compares the token ids that were given with the vocabulary's
// size, from the file's header alone. A file that cannot be read is left to
// the engine, which says more.
func checkTokens(o *options) error {
	type use struct {
		where string
		id    engine.Token
	}
	var uses []use
	for _, b := range o.Sampling.LogitBias {
		uses = append(uses, use{"--logit-bias", b.Token})
	}
	for _, t := range o.stopTokens {
		if id, err := strconv.ParseInt(t, 10, 32); err == nil {
			uses = append(uses, use{"--stop-token", engine.Token(id)})
		}
	}
	if len(uses) == 0 {
		return nil
	}
	f, err := gguf.Open(o.Model)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	v, ok := f.KVs.Get("tokenizer.ggml.tokens")
	if !ok {
		return nil
	}
	for _, u := range uses {
		if int(u.id) >= v.Len() {
			return usagef("%s: token %d is not in the vocabulary of %s, which has %d", u.where, u.id, o.Model, v.Len())
		}
	}
	return nil
}

// checkDevices compares device names with what there is; remote ones are
// known only later.
func checkDevices(o *options) error {
	if len(o.RPCServers) > 0 || len(o.Devices) == 0 || slices.Equal(o.Devices, []string{"none"}) {
		return nil
	}
	var names []string
	for _, d := range ggml.Devices() {
		if d.Type != "cpu" {
			names = append(names, d.Name)
		}
	}
	for _, d := range o.Devices {
		if !slices.Contains(names, d) {
			e := usagef("%s: unknown device %q", o.place("device"), d)
			if len(names) == 0 {
				return e.withHint("there is no device besides the CPU: leave --device out, or give none")
			}
			return e.withHint("the devices are %s", strings.Join(names, ", "))
		}
	}
	return nil
}

// warnMachine says what about this machine makes settings useless or the run
// slow.
func warnMachine(l *logging, o *options) {
	if runtime.GOARCH == "amd64" && !slices.Contains(ggml.CPUFeatures(), "AVX2") {
		l.warnf("this build uses no AVX2: it will be slow")
	}
	// The threads wait for each other at every operation of a graph: one that has no CPU holds up all.
	if n, cpus := max(o.CPUParams.NThreads, o.CPUParamsBatch.NThreads), runtime.NumCPU(); n > cpus {
		l.warnf("%d threads on %d CPUs hold each other up: -t %d is faster", n, cpus, cpus)
	}
	gpu := len(o.RPCServers) > 0
	for _, d := range ggml.Devices() {
		gpu = gpu || d.Type != "cpu"
	}
	if gpu {
		return
	}
	def := engine.DefaultParams()
	for _, f := range []struct {
		name string
		used bool
	}{
		{"n-gpu-layers", o.NGPULayers != 0 && o.NGPULayers != def.NGPULayers},
		{"split-mode", o.SplitMode != def.SplitMode},
		{"tensor-split", len(o.TensorSplit) > 0},
		{"main-gpu", o.MainGPU != def.MainGPU},
	} {
		if f.used {
			l.warnf("--%s has no effect: there is no device besides the CPU", f.name)
		}
	}
}

// session is a loaded model, ready to generate.
type session struct {
	model   *engine.Model
	context *engine.Context
	sampler *engine.Sampler
	draft   *engine.Model      // nil without
	spec    *engine.Speculator // nil if no tokens are guessed
	loadMS  float64
}

// loadSession loads the model and makes a context and a sampler. What it
// returns is closed by the caller, also on an error.
func loadSession(ctx context.Context, e *env, l *logging, o *options) (s *session, err error) {
	s = &session{}
	bar := l.progress(e, "loading", "")
	defer bar.done()
	p := &o.Params
	p.LoadProgressCallback = func(share float32) bool {
		bar.set(float64(share), "")
		return ctx.Err() == nil
	}
	begin := time.Now()
	if s.model, err = engine.LoadModel(ctx, p); err != nil {
		return s, err
	}
	if s.context, err = engine.NewContext(s.model, p); err != nil {
		return s, err
	}
	if err := s.speculate(ctx, l, p); err != nil {
		return s, err
	}
	if s.sampler, err = engine.NewSampler(s.model, &p.Sampling); err != nil {
		return s, err
	}
	s.loadMS = float64(time.Since(begin).Microseconds()) / 1000
	bar.done()
	return s, nil
}

// warnContext says that a context of n tokens, 0 being the model's own, is longer than the model knows.
func (s *session) warnContext(l *logging, o *options, n int) {
	if train := s.model.Info().NCtxTrain; n > train && train > 0 && o.YarnOrigCtx == 0 && o.RopeFreqScale == 0 {
		l.warnf("-c %d is more than the %d tokens that the model was trained for", n, train)
	}
}

func (s *session) close(l *logging) {
	for _, part := range []io.Closer{s.sampler, s.spec, s.context, s.draft, s.model} { // all may be nil
		if err := part.Close(); err != nil {
			l.warnf("%s", err)
		}
	}
}

// stopTokens turns ids and texts into tokens.
func (s *session) stopTokens(texts []string) ([]engine.Token, error) {
	v := s.model.Vocab()
	var list []engine.Token
	for _, text := range texts {
		if id, err := strconv.ParseInt(text, 10, 32); err == nil {
			if int(id) >= v.NTokens() {
				return nil, usagef("--stop-token: token %d is not in the vocabulary, which has %d", id, v.NTokens())
			}
			list = append(list, engine.Token(id))
			continue
		}
		tokens, err := v.Tokenize(text, false, true)
		if err != nil {
			return nil, err
		}
		if len(tokens) != 1 {
			return nil, usagef("--stop-token: %q is %d tokens, want one", text, len(tokens)).withHint("--stop ends at any text")
		}
		list = append(list, tokens[0])
	}
	return list, nil
}

// options are those of a completion.
func (s *session) options(o *options) (opt completion.Options, err error) {
	opt = completion.Options{
		Prompt: o.Prompt, NPredict: o.NPredict, Stop: o.Antiprompt,
		Keep: o.NKeep, NProbs: o.logprobs, PromptLogprobs: o.promptLogprobs,
		Echo: o.DisplayPrompt, Special: o.Special, ParseSpecial: o.specialInput != "literal", Grammar: o.structured(),
	}
	if opt.StopTokens, err = s.stopTokens(o.stopTokens); err != nil {
		return opt, err
	}
	if opt.Overflow, err = completion.ParseOverflow(o.overflow); err != nil {
		return opt, usagef("--on-overflow: %s", err)
	}
	return opt, nil
}

// engine is what a completion runs on.
func (s *session) engine() completion.Engine[*engine.Context] {
	info := s.model.Info()
	return completion.Engine[*engine.Context]{
		Vocab: s.model.Vocab(), Context: s.context, Sampler: s.sampler, LoadMS: s.loadMS,
		Model:      completion.Model{Path: builtin.Label(info.Path), Arch: info.Arch, Size: info.Size},
		Speculator: s.guesser(), HasEncoder: info.HasEncoder, DecoderStart: info.DecoderStart,
	}
}

func (s *session) generate(ctx context.Context, e *env, l *logging, o *options, dst *result, kept *sessionFile) (completion.Result, error) {
	var none completion.Result
	opt, err := s.options(o)
	if err != nil {
		return none, err
	}
	turn, err := s.converse(l, o, &opt, dst.delta)
	if err != nil {
		return none, err
	}
	defer turn.close()
	if o.VerbosePrompt {
		if err := s.listPrompt(l, opt); err != nil {
			return none, err
		}
	}
	bar := l.progress(e, "reading the prompt", "tokens")
	defer bar.done()
	opt.Progress = func(done, total int) {
		if done >= total {
			bar.done()
			return
		}
		bar.set(float64(done)/float64(total), fmt.Sprintf(" of %d tokens", total))
	}
	if kept != nil {
		if err := kept.attach(e, l, o, s, &opt); err != nil {
			return none, err
		}
	}
	res, err := completion.Generate(ctx, s.engine(), opt, turn.delta)
	bar.done()
	if err == nil {
		res, err = turn.end(e, res)
	}
	if err != nil {
		var tooLong *completion.PromptTooLongError
		if !errors.As(err, &tooLong) && !errors.Is(err, errBrokenPipe) && dst.out.n > 0 {
			_ = dst.end(res) // the text so far; err says more than a second error would
		}
		if errors.Is(err, completion.ErrEmptyPrompt) {
			err = &inputError{err: err, hint: "this model adds no first token of its own: give some text"}
		}
		return res, err
	}
	if kept != nil && !kept.done {
		l.warnf("--session %s is not written: the context was shifted, or the prompt not read to its end", kept.path)
	}
	l.log.Info(fmt.Sprintf("seed %d, context %d, prompt %d tokens (%.1f a second), answer %d tokens (%.1f a second)%s, ended by %s",
		res.Seed, res.NCtx, res.Usage.PromptTokens, res.Timings.PromptPerSecond,
		res.Usage.CompletionTokens, res.Timings.PredictedPerSecond, guessed(res.Timings.DraftN, res.Timings.DraftNAccepted), res.FinishReason))
	return res, dst.end(res)
}

// listPrompt writes the prompt's tokens to the log.
func (s *session) listPrompt(l *logging, opt completion.Options) error {
	v := s.model.Vocab()
	tokens := opt.Tokens
	if tokens == nil {
		var err error
		if tokens, err = v.Tokenize(opt.Prompt, true, opt.ParseSpecial); err != nil {
			return err
		}
	}
	l.message("info", fmt.Sprintf("the prompt has %d tokens", len(tokens)))
	for _, t := range tokens {
		l.message("info", fmt.Sprintf("%6d %q", t, v.Piece(t, true)))
	}
	return nil
}

// checkComplete tells output that was cut from output that is whole.
func checkComplete(o *options, res completion.Result) error {
	if res.FinishReason != completion.FinishLength && res.FinishReason != completion.FinishContext {
		return nil
	}
	why := fmt.Sprintf("%d tokens were generated, the limit of -n", res.Usage.CompletionTokens)
	if res.FinishReason == completion.FinishContext {
		why = fmt.Sprintf("the context of %d tokens is full", res.NCtx)
	}
	switch {
	case o.structured():
		return &incompleteError{"the structured output is incomplete: " + why}
	case o.requireComplete:
		return &incompleteError{"the output is incomplete: " + why}
	}
	return nil
}
