//go:build cgo

package completion

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"gollama/internal/engine"
)

// chatOn returns a session on the story model with one of the pinned templates, or a text.
func chatOn(t *testing.T, template string) (*Chat, *Session[*engine.Context], engine.Params) {
	t.Helper()
	p := engine.DefaultParams()
	p.Model, p.NCtx, p.Warmup, p.Sampling.Temp, p.CPUParams.NThreads = stories, 4096, false, 0, 1
	m, c := openWith(t, &p)
	chat := &Chat{Vocab: m.Vocab(), ChatSettings: ChatSettings{ReasoningFormat: "auto", Budget: -1}}
	if template != "" {
		source := template
		if data, err := os.ReadFile("../../.engine/src/models/templates/" + template + ".jinja"); err == nil {
			source = string(data)
		} else if !strings.Contains(template, "{") && !slices.Contains(engine.BuiltinChatTemplates(), template) {
			t.Skipf("the engine's templates are not there: %v", err)
		}
		var err error
		if chat.Template, err = engine.NewChatTemplate(m, engine.ChatTemplateOptions{Source: source}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = chat.Template.Close() })
	}
	s, err := NewSession(Engine[*engine.Context]{Vocab: m.Vocab(), Context: c})
	if err != nil {
		t.Fatal(err)
	}
	return chat, s, p
}

// ask answers a conversation, and checks that what streams is what is there at the end.
func ask(t *testing.T, chat *Chat, s *Session[*engine.Context], conv Conversation, opt Options, p engine.SamplingParams) (Result, engine.ChatMessage) {
	t.Helper()
	a, err := chat.Prepare(&conv, &opt, &p)
	if err != nil {
		t.Fatal(err)
	}
	var text, reasoning strings.Builder
	stream, err := a.Stream(func(d Delta) error {
		text.WriteString(d.Text)
		reasoning.WriteString(d.Reasoning)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	sampler, err := engine.NewSampler(s.e.Context.Model(), &p)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sampler.Close() }()
	opt.Grammar = p.Grammar != ""
	r, err := s.Generate(t.Context(), opt, sampler, stream.Push)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := a.Message(r)
	if err != nil {
		t.Fatal(err)
	}
	r, m, err := stream.End(r)
	if err != nil {
		t.Fatal(err)
	}
	if text.String() != m.Content || r.Text != m.Content || reasoning.String() != m.Reasoning || r.Reasoning != m.Reasoning {
		t.Errorf("streamed %q and %q, at the end %q and %q", &text, &reasoning, m.Content, m.Reasoning)
	}
	if x, y := fmt.Sprint(whole), fmt.Sprint(m); x != y {
		t.Errorf("Message is %s, End's %s", x, y)
	}
	return r, m
}

func says(role, text string) engine.ChatMessage { return engine.ChatMessage{Role: role, Content: text} }

func conversation(c *Chat, m ...engine.ChatMessage) Conversation {
	return Conversation{Messages: m, ChatSettings: c.ChatSettings}
}

// The numbers are those of run-tokenize.md, R10.
func TestChatAnswers(t *testing.T) {
	for _, tt := range []struct {
		template string
		prompt   int
		want     string
	}{{"chatml", 0, `"Here?" A`}, {"Qwen-Qwen3-0.6B", 44, `"Here?" A`}, {"google-gemma-2-2b-it", 54, `"Hey, Ja`}, {"", 2, ""}} {
		chat, s, p := chatOn(t, tt.template)
		r, m := ask(t, chat, s, conversation(chat, says("user", "Hello")), Options{NPredict: 8}, p.Sampling)
		if tt.template == "" { // no template: the text as it stands
			plain, err := onStories(t, 512, Options{Prompt: "Hello", NPredict: 8}, nil)
			if err != nil {
				t.Fatal(err)
			}
			tt.want, tt.prompt = plain.Text, plain.Usage.PromptTokens
		}
		if m.Content != tt.want || tt.prompt > 0 && r.Usage.PromptTokens != tt.prompt {
			t.Errorf("%s: %q after %d tokens, want %q after %d", tt.template, m.Content, r.Usage.PromptTokens, tt.want, tt.prompt)
		}
		if n := len(slices.DeleteFunc(slices.Clone(s.cells), func(c cell) bool { return c.token != 1 })); n != 1 {
			t.Errorf("%s: %d BOS", tt.template, n)
		}
	}
}

// TestChatTurns: what the conversation has in common with the one before is not evaluated again, and the
// answer is that of a new session.
func TestChatTurns(t *testing.T) {
	chat, s, p := chatOn(t, "chatml")
	conv := conversation(chat, says("user", "Hello"))
	_, m := ask(t, chat, s, conv, Options{NPredict: 8}, p.Sampling)
	conv.Messages = append(conv.Messages, m, says("user", "And then?"))
	r, second := ask(t, chat, s, conv, Options{NPredict: 8}, p.Sampling)
	if r.Usage.CachedTokens < 40 {
		t.Errorf("%d of %d tokens were there already", r.Usage.CachedTokens, r.Usage.PromptTokens)
	}
	fresh, s2, p := chatOn(t, "chatml")
	if _, want := ask(t, fresh, s2, conv, Options{NPredict: 8}, p.Sampling); second.Content != want.Content {
		t.Errorf("%q, a new session says %q", second.Content, want.Content)
	}
}

// TestChatGoesOn: the answer goes on with a message of the assistant, and is not that message again.
func TestChatGoesOn(t *testing.T) {
	for _, template := range []string{"chatml", "Qwen-Qwen2.5-7B-Instruct", "llama2", ""} {
		chat, s, p := chatOn(t, template)
		conv := conversation(chat, says("user", "Hello"), says("assistant", "There was a"))
		r, m := ask(t, chat, s, conv, Options{NPredict: 6}, p.Sampling)
		if strings.Contains(m.Content, "There was a") || m.Content == "" {
			t.Errorf("%s: the answer is %q", template, m.Content)
		}
		conv.Whole = true
		if r2, _ := ask(t, chat, s, conv, Options{NPredict: 6}, p.Sampling); template != "" && r2.Usage.PromptTokens <= r.Usage.PromptTokens {
			t.Errorf("%s: a whole message makes a prompt of %d tokens, one that is gone on with %d", template, r2.Usage.PromptTokens, r.Usage.PromptTokens)
		}
	}
	chat, _, p := chatOn(t, "chatml")
	for want, conv := range map[string]Conversation{
		"two messages of the assistant": conversation(chat, says("user", "a"), says("assistant", "b"), says("assistant", "c")),
		"cannot go on with a message that has tool calls": conversation(chat, says("user", "a"),
			engine.ChatMessage{Role: "assistant", ToolCalls: []engine.ToolCall{{Name: "f", Arguments: "{}"}}}),
		"the conversation has no messages": conversation(chat),
	} {
		if _, err := chat.Prepare(&conv, &Options{}, &p.Sampling); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func forecast(name string) engine.ChatTool {
	return engine.ChatTool{Name: name, Description: "Get the weather.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"city":{"enum":["Rome","Oslo"]},"days":{"enum":[1,2,3]}},"required":["city","days"]}`)}
}

// checkCall checks a call of forecast.
func checkCall(c engine.ToolCall, name string) error {
	var args struct {
		City string
		Days int
	}
	dec := json.NewDecoder(strings.NewReader(c.Arguments))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&args); err != nil {
		return fmt.Errorf("%s: %w", c.Arguments, err)
	}
	if c.Name != name || (args.City != "Rome" && args.City != "Oslo") || args.Days < 1 || args.Days > 3 {
		return fmt.Errorf("call of %s with %s", c.Name, c.Arguments)
	}
	return nil
}

// callOf lets the model go on from the beginning of an answer, and returns the answer. Before that, the
// end of the text is made by far the likeliest token: where a call is required, it must not come.
func callOf(t *testing.T, s *Session[*engine.Context], p engine.SamplingParams, prompt []engine.Token, begun string) (text string, endable bool) {
	t.Helper()
	v, c := s.e.Vocab, s.e.Context
	decode := func(at int, tokens ...engine.Token) {
		t.Helper()
		if err := c.DecodePrompt(t.Context(), tokens, at, 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	sampler := func(p engine.SamplingParams) *engine.Sampler {
		t.Helper()
		smpl, err := engine.NewSampler(c.Model(), &p)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = smpl.Close() })
		return smpl
	}
	sample := func(smpl *engine.Sampler) engine.Token {
		t.Helper()
		id, err := smpl.Sample(c, -1)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	c.ClearMemory()
	decode(0, prompt...)
	ending := p
	ending.LogitBias = []engine.LogitBias{{Token: c.Model().Vocab().EOS(), Bias: 1000}}
	endable = v.IsEOG(sample(sampler(ending)))
	smpl := sampler(p)
	tokens, err := v.Tokenize(begun, false, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range tokens {
		if err := smpl.Accept(id, true); err != nil {
			t.Fatalf("%q: %v", begun, err)
		}
	}
	decode(len(prompt), tokens...)
	text = begun
	for at := len(prompt) + len(tokens); at < 3000; at++ {
		id := sample(smpl)
		if v.IsEOG(id) {
			return text, endable
		}
		text += string(v.Piece(id, true))
		if done := strings.TrimSpace(text); len(text)-len(done) > 60 {
			return done, endable // white space may follow a call for ever, says llama.cpp's grammar
		}
		if err := smpl.Accept(id, true); err != nil {
			t.Fatal(err)
		}
		decode(at, id)
	}
	t.Fatalf("no end: %q", text[:200])
	return "", false
}

// TestTools: from where a call begins, a model of 260 thousand parameters, which knows nothing of tools,
// calls one as its schema says, in the form of each template.
func TestTools(t *testing.T) {
	for _, tt := range []struct{ template, begun string }{
		{"Qwen-Qwen3-0.6B", "<tool_call>\n"}, {"meta-llama-Llama-3.1-8B-Instruct", "{"}, {"mistralai-Mistral-Nemo-Instruct-2407", "[TOOL_CALLS]"},
		{"ibm-granite-granite-4.0", "<tool_call>\n"},
	} {
		chat, s, p := chatOn(t, tt.template)
		for _, choice := range []string{"auto", "required", "only"} {
			conv := conversation(chat, says("user", "What is the weather?"))
			conv.Tools, conv.ToolChoice, conv.NoThinking = []engine.ChatTool{forecast("get_weather"), forecast("get_rain")}, choice, true
			if choice == "only" {
				conv.ToolChoice, conv.OnlyTool = "", "get_rain"
			}
			conv.Parallel = new(bool) // a model of this kind would never end
			opt, sp := Options{}, p.Sampling
			a, err := chat.Prepare(&conv, &opt, &sp)
			if err != nil {
				t.Fatal(err)
			}
			if choice == "auto" && sp.Grammar == "" {
				continue // Llama 3.1's calls begin with what may be text: llama.cpp has no grammar then
			}
			if lazy := choice == "auto"; sp.GrammarLazy != lazy || lazy && len(sp.GrammarTriggers) == 0 {
				t.Errorf("%s %s: lazy %v, triggers %v", tt.template, choice, sp.GrammarLazy, sp.GrammarTriggers)
			}
			sp.Temp, sp.Seed = 1, 3
			text, endable := callOf(t, s, sp, opt.Tokens, tt.begun)
			if endable != (choice == "auto") {
				t.Errorf("%s %s: the text can end without a call: %v", tt.template, choice, endable)
			}
			m, err := a.Message(Result{Text: text, FinishReason: FinishGrammar})
			if err != nil || len(m.ToolCalls) == 0 {
				t.Errorf("%s %s: %q: %+v, %v", tt.template, choice, text, m, err)
			}
			for _, c := range m.ToolCalls {
				name := c.Name
				if choice == "only" || name != "get_weather" {
					name = "get_rain"
				}
				if err := checkCall(c, name); err != nil {
					t.Errorf("%s %s: %v", tt.template, choice, err)
				}
			}
		}
	}
}

// TestChatReasoning: what is thought stands apart, for as long as the budget lets it.
func TestChatReasoning(t *testing.T) {
	const template = "deepseek-ai-DeepSeek-R1-Distill-Llama-8B" // its prompt ends in <think>
	answer := func(change func(*ChatSettings)) engine.ChatMessage {
		chat, s, p := chatOn(t, template)
		change(&chat.ChatSettings)
		_, m := ask(t, chat, s, conversation(chat, says("user", "Hello")), Options{NPredict: 40}, p.Sampling)
		return m
	}
	if m := answer(func(*ChatSettings) {}); m.Reasoning == "" || m.Content != "" {
		t.Errorf("no budget: %+v", m)
	}
	if m := answer(func(c *ChatSettings) { c.Budget = 5 }); m.Reasoning == "" || len(m.Reasoning) > 60 || m.Content == "" {
		t.Errorf("budget 5: %+v", m)
	}
	if m := answer(func(c *ChatSettings) { c.Budget, c.BudgetMessage = 5, "Enough." }); !strings.HasSuffix(strings.TrimSpace(m.Reasoning), "Enough.") || m.Content == "" {
		t.Errorf("budget 5 with a message: %+v", m)
	}
	if m := answer(func(c *ChatSettings) { c.Budget = 0 }); strings.TrimSpace(m.Reasoning) != "" || m.Content == "" {
		t.Errorf("budget 0: %+v", m)
	}
	if m := answer(func(c *ChatSettings) { c.Budget, c.ReasoningFormat = 5, "none" }); m.Reasoning != "" || !strings.Contains(m.Content, "</think>") {
		t.Errorf("none: %+v", m)
	}
	if m := answer(func(c *ChatSettings) { c.Budget, c.Unparsed = 5, true }); m.Reasoning != "" || !strings.Contains(m.Content, "</think>") {
		t.Errorf("unparsed: %+v", m)
	}
}

// TestChatShapes: a grammar and a schema hold for the answer to a conversation.
func TestChatShapes(t *testing.T) {
	for _, template := range []string{"chatml", "Qwen-Qwen3-0.6B", "meta-llama-Llama-3.1-8B-Instruct", "llama2", ""} {
		chat, s, p := chatOn(t, template)
		conv := conversation(chat, says("user", "Hello"))
		conv.NoThinking = true
		sp := p.Sampling
		sp.Grammar = `root ::= "yes" | "no"`
		if _, m := ask(t, chat, s, conv, Options{NPredict: 20}, sp); m.Content != "yes" && m.Content != "no" {
			t.Errorf("%s: grammar: %q", template, m.Content)
		}
		sp = p.Sampling
		sp.JSONSchema = `{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"],"additionalProperties":false}`
		if template == "" {
			continue // NewSampler makes the grammar, as without a conversation
		}
		_, m := ask(t, chat, s, conv, Options{NPredict: 60}, sp)
		var v map[string]bool
		if err := json.Unmarshal([]byte(m.Content), &v); err != nil || len(v) != 1 {
			t.Errorf("%s: schema: %q, %v", template, m.Content, err)
		}
	}
}

func TestParseClock(t *testing.T) {
	day := time.Date(2026, 5, 1, 0, 0, 0, 0, time.Local)
	for in, want := range map[string]int64{
		"1777593600": 1777593600, "2026-05-01T00:00:00Z": 1777593600, "2026-05-01T02:00:00+02:00": 1777593600, "2026-05-01": day.Unix(),
	} {
		if got, err := ParseClock(in); err != nil || got.Unix() != want {
			t.Errorf("ParseClock(%q) = %v, %v, want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "x", "-1", "0", "99999999999999", "2026-13-01", "1969-01-01"} {
		if got, err := ParseClock(in); err == nil {
			t.Errorf("ParseClock(%q) = %v", in, got)
		}
	}
}

func FuzzChatFields(f *testing.F) {
	for _, s := range []string{`{"tool_choice":"auto"}`, `{"tool_choice":{"type":"function","function":{"name":"f"}}}`, `{"tools":[{"type":"function","function":{"name":"f"}}]}`,
		`{"reasoning":"off","reasoning_effort":"low","reasoning_budget":3,"reasoning_format":"none"}`, `{"chat_template_kwargs":{"a":[1]},"now":"2026-05-01"}`, `{"now":1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var fields map[string]json.RawMessage
		if json.Unmarshal(data, &fields) != nil {
			return
		}
		for name, raw := range fields {
			if set, ok := requestFields[name]; ok && len(raw) > 0 {
				_ = set(&Request{}, &parsed{}, raw)
			}
		}
	})
}
