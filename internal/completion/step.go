package completion

import (
	"context"
	"fmt"
	"time"
)

// step evaluates one batch and takes what comes of it.
func (s *Slots[C]) step(ctx context.Context, done func(Reply) error) error {
	if s.Deterministic {
		return s.pinnedStep(ctx, done)
	}
	s.beginPrompts()
	if err := s.readMedia(ctx, -1, done); err != nil {
		return fmt.Errorf("evaluate a medium: %w", err)
	}
	if err := s.advance(done); err != nil {
		return err
	}
	begin := time.Now()
	if err := s.speculate(); err != nil {
		return err
	}
	s.stats.Guess += time.Since(begin)
	parts := s.parts()
	s.batch.Reset()
	for i := range s.slots {
		s.add(i, parts[i])
	}
	return s.evaluate(ctx, done)
}

// evaluate decodes the batch and takes what comes of it.
func (s *Slots[C]) evaluate(ctx context.Context, done func(Reply) error) error {
	if len(s.batch.Tokens) == 0 {
		return nil // all texts ended without another token
	}
	if err := s.decode(ctx); err != nil {
		return fmt.Errorf("evaluate %d tokens: %w", len(s.batch.Tokens), err)
	}
	begin := time.Now()
	err := s.collect(done)
	s.stats.Sample += time.Since(begin)
	return err
}

// advance ends the texts that are as long as they may be, and makes room for the others' next token.
func (s *Slots[C]) advance(done func(Reply) error) error {
	for i := range s.slots {
		sl := &s.slots[i]
		if sl.text == nil || sl.reading() {
			continue
		}
		before := sl.nPast
		ended, err := sl.sequence.advance()
		if sl.nPast != before {
			sl.clean = min(sl.clean, sl.nKeep)
			if sl.group.home == i {
				sl.group.home = -1 // the prompt is cut: it is read again for the texts that wait
			}
		}
		if ended || err != nil {
			if err := s.end(i, err, done); err != nil {
				return err
			}
		}
	}
	return nil
}

// parts says how many tokens of each slot's prompt the next batch has: the
// texts have theirs, and the prompts share what is left of it evenly, those
// that need less than their share leaving it to the others.
func (s *Slots[C]) parts() []int {
	parts := make([]int, len(s.slots))
	left := s.chunk()
	reading := 0
	for i := range s.slots {
		switch sl := &s.slots[i]; {
		case sl.text == nil:
		case len(sl.rest) > 0:
			reading++
		case !sl.reading():
			left -= 1 + len(sl.guess)
		}
	}
	s.turn++
	for reading > 0 && left > 0 {
		share := max(left/reading, 1)
		for k := range s.slots {
			i := (s.turn + k) % len(s.slots)
			more := len(s.slots[i].rest) - parts[i]
			if more == 0 || left == 0 {
				continue
			}
			n := min(share, more, left)
			parts[i] += n
			left -= n
			if n == more {
				reading--
			}
		}
	}
	return parts
}

// add puts slot i's next token, or part tokens of its prompt, into the batch.
func (s *Slots[C]) add(i, part int) {
	sl := &s.slots[i]
	sl.row, sl.first, sl.part = -1, -1, 0
	switch {
	case sl.text == nil:
	case !sl.reading():
		sl.row = len(s.batch.Tokens)
		s.batch.Add(sl.last, sl.nPast, i, true)
		sl.nPast++
		for k, t := range sl.guess {
			s.batch.Add(t, sl.nPast+k, i, true)
		}
	case part > 0:
		sl.first, sl.part = len(s.batch.Tokens), part
		for k, t := range sl.rest[:part] {
			end := k+1 == len(sl.rest) && sl.next == len(sl.list())
			if end {
				sl.row = len(s.batch.Tokens)
			}
			s.batch.Add(t, sl.nPast, i, end || sl.opt.PromptLogprobs && sl.n == 0)
			sl.nPast++
		}
		s.stats.PromptTokens += part
	}
}

// collect samples for each slot whose logits are there.
func (s *Slots[C]) collect(done func(Reply) error) error {
	for i := range s.slots {
		sl := &s.slots[i]
		if sl.text == nil {
			continue
		}
		err := s.promptLogprobs(sl)
		if sl.rest = sl.rest[sl.part:]; sl.part > 0 && len(sl.rest) == 0 && sl.list() != nil {
			s.passed(i)
		}
		ended := err != nil
		if !ended && sl.row >= 0 {
			ended, err = s.sample(i)
		}
		if ended {
			if err := s.end(i, err, done); err != nil {
				return err
			}
		}
	}
	return nil
}

// sample takes a token from the logits of slot i. Where they are those of a
// prompt that several texts go on from, each of these takes its own.
func (s *Slots[C]) sample(i int) (ended bool, err error) {
	sl := &s.slots[i]
	if sl.part > 0 && sl.n > 0 {
		return false, nil // a prompt read again: the token after it is there
	}
	if g := sl.group; sl.n == 0 && sl.index == 0 && len(g.results) > 1 {
		s.branch(i)
	}
	return s.pickAll(sl)
}

// pick samples and takes a text's next token.
func (s *Slots[C]) pick(t *text[C], row int) (ended bool, err error) {
	if t.n == 0 && t.limit() {
		return true, t.finish(FinishLength)
	}
	token, err := t.sampler.Sample(s.Context, row)
	if err != nil {
		return true, fmt.Errorf("sample token %d of the answer: %w", t.n+1, err)
	}
	s.stats.GeneratedTokens++
	if t.first.IsZero() {
		t.first = time.Now()
	}
	return t.take(token, func() ([]float32, error) { return s.Context.Logits(row) })
}

// branch begins the further texts of the request in slot i, whose prompt has
// just been evaluated. They wait for slots with their first token taken.
func (s *Slots[C]) branch(i int) {
	sl := &s.slots[i]
	g := sl.group
	g.home, g.begun = i, true
	for k := 1; k < len(g.results); k++ {
		t, _, err := s.newText(g, k, i)
		if err != nil {
			g.left--
			g.fail(err)
			continue
		}
		t.nPast = sl.nPast
		t.res.Usage.CachedTokens = t.res.Usage.PromptTokens
		s.stats.CachedTokens += t.res.Usage.PromptTokens
		t.res.PromptLogprobs = sl.res.PromptLogprobs
		if ended, err := s.pick(t, sl.row); ended || err != nil {
			s.close(t, err)
			continue
		}
		s.waiting = append(s.waiting, t)
	}
}

func (g *group[C]) fail(err error) {
	if g.err == nil {
		g.err = err
	}
}

// promptLogprobs takes those of the part of the prompt that was in the batch.
func (s *Slots[C]) promptLogprobs(sl *slot[C]) error {
	if sl.part == 0 || !sl.opt.PromptLogprobs || sl.n > 0 {
		return nil
	}
	if sl.nPast == sl.part { // the first part
		if err := sl.promptLogprob(sl.rest[0], nil); err != nil {
			return err
		}
	}
	for k := range sl.part {
		if k+1 == len(sl.rest) {
			break // what follows the last is the model's to say
		}
		logits, err := s.Context.Logits(sl.first + k)
		if err != nil {
			return err
		}
		if err := sl.promptLogprob(sl.rest[k+1], logits); err != nil {
			return err
		}
	}
	return nil
}

// close ends a text and keeps its result.
func (s *Slots[C]) close(t *text[C], err error) {
	r := t.result(err)
	r.Seed = t.sampler.Seed()
	if !t.first.IsZero() {
		t.group.reading += t.first.Sub(t.started)
		t.group.writing += time.Since(t.first)
	}
	t.group.results[t.index] = r
	t.group.left--
	if err != nil {
		t.group.fail(err)
	}
	_ = t.sampler.Close() // it frees memory: there is nothing to go wrong
}

// end frees slot i, whose text is complete or failed with err, and passes on
// the request's reply if it was the last.
func (s *Slots[C]) end(i int, err error, done func(Reply) error) error {
	sl := &s.slots[i]
	t, g := sl.text, sl.group
	if !g.begun {
		g.left = 1 // nobody goes on from a prompt that failed
	}
	s.close(t, err)
	sl.text, sl.rest, sl.next, sl.waits = nil, nil, 0, false
	sl.row, sl.first, sl.part = -1, -1, 0
	s.trim(i, g)
	switch {
	case g.left > 0:
		return nil
	case g.err != nil:
		s.stats.Failed++
		return done(Reply{Request: g.req, Err: g.err})
	}
	return done(Reply{Request: g.req, Results: g.results, Reading: g.reading, Writing: g.writing})
}

// trim leaves in slot i, which a text of g has left, what a text to come can
// use: the prompt, if others go on from it, or the part of the shared prefix.
func (s *Slots[C]) trim(i int, g *group[C]) {
	_, keep := sizeOf(s.slots[i].held)
	keep = max(keep, s.slots[i].clean)
	for _, t := range s.waiting {
		if t.group == g && g.home == i {
			keep = g.nPos
		}
	}
	s.cut(i, keep)
}

// cut leaves n tokens in slot i, or none if the memory cannot remove a part.
func (s *Slots[C]) cut(i, n int) {
	sl := &s.slots[i]
	if n > 0 && s.Context.SeqRm(i, n, -1) {
		sl.used, sl.clean = n, min(sl.clean, n)
		return
	}
	s.Context.SeqRm(i, -1, -1)
	sl.used, sl.clean, sl.held = 0, 0, nil
	for _, t := range s.waiting {
		if t.group.home == i {
			t.group.home = -1
		}
	}
}

// PinnedRows is what the rows of a batch are a multiple of under
// SlotConfig.Deterministic: the engine's kernels take up to so many at a time,
// and what is left over, in another order of additions.
const PinnedRows = 16

// pinnedStep is a step whose numbers do not depend on the other requests: each
// prompt is evaluated alone, in parts that its length decides, and then one
// token in every slot, one that counts for nothing where there is no text.
func (s *Slots[C]) pinnedStep(ctx context.Context, done func(Reply) error) error {
	for i := range s.slots {
		for s.slots[i].text != nil && s.slots[i].reading() {
			if s.slots[i].waits {
				from, n := s.holder(i)
				s.beginPrompt(i, from, n)
			}
			if err := s.readMedia(ctx, i, done); err != nil {
				return fmt.Errorf("evaluate a medium: %w", err)
			}
			if len(s.slots[i].rest) == 0 {
				continue // the prompt ended in a medium, or the medium ended the text
			}
			s.batch.Reset()
			for k := range s.slots {
				s.slots[k].row, s.slots[k].first, s.slots[k].part = -1, -1, 0
			}
			s.add(i, min(len(s.slots[i].rest), s.chunk()))
			if err := s.evaluate(ctx, done); err != nil {
				return err
			}
		}
	}
	if err := s.advance(done); err != nil || s.active() == 0 {
		return err
	}
	s.batch.Reset()
	for i := range s.slots {
		if s.slots[i].text != nil {
			s.add(i, 0)
			continue
		}
		s.batch.Add(0, s.slots[i].used, i, true) // the last layers and the head take only rows with output
	}
	if err := s.evaluate(ctx, done); err != nil {
		return err
	}
	for i := range s.slots {
		if s.slots[i].text == nil {
			s.cut(i, s.slots[i].used)
		}
	}
	return nil
}
