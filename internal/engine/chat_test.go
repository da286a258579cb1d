//go:build cgo

package engine

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const templateDir = "../../.engine/src/models/templates/"

// pinnedTemplates returns the 70 templates of the pinned source by name.
func pinnedTemplates(t testing.TB) map[string]string {
	t.Helper()
	files, err := filepath.Glob(templateDir + "*.jinja")
	if err != nil || len(files) == 0 {
		t.Skipf("the engine's templates are not there: %v", err)
	}
	if len(files) != 70 {
		t.Fatalf("%d templates, want 70", len(files))
	}
	out := map[string]string{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimSuffix(filepath.Base(f), ".jinja")] = string(b)
	}
	return out
}

func openTemplate(t testing.TB, m *Model, source string) *ChatTemplate {
	t.Helper()
	ct, err := NewChatTemplate(m, ChatTemplateOptions{Source: source, BOS: "<s>", EOS: "</s>"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ct.Close() })
	return ct
}

func pinnedVocab(t testing.TB, name string) *Model {
	t.Helper()
	p := testParams("../../.engine/src/models/ggml-vocab-" + name + ".gguf")
	if _, err := os.Stat(p.Model); err != nil {
		t.Skipf("the engine's vocabularies are not there: %v", err)
	}
	p.VocabOnly = true
	return openModel(t, p)
}

var testTime = time.Date(2024, 7, 26, 15, 4, 5, 0, time.Local)

func user(s string) ChatMessage      { return ChatMessage{Role: "user", Content: s} }
func assistant(s string) ChatMessage { return ChatMessage{Role: "assistant", Content: s} }

var weather = ChatTool{Name: "get_weather", Description: "Get the weather.",
	Parameters: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`)}

// goldenInputs are the conversations of testdata/chat_golden.py.
func goldenInputs() map[string]*ChatInput {
	system := ChatMessage{Role: "system", Content: "Be brief."}
	call := ChatMessage{Role: "assistant", ToolCalls: []ToolCall{{ID: "abc123456", Name: "get_weather", Arguments: `{"city":"Paris"}`}}}
	result := ChatMessage{Role: "tool", Content: `{"temp": 21}`, ToolCallID: "abc123456", Name: "get_weather"}
	return map[string]*ChatInput{
		"user":  {Messages: []ChatMessage{user("Hello é?")}, AddGenerationPrompt: true, Now: testTime},
		"turns": {Messages: []ChatMessage{system, user("Hi"), assistant("Hello <b>you</b>!"), user("And\n\nnow?")}, AddGenerationPrompt: true, Now: testTime},
		"whole": {Messages: []ChatMessage{system, user("Hi"), assistant("Hello."), user("Bye"), assistant("See you.")}, Now: testTime},
		"tools": {Messages: []ChatMessage{user("Weather in Paris?"), call, result}, Tools: []ChatTool{weather}, AddGenerationPrompt: true, Now: testTime},
	}
}

func TestGolden(t *testing.T) {
	b, err := os.ReadFile("testdata/chat_golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden map[string]map[string][]*string
	if err := json.Unmarshal(b, &golden); err != nil {
		t.Fatal(err)
	}
	for name, src := range pinnedTemplates(t) {
		ct := openTemplate(t, nil, src)
		for kind, in := range goldenInputs() {
			reason := notJinja2[name+" "+kind]
			delete(notJinja2, name+" "+kind)
			p, err := ct.Apply(in)
			q, err2 := ct.Render(in)
			if err != nil {
				if reason != "both refuse it" || err2 == nil {
					t.Errorf("%s %s: %v", name, kind, err)
				}
				continue
			}
			if err2 != nil || q.Text != p.Text { // Render leaves out what the answer needs, and nothing else
				t.Errorf("%s %s: Render: %v", name, kind, err2)
			}
			ok := slices.ContainsFunc(golden[name][kind], func(want *string) bool { return want != nil && *want == p.Text })
			if ok != (reason == "") {
				want, _ := marshal(golden[name][kind])
				t.Errorf("%s %s: %q, Jinja2 writes %s (known: %s)", name, kind, p.Text, want, reason)
			}
		}
	}
	for k := range notJinja2 {
		t.Errorf("notJinja2 lists %s, which was not seen", k)
	}
}

// notJinja2 lists prompts that Jinja2 does not write, or does otherwise than llama.cpp.
var notJinja2 = map[string]string{
	"CohereForAI-c4ai-command-r-plus-tool_use tools": "Jinja2 refuses it",
	"Kimi-K2-Instruct tools":                         "Jinja2 refuses it",
	"Kimi-K2-Thinking tools":                         "Jinja2 refuses it",
	"llama-cpp-deepseek-r1 tools":                    "Jinja2 refuses it",
	"fireworks-ai-llama-3-firefunction-v2 user":      "wants the variable datetime as a number of arguments that Jinja2 refuses",
	"fireworks-ai-llama-3-firefunction-v2 turns":     "as above",
	"fireworks-ai-llama-3-firefunction-v2 whole":     "as above",
	"fireworks-ai-llama-3-firefunction-v2 tools":     "as above",
	"google-gemma-2-2b-it turns":                     "has no system role: llama.cpp puts the text before the first user message",
	"google-gemma-2-2b-it whole":                     "as above",
	"google-gemma-2-2b-it tools":                     "both refuse it",
	"google-gemma-4-31B-it-interleaved tools":        "llama.cpp moves the result into the message with the call",
	"meetkai-functionary-medium-v3.1 tools":          "Jinja2 escapes for HTML",
	"openai-gpt-oss-120b whole":                      "llama.cpp writes <|end|> for <|return|>, as in all messages before",
}

// By hand, from the templates' text: the workarounds of llama.cpp, and the clock.
func TestGoldenByHand(t *testing.T) {
	templates := pinnedTemplates(t)
	in := goldenInputs()
	for _, tt := range []struct{ name, kind, want string }{
		{"google-gemma-2-2b-it", "turns", "<s><start_of_turn>user\nBe brief.\nHi<end_of_turn>\n<start_of_turn>model\nHello <b>you</b>!<end_of_turn>\n" +
			"<start_of_turn>user\nAnd\n\nnow?<end_of_turn>\n<start_of_turn>model\n"},
		{"meta-llama-Llama-3.2-3B-Instruct", "user", "<s><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n" +
			"<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHello é?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
		{"Qwen-Qwen3-0.6B", "whole", "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n" +
			"<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nSee you.<|im_end|>\n"},
	} {
		p, err := openTemplate(t, nil, templates[tt.name]).Apply(in[tt.kind])
		if err != nil || p.Text != tt.want {
			t.Errorf("%s %s = %q, %v, want %q", tt.name, tt.kind, p.Text, err, tt.want)
		}
	}
}

// The clock of a template is Now, on any day.
func TestClock(t *testing.T) {
	ct := openTemplate(t, nil, `{{ strftime_now("%Y-%m-%d %H:%M:%S %d %b %Y, %B %-d, %A, %%, %j") }}|{{ date_string }}|{% if strftime_now is defined %}yes{% endif %}`)
	for _, day := range []time.Time{testTime, testTime.AddDate(0, 5, -20)} {
		p, err := ct.Apply(&ChatInput{Messages: []ChatMessage{user("x")}, Now: day})
		want := day.Format("2006-01-02 15:04:05 02 Jan 2006, January 2, Monday, %, 002|02 Jan 2006|yes")
		if err != nil || p.Text != want {
			t.Errorf("at %v: %q, %v, want %q", day, p.Text, err, want)
		}
	}
	p, err := ct.Apply(&ChatInput{Messages: []ChatMessage{user("x")}})
	if err != nil || !strings.HasPrefix(p.Text, time.Now().Format("2006-01-02")) {
		t.Errorf("now: %q, %v", p.Text, err)
	}
}

// controlLike matches what is a control token in one vocabulary or another.
var controlLike = regexp.MustCompile(`<[|｜]?[\w/][^<>\s'"{}()]{0,40}>|\[/?[A-Z_]+\]`)

// controls returns the control tokens in the parts of a prompt that are parsed.
func controls(sp *specials, p *ChatPrompt) (out []string) {
	for _, s := range p.Segments {
		for _, piece := range sp.split(s.Text) {
			if piece.token != nil && !s.Literal {
				out = append(out, piece.token.text)
			}
		}
	}
	return out
}

// Messages full of a template's own control tokens change nothing about the tokens of the template,
// nor about its text: for each of the 70 templates, with all of its tokens as the vocabulary.
func TestContentStaysText(t *testing.T) {
	looks := 0
	for name, src := range pinnedTemplates(t) {
		ct := openTemplate(t, nil, src)
		var list []special
		var evil, good []string
		for _, s := range append(controlLike.FindAllString(src, -1), "<s>", "</s>", "<|im_end|>", "<|im_start|>") {
			if !slices.ContainsFunc(list, func(sp special) bool { return sp.text == s }) {
				list = append(list, special{text: s, control: true})
				evil, good = append(evil, s), append(good, "("+s[1:])
			}
		}
		sp := newSpecials(list)
		conversation := func(w []string) *ChatInput {
			all := strings.Join(w, " ")
			return &ChatInput{Messages: []ChatMessage{{Role: "system", Content: "Sys " + all}, user(" a " + all + all + " \n"), assistant("b " + all + " c"), user("d " + all + " <|")},
				AddGenerationPrompt: true, Now: testTime}
		}
		run := func(w []string) *ChatPrompt {
			in := conversation(w)
			p, err := ct.Apply(in)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			plain := p.Text
			if err := ct.separate(in, p, sp); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if p.Text != plain { // it looks for tokens in messages, and finds none
				looks++
			}
			var joined strings.Builder
			for _, s := range p.Segments {
				joined.WriteString(s.Text)
			}
			if joined.String() != p.Text {
				t.Errorf("%s: the segments are %q, want %q", name, joined.String(), p.Text)
			}
			return p
		}
		a, b := controls(sp, run(evil)), controls(sp, run(good))
		if !slices.Equal(a, b) {
			t.Errorf("%s: control tokens %q, want %q", name, a, b)
		}
	}
	// Mostly for </think>, which ends the reasoning in an old message, and which real vocabularies
	// have as a user-defined token: those are not marked.
	if looks != 24 {
		t.Errorf("%d templates look for tokens in messages, want 24", looks)
	}
}

func TestTemplateErrors(t *testing.T) {
	for source, want := range map[string]string{
		"{% if x %}": "chat template: Unexpected token type", "{{ x": "chat template: Parser Error: Expected }}",
		"a{% endif %}": "chat template: Unknown statement: endif", "a\x00b": "chat template: it has a NUL byte",
		"\n\n{{ raise_exception('no\\nway') }}": "chat template: line 3, column 19: no way",
		// A line with the clock stands before this one.
		"{%- set a = strftime_now('%d') %}\n{{ raise_exception(a) }}": "chat template: line 2, column 19: 26",
	} {
		ct, err := NewChatTemplate(nil, ChatTemplateOptions{Source: source})
		if err == nil {
			_, err = ct.Apply(&ChatInput{Messages: []ChatMessage{user("x")}, Now: testTime})
		}
		_ = ct.Close()
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", source, err, want)
		}
	}
	m := openModel(t, testParams(writeTiny(t)))
	for _, o := range []ChatTemplateOptions{{Name: "tool_use"}, {Name: "a", Source: "b"}} {
		if _, err := NewChatTemplate(m, o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	if _, err := NewChatTemplate(nil, ChatTemplateOptions{}); err == nil {
		t.Error("neither a model nor a source is accepted")
	}
}

func TestChatInputErrors(t *testing.T) {
	ct := openTemplate(t, nil, "chatml")
	one := []ChatMessage{user("x")}
	for want, in := range map[string]*ChatInput{
		"no messages":             {},
		"message 1: it has no ro": {Messages: []ChatMessage{{Content: "x"}}},
		"message 2: it is not UT": {Messages: []ChatMessage{user("x"), user("\xff")}},
		"both as text and in par": {Messages: []ChatMessage{{Role: "user", Content: "a", Parts: []ChatPart{{"text", "b"}}}}},
		"content part 1: type":    {Messages: []ChatMessage{{Role: "user", Parts: []ChatPart{{"image", "b"}}}}},
		"no function name":        {Messages: []ChatMessage{{Role: "assistant", ToolCalls: []ToolCall{{}}}}},
		"tool 1: it has no name":  {Messages: one, Tools: []ChatTool{{}}},
		"tool 1: its parameters":  {Messages: one, Tools: []ChatTool{{Name: "f", Parameters: json.RawMessage("{")}}},
		"is set by the program":   {Messages: one, Kwargs: map[string]json.RawMessage{"messages": json.RawMessage("[]")}},
		"is not valid JSON":       {Messages: one, Kwargs: map[string]json.RawMessage{"a": json.RawMessage("]")}},
		"continue: \"x\"":         {Messages: one, Continue: "x"},
		"only one of the assista": {Messages: one, Continue: ContinueAuto},
		"excludes a generation":   {Messages: []ChatMessage{assistant("x")}, Continue: ContinueAuto, AddGenerationPrompt: true},
		"tool choice: \"x\"":      {Messages: one, ToolChoice: "x"},
		"reasoning format: \"x\"": {Messages: one, ReasoningFormat: "x"},
		"exclude each other":      {Messages: one, JSONSchema: "{}", Grammar: "root ::= \"a\""},
	} {
		if _, err := ct.Apply(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Apply = %v, want %q", err, want)
		}
	}
	if err := ct.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := ct.Apply(&ChatInput{Messages: one}); !errors.Is(err, ErrClosed) {
		t.Errorf("Apply after Close = %v", err)
	}
}

func TestBuiltinTemplates(t *testing.T) {
	names := BuiltinChatTemplates()
	if len(names) < 50 || !slices.Contains(names, "llama3") {
		t.Fatalf("names = %q", names)
	}
	for _, name := range names {
		p, err := openTemplate(t, nil, name).Apply(&ChatInput{Messages: []ChatMessage{user("Hello"), assistant("Hi")}, Continue: ContinueContent})
		if err != nil || !strings.Contains(p.Text, "Hello") || !strings.HasSuffix(p.Text, "Hi") {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
	llama3 := openTemplate(t, nil, "llama3")
	p, err := llama3.Apply(&ChatInput{Messages: []ChatMessage{user("Hello")}, AddGenerationPrompt: true})
	if want := "<|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"; err != nil || p.Text != want {
		t.Errorf("llama3 = %+v, %v, want %q", p, err, want)
	}
	if _, err := llama3.Apply(&ChatInput{Messages: []ChatMessage{user("a")}, Tools: []ChatTool{weather}}); err == nil {
		t.Error("tools are accepted")
	}
}

// With a real vocabulary: one BOS, control tokens where the template has them, and in a message only
// their text.
func TestTokenizeChat(t *testing.T) {
	m := pinnedVocab(t, "llama-bpe")
	v := m.Vocab()
	ct := openTemplate(t, m, pinnedTemplates(t)["meta-llama-Llama-3.2-3B-Instruct"])
	in := &ChatInput{Messages: []ChatMessage{user("Say <|eot_id|> or <|begin_of_text|>!")}, AddGenerationPrompt: true, Now: testTime}
	count := func() (bos, eot int, text string) {
		p, err := ct.Apply(in)
		if err != nil {
			t.Fatal(err)
		}
		tokens, err := ct.Tokenize(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range tokens {
			if id == v.BOS() {
				bos++
			}
			if v.Text(id) == "<|eot_id|>" {
				eot++
			}
		}
		return bos, eot, string(v.Detokenize(tokens, true))
	}
	bos, eot, text := count()
	if bos != 1 || eot != 2 || !strings.HasPrefix(text, "<|begin_of_text|><|start_header_id|>system") || !strings.Contains(text, "Say <|eot_id|> or <|begin_of_text|>!<|eot_id|>") {
		t.Errorf("%d BOS, %d EOT in %q", bos, eot, text)
	}
	in.ParseSpecial = true
	if bos, eot, _ := count(); bos != 2 || eot != 3 {
		t.Errorf("parsed: %d BOS, %d EOT", bos, eot)
	}
	// Without such text the tokens are those of the whole prompt.
	in = goldenInputs()["turns"]
	p, err := ct.Apply(in)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ct.Tokenize(p)
	want, err2 := v.Tokenize(p.Text, true, true)
	if err != nil || err2 != nil || !slices.Equal(got, want) {
		t.Errorf("Tokenize = %v, %v, want %v, %v", got, err, want, err2)
	}
}

func TestParseAnswers(t *testing.T) {
	src := pinnedTemplates(t)
	parse := func(name string, in *ChatInput, out string) ChatMessage {
		t.Helper()
		p, err := openTemplate(t, nil, src[name]).Apply(in)
		if err != nil {
			t.Fatal(err)
		}
		c, err := NewChatParser(p)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for i := range len(out) { // what is there so far is never an error
			if _, err := c.Parse(out[:i], true); err != nil {
				t.Errorf("%s: Parse(%q) = %v", name, out[:i], err)
			}
		}
		m, err := c.Parse(out, false)
		if err != nil {
			t.Errorf("%s: Parse(%q) = %v", name, out, err)
		}
		return m
	}
	in := &ChatInput{Messages: []ChatMessage{user("Weather?")}, AddGenerationPrompt: true, Tools: []ChatTool{weather}, ReasoningFormat: "deepseek"}
	m := parse("Qwen-Qwen3-0.6B", in, "<think>\nHm.\n</think>\n\nWell.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>")
	if strings.TrimSpace(m.Reasoning) != "Hm." || strings.TrimSpace(m.Content) != "Well." || len(m.ToolCalls) != 1 || m.ToolCalls[0].Name != "get_weather" ||
		strings.ReplaceAll(m.ToolCalls[0].Arguments, " ", "") != `{"city":"Paris"}` {
		t.Errorf("Parse = %+v", m)
	}
	p, err := openTemplate(t, nil, src["Qwen-Qwen3-0.6B"]).Apply(in)
	if err != nil || p.Grammar == "" || !p.GrammarLazy || len(p.Triggers) == 0 || !p.Thinking || p.ThinkingStart != "<think>" || !slices.Equal(p.ThinkingEnds, []string{"</think>"}) {
		t.Errorf("Apply = %+v, %v", p, err)
	}
	if err := CheckGrammar(p.Grammar); err != nil {
		t.Error(err)
	}
	plain := &ChatInput{Messages: []ChatMessage{user("Hi")}, AddGenerationPrompt: true}
	if m := parse("meta-llama-Llama-3.2-3B-Instruct", plain, "Hello é\n"); strings.TrimSpace(m.Content) != "Hello é" || m.Role != "assistant" {
		t.Errorf("Parse = %+v", m)
	}
}

func TestContinue(t *testing.T) {
	ct := openTemplate(t, nil, pinnedTemplates(t)["Qwen-Qwen2.5-7B-Instruct"])
	p, err := ct.Apply(&ChatInput{Messages: []ChatMessage{user("Hi"), assistant("Hel")}, Continue: ContinueAuto})
	if err != nil || !strings.HasSuffix(p.Text, "<|im_start|>assistant\nHel") {
		t.Errorf("Apply = %+v, %v", p, err)
	}
}

func TestMessageJSON(t *testing.T) {
	const text = `{"role":"assistant","content":"<a>","reasoning_content":"r","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]}`
	var m ChatMessage
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	if b, err := marshal(m); err != nil || string(b) != text {
		t.Errorf("marshal = %s, %v, want %s", b, err, text)
	}
	for in, want := range map[string]string{
		`{"role":"user","content":null}`:                                                                  `{"role":"user","content":""}`,
		`{"role":"user","content":[{"type":"text","text":"a"}],"weight":0}`:                               `{"role":"user","content":[{"type":"text","text":"a"}]}`,
		`{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{"x": 1}}}]}`: `{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":"{\"x\": 1}"}}]}`,
	} {
		var m ChatMessage
		err := json.Unmarshal([]byte(in), &m)
		if b, err2 := marshal(m); err != nil || err2 != nil || string(b) != want {
			t.Errorf("%s becomes %s, %v, %v, want %s", in, b, err, err2, want)
		}
	}
	for _, in := range []string{`{"role":"user","content":1}`, `{"role":1}`, `[]`, `{"role":"a","tool_calls":[{"type":"x"}]}`} {
		if err := json.Unmarshal([]byte(in), &m); err == nil {
			t.Errorf("%s is accepted", in)
		}
	}
}

// Of two days, a template writes the same prompt but for its dates, which are the clock's. TestGolden is
// about one of the two; none is the day on which this runs.
func TestTwoDays(t *testing.T) {
	other := time.Date(2025, 1, 16, 9, 8, 7, 0, time.Local)
	var dates []string // of the first day and of the other, in the forms that templates write
	for _, layout := range []string{"January 2, 2006", "Monday", "02 January 2006", "2 January 2006", "02 Jan 2006", "Jan 02 2006",
		"2006-01-02", "15:04:05"} {
		dates = append(dates, testTime.Format(layout), other.Format(layout))
	}
	moved := strings.NewReplacer(dates...)
	clocked := map[string]bool{}
	for name, src := range pinnedTemplates(t) {
		ct := openTemplate(t, nil, src)
		for kind, in := range goldenInputs() {
			then := *in
			then.Now = other
			p, err := ct.Render(in)
			q, err2 := ct.Render(&then)
			if (err == nil) != (err2 == nil) {
				t.Errorf("%s %s: %v on one day, %v on the other", name, kind, err, err2)
			}
			if err != nil || err2 != nil {
				continue
			}
			if want := moved.Replace(p.Text); q.Text != want {
				t.Errorf("%s %s: %q, want %q", name, kind, q.Text, want)
			}
			clocked[name] = clocked[name] || p.Text != q.Text
		}
	}
	n := 0
	for _, c := range clocked {
		if c {
			n++
		}
	}
	t.Logf("%d of %d templates write a date", n, len(clocked))
	if n < 8 {
		t.Errorf("%d templates write a date, want 8 or more", n)
	}
}
