package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"text/template"
	"time"

	"gollama/internal/completion"
	"gollama/internal/engine"
	"gollama/internal/gguf"
	"gollama/internal/pipeline"
)

type rawJSON = json.RawMessage

// mediaBatch answers for many files or records: one goroutine reads and decodes ahead, one generates.
type mediaBatch struct {
	recordsRun
	run      *mediaRun
	template *template.Template // of the prompts; nil: the one prompt
	sidecars *sidecars
	parsing  sync.Mutex // held while a record's settings are read
	decoding sync.Mutex // held while a record is prepared ahead

	promptTokens, cached, generated, encodes, hits int
}

// runMediaBatch is gollama mtmd with --dir, --files-from or --records.
func runMediaBatch(ctx context.Context, run *mediaRun) (err error) {
	e, l, o := run.e, run.l, run.o
	b := &mediaBatch{recordsRun: recordsRun{e: e, l: l, o: o, started: time.Now()}, run: run, sidecars: newSidecars(o)}
	if b.file, err = gguf.Open(o.Model); err != nil {
		return err
	}
	defer func() { _ = b.file.Close() }()
	if err := b.readBatchPrompt(ctx); err != nil {
		return err
	}
	shard, err := b.shard()
	if err != nil {
		return err
	}
	var name string
	if b.in, name, b.total, err = o.openRecords(ctx, e, l); err != nil {
		return err
	}
	defer func() { _ = b.in.Close() }() // it was read
	b.total = shard.Count(b.total)
	fp, err := b.mediaFingerprint()
	if err != nil {
		return err
	}
	if err := run.load(ctx, !o.media.countOnly); err != nil {
		return err
	}
	b.reqs = completion.Requests{Key: fp.key, Model: modelName(o.Model), Default: run.defaults(), Chat: run.chat}
	o.dryRun = o.media.countOnly // no settings are kept beside an output of counts
	if b.out, err = b.openOutput(fp); err != nil {
		return err
	}
	b.stream = pipeline.NewStream(pipeline.StreamConfig{In: pipeline.NewReader(b.in, name), Out: b.out, Shard: shard, MaxErrors: o.maxErrors,
		Key: fp.key, ErrorLine: b.reqs.ErrorLine, Window: 1024})
	if o.media.countOnly {
		err = b.count(ctx)
	} else {
		err = b.generate(ctx)
	}
	return b.end(ctx, err)
}

// readBatchPrompt gets the prompt that files, and records without one, have.
func (b *mediaBatch) readBatchPrompt(ctx context.Context) (err error) {
	o := b.o
	switch {
	case o.media.template != "":
		b.template, err = promptTemplate(o.media.template)
		return err
	case o.promptGiven || o.PromptFile != "":
		return readPrompt(ctx, b.e, b.l, o)
	}
	return nil
}

// count is --count-only.
func (b *mediaBatch) count(ctx context.Context) error {
	bar := b.l.progress(b.e, "files", "")
	defer bar.done()
	return pipeline.Each(ctx, b.stream, runtime.GOMAXPROCS(0), func(_ context.Context, rec *pipeline.Record) (any, error) {
		it, err := b.prepare(rec)
		defer it.close()
		if err != nil {
			return nil, recordErr(err)
		}
		share, detail := b.progress(completion.SlotStats{})
		bar.set(share, detail)
		c := it.count()
		c.ID = rawJSON(rec.ID)
		return c, nil
	})
}

// ready is a record that is decoded.
type ready struct {
	rec *pipeline.Record
	it  *mediaItem
	err error
}

// generate does the records, one after the other, in their order.
func (b *mediaBatch) generate(ctx context.Context) error {
	b.run.warnContext(b.l, b.o, b.o.NCtx)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ch := make(chan ready, max(b.o.media.prefetch-1, 0))
	ended := make(chan error, 1)
	go func() {
		ended <- b.ahead(ctx, ch)
		close(ch)
	}()
	defer func() {
		stop(nil)
		b.discard(ch)
	}()
	bar := b.l.progress(b.e, "files", "")
	defer bar.done()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case r, ok := <-ch:
			if !ok {
				bar.done()
				b.tell()
				return <-ended
			}
			err := b.one(ctx, r)
			r.it.close()
			if err != nil {
				return err
			}
			bar.set(b.progress(completion.SlotStats{GeneratedTokens: b.generated}))
		}
	}
}

// discard frees what was decoded in vain, once ahead's context has ended. It waits for a record that is being decoded, since
// that uses the projector, and not for one that is yet to be read: standard input may never give it.
func (b *mediaBatch) discard(ch <-chan ready) {
	b.decoding.Lock()
	defer b.decoding.Unlock()
	for {
		select {
		case r, ok := <-ch:
			if !ok {
				return
			}
			r.it.close()
		default:
			return
		}
	}
}

// ahead reads records and decodes their media until there are no more. An error of reading ends the input; what was begun
// is finished.
func (b *mediaBatch) ahead(ctx context.Context, ch chan<- ready) error {
	for {
		rec, err := b.stream.Next(ctx)
		var read *pipeline.ReadError
		if errors.As(err, &read) {
			b.readErr = err
			return nil
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		b.decodeAhead(ctx, rec, ch)
	}
}

// decodeAhead prepares a record and hands it over.
func (b *mediaBatch) decodeAhead(ctx context.Context, rec *pipeline.Record, ch chan<- ready) {
	b.decoding.Lock()
	defer b.decoding.Unlock()
	if ctx.Err() != nil {
		return
	}
	it, err := b.prepare(rec)
	select {
	case ch <- ready{rec, it, err}:
	case <-ctx.Done():
		it.close()
	}
}

// prepare makes tokens of a record. What it returns is closed by the caller, also on an error.
func (b *mediaBatch) prepare(rec *pipeline.Record) (*mediaItem, error) {
	it := &mediaItem{run: b.run}
	rest, refs, err := takeMedia(rec, b.run.marker)
	if err != nil {
		return it, err
	}
	it.refs = refs
	if err := b.ask(rest, refs); err != nil {
		return it, err
	}
	if err := it.open(); err != nil {
		return it, err
	}
	if err := it.decode(); err != nil {
		return it, err
	}
	b.parsing.Lock() // the requests keep the grammars they have seen
	defer b.parsing.Unlock()
	b.reqs.Chat = it.chat()
	req, err := b.reqs.Parse(rest)
	if err == nil {
		it.request = *req
	}
	return it, err
}

// ask makes a message of a record's media and its prompt, or the run's, if it has no messages of its own.
func (b *mediaBatch) ask(rec *pipeline.Record, refs []mediaRef) error {
	for _, name := range []string{"messages", "custom_id", "body"} {
		if _, ok := rec.Fields[name]; ok {
			return nil
		}
	}
	text, err := b.promptOf(rec, refs)
	if err != nil {
		return err
	}
	m, err := mediaMessage(text, b.o.media.marker, b.run.marker, len(refs))
	if err != nil {
		return badMedia("prompt", "%s", err)
	}
	delete(rec.Fields, "prompt")
	rec.Fields["messages"], err = json.Marshal([]engine.ChatMessage{m})
	return err
}

// promptOf returns the text that goes with a record's media.
func (b *mediaBatch) promptOf(rec *pipeline.Record, refs []mediaRef) (string, error) {
	if raw, ok := rec.Fields["prompt"]; ok && string(raw) != "null" {
		text, err := pipeline.Text(raw)
		if err != nil {
			return "", badMedia("prompt", "%s", err)
		}
		return text, nil
	}
	if b.template != nil {
		var text strings.Builder
		if err := b.template.Execute(&text, newPromptFields(refs[0].path, rec.Line-1)); err != nil {
			return "", badMedia("--prompt-template", "%s", templateFault(err))
		}
		return text.String(), nil
	}
	if !b.o.promptGiven && b.o.PromptFile == "" {
		return "", badMedia("prompt", "there is neither a prompt nor messages, and no -p")
	}
	return b.o.Prompt, nil
}

// recordErr makes an error of a medium one that has a code.
func recordErr(err error) error {
	var rec *pipeline.RecordError
	var long *completion.PromptTooLongError
	if errors.As(err, &rec) || errors.As(err, &long) {
		return err
	}
	var in *inputError
	var usage *usageError
	if errors.As(err, &in) || errors.As(err, &usage) {
		return &pipeline.RecordError{Code: codeMedia, Msg: oneLine(err)}
	}
	return err
}

// codeMedia is the code of a record whose medium cannot be used.
const codeMedia = "invalid_media"

// one generates a record's text and writes its result. The error is one that ends the run.
func (b *mediaBatch) one(ctx context.Context, r ready) error {
	fail := func(err error) error { return b.stream.Fail(r.rec, recordErr(err)) }
	if r.err != nil {
		return fail(r.err)
	}
	path, err := b.sidecars.take(r.it.refs)
	if err != nil {
		return fail(err)
	}
	reply := completion.Reply{Request: &r.it.request}
	for k := range max(r.it.request.N, 1) {
		p := r.it.request.Sampling
		p.Seed = completion.SampleSeed(p.Seed, r.it.request.ID, k)
		res, err := r.it.generate(ctx, &p, nil)
		switch {
		case err != nil && fatal(err):
			return err
		case err != nil:
			return fail(err)
		case res.FinishReason == completion.FinishCancelled:
			return context.Cause(ctx)
		}
		b.generated += res.Usage.CompletionTokens
		reply.Results = append(reply.Results, res)
	}
	if err := b.sidecar(path, reply); err != nil {
		return err
	}
	line, err := b.line(r, reply)
	if err != nil {
		return fail(err)
	}
	return b.stream.Done(r.rec, line)
}

// sidecar writes a text beside its medium; an answer that does not have its template's form, as it is.
func (b *mediaBatch) sidecar(path string, reply completion.Reply) error {
	if path == "" {
		return nil
	}
	text, err := b.reqs.Text(reply)
	if err != nil {
		text = reply.Results[0].Text
	}
	return writeSidecar(path, text)
}

// fatal tells errors that the next record would meet too from those of one record.
func fatal(err error) bool {
	return errors.Is(err, engine.ErrClosed)
}

// line returns the result of a record as JSON. With --no-perf nothing in it depends on when and after what it was made.
func (b *mediaBatch) line(r ready, reply completion.Reply) ([]byte, error) {
	first := &reply.Results[0].Usage
	b.promptTokens += first.PromptTokens
	b.cached += first.CachedTokens
	b.encodes += r.it.counters.Encodes
	b.hits += r.it.counters.EmbdHits
	reply.More = &completion.More{Index: r.rec.Line - 1, Media: r.it.listed()}
	if b.o.NoPerf && b.o.isSet("perf") {
		first.CachedTokens = 0
	} else {
		reply.More.Cache = &r.it.counters
	}
	return b.reqs.Line(reply)
}

// tell says what the run did.
func (b *mediaBatch) tell() {
	n := b.stream.Counts()
	b.l.message("info", fmt.Sprintf("%d files: %d done, %d failed, %d of them were there; %d tokens read, %d reused, %d generated; %d pieces of media encoded, %d reused; %.1f s",
		n.Read, n.Read-n.Failed, n.Failed, n.Skipped, b.promptTokens, b.cached, b.generated, b.encodes, b.hits, time.Since(b.started).Seconds()))
}

// mediaSettings are the settings of mtmd that change results.
type mediaSettings struct {
	Projector string `json:"projector,omitempty"` // sum of its file
	MinTokens int    `json:"image_min_tokens"`
	MaxTokens int    `json:"image_max_tokens"`
	Batch     int    `json:"batch_max_tokens"`
	EXIF      bool   `json:"exif"`
	Marker    string `json:"marker,omitempty"`
	Prompt    string `json:"prompt,omitempty"`
	Template  string `json:"prompt_template,omitempty"`
}

// mediaFingerprint stands for all that a result depends on besides its record and its files' content.
func (b *mediaBatch) mediaFingerprint() (*fingerprint, error) {
	o := b.o
	b.ctxSeq = o.NCtx
	s := &mediaSettings{MinTokens: o.ImageMinTokens, MaxTokens: o.ImageMaxTokens, Batch: o.MTMDBatchMaxTokens, EXIF: o.media.exif, Marker: o.media.marker,
		Prompt: o.Prompt, Template: o.media.template}
	if o.MMProj != "" {
		var err error
		if s.Projector, err = sampleSum(o.MMProj); err != nil {
			return nil, err
		}
	}
	b.mediaSettings = s
	fp, err := b.fingerprint()
	if err == nil {
		fp.Type = "mtmd"
	}
	return fp, err
}
