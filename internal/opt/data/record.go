package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"gollama/internal/engine"
	"gollama/internal/pipeline"
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
	if err := pipeline.Decode(b, &w); err != nil {
		return err
	}
	if w.Weight != nil && !(*w.Weight >= 0 && *w.Weight <= maxWeight) {
		return pipeline.JSONAt("weight", fmt.Errorf("got %v, want 0 to %d", *w.Weight, maxWeight))
	}
	m.Weight = w.Weight
	return pipeline.Decode(b, &m.ChatMessage)
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
		Text       *string         `json:"text"`
		Prompt     *string         `json:"prompt"`
		Completion *string         `json:"completion"`
		Messages   json.RawMessage `json:"messages"`
		Tools      json.RawMessage `json:"tools"`
	}
	if err := pipeline.Decode(line, &w); err != nil {
		return r, err
	}
	if err := pipeline.DecodeList(w.Messages, &r.messages); err != nil {
		return r, pipeline.JSONAt("messages", err)
	}
	if err := pipeline.DecodeList(w.Tools, &r.tools); err != nil {
		return r, pipeline.JSONAt("tools", err)
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
	if len(w.Messages) > 0 && string(w.Messages) != "null" {
		forms++
		if len(r.messages) == 0 {
			return r, errors.New(`"messages" is empty`)
		}
	}
	if forms != 1 {
		return r, fmt.Errorf(`%d of "text", "prompt" with "completion", and "messages": want one`, forms)
	}
	return r, nil
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
