package bpe

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// contractions are words of their own after any other.
var contractions = []string{"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}

type class int

const (
	space class = iota
	letter
	number
	other
)

func classOf(r rune) class {
	switch {
	case unicode.IsSpace(r):
		return space
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return number
	}
	return other
}

// nextWord returns the length of the word at the start of text, which is not empty, by the
// pre-tokenizer that llama.cpp calls gpt-2:
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func nextWord(text string) int {
	for _, c := range contractions {
		if strings.HasPrefix(text, c) {
			return len(c)
		}
	}
	first, n := utf8.DecodeRuneInString(text)
	kind := classOf(first)
	if first == ' ' && n < len(text) {
		r, m := utf8.DecodeRuneInString(text[n:])
		if k := classOf(r); k != space {
			return n + m + run(text[n+m:], k)
		}
	}
	n += run(text[n:], kind)
	if kind != space || n == len(text) {
		return n
	}
	// White space before a word leaves its last character to it.
	if _, last := utf8.DecodeLastRuneInString(text[:n]); last < n {
		n -= last
	}
	return n
}

// run returns the length of the characters of one class at the start of text.
func run(text string, k class) int {
	for i, r := range text {
		if classOf(r) != k {
			return i
		}
	}
	return len(text)
}

// cut returns the length of the next piece of a word that is not longer than maxWord, ending between
// characters: a word of millions of letters would make every merge slow.
func cut(word string) int {
	if len(word) <= maxWord {
		return len(word)
	}
	n := maxWord
	for n > maxWord-utf8.UTFMax && !utf8.RuneStart(word[n]) {
		n--
	}
	return n
}

const maxWord = 256 // bytes
