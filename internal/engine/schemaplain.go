package engine

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// typeKeywords are the keywords that count for values of a type.
var typeKeywords = map[string][]string{
	"object":  {"properties", "required", "additionalProperties"},
	"array":   {"items", "prefixItems", "minItems", "maxItems"},
	"string":  {"pattern", "format", "minLength", "maxLength"},
	"integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
	"number":  {}, "boolean": {}, "null": {},
}

// plain returns the normal form of a schema without references and parts.
func (n *schemaNormalizer) plain(s *jsonObject, path string) (*jsonObject, error) {
	types, err := schemaTypes(s, path)
	if err != nil {
		return nil, err
	}
	if s.has("const") || s.has("enum") {
		return listed(s, types, path)
	}
	if len(types) == 0 {
		return newObject(), unused(s, path)
	}
	uses := []string{"type"}
	for _, t := range types {
		if t == "integer" && slices.Contains(types, "number") {
			continue // its bounds are the number's too, which no grammar has
		}
		uses = append(uses, typeKeywords[t]...)
	}
	if err := unused(s, path, uses...); err != nil {
		return nil, err
	}
	list := make([]any, len(types))
	for i, t := range types {
		if list[i], err = n.typed(s, t, path); err != nil {
			return nil, err
		}
	}
	if len(list) == 1 {
		out := list[0].(*jsonObject)
		out.untyped = !s.has("type")
		return out, nil
	}
	return newObject("anyOf", list), nil
}

// schemaTypes returns the types that a schema names, or the one that its
// keywords are about: without a type it would allow values of the others too.
func schemaTypes(s *jsonObject, path string) (types []string, err error) {
	list, isList := s.m["type"].([]any)
	if !isList && s.has("type") {
		list = []any{s.m["type"]}
	}
	for _, v := range list {
		t, ok := v.(string)
		if _, known := typeKeywords[t]; !ok || !known {
			return nil, fmt.Errorf("%s: unknown type %v", path, v)
		}
		if !slices.Contains(types, t) {
			types = append(types, t)
		}
	}
	switch has := func(k string) bool { return s.has(k) }; {
	case s.has("type") && types == nil:
		return nil, fmt.Errorf("%s: \"type\" is an empty list", path)
	case types != nil || s.has("const") || s.has("enum"):
	case s.has("properties") || s.has("additionalProperties"):
		types = []string{"object"}
	case s.has("items") || s.has("prefixItems"):
		types = []string{"array"}
	case slices.ContainsFunc(typeKeywords["string"], has):
		types = []string{"string"}
	}
	return types, nil
}

func (n *schemaNormalizer) typed(s *jsonObject, typ, path string) (*jsonObject, error) {
	switch typ {
	case "object":
		return n.object(s, path)
	case "array":
		return n.array(s, path)
	case "string":
		return normalString(s, path)
	case "integer":
		return normalInteger(s, path)
	}
	return newObject("type", typ), nil
}

// listed returns a schema with const or enum, its values those of the types.
func listed(s *jsonObject, types []string, path string) (*jsonObject, error) {
	if err := unused(s, path, "type", "const", "enum"); err != nil {
		return nil, err
	}
	values, ok := s.m["enum"].([]any)
	switch {
	case !s.has("enum"):
		values = []any{s.m["const"]}
	case !ok || len(values) == 0:
		return nil, fmt.Errorf("%s: \"enum\" is not a list of values", path)
	case s.has("const"):
		v, err := common([]any{s.m["const"]}, values, path)
		if err != nil {
			return nil, err
		}
		values = v.([]any)
	}
	var out []any
	for _, v := range values {
		if !exact(v) {
			return nil, fmt.Errorf("%s: the number in %s has more digits than a grammar can ask for", path, canonical(v))
		}
		have := jsonType(v)
		if types == nil || slices.ContainsFunc(types, func(t string) bool { return ofType(have, t) }) {
			out = append(out, v)
		}
	}
	if out == nil {
		return nil, fmt.Errorf("%s: no listed value is of type %s", path, strings.Join(types, " or "))
	}
	return newObject("enum", out), nil
}

// exact reports whether the numbers in v go through llama.cpp, which reads
// integers in 64 bits and others as doubles, unchanged.
func exact(v any) bool {
	switch v := v.(type) {
	case []any:
		return !slices.ContainsFunc(v, func(x any) bool { return !exact(x) })
	case *jsonObject:
		return !slices.ContainsFunc(v.keys, func(key string) bool { return !exact(v.m[key]) })
	case json.Number:
		if _, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return true
		}
		f, err := strconv.ParseFloat(string(v), 64)
		want, ok := rational(v)
		got, _ := new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, 64))
		return err == nil && ok && got != nil && got.Cmp(want) == 0
	}
	return true
}

func (n *schemaNormalizer) object(s *jsonObject, path string) (*jsonObject, error) {
	out := newObject("type", "object")
	props, ok := s.m["properties"].(*jsonObject)
	if s.has("properties") && !ok {
		return nil, fmt.Errorf("%s: \"properties\" is not an object", path)
	}
	if props != nil {
		list := newObject()
		for _, name := range props.keys {
			v, err := n.schema(props.m[name], path+"/properties/"+name)
			if err != nil {
				return nil, err
			}
			list.set(name, v)
		}
		out.set("properties", list)
	}
	if s.has("required") {
		required, err := requiredNames(s, props, path)
		if err != nil {
			return nil, err
		}
		out.set("required", required)
	}
	switch more := s.m["additionalProperties"]; more {
	case nil:
		if s.has("additionalProperties") {
			return nil, fmt.Errorf("%s: \"additionalProperties\" is neither true nor false nor an object", path)
		}
		return out, nil
	case true, false:
		out.set("additionalProperties", more)
	default:
		v, err := n.schema(more, path+"/additionalProperties")
		if err != nil {
			return nil, err
		}
		out.set("additionalProperties", v)
	}
	return out, checkNames(out, path)
}

// requiredNames refuses required properties that are not described: the
// grammar would not ask for them.
func requiredNames(s, props *jsonObject, path string) ([]any, error) {
	list, ok := s.m["required"].([]any)
	if !ok {
		return nil, fmt.Errorf("%s: \"required\" is not an array", path)
	}
	for _, v := range list {
		name, ok := v.(string)
		if !ok || props == nil || !props.has(name) {
			return nil, fmt.Errorf("%s: the required property %v is not among \"properties\", which a grammar cannot express", path, v)
		}
	}
	return list, nil
}

// checkNames refuses names for which the rule for all other names is wrong:
// its classes of characters take them as they are, and * has a meaning.
func checkNames(s *jsonObject, path string) error {
	props, _ := s.m["properties"].(*jsonObject)
	if props == nil || s.m["additionalProperties"] == false {
		return nil
	}
	for _, name := range props.keys {
		if name == "*" || name == "" && len(props.keys) == 1 || strings.ContainsFunc(name, func(r rune) bool { return r < 0x20 || r == 0x7f || strings.ContainsRune(`"\]^`, r) }) {
			return fmt.Errorf("%s/properties/%s: beside additional properties a grammar cannot express this name", path, name)
		}
	}
	return nil
}

func (n *schemaNormalizer) array(s *jsonObject, path string) (*jsonObject, error) {
	least, most, err := lengths(s, path, "minItems", "maxItems")
	if err != nil {
		return nil, err
	}
	items := s.m["items"]
	tuple, isTuple := items.([]any) // as up to draft 2019-09
	key := "items"
	if s.has("prefixItems") {
		if tuple, isTuple = s.m["prefixItems"].([]any); !isTuple {
			return nil, fmt.Errorf("%s: \"prefixItems\" is not a list of schemas", path)
		}
		key = "prefixItems"
	}
	if isTuple {
		// The grammar writes all of them and nothing more.
		if least > len(tuple) || most >= 0 && most < len(tuple) {
			return nil, fmt.Errorf("%s: a grammar can express a list of %d items only whole", path, len(tuple))
		}
		list := make([]any, len(tuple))
		for i, v := range tuple {
			if list[i], err = n.schema(v, fmt.Sprintf("%s/%s/%d", path, key, i)); err != nil {
				return nil, err
			}
		}
		return newObject("type", "array", "prefixItems", list), nil
	}
	out := newObject("type", "array")
	switch {
	case items == false && least > 0:
		return nil, fmt.Errorf("%s: %d items, and none is allowed", path, least)
	case items == false:
		most = 0
	case s.has("items"):
		v, err := n.schema(items, path+"/items")
		if err != nil {
			return nil, err
		}
		out.set("items", v)
	}
	setCounts(out, least, most, "minItems", "maxItems")
	return out, nil
}
