package completion

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"gollama/internal/engine"
	"gollama/internal/pipeline"
)

// converse makes the record's prompt a message of the user.
func (p *parsed) converse(r *Request, raw json.RawMessage) error {
	if len(r.Tokens) > 0 {
		return valueError("prompt", "token ids are no message: give text")
	}
	text, err := pipeline.Text(raw)
	if err != nil {
		return valueError("prompt", "%s", err)
	}
	if p.messages, err = json.Marshal([]engine.ChatMessage{{Role: "user", Content: text}}); err != nil {
		return valueError("prompt", "%s", err)
	}
	r.Prompt = ""
	return nil
}

// converse makes the prompt of a record with messages.
func (q *Requests) converse(r *Request, p *parsed) error {
	if err := pipeline.DecodeList(p.messages, &p.conv.Messages); err != nil {
		return decodeError("messages", err)
	}
	if p.prefill != "" {
		p.conv.Messages = append(p.conv.Messages, engine.ChatMessage{Role: "assistant", Content: p.prefill})
		p.conv.Whole = false
	}
	// The template's own conversion of a schema would drop what a grammar cannot express.
	asked := *r
	if err := q.constrain(&asked); err != nil {
		return err
	}
	var err error
	p.chat, err = q.Chat.Prepare(&p.conv, &r.Options, &r.Sampling)
	if errors.Is(err, ErrEmptyPrompt) {
		return &pipeline.RecordError{Code: CodeEmptyPrompt, Msg: ErrEmptyPrompt.Error()}
	}
	var rec *pipeline.RecordError
	if errors.As(err, &rec) {
		return err
	}
	if err != nil {
		return valueError("messages", "%s", strings.ReplaceAll(err.Error(), "\n", " "))
	}
	p.prefill = ""
	return nil
}

// The fields of a record that say something about its conversation.
func init() {
	for name, set := range map[string]func(c *Conversation, raw json.RawMessage) error{
		"tools":       func(c *Conversation, raw json.RawMessage) error { return pipeline.DecodeList(raw, &c.Tools) },
		"tool_choice": (*Conversation).SetToolChoice,
		"parallel_tool_calls": func(c *Conversation, raw json.RawMessage) error {
			c.Parallel = new(bool)
			return boolField(c.Parallel, raw)
		},
	} {
		requestFields[name] = func(_ *Request, p *parsed, raw json.RawMessage) error {
			p.tools = true
			return set(&p.conv, raw)
		}
	}
	for name, set := range map[string]func(c *ChatSettings, raw json.RawMessage) error{
		"chat_template_kwargs":    setKwargs,
		"reasoning":               setReasoning,
		"reasoning_effort":        setEffort,
		"reasoning_format":        setFormat,
		"reasoning_budget":        setBudget,
		"reasoning_budget_tokens": setBudget, // llama-server's name
		"now": func(c *ChatSettings, raw json.RawMessage) (err error) {
			text := string(raw)
			if raw[0] == '"' {
				if text, err = pipeline.Text(raw); err != nil {
					return err
				}
			}
			c.Now, err = ParseClock(text)
			return err
		},
	} {
		requestFields[name] = func(_ *Request, p *parsed, raw json.RawMessage) error { return set(&p.conv.ChatSettings, raw) }
	}
}

// SetToolChoice takes one of engine.ToolChoices, or OpenAI's object that names the function to be called.
func (c *Conversation) SetToolChoice(raw json.RawMessage) error {
	var one struct {
		Type     string
		Function struct{ Name string }
	}
	if raw[0] != '{' {
		choice, err := pipeline.Text(raw)
		if err != nil {
			return err
		}
		if !slices.Contains(engine.ToolChoices, choice) {
			return fmt.Errorf("%q, want %s, or an object that names a function", choice, strings.Join(engine.ToolChoices, ", "))
		}
		c.ToolChoice = choice
		return nil
	}
	if err := pipeline.Decode(raw, &one); err != nil || one.Type != "function" || one.Function.Name == "" {
		return errors.New(`want an object such as {"type":"function","function":{"name":"f"}}`)
	}
	c.OnlyTool = one.Function.Name
	return nil
}

func setKwargs(c *ChatSettings, raw json.RawMessage) error {
	var kwargs map[string]json.RawMessage
	if err := pipeline.Decode(raw, &kwargs); err != nil {
		return errors.New("want an object")
	}
	c.Kwargs = withKwargs(c.Kwargs, kwargs)
	return nil
}

// SetReasoning takes on, off or auto.
func (c *ChatSettings) SetReasoning(word string) error {
	switch word {
	case "on", "off":
		c.NoThinking = word == "off"
		c.Kwargs = withKwargs(c.Kwargs, map[string]json.RawMessage{"enable_thinking": json.RawMessage(strconv.FormatBool(word == "on"))})
	case "auto":
		c.NoThinking = false
		c.Kwargs = withKwargs(c.Kwargs, c.Kwargs) // the run's own stay
		delete(c.Kwargs, "enable_thinking")
	default:
		return fmt.Errorf("%q, want on, off or auto", word)
	}
	return nil
}

func setReasoning(c *ChatSettings, raw json.RawMessage) error {
	word, err := pipeline.Text(raw)
	if err != nil {
		return err
	}
	return c.SetReasoning(word)
}

// SetEffort takes a level that the template knows, such as low or high; none is no reasoning at all.
func (c *ChatSettings) SetEffort(level string) error {
	switch level {
	case "":
		return errors.New("the level is empty")
	case "none":
		return c.SetReasoning("off")
	}
	text, err := json.Marshal(level)
	if err == nil {
		c.Kwargs = withKwargs(c.Kwargs, map[string]json.RawMessage{"reasoning_effort": text})
	}
	return err
}

func setEffort(c *ChatSettings, raw json.RawMessage) error {
	level, err := pipeline.Text(raw)
	if err != nil {
		return err
	}
	return c.SetEffort(level)
}

func setFormat(c *ChatSettings, raw json.RawMessage) error {
	format, err := pipeline.Text(raw)
	if err != nil {
		return err
	}
	if !slices.Contains(engine.ReasoningFormats, format) {
		return fmt.Errorf("%q, want %s", format, strings.Join(engine.ReasoningFormats, ", "))
	}
	c.ReasoningFormat = format
	return nil
}

func setBudget(c *ChatSettings, raw json.RawMessage) error {
	return intField(&c.Budget, raw, -1, math.MaxInt32)
}

// ParseClock reads a time for a template's clock: seconds since 1970, or as in RFC 3339. Templates see
// it in the machine's time zone.
func ParseClock(text string) (time.Time, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		const latest = 253402300799 // the end of the year 9999
		if n < 1 || n > latest {
			return time.Time{}, fmt.Errorf("%d, want 1 to %d seconds since 1970", n, int64(latest))
		}
		return time.Unix(n, 0), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			if t.Unix() < 1 {
				return time.Time{}, fmt.Errorf("%q is before 1970", text)
			}
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q, want seconds since 1970, or a time such as 2026-05-01T12:00:00Z or 2026-05-01", text)
}
