package pipeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"
)

// Record is one line of the input: a JSON object with an id of its own, the
// value of "id" or "custom_id", or else its line's number.
type Record struct {
	Line   int                        // number of the line, from 1, in the whole input
	ID     string                     // as JSON: a string in quotes or a number
	Raw    []byte                     // the line, without its end
	Fields map[string]json.RawMessage // the object's members by name
	Err    error                      // why it is no record, a *RecordError

	seq int // number among those of this run, from 0
}

// RecordError says what is wrong with one record. Code is a word for programs.
type RecordError struct {
	Code string
	Msg  string
}

func (e *RecordError) Error() string { return e.Msg }

// Codes of the errors of this package.
const (
	CodeInvalidJSON = "invalid_json" // no JSON object, or not UTF-8
	CodeEmptyLine   = "empty_line"
	CodeLineTooLong = "line_too_long" // see MaxLine
	CodeInvalidID   = "invalid_id"    // neither a string nor a whole number
	CodeDuplicateID = "duplicate_id"  // an earlier line of this run has it
)

func recordErrorf(code, format string, args ...any) *RecordError {
	return &RecordError{Code: code, Msg: fmt.Sprintf(format, args...)}
}

// ParseRecord reads one line. What is wrong with it is the record's Err.
func ParseRecord(line int, raw []byte) *Record {
	r := &Record{Line: line, ID: strconv.Itoa(line), Raw: raw}
	if err := r.parse(); err != nil {
		r.Err = err
	}
	return r
}

func (r *Record) parse() error {
	if len(bytes.TrimSpace(r.Raw)) == 0 {
		return recordErrorf(CodeEmptyLine, "line %d is empty", r.Line)
	}
	if !utf8.Valid(r.Raw) {
		return recordErrorf(CodeInvalidJSON, "line %d: byte %d is not UTF-8", r.Line, invalidByte(r.Raw))
	}
	fields, err := Members(r.Raw)
	if err != nil {
		return recordErrorf(CodeInvalidJSON, "line %d: %s", r.Line, err)
	}
	r.Fields = fields
	for _, key := range []string{"id", "custom_id"} {
		raw, ok := fields[key]
		if !ok {
			continue
		}
		id, err := parseID(raw)
		if err != nil {
			return recordErrorf(CodeInvalidID, "line %d: %s: %s", r.Line, key, err)
		}
		r.ID = id
		break
	}
	return nil
}

// invalidByte returns the offset of the first byte that is not UTF-8.
func invalidByte(b []byte) int {
	for i := 0; i < len(b); {
		c, n := utf8.DecodeRune(b[i:])
		if c == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(b)
}

// Members returns the members of a JSON object by name; one that comes twice is an error. encoding/json alone would let
// those through, and names that differ in case.
func Members(raw []byte) (map[string]json.RawMessage, error) {
	if !json.Valid(raw) {
		return nil, Decode(raw, new(json.RawMessage))
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("want a JSON object")
	}
	fields := map[string]json.RawMessage{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name, _ := t.(string)
		if _, ok := fields[name]; ok {
			return nil, fmt.Errorf("%q is there twice", name)
		}
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return nil, err
		}
		fields[name] = v
	}
	return fields, nil
}

// maxID is how many bytes an id has at most: it is written with each result.
const maxID = 1000

// parseID returns an id in its one JSON form.
func parseID(raw json.RawMessage) (string, error) {
	if len(raw) > maxID {
		return "", fmt.Errorf("it has %d bytes, the limit is %d", len(raw), maxID)
	}
	var s string
	if err := json.Unmarshal(raw, &s); err == nil && raw[0] == '"' {
		return quote(s)
	}
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return strconv.FormatInt(n, 10), nil
	}
	return "", fmt.Errorf("%s is neither a string nor a whole number", raw)
}

// quote returns s as JSON, without the escapes for HTML.
func quote(s string) (string, error) {
	b, err := Marshal(s)
	return string(b), err
}

// Marshal returns v as one line of JSON, without its end and without the
// escapes that encoding/json has for HTML.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Text returns the text of a member that is a string. A surrogate without its other half is an error: it has no place in a text.
func Text(raw json.RawMessage) (string, error) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", fmt.Errorf("want a string, got %s", Kind(raw))
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", err
	}
	if i := loneSurrogate(raw); i >= 0 {
		return "", fmt.Errorf(`\%s is half of a character`, raw[i+1:i+6])
	}
	return s, nil
}

// loneSurrogate returns where a valid JSON string has a \uD800 to \uDFFF that
// is not part of a pair, which encoding/json would replace in silence; -1 if nowhere.
func loneSurrogate(raw []byte) int {
	unit := func(i int) int {
		if i+6 > len(raw) || raw[i] != '\\' || raw[i+1] != 'u' {
			return -1
		}
		n, err := strconv.ParseUint(string(raw[i+2:i+6]), 16, 16)
		if err != nil {
			return -1
		}
		return int(n)
	}
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		switch u := unit(i); {
		case u >= 0xd800 && u < 0xdc00:
			if low := unit(i + 6); low < 0xdc00 || low > 0xdfff {
				return i
			}
			i += 11
		case u >= 0xdc00 && u < 0xe000:
			return i
		default:
			i++ // the escaped byte
		}
	}
	return -1
}

// Kind names the type of a JSON value for a message.
func Kind(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "a truth value"
	case 'n':
		return "null"
	}
	return "a number"
}

// readLine reads a line of at most max bytes, without its end. A longer one is
// skipped to its end: tooLong is set then. The error is io.EOF after the last.
func readLine(r lineReader, max int) (line []byte, tooLong bool, err error) {
	got := false
	for {
		part, err := r.ReadSlice('\n')
		got = got || len(part) > 0
		if !tooLong {
			line = append(line, part...)
		}
		if len(line) > max+1 {
			line, tooLong = nil, true
		}
		switch {
		case errors.Is(err, io.EOF) && got:
			return line, tooLong, nil
		case err == nil:
			return bytes.TrimSuffix(line, []byte("\n")), tooLong, nil
		case !errors.Is(err, errBufferFull):
			return nil, false, err
		}
	}
}
