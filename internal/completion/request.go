package completion

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gollama/internal/engine"
	"gollama/internal/pipeline"
)

// Codes of records that fail, beside those of package pipeline.
const (
	CodeUnknownField  = "unknown_field"
	CodeInvalidValue  = "invalid_value"
	CodeUnsupported   = "unsupported"
	CodePromptTooLong = "prompt_too_long"
	CodeEmptyPrompt   = "empty_prompt"
	CodeFailed        = "failed"
)

// form is how a record is written, and its result.
type form int

const (
	formOwn         form = iota // {"id", "prompt", ...}
	formCompletions             // OpenAI's batch form, url /v1/completions
	formChat                    // the same, url /v1/chat/completions
)

// parsed is a record as a request, with what its result needs; it is the
// request's Tag.
type parsed struct {
	rec      *pipeline.Record
	form     form
	messages json.RawMessage
	conv     Conversation // but for its messages
	tools    bool         // there are tools, or a word about them
	prefill  string
	chatTop  *int // top_logprobs
	chatLP   bool // logprobs: true
	chat     *ChatAnswer
}

// Requests makes requests of records.
type Requests struct {
	Default Request // the run's settings, which a record's own replace
	Key     func(r *pipeline.Record) string
	Model   string // that results in OpenAI's form name
	Chat    *Chat  // for messages; nil refuses them
	NoChat  string // why, if not because the model has no template
	grammar map[string]string
}

// valueError says what is wrong with the field of a record.
func valueError(field, format string, args ...any) error {
	return &pipeline.RecordError{Code: CodeInvalidValue, Msg: field + ": " + fmt.Sprintf(format, args...)}
}

// decodeError is valueError for what is wrong within the field.
func decodeError(field string, err error) error {
	return &pipeline.RecordError{Code: CodeInvalidValue, Msg: pipeline.JSONAt(field, err).Error()}
}

// Parse makes a request of a record, in our form or in OpenAI's batch form. The
// error, always the record's own, is a *pipeline.RecordError.
func (q *Requests) Parse(rec *pipeline.Record) (*Request, error) {
	p := &parsed{rec: rec}
	r := q.Default
	r.Options.ID, r.Tag = rec.ID, p
	if q.Chat != nil {
		p.conv.ChatSettings = q.Chat.ChatSettings
	}
	fields := rec.Fields
	if _, ok := fields["body"]; ok || fields["custom_id"] != nil {
		var err error
		if fields, err = p.openEnvelope(fields); err != nil {
			return nil, err
		}
	}
	if err := q.set(&r, p, fields); err != nil {
		return nil, err
	}
	if p.messages != nil {
		if err := q.converse(&r, p); err != nil {
			return nil, err
		}
	}
	r.Prompt += p.prefill
	if len(r.Tokens) > 0 && p.prefill != "" {
		return nil, valueError("prefill", "the prompt is token ids: add those of the prefill to it")
	}
	if err := q.constrain(&r); err != nil {
		return nil, err
	}
	r.NProbs = max(r.NProbs, 0)
	r.Sampling.NProbs = r.NProbs
	if err := r.Sampling.Validate(); err != nil {
		return nil, &pipeline.RecordError{Code: CodeInvalidValue, Msg: err.Error()}
	}
	return &r, nil
}

// set takes over the fields of a record.
func (q *Requests) set(r *Request, p *parsed, fields map[string]json.RawMessage) error {
	var prompt bool
	for _, name := range sortedNames(fields) {
		set, ok := requestFields[name]
		if p.form == formOwn && (name == "id") {
			continue
		}
		if p.form != formOwn && slices.Contains(ignoredFields, name) {
			continue
		}
		if !ok {
			return &pipeline.RecordError{Code: CodeUnknownField, Msg: fmt.Sprintf("unknown field %q", name)}
		}
		if string(fields[name]) == "null" && name != "prompt" && name != "messages" {
			continue // as if it were not there
		}
		if err := set(r, p, fields[name]); err != nil {
			var e *pipeline.RecordError
			if errors.As(err, &e) {
				return err
			}
			return decodeError(name, err)
		}
		prompt = prompt || name == "prompt"
	}
	if prompt && q.Chat != nil && q.Chat.Converse && p.form != formCompletions && p.messages == nil {
		if err := p.converse(r, fields["prompt"]); err != nil {
			return err
		}
		prompt = false
	}
	chat := p.messages != nil
	switch {
	case prompt && chat:
		return valueError("messages", "there is a prompt, too: give one of them")
	case p.form == formChat && prompt:
		return valueError("prompt", "%s takes messages", urlChat)
	case p.form == formCompletions && chat:
		return valueError("messages", "%s takes a prompt", urlCompletions)
	case !prompt && !chat:
		return valueError("prompt", "there is neither a prompt nor messages")
	case chat && q.Chat == nil:
		why := q.NoChat
		if why == "" {
			why = "the model has no chat template"
		}
		return &pipeline.RecordError{Code: CodeUnsupported, Msg: "messages: " + why}
	case !chat && p.tools:
		return valueError("tools", "they go with messages")
	case chat && r.Echo:
		return valueError("echo", "it goes with a prompt, not with messages")
	}
	if err := oneShape(fields); err != nil {
		return err
	}
	return p.chatLogprobs(r)
}

// oneShape refuses a record that says twice what the answer is to look like.
func oneShape(fields map[string]json.RawMessage) error {
	var shapes []string
	for _, name := range []string{"grammar", "json_schema", "response_format"} {
		if raw := fields[name]; raw != nil && string(raw) != "null" {
			shapes = append(shapes, name)
		}
	}
	if len(shapes) > 1 {
		return valueError(shapes[0], "there is %s, too: give one of them", shapes[1])
	}
	return nil
}

// chatLogprobs puts together logprobs and top_logprobs.
func (p *parsed) chatLogprobs(r *Request) error {
	if p.chatTop != nil && !p.chatLP {
		return valueError("top_logprobs", "it needs logprobs to be true")
	}
	if p.chatLP {
		r.NProbs = 1
		if p.chatTop != nil {
			r.NProbs = max(*p.chatTop, 1)
		}
	}
	return nil
}

func sortedNames(fields map[string]json.RawMessage) []string {
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names) // which of two errors is told must not be chance
	return names
}

// constrain turns a schema into its grammar, and checks a grammar, so that a
// wrong one never leaves the answer free.
func (q *Requests) constrain(r *Request) error {
	s := &r.Sampling
	r.Grammar = s.Grammar != "" || s.JSONSchema != ""
	if !r.Grammar {
		return nil
	}
	key := s.Grammar + "\x00" + s.JSONSchema
	grammar, ok := q.grammar[key]
	if !ok {
		var err error
		if grammar, err = s.Grammar, nil; s.JSONSchema != "" {
			grammar, err = engine.SchemaToGrammar(s.JSONSchema)
		}
		if err == nil {
			err = engine.CheckGrammar(grammar)
		}
		if err != nil {
			return &pipeline.RecordError{Code: CodeInvalidValue, Msg: strings.ReplaceAll(err.Error(), "\n", " ")}
		}
		// Records of one run have a few schemas between them, not one each.
		if q.grammar == nil || len(q.grammar) >= 256 {
			q.grammar = map[string]string{}
		}
		q.grammar[key] = grammar
	}
	s.Grammar, s.JSONSchema = grammar, ""
	return nil
}

// setter takes over the value of one field.
type setter func(r *Request, p *parsed, raw json.RawMessage) error

// requestFields are the fields of a record, and of the body in OpenAI's form.
var requestFields = map[string]setter{
	"prompt": setPrompt,
	"prefill": func(_ *Request, p *parsed, raw json.RawMessage) (err error) {
		p.prefill, err = pipeline.Text(raw)
		return err
	},
	"n": func(r *Request, p *parsed, raw json.RawMessage) error {
		return intField(&r.N, raw, 1, maxTexts)
	},
	"max_tokens":            setMaxTokens,
	"max_completion_tokens": setMaxTokens,
	"temp":                  floatField(func(r *Request) *float32 { return &r.Sampling.Temp }, 0, math.MaxFloat32, engine.ConfigTemp),
	"temperature":           floatField(func(r *Request) *float32 { return &r.Sampling.Temp }, 0, math.MaxFloat32, engine.ConfigTemp),
	"top_p":                 floatField(func(r *Request) *float32 { return &r.Sampling.TopP }, 0, 1, engine.ConfigTopP),
	"min_p":                 floatField(func(r *Request) *float32 { return &r.Sampling.MinP }, 0, 1, engine.ConfigMinP),
	"repeat_penalty":        floatField(func(r *Request) *float32 { return &r.Sampling.PenaltyRepeat }, 1e-30, math.MaxFloat32, engine.ConfigPenaltyRepeat),
	"frequency_penalty":     floatField(func(r *Request) *float32 { return &r.Sampling.PenaltyFreq }, -math.MaxFloat32, math.MaxFloat32, 0),
	"presence_penalty":      floatField(func(r *Request) *float32 { return &r.Sampling.PenaltyPresent }, -math.MaxFloat32, math.MaxFloat32, 0),
	"top_k": func(r *Request, _ *parsed, raw json.RawMessage) error {
		r.Sampling.UserSamplingConfig |= engine.ConfigTopK
		return intField(&r.Sampling.TopK, raw, -1, math.MaxInt32)
	},
	"seed": func(r *Request, _ *parsed, raw json.RawMessage) error {
		var n int
		err := intField(&n, raw, 0, math.MaxUint32)
		r.Sampling.Seed = uint32(n)
		return err
	},
	"stop":       setStop,
	"logit_bias": setLogitBias,
	"grammar": func(r *Request, _ *parsed, raw json.RawMessage) (err error) {
		r.Sampling.Grammar, err = pipeline.Text(raw)
		r.Sampling.JSONSchema = ""
		return err
	},
	"json_schema": func(r *Request, _ *parsed, raw json.RawMessage) error {
		text := string(raw)
		if raw[0] == '"' {
			var err error
			if text, err = pipeline.Text(raw); err != nil {
				return err
			}
		}
		r.Sampling.JSONSchema, r.Sampling.Grammar = text, ""
		return nil
	},
	"response_format": setResponseFormat,
	"logprobs":        setLogprobs,
	"top_logprobs": func(_ *Request, p *parsed, raw json.RawMessage) error {
		p.chatTop = new(int)
		return intField(p.chatTop, raw, 0, maxProbs)
	},
	"prompt_logprobs": func(r *Request, _ *parsed, raw json.RawMessage) error { return boolField(&r.PromptLogprobs, raw) },
	"echo":            func(r *Request, _ *parsed, raw json.RawMessage) error { return boolField(&r.Echo, raw) },
	"messages":        func(_ *Request, p *parsed, raw json.RawMessage) error { p.messages = raw; return nil },
	"stream": func(_ *Request, _ *parsed, raw json.RawMessage) error {
		var on bool
		if err := boolField(&on, raw); err != nil || !on {
			return err
		}
		return errors.New("a batch has no streams: leave it out")
	},
}

// Bounds of what a record may ask for.
const (
	maxTexts = 1024 // n
	maxProbs = 1000 // alternatives, as --logprobs
)

// ignoredFields of OpenAI's form say nothing about the answer.
var ignoredFields = []string{"model", "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"}

func setPrompt(r *Request, _ *parsed, raw json.RawMessage) (err error) {
	if raw[0] != '[' {
		r.Prompt, err = pipeline.Text(raw)
		return err
	}
	var ids []*engine.Token // pointers, for null would be token 0
	if err := pipeline.Decode(raw, &ids); err != nil {
		return err
	}
	if len(ids) == 0 {
		return &pipeline.RecordError{Code: CodeEmptyPrompt, Msg: "prompt: the array has no token ids"}
	}
	r.Tokens = make([]engine.Token, len(ids))
	for i, id := range ids {
		if id == nil {
			return pipeline.JSONAt("["+strconv.Itoa(i)+"]", errors.New("got null, want a token id"))
		}
		r.Tokens[i] = *id
	}
	return nil
}

func setMaxTokens(r *Request, _ *parsed, raw json.RawMessage) error {
	return intField(&r.NPredict, raw, 0, math.MaxInt32)
}

func setStop(r *Request, _ *parsed, raw json.RawMessage) error {
	r.Stop = nil
	list := []json.RawMessage{raw}
	if raw[0] == '[' {
		list = nil
		if err := pipeline.Decode(raw, &list); err != nil {
			return err
		}
	}
	for _, one := range list {
		s, err := pipeline.Text(one)
		if err != nil {
			return err
		}
		if s == "" {
			return errors.New("an empty stop text would end every answer at once")
		}
		r.Stop = append(r.Stop, s)
	}
	return nil
}

func setLogitBias(r *Request, _ *parsed, raw json.RawMessage) error {
	var m map[string]float64
	if err := pipeline.Decode(raw, &m); err != nil {
		return errors.New(`want an object of numbers by token id, such as {"317": -100}`)
	}
	r.Sampling.LogitBias = slices.Clone(r.Sampling.LogitBias)
	for id, bias := range m {
		n, err := strconv.ParseInt(id, 10, 32)
		if err != nil || n < 0 {
			return fmt.Errorf("%q is no token id", id)
		}
		r.Sampling.LogitBias = append(r.Sampling.LogitBias, engine.LogitBias{Token: engine.Token(n), Bias: float32(bias)})
	}
	slices.SortStableFunc(r.Sampling.LogitBias, func(a, b engine.LogitBias) int { return int(a.Token) - int(b.Token) })
	return nil
}

// setLogprobs takes a number of alternatives, or as in OpenAI's chat form true.
func setLogprobs(r *Request, p *parsed, raw json.RawMessage) error {
	if p.form == formChat || raw[0] == 't' || raw[0] == 'f' {
		return boolField(&p.chatLP, raw)
	}
	return intField(&r.NProbs, raw, 0, maxProbs)
}

// setResponseFormat takes OpenAI's way to ask for JSON.
func setResponseFormat(r *Request, _ *parsed, raw json.RawMessage) error {
	var f struct {
		Type       string `json:"type"`
		JSONSchema struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	}
	if err := pipeline.Decode(raw, &f); err != nil {
		return err
	}
	switch {
	case f.Type == "text":
		return nil
	case f.Type == "json_object":
		r.Sampling.JSONSchema, r.Sampling.Grammar = `{"type":"object"}`, ""
		return nil
	case f.Type == "json_schema" && len(f.JSONSchema.Schema) > 0:
		r.Sampling.JSONSchema, r.Sampling.Grammar = string(f.JSONSchema.Schema), ""
		return nil
	}
	return fmt.Errorf("type %q, want text, json_object, or json_schema with its schema", f.Type)
}

func intField(to *int, raw json.RawMessage, lo, hi int64) error {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		return fmt.Errorf("want a whole number, got %s", shown(raw))
	}
	if n < lo || n > hi {
		return fmt.Errorf("%d, want %d to %d", n, lo, hi)
	}
	*to = int(n)
	return nil
}

func floatField(p func(*Request) *float32, lo, hi float64, bit engine.SamplingConfig) setter {
	return func(r *Request, _ *parsed, raw json.RawMessage) error {
		v, err := strconv.ParseFloat(string(raw), 32)
		if err != nil {
			return fmt.Errorf("want a number, got %s", shown(raw))
		}
		if v < lo || v > hi {
			return fmt.Errorf("%v, want %v to %v", v, lo, hi)
		}
		*p(r) = float32(v)
		r.Sampling.UserSamplingConfig |= bit
		return nil
	}
}

func boolField(to *bool, raw json.RawMessage) error {
	if err := pipeline.Decode(raw, to); err != nil {
		return fmt.Errorf("want true or false, got %s", shown(raw))
	}
	return nil
}

// shown returns a value for a message: itself if it is short.
func shown(raw json.RawMessage) string {
	if len(raw) > 40 {
		return pipeline.Kind(raw)
	}
	return string(raw)
}

// errorOf returns what an error says to a program and to a reader.
func errorOf(err error) (code, msg string) {
	var rec *pipeline.RecordError
	var long *PromptTooLongError
	switch {
	case errors.As(err, &rec):
		return rec.Code, err.Error()
	case errors.As(err, &long):
		return CodePromptTooLong, err.Error()
	case errors.Is(err, ErrEmptyPrompt):
		return CodeEmptyPrompt, err.Error()
	}
	return CodeFailed, err.Error()
}
