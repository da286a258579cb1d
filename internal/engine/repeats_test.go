package engine

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
