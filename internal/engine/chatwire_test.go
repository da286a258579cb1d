package engine

import (
	"testing"

	"gollama/internal/pipeline"
)

// TestMessageErrors: what is wrong with messages and tools is said in JSON's words, with its place.
func TestMessageErrors(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{`[{"role":"user","content":"a"},{"role":"user","content":null},{"role":"user","content":[{"type":"text","text":"a"}]}]`, ""},
		{`[{"role":"user","content":"a","weight":1,"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}]`, ""},
		{`{}`, `got an object, want an array`},
		{`[{"role":"user"},"a"]`, `[1]: got a string, want an object`},
		{`[{"role":1}]`, `[0].role: got a number, want a string`},
		{`[{"content":true}]`, `[0].content: got a truth value, want a string or an array of parts`},
		{`[{"content":[{"type":"text","text":"a"},"b"]}]`, `[0].content[1]: got a string, want an object`},
		{`[{"content":[{"type":"text","text":[]}]}]`, `[0].content[0].text: got an array, want a string`},
		{`[{"tool_calls":{}}]`, `[0].tool_calls: got an object, want an array`},
		{`[{"tool_calls":[{"type":"retrieval"}]}]`, `[0].tool_calls[0].type: got "retrieval", want function`},
		{`[{"tool_calls":[{"function":{"name":"f"}},{"function":{"name":2}}]}]`, `[0].tool_calls[1].function.name: got a number, want a string`},
		{`[{"role":"user"]`, `byte 16: invalid character ']' after object key:value pair`},
	} {
		var list []ChatMessage
		checkJSONError(t, tt.text, pipeline.DecodeList([]byte(tt.text), &list), tt.want)
	}
	for _, tt := range []struct{ text, want string }{
		{`[{"type":"function","function":{"name":"f","parameters":{}}}]`, ""},
		{`[{"type":"function","function":{"name":"f","description":1}}]`, `[0].function.description: got a number, want a string`},
		{`[{"type":"function","function":"f"}]`, `[0].function: got a string, want an object`},
		{`[{"type":"retrieval"}]`, `[0].type: got "retrieval", want function`},
	} {
		var list []ChatTool
		checkJSONError(t, tt.text, pipeline.DecodeList([]byte(tt.text), &list), tt.want)
	}
}

func checkJSONError(t *testing.T, text string, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && err.Error() != want {
		t.Errorf("%s: %v, want %q", text, err, want)
	}
}
