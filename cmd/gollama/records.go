package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"gollama/internal/builtin"
	"gollama/internal/completion"
	"gollama/internal/engine"
	"gollama/internal/gguf"
	"gollama/internal/pipeline"
)

// recordsRun is one run over records.
type recordsRun struct {
	e    *env
	l    *logging
	o    *options
	file *gguf.File // the model's header

	prefix  string
	ctxSeq  int // tokens of each text's context
	in      io.ReadCloser
	out     *pipeline.Output
	stream  *pipeline.Stream
	reqs    completion.Requests
	parse   func(*pipeline.Record) (*completion.Request, error)
	working sync.Mutex // held while a record is parsed
	readErr error      // that ended the input early
	total   int        // records of the input, 0 if not known
	started time.Time

	mediaSettings *mediaSettings // of mtmd
}

// runRecords is gollama run --records.
func runRecords(ctx context.Context, e *env, l *logging, o *options) (err error) {
	r := &recordsRun{e: e, l: l, o: o, started: time.Now()}
	if r.file, err = gguf.Open(o.Model); err != nil {
		return err
	}
	defer func() { _ = r.file.Close() }()
	if o.prefixFile != "" {
		data, err := readAll(o.prefixFile, e.stdin)
		if err != nil {
			return &inputError{err: fmt.Errorf("--shared-prefix: %w", err)}
		}
		r.prefix = string(data)
	}
	r.plan()
	if err := r.open(); err != nil {
		return err
	}
	defer func() { _ = r.in.Close() }() // it was read
	if o.dryRun {
		err = r.count(ctx)
	} else {
		err = r.generate(ctx)
	}
	return r.end(ctx, err)
}

// defaultCtxSeq is the context of each text where -c does not say: the length
// that --fit, too, does not go below.
const defaultCtxSeq = 4096

// plan sets the context of each text and how many there are at once.
func (r *recordsRun) plan() {
	o := r.o
	n := o.NCtx
	if n == 0 {
		n = defaultCtxSeq
		arch, _ := r.file.Str("general.architecture")
		if train, ok := r.file.Uint(arch + ".context_length"); ok && train > 0 {
			n = min(n, int(train))
		}
	}
	r.ctxSeq = completion.CtxSeq(n)
	if o.isSet("parallel") {
		return
	}
	o.NParallel = 32
	if o.Speculative.NeedsModel() {
		o.NParallel = completion.MaxGuessTexts // for more it would read all and guess nothing
	}
}

// open opens what is read and written. The output comes last: an error before
// leaves no trace of one.
func (r *recordsRun) open() error {
	o := r.o
	shard, err := r.shard()
	if err != nil {
		return err
	}
	if r.in, err = pipeline.Open(o.recordsFile); err != nil {
		return &inputError{err: fmt.Errorf("records: %w", err)}
	}
	fp, err := r.fingerprint()
	if err != nil {
		return err
	}
	r.reqs = completion.Requests{Key: fp.key, Model: modelName(o.Model), Default: r.defaults()}
	if r.out, err = r.openOutput(fp); err != nil {
		return err
	}
	r.countRecords(shard)
	r.stream = pipeline.NewStream(pipeline.StreamConfig{
		In: pipeline.NewReader(r.in, inputName(o.recordsFile)), Out: r.out, Shard: shard, Unordered: !o.ordered,
		Window: max(1024, 16*o.NParallel), MaxErrors: o.maxErrors, Key: fp.key, ErrorLine: r.reqs.ErrorLine,
	})
	return nil
}

// modelName is what results in OpenAI's form call the model.
func modelName(path string) string {
	name := filepath.Base(builtin.Label(path))
	return name[:len(name)-len(filepath.Ext(name))]
}

// shard returns the part of the records that this process does.
func (r *recordsRun) shard() (pipeline.Shard, error) {
	n := 0
	if text := r.o.shard; text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			return pipeline.ParseShard(text)
		}
	}
	s, from, err := pipeline.EnvShard(r.e.getenv, n)
	switch {
	case err != nil && n == 0:
		r.l.warnf("%s: every record is done here; --shard N does a part", err)
		return pipeline.Shard{}, nil
	case err != nil:
		return s, usagef("--shard %d: %s: %s", n, from, err)
	case from == "" && n > 1:
		return s, usagef("--shard %d: neither SLURM_ARRAY_TASK_ID nor JOB_COMPLETION_INDEX says which part", n).withHint("--shard I/%d", n)
	case from != "" && s.N > 1:
		r.l.message("info", fmt.Sprintf("shard %s, by %s", s, from))
	}
	return s, nil
}

// openOutput opens the results' file, or standard output.
func (r *recordsRun) openOutput(fp *fingerprint) (*pipeline.Output, error) {
	path := r.o.OutFile
	if path == "" || path == "-" {
		return pipeline.WriterOutput(r.e.out), nil
	}
	if r.o.resume {
		out, err := pipeline.ResumeOutput(path, completion.ParseLine)
		var pe *fs.PathError
		switch {
		case errors.As(err, &pe): // not what is in it
			return nil, &writeError{fmt.Errorf("--output: %w", err)}
		case err != nil:
			return nil, &inputError{err: fmt.Errorf("--resume: %w", err)}
		}
		if out.Lines() == 0 {
			return out, fp.save(path)
		}
		return out, nil
	}
	out, err := pipeline.CreateOutput(path)
	switch {
	case errors.Is(err, pipeline.ErrOutputExists):
		return nil, usagef("-o %s: it exists", path).withHint("--resume goes on with it; or remove it")
	case err != nil:
		return nil, &writeError{fmt.Errorf("--output: %w", err)}
	}
	if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && !r.o.dryRun {
		if err := fp.save(path); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// countRecords finds out how many records there are, for the time that is left.
func (r *recordsRun) countRecords(shard pipeline.Shard) {
	st, err := os.Stat(r.o.recordsFile)
	if r.o.recordsFile == "-" || err != nil || !st.Mode().IsRegular() || r.l.quiet {
		return
	}
	if n, err := pipeline.CountLines(r.o.recordsFile); err == nil {
		r.total = shard.Count(n)
	}
}

// defaults is what a record asks for that says nothing.
func (r *recordsRun) defaults() completion.Request {
	o := r.o
	overflow, _ := completion.ParseOverflow(o.overflow) // the flag table knows the words
	return completion.Request{N: o.texts, Sampling: o.Sampling, Options: completion.Options{
		NPredict: o.NPredict, Stop: o.Antiprompt, Keep: o.NKeep, Overflow: overflow, NProbs: o.logprobs,
		PromptLogprobs: o.promptLogprobs, Echo: o.DisplayPrompt, Special: o.Special, ParseSpecial: o.specialInput != "literal",
	}}
}

// next gives the next record as a request.
func (r *recordsRun) next(ctx context.Context) (*completion.Request, error) {
	for {
		rec, err := r.stream.Next(ctx)
		var read *pipeline.ReadError
		if errors.As(err, &read) {
			r.readErr = err
			return nil, io.EOF // what was begun is finished
		}
		if err != nil {
			return nil, err
		}
		req, err := r.request(ctx, rec)
		if err == nil || ctx.Err() != nil {
			return req, err
		}
		if err := r.stream.Fail(rec, err); err != nil {
			return nil, err
		}
	}
}

// request parses a record, unless the run has ended: the model may be gone then.
func (r *recordsRun) request(ctx context.Context, rec *pipeline.Record) (*completion.Request, error) {
	r.working.Lock()
	defer r.working.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return r.parse(rec)
}

// settle returns when no record is parsed any more, after the context of request has ended. One that is yet to be read is not
// waited for: standard input may never give it.
func (r *recordsRun) settle() {
	r.working.Lock()
	defer r.working.Unlock()
}

// done writes a request's result.
func (r *recordsRun) done(reply completion.Reply) error {
	rec := completion.RecordOf(reply.Request)
	if reply.Err != nil {
		return r.stream.Fail(rec, reply.Err)
	}
	line, err := r.reqs.Line(reply)
	if err != nil {
		return r.stream.Fail(rec, err)
	}
	return r.stream.Done(rec, line)
}

// sizeContext sets the context to one of as many texts as fit the memory, and extra sequences.
func (r *recordsRun) sizeContext(extra int) error {
	if err := r.fitMemory(extra); err != nil {
		return err
	}
	o := r.o
	o.NCtx, o.NParallel = r.ctxSeq*(o.NParallel+extra), o.NParallel+extra
	// The batch has a token of each text, and what is left of it is for prompts.
	o.NBatch = max(o.NBatch, o.NParallel)
	o.NUBatch = max(o.NUBatch, o.NParallel)
	o.NOutputsMax = 0
	return nil
}

// generate does the records.
func (r *recordsRun) generate(ctx context.Context) error {
	o := r.o
	extra := 0
	if r.prefix != "" {
		extra = 1
	}
	wanted := o.NCtx
	if err := r.sizeContext(extra); err != nil {
		return err
	}
	s, err := loadSession(ctx, r.e, r.l, o)
	defer s.close(r.l)
	if err != nil {
		return err
	}
	s.warnContext(r.l, o, wanted)
	if r.reqs.Default.StopTokens, err = s.stopTokens(o.stopTokens); err != nil {
		return err
	}
	if s.model.Info().HasEncoder {
		return fmt.Errorf("%s: records are for models without an encoder", o.Model)
	}
	done, err := r.chat(s.model)
	if err != nil {
		return err
	}
	defer done()
	r.parse = r.reqs.Parse
	slots, err := completion.NewSlots(completion.SlotConfig[*engine.Context]{
		Vocab: s.model.Vocab(), Context: s.context, Parallel: o.NParallel - extra, Prefix: r.prefix,
		Deterministic: o.deterministic, Speculator: s.guesser(),
		NewSampler: func(p *engine.SamplingParams) (completion.SlotSampler[*engine.Context], error) {
			return engine.NewSampler(s.model, p)
		},
	})
	if err != nil {
		return err
	}
	err = r.runSlots(ctx, slots, "records", r.done)
	if err == nil || ctx.Err() != nil {
		r.summary(slots.Stats())
	}
	return err
}

// runSlots does the records in slots, and shows how far they are.
func (r *recordsRun) runSlots(ctx context.Context, slots *completion.Slots[*engine.Context], what string, done func(completion.Reply) error) error {
	defer r.settle()
	bar := r.l.progress(r.e, what, "")
	defer bar.done()
	last := time.Now()
	return slots.Run(ctx, r.next, func(reply completion.Reply) error {
		if time.Since(last) > 200*time.Millisecond {
			last = time.Now()
			bar.set(r.progress(slots.Stats()))
		}
		return done(reply)
	})
}

// chat opens the chat template of the flags or the model's, which done closes. Without one, records
// with messages are refused.
func (r *recordsRun) chat(m *engine.Model) (done func(), err error) {
	nothing := func() {}
	if r.prefix != "" {
		r.reqs.NoChat = "they do not go with --shared-prefix"
		return nothing, nil
	}
	c, done, err := openChat(r.o, m)
	if err == nil {
		r.reqs.Chat = c
		return done, nil
	}
	switch {
	case r.o.chatting() || r.o.ChatTemplate != "" || r.o.templateFile != "":
		return nothing, err
	case errors.Is(err, errNoTemplate):
		r.reqs.NoChat = errNoTemplate.Error() + ": " + errNoTemplate.hint
	default:
		r.l.warnf("messages are refused: %s", oneLine(err))
	}
	return nothing, nil
}
