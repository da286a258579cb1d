package completion

import (
	"context"
	"errors"
	"slices"

	"gollama/internal/engine"
)

// A prompt with media is read chunk by chunk: text goes into the batches of all slots, a medium is encoded alone and its
// embeddings evaluated with those of other slots that are of the same size. What a slot holds it holds by whole chunks, so
// that what another prompt takes over of it was computed as that prompt would have it computed.

// minShare is how many tokens more another slot must hold of a prompt to be copied, by tokens that a sequence has room for.
// A copy is of the whole cache of a sequence: on two cores that of 4096 tokens of a 135M model takes as long as reading 6 to
// 8 tokens does, and less in larger models.
const minShare = 256

// list returns the chunks of the text's prompt, nil if it is text alone.
func (sl *slot[C]) list() []engine.MediaChunk {
	if sl.text == nil || sl.group.req.Chunks == nil {
		return nil
	}
	return sl.group.req.Chunks.List
}

// reading reports whether there is more of the prompt to be evaluated.
func (sl *slot[C]) reading() bool { return len(sl.rest) > 0 || sl.next < len(sl.list()) }

// medium returns the chunk that is to be evaluated next, if it is one of a medium.
func (sl *slot[C]) medium() *engine.MediaChunk {
	if list := sl.list(); !sl.waits && len(sl.rest) == 0 && sl.next < len(list) {
		return &list[sl.next]
	}
	return nil
}

func sameChunk(a, b *engine.MediaChunk) bool {
	return a.Kind == b.Kind && a.ID == b.ID && a.Tile == b.Tile && a.NTokens == b.NTokens && a.NPos == b.NPos && slices.Equal(a.Tokens, b.Tokens)
}

// commonChunks returns how many chunks a prompt shares with the beginning of what is held, or is to be. The last one is never
// shared: its logits are needed.
func commonChunks(held, list []engine.MediaChunk) int {
	n := 0
	for n < len(held) && n < len(list)-1 && sameChunk(&held[n], &list[n]) {
		n++
	}
	return n
}

// sizeOf returns the tokens and positions that chunks take.
func sizeOf(list []engine.MediaChunk) (tokens, pos int) {
	for i := range list {
		tokens += list[i].NTokens
		pos += list[i].NPos
	}
	return tokens, pos
}

// holder returns the slot that holds most of the prompt in slot i, and how many chunks of it: i itself if a copy of another is not worth it.
func (s *Slots[C]) holder(i int) (from, n int) {
	list := s.slots[i].list()
	best := -1
	for k := range s.slots {
		j := (i + k) % len(s.slots) // i itself first
		// A cache of sliding windows has let go of the beginning: what is left may not reach back far enough.
		if len(s.slots[j].held) == 0 || s.Context.SeqPosMin(j) > 0 {
			continue
		}
		common := commonChunks(s.slots[j].held, list)
		tokens, _ := sizeOf(list[:common])
		if j == i || tokens >= max(best, 0)+s.worth() {
			from, n, best = j, common, tokens
		}
	}
	if best < 0 {
		return i, 0
	}
	return from, n
}

func (s *Slots[C]) worth() int { return max(s.Context.NCtxSeq()/minShare, 1) }

// beginPrompts begins to read the prompts with media that wait, but for those that another slot will soon hold more of.
func (s *Slots[C]) beginPrompts() {
	for i := range s.slots {
		if !s.slots[i].waits {
			continue
		}
		from, n := s.holder(i)
		list := s.slots[i].list()
		have, _ := sizeOf(list[:n])
		if !s.comes(i, list, have) {
			s.beginPrompt(i, from, n)
		}
	}
}

// comes reports whether another slot is reading a beginning of list that is worth waiting for.
func (s *Slots[C]) comes(i int, list []engine.MediaChunk, have int) bool {
	for j := range s.slots {
		sl := &s.slots[j]
		if j == i || s.NoReuse || sl.text == nil || sl.waits || !sl.reading() {
			continue
		}
		if n, _ := sizeOf(list[:commonChunks(sl.list(), list)]); n >= have+s.worth() {
			return true
		}
	}
	return false
}

// beginPrompt begins to read the prompt of slot i, which starts with n chunks that slot from holds.
func (s *Slots[C]) beginPrompt(i, from, n int) {
	sl := &s.slots[i]
	held := slices.Clip(s.slots[from].held[:n])
	if n > 0 && from != i && !s.Context.SeqCp(from, i, -1, -1) {
		held = nil
	}
	sl.held = held
	_, pos := sizeOf(held)
	s.cut(i, pos)
	if len(sl.held) < n {
		s.NoReuse = true // a memory that gives no part back: the next would find the same
	}
	sl.waits, sl.next = false, len(sl.held)
	cached, pos := sizeOf(sl.held)
	if sl.nPast = pos; sl.n == 0 {
		sl.res.Usage.CachedTokens = cached
		s.stats.CachedTokens += cached
	}
	s.goOn(sl)
}

// restart makes a text read its prompt from the start.
func (s *Slots[C]) restart(i int) {
	s.cut(i, 0)
	sl := &s.slots[i]
	sl.nPast, sl.next = 0, 0
	if sl.waits = sl.list() != nil; !sl.waits {
		sl.rest = sl.group.req.prompt
	}
}

// passed notes that slot i holds the chunk before next.
func (s *Slots[C]) passed(i int) {
	sl := &s.slots[i]
	if !s.NoReuse {
		sl.held = append(sl.held, sl.list()[sl.next-1])
	}
	s.goOn(sl)
}

// goOn takes up the text that is next of a prompt, if it is text. A prompt that was read whole needs its media no more, if no
// further text may have to read it again.
func (s *Slots[C]) goOn(sl *slot[C]) {
	for list := sl.list(); len(sl.rest) == 0 && sl.next < len(list) && list[sl.next].Kind == engine.ChunkText; sl.next++ {
		sl.rest = list[sl.next].Tokens
	}
	if g := sl.group; !sl.reading() && len(g.results) == 1 {
		_ = g.req.Chunks.Close() // always nil
	}
}

// readMedia evaluates the media that prompts have come to, in slot only or, if that is negative, in all.
func (s *Slots[C]) readMedia(ctx context.Context, only int, done func(Reply) error) error {
	for s.Media != nil {
		group, err := s.embedMedia(ctx, only, done)
		if err != nil || len(group) == 0 {
			return err
		}
		spans := make([]engine.MediaSpan, len(group))
		for k, i := range group {
			sl := &s.slots[i]
			spans[k] = engine.MediaSpan{Chunks: sl.group.req.Chunks, Chunk: sl.next, Pos: sl.nPast, Seq: i, Logits: sl.next == len(sl.list())-1}
		}
		s.stats.Batches++
		err = s.timed(func() error { return s.Media.DecodeSpans(ctx, s.Context, spans) })
		if errors.Is(err, engine.ErrMedia) && len(group) == 1 { // an image that fits no batch
			if err := s.end(group[0], err, done); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		row := -1 // of the last token of a span
		for _, i := range group {
			row += s.slots[i].medium().NTokens
			if err := s.passMedium(i, row, done); err != nil {
				return err
			}
		}
	}
	return nil
}

// embedMedia encodes media that can be evaluated together, and returns their slots. Those that cannot be encoded end their requests.
func (s *Slots[C]) embedMedia(ctx context.Context, only int, done func(Reply) error) (group []int, err error) {
	var first *engine.MediaChunk
	left := min(s.Context.NBatch(), s.Context.NUBatch())
	for i := range s.slots {
		sl := &s.slots[i]
		c := sl.medium()
		// The engine computes sequences together that have as many tokens each.
		if c == nil || only >= 0 && i != only || first != nil && (c.NTokens != first.NTokens || c.NonCausal != first.NonCausal || c.NTokens > left) {
			continue
		}
		err := s.timed(func() error { _, err := s.Media.Embed(ctx, s.Context, sl.group.req.Chunks, sl.next); return err })
		if err != nil && ctx.Err() != nil {
			return nil, err
		}
		if err != nil {
			if err := s.end(i, err, done); err != nil {
				return nil, err
			}
			continue
		}
		if first == nil {
			first = c
		}
		left -= c.NTokens
		group = append(group, i)
	}
	return group, nil
}

// passMedium goes on after the medium of slot i. Where a prompt ends in one, the answer begins with the logits in row.
func (s *Slots[C]) passMedium(i, row int, done func(Reply) error) error {
	sl := &s.slots[i]
	c := sl.medium()
	sl.nPast += c.NPos
	s.stats.PromptTokens += c.NTokens
	sl.next++
	s.passed(i)
	if sl.reading() {
		return nil
	}
	sl.row, sl.part = row, c.NTokens
	ended, err := s.sample(i)
	sl.row, sl.part = -1, 0
	if ended {
		return s.end(i, err, done)
	}
	return nil
}
