package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
)

// toolSchemas returns, by the names of the tools, the schemas for whose
// grammars llama.cpp's are right: templates show the parameters as they are
// given. A tool that takes none is left out. So is one whose parameters have
// what cannot be written anew, a format or a bound in most: its grammar is
// llama.cpp's own, which allows more, and a warning says so.
func (in *ChatInput) toolSchemas() (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	for i, t := range in.Tools {
		if len(t.Parameters) == 0 {
			continue
		}
		v, err := parseJSON(string(t.Parameters))
		if err == nil && isEmpty(v) {
			continue
		}
		if _, ok := v.(*jsonObject); err == nil && !ok {
			err = errors.New("they are not an object")
		}
		if err == nil {
			// The rules for references are named after these alone: those of several tools must differ.
			out[t.Name], err = normalizeTool(string(t.Parameters), "t"+strconv.Itoa(i)+"d")
			if err != nil && !errors.Is(err, errSchemaNesting) && !errors.Is(err, errSchemaSize) {
				delete(out, t.Name)
				warnLoose(t.Name, err)
				continue
			}
		}
		if err != nil {
			return nil, fmt.Errorf("tool %q: parameters: %w", t.Name, err)
		}
	}
	return out, nil
}

// looseTools are the tools that were warned of: thousands of records may have the same.
var looseTools sync.Map

func warnLoose(tool string, err error) {
	text := fmt.Sprintf("tool %q: a call may have arguments that are not valid: %v", tool, err)
	if _, given := looseTools.LoadOrStore(text, nil); !given {
		notice(text)
	}
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
