package engine

import (
	"encoding/json"
	"time"
)

// ChatTemplateOptions say which chat template to use. The zero value is the model's default one,
// with its template named tool_use, if it has one, where there are tools; a model without any gets
// ChatML.
type ChatTemplateOptions struct {
	// Name picks one of the model's templates by name, for all conversations; empty picks as above.
	Name string
	// Source is a template's own text (Jinja), or the name of one of BuiltinChatTemplates. It takes
	// the place of the model's.
	Source string
	// BOS and EOS are what the template sees as bos_token and eos_token when there is no model.
	BOS, EOS string
}

// ChatMessage is one message of a conversation. Its JSON is OpenAI's.
type ChatMessage struct {
	Role       string // system, developer, user, assistant, tool, or what the template knows beside
	Content    string
	Parts      []ChatPart // content in parts; Content is then empty
	Reasoning  string     // reasoning_content: what the assistant thought before Content
	ToolCalls  []ToolCall
	ToolCallID string // of a tool's message: the call that it answers
	Name       string // of a tool's message: the tool
}

// ChatPart is a part of a message's content.
type ChatPart struct {
	Type string `json:"type"` // text, or media_marker for the place of an image or sound
	Text string `json:"text"`
}

// ToolCall is a call that the assistant makes.
type ToolCall struct {
	ID        string
	Name      string
	Arguments string // JSON text
}

// ChatTool is a function that the assistant may call. Its JSON is OpenAI's.
type ChatTool struct {
	Name        string
	Description string
	Parameters  json.RawMessage // JSON schema; empty for a function without parameters
}

// How Apply treats a conversation that ends in a message of the assistant.
const (
	ContinueNone      = ""                  // as a whole message
	ContinueAuto      = "auto"              // as the start of the answer: its content, or its reasoning if it has only that
	ContinueReasoning = "reasoning_content" // the answer goes on in the reasoning
	ContinueContent   = "content"           // the answer goes on in the content
)

// ReasoningFormats are the values of ChatInput.ReasoningFormat: what becomes of the part of an
// answer in which the model thinks. none leaves it in the content; the others put it apart.
var ReasoningFormats = []string{"none", "auto", "deepseek", "deepseek-legacy"}

// ToolChoices are the values of ChatInput.ToolChoice.
var ToolChoices = []string{"auto", "required", "none"}

// ChatInput is what a template makes a prompt of.
type ChatInput struct {
	Messages            []ChatMessage
	AddGenerationPrompt bool   // end the prompt where the assistant begins to speak
	Continue            string // one of the Continue constants; it excludes AddGenerationPrompt

	Tools             []ChatTool
	ToolChoice        string // one of ToolChoices, "" is auto
	ParallelToolCalls bool   // let the grammar take several calls in one answer

	NoThinking      bool                       // the template's enable_thinking, negated
	ReasoningFormat string                     // one of ReasoningFormats, "" is none
	Kwargs          map[string]json.RawMessage // more variables for the template
	Now             time.Time                  // the template's clock; zero is the present

	JSONSchema string // what the answer must be; at most one of these two
	Grammar    string

	// ParseSpecial lets <|im_end|> and the like in messages and tools become control tokens. Without
	// it they stay text.
	ParseSpecial bool
}

// GrammarTrigger says when a lazy grammar begins to hold.
type GrammarTrigger struct {
	Type  int    `json:"type"` // enum common_grammar_trigger_type: token, word, pattern, full pattern
	Value string `json:"value"`
}

// ChatPrompt is a conversation as a template writes it, and what belongs to the answer.
type ChatPrompt struct {
	Text             string           // the prompt
	GenerationPrompt string           // its end, from where the assistant begins to speak
	Segments         []ChatSegment    // Text in pieces, for Tokenize
	Grammar          string           // GBNF that holds for the answer; empty for none
	GrammarLazy      bool             // the grammar holds only after one of Triggers
	Triggers         []GrammarTrigger //
	Preserved        []string         // tokens whose text must be kept in the output, for Parse
	Stops            []string         // texts that end the answer, beside the model's own tokens
	Thinking         bool             // the template knows of reasoning
	ThinkingStart    string           // e.g. <think>
	ThinkingEnds     []string         // e.g. </think>

	format     int    // enum common_chat_format
	parser     string // a serialized parser
	reasoning  string // ReasoningFormat of the input
	generation bool   // the prompt waits for an answer
}

// Sampling sets in p what belongs to the answer: the template's grammar, if it has one, when that
// holds, and where reasoning begins and ends. A grammar that p has stays where the template has none.
func (c *ChatPrompt) Sampling(p *SamplingParams) {
	p.GenerationPrompt = c.GenerationPrompt
	p.ReasoningBudgetStart, p.ReasoningBudgetEnd = c.ThinkingStart, c.ThinkingEnds
	if c.Grammar == "" {
		return
	}
	p.Grammar, p.JSONSchema, p.GrammarOfChat = c.Grammar, "", true
	p.GrammarLazy, p.GrammarTriggers = c.GrammarLazy, c.Triggers
}

// ChatSegment is a piece of a prompt.
type ChatSegment struct {
	Text    string
	Literal bool // control tokens in Text came from a message or a tool, and are text
}
