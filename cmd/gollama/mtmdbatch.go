package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	items    sync.Map   // *mediaItem by *completion.Request, of those not done

	wanted        int // tokens of context that -c asks for
	encodes, hits int // pieces of media
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
	b.planMedia()
	fp, err := b.mediaFingerprint()
	if err != nil {
		return err
	}
	if !o.media.countOnly {
		if err := b.sizeContext(0); err != nil {
			return err
		}
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
		Key: fp.key, ErrorLine: b.reqs.ErrorLine, Unordered: !o.ordered, Window: max(1024, 16*o.NParallel)})
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
		c := it.tokens()
		c.ID = rawJSON(rec.ID)
		return c, nil
	})
}

// planMedia sets the context of each text and how many there are at once.
func (b *mediaBatch) planMedia() {
	b.wanted = b.o.NCtx
	b.plan()
	if o := b.o; b.total > 0 && !o.deterministic {
		o.NParallel = min(o.NParallel, b.total) // a folder of a few files needs no memory for 32
	}
}

// generate does the records.
func (b *mediaBatch) generate(ctx context.Context) error {
	o, run := b.o, b.run
	run.warnContext(b.l, o, b.wanted)
	cfg := completion.SlotConfig[*engine.Context]{
		Vocab: run.model.Vocab(), Context: run.context, Parallel: o.NParallel, Deterministic: o.deterministic,
		NoReuse: !o.media.reuse,
		NewSampler: func(p *engine.SamplingParams) (completion.SlotSampler[*engine.Context], error) {
			return engine.NewSampler(run.model, p)
		},
	}
	if run.media != nil {
		cfg.Media = run.media
	}
	if o.isSet("prefetch") {
		cfg.Ahead = max(o.media.prefetch, 1)
	}
	slots, err := completion.NewSlots(cfg)
	if err != nil {
		return err
	}
	b.parse = b.request
	defer b.discard()
	if err = b.runSlots(ctx, slots, "files", b.done); err == nil {
		b.tell(slots.Stats())
	}
	return err
}

// discard frees what was decoded in vain.
func (b *mediaBatch) discard() {
	b.items.Range(func(_, it any) bool {
		it.(*mediaItem).close()
		return true
	})
}

// request prepares a record ahead of its evaluation.
func (b *mediaBatch) request(rec *pipeline.Record) (*completion.Request, error) {
	it, err := b.prepare(rec)
	if err == nil {
		it.sidecar, err = b.sidecars.take(it.refs)
	}
	if err != nil {
		it.close()
		return nil, recordErr(err)
	}
	it.free()
	b.items.Store(&it.request, it)
	return &it.request, nil
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

// done writes a request's result.
func (b *mediaBatch) done(reply completion.Reply) error {
	v, _ := b.items.LoadAndDelete(reply.Request)
	it := v.(*mediaItem)
	defer it.close()
	rec := completion.RecordOf(reply.Request)
	if reply.Err != nil {
		return b.stream.Fail(rec, recordErr(mediaError(reply.Err)))
	}
	if err := b.sidecar(it.sidecar, reply); err != nil {
		return err
	}
	line, err := b.line(rec, it, reply)
	if err != nil {
		return b.stream.Fail(rec, err)
	}
	return b.stream.Done(rec, line)
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

// line returns the result of a record as JSON. With --no-perf nothing in it depends on when and after what it was made.
func (b *mediaBatch) line(rec *pipeline.Record, it *mediaItem, reply completion.Reply) ([]byte, error) {
	first := &reply.Results[0].Usage
	c := &it.counters
	c.KVReused = first.CachedTokens
	c.PromptMS, c.PredictMS = millis(reply.Reading), millis(reply.Writing)
	it.count()
	b.encodes += c.Encodes
	b.hits += c.EmbdHits
	reply.More = &completion.More{Index: rec.Line - 1, Media: it.listed()}
	if b.o.NoPerf && b.o.isSet("perf") {
		first.CachedTokens = 0
	} else {
		reply.More.Cache = c
	}
	return b.reqs.Line(reply)
}

// tell says what the run did.
func (b *mediaBatch) tell(st completion.SlotStats) {
	n := b.stream.Counts()
	b.l.message("info", fmt.Sprintf("%d files: %d done, %d failed%s; %d tokens read, %d reused, %d generated; %d pieces of media encoded, %d reused; %.1f s",
		n.Read, n.Read-n.Failed, n.Failed, earlier(n), st.PromptTokens, st.CachedTokens, st.GeneratedTokens, b.encodes, b.hits, time.Since(b.started).Seconds()))
	b.times(st)
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
