package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"gollama/internal/engine"
)

// message is a message of a conversation. With a weight, its tokens are learned with that one,
// whatever its role.
type message struct {
	engine.ChatMessage
	Weight *float32
}

// UnmarshalJSON reads OpenAI's form, with the member weight.
func (m *message) UnmarshalJSON(b []byte) error {
	var w struct {
		Weight *float32 `json:"weight"`
	}
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	if w.Weight != nil && !(*w.Weight >= 0 && *w.Weight <= maxWeight) {
		return fmt.Errorf("a weight of %v: it is between 0 and %d", *w.Weight, maxWeight)
	}
	m.Weight = w.Weight
	return json.Unmarshal(b, &m.ChatMessage)
}

// record is what one document is made of: text, a prompt and its completion, or messages.
type record struct {
	text, prompt, completion string
	hasText, hasCompletion   bool
	messages                 []message
	tools                    []engine.ChatTool
	tokens                   []int32 // of a token file
	where                    string  // file and line, for errors
	source                   int32
	json                     bool // a line of a JSONL file
}

// parseRecord reads a line of a JSONL file.
func parseRecord(line []byte) (record, error) {
	r := record{json: true}
	if !utf8.Valid(line) {
		return r, errors.New("it is not UTF-8")
	}
	var w struct {
		Text       *string           `json:"text"`
		Prompt     *string           `json:"prompt"`
		Completion *string           `json:"completion"`
		Messages   []message         `json:"messages"`
		Tools      []engine.ChatTool `json:"tools"`
	}
	if err := json.Unmarshal(line, &w); err != nil {
		return r, jsonError(err)
	}
	forms := 0
	if w.Text != nil {
		forms++
		r.hasText, r.text = true, *w.Text
	}
	if w.Prompt != nil || w.Completion != nil {
		forms++
		if w.Prompt == nil || w.Completion == nil {
			return r, errors.New(`"prompt" and "completion" go together`)
		}
		r.hasCompletion, r.prompt, r.completion = true, *w.Prompt, *w.Completion
	}
	if w.Messages != nil {
		forms++
		r.messages, r.tools = w.Messages, w.Tools
		if len(r.messages) == 0 {
			return r, errors.New(`"messages" is empty`)
		}
	}
	if forms != 1 {
		return r, fmt.Errorf(`%d of "text", "prompt" with "completion", and "messages": want one`, forms)
	}
	return r, nil
}

// jsonError makes the text of an error of encoding/json short.
func jsonError(err error) error {
	var typ *json.UnmarshalTypeError
	if errors.As(err, &typ) {
		if typ.Field == "" {
			return fmt.Errorf("a JSON %s, want an object", typ.Value)
		}
		return fmt.Errorf("%q is a JSON %s", typ.Field, typ.Value)
	}
	var syn *json.SyntaxError
	if errors.As(err, &syn) {
		return fmt.Errorf("byte %d: %s", syn.Offset, syn.Error())
	}
	return err
}

// empty reports whether there is nothing in the record.
func (r *record) empty() bool {
	return len(r.messages) == 0 && r.text == "" && r.prompt == "" && r.completion == "" && len(r.tokens) == 0
}

// content returns what the record's hash is made of: the same for records that say the same.
func (r *record) content() []byte {
	var b bytes.Buffer
	switch {
	case r.tokens != nil:
		for _, t := range r.tokens {
			b.Write([]byte{byte(t), byte(t >> 8), byte(t >> 16), byte(t >> 24)})
		}
	case r.messages != nil:
		for i := range r.messages {
			m := &r.messages[i]
			_ = json.NewEncoder(&b).Encode(m.ChatMessage) // strings only: it cannot fail
			if m.Weight != nil {
				fmt.Fprintf(&b, "%08x", math.Float32bits(*m.Weight))
			}
		}
		_ = json.NewEncoder(&b).Encode(r.tools)
	default:
		fmt.Fprintf(&b, "%d %d\n", len(r.text), len(r.prompt))
		b.WriteString(r.text + r.prompt + r.completion)
	}
	return b.Bytes()
}
