package tokens

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// AppendIDs appends ids with sep between them.
func AppendIDs(dst []byte, ids []Token, sep string) []byte {
	for i, t := range ids {
		if i > 0 {
			dst = append(dst, sep...)
		}
		dst = strconv.AppendInt(dst, int64(t), 10)
	}
	return dst
}

// AppendBinary appends ids as little-endian numbers of width 2 or 4 bytes.
func AppendBinary(dst []byte, ids []Token, width int) []byte {
	for _, t := range ids {
		if width == 2 {
			dst = binary.LittleEndian.AppendUint16(dst, uint16(t))
		} else {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(t))
		}
	}
	return dst
}

// Part is some of the ids of a result: IDs[Lo:Hi].
type Part struct {
	Number int // from 0 on; -1: the whole result
	Lo, Hi int
}

// Parts cuts a result into parts of n ids each, the last perhaps shorter, of
// which each begins with the last overlap ids of the one before. With n 0 there
// is one part, the whole. A document without ids is one part too.
func (r *Result) Parts(n, overlap int) []Part {
	if n == 0 {
		return []Part{{-1, 0, len(r.IDs)}}
	}
	var parts []Part
	for lo := 0; ; lo += n - overlap {
		hi := min(lo+n, len(r.IDs))
		parts = append(parts, Part{len(parts), lo, hi})
		if hi == len(r.IDs) {
			return parts
		}
	}
}

// AppendPieces appends a line for each id of a part: its number, the id, start
// and end in the text ("-" where there is none), and the piece quoted as in Go,
// with tabs between.
func (m *Model) AppendPieces(dst []byte, r *Result, p Part, runes bool) []byte {
	at, _ := m.Offsets(r, runes)
	for i := p.Lo; i < p.Hi; i++ {
		t := r.IDs[i]
		dst = append(strconv.AppendInt(dst, int64(i), 10), '\t')
		dst = append(strconv.AppendInt(dst, int64(t), 10), '\t')
		if at == nil || at[i][0] < 0 {
			dst = append(dst, "-\t-\t"...)
		} else {
			dst = append(strconv.AppendInt(dst, int64(at[i][0]), 10), '\t')
			dst = append(strconv.AppendInt(dst, int64(at[i][1]), 10), '\t')
		}
		dst = append(strconv.AppendQuote(dst, string(m.Piece(t))), '\n')
	}
	return dst
}

// AppendJSON appends a part of a result as a JSON object without a newline.
func (m *Model) AppendJSON(dst []byte, r *Result, p Part, runes bool) []byte {
	dst = append(dst, `{"source":`...)
	dst = appendString(dst, []byte(r.Source))
	dst = append(dst, `,"record":`...)
	dst = strconv.AppendInt(dst, int64(r.Record), 10)
	if r.ID != nil {
		dst = append(append(dst, `,"id":`...), r.ID...)
	}
	if r.Err != nil {
		dst = append(dst, `,"error":`...)
		return append(appendString(dst, []byte(r.Err.Error())), '}')
	}
	if p.Number >= 0 {
		dst = fmt.Appendf(dst, `,"chunk":%d,"first_token":%d`, p.Number, p.Lo)
	}
	dst = fmt.Appendf(dst, `,"n_tokens":%d,"n_bytes":%d`, p.Hi-p.Lo, len(r.Text))
	if r.Replaced > 0 {
		dst = fmt.Appendf(dst, `,"replaced":%d`, r.Replaced)
	}
	if r.Dropped > 0 {
		dst = fmt.Appendf(dst, `,"dropped":%d`, r.Dropped)
	}
	if r.Cut > 0 {
		dst = fmt.Appendf(dst, `,"cut":%d`, r.Cut)
	}
	dst = append(dst, `,"ids":[`...)
	ids := r.IDs[p.Lo:p.Hi]
	dst = AppendIDs(dst, ids, ",")
	dst = append(dst, `],"pieces":[`...)
	for i, t := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		if p := m.Piece(t); utf8.Valid(p) {
			dst = appendString(dst, p)
		} else {
			dst = append(dst, `{"base64":"`...)
			dst = append(base64.StdEncoding.AppendEncode(dst, p), `"}`...)
		}
	}
	at, exact := m.Offsets(r, runes)
	if !exact {
		return append(dst, `],"offsets":null,"offsets_exact":false}`...)
	}
	dst = append(dst, `],"offsets":[`...)
	for i, o := range at[p.Lo:p.Hi] {
		if i > 0 {
			dst = append(dst, ',')
		}
		if o[0] < 0 {
			dst = append(dst, "null"...)
			continue
		}
		dst = fmt.Appendf(dst, "[%d,%d]", o[0], o[1])
	}
	return append(dst, "]}"...)
}

// appendString appends s as a JSON string; invalid UTF-8 becomes U+FFFD.
func appendString(dst, s []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		b := s[i]
		switch {
		case b == '"' || b == '\\':
			dst = append(dst, '\\', b)
		case b == '\n':
			dst = append(dst, `\n`...)
		case b == '\t':
			dst = append(dst, `\t`...)
		case b == '\r':
			dst = append(dst, `\r`...)
		case b < ' ' || b == 0x7f:
			dst = append(dst, `\u00`...)
			dst = append(dst, hex[b>>4], hex[b&15])
		case b < utf8.RuneSelf:
			dst = append(dst, b)
		default:
			r, size := utf8.DecodeRune(s[i:])
			dst = utf8.AppendRune(dst, r)
			i += size
			continue
		}
		i++
	}
	return append(dst, '"')
}

// AppendUpstream appends a result as llama-tokenize prints it: with list as
// "[1, 2]", else a line for each token, and with total a last line with their
// number.
func (m *Model) AppendUpstream(dst []byte, r *Result, list, total bool) []byte {
	if list {
		dst = append(dst, '[')
		dst = append(AppendIDs(dst, r.IDs, ", "), "]\n"...)
	} else {
		for _, t := range r.IDs {
			dst = fmt.Appendf(dst, "%6d -> '", t)
			dst = append(append(dst, m.Piece(t)...), "'\n"...)
		}
	}
	if total {
		dst = fmt.Appendf(dst, "Total number of tokens: %d\n", len(r.IDs))
	}
	return dst
}
