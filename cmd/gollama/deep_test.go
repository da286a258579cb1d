package main

import (
	"fmt"
	"strings"
	"testing"
)

// TestDeepJSON: JSON that is nested deep is one line of an error, or it works.
func TestDeepJSON(t *testing.T) {
	nest := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	schema := func(n int) string { return strings.Repeat(`{"items":`, n) + "{}" + strings.Repeat("}", n) }
	const hello = `"messages":[{"role":"user","content":"Hello"}]`
	tools := func(parameters string) string {
		return `"tools":[{"type":"function","function":{"name":"f","parameters":` + parameters + `}}]`
	}
	template := pinnedTemplate(t, "Qwen-Qwen3-0.6B")
	echo := writeFile(t, "echo.jinja", "{{ x | tojson }}{{ x | string }}{{ x }}")
	for _, n := range []int{9000, 60_000} { // Go's decoder takes up to 10,000
		tests := []struct {
			name string
			args []string
			ok   []int
		}{
			{"messages", []string{"--messages", writeFile(t, "messages.json", nest(n)), "--chat-template-file", template}, []int{exitInput}},
			{"content", []string{"--messages", writeFile(t, "content.json", `[{"role":"user","content":`+nest(n)+`}]`), "--chat-template-file", template}, []int{exitInput}},
			{"tools", []string{"--messages", writeFile(t, "tools.json", "{"+hello+","+tools(schema(n))+"}"), "--chat-template-file", template}, []int{exitInput}},
			// A prompt that is too long, or more than Go's decoder takes.
			{"kwargs", []string{"-st", "-p", "Hello", "--chat-template-file", echo, "--chat-template-kwargs", `{"x":` + nest(n) + "}"}, []int{exitInput, exitUsage}},
			{"schema", []string{"-p", "Hello", "--json-schema-file", writeFile(t, "schema.json", schema(n))}, []int{exitUsage}},
			{"template", []string{"-st", "-p", "Hello", "--chat-template-file", writeFile(t, "deep.jinja", "{{ "+nest(10*n)+" }}")}, []int{exitFailed}},
			{"endless template", []string{"-st", "-p", "Hello", "--chat-template-file", writeFile(t, "endless.jinja", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}")}, []int{exitFailed}},
			{"records", []string{"--records", writeRecords(t, []string{`{"id":"a",` + hello + "," + tools(schema(n)) + "}", `{"id":"b","prompt":"a","json_schema":` + schema(n) + "}"})}, []int{exitRecords}},
		}
		for _, tt := range tests {
			t.Run(fmt.Sprintf("%s %d", tt.name, n), func(t *testing.T) {
				_, msg, code := gollama(t, append([]string{"run", "-m", story(t), "-n", "1", "-t", "1", "-c", "512", "-q"}, tt.args...)...)
				found := false
				for _, want := range tt.ok {
					found = found || code == want
				}
				if !found || strings.Count(msg, "error:") > 1 || len(msg) > 2000 {
					t.Errorf("status %d, %.2000s", code, msg)
				}
				t.Logf("status %d, %.300s", code, msg)
			})
		}
	}
}
