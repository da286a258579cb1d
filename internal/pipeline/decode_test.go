package pipeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

type decodePart struct {
	Type string  `json:"type"`
	Size int8    `json:"size"`
	At   float32 `json:"at"`
	On   bool
	Sub  []struct {
		Name string `json:"name"`
	} `json:"sub"`
	Map map[string]int `json:"map"`
}

// decodeOwn decodes itself, with Decode.
type decodeOwn struct{ part decodePart }

func (d *decodeOwn) UnmarshalJSON(b []byte) error {
	var w struct {
		Part json.RawMessage `json:"part"`
	}
	if err := Decode(b, &w); err != nil || w.Part == nil {
		return err
	}
	return JSONAt("part", Decode(w.Part, &d.part))
}

func TestDecode(t *testing.T) {
	tests := []struct{ text, want string }{
		{`[]`, ""}, {`null`, ""}, {` [ {"type": "a", "sub": [{"name":"b"}], "map": {"x": 1}} ] `, ""},
		{`7`, `got a number, want an array`},
		{`{}`, `got an object, want an array`},
		{`["x"]`, `[0]: got a string, want an object`},
		{`[{}, [1]]`, `[1]: got an array, want an object`},
		{`[{"type":1}]`, `[0].type: got a number, want a string`},
		{`[{"sub":[[]]} , {"type" : {"type":"type"} }]`, `[0].sub[0]: got an array, want an object`},
		{`[{"type" : {"type":"type"} }]`, `[0].type: got an object, want a string`},
		{`[{"a":[1,[2,{"b":[]}]], "sub": [{"name":"["},{"name":true}]}]`, `[0].sub[1].name: got a truth value, want a string`},
		{`[{"map":{"k":"v"}}]`, `[0].map.k: got a string, want a whole number`},
		{`[{"map":{"a b.c\n":"v"}}]`, `[0].map."a b.c\n": got a string, want a whole number`},
		{`[{"map":{"` + strings.Repeat("é", 30) + `":"v"}}]`, `[0].map.` + strings.Repeat("é", 20) + `...: got a string, want a whole number`},
		{`[{"map":{"":"v"}}]`, `[0].map."": got a string, want a whole number`},
		{`[{"size":300}]`, `[0].size: got 300, want a whole number of 8 bits`},
		{`[{"size":1.5}]`, `[0].size: got 1.5, want a whole number`},
		{`[{"at":1e99}]`, `[0].at: got 1e99, want a number that a float can hold`},
		{`[{"On":"yes"}]`, `[0].On: got a string, want true or false`},
		{`[{"type":"a"}`, `byte 13: unexpected end of JSON input`},
		{`[1}`, `byte 3: invalid character '}' after array element`},
	}
	for _, tt := range tests {
		var list []decodePart
		checkDecode(t, tt.text, Decode([]byte(tt.text), &list), tt.want)
	}
	for _, tt := range []struct{ text, want string }{
		{`[{"part":{"sub":[{},{"name":0}]}}]`, `[0].part.sub[1].name: got a number, want a string`},
		{`[{}, {"part":[]}]`, `[1].part: got an array, want an object`},
		{`[{}, 3]`, `[1]: got a number, want an object`},
		{`"a"`, `got a string, want an array`},
		{`null`, ""},
	} {
		var list []decodeOwn
		checkDecode(t, tt.text, DecodeList([]byte(tt.text), &list), tt.want)
	}
}

func checkDecode(t *testing.T, text string, err error, want string) {
	t.Helper()
	var in *JSONError
	switch {
	case (err == nil) != (want == ""), err != nil && err.Error() != want:
		t.Errorf("%s: %v, want %q", text, err, want)
	case err != nil && !errors.As(err, &in):
		t.Errorf("%s: the error is a %T", text, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(`[{"sub":[{"name":0}]}]`)
	f.Add(`[{"part":{"map":{"k":"v"}}}, 1e999]`)
	f.Fuzz(func(t *testing.T, text string) {
		var own []decodeOwn
		var list []decodePart
		for _, err := range []error{Decode([]byte(text), &list), DecodeList([]byte(text), &own)} {
			if err != nil && strings.Contains(err.Error(), "Go ") {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}

// A place is put before an error of Decode alone, not before one that wraps it: what that says would be lost.
// A file of another version, with a member more, is not read as if it had none.
func TestDecodeStrict(t *testing.T) {
	var v struct {
		A int `json:"a"`
	}
	for text, want := range map[string]string{
		`{"a":1}`: "", `{"a":1,"b":2}`: `unknown field "b"`, `{"a":"x"}`: "a: got a string", `{"a":1} {}`: "byte 9",
	} {
		switch err := DecodeStrict([]byte(text), &v); {
		case want == "" && (err != nil || v.A != 1):
			t.Errorf("%s: %v, %d", text, err, v.A)
		case want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)):
			t.Errorf("%s: got error %v, want %s", text, err, want)
		}
	}
}

func TestJSONAt(t *testing.T) {
	inner := Decode([]byte(`{"a":1}`), new(map[string]string))
	for _, tt := range []struct {
		err  error
		want string
	}{
		{inner, "m.a: got a number, want a string"},
		{fmt.Errorf("line 3: %w", inner), "m: line 3: a: got a number, want a string"},
		{errors.New("no"), "m: no"},
	} {
		if got := JSONAt("m", tt.err).Error(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
	if err := JSONAt("m", nil); err != nil {
		t.Error(err)
	}
}
