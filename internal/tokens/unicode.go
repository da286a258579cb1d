package tokens

import (
	"encoding/base64"
	"encoding/binary"
	"sync"
	"unicode"
	"unicode/utf8"
)

// class says what a code point is to a pre-tokenizer: one general category at
// most, and whether it is white space. Control, format and unassigned code
// points have none. The bits are those of the pinned llama.cpp
// (src/unicode-data.cpp), whose Unicode version is not Go's.
type class = uint8

const (
	isLetter class = 1 << iota // \p{L}
	isNumber                   // \p{N}
	isMark                     // \p{M}
	isPunct                    // \p{P}
	isSymbol                   // \p{S}
	isSpace                    // \s, the separators too
)

// classTable holds the class of every code point. It is made on first use:
// most of the program never looks.
var classTable = sync.OnceValue(func() *[unicode.MaxRune + 1]class {
	data, err := base64.StdEncoding.DecodeString(classRuns)
	if err != nil {
		panic("tokens: " + err.Error()) // the table is part of the program
	}
	t := new([unicode.MaxRune + 1]class)
	at := 0
	for len(data) > 0 {
		n, size := binary.Uvarint(data)
		c := data[size]
		for range n {
			t[at] = c
			at++
		}
		data = data[size+1:]
	}
	return t
})

// char returns the code point at the start of s and its bytes. s holds what
// clean made: every sequence is whole, but surrogates may be encoded.
func char(s []byte) (r rune, size int) {
	b := s[0]
	switch {
	case b < utf8.RuneSelf:
		return rune(b), 1
	case b < 0xe0:
		return rune(b&0x1f)<<6 | rune(s[1]&0x3f), 2
	case b < 0xf0:
		return rune(b&0x0f)<<12 | rune(s[1]&0x3f)<<6 | rune(s[2]&0x3f), 3
	}
	return rune(b&0x07)<<18 | rune(s[1]&0x3f)<<12 | rune(s[2]&0x3f)<<6 | rune(s[3]&0x3f), 4
}
