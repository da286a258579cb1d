package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"gollama/internal/completion"
	"gollama/internal/engine"
	"gollama/internal/media"
	"gollama/internal/pipeline"
)

// mediaItem is one prompt with media, on its way from names to tokens.
type mediaItem struct {
	run     *mediaRun
	refs    []mediaRef
	request completion.Request

	files    []*media.File
	bitmaps  []*engine.Bitmap
	chunks   *engine.MediaChunks
	answer   *completion.ChatAnswer
	reports  []mediaReport
	counters mediaCounters
	mediaMS  float64 // reading, decoding and cutting into tokens
	sidecar  string  // the file for the text of it, "" for none
}

// mediaReport says what a medium is, and what became of it.
type mediaReport struct {
	Kind     string  `json:"kind"`
	Path     string  `json:"path,omitempty"` // as it was given
	Format   string  `json:"format"`
	Bytes    int     `json:"bytes"`
	SHA256   string  `json:"sha256"` // of the file
	Content  string  `json:"content_sha256,omitempty"`
	Width    int     `json:"width,omitempty"` // as shown
	Height   int     `json:"height,omitempty"`
	Duration float64 `json:"duration_s,omitempty"`
	NChunks  int     `json:"n_chunks"`
	NTokens  int     `json:"n_tokens"` // cells of the context
	NPos     int     `json:"n_pos"`    // positions
}

// mediaCounters tell what was computed and what was there already.
type mediaCounters struct {
	KVReused  int     `json:"kv_tokens_reused"`
	EmbdHits  int     `json:"embd_hits"` // media chunks
	Encodes   int     `json:"encodes"`   // media chunks
	MediaMS   float64 `json:"media_ms"`  // reading and decoding
	EncodeMS  float64 `json:"encode_ms"`
	PromptMS  float64 `json:"prompt_ms"` // encoding included
	PredictMS float64 `json:"predicted_ms"`
}

// argRefs makes media of the names on the command line.
func argRefs(paths []string) []mediaRef {
	refs := make([]mediaRef, len(paths))
	for i, p := range paths {
		refs[i] = mediaRef{path: p, name: p}
	}
	return refs
}

// listed returns the reports as a list even if there are none.
func (it *mediaItem) listed() []mediaReport { return append([]mediaReport{}, it.reports...) }

// close frees what the item holds. It may be called twice.
func (it *mediaItem) close() {
	if it.chunks != nil {
		_ = it.chunks.Close() // always nil
	}
	it.chunks = nil
	it.free()
}

// free lets go of what tokens were made of.
func (it *mediaItem) free() { it.files, it.bitmaps = nil, nil }

// open reads the item's files and looks what they are; nothing is decoded.
func (it *mediaItem) open() error {
	begin := time.Now()
	defer func() { it.mediaMS += msSince(begin) }()
	opt := media.Options{NoEXIF: !it.run.o.media.exif}
	for _, ref := range it.refs {
		var f *media.File
		var err error
		if ref.path != "" {
			f, err = media.Open(ref.path, opt)
		} else {
			f, err = media.Parse(ref.name, ref.data, opt)
		}
		if err != nil {
			return mediaError(err)
		}
		it.files = append(it.files, f)
		it.reports = append(it.reports, mediaReport{Kind: f.Kind.String(), Path: ref.path, Format: f.Format, Bytes: len(f.Data), SHA256: f.SHA256,
			Width: f.Width, Height: f.Height, Duration: f.Duration})
	}
	if len(it.files) > 0 && it.run.o.MMProj == "" {
		return usagef("media need a projector").withHint("--mmproj FILE")
	}
	return nil
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func msSince(t time.Time) float64 { return millis(time.Since(t)) }

// mediaError gives an error about a medium the kind that decides the exit status, and its hint.
func mediaError(err error) error {
	var m *media.Error
	switch {
	case errors.As(err, &m):
		return &inputError{err: err, hint: m.Hint}
	case errors.Is(err, engine.ErrImageTokens):
		return usagef("%s", oneLine(err))
	case errors.Is(err, engine.ErrMedia), errors.Is(err, engine.ErrNoModality):
		return &inputError{err: err}
	}
	return err
}

// prepare makes the item's tokens of a conversation, in which the run's marker stands for each of its media.
func (it *mediaItem) prepare(conv *completion.Conversation) (err error) {
	it.answer, err = it.chat().Prepare(conv, &it.request.Options, &it.request.Sampling)
	it.request.Grammar = it.request.Sampling.Grammar != "" || it.request.Sampling.JSONSchema != ""
	return promptError(err)
}

// promptError makes an error about a prompt one of the input, unless it has a kind of its own.
func promptError(err error) error {
	var rec *pipeline.RecordError
	var usage *usageError
	switch {
	case errors.As(err, &rec):
		return &inputError{err: errors.New(rec.Msg)}
	case err == nil, errors.As(err, &usage):
		return err
	}
	return &inputError{err: errors.New(oneLine(err))}
}

// chat returns the run's chat, which writes this item's prompt.
func (it *mediaItem) chat() *completion.Chat {
	c := *it.run.chat
	c.Write = it.write
	return &c
}

// write is completion.Chat.Write: it puts the media where their markers are.
func (it *mediaItem) write(p *engine.ChatPrompt, opt *completion.Options) error {
	parts, err := p.MediaParts(it.run.marker, it.bitmaps)
	if err != nil {
		return &pipeline.RecordError{Code: codeMedia, Msg: err.Error() + " (the chat template leaves some out)"}
	}
	if it.run.media == nil {
		opt.Parts = parts
		return nil
	}
	if err := it.cut(parts, true); err != nil {
		return recordErr(err)
	}
	opt.Chunks = it.chunks
	return nil
}

// decode makes pixels and samples of the item's files; if tokens are only counted, no more than that needs.
func (it *mediaItem) decode() error {
	begin := time.Now()
	defer func() { it.mediaMS += msSince(begin) }()
	for i, f := range it.files {
		b, err := completion.OpenMedia(it.run.media, f, it.run.o.media.countOnly)
		if err != nil {
			return mediaError(named(err, f.Path))
		}
		it.bitmaps = append(it.bitmaps, b)
		if !it.run.o.media.countOnly {
			it.reports[i].Content = b.ID
		}
	}
	return nil
}

// named puts a file's name before an error that does not have it.
func named(err error, path string) error {
	if strings.Contains(err.Error(), path) {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// cut makes tokens of a prompt's parts; a medium is brought to the size that the projector takes.
func (it *mediaItem) cut(parts []engine.MediaPart, addSpecial bool) (err error) {
	begin := time.Now()
	defer func() { it.mediaMS += msSince(begin) }()
	if it.chunks, err = it.run.media.Tokenize(parts, addSpecial); err != nil {
		return mediaError(err)
	}
	for _, c := range it.chunks.List {
		if c.Media >= 0 {
			rep := &it.reports[c.Media]
			rep.NChunks, rep.NTokens, rep.NPos = rep.NChunks+1, rep.NTokens+c.NTokens, rep.NPos+c.NPos
		}
	}
	return nil
}

// mediaCount is what a prompt would take.
type mediaCount struct {
	Type         string        `json:"type"` // "count"
	ID           rawJSON       `json:"id,omitempty"`
	PromptTokens int           `json:"prompt_tokens"`
	TextTokens   int           `json:"text_tokens"`
	MediaTokens  int           `json:"media_tokens"`
	NPos         int           `json:"n_pos"`
	Media        []mediaReport `json:"media"`
}

// tokens returns what the item's prompt takes.
func (it *mediaItem) tokens() mediaCount {
	c := mediaCount{Type: "count", Media: it.listed()}
	if it.chunks == nil {
		return c
	}
	c.PromptTokens, c.NPos = it.chunks.NTokens(), it.chunks.NPos()
	for _, m := range it.reports {
		c.MediaTokens += m.NTokens
	}
	c.TextTokens = c.PromptTokens - c.MediaTokens
	return c
}

// generate makes a text for the item. Cancelling ctx is no error.
func (it *mediaItem) generate(ctx context.Context, p *engine.SamplingParams, emit func(completion.Delta) error) (completion.Result, error) {
	r := it.run
	sampler, err := engine.NewSampler(r.model, p)
	if err != nil {
		return completion.Result{}, err
	}
	defer func() { _ = sampler.Close() }() // always nil
	if !r.o.media.reuse {
		r.texts.Drop()
	}
	res, err := r.texts.Generate(ctx, it.request.Options, sampler, emit)
	c := &it.counters
	c.KVReused = res.Usage.CachedTokens
	c.PromptMS, c.PredictMS = res.Timings.PromptMS, res.Timings.PredictedMS
	it.count()
	return res, err
}

// count sets the counters of reading and encoding.
func (it *mediaItem) count() {
	c := &it.counters
	c.MediaMS = it.mediaMS
	if it.chunks != nil {
		w := &it.chunks.Work
		c.EmbdHits, c.Encodes, c.EncodeMS = w.CacheHits, w.Encodes, w.EncodeMS
	}
}

// answerTo makes the answer to a prepared conversation, taken apart as its template says. Cancelling ctx is no error.
func (it *mediaItem) answerTo(ctx context.Context, emit func(completion.Delta) error) (res completion.Result, m engine.ChatMessage, err error) {
	stream, err := it.answer.Stream(emit)
	if err != nil {
		return res, m, err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	if res, err = it.generate(ctx, &it.request.Sampling, stream.Push); err != nil {
		return res, m, err
	}
	res, m, err = stream.End(res)
	var form *completion.AnswerFormError
	if errors.As(err, &form) {
		it.run.l.warnf("%s: it is given as it is", oneLine(form))
		err = nil
	}
	return res, it.answer.Whole(m), err
}
