package main

import (
	"context"
	"encoding/json"
	"sync"

	"gollama/internal/completion"
	"gollama/internal/engine"
	"gollama/internal/pipeline"
	"gollama/internal/tokens"
)

// chatTokens writes conversations, which stand in a JSON record where a text is looked for, in the model's chat template.
// The engine is loaded with the first of them.
type chatTokens struct {
	ctx   context.Context
	o     *options
	once  sync.Once
	err   error
	model *engine.Model
	chat  *completion.Chat
	done  func()
}

// render is [tokens.Options.Chat]. The last message decides whether an answer is to follow: one of the assistant is whole.
func (c *chatTokens) render(raw json.RawMessage) (*tokens.Conversation, error) {
	c.once.Do(func() {
		if c.model, c.err = loadVocab(c.ctx, c.o.Model); c.err == nil {
			c.chat, c.done, c.err = openChat(c.o, c.model)
		}
	})
	if c.err != nil {
		return nil, c.err
	}
	var in engine.ChatInput
	if err := pipeline.DecodeList(raw, &in.Messages); err != nil {
		return nil, err
	}
	n := len(in.Messages)
	in.AddGenerationPrompt = n > 0 && in.Messages[n-1].Role != "assistant"
	p, err := c.chat.Template.Render(&in)
	if err != nil {
		return nil, err
	}
	return &tokens.Conversation{Segments: p.Segments, Open: in.AddGenerationPrompt}, nil
}

func (c *chatTokens) close() {
	if c.done != nil {
		c.done()
	}
	if c.model != nil {
		_ = c.model.Close() // nothing was written to it
	}
}
