package engine

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// What llama.cpp v0.5.0 makes of a JSON schema is a grammar for less than the
// schema says, or for more: keywords that it drops, bounds of integers whose
// zeros lead, patterns that write a quote into a string. normalizeSchema
// writes a schema anew in the words whose grammar is right, or refuses it.
// Source: common/json-schema.cpp, common/json-schema-to-grammar.cpp.

// schemaNotes are keywords that constrain nothing, anywhere.
var schemaNotes = []string{"$schema", "$id", "$comment", "$defs", "definitions", "$anchor", "title", "description",
	"default", "examples", "example", "deprecated", "readOnly", "writeOnly"}

func isNote(key string) bool {
	return slices.Contains(schemaNotes, key) || strings.HasPrefix(key, "x-")
}

// Bounds of a schema. The conversion takes more than 20 s for one that is
// nested 5000 deep.
const (
	maxSchemaNesting = 512
	maxSchemaNodes   = 100_000
)

var (
	errSchemaNesting = fmt.Errorf("nested too deep: more than %d levels", maxSchemaNesting)
	errSchemaSize    = fmt.Errorf("too large: more than %d schemas", maxSchemaNodes)
)

type schemaNormalizer struct {
	root   *jsonObject
	defs   *jsonObject            // the $defs of the result
	names  map[*jsonObject]string // of a schema of the source, in defs
	paths  map[string]string      // of a name in defs, in the source
	prefix string                 // of the names in defs
	depth  int
	nodes  int
}

// normalizeSchema returns a schema for which llama.cpp's grammar is right: all
// that the grammar allows is valid by the given one. It may allow less: an
// object has no properties beside those named, unless additionalProperties
// says so, and they come in the order of the schema. What cannot be expressed
// is an error that says where it stands.
func normalizeSchema(schema string) (string, error) {
	out, err := normalize(schema)
	if err != nil {
		return "", fmt.Errorf("JSON schema: %w", err)
	}
	return out, nil
}

func normalize(schema string) (string, error) {
	n, root, err := newNormalizer(schema, "d")
	if err != nil {
		return "", err
	}
	out, err := n.schema(root, "#")
	if err != nil {
		return "", err
	}
	if takesRule(out) {
		out = n.hoisted("#", out)
	}
	if err := n.checkLoops(out); err != nil {
		return "", err
	}
	if len(n.defs.keys) > 0 {
		out.set("$defs", n.defs)
	}
	text, err := marshal(out)
	return string(text), err
}

// newNormalizer also returns the schema as it is read. prefix begins the names in $defs; it ends in a letter.
func newNormalizer(schema, prefix string) (*schemaNormalizer, *jsonObject, error) {
	v, err := parseJSON(schema)
	if err != nil {
		return nil, nil, err
	}
	root, ok := v.(*jsonObject)
	if !ok {
		return nil, nil, errors.New("it is not an object")
	}
	n := &schemaNormalizer{root: root, defs: newObject(), names: map[*jsonObject]string{}, paths: map[string]string{}, prefix: prefix}
	// The rule for a reference is named after it, that for a property by the property: they must differ.
	for plain := ruleChars.ReplaceAllString(schema, "-"); strings.Contains(plain, "defs-"+n.prefix); {
		n.prefix += prefix[len(prefix)-1:]
	}
	return n, root, nil
}

var ruleChars = regexp.MustCompile(`[^a-zA-Z0-9-]+`)

// takesRule reports whether a property of the outermost object gets the name
// of a rule of numbers, which llama.cpp prevents only for names spelled so, or
// of the grammar's first rule.
func takesRule(s *jsonObject) bool {
	props, _ := s.m["properties"].(*jsonObject)
	return props != nil && slices.ContainsFunc(props.keys, func(name string) bool {
		rule := ruleChars.ReplaceAllString(name, "-")
		return name == "" || rule != name && (rule == "integral-part" || rule == "decimal-part")
	})
}

// schema returns the normal form of v, which stands at path.
func (n *schemaNormalizer) schema(v any, path string) (*jsonObject, error) {
	if err := n.enter(); err != nil {
		return nil, err
	}
	defer func() { n.depth-- }()
	switch v {
	case true:
		return newObject(), nil
	case false:
		return nil, fmt.Errorf("%s: false allows no value", path)
	}
	s, ok := v.(*jsonObject)
	if !ok {
		return nil, fmt.Errorf("%s: it is neither an object nor true or false", path)
	}
	if s != n.root && s.has("$id") {
		return nil, fmt.Errorf("%s: an \"$id\" inside a schema is not supported", path)
	}
	if s.has("allOf") || (s.has("anyOf") || s.has("oneOf")) && !bare(s) {
		// Parts of other schemas are put in here, so that a schema may come back within itself.
		return n.define(s, path)
	}
	return n.content(s, path)
}

func (n *schemaNormalizer) content(s *jsonObject, path string) (*jsonObject, error) {
	switch {
	case s.has("$ref"):
		if err := unused(s, path, "$ref"); err != nil {
			return nil, err
		}
		target, at, err := n.resolve(s.m["$ref"], path)
		if err != nil {
			return nil, err
		}
		return n.define(target, at)
	case s.has("allOf"), s.has("anyOf"), s.has("oneOf"):
		return n.joined(s, path)
	}
	return n.plain(s, path)
}

// enter counts a schema, and a level of nesting that the caller leaves again.
func (n *schemaNormalizer) enter() error {
	n.nodes++
	n.depth++
	switch {
	case n.depth > maxSchemaNesting:
		return errSchemaNesting
	case n.nodes > maxSchemaNodes:
		return errSchemaSize
	}
	return nil
}

// bare reports whether alternatives stand alone.
func bare(s *jsonObject) bool {
	return s.has("anyOf") != s.has("oneOf") && unused(s, "", "anyOf", "oneOf") == nil
}

// define returns a reference to the normal form of source, in $defs.
func (n *schemaNormalizer) define(source *jsonObject, path string) (*jsonObject, error) {
	name, ok := n.names[source]
	if !ok {
		name = n.newName(path)
		n.names[source] = name
		if err := n.enter(); err != nil {
			return nil, err
		}
		s, err := n.content(source, path)
		n.depth--
		if err != nil {
			return nil, err
		}
		n.defs.set(name, s)
	}
	return newObject("$ref", "#/$defs/"+name), nil
}

// hoisted moves s to $defs.
func (n *schemaNormalizer) hoisted(path string, s *jsonObject) *jsonObject {
	name := n.newName(path)
	n.defs.set(name, s)
	return newObject("$ref", "#/$defs/"+name)
}

// newName ends in a letter: llama.cpp adds digits to a name that is taken.
func (n *schemaNormalizer) newName(path string) string {
	name := n.prefix + strconv.Itoa(len(n.paths)) + "x"
	n.paths[name] = path
	return name
}

// target follows a reference of the normal form.
func (n *schemaNormalizer) target(s *jsonObject) *jsonObject {
	for range maxSchemaNesting {
		ref, ok := s.m["$ref"].(string)
		if !ok {
			return s
		}
		next, ok := n.defs.m[strings.TrimPrefix(ref, "#/$defs/")].(*jsonObject)
		if !ok {
			break // not made yet
		}
		s = next
	}
	return newObject()
}

// resolve returns what a reference within the document leads to, and its path.
func (n *schemaNormalizer) resolve(v any, path string) (*jsonObject, string, error) {
	ref, ok := v.(string)
	if !ok {
		return nil, "", fmt.Errorf("%s: \"$ref\" is not a string", path)
	}
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok || pointer != "" && pointer[0] != '/' {
		return nil, "", fmt.Errorf("%s: the reference %q does not begin with #/: only those within the schema are supported", path, ref)
	}
	at := any(n.root)
	for _, part := range strings.Split(pointer, "/")[1:] {
		part, err := url.PathUnescape(part)
		if err != nil {
			return nil, "", fmt.Errorf("%s: the reference %q: %w", path, ref, err)
		}
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch node := at.(type) {
		case *jsonObject:
			at, ok = node.m[part]
		case []any:
			i, err := strconv.Atoi(part)
			if ok = err == nil && i >= 0 && i < len(node); ok {
				at = node[i]
			}
		default:
			ok = false
		}
		if !ok {
			return nil, "", fmt.Errorf("%s: the reference %q leads nowhere: there is no %q", path, ref, part)
		}
	}
	s, ok := at.(*jsonObject)
	if !ok {
		return nil, "", fmt.Errorf("%s: the reference %q does not lead to an object", path, ref)
	}
	return s, ref, nil
}

// checkLoops refuses a schema that is itself, by references and alternatives
// alone: no grammar can begin with itself.
func (n *schemaNormalizer) checkLoops(root *jsonObject) error {
	state := map[*jsonObject]int{} // 1 while it is being looked at, 2 after
	var visit func(s *jsonObject) error
	visit = func(s *jsonObject) error {
		state[s] = 1
		defer func() { state[s] = 2 }()
		next, _ := s.m["anyOf"].([]any)
		if ref, ok := s.m["$ref"].(string); ok {
			name := strings.TrimPrefix(ref, "#/$defs/")
			if state[n.defs.m[name].(*jsonObject)] == 1 {
				return fmt.Errorf("%s: it refers to itself without anything between", n.paths[name])
			}
			next = []any{n.defs.m[name]}
		}
		for _, v := range next {
			if c := v.(*jsonObject); state[c] == 0 {
				if err := visit(c); err != nil {
					return err
				}
			}
		}
		return nil
	}
	all := []any{root}
	for _, name := range n.defs.keys {
		all = append(all, n.defs.m[name])
	}
	for _, s := range all {
		if state[s.(*jsonObject)] == 0 {
			if err := visit(s.(*jsonObject)); err != nil {
				return err
			}
		}
	}
	return nil
}

// unused returns an error for a keyword that is neither a note nor one of uses.
func unused(s *jsonObject, path string, uses ...string) error {
	for _, k := range slices.Sorted(slices.Values(s.keys)) {
		if !slices.Contains(uses, k) && !isNote(k) {
			return fmt.Errorf("%s: the keyword %q cannot be expressed here by a grammar", path, k)
		}
	}
	return nil
}
