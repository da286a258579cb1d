package main

import (
	"context"
	"errors"
	"fmt"

	"gollama/internal/completion"
	"gollama/internal/engine"
)

// chatModel answers conversations.
type chatModel interface {
	// answer makes the assistant's next message of a conversation and passes it on as it comes.
	// attempt is 0, or counts the answers to this conversation that were not wanted. Cancelling
	// ctx ends the answer early and is no error: what is there is returned.
	answer(ctx context.Context, conv *completion.Conversation, attempt int, emit func(completion.Delta) error) (chatAnswer, error)
}

// chatAnswer is an answer: the message that belongs into the conversation, and how it came to be.
type chatAnswer struct {
	message engine.ChatMessage
	result  completion.Result
	dropped int // messages at the start of the conversation that the model did not see: they did not fit
}

// textChat is a chatModel of text alone. What a conversation has in common with the one before stays
// in the context.
type textChat struct {
	s       *session
	o       *options
	chat    *completion.Chat
	text    *completion.Session[*engine.Context]
	options completion.Options // but for the prompt
	seed    uint32
	kept    *talkSession // nil without
}

// newTextChat returns a chatModel over a loaded model.
func newTextChat(s *session, o *options, chat *completion.Chat) (*textChat, error) {
	c := &textChat{s: s, o: o, chat: chat, seed: s.sampler.Seed()}
	var err error
	if c.options, err = s.options(o); err != nil {
		return nil, err
	}
	c.text, err = completion.NewSession(s.engine())
	return c, err
}

func (c *textChat) answer(ctx context.Context, conv *completion.Conversation, attempt int, emit func(completion.Delta) error) (chatAnswer, error) {
	for dropped := 0; ; {
		a, err := c.once(ctx, conv, attempt, dropped, emit)
		var long *completion.PromptTooLongError
		if !errors.As(err, &long) || c.options.Overflow == completion.OverflowError {
			return a, err
		}
		n := oldest(conv.Messages[system(conv.Messages)+dropped:])
		if n == 0 {
			return a, err
		}
		dropped += n
	}
}

// system returns how many messages at the start of a conversation are not part of its exchanges.
func system(messages []engine.ChatMessage) int {
	n := 0
	for n < len(messages) && (messages[n].Role == "system" || messages[n].Role == "developer") {
		n++
	}
	return n
}

// oldest returns how many messages the first exchange has: from a message of the user to the next one. 0: it is the last.
func oldest(messages []engine.ChatMessage) int {
	for i := 1; i < len(messages); i++ {
		if messages[i].Role == "user" {
			return i
		}
	}
	return 0
}

// once answers a conversation without the given number of messages after its system messages.
func (c *textChat) once(ctx context.Context, conv *completion.Conversation, attempt, dropped int, emit func(completion.Delta) error) (a chatAnswer, err error) {
	seen := *conv
	n := system(conv.Messages)
	seen.Messages = append(conv.Messages[:n:n], conv.Messages[n+dropped:]...)
	opt, p := c.options, c.o.Sampling
	if opt.Overflow == completion.OverflowTruncate {
		opt.Overflow = completion.OverflowError // exchanges are dropped whole
	}
	answer, err := c.chat.Prepare(&seen, &opt, &p)
	if err != nil {
		return a, err
	}
	// The first answer has the seed of a run with one; each further one its own.
	if p.Seed = c.seed; len(conv.Messages)-n > 1 || attempt > 0 {
		p.Seed = completion.SampleSeed(c.seed, fmt.Sprint("answer ", len(conv.Messages)-n), attempt)
	}
	sampler, err := engine.NewSampler(c.s.model, &p)
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, sampler.Close()) }()
	stream, err := answer.Stream(emit)
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	opt.Grammar = p.Grammar != "" || p.JSONSchema != ""
	if c.kept != nil {
		c.kept.attach(&opt)
	}
	res, err := c.text.Generate(ctx, opt, sampler, stream.Push)
	if err != nil {
		return a, err
	}
	res, message, err := stream.End(res)
	var form *completion.AnswerFormError
	if errors.As(err, &form) {
		err = nil // it is shown as it is
	}
	return chatAnswer{message: answer.Whole(message), result: res, dropped: dropped}, err
}
