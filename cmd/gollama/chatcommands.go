package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"gollama/internal/completion"
	"gollama/internal/engine"
)

// chatCommands are the commands of every conversation.
func chatCommands() []chatCommand {
	return []chatCommand{
		{"help ?", "", "list the commands", func(_ context.Context, c *chatLoop, _ string) error { c.help(); return nil }},
		{"clear", "", "begin a new conversation; the system message stays", func(_ context.Context, c *chatLoop, _ string) error {
			c.conv.Messages, c.pending, c.attempt = c.conv.Messages[:system(c.conv.Messages)], nil, 0
			return nil
		}},
		{"regen", "", "answer the last message anew", regenerate},
		{"system", "[TEXT]", "set the system message, or show it", setSystem},
		{"read", "FILE", "put a file before the next message", readIntoChat},
		{"save", "FILE", "write the conversation to a file", func(_ context.Context, c *chatLoop, arg string) error {
			if arg == "" {
				return errNoFile
			}
			return c.save(arg)
		}},
		{"load", "FILE", "go on with a conversation of /save or --transcript", loadChat},
		{"stats", "", "tokens, context and speed", func(_ context.Context, c *chatLoop, _ string) error { c.stats(); return nil }},
		{"quit exit bye", "", "end; Ctrl-D does too", func(_ context.Context, c *chatLoop, _ string) error { c.ended = true; return nil }},
	}
}

var errNoFile = errors.New("no file given")

func (c *chatLoop) commands() []chatCommand { return append(chatCommands(), c.more...) }

// command finds a command by one of its names.
func (c *chatLoop) command(name string) *chatCommand {
	for _, cmd := range c.commands() {
		if slices.Contains(strings.Fields(cmd.name), name) {
			return &cmd
		}
	}
	return nil
}

func (c *chatLoop) commandWords() []string {
	var words []string
	for _, cmd := range c.commands() {
		words = append(words, "/"+strings.Fields(cmd.name)[0])
	}
	slices.Sort(words)
	return words
}

func (c *chatLoop) help() {
	for _, cmd := range c.commands() {
		c.note(fmt.Sprintf("%-16s %s", "/"+strings.Fields(cmd.name)[0]+" "+cmd.arg, cmd.help))
	}
	c.note(fmt.Sprintf("%-16s %s", textMark, "begins and ends a text of several lines; a backslash at its end joins a line with the next"))
	c.note(fmt.Sprintf("%-16s %s", "//", "begins a message with /"))
}

// regenerate answers again, with other random numbers.
func regenerate(ctx context.Context, c *chatLoop, _ string) error {
	n := len(c.conv.Messages)
	if n > 0 && c.conv.Messages[n-1].Role == "assistant" {
		n--
	}
	if n == 0 || c.conv.Messages[n-1].Role == "system" {
		return errors.New("there is no message to answer")
	}
	c.conv.Messages = c.conv.Messages[:n]
	c.attempt++
	return c.reply(ctx)
}

func setSystem(_ context.Context, c *chatLoop, text string) error {
	n := system(c.conv.Messages)
	switch {
	case text == "" && n == 0:
		c.note("there is no system message")
	case text == "":
		for _, m := range c.conv.Messages[:n] {
			c.note(m.Content)
		}
	default:
		c.conv.Messages = append([]engine.ChatMessage{{Role: "system", Content: text}}, c.conv.Messages[n:]...)
	}
	return nil
}

// readIntoChat attaches a text file.
func readIntoChat(_ context.Context, c *chatLoop, path string) error {
	if path == "" {
		return errNoFile
	}
	data, err := os.ReadFile(path)
	switch {
	case err != nil:
		return err
	case len(data) == 0:
		return fmt.Errorf("%s holds nothing", path)
	case !utf8.Valid(data):
		return fmt.Errorf("%s is no text in UTF-8", path)
	}
	c.attach(engine.ChatPart{Type: "text", Text: string(data)})
	c.note(fmt.Sprintf("%d bytes of %s go before the next message", len(data), path))
	return nil
}

func loadChat(_ context.Context, c *chatLoop, path string) error {
	if path == "" {
		return errNoFile
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	conv := completion.Conversation{ChatSettings: c.conv.ChatSettings}
	if err := parseConversation(data, &conv); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	c.conv, c.pending, c.attempt = conv, nil, 0
	c.note(fmt.Sprintf("%d messages", len(conv.Messages)))
	return nil
}

func (c *chatLoop) stats() {
	r := c.last
	c.note(fmt.Sprintf("%d messages, %d answers, %d tokens generated", len(c.conv.Messages), c.answers, c.tokens))
	if c.answers == 0 {
		return
	}
	c.note(fmt.Sprintf("last answer: %d of %d tokens of context, %d of the prompt's %d were there already",
		r.Usage.PromptTokens+r.Usage.CompletionTokens, r.NCtx, r.Usage.CachedTokens, r.Usage.PromptTokens))
	c.note(fmt.Sprintf("prompt %.1f tokens/s, answer %d tokens, %.1f tokens/s, ended by %s, seed %d",
		r.Timings.PromptPerSecond, r.Usage.CompletionTokens, r.Timings.PredictedPerSecond, r.FinishReason, r.Seed))
}

// runInteractive is gollama run -i.
func runInteractive(ctx context.Context, e *env, l *logging, o *options) error {
	term, err := openTerminal(e, o)
	if err != nil {
		return err
	}
	defer term.close()
	kept, err := openTalkSession(o)
	if err != nil {
		return err
	}
	s, err := loadSession(ctx, e, l, o)
	defer s.close(l)
	if err != nil {
		return canceledBy(ctx, err)
	}
	s.warnContext(l, o, o.NCtx)
	chat, done, err := openChat(o, s.model)
	if err != nil {
		return err
	}
	defer done()
	model, err := newTextChat(s, o, chat)
	if err != nil {
		return err
	}
	if kept != nil {
		if model.kept, err = newTalkSession(kept, e, l, o, s); err != nil {
			return err
		}
	}
	o.conversation.ChatSettings = chat.ChatSettings
	c := &chatLoop{e: e, o: o, l: l, term: term, model: model, conv: *o.conversation, seed: model.seed}
	if kept != nil && kept.saved != nil && len(kept.saved.Conversation) > 0 {
		c.note(fmt.Sprintf("the conversation of %s goes on: %d messages", kept.path, len(c.conv.Messages)))
		c.note(textOf(c.conv.Messages))
	}
	err = c.run(ctx)
	return cmp.Or(err, model.kept.save(&c.conv, c.answers))
}
