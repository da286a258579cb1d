package tokens

import "unicode/utf8"

// The expressions of this file leave text unmatched between their matches, or
// belong to one family of models only.

// deepseek is the last expression of DeepSeek-V3's and its relatives:
//
//	[!-/:-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// With spark, newlines do not follow punctuation and are words of their own.
func deepseek(s []byte, spark bool) int {
	c, size := classAt(s, 0)
	if s[0] < 0x80 && c&(isPunct|isSymbol) != 0 && len(s) > 1 && isASCIILetter(s[1]) {
		i := 2
		for i < len(s) && isASCIILetter(s[i]) {
			i++
		}
		return i
	}
	const letters = isLetter | isMark
	next, _ := classAt(s, size)
	switch {
	case c&letters != 0, c&(isPunct|isSymbol) == 0 && !isNewline(s[0]) && next&letters != 0:
		return run(s, size, letters)
	}
	i := 0
	if s[0] == ' ' {
		i = 1
	}
	if c, size := classAt(s, i); c&(isPunct|isSymbol) != 0 {
		i = run(s, i+size, isPunct|isSymbol)
		for !spark && i < len(s) && isNewline(s[i]) {
			i++
		}
		return i
	}
	if c&isSpace == 0 {
		return 0
	}
	if spark && isNewline(s[0]) {
		return 1
	}
	end, last, newline := spaces(s)
	if newline > 0 && !spark {
		return newline
	}
	return spaceRun(s, end, last)
}

func isASCIILetter(b byte) bool { b |= 0x20; return b >= 'a' && b <= 'z' }

// one is a single code point of mask.
func one(mask class) splitter {
	return matches(func(s []byte) int {
		c, size := classAt(s, 0)
		if c&mask == 0 {
			return 0
		}
		return size
	})
}

// upTo is one to n code points of mask.
func upTo(mask class, n int) splitter {
	return matches(func(s []byte) int { return count(s, 0, mask, n) })
}

// spaced is \s? and code points of mask.
func spaced(mask class) splitter {
	return matches(func(s []byte) int {
		c, size := classAt(s, 0)
		if c&mask != 0 {
			return run(s, size, mask)
		}
		if c&isSpace == 0 {
			return 0
		}
		if n := run(s, size, mask); n > size {
			return n
		}
		return 0
	})
}

// newline is [\r\n].
var newline = matches(func(s []byte) int {
	if isNewline(s[0]) {
		return 1
	}
	return 0
})

// lines is [^\n]+|[\n]+.
var lines = first(func(s []byte) int {
	i := 1
	for i < len(s) && (s[i] == '\n') == (s[0] == '\n') {
		i++
	}
	return i
})

// spaceEnd is \s+$.
func spaceEnd(s []byte, emit func([]byte)) {
	start := len(s)
	for start > 0 {
		_, size := lastChar(s[:start])
		if c, _ := classAt(s[start-size:start], 0); c&isSpace == 0 {
			break
		}
		start -= size
	}
	if start > 0 {
		emit(s[:start])
	}
	if start < len(s) {
		emit(s[start:])
	}
}

// lastChar is char at the end of s.
func lastChar(s []byte) (r rune, size int) {
	size = 1
	for size < len(s) && !utf8.RuneStart(s[len(s)-size]) {
		size++
	}
	r, _ = char(s[len(s)-size:])
	return r, size
}

// asciiRun is [set]+ for punctuation and further ASCII characters.
func asciiRun(more string) splitter {
	return matches(func(s []byte) int {
		i := 0
		for i < len(s) {
			c, size := classAt(s, i)
			if c&isPunct == 0 && !(s[i] < 0x80 && containsByte(more, s[i])) {
				break
			}
			i += size
		}
		return i
	})
}

// threeDigits is [0-9][0-9][0-9].
var threeDigits = matches(func(s []byte) int {
	for i := range 3 {
		if i >= len(s) || s[i] < '0' || s[i] > '9' {
			return 0
		}
	}
	return 3
})

// cascade is Jais 2's \s{512}(?!\S)|\s{256}(?!\S)|...|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}
// for white space without newlines that another expression has cut out; other
// words stay whole.
func cascade(s []byte, emit func([]byte)) {
	end, _, newline := spaces(s)
	if end < len(s) || newline > 0 {
		emit(s)
		return
	}
	for size := 512; size >= 4; size /= 2 {
		for n := countExactly(s, size); n > 0; n = countExactly(s, size) {
			emit(s[:n])
			s = s[n:]
		}
	}
	for len(s) > 0 {
		n := count(s, 0, isSpace, 2)
		emit(s[:n])
		s = s[n:]
	}
}

// countExactly returns the bytes of the first n code points of s, 0 if there
// are fewer.
func countExactly(s []byte, n int) int {
	i := 0
	for ; n > 0; n-- {
		if i >= len(s) {
			return 0
		}
		_, size := char(s[i:])
		i += size
	}
	return i
}

// afmoeDigits is unicode_regex_split_custom_afmoe: numbers in groups of three
// from the right.
func afmoeDigits(s []byte, emit func([]byte)) {
	for len(s) > 0 {
		i := runNot(s, 0, isNumber)
		end, n := i, 0
		for end < len(s) {
			c, size := classAt(s, end)
			if c&isNumber == 0 {
				break
			}
			end += size
			n++
		}
		// Upstream cuts a word off at each group's end only, so text before the
		// digits belongs to the first group.
		for group := (n+2)%3 + 1; n > 0; group = 3 {
			i = count(s, i, isNumber, group)
			n -= group
			emit(s[:i])
			s = s[i:]
			end -= i
			i = 0
		}
		if end == len(s) && end > 0 {
			emit(s)
			return
		}
	}
}

// superDigits is (?=(\d{3})+(?!\d)): an empty match, so a cut, before each
// group of three ASCII digits counted from the right.
func superDigits(s []byte, emit func([]byte)) {
	start := 0
	for i := 0; i < len(s); {
		if s[i] < '0' || s[i] > '9' {
			i++
			continue
		}
		end := i
		for end < len(s) && s[end] >= '0' && s[end] <= '9' {
			end++
		}
		for cut := i + (end-i)%3; cut < end; cut += 3 {
			if cut > start {
				emit(s[start:cut])
				start = cut
			}
		}
		i = end
	}
	if start < len(s) {
		emit(s[start:])
	}
}

// kimi is unicode_regex_split_custom_kimi_k2.
func kimi(s []byte) int {
	if n := hanRun(s); n > 0 {
		return n
	}
	c, size := classAt(s, 0)
	i := 0
	if c&(isLetter|isNumber) == 0 && !isNewline(s[0]) {
		i = size
	}
	if n := letterRun(s, i); n > i {
		return n + contraction(s[n:])
	}
	return kimiRest.first(s)
}

// kimiRest is what kimi's expression has besides words.
var kimiRest = style{numbers: 3, notPunct: isLetter | isNumber, tail: "\r\n", tails: unlimited, word: func([]byte) int { return 0 }}

// hanRun is \p{Han}+ as unicode_cpt_is_han has it.
func hanRun(s []byte) int {
	i := 0
	for i < len(s) && s[i] >= 0x80 {
		r, size := char(s[i:])
		if !isHan(r) {
			break
		}
		i += size
	}
	return i
}

// letterRun returns the end of the letters from s[i] on that are not Han.
func letterRun(s []byte, i int) int {
	for i < len(s) {
		c, size := classAt(s, i)
		if c&isLetter == 0 {
			break
		}
		if r, _ := char(s[i:]); isHan(r) {
			break
		}
		i += size
	}
	return i
}

func isHan(r rune) bool {
	switch {
	case r < 0x3400:
		return false
	case r <= 0x4dbf, r >= 0x4e00 && r <= 0x9fff, r >= 0xf900 && r <= 0xfaff,
		r >= 0x20000 && r <= 0x2a6df, r >= 0x2a700 && r <= 0x2ebef, r >= 0x2f800 && r <= 0x2fa1f:
		return true
	}
	return false
}
