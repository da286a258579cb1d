package pipeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode"
)

// JSONError says where a JSON value is not what it has to be, in JSON's own words: encoding/json names Go's types.
type JSONError struct {
	Path string // such as messages[2].content; empty for the whole value
	Msg  string
}

func (e *JSONError) Error() string {
	if e.Path == "" {
		return e.Msg
	}
	return e.Path + ": " + e.Msg
}

// Decode is json.Unmarshal whose errors are a *JSONError with the place of the value, what it is and what is wanted.
func Decode(raw []byte, v any) error {
	err := json.Unmarshal(raw, v)
	if err == nil {
		return nil
	}
	if in, ok := err.(*JSONError); ok { // of an UnmarshalJSON that decodes with Decode; what wraps one is the default below
		return in
	}
	var typ *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &typ):
		return &JSONError{Path: pathAt(raw, typ.Offset), Msg: typeMismatch(typ)}
	case errors.As(err, &syntax):
		return &JSONError{Msg: fmt.Sprintf("byte %d: %s", syntax.Offset, syntax)}
	}
	return &JSONError{Msg: err.Error()}
}

// DecodeStrict is Decode of a file of ours, which has no member that v has no field for.
func DecodeStrict(raw []byte, v any) error {
	if err := Decode(raw, v); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil { // all else is right: it is such a member
		return &JSONError{Msg: strings.TrimPrefix(err.Error(), "json: ")}
	}
	return nil
}

// DecodeList decodes an array whose elements are decoded one by one, so that an error of their own UnmarshalJSON has the
// index too; null and nothing are an empty list.
func DecodeList[T any](raw []byte, list *[]T) error {
	*list = nil
	if len(raw) == 0 {
		return nil
	}
	var parts []json.RawMessage
	if err := Decode(raw, &parts); err != nil {
		return err
	}
	for i, part := range parts {
		var one T
		if err := Decode(part, &one); err != nil {
			return JSONAt("["+strconv.Itoa(i)+"]", err)
		}
		*list = append(*list, one)
	}
	return nil
}

// DecodeNext decodes the next value of dec as Decode does.
func DecodeNext(dec *json.Decoder, v any) error {
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return err
	}
	return Decode(raw, v)
}

// JSONAt puts a member's name, or an index in brackets, before the place of an error.
func JSONAt(name string, err error) error {
	if err == nil {
		return nil
	}
	if in, ok := err.(*JSONError); ok {
		return &JSONError{Path: joinPath(name, in.Path), Msg: in.Msg}
	}
	return &JSONError{Path: name, Msg: err.Error()} // with what wraps one
}

func joinPath(a, b string) string {
	if a == "" || b == "" || b[0] == '[' {
		return a + b
	}
	return a + "." + b
}

// memberName is a member's name in a path: quoted where it would not be one word, for a name comes from the file.
func memberName(s string) string {
	plain := func(r rune) bool { return r == '_' || r == '-' || unicode.IsLetter(r) || unicode.IsDigit(r) }
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return strconv.Quote(shorten(s, 40))
	}
	return shorten(s, 40)
}

// typeMismatch is the text of an error of encoding/json.
func typeMismatch(e *json.UnmarshalTypeError) string {
	kind, literal, _ := strings.Cut(e.Value, " ") // "number 1.5"
	got := map[string]string{"string": "a string", "object": "an object", "array": "an array", "bool": "a truth value", "number": "a number"}[kind]
	if literal != "" {
		got = shorten(literal, 40)
	}
	want := "something else"
	switch e.Type.Kind() {
	case reflect.Struct, reflect.Map:
		want = "an object"
	case reflect.Slice, reflect.Array:
		want = "an array"
	case reflect.String:
		want = "a string"
	case reflect.Bool:
		want = "true or false"
	case reflect.Float32, reflect.Float64:
		want = "a number"
		if literal != "" {
			want += " that a float can hold"
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		want = "a whole number"
		if literal != "" && !strings.ContainsAny(literal, ".eE") {
			want += fmt.Sprintf(" of %d bits", e.Type.Bits())
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		want = "a whole number from 0 on"
	}
	return "got " + got + ", want " + want
}

func shorten(s string, n int) string {
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "") + "..." // no half of a character
	}
	return s
}

// pathAt returns the place of the value that an offset of encoding/json means: just after the value, or, where it is an array
// or an object, after its bracket.
func pathAt(raw []byte, offset int64) string {
	type level struct {
		name  string // of the member that is read
		named bool   // in an object: its value comes next
		index int    // of the element that is read
		array bool
	}
	var open []level
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	for {
		t, err := dec.Token()
		if err != nil {
			return ""
		}
		delim, _ := t.(json.Delim)
		if delim == ']' || delim == '}' {
			open = open[:len(open)-1]
			continue
		}
		if len(open) > 0 {
			top := &open[len(open)-1]
			if !top.array && !top.named {
				top.name, _ = t.(string)
				top.named = true
				continue
			}
			top.index, top.named = top.index+1, false
		}
		if dec.InputOffset() >= offset {
			break
		}
		if delim != 0 {
			open = append(open, level{array: delim == '[', index: -1})
		}
	}
	path := ""
	for _, l := range open {
		if l.array {
			path += "[" + strconv.Itoa(l.index) + "]"
		} else {
			path = joinPath(path, memberName(l.name))
		}
	}
	return path
}
