package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gollama/internal/engine"
)

// chatClock is what templates that ask for the date are told: the same on every day, so that the
// tokens are, and with them a run that is resumed.
var chatClock = time.Date(2025, 1, 1, 12, 0, 0, 0, time.UTC)

// conversation finds out which tokens of a conversation belong to which message, by comparing what
// the template writes for it with what it writes for parts of it, or for other words. So it needs to know
// nothing about the template.
type conversation struct {
	o        *Options
	messages []engine.ChatMessage
	tools    []engine.ChatTool
	full     []int32 // all messages, no generation prompt
}

// encodeChat returns the tokens of a conversation and the weight of each.
func (o *Options) encodeChat(r *record) ([]int32, []float32, error) {
	if o.Chat == nil {
		return nil, nil, errors.New("messages need a chat template")
	}
	c := &conversation{o: o, tools: r.tools}
	for i := range r.messages {
		c.messages = append(c.messages, r.messages[i].ChatMessage)
	}
	var err error
	if c.full, err = c.tokens(c.messages, false); err != nil {
		return nil, nil, err
	}
	weights := make([]float32, len(c.full))
	for i := len(r.messages) - 1; i >= 0; i-- {
		w := o.trains(&r.messages[i])
		if w == 0 {
			continue
		}
		from, to, err := c.find(i)
		if err != nil {
			return nil, nil, fmt.Errorf("message %d: %w", i+1, err)
		}
		for j := from; j < to; j++ {
			weights[j] = w
		}
		if o.LastOnly {
			break
		}
	}
	return c.full, weights, nil
}

func (c *conversation) tokens(messages []engine.ChatMessage, generate bool) ([]int32, error) {
	p, err := c.o.Chat.Render(&engine.ChatInput{
		Messages: messages, Tools: c.tools, AddGenerationPrompt: generate, ParseSpecial: c.o.ParseSpecial, Now: chatClock,
	})
	if err != nil {
		return nil, err
	}
	tokens, err := c.o.Chat.Tokenize(p)
	return ids(tokens), err
}

// errUnwritten is for templates that drop what a message says, as some do that know no reasoning.
var errUnwritten = errors.New("the chat template writes nothing of it")

// find returns the tokens of message i that are learned: for the assistant, all that the model has
// to write when it is its turn, up to and including what ends the turn; else the content.
func (c *conversation) find(i int) (from, to int, err error) {
	if c.messages[i].Role != "assistant" {
		return c.content(i)
	}
	from, to, ok, err := c.nested(i)
	if err == nil && !ok {
		from, to, err = c.local(i)
	}
	if err != nil {
		return 0, 0, err
	}
	for j := from; j < to; j++ {
		if c.o.Vocab.IsEOG(engine.Token(c.full[j])) { // here the model has done, whatever follows
			if j == from && c.messages[i].Content != "" {
				return 0, 0, errUnwritten
			}
			return from, j + 1, nil
		}
	}
	return from, to, nil
}

// nested finds the turn where what the template writes for the messages before, with the
// generation prompt, and for these and the message itself, are both the start of the whole.
func (c *conversation) nested(i int) (from, to int, ok bool, err error) {
	if i == 0 {
		return 0, 0, false, nil
	}
	before, err := c.tokens(c.messages[:i], true)
	if err != nil {
		return 0, 0, false, err
	}
	with := c.full
	if i+1 < len(c.messages) {
		if with, err = c.tokens(c.messages[:i+1], false); err != nil {
			return 0, 0, false, nil // not a place where this template lets a conversation end
		}
	}
	ok = commonPrefix(before, with) == len(before) && commonPrefix(with, c.full) == len(with) && len(before) < len(with)
	return len(before), len(with), ok, nil
}

// local finds the turn where the template writes a message otherwise when others follow, as those do
// that drop old reasoning or have a generation prompt of their own. It looks at what stands next to the
// messages: after the one before, that which stands there too when the turn begins, and after
// the message itself, that which ends the conversation when it is the last.
func (c *conversation) local(i int) (from, to int, err error) {
	first, last, err := c.content(i)
	if err != nil || first == last {
		return 0, 0, err
	}
	from = first
	if i > 0 {
		_, end, err := c.content(i - 1)
		if err != nil {
			return 0, 0, err
		}
		head, err := c.tail(i, true)
		if err != nil {
			return 0, 0, err
		}
		if end <= first { // else the message before is nowhere to be seen
			from = end + commonPrefix(c.full[end:], head)
		}
	}
	tail, err := c.tail(i+1, false)
	if err != nil {
		return 0, 0, err
	}
	return from, last + commonPrefix(c.full[last:], tail), nil
}

// content returns the tokens of the whole that change with the words of message i.
func (c *conversation) content(i int) (from, to int, err error) {
	other, err := c.tokens(c.other(i, false), false)
	if err != nil {
		return 0, 0, err
	}
	to = len(c.full) - commonSuffix(c.full, other)
	if other, err = c.tokens(c.other(i, true), false); err != nil {
		return 0, 0, err
	}
	return min(commonPrefix(c.full, other), to), to, nil
}

// tail returns what follows the words of the last of the first n messages.
func (c *conversation) tail(n int, generate bool) ([]int32, error) {
	a, err := c.tokens(c.messages[:n], generate)
	if err != nil {
		return nil, err
	}
	b, err := c.tokens(c.other(n-1, false)[:n], generate)
	if err != nil {
		return nil, err
	}
	return a[len(a)-commonSuffix(a, b):], nil
}

// other returns the messages with other words in message i: at the start or end of all its texts.
func (c *conversation) other(i int, start bool) []engine.ChatMessage {
	out := slices.Clone(c.messages)
	m := &out[i]
	if m.Content != "" || len(m.ToolCalls) == 0 && m.Reasoning == "" && len(m.Parts) == 0 {
		m.Content = otherWords(m.Content, start)
	}
	if m.Reasoning != "" {
		m.Reasoning = otherWords(m.Reasoning, start)
	}
	m.Parts = slices.Clone(m.Parts)
	for j := range m.Parts {
		if m.Parts[j].Type == "text" {
			m.Parts[j].Text = otherWords(m.Parts[j].Text, start)
		}
	}
	m.ToolCalls = slices.Clone(m.ToolCalls)
	for j := range m.ToolCalls {
		t := &m.ToolCalls[j]
		if start {
			t.Name = otherWords(t.Name, start)
		} else {
			t.Arguments = otherArguments(t.Arguments)
		}
	}
	return out
}

// otherWords changes the start or the end of a text, inside the white space that templates trim, so
// that its first or last character is another one.
func otherWords(s string, start bool) string {
	inner := strings.TrimSpace(s)
	at := strings.Index(s, inner)
	word := "Zq"
	if start && strings.HasPrefix(inner, "Z") {
		word = "Qz"
	} else if !start && strings.HasSuffix(inner, "q") {
		word = "Qz"
	}
	if start {
		return s[:at] + word + s[at:]
	}
	return s[:at+len(inner)] + word + s[at+len(inner):]
}

// otherArguments adds a member at the end of a JSON object.
func otherArguments(s string) string {
	body, ok := strings.CutSuffix(strings.TrimSpace(s), "}")
	if !ok || !json.Valid([]byte(s)) {
		return otherWords(s, false)
	}
	if strings.TrimSpace(body) != "{" {
		body += ","
	}
	return body + `"zq":"Zq"}`
}
