//go:build cgo

package engine

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gollama/internal/engine/schematest"
)

// checkCalls writes n random answers by the grammar for tools, each of which
// must be called, and returns what is wrong with the arguments by the validator.
func checkCalls(ct *ChatTemplate, schemas map[string]string, n int, rng *rand.Rand) (refused, err error) {
	in := &ChatInput{Messages: []ChatMessage{user("a")}, AddGenerationPrompt: true, ToolChoice: "required", Now: testTime}
	for name, schema := range schemas {
		in.Tools = append(in.Tools, ChatTool{Name: name, Parameters: json.RawMessage(schema)})
	}
	p, refused := ct.Apply(in)
	if refused == nil {
		refused = CheckGrammar(p.Grammar)
	}
	if refused != nil {
		return refused, nil
	}
	checks := map[string]*schematest.Validator{}
	for name, schema := range schemas {
		if checks[name], err = schematest.NewValidator(schema); err != nil {
			return nil, err
		}
	}
	c, err := NewChatParser(p)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	w := newGBNFWriter(p.Grammar, rng)
	for range n {
		text, ok := w.text()
		if !ok {
			return nil, nil
		}
		m, err := c.Parse(text, false)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		for _, call := range m.ToolCalls {
			if err := checks[call.Name].Check(call.Arguments); err != nil {
				return nil, fmt.Errorf("%s(%s): %w\n%s", call.Name, call.Arguments, err, p.Grammar)
			}
		}
		if len(m.ToolCalls) == 0 {
			return nil, fmt.Errorf("%q calls no tool", text)
		}
	}
	return nil, nil
}

// TestToolSchemas: the arguments that the grammars for tools allow are valid by
// their parameters, or these are refused.
func TestToolSchemas(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	ct := openTemplate(t, nil, pinnedTemplates(t)["Qwen-Qwen2.5-7B-Instruct"])
	tests := []struct {
		schemas map[string]string
		refused string
	}{
		{map[string]string{"f": `{"properties":{"n":{"type":"integer","minimum":100}},"required":["n"]}`}, ""},
		{map[string]string{"f": `{"type":"object","properties":{"s":{"type":"string","pattern":"^\"$"},"d":{"type":"string","format":"date"}},"required":["s","d"]}`}, ""},
		{map[string]string{"f": `{"allOf":[{"$ref":"#/$defs/a"},{"properties":{"c":{"type":"integer"}},"required":["c"]}],"$defs":{"a":{"properties":{"b":{"type":"null"}}}}}`}, ""},
		{map[string]string{"f": `{"properties":{"next":{"$ref":"#"},"v":{"enum":["a",1]}},"required":["v"]}`}, ""},
		{map[string]string{
			"f": `{"properties":{"x":{"$ref":"#/$defs/a"}},"required":["x"],"$defs":{"a":{"type":"null"}}}`,
			"g": `{"properties":{"x":{"$ref":"#/$defs/a"}},"required":["x"],"$defs":{"a":{"type":"boolean"}}}`}, ""},
		{map[string]string{"f": `[1]`}, `tool "f": parameters: they are not an object`},
		{map[string]string{"f": nestedArrays(5000)}, "nested too deep"},
	}
	for _, tt := range tests {
		refused, err := checkCalls(ct, tt.schemas, 20, rng)
		if err != nil {
			t.Errorf("%.200v: %v", tt.schemas, err)
		}
		if (refused == nil) != (tt.refused == "") || refused != nil && !strings.Contains(refused.Error(), tt.refused) {
			t.Errorf("%.200v: refused %v, want %q", tt.schemas, refused, tt.refused)
		}
	}
	n, all, batch := 0, 0, map[string]string{}
	check := func() {
		refused, err := checkCalls(ct, batch, 5*len(batch), rng)
		if err != nil || refused != nil {
			t.Errorf("%v: %v, refused: %v", batch, err, refused)
		}
		batch = map[string]string{}
	}
	for _, schema := range schematest.Pinned(t) {
		if strings.Contains(schema, "$ref") || strings.Contains(schema, `"$id"`) {
			continue
		}
		all++
		schema = `{"type":"object","properties":{"a":` + schema + `},"required":["a"]}`
		if _, err := normalizeTool(schema, "d"); err != nil {
			n++
			continue
		}
		if batch[fmt.Sprint("f", all)] = schema; len(batch) == 20 { // making the parser takes longest
			check()
		}
	}
	check()
	t.Logf("%d schemas, %d refused", all, n)
}

// TestLooseTools: a tool with a bound that no grammar can express has llama.cpp's grammar, and one warning.
func TestLooseTools(t *testing.T) {
	var lines []string
	SetLogger(LogDebug, func(level int, text string) {
		if level == LogNotice {
			lines = append(lines, text)
		}
	})
	defer SetLogger(0, nil)
	ct := openTemplate(t, nil, pinnedTemplates(t)["Qwen-Qwen2.5-7B-Instruct"])
	in := &ChatInput{Messages: []ChatMessage{user("a")}, AddGenerationPrompt: true, Tools: []ChatTool{
		{Name: "loose", Parameters: json.RawMessage(`{"type":"object","properties":{"x":{"type":"number","minimum":0.5},"url":{"type":"string","format":"uri"}}}`)},
		{Name: "right", Parameters: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer","minimum":100}}}`)}}}
	for range 2 {
		if p, err := ct.Apply(in); err != nil || !strings.Contains(p.Grammar, "loose") || !strings.Contains(p.Grammar, "1-9") {
			t.Fatalf("%+v, %v", p, err)
		}
	}
	want := []string{`tool "loose": a call may have arguments that are not valid: #/properties/x: the keyword "minimum" cannot be expressed here by a grammar`}
	if !slices.Equal(lines, want) {
		t.Errorf("warnings: %q, want %q", lines, want)
	}
}

// TestToolsShown: a template is shown the parameters as they are given.
func TestToolsShown(t *testing.T) {
	const schema = `{"type": "object", "properties": {"n": {"minimum": 100, "type": "integer"}}, "allOf": [{"required": ["n"]}]}`
	ct := openTemplate(t, nil, pinnedTemplates(t)["Qwen-Qwen2.5-7B-Instruct"])
	in := &ChatInput{Messages: []ChatMessage{user("a")}, AddGenerationPrompt: true, Tools: []ChatTool{{Name: "f", Parameters: json.RawMessage(schema)}}}
	p, err := ct.Apply(in)
	if err != nil || !strings.Contains(p.Text, schema) || !strings.Contains(p.Grammar, "1-9") {
		t.Errorf("%+v, %v, want %s in it", p, err, schema)
	}
}
