package engine

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// jsonPattern returns a pattern in the dialect of llama.cpp's conversion for
// the strings that match pattern, as they stand in JSON: with a quote, a
// backslash and control characters escaped. It is what ECMA 262 and Go's
// regexp agree on; what they do not is refused, or, in classes that exclude,
// not written.
func jsonPattern(pattern string) (string, error) {
	expr, err := commonSyntax(pattern)
	if err != nil {
		return "", err
	}
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		var e *syntax.Error
		if errors.As(err, &e) {
			err = errors.New(e.Code.String())
		}
		return "", err
	}
	var b strings.Builder
	b.WriteString("^(?:")
	if err := writeAnchored(&b, re); err != nil {
		return "", err
	}
	b.WriteString(")$")
	return b.String(), nil
}

// commonSyntax translates \u, and refuses what Go reads otherwise than ECMA 262.
func commonSyntax(pattern string) (string, error) {
	var b strings.Builder
	inClass := false
	for i := 0; i < len(pattern); i++ {
		rest := pattern[i:]
		switch c := pattern[i]; {
		case c == '\\':
			text, n, err := commonEscape(rest)
			if err != nil {
				return "", err
			}
			b.WriteString(text)
			i += n - 1
			continue
		case inClass:
			if strings.HasPrefix(rest, "[:") {
				return "", errors.New("a class of POSIX")
			}
			inClass = c != ']'
		case c == '[':
			if strings.HasPrefix(rest, "[]") || strings.HasPrefix(rest, "[^]") {
				return "", errors.New("an empty class")
			}
			inClass = true
		case strings.HasPrefix(rest, "(?") && !strings.HasPrefix(rest, "(?:"):
			return "", errors.New("a group of another kind than (?:...)")
		}
		b.WriteByte(pattern[i])
	}
	return b.String(), nil
}

// commonEscape returns what Go calls the escape that s begins with, and its length.
func commonEscape(s string) (text string, n int, err error) {
	if len(s) < 2 {
		return "", 0, errors.New("it ends in a backslash")
	}
	switch c := s[1]; {
	case c == 'u' && len(s) >= 6, c == 'x' && len(s) >= 4:
		n = map[byte]int{'u': 6, 'x': 4}[c]
		r, err := strconv.ParseUint(s[2:n], 16, 32)
		if err != nil {
			return "", 0, fmt.Errorf("the escape %s", s[:n])
		}
		if r >= 0xd800 && r < 0xe000 {
			return "", 0, fmt.Errorf("half a character, %s", s[:n])
		}
		return fmt.Sprintf(`\x{%x}`, r), n, nil
	case strings.IndexByte("dDwWsSnrtfv", c) >= 0, c < 0x80 && unicode.In(rune(c), unicode.Punct, unicode.Symbol):
		return s[:2], 2, nil
	}
	return "", 0, fmt.Errorf("the escape %q", s[:2])
}

// writeAnchored writes a pattern that may match anywhere in a string: ^ and $
// count at its ends, and where they are missing any characters may stand.
func writeAnchored(b *strings.Builder, re *syntax.Regexp) error {
	switch re.Op {
	case syntax.OpCapture:
		return writeAnchored(b, re.Sub[0])
	case syntax.OpAlternate:
		for i, sub := range re.Sub {
			if i > 0 {
				b.WriteByte('|')
			}
			b.WriteString("(?:")
			if err := writeAnchored(b, sub); err != nil {
				return err
			}
			b.WriteByte(')')
		}
		return nil
	}
	subs := []*syntax.Regexp{re}
	if re.Op == syntax.OpConcat {
		subs = re.Sub
	}
	begins, ends := false, false
	for len(subs) > 0 && subs[0].Op == syntax.OpBeginText {
		begins, subs = true, subs[1:]
	}
	for len(subs) > 0 && subs[len(subs)-1].Op == syntax.OpEndText {
		ends, subs = true, subs[:len(subs)-1]
	}
	anything := &syntax.Regexp{Op: syntax.OpStar, Sub: []*syntax.Regexp{{Op: syntax.OpAnyChar}}}
	if !begins {
		subs = append([]*syntax.Regexp{anything}, subs...)
	}
	if !ends {
		subs = append(subs[:len(subs):len(subs)], anything)
	}
	return writePattern(b, &syntax.Regexp{Op: syntax.OpConcat, Sub: subs})
}

// writePattern writes re. Whatever is repeated is a class or a group: the
// conversion repeats all of a literal whose last character is escaped.
func writePattern(b *strings.Builder, re *syntax.Regexp) error {
	switch re.Op {
	case syntax.OpEmptyMatch:
		return nil
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			writeLiteral(b, r)
		}
		return nil
	case syntax.OpCharClass:
		return writeClass(b, re.Rune)
	case syntax.OpAnyChar:
		return writeClass(b, []rune{0, unicode.MaxRune})
	case syntax.OpAnyCharNotNL:
		return writeClass(b, []rune{0, '\n' - 1, '\n' + 1, unicode.MaxRune})
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if err := writePattern(b, sub); err != nil {
				return err
			}
		}
		return nil
	}
	repeats := map[syntax.Op]string{syntax.OpStar: "*", syntax.OpPlus: "+", syntax.OpQuest: "?", syntax.OpCapture: "", syntax.OpAlternate: ""}
	suffix, ok := repeats[re.Op]
	if re.Op == syntax.OpRepeat {
		suffix, ok = fmt.Sprintf("{%d,%d}", re.Min, re.Max), true
		if re.Max < 0 {
			suffix = fmt.Sprintf("{%d,}", re.Min)
		}
	}
	if !ok {
		return fmt.Errorf("%s inside it", re)
	}
	b.WriteString("(?:")
	for i, sub := range re.Sub {
		if i > 0 {
			b.WriteByte('|')
		}
		if err := writePattern(b, sub); err != nil {
			return err
		}
	}
	b.WriteString(")" + suffix)
	return nil
}

// writeRune writes a character as both the conversion and the grammar read it.
func writeRune(b *strings.Builder, r rune) {
	switch {
	case r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)):
		b.WriteRune(r)
	case r < 0x100:
		fmt.Fprintf(b, `\x%02X`, r)
	case r < 0x10000:
		fmt.Fprintf(b, `\u%04X`, r)
	default:
		fmt.Fprintf(b, `\U%08X`, r)
	}
}

// jsonEscapes are the characters that have an escape of their own in JSON.
var jsonEscapes = map[rune]rune{'"': '"', '\\': '\\', '\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't'}

func escaped(r rune) bool { return r < 0x20 || r == '"' || r == '\\' }

// writeLiteral writes a character as it stands in a JSON string.
func writeLiteral(b *strings.Builder, r rune) {
	if !escaped(r) {
		writeRune(b, r)
		return
	}
	text := fmt.Sprintf(`\u%04x`, r)
	if c, ok := jsonEscapes[r]; ok {
		text = `\` + string(c)
	}
	for _, c := range text {
		writeRune(b, c)
	}
}

// doubtful are characters that the classes \s and . of some dialects have and
// of others have not.
var doubtful = []rune{'\n', '\r', '\v', 0x85, 0xa0, 0x1680, 0x180e, 0x2000, 0x200b, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000, 0xfeff}

// writeClass writes a class, given as pairs of the first and the last
// character of its ranges.
func writeClass(b *strings.Builder, ranges []rune) error {
	wide := len(ranges) > 0 && ranges[len(ranges)-1] == unicode.MaxRune // it excludes
	var plain, special []rune
	add := func(lo, hi rune) {
		if lo <= hi {
			plain = append(plain, lo, hi)
		}
	}
	cuts := []rune{'"', '\\'}
	for r := rune(0); r < 0x20; r++ {
		cuts = append(cuts, r)
	}
	if wide {
		cuts = append(cuts, doubtful...)
		for r := rune(0x2000); r <= 0x200b; r++ {
			cuts = append(cuts, r)
		}
	}
	slices.Sort(cuts)
	for i := 0; i < len(ranges); i += 2 {
		lo, hi := ranges[i], ranges[i+1]
		for _, r := range slices.Compact(cuts) {
			if r < lo || r > hi {
				continue
			}
			add(lo, min(r-1, hi))
			lo = r + 1
			if escaped(r) && (!wide || r >= 0x20) {
				special = append(special, r)
			}
		}
		// Surrogates are no characters.
		add(lo, min(hi, 0xd7ff))
		add(max(lo, 0xe000), hi)
	}
	if len(plain)+len(special) == 0 {
		return errors.New("a class without a character")
	}
	b.WriteString("(?:")
	if len(plain) > 0 {
		b.WriteByte('[')
		for i := 0; i < len(plain); i += 2 {
			writeRune(b, plain[i])
			if plain[i] != plain[i+1] {
				b.WriteByte('-')
				writeRune(b, plain[i+1])
			}
		}
		b.WriteByte(']')
	}
	for i, r := range special {
		if i > 0 || len(plain) > 0 {
			b.WriteByte('|')
		}
		writeLiteral(b, r)
	}
	b.WriteByte(')')
	return nil
}
