package tokens

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// appendPiece appends the bytes of a token of an SPM or BPE vocabulary: what
// llama_token_to_piece gives with special set.
func (v *Vocab) appendPiece(dst []byte, t Token) []byte {
	text, a := v.texts[t], v.attrs[t]
	switch {
	case a&specialAttrs != 0:
		return append(dst, text...)
	case a&attrNormal != 0 && (v.Type == "spm" || v.escapeSpaces):
		return append(dst, strings.ReplaceAll(text, blank, " ")...)
	case a&attrNormal != 0:
		return appendSpelled(dst, text)
	case a&attrByte != 0 && len(text) >= 5:
		// strtol of llama.cpp's token_to_byte: what is no number is 0.
		b, _ := strconv.ParseUint(text[3:5], 16, 8)
		return append(dst, byte(b))
	}
	return dst
}

// spellings holds the characters of GPT-2's spelling of bytes.
var spellings = sync.OnceValue(func() *[256]rune {
	s := new([256]rune)
	next := rune(256)
	for b := range s {
		s[b] = rune(b)
		if !(b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae) {
			s[b] = next
			next++
		}
	}
	return s
})

// bytesOf maps the characters of GPT-2's spelling to bytes.
var bytesOf = sync.OnceValue(func() map[rune]byte {
	m := map[rune]byte{}
	for b, r := range spellings() {
		m[r] = byte(b)
	}
	return m
})

// appendSpelled is llama_decode_text: the bytes of a text in GPT-2's spelling.
func appendSpelled(dst []byte, text string) []byte {
	bytes := bytesOf()
	for _, r := range text {
		if r < utf8.RuneSelf && r >= '!' && r <= '~' {
			dst = append(dst, byte(r))
			continue
		}
		if b, ok := bytes[r]; ok {
			dst = append(dst, b)
			continue
		}
		dst = append(dst, "[UNK_BYTE_0x"...)
		dst = fmt.Appendf(dst, "%02x", string(r))
		dst = append(append(dst, text...), ']')
	}
	return dst
}
