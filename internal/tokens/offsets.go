package tokens

import (
	"bytes"
	"unicode/utf8"

	"gollama/internal/engine"
)

// Offsets returns where in r.Text each id's bytes are: start and end, in bytes
// or runes. A token that BOS or EOS put there is at -1, -1. A rune counts from
// the token with its first byte to the one with its last. The space that an SPM
// vocabulary puts before a text belongs to no byte. ok is false if the ids do
// not spell the text: vocabularies of type wpm and ugm change it, and so does
// white space that a special token takes along.
func (m *Model) Offsets(r *Result, runes bool) (at [][2]int, ok bool) {
	at = make([][2]int, len(r.IDs))
	pos := 0
	dummy := m.addSpacePrefix && m.Type == "spm"
	for i, t := range r.IDs {
		if i < r.Front || i >= len(r.IDs)-r.Back {
			at[i] = [2]int{-1, -1}
			continue
		}
		piece := m.Piece(t)
		special := m.attrs[t]&specialAttrs != 0
		if dummy && !special && len(piece) > 0 && piece[0] == ' ' {
			piece = piece[1:]
		}
		end, same := m.spells(r.Text, pos, piece)
		if !same && special { // white space was taken along
			skip := pos
			for skip < len(r.Text) && isCSpace(r.Text[skip]) {
				skip++
			}
			if end, same = m.spells(r.Text, skip, piece); same {
				pos = skip
			}
		}
		if !same {
			return nil, false
		}
		at[i] = [2]int{pos, end}
		pos = end
		dummy = special && m.addSpacePrefix && m.Type == "spm"
	}
	if pos != len(r.Text) && r.Cut == 0 {
		return nil, false
	}
	if runes {
		toRunes(r.Text, at)
	}
	return at, true
}

// spells reports whether text has the bytes of piece at pos, and where they
// end. A blank in the text looks like a space in the piece.
func (m *Model) spells(text []byte, pos int, piece []byte) (end int, ok bool) {
	if bytes.HasPrefix(text[pos:], piece) {
		return pos + len(piece), true
	}
	if !m.escapeSpaces {
		return pos, false
	}
	for _, b := range piece {
		switch {
		case pos < len(text) && text[pos] == b:
			pos++
		case b == ' ' && bytes.HasPrefix(text[pos:], []byte(blank)):
			pos += len(blank)
		default:
			return pos, false
		}
	}
	return pos, true
}

// toRunes turns byte offsets into rune offsets.
func toRunes(text []byte, at [][2]int) {
	pos, n := 0, 0 // n runes start before pos
	for i, o := range at {
		if o[0] < 0 {
			continue
		}
		for ; pos < o[0]; n++ {
			_, size := utf8.DecodeRune(text[pos:])
			pos += size
		}
		start := n
		if pos > o[0] {
			start--
		}
		for ; pos < o[1]; n++ {
			_, size := utf8.DecodeRune(text[pos:])
			pos += size
		}
		at[i] = [2]int{start, n}
		if o[0] == o[1] {
			at[i][1] = start
		}
	}
}

// Decode appends the bytes that ids spell to dst. A BOS token at the start and
// an EOS token at the end are left out as opt adds them. What an encoder made
// of a text comes back as that text, if its vocabulary loses nothing.
func (m *Model) Decode(dst []byte, ids []Token, bos, eos Token) []byte {
	if len(ids) > 0 && bos != engine.TokenNull && ids[0] == bos {
		ids = ids[1:]
	}
	if len(ids) > 0 && eos != engine.TokenNull && ids[len(ids)-1] == eos {
		ids = ids[:len(ids)-1]
	}
	spm := m.addSpacePrefix && m.Type == "spm"
	dummy := spm
	start := len(dst)
	for _, t := range ids {
		piece := m.Piece(t)
		special := m.has(t) && m.attrs[t]&specialAttrs != 0
		if dummy && !special && len(piece) > 0 && piece[0] == ' ' {
			piece = piece[1:]
		}
		dummy = special && spm
		dst = append(dst, piece...)
	}
	if m.escapeSpaces && bytes.Contains(dst[start:], []byte(blank)) {
		// Invalid UTF-8 before a space hides the blank from the vocabulary, and
		// it is spelled by its bytes.
		dst = append(dst[:start], bytes.ReplaceAll(dst[start:], []byte(blank), []byte(" "))...)
	}
	return dst
}
