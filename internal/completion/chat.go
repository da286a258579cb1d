package completion

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gollama/internal/engine"
	"gollama/internal/pipeline"
)

// Chat turns conversations into prompts and their answers into messages.
type Chat struct {
	Template *engine.ChatTemplate // nil: the prompt is the texts of the messages, one after the other
	Vocab    Vocab
	ChatSettings
	System   string // begins a conversation that has no system message of its own
	Converse bool   // a record's prompt is a message of the user
	// Write sets the prompt in opt of a conversation as the template has it; nil makes tokens of its text.
	Write func(p *engine.ChatPrompt, opt *Options) error
}

// ChatSettings say how a conversation is written and its answer is read. The zero value leaves
// reasoning in the content, and ends it at once: Budget is -1 for no limit.
type ChatSettings struct {
	ReasoningFormat string // see engine.ReasoningFormats
	NoThinking      bool
	Budget          int // tokens of reasoning; -1 no limit
	BudgetMessage   string
	Kwargs          map[string]json.RawMessage
	Now             time.Time // the template's clock; zero is the present
	Whole           bool      // a last message of the assistant is a whole one; else the answer goes on with it
	ParseSpecial    bool      // see engine.ChatInput
	Unparsed        bool      // the answer is content, whatever is in it
}

// Conversation is what a Chat makes a prompt of.
type Conversation struct {
	Messages   []engine.ChatMessage
	Tools      []engine.ChatTool
	ToolChoice string // one of engine.ToolChoices, "" is auto
	Parallel   *bool  // several tool calls in one answer; nil: if the template knows how
	OnlyTool   string // the one tool that must be called; empty: ToolChoice counts
	ChatSettings
}

// Errors of Prepare, beside those of the template.
var (
	errTwoAnswers  = errors.New("two messages of the assistant end the conversation: the answer can go on with one")
	errGoesOnCalls = errors.New("the answer cannot go on with a message that has tool calls")
	errPlainTools  = errors.New("without a template there are no tools")
)

// ChatAnswer reads the answers to one conversation.
type ChatAnswer struct {
	prompt *engine.ChatPrompt // nil: the answer is content
	// Of a message that the answer goes on with, what the template's parser says is there already.
	before engine.ChatMessage
}

// Prepare makes the prompt of a conversation, as Tokens of opt, and sets what else of opt and p
// belongs to its answer. A JSON schema or grammar in p holds for the answer's content.
func (c *Chat) Prepare(conv *Conversation, opt *Options, p *engine.SamplingParams) (*ChatAnswer, error) {
	in := engine.ChatInput{
		Messages: conv.Messages, Tools: conv.Tools, ToolChoice: conv.ToolChoice, AddGenerationPrompt: true,
		NoThinking: conv.NoThinking, ReasoningFormat: conv.ReasoningFormat, Kwargs: conv.Kwargs, Now: conv.Now,
		JSONSchema: p.JSONSchema, Grammar: p.Grammar, ParseSpecial: conv.ParseSpecial,
	}
	if err := conv.only(&in); err != nil {
		return nil, err
	}
	if c.System != "" && (len(in.Messages) == 0 || !isSystem(in.Messages[0])) {
		in.Messages = append([]engine.ChatMessage{{Role: "system", Content: c.System}}, in.Messages...)
	}
	if err := goOn(&in, conv.Whole); err != nil {
		return nil, err
	}
	if c.Template == nil {
		return &ChatAnswer{}, c.plain(&in, opt)
	}
	if len(in.Tools) > 0 {
		if err := c.parallel(conv, &in); err != nil {
			return nil, err
		}
	}
	prompt, err := c.Template.Apply(&in)
	if err != nil {
		return nil, err
	}
	if err := c.write(prompt, opt); err != nil {
		return nil, err
	}
	opt.Stop = append(opt.Stop[:len(opt.Stop):len(opt.Stop)], prompt.Stops...)
	prompt.Sampling(p)
	p.ReasoningBudgetTokens, p.ReasoningBudgetMessage = conv.Budget, conv.BudgetMessage
	if conv.Unparsed {
		return &ChatAnswer{}, nil
	}
	if opt.Shown, err = c.preserved(prompt); err != nil {
		return nil, err
	}
	a := &ChatAnswer{prompt: prompt}
	if in.Continue != engine.ContinueNone {
		a.before, err = a.parse("", true)
	}
	return a, err
}

// write makes the prompt of what the template made.
func (c *Chat) write(p *engine.ChatPrompt, opt *Options) (err error) {
	if c.Write != nil {
		return c.Write(p, opt)
	}
	if opt.Tokens, err = c.Template.Tokenize(p); err == nil && len(opt.Tokens) == 0 {
		err = ErrEmptyPrompt
	}
	return err
}

// only leaves the one tool that the answer must call.
func (c *Conversation) only(in *engine.ChatInput) error {
	if c.OnlyTool == "" {
		return nil
	}
	i := slices.IndexFunc(c.Tools, func(t engine.ChatTool) bool { return t.Name == c.OnlyTool })
	if i < 0 {
		return fmt.Errorf("tool choice: there is no tool %q", c.OnlyTool)
	}
	in.Tools, in.ToolChoice = c.Tools[i:i+1], "required"
	return nil
}

func isSystem(m engine.ChatMessage) bool { return m.Role == "system" || m.Role == "developer" }

// goOn lets the answer go on with a last message of the assistant.
func goOn(in *engine.ChatInput, whole bool) error {
	n := len(in.Messages)
	if whole || n == 0 || in.Messages[n-1].Role != "assistant" {
		return nil
	}
	switch {
	case n > 1 && in.Messages[n-2].Role == "assistant":
		return errTwoAnswers
	case len(in.Messages[n-1].ToolCalls) > 0:
		return errGoesOnCalls
	}
	in.AddGenerationPrompt, in.Continue = false, engine.ContinueAuto
	return nil
}

// parallel sets whether an answer may have several tool calls.
func (c *Chat) parallel(conv *Conversation, in *engine.ChatInput) error {
	if conv.Parallel != nil {
		in.ParallelToolCalls = *conv.Parallel
		return nil
	}
	caps, err := c.Template.Caps()
	in.ParallelToolCalls = caps["supports_parallel_tool_calls"]
	return err
}

// plain makes a prompt without a template.
func (c *Chat) plain(in *engine.ChatInput, opt *Options) error {
	if len(in.Tools) > 0 {
		return errPlainTools
	}
	if len(in.Messages) == 0 {
		return errors.New("the conversation has no messages")
	}
	var text strings.Builder
	for _, m := range in.Messages {
		text.WriteString(m.Content)
		for _, part := range m.Parts {
			text.WriteString(part.Text)
		}
	}
	if c.Write != nil {
		return c.Write(&engine.ChatPrompt{Text: text.String(), Segments: []engine.ChatSegment{{Text: text.String(), Literal: !in.ParseSpecial}}}, opt)
	}
	var err error
	if opt.Tokens, err = c.Vocab.Tokenize(text.String(), true, in.ParseSpecial); err != nil {
		return err
	}
	if len(opt.Tokens) == 0 {
		return ErrEmptyPrompt
	}
	return nil
}

// preserved returns the tokens whose texts the parser looks for.
func (c *Chat) preserved(prompt *engine.ChatPrompt) ([]engine.Token, error) {
	var list []engine.Token
	for _, text := range prompt.Preserved {
		ids, err := c.Vocab.Tokenize(text, false, true)
		if err != nil {
			return nil, err
		}
		if len(ids) == 1 {
			list = append(list, ids[0])
		}
	}
	return list, nil
}

// parse takes an answer apart; partial says that it is not whole.
func (a *ChatAnswer) parse(text string, partial bool) (engine.ChatMessage, error) {
	if a.prompt == nil {
		return engine.ChatMessage{Role: "assistant", Content: text}, nil
	}
	parser, err := engine.NewChatParser(a.prompt)
	if err != nil {
		return engine.ChatMessage{}, err
	}
	m, err := parser.Parse(text, partial)
	return m, errors.Join(err, parser.Close())
}

// Message takes the text of a result apart. What it goes on with is not part of it.
func (a *ChatAnswer) Message(r Result) (engine.ChatMessage, error) {
	m, err := a.parse(r.Text, isCut(r.FinishReason))
	return a.without(m), err
}

// isCut reports whether a text ended before the model, or its grammar, did.
func isCut(reason string) bool {
	return reason == FinishLength || reason == FinishContext || reason == FinishCancelled
}

// without takes away what the answer goes on with.
func (a *ChatAnswer) without(m engine.ChatMessage) engine.ChatMessage {
	m.Content = strings.TrimPrefix(m.Content, a.before.Content)
	m.Reasoning = strings.TrimPrefix(m.Reasoning, a.before.Reasoning)
	return m
}

// Whole returns a message with what it went on with: what belongs into the conversation.
func (a *ChatAnswer) Whole(m engine.ChatMessage) engine.ChatMessage {
	m.Content = a.before.Content + m.Content
	m.Reasoning = a.before.Reasoning + m.Reasoning
	return m
}

// ChatStream takes an answer apart while it comes.
type ChatStream struct {
	a      *ChatAnswer
	parser *engine.ChatParser // nil: all is content
	emit   func(Delta) error
	raw    strings.Builder // the answer so far
	lps    []TokenLogprob  // not passed on yet
	sent   engine.ChatMessage
	last   time.Time     // of the last parse
	took   time.Duration // by it
}

// streamPause is how far apart parses are at least: what a reader does not notice.
const streamPause = 20 * time.Millisecond

// Stream returns a stream that passes on content and reasoning as deltas of their own.
func (a *ChatAnswer) Stream(emit func(Delta) error) (*ChatStream, error) {
	s := &ChatStream{a: a, emit: emit}
	if a.prompt == nil {
		return s, nil
	}
	var err error
	s.parser, err = engine.NewChatParser(a.prompt)
	return s, err
}

// Close frees the stream.
func (s *ChatStream) Close() error { return s.parser.Close() }

// Push takes the next piece of the text. It is parsed from its beginning each time, so not with every
// piece: that would make a long answer slow.
func (s *ChatStream) Push(d Delta) error {
	if s.parser == nil {
		return s.emit(d)
	}
	s.raw.WriteString(d.Text)
	s.lps = append(s.lps, d.Logprobs...)
	if time.Since(s.last) < max(streamPause, 10*s.took) {
		return nil
	}
	begin := time.Now()
	m, err := s.parser.Parse(s.raw.String(), true)
	s.last, s.took = time.Now(), time.Since(begin)
	if err != nil {
		return nil // not a form that the template knows, so far: the end tells
	}
	return s.send(s.a.without(m))
}

// send passes on what m has more than what was sent.
func (s *ChatStream) send(m engine.ChatMessage) error {
	d := Delta{Type: "delta", Logprobs: s.lps}
	// A parser may take back an end that turned out to be the start of something else.
	if strings.HasPrefix(m.Content, s.sent.Content) {
		d.Text = m.Content[len(s.sent.Content):]
		s.sent.Content = m.Content
	}
	if strings.HasPrefix(m.Reasoning, s.sent.Reasoning) {
		d.Reasoning = m.Reasoning[len(s.sent.Reasoning):]
		s.sent.Reasoning = m.Reasoning
	}
	if d.Text == "" && d.Reasoning == "" {
		return nil
	}
	s.lps = nil
	return s.emit(d)
}

// End takes the result apart, passes on what is left, and returns the message, as Message does, with
// the result as it is to be shown: its text is the content. A text that does not have the form that
// the template asks for is content; err says so.
func (s *ChatStream) End(r Result) (Result, engine.ChatMessage, error) {
	if s.parser == nil {
		return r, engine.ChatMessage{Role: "assistant", Content: r.Text}, nil
	}
	m, perr := s.parser.Parse(r.Text, isCut(r.FinishReason))
	if perr != nil {
		m = engine.ChatMessage{Role: "assistant", Content: r.Text}
		if !strings.HasPrefix(r.Text, s.sent.Content) { // what was read of it so far was wrong
			if err := s.emit(Delta{Type: "delta", Text: "\n" + r.Text, Logprobs: s.lps}); err != nil {
				return r, m, err
			}
			return r, m, &AnswerFormError{perr}
		}
	} else {
		m = s.a.without(m)
	}
	if err := s.send(m); err != nil {
		return r, m, err
	}
	calls, err := callsJSON(m)
	if err != nil {
		return r, m, err
	}
	r.Text, r.TextBase64, r.Reasoning, r.ToolCalls = m.Content, nil, m.Reasoning, calls
	if perr != nil {
		perr = &AnswerFormError{perr}
	}
	return r, m, perr
}

// AnswerFormError says that an answer is not of the form that the template asks for.
type AnswerFormError struct{ err error }

func (e *AnswerFormError) Error() string { return e.err.Error() }

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
	err = pipeline.Decode(raw, &out)
	return out.Calls, err
}

// withKwargs returns the variables of both, those of more where both have one.
func withKwargs(kwargs, more map[string]json.RawMessage) map[string]json.RawMessage {
	if len(more) == 0 {
		return kwargs
	}
	out := maps.Clone(kwargs)
	if out == nil {
		out = map[string]json.RawMessage{}
	}
	maps.Copy(out, more)
	return out
}
