package data

import (
	"context"
	"slices"
	"strings"
	"testing"
)

func TestTexts(t *testing.T) {
	const (
		lines = `{"text": "a story"}` + "\n" + `{"prompt": "one", "completion": " two"}` + "\n"
		chat  = `{"messages": [{"role": "user", "name": "who", "content": [{"type": "text", "text": "in parts"}]}, ` +
			`{"role": "assistant", "content": "said", "reasoning_content": "thought", ` +
			`"tool_calls": [{"id": "7", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}], ` +
			`"tools": [{"type": "function", "function": {"name": "f", "description": "does it", "parameters": {}}}]}`
	)
	for _, tt := range []struct{ name, text, want string }{
		{"a.jsonl", lines + chat, "a story|one| two|in parts|said|thought|{}"},
		{"b.txt", "{\"text\": 1}\nplain\n", "{\"text\": 1}\nplain\n"},
		{"c", chat, "in parts|said|thought|{}"},
	} {
		var got []string
		err := Texts(context.Background(), Source{Path: write(t, tt.name, tt.text)}, func(s string) { got = append(got, s) })
		got = slices.DeleteFunc(got, func(s string) bool { return s == "" })
		if text := strings.Join(got, "|"); err != nil || text != tt.want {
			t.Errorf("%s: %q, %v, want %q", tt.name, text, err, tt.want)
		}
	}
	for name, want := range map[string]string{"d.jsonl": "d.jsonl:3: ", "e.bin": "a token file has no texts"} {
		err := Texts(context.Background(), Source{Path: write(t, name, lines+`{"messages": [`)}, func(string) {})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", name, err, want)
		}
	}
}
