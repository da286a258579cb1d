package tokens

import "unicode"

// A splitter cuts s, which is not empty, into words and calls emit for each,
// in order. All words together are s.
type splitter func(s []byte, emit func(word []byte))

// first makes a splitter of a function that returns the length of the first
// word of s, which may look at the rest of s but at nothing before it.
func first(f func(s []byte) int) splitter {
	return func(s []byte, emit func([]byte)) {
		for len(s) > 0 {
			n := f(s)
			emit(s[:n])
			s = s[n:]
		}
	}
}

// matches makes a splitter of a regular expression: f returns the length of its
// match at the start of s, 0 for none. What lies between matches is a word too,
// as in unicode_regex_split_stl of llama.cpp's src/unicode.cpp.
func matches(f func(s []byte) int) splitter {
	return func(s []byte, emit func([]byte)) {
		gap := 0
		for gap < len(s) {
			n := f(s[gap:])
			if n == 0 {
				_, size := char(s[gap:])
				gap += size
				continue
			}
			if gap > 0 {
				emit(s[:gap])
			}
			emit(s[gap : gap+n])
			s, gap = s[gap+n:], 0
		}
		if gap > 0 {
			emit(s)
		}
	}
}

// classes and asciiClass are set by useClasses, before any splitter is used.
var (
	classes    *[unicode.MaxRune + 1]class
	asciiClass [128]class
)

// classAt returns the class and the bytes of the code point at s[i]; at the end
// of s it returns 0, 0.
func classAt(s []byte, i int) (c class, size int) {
	if i >= len(s) {
		return 0, 0
	}
	if b := s[i]; b < 0x80 {
		return asciiClass[b], 1
	}
	r, size := char(s[i:])
	return classes[r], size
}

// run returns the end of the longest run of code points from s[i] on that have
// a class of mask.
func run(s []byte, i int, mask class) int {
	for i < len(s) {
		if b := s[i]; b < 0x80 {
			if asciiClass[b]&mask == 0 {
				break
			}
			i++
			continue
		}
		c, size := classAt(s, i)
		if c&mask == 0 {
			break
		}
		i += size
	}
	return i
}

// runNot is run for code points without a class of mask.
func runNot(s []byte, i int, mask class) int {
	for i < len(s) {
		c, size := classAt(s, i)
		if c&mask != 0 {
			break
		}
		i += size
	}
	return i
}

// count is run for at most n code points.
func count(s []byte, i int, mask class, n int) int {
	for ; n > 0 && i < len(s); n-- {
		c, size := classAt(s, i)
		if c&mask == 0 {
			break
		}
		i += size
	}
	return i
}

func isNewline(b byte) bool { return b == '\n' || b == '\r' }

// spaces describes the white space at the start of s: its end, where its last
// code point starts, and the end of its last \r or \n, 0 for none.
func spaces(s []byte) (end, last, newline int) {
	for end < len(s) {
		c, size := classAt(s, end)
		if c&isSpace == 0 {
			break
		}
		last = end
		end += size
		if isNewline(s[last]) {
			newline = end
		}
	}
	return end, last, newline
}

// spaceRun is \s+(?!\S)|\s+: white space but for its last code point if
// something follows. s starts with white space.
func spaceRun(s []byte, end, last int) int {
	if last > 0 && end < len(s) {
		return last
	}
	return end
}

// contraction is 's|'t|'re|'ve|'m|'ll|'d with any case, at the start of s.
func contraction(s []byte) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	switch s[1] | 0x20 { // no other byte becomes one of these letters
	case 's', 't', 'm', 'd':
		return 2
	}
	if len(s) > 2 {
		switch [2]byte{s[1] | 0x20, s[2] | 0x20} {
		case [2]byte{'r', 'e'}, [2]byte{'v', 'e'}, [2]byte{'l', 'l'}:
			return 3
		}
	}
	return 0
}

// gpt2 is unicode_regex_split_custom_gpt2.
func gpt2(s []byte) int {
	if s[0] == '\'' {
		if n := contraction(s); n > 0 && s[1]&0x20 != 0 && s[n-1]&0x20 != 0 {
			return n
		}
	}
	i := 0
	if s[0] == ' ' {
		i = 1
	}
	c, size := classAt(s, i)
	switch {
	case c&isLetter != 0:
		return run(s, i+size, isLetter)
	case c&isNumber != 0:
		return run(s, i+size, isNumber)
	case size > 0 && c&isSpace == 0:
		return runNot(s, i+size, isSpace|isLetter|isNumber)
	}
	end, last, _ := spaces(s)
	return spaceRun(s, end, last)
}

// style is the family of expressions that began with GPT-4's:
//
//	CONTRACTION|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
type style struct {
	contractions bool   // begins with the contractions
	letters      class  // what words are made of: \p{L}, or [\p{L}\p{M}]
	notPunct     class  // what the punctuation excludes besides \s
	numbers      int    // numbers in one word
	tail         string // what may follow punctuation
	tails        int    // how many of it
	// word, if not nil, takes the place of [^\r\n\p{L}\p{N}]?\p{L}+; it
	// returns 0 if it does not match.
	word func(s []byte) int
}

const unlimited = int(^uint(0) >> 1)

func (y *style) first(s []byte) int {
	if y.contractions && s[0] == '\'' {
		if n := contraction(s); n > 0 {
			return n
		}
	}
	c, size := classAt(s, 0)
	if y.word != nil {
		if n := y.word(s); n > 0 {
			return n
		}
	} else if c&isNumber == 0 && !isNewline(s[0]) {
		if next, _ := classAt(s, size); (c|next)&y.letters != 0 {
			return run(s, size, y.letters)
		}
	}
	if c&isNumber != 0 {
		return count(s, size, isNumber, y.numbers-1)
	}
	i := 0
	if s[0] == ' ' {
		i = 1
	}
	if c, size := classAt(s, i); size > 0 && c&(isSpace|y.notPunct) == 0 {
		return y.tailEnd(s, runNot(s, i+size, isSpace|y.notPunct))
	}
	end, last, newline := spaces(s)
	switch {
	case newline > 0:
		return newline
	case end == 0: // [^\s\p{L}\p{M}\p{N}] leaves out marks, which no word took
		return size
	}
	return spaceRun(s, end, last)
}

// tailEnd skips what may follow punctuation.
func (y *style) tailEnd(s []byte, i int) int {
	for n := y.tails; n > 0 && i < len(s) && containsByte(y.tail, s[i]); n-- {
		i++
	}
	return i
}

func containsByte(set string, b byte) bool {
	for i := range len(set) {
		if set[i] == b {
			return true
		}
	}
	return false
}

// casedWord is the word of GPT-4o's expression as llama.cpp writes it, where
// upper case is what is not a-z, and lower case what is not A-Z:
//
//	P?U*W+(CONTRACTION)?|P?U+W*(CONTRACTION)?  with P = [^\r\n\p{L}\p{N}]
//	U = (?=[letters])[^a-z]  W = (?=[letters])[^A-Z]
func casedWord(letters class, contractions bool) func(s []byte) int {
	with := func(s []byte, n int) int {
		if n > 0 && contractions {
			n += contraction(s[n:])
		}
		return n
	}
	return func(s []byte) int {
		c, size := classAt(s, 0)
		prefix := 0
		if c&(isLetter|isNumber) == 0 && !isNewline(s[0]) {
			prefix = size
		}
		if prefix > 0 {
			if n := upperLower(s, prefix, letters); n > 0 {
				return with(s, n)
			}
		}
		if n := upperLower(s, 0, letters); n > 0 {
			return with(s, n)
		}
		// The second alternative: after the first has failed, W* is empty.
		if prefix > 0 {
			if n := upper(s, prefix, letters); n > prefix {
				return with(s, n)
			}
		}
		return with(s, upper(s, 0, letters))
	}
}

// upper is U* from s[i] on.
func upper(s []byte, i int, letters class) int {
	for i < len(s) && (s[i] < 'a' || s[i] > 'z') {
		c, size := classAt(s, i)
		if c&letters == 0 {
			break
		}
		i += size
	}
	return i
}

// upperLower is U*W+ from s[i] on, 0 if it does not match. When W+ finds
// nothing, U* gives back as much as it takes to end with a letter that has no
// case in this sense, so one that is not ASCII.
func upperLower(s []byte, i int, letters class) int {
	start, back := i, 0 // back: the end of the last letter beyond ASCII
	for i < len(s) && (s[i] < 'a' || s[i] > 'z') {
		c, size := classAt(s, i)
		if c&letters == 0 {
			break
		}
		i += size
		if size > 1 {
			back = i
		}
	}
	end := i
	for end < len(s) && (s[end] < 'A' || s[end] > 'Z') {
		c, size := classAt(s, end)
		if c&letters == 0 {
			break
		}
		end += size
	}
	switch {
	case end > i:
		return end
	case back > start:
		return back
	}
	return 0
}

// markedWord is [^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+(CONTRACTION)?.
func markedWord(s []byte) int {
	c, size := classAt(s, 0)
	next, _ := classAt(s, size)
	if c&isNumber != 0 || isNewline(s[0]) || (c|next)&(isLetter|isMark) == 0 {
		return 0
	}
	n := run(s, size, isLetter|isMark)
	return n + contraction(s[n:])
}

// spacedWord is [^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+.
func spacedWord(s []byte) int {
	i := 0
	c, size := classAt(s, 0)
	if c&(isLetter|isNumber) == 0 && !isNewline(s[0]) {
		i = size
	}
	c, size = classAt(s, i)
	if c&isLetter == 0 {
		return 0
	}
	i += size
	for {
		i = run(s, i, isLetter|isMark)
		if i >= len(s) || s[i] != ' ' {
			return i
		}
		if c, _ := classAt(s, i+1); c&isLetter == 0 {
			return i
		}
		i++
	}
}
