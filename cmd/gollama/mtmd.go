package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"gollama/internal/completion"
	"gollama/internal/engine"
)

var mtmdCommand = &command{
	name:     "mtmd",
	synopsis: "-m FILE --mmproj FILE [--image FILE]... -p TEXT [flags]",
	short:    "Answer questions about images and sounds, one by one or by the folder.",
	long: `Reads a model, its projector, and media: images (PNG, JPEG, GIF, BMP, WebP, TIFF, PNM) or
sounds (WAV, MP3, FLAC), before the prompt of -p, -f or standard input, in one
message of the user. Writes the answer to standard output, and nothing else. With
-i it talks at the terminal.

Examples:
  gollama mtmd -m model.gguf --mmproj mmproj.gguf --image photo.png -p "What is this?" -n 16
  gollama mtmd -m model.gguf --mmproj mmproj.gguf --image photo.png --image b.png -p "What differs?" -n 16 --format json
  gollama mtmd -m model.gguf --mmproj mmproj.gguf --dir photos -p "Describe it." -n 16 -o captions.jsonl --sidecar .txt
  gollama mtmd -m model.gguf --mmproj mmproj.gguf --dir photos --count-only -p "Describe it."
  gollama mtmd --mmproj mmproj.gguf --caps

--dir and --files-from give a line of JSON for each file, --records FILE one for each
record ({"id":"a","media":["x.png"],"prompt":"What is it?"}, or messages in OpenAI's
form). The model is loaded once, an image that comes again is not encoded again, and
each text is what a run of its own gives. Status 3 says that the work is done but for
files that failed, which have an error in their line; --resume goes on after a stop.

Flags have the names, defaults and environment variables of llama-mtmd-cli.
Differences: a file name is never split at commas, -e is off, EXIF orientation is
applied (--no-exif), <__media__> in a prompt is text (--media-marker), and only
warnings are logged (-lv 2).`,
	defaults: mtmdDefaults,
}

func init() { mtmdCommand.run = mtmd }

// mtmd is the whole of gollama mtmd once the settings are right.
func mtmd(ctx context.Context, e *env, o *options, _ []string) error {
	if err := o.finish("mtmd"); err != nil {
		return err
	}
	if err := preflight(o); err != nil {
		return err
	}
	l, err := setupLogging(e, "gollama mtmd", o)
	if err != nil {
		return err
	}
	defer l.close()
	if o.media.caps {
		return showCaps(e, o)
	}
	warnMachine(l, o)
	warnProjector(l, o)
	r := &mediaRun{e: e, l: l, o: o, marker: engine.NewMediaMarker()}
	defer r.close()
	switch {
	case o.mediaBatch():
		err = runMediaBatch(ctx, r)
	case o.interactive:
		err = r.talk(ctx)
	default:
		err = r.single(ctx)
	}
	return canceledBy(ctx, err)
}

// showCaps writes what a projector can take, from its header.
func showCaps(e *env, o *options) error {
	if o.MMProj == "" {
		if err := o.findProjector(); err != nil {
			return err
		}
	}
	p, err := engine.ReadProjector(o.MMProj)
	if err != nil {
		return err
	}
	b, err := json.Marshal(struct {
		Vision     bool   `json:"vision"`
		Audio      bool   `json:"audio"`
		Video      bool   `json:"video"`
		VisionType string `json:"vision_projector,omitempty"`
		AudioType  string `json:"audio_projector,omitempty"`
		NEmbd      int    `json:"n_embd"` // of the text model that it goes with
	}{Vision: p.Vision, Audio: p.Audio, VisionType: p.VisionType, AudioType: p.AudioType, NEmbd: p.NEmbd})
	if err != nil {
		return err
	}
	return e.out.text(string(b) + "\n")
}

// mediaRun is a model with its projector, and what all prompts have in common.
type mediaRun struct {
	session
	e *env
	l *logging
	o *options

	media     *engine.Media // nil without a projector
	chat      *completion.Chat
	closeChat func()
	marker    string // stands for a medium in a rendered conversation; nobody can guess it
	texts     *completion.Session[*engine.Context]
	stop      []engine.Token
}

func (r *mediaRun) close() {
	if r.closeChat != nil {
		r.closeChat()
	}
	r.session.close(r.l)
	if r.media != nil {
		if err := r.media.Close(); err != nil {
			r.l.warnf("%s", err)
		}
	}
}

// load loads the model and its projector. A context is made only if weights is set; counting needs none of them.
func (r *mediaRun) load(ctx context.Context, weights bool) (err error) {
	o := r.o
	bar := r.l.progress(r.e, "loading", "")
	defer bar.done()
	p := &o.Params
	p.LoadProgressCallback = func(share float32) bool {
		bar.set(float64(share), "")
		return ctx.Err() == nil
	}
	begin := time.Now()
	if !weights {
		p.VocabOnly, p.LoRAAdapters, p.ControlVectors = true, nil, nil
	}
	if r.model, err = engine.LoadModel(ctx, p); err != nil {
		return err
	}
	if r.model.Info().HasEncoder {
		return fmt.Errorf("%s: mtmd is for models without a text encoder", o.Model)
	}
	if r.chat, r.closeChat, err = openChat(o, r.model); err != nil {
		return err
	}
	r.chat.System = o.SystemPrompt
	if o.MMProj != "" {
		if r.media, err = engine.NewMedia(ctx, r.model, o.mediaParams()); err != nil {
			return mediaError(err)
		}
		// An image that is not causal is evaluated in one physical batch.
		p.NUBatch = max(p.NUBatch, r.media.MinUBatch())
		p.NBatch = max(p.NBatch, p.NUBatch)
	}
	if !weights {
		return nil
	}
	if r.context, err = engine.NewContext(r.model, p); err != nil {
		return err
	}
	if r.sampler, err = engine.NewSampler(r.model, &p.Sampling); err != nil { // it draws the run's seed
		return err
	}
	if r.stop, err = r.stopTokens(o.stopTokens); err != nil {
		return err
	}
	r.loadMS = msSince(begin)
	return nil
}

// begin makes a session of the context, for one text after the other.
func (r *mediaRun) begin() (err error) {
	eng := r.engine()
	if r.media != nil {
		eng.Media = r.media
	}
	r.texts, err = completion.NewSession(eng)
	return err
}

// single answers one prompt.
func (r *mediaRun) single(ctx context.Context) error {
	o := r.o
	if err := readPrompt(ctx, r.e, r.l, o); err != nil {
		return err
	}
	item := &mediaItem{run: r, refs: argRefs(o.Image)}
	defer item.close()
	if err := item.open(); err != nil { // a file that is no image is told before a large model is loaded
		return err
	}
	m, err := mediaMessage(o.Prompt, o.media.marker, r.marker, len(item.refs))
	if err != nil {
		return &inputError{err: err}
	}
	dst, err := openResult(r.e, o)
	if err != nil {
		return err
	}
	defer dst.abort()
	if err := r.load(ctx, !o.media.countOnly); err != nil {
		return err
	}
	if err := item.decode(); err != nil {
		return err
	}
	conv := &completion.Conversation{Messages: []engine.ChatMessage{m}, ChatSettings: r.chat.ChatSettings}
	if o.prefill != "" {
		conv.Messages = append(conv.Messages, engine.ChatMessage{Role: "assistant", Content: o.prefill})
	}
	item.request = r.defaults()
	if err := item.prepare(conv); err != nil {
		return err
	}
	if o.media.countOnly {
		return r.writeCount(dst, item)
	}
	r.warnContext(r.l, o, o.NCtx)
	if err := r.begin(); err != nil {
		return err
	}
	return r.write(ctx, dst, item)
}

// write generates the one answer, and writes it as it comes.
func (r *mediaRun) write(ctx context.Context, dst *result, item *mediaItem) error {
	item.request.Sampling.Seed = r.sampler.Seed()
	res, _, err := item.answerTo(ctx, dst.delta)
	if err != nil {
		if dst.out.n > 0 && !errors.Is(err, errBrokenPipe) {
			_ = dst.end(res) // the text so far; err says more than a second error would
		}
		var long *completion.PromptTooLongError
		if errors.As(err, &long) {
			err = &inputError{err: err, hint: "raise -c; --image-max-tokens makes images smaller, where the projector takes any size"}
		}
		return err
	}
	if err := r.endResult(dst, item, res); err != nil {
		return err
	}
	if res.FinishReason == completion.FinishCancelled {
		return dst.keep(r.l, context.Cause(ctx))
	}
	if err := checkComplete(r.o, res); err != nil {
		return dst.keep(r.l, err)
	}
	return dst.commit()
}

// endResult writes what comes after the text: in JSON the result, with what is known of the media.
func (r *mediaRun) endResult(dst *result, item *mediaItem, res completion.Result) error {
	if dst.format == "text" {
		return dst.out.endLine()
	}
	return dst.line(struct {
		completion.Result
		Media []mediaReport `json:"media"`
		Cache mediaCounters `json:"cache"`
	}{res, item.listed(), item.counters})
}

// writeCount writes what --count-only found.
func (r *mediaRun) writeCount(dst *result, item *mediaItem) error {
	c := item.tokens()
	if dst.format != "text" {
		if err := dst.line(c); err != nil {
			return err
		}
		return dst.commit()
	}
	text := fmt.Sprintf("%8d tokens %8d positions  prompt\n", c.PromptTokens, c.NPos)
	for _, m := range c.Media {
		text += fmt.Sprintf("%8d tokens %8d positions  %s %s\n", m.NTokens, m.NPos, m.Kind, m.Path)
	}
	if err := dst.out.text(text); err != nil {
		return err
	}
	return dst.commit()
}

// defaults is what is asked for where a record says nothing.
func (r *mediaRun) defaults() completion.Request {
	o := r.o
	return completion.Request{N: 1, Sampling: o.Sampling, Options: completion.Options{NPredict: o.NPredict, Stop: o.Antiprompt, StopTokens: r.stop,
		NProbs: o.logprobs, Special: o.Special}}
}
