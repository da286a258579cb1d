package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"gollama/internal/completion"
	"gollama/internal/engine"
	"gollama/internal/engine/ggml"
)

// talkSession is the session of a conversation at the terminal: --session with
// -i. It holds the conversation, which goes on where it ended, and what of it
// was evaluated.
type talkSession struct {
	*sessionFile
	e      *env
	l      *logging
	o      *options
	s      *session
	same   bool                 // the session was computed with this run's settings
	taken  bool                 // the context has, or had, what the session has
	start  []engine.ChatMessage // as the conversation begins
	ids    []engine.Token       // in the context since the last answer; nil: it cannot be said
	prompt int                  // of ids, the first are of its prompt
	cells  int                  // of ids, the first are in the context
}

// openTalkSession reads o's session, if there is one. Its conversation becomes
// o's, unless another was given.
func openTalkSession(o *options) (*sessionFile, error) {
	f, err := openSession(o)
	if err != nil || f == nil || f.saved == nil || len(f.saved.Conversation) == 0 {
		return f, err
	}
	conv := &completion.Conversation{}
	if err := parseConversation(f.saved.Conversation, conv); err != nil {
		return nil, fmt.Errorf("--session %s: %w", f.path, err)
	}
	given := o.conversation.Messages
	switch n := system(given); {
	case len(given) > n:
		return f, nil
	case n > 0 && !reflect.DeepEqual(given, conv.Messages[:min(n, system(conv.Messages))]):
		return nil, usagef("--session %s: its conversation has another system message than -sys", f.path).withHint("leave -sys out; /system there sets another")
	}
	o.conversation = conv
	return f, nil
}

func newTalkSession(f *sessionFile, e *env, l *logging, o *options, s *session) (*talkSession, error) {
	if s.model.Info().HasEncoder {
		return nil, errors.New("--session: a model with an encoder has none")
	}
	t := &talkSession{sessionFile: f, e: e, l: l, o: o, s: s, start: o.conversation.Messages}
	t.same = f.saved != nil && f.saved.Tokens > 0 && fmt.Sprint(f.saved.Shape) == fmt.Sprint(f.shape)
	if f.saved != nil && f.saved.Tokens > 0 && !t.same {
		l.warnf("--session %s was computed with other settings of batches, threads or devices: it is computed again", f.path)
	}
	return t, nil
}

// attach lets the first answer take what the session has of its prompt. That is
// all, to the last token, as the next answer of one conversation does: it
// goes on as if it had not been left.
func (t *talkSession) attach(opt *completion.Options) {
	t.ids = nil // until this answer is there
	if t.same && !t.taken {
		opt.Reuse = func(prompt []engine.Token) (int, error) {
			t.taken = true
			return t.restore(t.s.context, t.saved.Common(prompt))
		}
	}
	opt.Ended = func(tokens []engine.Token, nPrompt, cells int) error {
		t.taken = true
		t.ids, t.prompt, t.cells = tokens, nPrompt, cells
		return nil
	}
}

// save writes the session at the end of the conversation, if there is anything
// new in it.
func (t *talkSession) save(conv *completion.Conversation, answers int) error {
	if t == nil || t.o.sessionRO || answers == 0 && reflect.DeepEqual(conv.Messages, t.start) {
		return nil
	}
	out := &completion.SavedSession{SessionHeader: completion.SessionHeader{Program: version, Engine: ggml.BuildInfo().Pin,
		Command: t.e.args, Of: t.of, Shape: t.shape}}
	var err error
	if len(conv.Messages) > 0 {
		if out.Conversation, err = json.Marshal(struct {
			Messages []engine.ChatMessage `json:"messages"`
			Tools    []engine.ChatTool    `json:"tools,omitempty"`
		}{conv.Messages, conv.Tools}); err != nil {
			return err
		}
	}
	switch {
	case t.ids != nil:
		out.IDs, out.Prompt, out.Cells = t.ids, t.prompt, t.cells
		err = t.sessionFile.save(t.s.context, out)
	case len(out.Conversation) > 0:
		err = t.write(out)
	default:
		return nil
	}
	if err == nil {
		t.l.log.Info("the conversation is in " + t.path)
	}
	return err
}

// textOf returns what of a conversation is shown when it goes on: its last exchange.
func textOf(messages []engine.ChatMessage) string {
	var lines []string
	for _, m := range messages[max(0, len(messages)-2):] {
		mark := map[string]string{"user": "> "}[m.Role]
		if m.Content != "" {
			lines = append(lines, mark+m.Content)
		}
	}
	return strings.Join(lines, "\n")
}
