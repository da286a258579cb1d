package main

import "testing"

func TestCheckRepeats(t *testing.T) {
	for _, tt := range []struct {
		grammar string
		ok      bool
	}{
		{`root ::= "a"{2,3}`, true},
		{`root ::= "a"{3,3}`, true},
		{`root ::= "a"{3,}`, true},
		{`root ::= "a"{3}`, true},
		{`root ::= "a"{3,2}`, false},
		{`root ::= "a"{ 3 , 2 }`, false},
		{`root ::= "{3,2}" [{3,2}] "\"{3,2}" [\]{3,2}] # {3,2}`, true},
		{"root ::= \"a\" # {3,2}\n\"b\"{3,2}", false},
		{`root ::= "`, true},
		{`root ::= "\`, true},
		{`root ::= "a"{3,2`, true},
		{``, true},
	} {
		if err := checkRepeats(tt.grammar); (err == nil) != tt.ok {
			t.Errorf("%s: got %v, want ok %v", tt.grammar, err, tt.ok)
		}
	}
}

func TestCheckBounds(t *testing.T) {
	for _, tt := range []struct {
		schema string
		ok     bool
	}{
		{`{"minItems":1,"maxItems":1}`, true},
		{`{"type":"array","minItems":3,"maxItems":1}`, false},
		{`{"properties":{"a":{"minLength":3,"maxLength":2}}}`, false},
		{`{"anyOf":[{"minimum":1.5,"maximum":1}]}`, false},
		{`{"const":{"minimum":2,"maximum":1}}`, true},
		{`{"minimum":2}`, true},
		{`not JSON`, true},
	} {
		if err := checkBounds(tt.schema); (err == nil) != tt.ok {
			t.Errorf("%s: got %v, want ok %v", tt.schema, err, tt.ok)
		}
	}
}
