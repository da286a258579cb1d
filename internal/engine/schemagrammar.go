package engine

import "strings"

// exactRules are rules of llama.cpp's grammars for JSON that allow what is not
// to be read again, and the same without it: exponents beyond a double's, and
// halves of surrogate pairs, each of which would count as a character.
// Source: PRIMITIVE_RULES in common/json-schema-to-grammar.cpp.
var exactRules = strings.NewReplacer(
	"::= (\"-\"? integral-part) (\".\" decimal-part)? ([eE] [-+]? integral-part)?\n",
	"::= (\"-\"? integral-part) (\".\" decimal-part)? ([eE] [-+]? [0-9]{1,2})?\n",
	`::= [^"\\\x7F\x00-\x1F] | [\\] (["\\bfnrt] | "u" [0-9a-fA-F]{4})`+"\n",
	`::= [^"\\\x7F\x00-\x1F] | [\\] (["\\bfnrt] | "u" ([0-9a-ce-fA-CE-F] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2}))`+"\n",
)

// exactGrammar corrects the rules of a grammar that llama.cpp has made of
// schemas. In a rule for a name that is none of some others, a class that
// excludes characters takes a backslash and control characters too, so that
// the name would be no JSON, or one of the others in another spelling.
func exactGrammar(grammar string) string {
	lines := strings.SplitAfter(exactRules.Replace(grammar), "\n")
	for i, line := range lines {
		if strings.Contains(line, `::= ["] ( `) {
			// The quote stays the last, so that a - after it is one.
			lines[i] = strings.ReplaceAll(line, `[^"`, `[^\\\x7F\x00-\x1F"`)
		}
	}
	return strings.Join(lines, "")
}
