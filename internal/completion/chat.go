package completion

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"gollama/internal/engine"
	"gollama/internal/pipeline"
)

// Chat turns the messages of records into prompts and their answers into messages.
type Chat struct {
	Template        *engine.ChatTemplate
	ReasoningFormat string // see engine.ReasoningFormats
	NoThinking      bool
	Now             time.Time // the template's clock; zero is the present
}

// chatAnswer is what belongs to the answers to a conversation.
type chatAnswer struct {
	prompt *engine.ChatPrompt
}

// converse makes the prompt of a record with messages.
func (q *Requests) converse(r *Request, p *parsed) error {
	in := engine.ChatInput{AddGenerationPrompt: true, ReasoningFormat: q.Chat.ReasoningFormat, NoThinking: q.Chat.NoThinking, Now: q.Chat.Now,
		JSONSchema: r.Sampling.JSONSchema, Grammar: r.Sampling.Grammar}
	if err := json.Unmarshal(p.messages, &in.Messages); err != nil {
		return valueError("messages", "%s", err)
	}
	if p.tools != nil {
		if err := json.Unmarshal(p.tools, &in.Tools); err != nil {
			return valueError("tools", "%s", err)
		}
	}
	if p.choice != nil {
		choice, err := pipeline.Text(p.choice)
		if err != nil {
			return valueError("tool_choice", "%s", err)
		}
		in.ToolChoice = choice
	}
	if p.prefill != "" {
		in.Messages = append(in.Messages, engine.ChatMessage{Role: "assistant", Content: p.prefill})
		in.AddGenerationPrompt, in.Continue = false, engine.ContinueAuto
	}
	prompt, err := q.Chat.Template.Apply(&in)
	if err == nil {
		r.Tokens, err = q.Chat.Template.Tokenize(prompt)
	}
	if err != nil {
		return valueError("messages", "%s", strings.ReplaceAll(err.Error(), "\n", " "))
	}
	if len(r.Tokens) == 0 {
		return &pipeline.RecordError{Code: CodeEmptyPrompt, Msg: ErrEmptyPrompt.Error()}
	}
	p.chat = &chatAnswer{prompt: prompt}
	p.prefill = ""
	r.Stop = append(r.Stop[:len(r.Stop):len(r.Stop)], prompt.Stops...)
	r.Special = r.Special || len(prompt.Preserved) > 0 // the parser looks for them
	// A lazy grammar begins to hold only at a trigger, which the samplers here do not
	// know: tools are then found by parsing alone.
	r.Sampling.JSONSchema, r.Sampling.Grammar = "", ""
	if !prompt.GrammarLazy {
		r.Sampling.Grammar = prompt.Grammar
	}
	return nil
}

// parse takes an answer apart.
func (c *chatAnswer) parse(r Result) (engine.ChatMessage, error) {
	parser, err := engine.NewChatParser(c.prompt)
	if err != nil {
		return engine.ChatMessage{}, err
	}
	m, err := parser.Parse(r.Text, r.FinishReason == FinishLength || r.FinishReason == FinishContext)
	return m, errors.Join(err, parser.Close())
}

// callsJSON returns the tool calls of a message in OpenAI's form; nil without any.
func callsJSON(m engine.ChatMessage) (json.RawMessage, error) {
	if len(m.ToolCalls) == 0 {
		return nil, nil
	}
	raw, err := json.Marshal(engine.ChatMessage{Role: "assistant", ToolCalls: m.ToolCalls})
	if err != nil {
		return nil, err
	}
	var out struct {
		Calls json.RawMessage `json:"tool_calls"`
	}
	err = json.Unmarshal(raw, &out)
	return out.Calls, err
}
