package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"gollama/internal/pipeline"
)

// jsonObject is a JSON object that keeps the order of its members: a grammar
// writes properties in the order of the schema. Values are nil, bool,
// json.Number, string, []any and *jsonObject.
type jsonObject struct {
	keys []string
	m    map[string]any

	untyped bool // of a schema in normal form: values of other types are valid too, by the source
}

func newObject(pairs ...any) *jsonObject {
	o := &jsonObject{m: map[string]any{}}
	for i := 0; i < len(pairs); i += 2 {
		o.set(pairs[i].(string), pairs[i+1])
	}
	return o
}

func (o *jsonObject) set(key string, v any) {
	if !o.has(key) {
		o.keys = append(o.keys, key)
	}
	o.m[key] = v
}

func (o *jsonObject) has(key string) bool { _, ok := o.m[key]; return ok }

// MarshalJSON writes the members in their order.
func (o *jsonObject) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, key := range o.keys {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := marshal(key)
		if err != nil {
			return nil, err
		}
		value, err := marshal(o.m[key])
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// parseJSON reads one JSON value. Of members of one name the last counts.
func parseJSON(text string) (any, error) {
	// It bounds the nesting too, at 10,000, which Token does not.
	if err := pipeline.Decode([]byte(text), new(json.RawMessage)); err != nil {
		if strings.Contains(err.Error(), "after top-level value") {
			return nil, errors.New("there is something after its end")
		}
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	return parseValue(dec)
}

func parseValue(dec *json.Decoder) (any, error) {
	t, err := dec.Token()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		o := newObject()
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return nil, err
			}
			v, err := parseValue(dec)
			if err != nil {
				return nil, err
			}
			o.set(key.(string), v)
		}
		_, err = dec.Token()
		return o, err
	case json.Delim('['):
		list := []any{}
		for dec.More() {
			v, err := parseValue(dec)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = dec.Token()
		return list, err
	}
	return t, nil
}

// rational returns the value of a number, if its exponent is one that a
// schema may have: that of a double, and some more.
func rational(n json.Number) (*big.Rat, bool) {
	_, exp, found := strings.Cut(strings.ToLower(string(n)), "e")
	if e, err := strconv.Atoi(exp); found && (err != nil || max(e, -e) > 400) || len(n) > 1000 {
		return nil, false
	}
	return new(big.Rat).SetString(string(n))
}

// canonical returns a text that is the same for values that JSON schema takes
// as equal: 1 and 1.0, and objects whose members stand in another order.
func canonical(v any) string {
	switch v := v.(type) {
	case json.Number:
		if r, ok := rational(v); ok {
			return r.RatString()
		}
		return string(v)
	case []any:
		parts := make([]string, len(v))
		for i, x := range v {
			parts[i] = canonical(x)
		}
		return "[" + strings.Join(parts, ",") + "]"
	case *jsonObject:
		keys := slices.Sorted(slices.Values(v.keys))
		for i, key := range keys {
			keys[i] = strconv.Quote(key) + ":" + canonical(v.m[key])
		}
		return "{" + strings.Join(keys, ",") + "}"
	case string:
		return strconv.Quote(v)
	}
	return fmt.Sprint(v)
}

// jsonType returns the type of a value by JSON schema, integer for 1 and 1.0.
func jsonType(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case json.Number:
		if r, ok := rational(v); ok && r.IsInt() {
			return "integer"
		}
		return "number"
	}
	return "object"
}

// ofType reports whether a value of the type have is one of the type want.
func ofType(have, want string) bool {
	return have == want || have == "integer" && want == "number"
}
