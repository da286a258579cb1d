package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
)

// schemaNode is the kind of schema that llama.cpp's converter takes a JSON
// object for; each uses some keywords and drops the others without a word.
// Source: common_chat_schema_builder::build_node in common/json-schema.cpp.
type schemaNode struct {
	uses []string // keywords that end up in the grammar
}

// schemaNotes are keywords that constrain nothing, anywhere.
var schemaNotes = []string{"$schema", "$id", "$comment", "$defs", "definitions", "$anchor", "title", "description",
	"default", "examples", "example", "deprecated", "readOnly", "writeOnly"}

var (
	refNode    = schemaNode{[]string{"$ref"}}
	constNode  = schemaNode{[]string{"const", "type"}}
	enumNode   = schemaNode{[]string{"enum", "type"}}
	objectNode = schemaNode{[]string{"type", "properties", "required", "additionalProperties"}}
	arrayNode  = schemaNode{[]string{"type", "items", "prefixItems", "minItems", "maxItems"}}
	stringNode = schemaNode{[]string{"type", "pattern", "format", "minLength", "maxLength"}}
	intNode    = schemaNode{[]string{"type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}}
	plainNode  = schemaNode{[]string{"type"}}
)

// schemaFormats are the string formats that have a rule.
var schemaFormats = []string{"date", "time", "date-time", "uuid", "uuid1", "uuid2", "uuid3", "uuid4", "uuid5"}

// checkSchema refuses a schema with keywords that the conversion to a grammar
// would drop silently, so that the output could break the schema.
func checkSchema(schema string) error {
	dec := json.NewDecoder(strings.NewReader(schema))
	dec.UseNumber()
	var root any
	if err := dec.Decode(&root); err != nil {
		return fmt.Errorf("JSON schema: it is not JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("JSON schema: there is something after its end")
	}
	if _, ok := root.(map[string]any); !ok {
		return errors.New("JSON schema: it is not an object")
	}
	if err := walkSchema(root, "#"); err != nil {
		return fmt.Errorf("JSON schema: %w", err)
	}
	return nil
}

// maxSchemaNesting bounds the segments of a schema's path: the conversion
// takes more than 20 s on a schema nested 5000 deep.
const maxSchemaNesting = 512

func walkSchema(v any, path string) error {
	if strings.Count(path, "/") > maxSchemaNesting {
		return fmt.Errorf("nested too deep: more than %d levels", maxSchemaNesting)
	}
	s, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("%s: a schema that is not an object cannot be expressed by a grammar", path)
	}
	// Definitions are schemas too; a $ref leads to them.
	for _, key := range []string{"$defs", "definitions"} {
		if defs, ok := s[key].(map[string]any); ok {
			if err := walkEach(defs, path+"/"+key); err != nil {
				return err
			}
		}
	}
	if _, isRef := s["$ref"]; isRef {
		return unused(s, path, refNode)
	}
	for _, key := range []string{"oneOf", "anyOf"} {
		if alts, ok := s[key].([]any); ok {
			if err := unused(s, path, schemaNode{[]string{key}}); err != nil {
				return err
			}
			return walkList(alts, path+"/"+key)
		}
	}
	if types, ok := s["type"].([]any); ok {
		for _, t := range types {
			one := make(map[string]any, len(s))
			for k, v := range s {
				one[k] = v
			}
			one["type"] = t
			// A keyword of another of the types does not apply to this one.
			if err := walkTyped(one, path, types); err != nil {
				return err
			}
		}
		return nil
	}
	return walkTyped(s, path, nil)
}

// walkTyped checks a schema with at most one type; of is the list of types it
// was taken from.
func walkTyped(s map[string]any, path string, of []any) error {
	if all, ok := s["allOf"].([]any); ok {
		return walkAllOf(s, all, path)
	}
	node := nodeOf(s)
	for _, t := range of {
		node.uses = append(slices.Clone(node.uses), nodeOf(map[string]any{"type": t}).uses...)
	}
	if err := unused(s, path, node); err != nil {
		return err
	}
	if err := checkFormat(s, path); err != nil {
		return err
	}
	if err := checkBounds(s, path); err != nil {
		return err
	}
	return walkChildren(s, path)
}

// nodeOf follows the order in which build_node looks at the keywords.
func nodeOf(s map[string]any) schemaNode {
	has := func(keys ...string) bool {
		return slices.ContainsFunc(keys, func(k string) bool { _, ok := s[k]; return ok })
	}
	typ, _ := s["type"].(string)
	switch {
	case has("const"):
		return constNode
	case has("enum"):
		return enumNode
	case typ == "object", typ == "" && has("properties", "additionalProperties"):
		return objectNode
	case typ == "array", typ == "" && has("items", "prefixItems"):
		return arrayNode
	case typ == "string", typ == "" && has("pattern", "minLength", "maxLength", "format"):
		return stringNode
	case typ == "integer":
		return intNode
	}
	return plainNode
}

// unused returns an error for a keyword that node drops.
func unused(s map[string]any, path string, node schemaNode) error {
	keys := make([]string, 0, len(s))
	for k := range s {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		if !slices.Contains(node.uses, k) && !slices.Contains(schemaNotes, k) && !strings.HasPrefix(k, "x-") {
			return fmt.Errorf("%s: the keyword %q cannot be expressed here by a grammar", path, k)
		}
	}
	return nil
}

// walkAllOf allows what _visit_all_of merges: objects by their properties, and
// enums by their common values.
func walkAllOf(s map[string]any, all []any, path string) error {
	if err := unused(s, path, schemaNode{[]string{"allOf", "type"}}); err != nil {
		return err
	}
	enums := 0
	for i, v := range all {
		p := fmt.Sprintf("%s/allOf/%d", path, i)
		c, _ := v.(map[string]any)
		switch {
		case c["enum"] != nil:
			enums++
		case c["$ref"] != nil:
		case c["properties"] == nil:
			return fmt.Errorf("%s: only objects with properties, references and enums can be joined in a grammar", p)
		case c["additionalProperties"] != nil:
			return fmt.Errorf("%s: the keyword \"additionalProperties\" cannot be expressed here by a grammar", p)
		case !allRequired(c):
			// The converter makes each property of a part required.
			return fmt.Errorf("%s: optional properties cannot be expressed here by a grammar", p)
		}
		if err := walkSchema(v, p); err != nil {
			return err
		}
	}
	if enums != 0 && enums != len(all) {
		return fmt.Errorf("%s/allOf: enums and other schemas cannot be joined in a grammar", path)
	}
	return nil
}

func allRequired(s map[string]any) bool {
	props, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	for name := range props {
		if !slices.Contains(required, any(name)) {
			return false
		}
	}
	return true
}

func checkFormat(s map[string]any, path string) error {
	f, ok := s["format"].(string)
	if !ok {
		return nil
	}
	if !slices.Contains(schemaFormats, f) {
		return fmt.Errorf("%s: the format %q has no grammar, only %s have", path, f, strings.Join(schemaFormats[:4], ", "))
	}
	return exclusive(s, path, "format", "pattern", "minLength", "maxLength")
}

// checkBounds refuses pairs of keywords of which the converter takes one.
func checkBounds(s map[string]any, path string) error {
	if err := exclusive(s, path, "pattern", "minLength", "maxLength"); err != nil {
		return err
	}
	if err := exclusive(s, path, "items", "prefixItems"); err != nil {
		return err
	}
	if err := exclusive(s, path, "minimum", "exclusiveMinimum"); err != nil {
		return err
	}
	if err := exclusive(s, path, "maximum", "exclusiveMaximum"); err != nil {
		return err
	}
	for _, key := range []string{"items", "prefixItems"} {
		if _, tuple := s[key].([]any); tuple {
			return exclusive(s, path, key, "minItems", "maxItems")
		}
	}
	return checkRequired(s, path)
}

func exclusive(s map[string]any, path, key string, others ...string) error {
	if s[key] == nil {
		return nil
	}
	for _, o := range others {
		if s[o] != nil {
			return fmt.Errorf("%s: %q and %q together cannot be expressed by a grammar", path, key, o)
		}
	}
	return nil
}

// checkRequired refuses required properties that are not described: the
// grammar would not ask for them.
func checkRequired(s map[string]any, path string) error {
	if s["required"] == nil {
		return nil
	}
	list, ok := s["required"].([]any)
	if !ok {
		return fmt.Errorf("%s: \"required\" is not an array", path)
	}
	props, _ := s["properties"].(map[string]any)
	for _, v := range list {
		name, ok := v.(string)
		if _, known := props[name]; !ok || !known {
			return fmt.Errorf("%s: the required property %v is not among \"properties\", which a grammar cannot express", path, v)
		}
	}
	return nil
}

func walkChildren(s map[string]any, path string) error {
	if props, ok := s["properties"].(map[string]any); ok {
		if err := walkEach(props, path+"/properties"); err != nil {
			return err
		}
	}
	if more, ok := s["additionalProperties"].(map[string]any); ok {
		if err := walkSchema(more, path+"/additionalProperties"); err != nil {
			return err
		}
	}
	for _, key := range []string{"items", "prefixItems"} {
		switch v := s[key].(type) {
		case []any:
			if err := walkList(v, path+"/"+key); err != nil {
				return err
			}
		case map[string]any:
			if err := walkSchema(v, path+"/"+key); err != nil {
				return err
			}
		}
	}
	return nil
}

func walkEach(m map[string]any, path string) error {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if err := walkSchema(m[name], path+"/"+name); err != nil {
			return err
		}
	}
	return nil
}

func walkList(list []any, path string) error {
	for i, v := range list {
		if err := walkSchema(v, fmt.Sprintf("%s/%d", path, i)); err != nil {
			return err
		}
	}
	return nil
}
