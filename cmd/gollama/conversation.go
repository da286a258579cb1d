package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"gollama/internal/builtin"
	"gollama/internal/completion"
	"gollama/internal/engine"
	"gollama/internal/engine/ggml"
	"gollama/internal/gguf"
	"gollama/internal/pipeline"
)

// transcript is a conversation as a file. --messages reads it.
type transcript struct {
	Type     string               `json:"type"` // "transcript"
	Version  string               `json:"version"`
	Engine   string               `json:"engine"`
	Command  []string             `json:"command"`
	Model    string               `json:"model"`
	Seed     uint32               `json:"seed"`
	Tools    []engine.ChatTool    `json:"tools,omitempty"`
	Messages []engine.ChatMessage `json:"messages"`
}

// saveTranscript writes a conversation to a file, which appears whole.
func saveTranscript(e *env, o *options, path string, seed uint32, conv *completion.Conversation) error {
	t := transcript{"transcript", version, ggml.BuildInfo().Pin, e.args, builtin.Label(o.Model), seed, conv.Tools, conv.Messages}
	data, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return err
	}
	if err := pipeline.WriteFile(path, append(data, '\n')); err != nil {
		return &writeError{fmt.Errorf("write %s: %w", path, pipeline.Cause(err))}
	}
	return nil
}

// conversationFields are the members of an object of --messages, and those of
// a transcript that say nothing about the next answer.
var (
	conversationFields = []string{"messages", "tools", "tool_choice", "parallel_tool_calls"}
	transcriptFields   = []string{"type", "version", "engine", "command", "model", "seed"}
)

// parseConversation reads an array of messages, or an object that has one.
func parseConversation(data []byte, conv *completion.Conversation) error {
	data = []byte(strings.TrimSpace(string(data)))
	if len(data) == 0 {
		return errors.New("it holds nothing")
	}
	if data[0] != '{' {
		return parseMessages(data, conv)
	}
	fields, err := pipeline.Members(data)
	if err != nil {
		return err
	}
	for name := range fields {
		known := slices.Contains(conversationFields, name) || string(fields["type"]) == `"transcript"` && slices.Contains(transcriptFields, name)
		if !known {
			return fmt.Errorf("unknown member %q, want %s", name, strings.Join(conversationFields, ", "))
		}
	}
	if fields["messages"] == nil {
		return errors.New("there are no messages")
	}
	if raw := fields["tools"]; raw != nil {
		if err := pipeline.DecodeList(raw, &conv.Tools); err != nil {
			return pipeline.JSONAt("tools", err)
		}
	}
	if raw := fields["parallel_tool_calls"]; raw != nil {
		if err := pipeline.Decode(raw, &conv.Parallel); err != nil {
			return pipeline.JSONAt("parallel_tool_calls", err)
		}
	}
	if raw := fields["tool_choice"]; raw != nil {
		if err := conv.SetToolChoice(raw); err != nil {
			return fmt.Errorf("tool_choice: %w", err)
		}
	}
	return parseMessages(fields["messages"], conv)
}

func parseMessages(data []byte, conv *completion.Conversation) error {
	if err := pipeline.DecodeList(data, &conv.Messages); err != nil {
		return pipeline.JSONAt("messages", err)
	}
	if len(conv.Messages) == 0 {
		return errors.New("messages: there are none")
	}
	return nil
}

// readConversation puts together what is to be answered: the system message, --messages, and the
// prompt as a message of the user.
func readConversation(ctx context.Context, e *env, l *logging, o *options) (*completion.Conversation, error) {
	conv := &completion.Conversation{}
	if path := o.messagesFile; path != "" {
		data, err := readWaiting(ctx, e, l, path, "the conversation")
		if ctx.Err() != nil {
			return nil, err
		}
		if err == nil {
			err = parseConversation(data, conv)
		}
		if err != nil {
			return nil, &inputError{err: fmt.Errorf("--messages: %s: %w", inputName(path), pipeline.Cause(err))}
		}
	}
	if (o.messagesFile == "" && !o.interactive) || o.isSet("prompt") || o.isSet("file") {
		if err := readPrompt(ctx, e, l, o); err != nil {
			return nil, err
		}
		conv.Messages = append(conv.Messages, engine.ChatMessage{Role: "user", Content: o.Prompt})
	}
	if o.prefill != "" {
		conv.Messages = append(conv.Messages, engine.ChatMessage{Role: "assistant", Content: o.prefill})
	}
	if o.SystemPrompt == "" {
		return conv, nil
	}
	if len(conv.Messages) > 0 && conv.Messages[0].Role == "system" {
		return nil, &inputError{err: fmt.Errorf("--messages: %s: it has a system message, and there is -sys: give one of them", inputName(o.messagesFile))}
	}
	conv.Messages = append([]engine.ChatMessage{{Role: "system", Content: o.SystemPrompt}}, conv.Messages...)
	return conv, nil
}

// readSystem reads -sysf, and checks what --chat-template-file names.
func (o *options) readSystem() error {
	if o.systemFile == "" {
		return nil
	}
	data, err := os.ReadFile(o.systemFile)
	if err != nil {
		return &inputError{err: fmt.Errorf("-sysf: %w", err)}
	}
	o.SystemPrompt = strings.TrimSuffix(string(data), "\n")
	if strings.TrimSpace(o.SystemPrompt) == "" {
		return &inputError{err: fmt.Errorf("-sysf: %s holds nothing", o.systemFile)}
	}
	return nil
}

// errNoTemplate says that the model's file has no chat template, and none was given.
var errNoTemplate = usagef("the model has no chat template").withHint("--chat-template chatml, or another; none writes the texts of the messages one after the other")

// noTemplate is the template that is none.
const noTemplate = "none"

// template finds the chat template of the flags, or the model's. none says that the texts of the messages are to be the prompt.
func (o *options) template(f *gguf.File) (t engine.ChatTemplateOptions, none bool, err error) {
	if o.templateFile != "" {
		t.Source, err = readTemplate(o.templateFile)
		return t, false, err
	}
	name := o.ChatTemplate
	const key = "tokenizer.chat_template"
	has := func(key string) bool {
		s, ok := f.Str(key)
		return ok && s != ""
	}
	switch {
	case name == "" && !has(key) && !has(key+".tool_use"):
		return t, false, errNoTemplate
	case name == "":
		return t, false, nil
	case name == noTemplate:
		return t, true, nil
	case slices.Contains(engine.BuiltinChatTemplates(), name), strings.Contains(name, "{%"), strings.Contains(name, "{{"):
		t.Source = name
		return t, false, nil
	case has(key + "." + name):
		t.Name = name
		return t, false, nil
	}
	if _, err := os.Stat(name); err != nil {
		return t, false, usagef("--chat-template: %q is no file, and no name of a template", name).
			withHint("the names are %s and %s", noTemplate, strings.Join(engine.BuiltinChatTemplates(), ", "))
	}
	t.Source, err = readTemplate(name)
	return t, false, err
}

func readTemplate(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", &inputError{err: fmt.Errorf("--chat-template: %w", err)}
	}
	if len(data) == 0 {
		return "", &inputError{err: fmt.Errorf("--chat-template: %s holds nothing", path)}
	}
	return string(data), nil
}

// checkTemplate finds a wrong --chat-template before the model is loaded. A file that cannot be read
// is left to the engine, which says more.
func checkTemplate(o *options) error {
	if !o.chatting() && (o.recordsFile == "" || o.ChatTemplate == "" && o.templateFile == "") {
		return nil
	}
	f, err := gguf.Open(o.Model)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	_, _, err = o.template(f)
	return err
}

// openChat returns what turns conversations with m into prompts, and closes it with done.
func openChat(o *options, m *engine.Model) (c *completion.Chat, done func(), err error) {
	f, err := gguf.Open(o.Model)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }()
	t, none, err := o.template(f)
	if err != nil {
		return nil, nil, err
	}
	c = &completion.Chat{Vocab: m.Vocab(), Converse: o.chatting()}
	if o.recordsFile != "" {
		c.System = o.SystemPrompt
	}
	if c.ChatSettings, err = o.chatSettings(); err != nil {
		return nil, nil, err
	}
	if none {
		return c, func() {}, nil
	}
	if c.Template, err = engine.NewChatTemplate(m, t); err != nil {
		return nil, nil, err
	}
	return c, func() { _ = c.Template.Close() }, nil // only memory
}
