package engine

import (
	"encoding/json"
	"fmt"
	"slices"
)

// flatSchema is a schema whose allOf is merged into it.
type flatSchema struct {
	own  *jsonObject // its keywords, without notes, allOf, anyOf and oneOf
	alts []any       // alternatives, of which one must hold beside own; nil if there are none
	one  bool        // exactly one of them: oneOf
	path string      // of alts
}

// joined returns the normal form of a schema with allOf, anyOf or oneOf. Other
// keywords beside alternatives are merged into each of them.
func (n *schemaNormalizer) joined(s *jsonObject, path string) (*jsonObject, error) {
	f, err := n.flatten(s, path, nil)
	if err != nil {
		return nil, err
	}
	if f.alts == nil {
		return n.plain(f.own, path)
	}
	list := make([]any, len(f.alts))
	for i, alt := range f.alts {
		p := fmt.Sprintf("%s/%d", f.path, i)
		if list[i], err = n.alternative(f.own, alt, p); err != nil {
			return nil, err
		}
	}
	if f.one {
		if err := n.checkOneOf(list, f.path); err != nil {
			return nil, err
		}
	}
	return newObject("anyOf", list), nil
}

// alternative returns the normal form of alt and own together.
func (n *schemaNormalizer) alternative(own *jsonObject, alt any, path string) (*jsonObject, error) {
	if len(own.keys) == 0 {
		return n.schema(alt, path)
	}
	c, ok := alt.(*jsonObject)
	if !ok {
		return nil, fmt.Errorf("%s: an alternative beside other keywords is not an object", path)
	}
	f, err := n.flatten(c, path, nil)
	if err != nil {
		return nil, err
	}
	if f.alts != nil {
		return nil, fmt.Errorf("%s: alternatives of alternatives beside other keywords cannot be expressed by a grammar", path)
	}
	merged, err := merge(own, f.own, path)
	if err != nil {
		return nil, err
	}
	return n.plain(merged, path)
}

// flatten merges the parts of allOf and what references lead to. within are
// the schemas whose part s is.
func (n *schemaNormalizer) flatten(s *jsonObject, path string, within []*jsonObject) (f flatSchema, err error) {
	if n.nodes++; n.nodes > maxSchemaNodes {
		return f, errSchemaSize
	}
	if slices.Contains(within, s) || len(within) > maxSchemaNesting {
		return f, fmt.Errorf("%s: it refers to itself without anything between", path)
	}
	within = append(within[:len(within):len(within)], s)
	if s.has("$ref") {
		if err := unused(s, path, "$ref"); err != nil {
			return f, err
		}
		target, at, err := n.resolve(s.m["$ref"], path)
		if err != nil {
			return f, err
		}
		return n.flatten(target, at, within)
	}
	f.own = newObject()
	for _, key := range s.keys {
		switch list, isList := s.m[key].([]any); {
		case isNote(key) || key == "allOf":
		case key != "anyOf" && key != "oneOf":
			f.own.set(key, s.m[key])
		case f.alts != nil:
			return f, fmt.Errorf("%s: anyOf and oneOf together cannot be expressed by a grammar", path)
		case !isList || len(list) == 0:
			return f, fmt.Errorf("%s/%s: it is not a list of schemas", path, key)
		default:
			f.alts, f.one, f.path = list, key == "oneOf", path+"/"+key
		}
	}
	if !s.has("allOf") {
		return f, nil
	}
	return f, n.addParts(&f, s.m["allOf"], path+"/allOf", within)
}

// addParts merges the parts of allOf into f.
func (n *schemaNormalizer) addParts(f *flatSchema, all any, path string, within []*jsonObject) error {
	list, ok := all.([]any)
	if !ok || len(list) == 0 {
		return fmt.Errorf("%s: it is not a list of schemas", path)
	}
	for i, v := range list {
		p := fmt.Sprintf("%s/%d", path, i)
		part, ok := v.(*jsonObject)
		if !ok {
			return fmt.Errorf("%s: it is not an object", p)
		}
		g, err := n.flatten(part, p, within)
		if err != nil {
			return err
		}
		if g.alts != nil && f.alts != nil {
			return fmt.Errorf("%s: alternatives in more than one part cannot be expressed by a grammar", p)
		}
		if g.alts != nil {
			f.alts, f.one, f.path = g.alts, g.one, g.path
		}
		if f.own, err = merge(f.own, g.own, p); err != nil {
			return err
		}
	}
	return nil
}

// merge returns a schema for what is valid by both a and b; path is that of b.
func merge(a, b *jsonObject, path string) (*jsonObject, error) {
	// additionalProperties is about the properties beside it, and so are items.
	for _, pair := range [][2]string{{"properties", "additionalProperties"}, {"prefixItems", "items"}} {
		for _, xy := range [][2]*jsonObject{{a, b}, {b, a}} {
			x, y := xy[0], xy[1]
			if rest, ok := x.m[pair[1]]; ok && rest != true && (y.has(pair[0]) || y.has(pair[1])) && canonical(x) != canonical(y) {
				return nil, fmt.Errorf("%s: %q and the properties or items of another schema cannot be joined in a grammar", path, pair[1])
			}
		}
	}
	out := newObject()
	for _, key := range a.keys {
		out.set(key, a.m[key])
	}
	for _, key := range b.keys {
		have, both := out.m[key]
		if !both {
			out.set(key, b.m[key])
			continue
		}
		v, err := mergeValue(key, have, b.m[key], path)
		if err != nil {
			return nil, err
		}
		out.set(key, v)
	}
	return out, nil
}

// mergeValue returns the value of a keyword that says what two of it say.
func mergeValue(key string, a, b any, path string) (any, error) {
	if canonical(a) == canonical(b) {
		return a, nil
	}
	x, aList := a.([]any)
	y, bList := b.([]any)
	switch key {
	case "minimum", "exclusiveMinimum", "minLength", "minItems", "maximum", "exclusiveMaximum", "maxLength", "maxItems":
		p, okA := a.(json.Number)
		q, okB := b.(json.Number)
		if !okA || !okB {
			break
		}
		m, okA := rational(p)
		k, okB := rational(q)
		if !okA || !okB {
			break
		}
		if (m.Cmp(k) > 0) == (key[:3] == "min" || key == "exclusiveMinimum") {
			return a, nil
		}
		return b, nil
	case "required":
		if aList && bList {
			return append(x[:len(x):len(x)], y...), nil
		}
	case "enum":
		if aList && bList {
			return common(x, y, path)
		}
	case "type":
		return mergeTypes(a, b, path)
	case "properties":
		return mergeProperties(a, b, path)
	}
	return nil, fmt.Errorf("%s: another %q cannot be joined with it in a grammar", path, key)
}

// common returns the values of x that are in y.
func common(x, y []any, path string) (any, error) {
	var out []any
	for _, v := range x {
		if slices.ContainsFunc(y, func(w any) bool { return canonical(v) == canonical(w) }) {
			out = append(out, v)
		}
	}
	if out == nil {
		return nil, fmt.Errorf("%s: its enum has no value of the others", path)
	}
	return out, nil
}

func mergeTypes(a, b any, path string) (any, error) {
	list := func(v any) []any {
		if l, ok := v.([]any); ok {
			return l
		}
		return []any{v}
	}
	var out []any
	for _, v := range list(a) {
		for _, w := range list(b) {
			s, okV := v.(string)
			t, okW := w.(string)
			switch {
			case !okV || !okW:
			case ofType(s, t):
				out = append(out, s)
			case ofType(t, s):
				out = append(out, t)
			}
		}
	}
	if out == nil {
		return nil, fmt.Errorf("%s: its type is none of the others", path)
	}
	return out, nil
}

func mergeProperties(a, b any, path string) (any, error) {
	p, okA := a.(*jsonObject)
	q, okB := b.(*jsonObject)
	if !okA || !okB {
		return nil, fmt.Errorf("%s: \"properties\" is not an object", path)
	}
	out := newObject()
	for _, name := range p.keys {
		out.set(name, p.m[name])
	}
	for _, name := range q.keys {
		if out.has(name) && canonical(out.m[name]) != canonical(q.m[name]) {
			return nil, fmt.Errorf("%s/properties/%s: another schema for this property cannot be joined with it in a grammar", path, name)
		}
		out.set(name, q.m[name])
	}
	return out, nil
}
