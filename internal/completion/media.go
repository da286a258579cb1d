package completion

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"gollama/internal/engine"
	"gollama/internal/media"
)

// cell is what a context holds at a place: a token, or all tokens of a chunk of a medium. Two cells are the same if
// their contents are: a medium is known by its hash, never by where it came from.
type cell struct {
	token  engine.Token
	media  string // of a medium: its hash and which of its chunks this is
	tokens int    // that it takes
	pos    int    // positions that it takes
}

func tokenCell(t engine.Token) cell { return cell{token: t, tokens: 1, pos: 1} }

func textCells(tokens []engine.Token) []cell {
	out := make([]cell, len(tokens))
	for i, t := range tokens {
		out[i] = tokenCell(t)
	}
	return out
}

// chunkCells returns the cells of chunk c.
func chunkCells(c *engine.MediaChunk) []cell {
	if c.Kind == engine.ChunkText {
		return textCells(c.Tokens)
	}
	return []cell{{media: fmt.Sprintf("%s %s %d", c.Kind, c.ID, c.Tile), tokens: c.NTokens, pos: c.NPos}}
}

// positions returns how many positions cells take.
func positions(cells []cell) int {
	n := 0
	for i := range cells {
		n += cells[i].pos
	}
	return n
}

// SetMedia gives the session another projector, or with nil none. What the context holds is dropped: it may be of media
// as the one before saw them.
func (s *Session[C]) SetMedia(m Media[C]) {
	s.e.Media = m
	s.Drop()
}

// Drop forgets what the context holds, as one must when what it was computed with has changed, an adapter for instance.
func (s *Session[C]) Drop() {
	s.hold(0, nil)
	s.e.Context.ClearMemory()
}

// prepareMedia makes opt.Chunks of opt.Parts, and opt.Tokens of their text. Chunks without media are text and nothing
// else. free frees what it made.
func (s *Session[C]) prepareMedia(opt *Options) (free func(), err error) {
	free = func() {}
	if opt.Parts != nil && opt.Chunks == nil && s.e.Media != nil {
		c, err := s.e.Media.Tokenize(opt.Parts, true)
		if err != nil {
			return free, fmt.Errorf("tokenize the prompt: %w", err)
		}
		opt.Chunks, free = c, func() { _ = c.Close() }
	}
	if err := opt.takeChunks(s.e.Vocab, s.e.Media != nil); err != nil {
		return free, err
	}
	if opt.Chunks != nil && s.encoder != nil {
		return free, errors.New("a model that reads the prompt with an encoder takes no images or sounds")
	}
	return free, nil
}

// takeChunks makes opt.Tokens of the text of opt.Chunks, or of opt.Parts, which must then be text. Chunks without media are
// text and nothing else.
func (opt *Options) takeChunks(vocab Vocab, hasMedia bool) error {
	parts := opt.Parts
	opt.Parts = nil
	if opt.Chunks == nil {
		if parts == nil {
			return nil
		}
		return opt.textParts(vocab, parts)
	}
	opt.Tokens = []engine.Token{}
	isMedia := func(c engine.MediaChunk) bool { return c.Kind != engine.ChunkText }
	for _, c := range opt.Chunks.List {
		opt.Tokens = append(opt.Tokens, c.Tokens...)
	}
	switch {
	case !slices.ContainsFunc(opt.Chunks.List, isMedia):
		opt.Chunks = nil
	case !hasMedia:
		return ErrNoMedia
	case opt.PromptLogprobs:
		return errors.New("a prompt with images or sounds has no log-probabilities")
	}
	return nil
}

// textParts makes opt.Tokens of parts that must be text.
func (opt *Options) textParts(vocab Vocab, parts []engine.MediaPart) error {
	opt.Tokens = []engine.Token{}
	for i, p := range parts {
		if p.Media != nil {
			return ErrNoMedia
		}
		tokens, err := vocab.Tokenize(p.Text, i == 0, p.ParseSpecial)
		if err != nil {
			return fmt.Errorf("tokenize the prompt: %w", err)
		}
		opt.Tokens = append(opt.Tokens, tokens...)
	}
	return nil
}

// fitMedia checks that a prompt with media fits the context.
func (q *sequence) fitMedia(c *engine.MediaChunks) error {
	if q.opt.Overflow != OverflowError {
		return ErrMediaShift
	}
	n := c.NTokens()
	if limit := promptLimit(q.nCtx, OverflowError); n > limit {
		return &PromptTooLongError{Tokens: n, Limit: max(limit, 0)}
	}
	u := &q.res.Usage
	u.PromptTokens, u.NPos = n, c.NPos()
	q.extra = u.PromptTokens - u.NPos
	for i := range c.List {
		if c.List[i].Kind != engine.ChunkText {
			u.MediaTokens += c.List[i].NTokens
		}
	}
	return nil
}

// evaluateMedia makes a prompt with media the context's content, and leaves the logits of its last token. A medium is
// taken over whole or evaluated whole.
func (s *Session[C]) evaluateMedia(ctx context.Context, c *engine.MediaChunks) error {
	var prompt []cell
	for i := range c.List {
		prompt = append(prompt, chunkCells(&c.List[i])...)
	}
	from := s.reuse(prompt, len(prompt)-1) // the last one's logits are needed
	total := s.q.res.Usage.PromptTokens
	for _, x := range prompt[:from] {
		s.q.res.Usage.CachedTokens += x.tokens
	}
	done := s.q.res.Usage.CachedTokens
	progress := func(n int) {
		if s.q.opt.Progress != nil {
			s.q.opt.Progress(n, total)
		}
	}
	at := 0 // cells before chunk i
	for i := range c.List {
		chunk := &c.List[i]
		cells := chunkCells(chunk)
		skip := min(max(from-at, 0), len(cells))
		at += len(cells)
		if skip == len(cells) {
			continue
		}
		var err error
		if chunk.Kind == engine.ChunkText {
			err = s.e.Context.DecodePrompt(ctx, chunk.Tokens[skip:], s.nPos, 0, func(n int) { progress(done + n) })
		} else {
			err = s.e.Media.Decode(ctx, s.e.Context, c, i, s.nPos, 0, i == len(c.List)-1)
		}
		if err != nil {
			return err
		}
		s.hold(len(s.cells), cells[skip:])
		for _, x := range cells[skip:] {
			done += x.tokens
		}
		progress(done)
	}
	s.q.nPast = s.nPos
	return nil
}

// OpenMedia makes of a file what a projector's Tokenize takes; with countOnly, of an image its size alone. A file that
// the projector cannot read is an error that wraps engine.ErrNoModality and names it; one that cannot be decoded wraps
// media.ErrMedia or engine.ErrMedia.
func OpenMedia(m *engine.Media, f *media.File, countOnly bool) (*engine.Bitmap, error) {
	named := func(err error) error { return fmt.Errorf("%s: %w", f.Path, err) }
	info := m.Info()
	switch {
	case f.Kind == media.Audio && !info.Audio:
		return nil, named(fmt.Errorf("%w: it is sound, and %s reads none", engine.ErrNoModality, info.Path))
	case f.Kind == media.Image && !info.Vision:
		return nil, named(fmt.Errorf("%w: it is an image, and %s reads none", engine.ErrNoModality, info.Path))
	case f.Kind == media.Audio:
		b, err := m.DecodeAudio(f.Data)
		if err != nil {
			return nil, named(err)
		}
		return b, nil
	case countOnly:
		b, err := engine.NewImagePlaceholder(f.Width, f.Height)
		if err != nil {
			return nil, named(err)
		}
		return b, nil
	}
	p, err := f.Pixels()
	if err != nil {
		return nil, err
	}
	b, err := engine.NewImageBitmap(p.Width, p.Height, p.RGB)
	if err != nil {
		return nil, named(err)
	}
	return b, nil
}
