//go:build cgo

package engine

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"gollama/internal/engine/schematest"
)

// checkTexts writes n random texts of the grammar for a schema and returns what
// is wrong with them by the validator; refused tells that there is no grammar.
func checkTexts(schema string, n int, rng *rand.Rand) (refused, err error) {
	grammar, refused := SchemaToGrammar(schema)
	if refused == nil {
		refused = CheckGrammar(grammar)
	}
	if refused != nil {
		return refused, nil
	}
	v, err := schematest.NewValidator(schema)
	if err != nil {
		return nil, err
	}
	w := newGBNFWriter(grammar, rng)
	for range n {
		text, ok := w.text()
		if !ok {
			return nil, nil
		}
		if err := v.Check(text); err != nil {
			return nil, fmt.Errorf("%q: %w\n%s", text, err, grammar)
		}
	}
	return nil, nil
}

// TestSchemas: what the grammars for the schemas of llama.cpp's own tests allow
// is valid, judged by another's validator, or the schema is refused.
func TestSchemas(t *testing.T) {
	schemas := schematest.Pinned(t)
	rng := rand.New(rand.NewPCG(1, 2))
	n := 0
	for _, schema := range schemas {
		refused, err := checkTexts(schema, 20, rng)
		if err != nil {
			t.Errorf("%s: %v", schema, err)
		}
		if refused != nil {
			n++
			t.Logf("%s: refused: %v", schema, refused)
		}
	}
	t.Logf("%d schemas, %d refused", len(schemas), n)
}

// TestSchemasMade: the same for schemas made up here. For most of those that are
// not refused llama.cpp's own grammar allows what is not valid.
func TestSchemasMade(t *testing.T) {
	tests := []struct{ schema, refused string }{
		{`{"type":"integer","maximum":-5}`, ""},
		{`{"type":"integer","minimum":100}`, ""},
		{`{"type":"integer","minimum":9007199254740993}`, ""},
		{`{"type":"integer","exclusiveMinimum":-3.5,"minimum":-3.2,"exclusiveMaximum":7,"maximum":1e3}`, ""},
		{`{"type":"integer","minimum":1,"maximum":0}`, "within the bounds"},
		{`{"type":"integer","minimum":1e999999999}`, "not one of a double's size"},
		{`{"type":["integer","string"],"maximum":-1,"maxLength":2}`, ""},
		{`{"type":"string","minLength":3,"maxLength":3}`, ""},
		{`{"type":"string","maxLength":3000}`, ""},
		{`{"type":"string","minLength":3000}`, "more than a grammar can count"},
		{`{"type":"array","items":{"type":"null"},"minItems":4294967297}`, "more than a grammar can count"},
		{`{"type":"array","items":{"type":"null"},"minItems":3,"maxItems":2}`, `"maxItems" is below "minItems"`},
		{`{"type":"array","items":{"type":"null"},"minItems":1.0,"maxItems":2.0}`, ""},
		{`{"type":"array","items":false}`, ""},
		{`{"prefixItems":[{"type":"null"}],"items":false,"minItems":1}`, ""},
		{`{"type":"string","pattern":"^\"$"}`, ""},
		{`{"type":"string","pattern":"^[\"-'\\\\]+[^a]*.{2,3}\\n\\x01\\\\$"}`, ""},
		{`{"type":"string","pattern":"^ab\\\\?[0-9]\\.+(|x|yy)$"}`, ""},
		{`{"type":"string","pattern":"^A|B|C|D$"}`, ""},
		{`{"type":"string","pattern":"^(\\D\\W\\S|\\d\\w\\s){2}$"}`, ""},
		{`{"type":"string","pattern":"b{2,}"}`, ""},
		{`{"type":"string","pattern":"^$"}`, ""},
		{`{"type":"string","pattern":"^a\\b"}`, "the escape"},
		{`{"type":"string","pattern":"^(?i:a)$"}`, "a group of another kind"},
		{`{"type":"string","pattern":"x^"}`, "inside it"},
		{`{"type":"string","pattern":"^[]$"}`, "an empty class"},
		{`{"type":"string","format":"date"}`, ""},
		{`{"type":"string","format":"date-time"}`, ""},
		{`{"type":"string","format":"time"}`, ""},
		{`{"properties":{"a":{"type":"integer"},"b-c":{"type":"null"}},"additionalProperties":{"type":"string"}}`, ""},
		{`{"properties":{"a":{"type":"integer"},"ab":{"type":"null"}},"required":["ab"],"additionalProperties":{"type":"boolean"}}`, ""},
		{`{"properties":{"]":{"type":"integer"}},"additionalProperties":{"type":"string"}}`, "#/properties/]"},
		{`{"properties":{"*":{"type":"integer"}},"additionalProperties":true}`, "#/properties/*"},
		{`{"properties":{"*":{"type":"integer"},"]\n\"":{"type":"null"}},"required":["]\n\""]}`, ""},
		{`{"properties":{"integral_part":{"type":"string"},"n":{"type":"number"}},"required":["integral_part","n"]}`, ""},
		{`{"properties":{"a b":{"$ref":"#/$defs/a b"},"a-b":{"$ref":"#/$defs/a-b"}},"required":["a b","a-b"],"$defs":{"a b":{"type":"null"},"a-b":{"type":"boolean"}}}`, ""},
		{`{"properties":{"ref_defs_d0x":{"type":"string"},"b":{"$ref":"#/$defs/a~1b"}},"required":["ref_defs_d0x","b"],"$defs":{"a/b":{"type":"null"}}}`, ""},
		{`{"oneOf":[{"type":"number"},{"type":"integer"}]}`, "#/oneOf: what is valid by alternative 0 may be so by 1"},
		{`{"oneOf":[{"type":"integer","maximum":-1},{"type":"integer","minimum":0},{"enum":["a",null]},{"type":"boolean"}]}`, ""},
		{`{"oneOf":[{"type":"integer","maximum":-100000000000000000},{"type":"integer","maximum":5}]}`, "may be so by"},
		{`{"oneOf":[{"type":"integer"},{"format":"date"}]}`, "may be so by"},
		{`{"oneOf":[{"properties":{"k":{"const":"a"},"x":{}},"required":["k"]},{"properties":{"k":{"const":"b"}},"required":["k"]}]}`, ""},
		{`{"oneOf":[{"properties":{"a":{}},"required":["a"]},{"properties":{"b":{}},"required":["b"]}]}`, ""},
		{`{"oneOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}]}`, "may be so by"},
		{`{"oneOf":[{"type":"string","maxLength":2},{"type":"string","minLength":2}]}`, "may be so by"},
		{`{"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},"oneOf":[{"required":["a"]},{"required":["b"]}]}`, "may be so by"},
		{`{"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},"anyOf":[{"required":["a"]},{"required":["b"]}]}`, ""},
		{`{"allOf":[{"type":"string"},{"minLength":1},{"maxLength":2},{"maxLength":3}]}`, ""},
		{`{"allOf":[{"$ref":"#/$defs/a"},{"properties":{"c":{"type":"integer"}},"required":["c"]}],"$defs":{"a":{"properties":{"b":{"type":"null"}}}}}`, ""},
		{`{"allOf":[{"$ref":"#/$defs/a"},{"properties":{"c":{"type":"integer"}}}],"$defs":{"a":{"properties":{"b":{"type":"null"}},"additionalProperties":false}}}`, "cannot be joined"},
		{`{"allOf":[{"$ref":"#/$defs/n"}],"$defs":{"n":{"$ref":"#/$defs/n"}}}`, "refers to itself"},
		{`{"$ref":"#/$defs/a","$defs":{"a":{"properties":{"x":{"allOf":[{"$ref":"#/$defs/a"}]}}}}}`, ""},
		{`{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"$ref":"#/$defs/b"},{"type":"null"}]},"b":{"allOf":[{"$ref":"#/$defs/a"}]}}}`, "refers to itself"},
		{`{"properties":{"next":{"$ref":"#"}},"required":[]}`, ""},
		{`{"type":"integer","enum":[1,"a",2.0,2.5]}`, ""},
		{`{"type":"null","enum":[1]}`, "no listed value is of type null"},
		{`{"const":12345678901234567890123}`, "more digits"},
		{`{"const":1e400}`, "more digits"},
		{`{"const":{"b":["\u0000\u2028\"\\",1.50,-0.0,1e2],"a":null}}`, ""},
		{`{"type":"number"}`, ""},
		{`{"type":["number","integer"],"minimum":10}`, `#: the keyword "minimum"`},
		{`{"type":"number","multipleOf":2}`, `#: the keyword "multipleOf"`},
		{`{"properties":{"a":{"not":{}}}}`, `#/properties/a: the keyword "not"`},
		{`{"items":{"$id":"x"}}`, "#/items"},
		{`{"definitions":{"a":{"not":{}}},"type":"null"}`, ""},
		{`{"type":"object"} x`, "something after its end"},
		{`[]`, "not an object"}, {`{`, "not JSON"}, {`{"items":{},}`, "not JSON"},
		{nestedArrays(100), ""}, {nestedArrays(5000), "nested too deep"},
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for _, tt := range tests {
		refused, err := checkTexts(tt.schema, 100, rng)
		if err != nil {
			t.Errorf("%.200s: %v", tt.schema, err)
		}
		if msg := fmt.Sprint(refused); (tt.refused == "") != (refused == nil) || !strings.Contains(msg, tt.refused) {
			t.Errorf("%.200s: refused %v, want %q", tt.schema, refused, tt.refused)
		}
	}
}

// schemaMaker makes random schemas, most of which have a grammar.
type schemaMaker struct{ *rand.Rand }

func (m schemaMaker) pick(list ...string) string { return list[m.IntN(len(list))] }

func (m schemaMaker) list(least, depth int) string {
	var parts []string
	for range least + m.IntN(3) {
		parts = append(parts, m.schema(depth))
	}
	return "[" + strings.Join(parts, ",") + "]"
}

var patternParts = []string{`a`, `b?`, `[a-c\\\"]`, `[^x\"]`, `.`, `\\d`, `\\W`, `(x|yz)`, `(a|)`, `\\.`, `\\\\`, `\\n`, `{`, `-`, `]`, ` `, `é`, `(a*b)`,
	`\\x22`, `[\\t-~]`, `\\S`, `(?:[^\\s]|q)`}

func (m schemaMaker) pattern() string {
	s := m.pick("", "^", "^")
	for range m.IntN(5) {
		s += m.pick(patternParts...)
		if !strings.HasSuffix(s, "?") {
			s += m.pick("", "", "", "*", "+", "?", "{2}", "{1,3}", "{2,}")
		}
	}
	return s + m.pick("", "$", "$")
}

func (m schemaMaker) object(depth int) string {
	var props, required []string
	for _, name := range []string{"a", "ab", "b-c", "_", "integral_part", "é", "", "item"} {
		if m.IntN(4) == 0 {
			props = append(props, fmt.Sprintf("%q:%s", name, m.schema(depth)))
			if m.IntN(2) == 0 {
				required = append(required, fmt.Sprintf("%q", name))
			}
		}
	}
	s := fmt.Sprintf(`{"type":"object","properties":{%s},"required":[%s]`, strings.Join(props, ","), strings.Join(required, ","))
	switch m.IntN(4) {
	case 0:
		s += `,"additionalProperties":` + m.schema(depth)
	case 1:
		s += `,"additionalProperties":` + m.pick("true", "false")
	}
	return s + "}"
}

func (m schemaMaker) schema(depth int) string {
	kinds := 8
	if depth > 0 {
		kinds = 16
	}
	small := func() int { return m.IntN(1000) >> m.IntN(10) * (1 - 2*m.IntN(2)) }
	switch m.IntN(kinds) {
	case 0:
		return fmt.Sprintf(`{"type":%s}`, m.pick(`"null"`, `"boolean"`, `"number"`, `"string"`, `["integer","null"]`))
	case 1:
		return fmt.Sprintf(`{"type":"integer",%q:%d}`, m.pick(typeKeywords["integer"]...), small())
	case 2:
		n := small()
		return fmt.Sprintf(`{"type":"integer",%q:%d,%q:%d}`, m.pick("minimum", "exclusiveMinimum"), n, m.pick("maximum", "exclusiveMaximum"), n+m.IntN(2000))
	case 3:
		n := m.IntN(4)
		return fmt.Sprintf(`{"type":"string","minLength":%d,"maxLength":%d}`, n, n+m.IntN(3))
	case 4, 5:
		return fmt.Sprintf(`{"type":"string","pattern":"%s"}`, m.pattern())
	case 6:
		return fmt.Sprintf(`{"enum":[%s,%d,%s]}`, m.pick(`"a"`, `"\\\""`, `null`, `[1,"b"]`, `{"a":1e2}`), small(), m.pick("true", "1.5", `"é"`))
	case 7:
		return m.pick(`{"$ref":"#/$defs/a"}`, `{"$ref":"#/$defs/b"}`, `{}`, `true`, `{"format":"date"}`)
	case 8:
		return fmt.Sprintf(`{"type":"array","items":%s,"minItems":%d}`, m.schema(depth-1), m.IntN(3))
	case 9:
		return fmt.Sprintf(`{"type":"array","prefixItems":%s}`, m.list(1, depth-1))
	case 10:
		return fmt.Sprintf(`{%q:%s}`, m.pick("anyOf", "oneOf"), m.list(1, depth-1))
	case 11:
		return fmt.Sprintf(`{"allOf":%s}`, m.list(1, depth-1))
	case 12:
		return fmt.Sprintf(`{"type":%s,%q:%s}`, m.pick(`"object"`, `"string"`, `["integer","string"]`), m.pick("anyOf", "oneOf", "allOf"), m.list(1, depth-1))
	}
	return m.object(depth - 1)
}

// randomSchemas is how many TestSchemasRandom makes.
var randomSchemas = 500

// TestSchemasRandom: the same for schemas that are made by chance.
func TestSchemasRandom(t *testing.T) {
	m := schemaMaker{rand.New(rand.NewPCG(*schemaSeed, uint64(randomSchemas)))}
	n := 0
	for range randomSchemas {
		schema := m.schema(3)
		if schema == "true" {
			continue
		}
		schema = fmt.Sprintf(`%s,"$defs":{"a":%s,"b":%s}}`, strings.TrimSuffix(schema, "}"), m.schema(2), m.schema(1))
		if strings.HasPrefix(schema, "{,") {
			schema = "{" + schema[2:]
		}
		refused, err := checkTexts(schema, 20, m.Rand)
		if err != nil {
			t.Errorf("%s: %v", schema, err)
		}
		if refused == nil {
			n++
		} else if !strings.Contains(refused.Error(), "#") {
			t.Errorf("%s: refused without its place: %v", schema, refused)
		}
	}
	t.Logf("%d of %d have a grammar", n, randomSchemas)
	if n < randomSchemas/4 {
		t.Errorf("%d of %d random schemas have a grammar", n, randomSchemas)
	}
}

// nestedArrays is a schema of n arrays in each other.
func nestedArrays(n int) string {
	return strings.Repeat(`{"type":"array","items":`, n) + `{"type":"null"}` + strings.Repeat("}", n)
}
