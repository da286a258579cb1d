package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// configAssignments reads a config file: a mapping of long flag names, with a
// mapping under the name of each subcommand. Every key of the file is checked,
// also those of other subcommands; only those of cmd are returned, the common
// ones first.
func configAssignments(cmd, path string, data []byte) ([]assignment, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, usagef("%s: %s", path, strings.TrimPrefix(oneLine(err), "yaml: "))
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, usagef("%s: more than one YAML document", path)
	}
	if len(doc.Content) == 0 || isNull(doc.Content[0]) {
		return nil, nil
	}
	c := configReader{path: path, cmd: cmd}
	common, err := c.mapping(doc.Content[0], "")
	if err != nil {
		return nil, err
	}
	return append(common, c.section...), nil
}

type configReader struct {
	path    string
	cmd     string
	section []assignment // values of the subcommand's own section
}

func (c *configReader) errorf(n *yaml.Node, format string, args ...any) *usageError {
	return usagef("%s:%d: %s", c.path, n.Line, fmt.Sprintf(format, args...))
}

// mapping reads the keys at the top (section "") or of a section.
func (c *configReader) mapping(n *yaml.Node, section string) ([]assignment, error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.MappingNode {
		return nil, c.errorf(n, "want keys and values")
	}
	var list []assignment
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode {
			return nil, c.errorf(k, "a key must be plain text")
		}
		key := strings.ReplaceAll(k.Value, "_", "-")
		if line, ok := seen[key]; ok {
			return nil, c.errorf(k, "%q is given twice, first in line %d", k.Value, line)
		}
		seen[key] = k.Line
		if section == "" && isCommand(key) {
			if isNull(v) {
				continue
			}
			values, err := c.mapping(v, key)
			if err != nil {
				return nil, err
			}
			if key == c.cmd {
				c.section = values
			}
			continue
		}
		f := c.flag(key, section)
		if f == nil {
			e := c.errorf(k, "unknown key %q", k.Value)
			if s, ok := anySpelling(key); ok {
				e = e.withHint("the key is %q", s.name)
			} else if name := nearest(spellings(c.cmd), "--"+key); name != "" {
				e = e.withHint("did you mean %q?", strings.TrimLeft(name, "-"))
			}
			return nil, e
		}
		if f.reject != "" {
			return nil, c.errorf(k, "%q: not supported", k.Value).withHint("%s", f.reject)
		}
		values, err := c.values(f, k, v)
		if err != nil {
			return nil, err
		}
		if section != "" || f.takenBy(c.cmd) {
			list = append(list, values...)
		}
	}
	return list, nil
}

// flag finds the flag of a key; the flags that say where settings come from
// are not settings.
func (c *configReader) flag(key, section string) *flagDef {
	if key == "config" || key == "print-config" {
		return nil
	}
	var other *flagDef // of another subcommand, which may share the file
	for i := range flagTable {
		f := &flagTable[i]
		switch {
		case f.name != key:
		case f.takenBy(cmp.Or(section, c.cmd)):
			return f
		case section == "" && other == nil:
			other = f
		}
	}
	return other
}

// anySpelling finds the flag that a key may have meant: an alias.
func anySpelling(key string) (*flagDef, bool) {
	for _, cmd := range commandNames() {
		if s, ok := lookup(spellings(cmd), "-"+key); ok && !s.fixed && s.flag.name != key {
			return s.flag, true
		}
	}
	return nil, false
}

// values turns a node into values for a flag.
func (c *configReader) values(f *flagDef, k, v *yaml.Node) ([]assignment, error) {
	if v.Kind == yaml.AliasNode {
		v = v.Alias
	}
	nodes := []*yaml.Node{v}
	if v.Kind == yaml.SequenceNode {
		if f.kind != kindList {
			return nil, c.errorf(v, "%q: want %s, got a list", k.Value, kindName(f.kind))
		}
		nodes = v.Content
	}
	list := make([]assignment, 0, len(nodes))
	for _, n := range nodes {
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		text, err := c.scalar(f, k, n)
		if err != nil {
			return nil, err
		}
		list = append(list, assignment{flag: f, value: text, level: levelConfig,
			where: fmt.Sprintf("%s:%d: %s", c.path, n.Line, k.Value)})
	}
	return list, nil
}

func (c *configReader) scalar(f *flagDef, k, n *yaml.Node) (string, error) {
	bad := func() (string, error) {
		return "", c.errorf(n, "%q: want %s, got %s", k.Value, kindName(f.kind), describe(n))
	}
	if n.Kind != yaml.ScalarNode {
		return bad()
	}
	tag := n.ShortTag()
	switch f.kind {
	case kindBool:
		var v bool
		if tag != "!!bool" || n.Decode(&v) != nil {
			return bad()
		}
		return fmt.Sprint(v), nil
	case kindInt:
		return c.integer(f, k, n)
	case kindFloat:
		var v float64
		if (tag != "!!int" && tag != "!!float") || n.Decode(&v) != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return bad()
		}
		return fmt.Sprintf("%g", v), nil
	case kindMixed:
		switch tag {
		case "!!str":
			return n.Value, nil
		case "!!bool":
			var v bool
			if n.Decode(&v) != nil {
				return bad()
			}
			return fmt.Sprint(v), nil
		case "!!int":
			return c.integer(f, k, n)
		}
		return bad()
	}
	var text string
	if (tag != "!!str" && tag != "!!binary") || n.Decode(&text) != nil {
		return bad()
	}
	return text, nil
}

// integer reads a whole number from the node itself: the decoder would make 1
// of 1.5.
func (c *configReader) integer(f *flagDef, k, n *yaml.Node) (string, error) {
	var v int64
	if n.ShortTag() != "!!int" || n.Decode(&v) != nil {
		return "", c.errorf(n, "%q: want %s, got %s", k.Value, kindName(f.kind), describe(n))
	}
	return fmt.Sprint(v), nil
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func kindName(k kind) string {
	switch k {
	case kindBool:
		return "true or false"
	case kindInt:
		return "a whole number"
	case kindFloat:
		return "a number"
	case kindMixed:
		return "a word or a number"
	case kindList:
		return "text or a list of texts"
	}
	return "text"
}

func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "keys and values"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	case n.ShortTag() == "!!str":
		return fmt.Sprintf("the text %q", n.Value)
	}
	return n.Value
}

// writeConfig writes the settings of a subcommand as YAML that --config reads.
func writeConfig(w io.Writer, cmd string, o *options) error {
	section := &yaml.Node{Kind: yaml.MappingNode}
	for i := range flagTable {
		f := &flagTable[i]
		if f.get == nil || f.reject != "" || !f.takenBy(cmd) {
			continue
		}
		v := f.get(o)
		if v == nil || isEmptyList(v) || v == "" && f.name != "samplers" && f.name != "prompt" {
			continue
		}
		node, err := yamlNode(v)
		if err != nil {
			return err
		}
		section.Content = append(section.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: f.name}, node)
	}
	var text bytes.Buffer // the encoder would hide what kind of error w has
	enc := yaml.NewEncoder(&text)
	enc.SetIndent(2)
	root := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{{Kind: yaml.ScalarNode, Value: cmd}, section}}
	if err := enc.Encode(root); err != nil {
		return err
	}
	if err := enc.Close(); err != nil {
		return err
	}
	_, err := w.Write(text.Bytes())
	return err
}

// yamlNode makes the node of a value. Text with control characters is put in
// double quotes here: yaml.v3 would make block text of it and lose line ends.
func yamlNode(v any) (*yaml.Node, error) {
	switch v := v.(type) {
	case string:
		if utf8.ValidString(v) && strings.ContainsFunc(v, unicode.IsControl) {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v, Style: yaml.DoubleQuotedStyle}, nil
		}
	case []string:
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for _, s := range v {
			n, err := yamlNode(s)
			if err != nil {
				return nil, err
			}
			list.Content = append(list.Content, n)
		}
		return list, nil
	}
	n := new(yaml.Node)
	return n, n.Encode(v)
}

func isEmptyList(v any) bool {
	list, ok := v.([]string)
	return ok && len(list) == 0
}
