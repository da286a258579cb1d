package completion

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"gollama/internal/pipeline"
)

// ownResult is the result of a record in our form. Nothing in it depends on
// when and beside what the record was done, so that two runs give the same bytes.
type ownResult struct {
	Type string          `json:"type"` // "completion"
	ID   json.RawMessage `json:"id"`
	*ownText
	Choices []ownText `json:"choices,omitempty"` // with n above 1, instead
	Usage   Usage     `json:"usage"`
	NCtx    int       `json:"n_ctx"`
	*More
	Fingerprint string `json:"fingerprint"` // of the settings and the record
}

// More is what a result says beside its text where a prompt has media.
type More struct {
	Index int `json:"index"`           // of the record in the whole input, from 0
	Media any `json:"media"`           // what they are
	Cache any `json:"cache,omitempty"` // what was computed, and what was there already; it depends on what was done before
}

// ownText is one text of a result.
type ownText struct {
	Text           string          `json:"text"`
	TextBase64     []byte          `json:"text_base64,omitempty"`
	Reasoning      string          `json:"reasoning,omitempty"`
	Calls          json.RawMessage `json:"tool_calls,omitempty"`
	FinishReason   string          `json:"finish_reason"`
	Stop           string          `json:"stop"`
	StopBase64     []byte          `json:"stop_base64,omitempty"`
	Truncated      bool            `json:"truncated"`
	Seed           uint32          `json:"seed"`
	Logprobs       []TokenLogprob  `json:"logprobs,omitempty"`
	PromptLogprobs []TokenLogprob  `json:"prompt_logprobs,omitempty"`
}

// ownError is the result of a record that failed.
type ownError struct {
	Type        string          `json:"type"` // "error"
	ID          json.RawMessage `json:"id"`
	Line        int             `json:"line"` // of the input
	Error       errorBody       `json:"error"`
	Fingerprint string          `json:"fingerprint"`
}

type errorBody struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Line returns the result of a reply to a request that Parse made, as JSON.
func (q *Requests) Line(r Reply) ([]byte, error) {
	p := r.Tag.(*parsed)
	usage := Usage{}
	for k, res := range r.Results {
		usage.CompletionTokens += res.Usage.CompletionTokens
		if k == 0 {
			usage.PromptTokens, usage.CachedTokens, usage.MediaTokens, usage.NPos = res.Usage.PromptTokens, res.Usage.CachedTokens, res.Usage.MediaTokens, res.Usage.NPos
		}
	}
	if p.form != formOwn {
		return q.openLine(r, p, usage)
	}
	out := ownResult{Type: "completion", ID: json.RawMessage(r.ID), Usage: usage, NCtx: r.Results[0].NCtx, More: r.More, Fingerprint: q.Key(p.rec)}
	for _, res := range r.Results {
		t := ownText{Text: res.Text, TextBase64: res.TextBase64, FinishReason: res.FinishReason, Stop: res.Stop, StopBase64: res.StopBase64,
			Truncated: res.Truncated, Seed: res.Seed, Logprobs: res.Logprobs, PromptLogprobs: res.PromptLogprobs}
		if p.chat != nil {
			m, err := p.chat.Message(res)
			if err != nil {
				return nil, err
			}
			t.Text, t.Reasoning = m.Content, m.Reasoning
			if t.Calls, err = callsJSON(m); err != nil {
				return nil, err
			}
		}
		out.Choices = append(out.Choices, t)
	}
	if len(out.Choices) == 1 {
		out.ownText, out.Choices = &out.Choices[0], nil
	}
	return pipeline.Marshal(out)
}

// Text returns the content of a reply's first text.
func (q *Requests) Text(r Reply) (string, error) {
	res := r.Results[0]
	p := r.Tag.(*parsed)
	if p.chat == nil {
		return res.Text, nil
	}
	m, err := p.chat.Message(res)
	return m.Content, err
}

// ErrorLine returns the result of a record that failed.
func (q *Requests) ErrorLine(rec *pipeline.Record, err error) ([]byte, error) {
	code, msg := errorOf(err)
	body := errorBody{code, strings.ToValidUTF8(msg, "\ufffd")}
	if rec.Fields["custom_id"] != nil {
		return pipeline.Marshal(openResult{ID: openID(q.Key(rec)), CustomID: json.RawMessage(rec.ID), Error: &body})
	}
	return pipeline.Marshal(ownError{"error", json.RawMessage(rec.ID), rec.Line, body, q.Key(rec)})
}

// ParseLine reads a result in either form.
func ParseLine(line []byte) (pipeline.ParsedLine, error) {
	var r struct {
		ID          json.RawMessage `json:"id"`
		CustomID    json.RawMessage `json:"custom_id"`
		Fingerprint string          `json:"fingerprint"`
		Error       *errorBody      `json:"error"`
	}
	if err := pipeline.Decode(line, &r); err != nil {
		return pipeline.ParsedLine{}, fmt.Errorf("it is no result: %w", err)
	}
	p := pipeline.ParsedLine{ID: string(r.ID), Key: r.Fingerprint, Failed: r.Error != nil, Duplicate: r.Error != nil && r.Error.Code == pipeline.CodeDuplicateID}
	if r.CustomID != nil {
		var id string
		if err := pipeline.Decode(r.ID, &id); err == nil {
			p.ID, p.Key = string(r.CustomID), strings.TrimPrefix(id, openIDPrefix)
		}
	}
	if p.ID == "" || p.Key == "" {
		return p, errors.New("it is no result of gollama")
	}
	return p, nil
}

// RecordOf returns the record that Parse made a request of.
func RecordOf(r *Request) *pipeline.Record { return r.Tag.(*parsed).rec }

// TokenCount says what a request would take.
type TokenCount struct {
	Type         string          `json:"type"` // "count"
	ID           json.RawMessage `json:"id"`
	PromptTokens int             `json:"prompt_tokens"` // before truncation
	MaxTokens    int             `json:"max_tokens"`    // as asked for; -1 no limit, -2 until the context is full
	N            int             `json:"n"`
	NCtx         int             `json:"n_ctx"`     // tokens of each text's context
	Truncated    bool            `json:"truncated"` // the prompt would be cut
	Overflow     bool            `json:"overflow"`  // prompt and max_tokens do not fit together
}

// CountTokens returns what a request that Parse made would take in a context of
// ctxSeq tokens. The error is that with which the request would fail.
func CountTokens(vocab Vocab, ctxSeq int, prefix string, r *Request) (TokenCount, error) {
	c := TokenCount{Type: "count", ID: json.RawMessage(r.ID), MaxTokens: r.NPredict, N: max(r.N, 1), NCtx: ctxSeq}
	opt := r.Options
	opt.Prompt = prefix + opt.Prompt
	tokens, err := promptTokens(vocab, &opt)
	if err != nil {
		return c, err
	}
	c.PromptTokens = len(tokens)
	c.Truncated = r.Overflow == OverflowTruncate && len(tokens) >= ctxSeq
	if limit := promptLimit(ctxSeq, r.Overflow); len(tokens) > limit && !c.Truncated {
		return c, &PromptTooLongError{Tokens: len(tokens), Limit: max(limit, 0)}
	}
	c.Overflow = r.NPredict >= 0 && len(tokens)+r.NPredict > ctxSeq
	return c, nil
}
