package main

import (
	"context"
	"errors"
	"fmt"

	"gollama/internal/completion"
	"gollama/internal/engine"
)

// mediaChat is a chatModel of a model that sees and hears. In a conversation the file of a medium is the text of its part.
type mediaChat struct {
	run  *mediaRun
	seed uint32
}

// talk is gollama mtmd -i.
func (r *mediaRun) talk(ctx context.Context) error {
	term, err := openTerminal(r.e, r.o)
	if err != nil {
		return err
	}
	defer term.close()
	if err := r.load(ctx, true); err != nil {
		return err
	}
	r.warnContext(r.l, r.o, r.o.NCtx)
	if err := r.begin(); err != nil {
		return err
	}
	m := &mediaChat{run: r, seed: r.sampler.Seed()}
	c := &chatLoop{e: r.e, o: r.o, l: r.l, term: term, model: m, more: m.commands(), seed: m.seed}
	c.conv.ChatSettings = r.chat.ChatSettings
	if r.o.SystemPrompt != "" {
		c.conv.Messages = []engine.ChatMessage{{Role: "system", Content: r.o.SystemPrompt}}
	}
	for _, path := range r.o.Image {
		if err := m.attach(c, path); err != nil {
			return err
		}
	}
	return c.run(ctx)
}

// commands are those of a conversation with media.
func (m *mediaChat) commands() []chatCommand {
	return []chatCommand{
		{"image audio media", "FILE", "put an image or a sound before the next message", func(_ context.Context, c *chatLoop, arg string) error {
			if arg == "" {
				return errNoFile
			}
			return m.attach(c, arg)
		}},
		{"drop", "", "leave out what /image and /read put before the next message", func(_ context.Context, c *chatLoop, _ string) error {
			c.pending = nil
			return nil
		}},
		{"tokens", "", "tokens of the conversation so far, and of each image and sound", func(_ context.Context, c *chatLoop, _ string) error { return m.tokens(c) }},
		{"video", "FILE", "not supported", func(context.Context, *chatLoop, string) error { return errors.New(noVideo) }},
	}
}

// attach puts a file before the next message, if it is one that the model can take.
func (m *mediaChat) attach(c *chatLoop, path string) error {
	it := &mediaItem{run: m.run, refs: argRefs([]string{path})}
	defer it.close()
	if err := it.open(); err != nil {
		return err
	}
	if err := it.decode(); err != nil {
		return err
	}
	c.attach(engine.ChatPart{Type: "media_marker", Text: path})
	c.note(fmt.Sprintf("%s %s goes before the next message", it.reports[0].Kind, path))
	return nil
}

// item returns a conversation's prompt, ready to be evaluated. The caller closes it, also on an error.
func (m *mediaChat) item(conv *completion.Conversation) (*mediaItem, error) {
	it := &mediaItem{run: m.run, request: m.run.defaults()}
	seen := *conv
	seen.Messages = make([]engine.ChatMessage, len(conv.Messages))
	for i, msg := range conv.Messages {
		parts := append([]engine.ChatPart(nil), msg.Parts...)
		for k, p := range parts {
			if p.Type == "media_marker" {
				it.refs = append(it.refs, mediaRef{path: p.Text, name: p.Text})
				parts[k].Text = m.run.marker
			}
		}
		msg.Parts = parts
		seen.Messages[i] = msg
	}
	if err := it.open(); err != nil {
		return it, err
	}
	if err := it.decode(); err != nil {
		return it, err
	}
	return it, it.prepare(&seen)
}

func (m *mediaChat) answer(ctx context.Context, conv *completion.Conversation, attempt int, emit func(completion.Delta) error) (chatAnswer, error) {
	it, err := m.item(conv)
	defer it.close()
	if err != nil {
		return chatAnswer{}, err
	}
	// The first answer has the seed of a run with one; each further one its own.
	n := len(conv.Messages) - system(conv.Messages)
	if it.request.Sampling.Seed = m.seed; n > 1 || attempt > 0 {
		it.request.Sampling.Seed = completion.SampleSeed(m.seed, fmt.Sprint("answer ", n), attempt)
	}
	res, msg, err := it.answerTo(ctx, emit)
	return chatAnswer{message: msg, result: res}, err
}

// tokens counts.
func (m *mediaChat) tokens(c *chatLoop) error {
	conv := c.conv
	if len(c.pending) > 0 {
		conv.Messages = append(conv.Messages[:len(conv.Messages):len(conv.Messages)], userMessage(c.pending, ""))
	}
	if len(conv.Messages) == 0 {
		c.note(fmt.Sprintf("0 of %d tokens", m.run.context.NCtxSeq()))
		return nil
	}
	it, err := m.item(&conv)
	defer it.close()
	if err != nil {
		return err
	}
	n := it.tokens()
	c.note(fmt.Sprintf("%d of %d tokens, %d of them of media; %d positions", n.PromptTokens, m.run.context.NCtxSeq(), n.MediaTokens, n.NPos))
	for _, r := range n.Media {
		c.note(fmt.Sprintf("%d tokens, %d positions: %s %s", r.NTokens, r.NPos, r.Kind, r.Path))
	}
	return nil
}
