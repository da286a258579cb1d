package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pinnedTemplate returns the path of one of the pinned templates.
func pinnedTemplate(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs("../../.engine/src/models/templates/" + name + ".jinja")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the engine's templates are not there: %v", err)
	}
	return path
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	qwen3  = "Qwen-Qwen3-0.6B"
	gptOSS = "openai-gpt-oss-120b"
	r1     = "deepseek-ai-DeepSeek-R1-Distill-Llama-8B"
	llama3 = "meta-llama-Llama-3.2-3B-Instruct"
	v4     = "deepseek-ai-DeepSeek-V4"
)

// TestChatFlags: each flag changes the prompt or the answer, alone at the command line and in records.
func TestChatFlags(t *testing.T) {
	thought := writeFile(t, "thought.json", `[{"role":"user","content":"Hi"},{"role":"assistant","content":"Ho","reasoning_content":"Hm"},{"role":"user","content":"Hello"}]`)
	begun := writeFile(t, "begun.json", `[{"role":"user","content":"Hi"},{"role":"assistant","content":"Ho"}]`)
	system := writeFile(t, "system.txt", "Be brief.\n")
	for _, tt := range []struct {
		name, template string
		base, flags    []string
	}{
		{"-sys", qwen3, []string{"-p", "Hello"}, []string{"-sys", "Be brief."}},
		{"-sysf", qwen3, []string{"-p", "Hello"}, []string{"-sysf", system}},
		{"--chat-template", qwen3, []string{"-p", "Hello"}, []string{"--chat-template", "llama2"}},
		{"--chat-template-file", qwen3, []string{"-p", "Hello"}, []string{"--chat-template-file", pinnedTemplate(t, r1)}},
		{"--chat-template none", qwen3, []string{"-p", "Hello"}, []string{"--chat-template", "none"}},
		{"--chat-template-kwargs", qwen3, []string{"-p", "Hello"}, []string{"--chat-template-kwargs", `{"enable_thinking":false}`}},
		{"--reasoning", qwen3, []string{"-p", "Hello"}, []string{"--reasoning", "off"}},
		{"--reasoning-effort", gptOSS, []string{"-p", "Hello"}, []string{"--reasoning-effort", "low"}},
		{"--reasoning-effort none", qwen3, []string{"-p", "Hello"}, []string{"--reasoning-effort", "none"}},
		{"--now", llama3, []string{"-p", "Hello", "--now", "2024-07-26"}, []string{"--now", "2025-01-06"}},
		{"--reasoning-preserve", v4, []string{"--messages", thought}, []string{"--reasoning-preserve"}},
		{"--no-prefill-assistant", qwen3, []string{"--messages", begun}, []string{"--no-prefill-assistant"}},
		{"--prefill", qwen3, []string{"-p", "Hello"}, []string{"--prefill", "There"}},
		{"--special-in-input", qwen3, []string{"-p", "a</s>b"}, []string{"--special-in-input", "parse"}},
		{"--reasoning-format", r1, []string{"-p", "Hello"}, []string{"--reasoning-format", "none"}},
		{"--reasoning-format deepseek-legacy", r1, []string{"-p", "Hello"}, []string{"--reasoning-format", "none"}},
		{"--reasoning-budget", r1, []string{"-p", "Hello"}, []string{"--reasoning-budget", "3"}},
		{"--reasoning-budget-message", r1, []string{"-p", "Hello", "--reasoning-budget", "3"}, []string{"--reasoning-budget-message", "Enough."}},
		{"--skip-chat-parsing", r1, []string{"-p", "Hello"}, []string{"--skip-chat-parsing"}},
		{"-p after --messages", qwen3, []string{"--messages", thought}, []string{"-p", "More"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			answer := func(more []string) string {
				args := append([]string{"run", "-m", story(t), "-t", "1", "--temp", "0", "-c", "1024", "-n", "24", "-q", "--json", "-cnv"}, tt.base...)
				if !slices.Contains(more, "--chat-template") && !slices.Contains(more, "--chat-template-file") {
					args = append(args, "--chat-template", pinnedTemplate(t, tt.template))
				}
				out, msg, code := gollama(t, append(args, more...)...)
				var r struct {
					Text      string
					Reasoning string
					Usage     struct {
						Prompt int `json:"prompt_tokens"`
					}
				}
				if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitOK {
					t.Fatalf("status %d, %s, %v", code, msg, err)
				}
				return fmt.Sprintf("%+v", r)
			}
			plain, with := answer(nil), answer(tt.flags)
			if plain == with {
				t.Errorf("with and without %q: %s", tt.flags, plain)
			}
			if again := answer(tt.flags); again != with {
				t.Errorf("once %s, once %s", with, again)
			}
		})
	}
}

// TestRecordsChat: the flags and the fields of a record make the prompt that the command line makes.
func TestRecordsChat(t *testing.T) {
	count := func(template, record string, flags ...string) string {
		args := append([]string{"run", "-m", story(t), "--records", writeRecords(t, []string{record}), "--dry-run", "-c", "1024", "-q", "--chat-template", template}, flags...)
		out, msg, code := gollama(t, args...)
		var r struct {
			N     int `json:"prompt_tokens"`
			Error struct{ Message string }
		}
		if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitOK && code != exitRecords {
			t.Fatalf("status %d, %s, %v", code, msg, err)
		}
		if r.Error.Message != "" {
			return r.Error.Message
		}
		return fmt.Sprint(r.N)
	}
	const hello = `"messages":[{"role":"user","content":"Hello"}]`
	qwen, oss := pinnedTemplate(t, qwen3), pinnedTemplate(t, gptOSS)
	for _, tt := range []struct {
		name, template, record string
		flags                  []string
		want                   string
	}{
		{"messages", qwen, `{` + hello + `}`, nil, "44"},
		{"a prompt", qwen, `{"prompt":"Hello"}`, []string{"-cnv"}, "44"},
		{"a prompt as it stands", qwen, `{"prompt":"Hello"}`, nil, "4"},
		{"reasoning off by flag", qwen, `{` + hello + `}`, []string{"--reasoning", "off"}, "61"},
		{"reasoning off by record", qwen, `{` + hello + `,"reasoning":"off"}`, nil, "61"},
		{"the record counts", qwen, `{` + hello + `,"reasoning":"auto"}`, []string{"--reasoning", "off"}, "44"},
		{"effort none", qwen, `{` + hello + `,"reasoning_effort":"none"}`, nil, "61"},
		{"kwargs", qwen, `{` + hello + `,"chat_template_kwargs":{"enable_thinking":false}}`, nil, "61"},
		{"OpenAI's form", qwen, `{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{` + hello + `,"reasoning_effort":"none"}}`, nil, "61"},
		{"another template", "chatml", `{` + hello + `}`, nil, "44"},
		{"a wrong kind", qwen, `{` + hello + `,"reasoning":1}`, nil, "reasoning: "},
		{"a wrong format", qwen, `{` + hello + `,"reasoning_format":"x"}`, nil, `reasoning_format: "x", want none, auto, deepseek, deepseek-legacy`},
		{"a wrong choice", qwen, `{` + hello + `,"tool_choice":"x"}`, nil, `tool_choice: "x", want auto, required, none, or an object that names a function`},
		{"no such tool", qwen, `{` + hello + `,"tool_choice":{"type":"function","function":{"name":"f"}}}`, nil, `messages: tool choice: there is no tool "f"`},
		{"a wrong clock", qwen, `{` + hello + `,"now":"x"}`, nil, `now: "x", want seconds since 1970`},
		{"echo", qwen, `{` + hello + `,"echo":true}`, nil, "echo: it goes with a prompt, not with messages"},
		{"a schema that no grammar expresses", qwen, `{` + hello + `,"json_schema":{"type":"number","minimum":1}}`, nil, `JSON schema: #: the keyword "minimum" cannot be expressed here by a grammar`},
	} {
		if got := count(tt.template, tt.record, tt.flags...); got != tt.want && (tt.want[0] <= '9' || !strings.HasPrefix(got, tt.want)) {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	if low, high := count(oss, `{`+hello+`,"reasoning_effort":"low"}`), count(oss, `{`+hello+`}`, "--reasoning-effort", "high"); low == high {
		t.Errorf("low and high effort: %s tokens", low)
	}
	with := count(qwen, `{`+hello+`}`, "-sys", "Be brief.")
	if own := count(qwen, `{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hello"}]}`, "-sys", "Something else."); with != own || with == "44" {
		t.Errorf("-sys: %s tokens, its own system message %s", with, own)
	}
	if day := count(pinnedTemplate(t, llama3), `{`+hello+`,"now":"2025-01-06"}`); day != count(pinnedTemplate(t, llama3), `{`+hello+`}`, "--now", "2025-01-06") {
		t.Errorf("now: %s tokens", day)
	}
}

// TestTranscript: a conversation goes on from a file, and a run over it says the same as one over the terminal's.
func TestTranscript(t *testing.T) {
	path := filepath.Join(t.TempDir(), "talk.json")
	run := func(args ...string) string {
		t.Helper()
		out, msg, code := gollama(t, append([]string{"run", "-m", story(t), "-t", "1", "--temp", "0", "-c", "512", "-n", "8", "-q", "--chat-template", "chatml"}, args...)...)
		if code != exitOK {
			t.Fatalf("%q: status %d, %s", args, code, msg)
		}
		return out
	}
	first := run("-cnv", "-p", "Hello", "--transcript", path)
	second := run("--messages", path, "-p", "And then?", "--transcript", path)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var tr transcript
	if err := json.Unmarshal(data, &tr); err != nil {
		t.Fatal(err)
	}
	want := []string{"user Hello", "assistant " + first, "user And then?", "assistant " + second}
	var got []string
	for _, m := range tr.Messages {
		got = append(got, m.Role+" "+m.Content)
	}
	if !slices.Equal(got, want) || len(tr.Command) == 0 || tr.Engine == "" {
		t.Errorf("transcript %s, want %q", data, want)
	}
	// A message that the answer goes on with is one message with it.
	if rest := run("--messages", path, "--transcript", path); rest != "" {
		if data, err = os.ReadFile(path); err == nil {
			err = json.Unmarshal(data, &tr)
		}
		if n := len(tr.Messages); err != nil || n != 4 || tr.Messages[3].Content != second+rest {
			t.Errorf("transcript %s, want %q at its end", data, second+rest)
		}
	}
}

// TestRecordsTools: a record's tools are called as their schema says.
func TestRecordsTools(t *testing.T) {
	const tool = `"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"enum":["Rome","Oslo"]}},"required":["city"]}}}]`
	const hello = `"messages":[{"role":"user","content":"Hello"}]`
	in := writeRecords(t, []string{
		`{"id":"must",` + hello + `,` + tool + `,"tool_choice":"required","prefill":"{"}`,
		`{"custom_id":"open","method":"POST","url":"/v1/chat/completions","body":{` + hello + `,` + tool + `,"tool_choice":{"type":"function","function":{"name":"weather"}},"prefill":"{"}}`,
		`{"id":"grammar",` + hello + `,"grammar":"root ::= \"yes\" | \"no\""}`,
	})
	out, msg, code := gollama(t, "run", "-m", story(t), "--records", in, "-n", "300", "--temp", "0", "-c", "2048", "-np", "2", "-t", "1",
		"--chat-template", pinnedTemplate(t, "meta-llama-Llama-3.1-8B-Instruct"))
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if code != exitOK || len(lines) != 3 {
		t.Fatalf("status %d, %s\n%s", code, msg, out)
	}
	for i, want := range []string{`"tool_calls":[{`, `"finish_reason":"tool_calls"`, `"finish_reason":"grammar"`} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %d: %s, want %s in it", i+1, lines[i], want)
		}
	}
	if !strings.Contains(lines[0], `\"city\" : \"`) || !strings.Contains(lines[0], `"name":"weather"`) {
		t.Errorf("got %s", lines[0])
	}
}
