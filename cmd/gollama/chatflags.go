package main

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"gollama/internal/completion"
	"gollama/internal/engine"
	"gollama/internal/pipeline"
)

// chatOptions are the settings of conversations that engine.Params has no field for.
type chatOptions struct {
	messagesFile      string
	converse          bool // -cnv
	interactive       bool
	noHistory         bool
	systemFile        string
	templateFile      string
	reasoningFormat   string
	reasoningEffort   string
	preserveReasoning bool
	prefill           string
	now               time.Time // the templates' clock; zero is the present
	specialInput      string    // "", literal or parse
	transcriptFile    string
}

const (
	groupChat = "Conversation"
	inChat    = " run " // the subcommands that hold conversations
)

// startChat are the flags that each make a run a conversation.
var startChat = []string{"conversation", "single-turn", "interactive", "messages", "system-prompt", "system-prompt-file"}

// chatOnly are the flags that say nothing without a conversation. In records, that is one with messages.
var (
	templateOnly = []string{"chat-template", "chat-template-file", "chat-template-kwargs", "jinja", "reasoning-format", "reasoning", "reasoning-effort",
		"reasoning-budget", "reasoning-budget-message", "reasoning-preserve", "skip-chat-parsing", "prefill-assistant", "now"}
	chatOnly = []string{"prefill", "transcript"}
)

func chatFlags() []flagDef {
	type o = *options
	noSystem := func(o o) { o.SystemPrompt, o.systemFile = "", "" }
	noTemplate := func(o o) { o.ChatTemplate, o.templateFile = "", "" }
	set := func(p func(o) *string) func(o) bool { return func(o o) bool { return *p(o) != "" } }
	rows := []flagDef{
		{name: "conversation", alias: []string{"-cnv"}, fixed: map[string]string{"--no-conversation": "false", "-no-cnv": "false"}, help: "the prompt is a message of the user: write it in the model's chat template and answer it; the same with --records", in: inChat,
			binding: boolVar(func(o o) *bool { return &o.converse })},
		{name: "single-turn", alias: []string{"-st"}, help: "as --conversation: there is one answer, unless -i asks for more", in: inChat,
			binding: boolVar(func(o o) *bool { return &o.SingleTurn })},
		{name: "interactive", alias: []string{"-i", "-if", "--interactive-first"}, help: "talk with the model at the terminal; /help there lists the commands", in: inChat,
			binding: boolVar(func(o o) *bool { return &o.interactive })},
		{name: "no-history", help: "with -i: neither read nor keep the lines that were typed, in ~/.local/state/gollama/history", in: inChat,
			binding: boolVar(func(o o) *bool { return &o.noHistory })},
		{name: "messages", arg: "FILE", def: "none", help: "answer a conversation: a JSON array of messages in OpenAI's form, an object that has it as messages, and tools, or a transcript; - is standard input; -p then adds a message", in: inChat,
			binding: fileVar(func(o o) *string { return &o.messagesFile })},
		{name: "system-prompt", alias: []string{"-sys"}, arg: "TEXT", def: "none", help: "the system message of conversations that have none", in: inChat, share: "system-prompt",
			binding: withReset(stringVar(func(o o) *string { return &o.SystemPrompt }), noSystem).when(set(func(o o) *string { return &o.SystemPrompt }))},
		{name: "system-prompt-file", alias: []string{"-sysf"}, arg: "FILE", def: "none", help: "read it from FILE; a line end at its end is left out", in: inChat, share: "system-prompt",
			binding: withReset(fileVar(func(o o) *string { return &o.systemFile }), noSystem).when(set(func(o o) *string { return &o.systemFile }))},
		{name: "prefill", arg: "TEXT", def: "none", help: "how the answer begins; it is not written again", in: inChat,
			binding: stringVar(func(o o) *string { return &o.prefill }).when(set(func(o o) *string { return &o.prefill }))},
		{name: "prefill-assistant", fixed: map[string]string{"--no-prefill-assistant": "false"}, env: "LLAMA_ARG_PREFILL_ASSISTANT", help: "the answer goes on with a message of the assistant that ends the conversation", in: inChat,
			binding: boolVar(func(o o) *bool { return &o.PrefillAssistant })},
		{name: "transcript", arg: "FILE", def: "none", help: "write the conversation with its answers to FILE, as JSON, after each of them; --messages reads it", in: inChat,
			binding: fileVar(func(o o) *string { return &o.transcriptFile })},
		{name: "chat-template", env: "LLAMA_ARG_CHAT_TEMPLATE", arg: "NAME|FILE", def: "the model's", help: "chat template: a name, of the model's or of one of llama.cpp's such as chatml, a file, or Jinja itself; none writes the texts of the messages one after the other", in: inChat + "finetune ", share: "chat-template",
			binding: withReset(stringVar(func(o o) *string { return &o.ChatTemplate }), noTemplate).when(set(func(o o) *string { return &o.ChatTemplate }))},
		{name: "chat-template-file", env: "LLAMA_ARG_CHAT_TEMPLATE_FILE", arg: "FILE", def: "none", help: "read the chat template from FILE", in: inChat + "finetune ", share: "chat-template",
			binding: withReset(fileVar(func(o o) *string { return &o.templateFile }), noTemplate).when(set(func(o o) *string { return &o.templateFile }))},
		{name: "chat-template-kwargs", env: "LLAMA_ARG_CHAT_TEMPLATE_KWARGS", arg: "JSON", def: "none", help: `an object of more variables for the template, such as {"enable_thinking":false}; may be given more than once`, in: inChat, binding: kwargsVar()},
		{name: "now", arg: "TIME", def: "the present", help: "what a template takes for the time: seconds since 1970, or as 2026-05-01T12:00:00Z", in: inChat, binding: clockVar()},
		{name: "jinja", env: "LLAMA_ARG_JINJA", fixed: map[string]string{"--no-jinja": "false"}, help: "templates are Jinja; always so", in: inChat,
			binding: boolVar(func(o o) *bool { return &o.UseJinja })},
	}
	rows = append(rows, reasoningFlags()...)
	rows = append(rows, flagDef{name: "special-in-input", arg: "HOW", def: "literal in conversations, parse in prompts", help: "what the text of a control token, such as </s>, is in what is given: literal (text) or parse (the token)", in: inChat,
		binding: wordVar(func(o o) *string { return &o.specialInput }, "literal", "parse").when(set(func(o o) *string { return &o.specialInput }))})
	return inGroup(groupChat, rows...)
}

func reasoningFlags() []flagDef {
	type o = *options
	return []flagDef{
		{name: "reasoning-format", env: "LLAMA_ARG_THINK", arg: "FORMAT", help: "auto and deepseek take what the model thinks out of the text (reasoning in json), deepseek-legacy does too and leaves it, none only leaves it", in: inChat,
			binding: wordVar(func(o o) *string { return &o.reasoningFormat }, engine.ReasoningFormats...)},
		{name: "reasoning", alias: []string{"-rea"}, env: "LLAMA_ARG_REASONING", arg: "on|off|auto", help: "whether the template lets the model think first", in: inChat, binding: reasoningVar()},
		{name: "reasoning-effort", env: "LLAMA_ARG_REASONING_EFFORT", arg: "LEVEL", help: "level for the template, such as low or high; default leaves it to the template, none is --reasoning off", in: inChat,
			binding: stringVar(func(o o) *string { return &o.reasoningEffort })},
		{name: "reasoning-budget", env: "LLAMA_ARG_THINK_BUDGET", arg: "N", help: "tokens of reasoning, after which it is ended; -1 no limit", in: inChat,
			binding: intVar(func(o o) *int { return &o.Sampling.ReasoningBudgetTokens }, -1, maxInt32)},
		{name: "reasoning-budget-message", env: "LLAMA_ARG_THINK_BUDGET_MESSAGE", arg: "TEXT", def: "none", help: "what is put before that end", in: inChat,
			binding: stringVar(func(o o) *string { return &o.Sampling.ReasoningBudgetMessage })},
		{name: "reasoning-preserve", env: "LLAMA_ARG_REASONING_PRESERVE", fixed: map[string]string{"--no-reasoning-preserve": "false"}, def: "as the template does", help: "keep the reasoning of earlier answers in the prompt, for templates that can", in: inChat,
			binding: boolVar(func(o o) *bool { return &o.preserveReasoning }).when(func(o o) bool { return o.isSet("reasoning-preserve") })},
		{name: "skip-chat-parsing", env: "LLAMA_ARG_SKIP_CHAT_PARSING", fixed: map[string]string{"--no-skip-chat-parsing": "false"}, help: "take the answer as it is, with reasoning and tool calls in the text", in: inChat,
			binding: boolVar(func(o o) *bool { return &o.ForcePureContentParser })},
	}
}

// kwargsVar binds --chat-template-kwargs; later objects add to earlier ones of the same level.
func kwargsVar() binding {
	return binding{kind: kindString,
		set: func(o *options, s string) error {
			var m map[string]json.RawMessage
			if err := pipeline.Decode([]byte(s), &m); err != nil || m == nil {
				return errors.New("want a JSON object")
			}
			if o.DefaultTemplateKwargs == nil {
				o.DefaultTemplateKwargs = map[string]string{}
			}
			for k, v := range m {
				o.DefaultTemplateKwargs[k] = string(v)
			}
			return nil
		},
		get: func(o *options) any {
			if len(o.DefaultTemplateKwargs) == 0 {
				return nil
			}
			b, err := json.Marshal(rawKwargs(o.DefaultTemplateKwargs))
			if err != nil { // each was JSON
				return nil
			}
			return string(b)
		},
		reset: func(o *options) { o.DefaultTemplateKwargs = nil },
	}
}

func rawKwargs(m map[string]string) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for k, v := range m {
		out[k] = json.RawMessage(v)
	}
	return out
}

func clockVar() binding {
	return binding{kind: kindMixed,
		set: func(o *options, s string) (err error) {
			o.now, err = completion.ParseClock(s)
			return err
		},
		get: func(o *options) any {
			if o.now.IsZero() {
				return nil
			}
			return o.now.Format(time.RFC3339)
		}}
}

func reasoningVar() binding {
	words := []string{"auto", "off", "on"} // -1, 0, 1
	return mixed(binding{kind: kindMixed,
		set: func(o *options, s string) error {
			i := slices.Index(words, s)
			if i < 0 {
				return errors.New("want on, off or auto")
			}
			o.EnableReasoning = i - 1
			return nil
		},
		get: func(o *options) any { return words[o.EnableReasoning+1] }})
}

// chatting reports whether a run is a conversation.
func (o *options) chatting() bool {
	return o.converse || o.SingleTurn || o.interactive || o.messagesFile != "" || o.SystemPrompt != "" || o.systemFile != ""
}

// chatSettings are those of a conversation that has none of its own.
func (o *options) chatSettings() (completion.ChatSettings, error) {
	c := completion.ChatSettings{
		ReasoningFormat: o.reasoningFormat, Budget: o.Sampling.ReasoningBudgetTokens, BudgetMessage: o.Sampling.ReasoningBudgetMessage,
		Kwargs: rawKwargs(o.DefaultTemplateKwargs), Now: o.now, Whole: !o.PrefillAssistant, ParseSpecial: o.specialInput == "parse",
		Unparsed: o.ForcePureContentParser,
	}
	if o.isSet("reasoning") {
		if err := c.SetReasoning(reasoningVar().get(o).(string)); err != nil {
			return c, err
		}
	}
	if o.isSet("reasoning-preserve") {
		c.Kwargs["preserve_reasoning"] = json.RawMessage(boolText(o.preserveReasoning))
	}
	if o.reasoningEffort != "default" {
		return c, c.SetEffort(o.reasoningEffort)
	}
	return c, nil
}

func boolText(v bool) string {
	if v {
		return "true"
	}
	return "false"
}

// checkJinja refuses --no-jinja; elsewhere than on the command line it is only said that it has no effect.
func (o *options) checkJinja() error {
	const hint = "templates are Jinja; --chat-template NAME takes one of llama.cpp's own that is not, such as llama2"
	switch {
	case o.UseJinja:
	case o.given["jinja"] == levelArgs:
		return usagef("--no-jinja: not supported").withHint(hint)
	default:
		o.warnings = append(o.warnings, "jinja is set to off, but has no effect here: "+hint)
	}
	return nil
}

// finishChat checks what belongs to conversations.
func (o *options) finishChat() error {
	chat := o.chatting()
	only := chatOnly
	if o.recordsFile == "" {
		only = slices.Concat(templateOnly, chatOnly)
	}
	for _, name := range only {
		if name == "jinja" && !o.UseJinja {
			continue // nothing is
		}
		if o.given[name] > levelEnv && !chat && o.recordsFile == "" {
			return usagef("--%s goes with a conversation", name).withHint("-cnv makes the prompt a message of the user; --messages FILE gives a conversation; -i talks at the terminal")
		}
		if o.given[name] > levelEnv && o.recordsFile != "" {
			return usagef("--%s does not go with --records", name)
		}
	}
	if _, err := o.chatSettings(); err != nil {
		return usagef("--reasoning-effort: %s", err)
	}
	if chat || o.recordsFile != "" {
		if err := o.checkJinja(); err != nil {
			return err
		}
	}
	if !chat {
		return nil
	}
	if o.isSet("conversation") && !o.converse {
		for _, name := range startChat[1:] {
			if o.given[name] > levelEnv {
				return usagef("--%s and -no-cnv: give one of them", name)
			}
		}
	}
	if err := o.chatConflicts(); err != nil {
		return err
	}
	if o.interactive {
		return o.finishInteractive()
	}
	return nil
}

// chatConflicts finds what a conversation excludes.
func (o *options) chatConflicts() error {
	switch {
	case o.score:
		return usagef("--score does not go with a conversation").withHint("it scores the text of the prompt")
	case o.DisplayPrompt:
		return usagef("--echo does not go with a conversation").withHint("--verbose-prompt lists the prompt's tokens")
	case o.recordsFile != "" && o.messagesFile != "":
		return usagef("--messages and --records: give one of them").withHint("a record has its own messages")
	case o.recordsFile != "" && o.interactive:
		return usagef("-i does not go with --records")
	case o.messagesFile == "-" && o.PromptFile == "-":
		return usagef("--messages and -f both read standard input")
	case o.SystemPrompt != "" && strings.TrimSpace(o.SystemPrompt) == "":
		return usagef("-sys: the text is empty")
	}
	return nil
}

// finishInteractive finds what -i excludes.
func (o *options) finishInteractive() error {
	for _, name := range []string{"output", "prompt-cache", "logprobs", "prompt-logprobs", "require-complete", "verbose-prompt", "prefill", "format"} {
		if o.given[name] <= levelEnv || name == "format" && o.format == "text" {
			continue
		}
		e := usagef("--%s does not go with -i", name)
		if name == "output" || name == "prompt-cache" || name == "format" {
			return e.withHint("--transcript FILE keeps the conversation, and --session FILE goes on with it")
		}
		return e
	}
	if o.messagesFile == "-" || o.PromptFile == "-" {
		return usagef("-i reads the terminal, not standard input").withHint("give a file")
	}
	return nil
}
