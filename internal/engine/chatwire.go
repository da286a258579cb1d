package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"gollama/internal/pipeline"
)

// wireMessage is a message in OpenAI's JSON, which llama.cpp reads too.
type wireMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content,omitempty"` // string, array of parts, or null
	Reasoning  string          `json:"reasoning_content,omitempty"`
	ToolCalls  []wireCall      `json:"tool_calls,omitempty"`
	Name       string          `json:"name,omitempty"`
	ToolCallID string          `json:"tool_call_id,omitempty"`
}

type wireCall struct {
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"` // a string that is JSON, or the object itself
	} `json:"function"`
}

type wireTool struct {
	Type     string       `json:"type"`
	Function wireFunction `json:"function"`
}

type wireFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

// marshal is json.Marshal without the escapes for HTML, which would come out in prompts.
func marshal(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// MarshalJSON writes OpenAI's form.
func (m ChatMessage) MarshalJSON() ([]byte, error) {
	w := wireMessage{Role: m.Role, Reasoning: m.Reasoning, Name: m.Name, ToolCallID: m.ToolCallID}
	content := any(m.Content)
	if len(m.Parts) > 0 {
		content = m.Parts
	}
	var err error
	if w.Content, err = marshal(content); err != nil {
		return nil, err
	}
	for _, c := range m.ToolCalls {
		wc := wireCall{ID: c.ID, Type: "function"}
		wc.Function.Name = c.Name
		if wc.Function.Arguments, err = marshal(c.Arguments); err != nil {
			return nil, err
		}
		w.ToolCalls = append(w.ToolCalls, wc)
	}
	return marshal(w)
}

// UnmarshalJSON reads OpenAI's form: content as a string, parts or null, arguments as a string or
// an object. Members that it does not know are left out.
func (m *ChatMessage) UnmarshalJSON(b []byte) error {
	var w wireMessage
	if err := pipeline.Decode(b, &w); err != nil {
		return err
	}
	*m = ChatMessage{Role: w.Role, Reasoning: w.Reasoning, Name: w.Name, ToolCallID: w.ToolCallID}
	switch {
	case len(w.Content) == 0 || string(w.Content) == "null":
	case w.Content[0] == '"':
		if err := pipeline.Decode(w.Content, &m.Content); err != nil {
			return pipeline.JSONAt("content", err)
		}
	case w.Content[0] == '[':
		if err := pipeline.Decode(w.Content, &m.Parts); err != nil {
			return pipeline.JSONAt("content", err)
		}
	default:
		return pipeline.JSONAt("content", fmt.Errorf("got %s, want a string or an array of parts", pipeline.Kind(w.Content)))
	}
	for i, c := range w.ToolCalls {
		place := fmt.Sprintf("tool_calls[%d]", i)
		if c.Type != "" && c.Type != "function" {
			return pipeline.JSONAt(place+".type", fmt.Errorf("got %q, want function", c.Type))
		}
		call := ToolCall{ID: c.ID, Name: c.Function.Name, Arguments: string(c.Function.Arguments)}
		if strings.HasPrefix(call.Arguments, `"`) {
			if err := pipeline.Decode(c.Function.Arguments, &call.Arguments); err != nil {
				return pipeline.JSONAt(place+".function.arguments", err)
			}
		}
		m.ToolCalls = append(m.ToolCalls, call)
	}
	return nil
}

// MarshalJSON writes OpenAI's form.
func (t ChatTool) MarshalJSON() ([]byte, error) {
	return marshal(wireTool{Type: "function", Function: wireFunction(t)})
}

// UnmarshalJSON reads OpenAI's form.
func (t *ChatTool) UnmarshalJSON(b []byte) error {
	var w wireTool
	if err := pipeline.Decode(b, &w); err != nil {
		return err
	}
	if w.Type != "function" {
		return pipeline.JSONAt("type", fmt.Errorf("got %q, want function", w.Type))
	}
	*t = ChatTool(w.Function)
	return nil
}

// reservedKwargs are variables that Apply sets itself.
var reservedKwargs = []string{"messages", "tools", "add_generation_prompt", "gl_now"}

// check returns what is wrong with in before llama.cpp sees it.
func (in *ChatInput) check() error {
	if len(in.Messages) == 0 {
		return errors.New("the conversation has no messages")
	}
	for i, m := range in.Messages {
		if err := m.check(); err != nil {
			return fmt.Errorf("message %d: %w", i+1, err)
		}
	}
	for i, t := range in.Tools {
		if err := t.check(); err != nil {
			return fmt.Errorf("tool %d: %w", i+1, err)
		}
	}
	for k, v := range in.Kwargs {
		if slices.Contains(reservedKwargs, k) {
			return fmt.Errorf("chat template kwargs: %q is set by the program", k)
		}
		if !json.Valid(v) {
			return fmt.Errorf("chat template kwargs: %q is not valid JSON", k)
		}
	}
	return in.checkChoices()
}

func (in *ChatInput) checkChoices() error {
	last := in.Messages[len(in.Messages)-1]
	switch {
	case !slices.Contains([]string{ContinueNone, ContinueAuto, ContinueReasoning, ContinueContent}, in.Continue):
		return fmt.Errorf("continue: %q, want auto, content or reasoning_content", in.Continue)
	case in.Continue != ContinueNone && in.AddGenerationPrompt:
		return errors.New("a message that is continued excludes a generation prompt")
	case in.Continue != ContinueNone && last.Role != "assistant":
		return fmt.Errorf("the last message is of role %q: only one of the assistant can be continued", last.Role)
	case in.ToolChoice != "" && !slices.Contains(ToolChoices, in.ToolChoice):
		return fmt.Errorf("tool choice: %q, want %s", in.ToolChoice, strings.Join(ToolChoices, ", "))
	case in.ReasoningFormat != "" && !slices.Contains(ReasoningFormats, in.ReasoningFormat):
		return fmt.Errorf("reasoning format: %q, want %s", in.ReasoningFormat, strings.Join(ReasoningFormats, ", "))
	case in.JSONSchema != "" && in.Grammar != "":
		return errors.New("a JSON schema and a grammar exclude each other")
	case !utf8.ValidString(in.JSONSchema + in.Grammar):
		return errors.New("the JSON schema or grammar is not UTF-8")
	}
	return nil
}

func (m *ChatMessage) check() error {
	switch {
	case m.Role == "":
		return errors.New("it has no role")
	case m.Content != "" && len(m.Parts) > 0:
		return errors.New("it has content both as text and in parts")
	}
	texts := []string{m.Role, m.Content, m.Reasoning, m.ToolCallID, m.Name}
	for i, p := range m.Parts {
		if p.Type != "text" && p.Type != "media_marker" {
			return fmt.Errorf("content part %d: type %q, want text or media_marker", i+1, p.Type)
		}
		texts = append(texts, p.Text)
	}
	for i, c := range m.ToolCalls {
		if c.Name == "" {
			return fmt.Errorf("tool call %d: it has no function name", i+1)
		}
		texts = append(texts, c.ID, c.Name, c.Arguments)
	}
	for _, s := range texts {
		if !utf8.ValidString(s) {
			return errors.New("it is not UTF-8")
		}
	}
	return nil
}

func (t *ChatTool) check() error {
	switch {
	case t.Name == "":
		return errors.New("it has no name")
	case !utf8.ValidString(t.Name + t.Description + string(t.Parameters)):
		return errors.New("it is not UTF-8")
	case len(t.Parameters) > 0 && !json.Valid(t.Parameters):
		return errors.New("its parameters are not valid JSON")
	}
	return nil
}

// wireInput is what gl_chat_apply reads.
type wireInput struct {
	Messages            []ChatMessage              `json:"messages"`
	Tools               []ChatTool                 `json:"tools,omitempty"`
	ToolChoice          string                     `json:"tool_choice,omitempty"`
	ParallelToolCalls   bool                       `json:"parallel_tool_calls,omitempty"`
	AddGenerationPrompt bool                       `json:"add_generation_prompt,omitempty"`
	Continue            string                     `json:"continue,omitempty"`
	EnableThinking      bool                       `json:"enable_thinking"`
	ReasoningFormat     string                     `json:"reasoning_format,omitempty"`
	Kwargs              map[string]json.RawMessage `json:"kwargs,omitempty"`
	Now                 int64                      `json:"now"` // seconds since 1970
	JSONSchema          string                     `json:"json_schema,omitempty"`
	Grammar             string                     `json:"grammar,omitempty"`
	PromptOnly          bool                       `json:"prompt_only,omitempty"`
	ToolSchemas         map[string]json.RawMessage `json:"tool_schemas,omitempty"` // what the grammar is made of, by name
}

func (in *ChatInput) wire(promptOnly bool) (json.RawMessage, error) {
	schema := in.JSONSchema
	if schema != "" {
		var err error
		if schema, err = normalizeSchema(schema); err != nil {
			return nil, err
		}
	}
	w := wireInput{
		Messages: in.Messages, Tools: in.Tools, ToolChoice: in.ToolChoice, ParallelToolCalls: in.ParallelToolCalls,
		AddGenerationPrompt: in.AddGenerationPrompt, Continue: in.Continue, EnableThinking: !in.NoThinking,
		ReasoningFormat: in.ReasoningFormat, Kwargs: in.Kwargs, Now: in.Now.Unix(), JSONSchema: schema, Grammar: in.Grammar,
		PromptOnly: promptOnly,
	}
	if !promptOnly && in.ToolChoice != "none" {
		var err error
		if w.ToolSchemas, err = in.toolSchemas(); err != nil {
			return nil, err
		}
	}
	if in.Now.IsZero() {
		w.Now = time.Now().Unix()
	}
	// The parser must know what the template is told.
	switch string(in.Kwargs["enable_thinking"]) {
	case "true":
		w.EnableThinking = true
	case "false":
		w.EnableThinking = false
	}
	return marshal(w)
}

// wirePrompt is what gl_chat_apply writes.
type wirePrompt struct {
	Format           int              `json:"format"`
	Prompt           string           `json:"prompt"`
	GenerationPrompt string           `json:"generation_prompt"`
	Grammar          string           `json:"grammar"`
	GrammarLazy      bool             `json:"grammar_lazy"`
	Triggers         []GrammarTrigger `json:"grammar_triggers"`
	Thinking         bool             `json:"supports_thinking"`
	ThinkingStart    string           `json:"thinking_start"`
	ThinkingEnds     []string         `json:"thinking_ends"`
	Preserved        []string         `json:"preserved_tokens"`
	Stops            []string         `json:"stops"`
	Parser           string           `json:"parser"`
}

func (w *wirePrompt) prompt(in *ChatInput) *ChatPrompt {
	return &ChatPrompt{
		Text: w.Prompt, GenerationPrompt: w.GenerationPrompt, Grammar: w.Grammar, GrammarLazy: w.GrammarLazy,
		Triggers: w.Triggers, Preserved: w.Preserved, Stops: w.Stops,
		Thinking: w.Thinking, ThinkingStart: w.ThinkingStart, ThinkingEnds: w.ThinkingEnds,
		format: w.Format, parser: w.Parser, reasoning: in.ReasoningFormat,
		generation: in.AddGenerationPrompt || in.Continue != ContinueNone,
	}
}

// wireParser is what gl_chat_parser_new reads.
type wireParser struct {
	Format           int    `json:"format"`
	GenerationPrompt string `json:"generation_prompt"`
	ReasoningFormat  string `json:"reasoning_format,omitempty"`
	Parser           string `json:"parser"`
}

// jinjaError matches an error of the template engine, which quotes the template in several lines.
var jinjaError = regexp.MustCompile(`(?s)^.*While executing \w+ at line (\d+), column (\d+) in source:.*\nError: (?:Jinja Exception: )?(.*)$`)

// templateCause makes one short line of the text of an error in a template. clocked tells that a
// line that is not the template's own stands before it.
func templateCause(msg string, clocked bool) string {
	if m := jinjaError.FindStringSubmatch(msg); m != nil {
		line, _ := strconv.Atoi(m[1])
		if clocked {
			line--
		}
		return fmt.Sprintf("line %d, column %s: %s", line, m[2], shorten(cleanCause(m[3])))
	}
	msg = cleanCause(msg)
	for _, p := range []string{"Unable to generate parser for this template. Automatic parser generation failed: ",
		"Failed to parse messages: ", "error: "} {
		msg = strings.TrimPrefix(msg, p)
	}
	return shorten(msg)
}
