package engine

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// toolSchemas returns, by the names of the tools, the schemas for whose
// grammars llama.cpp's are right: templates show the parameters as they are
// given. A tool that takes none is left out.
func (in *ChatInput) toolSchemas() (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	for i, t := range in.Tools {
		if v, err := parseJSON(string(t.Parameters)); len(t.Parameters) == 0 || err == nil && isEmpty(v) {
			continue
		}
		// The rules for references are named after these alone: those of several tools must differ.
		s, err := normalizeTool(string(t.Parameters), "t"+strconv.Itoa(i)+"d")
		if err != nil {
			return nil, fmt.Errorf("tool %q: parameters: %w", t.Name, err)
		}
		out[t.Name] = s
	}
	return out, nil
}

// isEmpty reports whether v is what llama.cpp takes for no parameters.
func isEmpty(v any) bool {
	o, ok := v.(*jsonObject)
	return v == nil || ok && len(o.keys) == 0
}

// normalizeTool is normalizeSchema for the parameters of a tool, whose
// outermost schema must have its properties itself: llama.cpp looks for them
// there where the template wants each by itself.
func normalizeTool(schema, prefix string) (json.RawMessage, error) {
	n, root, err := newNormalizer(schema, prefix)
	if err != nil {
		return nil, err
	}
	out, err := n.schema(root, "#")
	if err != nil {
		return nil, err
	}
	if err := n.checkLoops(out); err != nil {
		return nil, err
	}
	s := newObject()
	for target, i := n.target(out), 0; i < len(target.keys); i++ {
		s.set(target.keys[i], target.m[target.keys[i]])
	}
	if len(n.defs.keys) > 0 {
		s.set("$defs", n.defs)
	}
	return marshal(s)
}
