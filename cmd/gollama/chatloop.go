package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"gollama/internal/completion"
	"gollama/internal/engine"
)

// chatLoop is a conversation at the terminal.
type chatLoop struct {
	e     *env
	o     *options
	l     *logging
	term  *terminal
	model chatModel
	more  []chatCommand // commands beside its own

	conv    completion.Conversation
	pending []engine.ChatPart // go before the text of the next message
	attempt int               // answers to this conversation that were not wanted
	last    completion.Result // of the last answer
	answers int
	tokens  int // generated
	seed    uint32
	ended   bool
}

// chatCommand is a command of the conversation: /name ARG.
type chatCommand struct {
	name string // more names after blanks
	arg  string // what it takes, for the help; empty: nothing
	help string
	// run does it. An error is shown, and the conversation goes on.
	run func(ctx context.Context, c *chatLoop, arg string) error
}

// run talks until the input ends. Everything that goes wrong with a message or an answer is said, and
// the next line read; only signals and a terminal that has gone end it.
func (c *chatLoop) run(ctx context.Context) error {
	c.term.complete(c.commandWords())
	c.note("/help lists the commands; Ctrl-C stops an answer, Ctrl-D ends")
	if n := len(c.conv.Messages); n > 0 && c.conv.Messages[n-1].Role == "user" {
		c.note("> " + c.conv.Messages[n-1].Content)
		if err := c.reply(ctx); err != nil {
			return err
		}
	}
	interrupted := false
	for !c.ended {
		text, err := c.read(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return c.term.out.text("\n")
		case errors.Is(err, errInterruptedLine):
			if interrupted {
				c.note("Ctrl-D or /quit ends")
			}
			interrupted = true
			continue
		case err != nil:
			return err
		}
		interrupted = false
		if err := c.do(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// textMark begins and ends a text of several lines.
const textMark = `"""`

// read reads what the user says: a line, several where each but the last ends in a backslash, or all
// between two textMarks.
func (c *chatLoop) read(ctx context.Context) (string, error) {
	line, err := c.term.read(ctx, "> ")
	if err != nil {
		return "", err
	}
	if rest, ok := strings.CutPrefix(strings.TrimSpace(line), textMark); ok {
		return c.readText(ctx, rest)
	}
	text := ""
	for strings.HasSuffix(line, `\`) {
		text += strings.TrimSuffix(line, `\`) + "\n"
		if line, err = c.term.read(ctx, ". "); err != nil {
			return "", err
		}
	}
	return text + line, nil
}

func (c *chatLoop) readText(ctx context.Context, line string) (string, error) {
	var lines []string
	for {
		if before, ok := strings.CutSuffix(strings.TrimRightFunc(line, unicode.IsSpace), textMark); ok {
			return strings.TrimPrefix(strings.Join(append(lines, before), "\n"), "\n"), nil
		}
		lines = append(lines, line)
		var err error
		if line, err = c.term.read(ctx, ". "); err != nil {
			return "", err
		}
	}
}

// do does what the user said: a command, or a message to answer.
func (c *chatLoop) do(ctx context.Context, text string) error {
	if rest, ok := strings.CutPrefix(text, "//"); ok {
		return c.say(ctx, "/"+rest)
	}
	if rest, ok := strings.CutPrefix(text, "/"); ok {
		name, arg, _ := strings.Cut(rest, " ")
		cmd := c.command(name)
		if cmd == nil {
			c.note("there is no command /" + name + "; /help lists them, and // begins a message with /")
			return nil
		}
		if cmd.arg == "" && strings.TrimSpace(arg) != "" {
			c.note("/" + name + " takes nothing")
			return nil
		}
		return c.try(ctx, cmd.run(ctx, c, strings.TrimSpace(arg)))
	}
	return c.say(ctx, text)
}

// try shows an error, unless it ends the conversation.
func (c *chatLoop) try(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, errBrokenPipe):
		return err
	}
	c.note("error: " + oneLine(err))
	if hint := hintOf(err); hint != "" {
		c.note("hint: " + hint)
	}
	return nil
}

// say adds a message of the user, with what was attached, and answers it.
func (c *chatLoop) say(ctx context.Context, text string) error {
	if strings.TrimSpace(text) == "" && len(c.pending) == 0 {
		return nil
	}
	c.conv.Messages = append(c.conv.Messages, userMessage(c.pending, text))
	c.pending, c.attempt = nil, 0
	return c.reply(ctx)
}

// userMessage makes a message of parts and a text after them; of text alone it is a plain one.
func userMessage(parts []engine.ChatPart, text string) engine.ChatMessage {
	m := engine.ChatMessage{Role: "user"}
	whole := []string{}
	for _, p := range parts {
		if p.Type == "text" {
			whole = append(whole, p.Text)
		}
	}
	if text != "" {
		whole = append(whole, text)
		parts = append(parts[:len(parts):len(parts)], engine.ChatPart{Type: "text", Text: text})
	}
	if len(whole) == len(parts) {
		m.Content = strings.Join(whole, "\n\n")
	} else {
		m.Parts = parts
	}
	return m
}

// attach puts a part before the text of the next message.
func (c *chatLoop) attach(p engine.ChatPart) { c.pending = append(c.pending, p) }

// reply answers the conversation and adds the answer. Ctrl-C ends the answer, and not the
// conversation.
func (c *chatLoop) reply(ctx context.Context) error {
	turn, cancel := context.WithCancel(ctx)
	defer cancel()
	defer c.e.signals.interrupts(cancel)()
	thinking := false
	a, err := c.model.answer(turn, &c.conv, c.attempt, func(d completion.Delta) error {
		if d.Reasoning != "" {
			thinking = true
			if err := c.term.write(d.Reasoning, true); err != nil {
				return err
			}
		}
		if d.Text != "" && thinking {
			thinking = false
			if err := c.term.out.text("\n\n"); err != nil {
				return err
			}
		}
		return c.term.write(d.Text, false)
	})
	if eol := c.term.out.endLine(); err == nil {
		err = eol
	}
	if err != nil || a.message.Content == "" && a.message.Reasoning == "" && len(a.message.ToolCalls) == 0 {
		return c.try(ctx, c.takeBack(err))
	}
	c.conv.Messages = append(c.conv.Messages, a.message)
	c.last, c.answers, c.tokens = a.result, c.answers+1, c.tokens+a.result.Usage.CompletionTokens
	c.remarks(a)
	if c.o.transcriptFile == "" {
		return nil
	}
	return c.try(ctx, c.save(c.o.transcriptFile))
}

// takeBack removes a message that got no answer.
func (c *chatLoop) takeBack(err error) error {
	n := len(c.conv.Messages) - 1
	if c.conv.Messages[n].Role != "user" {
		return err
	}
	c.conv.Messages = c.conv.Messages[:n]
	if err == nil {
		c.note("there is no answer: the message is taken back")
	}
	return err
}

// remarks says what of an answer does not show.
func (c *chatLoop) remarks(a chatAnswer) {
	for _, call := range a.message.ToolCalls {
		c.note(fmt.Sprintf("the model calls %s(%s)", call.Name, call.Arguments))
	}
	if a.dropped > 0 {
		c.note(fmt.Sprintf("the first %d messages do not fit the context any more: the model did not see them", a.dropped))
	}
	switch a.result.FinishReason {
	case completion.FinishCancelled:
		c.note("stopped")
	case completion.FinishLength:
		c.note("the answer is cut by -n")
	case completion.FinishContext:
		c.note(fmt.Sprintf("the answer is cut: the context of %d tokens is full; /clear begins anew", a.result.NCtx))
	}
}

// note writes a line of the program's own.
func (c *chatLoop) note(text string) {
	for _, line := range strings.Split(text, "\n") {
		_ = c.term.write(line, true) // the next write of the answer fails too
		_ = c.term.out.text("\n")
	}
}

func (c *chatLoop) save(path string) error {
	if sameFile(path, c.o.Model) {
		return fmt.Errorf("%s is the model", path)
	}
	return saveTranscript(c.e, c.o, path, c.seed, &c.conv)
}
