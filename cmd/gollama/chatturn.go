package main

import (
	"errors"

	"gollama/internal/completion"
	"gollama/internal/engine"
)

// turn is the one answer of a run: to a conversation, or what goes on from a prompt.
type turn struct {
	delta  func(completion.Delta) error
	l      *logging
	o      *options
	seed   uint32
	done   func()                 // closes the template
	answer *completion.ChatAnswer // nil without a conversation
	stream *completion.ChatStream
}

// converse makes the prompt of o's conversation, if there is one, and a sampler for its answer, which
// goes to delta in pieces.
func (s *session) converse(l *logging, o *options, opt *completion.Options, delta func(completion.Delta) error) (*turn, error) {
	t := &turn{delta: delta, l: l, o: o, seed: s.sampler.Seed(), done: func() {}}
	if o.conversation == nil {
		return t, nil
	}
	chat, done, err := openChat(o, s.model)
	if err != nil {
		return nil, err
	}
	t.done = done
	o.conversation.ChatSettings = chat.ChatSettings
	p := o.Sampling
	p.Seed = t.seed
	if t.answer, err = chat.Prepare(o.conversation, opt, &p); err != nil {
		t.close()
		return nil, conversationError(o, err)
	}
	opt.Grammar = p.Grammar != "" || p.JSONSchema != ""
	if err = s.sampler.Close(); err == nil {
		s.sampler, err = engine.NewSampler(s.model, &p)
	}
	if err == nil {
		t.stream, err = t.answer.Stream(delta)
	}
	if err != nil {
		t.close()
		return nil, err
	}
	t.delta = t.stream.Push
	return t, nil
}

// conversationError tells a conversation that is no good from a failure.
func conversationError(o *options, err error) error {
	where := ""
	if o.messagesFile != "" {
		where = "--messages: "
	}
	return &inputError{err: errors.New(where + oneLine(err))}
}

// end takes the answer apart and keeps the transcript.
func (t *turn) end(e *env, res completion.Result) (completion.Result, error) {
	if t.stream == nil {
		return res, nil
	}
	res, m, err := t.stream.End(res)
	var form *completion.AnswerFormError
	if errors.As(err, &form) {
		t.l.warnf("%s: it is given as it is", oneLine(form))
		err = nil
	}
	if err != nil || t.o.transcriptFile == "" {
		return res, err
	}
	conv := *t.o.conversation
	conv.Messages = withAnswer(conv.Messages, t.answer.Whole(m), conv.Whole)
	return res, saveTranscript(e, t.o, t.o.transcriptFile, t.seed, &conv)
}

// withAnswer returns a conversation with an answer, which stands for a message that it goes on with.
func withAnswer(messages []engine.ChatMessage, m engine.ChatMessage, whole bool) []engine.ChatMessage {
	n := len(messages)
	if !whole && n > 0 && messages[n-1].Role == "assistant" {
		n--
	}
	return append(messages[:n:n], m)
}

func (t *turn) close() {
	if t.stream != nil {
		_ = t.stream.Close() // only memory
	}
	t.done()
}
