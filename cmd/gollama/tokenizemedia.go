package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"gollama/internal/engine"
	"gollama/internal/pipeline"
)

// withMedia are the flags of mtmd that tokenize takes too.
var withMedia = []string{"media", "mmproj", "image-min-tokens", "image-max-tokens", "exif", "media-marker"}

// notWithMedia are flags of tokenize that say nothing about one prompt with media.
var notWithMedia = []string{"files-from", "lines", "null", "jsonl", "field", "ids", "show-count", "offsets", "decode", "vocab", "stats", "plot", "invalid-utf8",
	"encoder", "jobs", "max-tokens", "truncate", "fail-over", "chunk", "overlap", "pack", "eos"}

// hasMedia reports whether a prompt with media is to be tokenized.
func (o *options) hasMedia() bool { return len(o.Image) > 0 || o.MMProj != "" }

// finishTokenizeMedia checks what belongs to --media.
func (o *options) finishTokenizeMedia() error {
	t := &o.tok
	if !o.hasMedia() {
		for _, name := range withMedia {
			if o.given[name] > levelEnv {
				return usagef("--%s goes with --media", name)
			}
		}
		return nil
	}
	for _, name := range notWithMedia {
		if o.given[name] > levelEnv {
			return usagef("--%s does not go with --media", name)
		}
	}
	switch {
	case o.MMProj == "":
		return usagef("--media: no projector given").withHint("--mmproj FILE.gguf")
	case len(t.files) > 1:
		return usagef("--media goes with one prompt, and there are %d files", len(t.files))
	case t.bos == "on":
		return usagef("--bos on does not go with --media").withHint("auto does what the model wants")
	case !o.isSet("format"):
		t.format = "json"
	case !slices.Contains([]string{"json", "jsonl", "count"}, t.format):
		return usagef("--format %s does not go with --media", t.format).withHint("json, jsonl or count")
	}
	return nil
}

// tokenized is a prompt with media, as --format json writes it.
type tokenized struct {
	NTokens  int            `json:"n_tokens"` // cells of a context
	NPos     int            `json:"n_pos"`    // positions; fewer than cells under M-RoPE
	HasMedia bool           `json:"has_media"`
	Tokens   []engine.Token `json:"tokens"` // -1 for each cell of a medium
	Chunks   []chunkAt      `json:"chunks"`
	OfMedia  []chunkAt      `json:"media_chunks"`
	Media    []mediaReport  `json:"media"`
}

// chunkAt is a chunk of a prompt and where it begins.
type chunkAt struct {
	Type     string `json:"type"`    // text, image or audio
	TokOff   int    `json:"tok_off"` // cells before it
	PosOff   int    `json:"pos_off"` // positions before it
	NTokens  int    `json:"n_tokens"`
	NPos     int    `json:"n_pos"`
	ID       string `json:"id,omitempty"`          // content_sha256 of its medium
	Media    *int   `json:"media_index,omitempty"` // number of its medium, from 0
	NoCausal bool   `json:"non_causal,omitempty"`  // its tokens see each other
}

// tokenizeMedia tokenizes one prompt with media. Of the model only the vocabulary is loaded, and nothing is encoded.
func (k *tokenizer) tokenizeMedia(ctx context.Context, w io.Writer) error {
	o, t := k.o, k.t
	text, err := k.mediaPrompt()
	if err != nil {
		return err
	}
	r := &mediaRun{e: k.env, l: k.l, o: o}
	defer r.close()
	it := &mediaItem{run: r, refs: argRefs(o.Image)}
	defer it.close()
	if err := it.open(); err != nil {
		return err
	}
	if r.model, err = loadVocab(ctx, o.Model); err != nil {
		return err
	}
	if r.media, err = engine.NewMedia(ctx, r.model, o.mediaParams()); err != nil {
		return mediaError(err)
	}
	if err := it.decode(); err != nil {
		return err
	}
	parts, err := placeMedia(text, o.media.marker, t.special == "parse", it.bitmaps)
	if err != nil {
		return &inputError{err: err}
	}
	if err := it.cut(parts, t.bos != "off" && !t.noBOS); err != nil {
		return err
	}
	if t.format == "count" {
		_, err = fmt.Fprintf(w, "%8d %8d %10d\n", it.chunks.NTokens(), 1, len(text))
		return err
	}
	line, err := pipeline.Marshal(it.tokenized())
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// mediaPrompt returns the one text.
func (k *tokenizer) mediaPrompt() (string, error) {
	if k.o.promptGiven {
		if k.o.Escape {
			return unescape(k.o.Prompt), nil
		}
		return k.o.Prompt, nil
	}
	data, err := readAll(k.t.files[0], k.env.stdin)
	if err != nil {
		return "", &inputError{err: err}
	}
	return string(data), nil
}

// loadVocab loads the vocabulary of a model.
func loadVocab(ctx context.Context, path string) (*engine.Model, error) {
	p := engine.DefaultParams()
	p.Model, p.VocabOnly, p.Warmup = path, true, false
	return engine.LoadModel(ctx, &p)
}

// placeMedia puts media before a text, or where it has the marker.
func placeMedia(text, marker string, parse bool, media []*engine.Bitmap) ([]engine.MediaPart, error) {
	if marker != "" {
		return engine.SplitMediaMarkers(text, marker, parse, media)
	}
	var parts []engine.MediaPart
	for _, b := range media {
		parts = append(parts, engine.MediaPart{Media: b})
	}
	if text != "" {
		parts = append(parts, engine.MediaPart{Text: text, ParseSpecial: parse})
	}
	return parts, nil
}

// tokenized lists the item's tokens.
func (it *mediaItem) tokenized() tokenized {
	out := tokenized{HasMedia: len(it.refs) > 0, Tokens: []engine.Token{}, Chunks: []chunkAt{}, OfMedia: []chunkAt{}, Media: it.listed()}
	for _, c := range it.chunks.List {
		at := chunkAt{Type: c.Kind.String(), TokOff: out.NTokens, PosOff: out.NPos, NTokens: c.NTokens, NPos: c.NPos, ID: c.ID, NoCausal: c.NonCausal}
		if c.Media >= 0 {
			at.Media = &c.Media
			out.OfMedia = append(out.OfMedia, at)
			out.Tokens = append(out.Tokens, slices.Repeat([]engine.Token{engine.TokenNull}, c.NTokens)...)
		}
		out.Tokens = append(out.Tokens, c.Tokens...)
		out.Chunks = append(out.Chunks, at)
		out.NTokens, out.NPos = out.NTokens+c.NTokens, out.NPos+c.NPos
	}
	return out
}
