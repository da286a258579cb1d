package completion

import (
	"encoding/json"
	"fmt"

	"gollama/internal/pipeline"
)

// OpenAI's batch form: a line {custom_id, method, url, body} becomes a line
// {id, custom_id, response or error}.
const (
	urlCompletions = "/v1/completions"
	urlChat        = "/v1/chat/completions"
	openIDPrefix   = "batch_req_"
)

func openID(key string) string { return openIDPrefix + key }

// openEnvelope returns the members of a request's body.
func (p *parsed) openEnvelope(fields map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	for _, name := range sortedNames(fields) {
		switch name {
		case "custom_id", "method", "url", "body":
		default:
			return nil, &pipeline.RecordError{Code: CodeUnknownField, Msg: fmt.Sprintf("unknown field %q beside custom_id, method, url and body", name)}
		}
	}
	text := map[string]string{}
	for _, name := range []string{"custom_id", "method", "url"} {
		s, err := pipeline.Text(fields[name])
		if err != nil {
			return nil, valueError(name, "%s", err)
		}
		text[name] = s
	}
	if text["method"] != "POST" {
		return nil, valueError("method", "%q, want POST", text["method"])
	}
	switch text["url"] {
	case urlCompletions:
		p.form = formCompletions
	case urlChat:
		p.form = formChat
	default:
		return nil, valueError("url", "%q, want %s or %s", text["url"], urlCompletions, urlChat)
	}
	body, err := pipeline.Members(fields["body"])
	if err != nil {
		return nil, valueError("body", "%s", err)
	}
	if raw, ok := body["model"]; ok {
		// It is checked and has no effect: a run has one model.
		if _, err := pipeline.Text(raw); err != nil {
			return nil, valueError("model", "%s", err)
		}
	}
	return body, nil
}

type openResult struct {
	ID       string          `json:"id"`
	CustomID json.RawMessage `json:"custom_id"`
	Response *openResponse   `json:"response"`
	Error    *errorBody      `json:"error"`
}

type openResponse struct {
	StatusCode int      `json:"status_code"`
	RequestID  string   `json:"request_id"`
	Body       openBody `json:"body"`
}

type openBody struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int          `json:"created"` // always 0: two runs give the same bytes
	Model   string       `json:"model"`
	Choices []openChoice `json:"choices"`
	Usage   openUsage    `json:"usage"`
}

type openChoice struct {
	Index        int          `json:"index"`
	Text         *string      `json:"text,omitempty"`
	Message      *openMessage `json:"message,omitempty"`
	Logprobs     any          `json:"logprobs"`
	FinishReason string       `json:"finish_reason"`
}

type openMessage struct {
	Role      string          `json:"role"`
	Content   *string         `json:"content"`
	Reasoning string          `json:"reasoning_content,omitempty"`
	ToolCalls json.RawMessage `json:"tool_calls,omitempty"`
}

type openUsage struct {
	PromptTokens     int         `json:"prompt_tokens"`
	CompletionTokens int         `json:"completion_tokens"`
	TotalTokens      int         `json:"total_tokens"`
	Details          openDetails `json:"prompt_tokens_details"`
}

type openDetails struct {
	CachedTokens int `json:"cached_tokens"`
}

// openLine returns the result in OpenAI's form.
func (q *Requests) openLine(r Reply, p *parsed, u Usage) ([]byte, error) {
	key := q.Key(p.rec)
	body := openBody{ID: "cmpl-" + key, Object: "text_completion", Model: q.Model,
		Usage: openUsage{u.PromptTokens, u.CompletionTokens, u.PromptTokens + u.CompletionTokens, openDetails{u.CachedTokens}}}
	if p.form == formChat {
		body.ID, body.Object = "chatcmpl-"+key, "chat.completion"
	}
	for k, res := range r.Results {
		c := openChoice{Index: k, FinishReason: openReason(res.FinishReason)}
		if p.chat == nil {
			c.Text = &res.Text
			c.Logprobs = openLogprobs(res)
		} else {
			m, err := p.chat.Message(res)
			if err != nil {
				return nil, err
			}
			msg := openMessage{Role: "assistant", Content: &m.Content, Reasoning: m.Reasoning}
			if msg.ToolCalls, err = callsJSON(m); err != nil {
				return nil, err
			}
			if msg.ToolCalls != nil {
				c.FinishReason = "tool_calls"
				if m.Content == "" {
					msg.Content = nil
				}
			}
			c.Message, c.Logprobs = &msg, openChatLogprobs(res)
		}
		body.Choices = append(body.Choices, c)
	}
	return pipeline.Marshal(openResult{ID: openID(key), CustomID: json.RawMessage(r.ID),
		Response: &openResponse{StatusCode: 200, RequestID: "req_" + key, Body: body}})
}

func openReason(reason string) string {
	switch reason {
	case FinishLength, FinishContext:
		return "length"
	}
	return "stop"
}

// openLogprobs has OpenAI's form for completions; nil without any.
func openLogprobs(r Result) any {
	if len(r.Logprobs) == 0 {
		return nil
	}
	type probs struct {
		Tokens []string             `json:"tokens"`
		Logps  []float64            `json:"token_logprobs"`
		Top    []map[string]float64 `json:"top_logprobs"`
		Offset []int                `json:"text_offset"`
	}
	var out probs
	at := 0
	for _, l := range r.Logprobs {
		top := map[string]float64{}
		for _, c := range l.Top {
			if _, ok := top[c.Text]; !ok { // of two tokens with one text the likelier
				top[c.Text] = *c.Logprob
			}
		}
		out.Tokens = append(out.Tokens, l.Text)
		out.Logps = append(out.Logps, *l.Logprob)
		out.Top = append(out.Top, top)
		out.Offset = append(out.Offset, at)
		at += len([]rune(l.Text))
	}
	return out
}

// openChatLogprobs has OpenAI's form for chat; nil without any.
func openChatLogprobs(r Result) any {
	if len(r.Logprobs) == 0 {
		return nil
	}
	type token struct {
		Token   string  `json:"token"`
		Logprob float64 `json:"logprob"`
		Bytes   []int   `json:"bytes"`
		Top     []token `json:"top_logprobs,omitempty"`
	}
	convert := func(c Candidate) token {
		raw := []byte(c.Text)
		if c.Base64 != nil {
			raw = c.Base64
		}
		t := token{Token: c.Text, Logprob: *c.Logprob, Bytes: make([]int, len(raw))}
		for i, b := range raw {
			t.Bytes[i] = int(b)
		}
		return t
	}
	var list []token
	for _, l := range r.Logprobs {
		t := convert(l.Candidate)
		for _, c := range l.Top {
			t.Top = append(t.Top, convert(c))
		}
		list = append(list, t)
	}
	return map[string]any{"content": list}
}
