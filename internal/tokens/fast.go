package tokens

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"gollama/internal/engine"
)

// blank is U+2581, which stands for a space.
const blank = "\u2581"

// maxText is the longest text in bytes, as in llama_tokenize, whose lengths are int32.
const maxText = math.MaxInt32 / 2

// fastEncoder is the fast path.
type fastEncoder struct {
	t         *tables
	out       []Token
	fragments []fragment
	escaped   []byte
	cleaned   []byte
	spelled   []byte
	passes    []func([]byte) // passes[i] takes a word of pass i
	m         merger
	cache     wordCache
	dropped   int // characters without a token so far, bytes where symbols are bytes
}

func newFastEncoder(t *tables) *fastEncoder {
	e := &fastEncoder{t: t, cache: newWordCache()}
	e.m.memo = make([]memoLine, 1<<memoBits)
	if t.v.pre == nil {
		return e
	}
	passes := t.v.pre.passes
	e.passes = make([]func([]byte), len(passes))
	last := len(passes) - 1
	e.passes[last] = e.word
	if t.v.pre.rawUTF8 {
		e.passes[last] = e.rawWord
	}
	for i := last - 1; i >= 0; i-- {
		e.passes[i] = func(word []byte) { passes[i+1](word, e.passes[i+1]) }
	}
	return e
}

// Encode appends the ids of text to dst.
func (e *fastEncoder) Encode(dst []Token, text []byte, parse bool) ([]Token, error) {
	if len(text) > maxText {
		return dst, fmt.Errorf("the text has %d bytes, the limit is %d", len(text), maxText)
	}
	e.out = dst
	defer func() { e.out = nil }()
	sp := e.t.literal
	if parse {
		sp = e.t.parse
	}
	e.fragments = sp.partition(text, e.fragments[:0])
	afterSpecial := true
	for _, f := range e.fragments {
		if f.tok != engine.TokenNull {
			e.out = append(e.out, f.tok)
			afterSpecial = true
			continue
		}
		// The capacity ends with the text: the word cache reads up to it.
		part := text[f.start:f.end:f.end]
		if e.t.v.Type == "spm" {
			e.spm(part, afterSpecial)
		} else if err := e.bpe(part); err != nil {
			return dst, err
		}
		afterSpecial = false
	}
	return e.out, nil
}

// escape returns text with blanks for spaces, and one more before it if prefix
// is set.
func (e *fastEncoder) escape(text []byte, prefix bool) []byte {
	i := bytes.IndexByte(text, ' ')
	if i < 0 && !prefix {
		return text
	}
	b := e.escaped[:0]
	if prefix {
		b = append(b, blank...)
	}
	for i >= 0 {
		b = append(append(b, text[:i]...), blank...)
		text = text[i+1:]
		i = bytes.IndexByte(text, ' ')
	}
	e.escaped = append(b, text...)
	return e.escaped
}

// spm encodes plain text by an SPM vocabulary. There are no words: the whole
// text is one. But where no token holds the bytes of two neighbours next to
// each other, nothing is joined across, so each part can be done by itself.
func (e *fastEncoder) spm(text []byte, afterSpecial bool) {
	s := e.escape(text, e.t.v.addSpacePrefix && afterSpecial)
	start := 0
	for i := 0; i < len(s); {
		i += symbolLen(s[i])
		if i < len(s) && !e.t.joined(s[i-1], s[i]) {
			e.word(s[start:i])
			start = i
		}
	}
	if start < len(s) {
		e.word(s[start:])
	}
}

// errCodePoint is llama_tokenize's answer to bytes that spell more than U+10FFFF.
var errCodePoint = errors.New("invalid codepoint")

// clean is unicode_cpts_from_utf8 and back: a byte that belongs to no sequence
// becomes U+FFFD, an overlong form the code point's own, surrogates stay.
func (e *fastEncoder) clean(s []byte) ([]byte, error) {
	if utf8.Valid(s) {
		return s, nil
	}
	b := e.cleaned[:0]
	for i := 0; i < len(s); {
		r, size := lenient(s[i:])
		i += size
		switch {
		case r > utf8.MaxRune:
			return nil, errCodePoint
		case r >= 0xd800 && r < 0xe000:
			b = append(b, 0xe0|byte(r>>12), 0x80|byte(r>>6&0x3f), 0x80|byte(r&0x3f))
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	e.cleaned = b
	return b, nil
}

// lenient is unicode_cpt_from_utf8 with U+FFFD for what that throws at.
func lenient(s []byte) (r rune, size int) {
	size = symbolLen(s[0])
	if s[0] >= 0xf8 || s[0] >= 0x80 && s[0] < 0xc0 || size > len(s) {
		return utf8.RuneError, 1
	}
	for _, b := range s[1:size] {
		if b&0xc0 != 0x80 {
			return utf8.RuneError, 1
		}
	}
	r, _ = char(s)
	return r, size
}

// bpe encodes plain text by a BPE vocabulary.
func (e *fastEncoder) bpe(text []byte) error {
	text, err := e.clean(text)
	if err != nil {
		return err
	}
	if e.t.v.escapeSpaces { // spaces that clean has made of longer ones, too
		text = e.escape(text, false)
	}
	e.t.v.pre.passes[0](text, e.passes[0])
	return nil
}

// rawWord encodes a word, which may be a whole line, of a vocabulary whose
// symbols are characters. As in spm, it can be done in parts.
func (e *fastEncoder) rawWord(s []byte) {
	if e.t.v.pre.gemma4 && s[0] == '\n' { // then it is nothing but newlines
		if tok := e.t.token(e.t.hash(s), s); tok >= 0 {
			e.out = append(e.out, tok)
			return
		}
	}
	start := 0
	for i := 1; i < len(s); i++ {
		if utf8.RuneStart(s[i]) && !e.t.joined(s[i-1], s[i]) {
			e.word(s[start:i])
			start = i
		}
	}
	e.word(s[start:])
}

// word encodes a word, by the cache if it can.
func (e *fastEncoder) word(w []byte) {
	var ok bool
	if e.out, ok = e.cache.get(w, e.out); ok {
		return
	}
	start, dropped := len(e.out), e.dropped
	e.merge(w)
	if e.dropped == dropped {
		e.cache.put(w, e.out[start:])
	}
}

// merge encodes a word from its symbols.
func (e *fastEncoder) merge(w []byte) {
	t, m := e.t, &e.m
	m.reset(len(w))
	raw := t.v.pre == nil || t.v.pre.rawUTF8
	if raw {
		for i := 0; i < len(w); {
			n := min(symbolLen(w[i]), len(w)-i)
			tok := Token(-1)
			if n == 1 {
				tok = t.symbol[w[i]]
			}
			m.add(i, i+n, 0, tok)
			i += n
		}
	} else {
		s := e.spelled[:0]
		for _, b := range w {
			x := &t.spelled[b]
			s = append(s, x.text[:x.n]...)
		}
		e.spelled = s
		if t.v.pre.ignoreMerges {
			if tok := t.token(t.hash(s), s); tok >= 0 {
				e.out = append(e.out, tok)
				return
			}
		}
		at := 0
		for i, b := range w {
			x := &t.spelled[b]
			m.add(at, at+int(x.n), x.hash, t.symbol[b])
			if i > 0 {
				m.bytes(t, w[i-1], b)
			}
			at += int(x.n)
		}
		w = s
	}
	if raw {
		m.neighbours(t, w)
	}
	m.join(t, w)
	for i := int32(0); i >= 0; i = m.syms[i].next {
		e.emit(&m.syms[i], w)
	}
}

// emit appends the token of a symbol, or those of its bytes; some vocabularies
// have none for some bytes, and those are lost.
func (e *fastEncoder) emit(s *symbol, text []byte) {
	tok := s.tok
	word := text[s.start:s.end]
	if tok < 0 {
		tok = e.t.token(s.hashOf(e.t, word), word)
	}
	if tok >= 0 {
		e.out = append(e.out, tok)
		return
	}
	before := len(e.out)
	for _, b := range word {
		if tok := e.t.bytes[b]; tok >= 0 {
			e.out = append(e.out, tok)
		}
	}
	if len(e.out) == before {
		e.dropped += utf8.RuneCount(word)
	}
}

// wordCache holds the ids of words met before: short ones in a table, where a
// new one takes the place of the older of two, others in a map. The table is
// larger than the processor's own cache; most words of a text are few, and stand
// in a small table before it, too.
type wordCache struct {
	hot   *[1 << hotBits]cacheLine
	short [][2]cacheLine // the newer first; both are one line of the processor's cache
	long  map[string][]Token
}

// cacheLine is a word of up to 15 bytes, padded with zeros, its length in the
// last byte, and up to 3 ids.
type cacheLine struct {
	lo, hi uint64
	ids    [3]Token
	n      int32
}

const (
	hotBits     = 11 // 64 KiB
	cacheBits   = 15
	maxShort    = 15
	maxLong     = 64      // bytes; longer words are not kept
	maxLongKept = 1 << 14 // words
)

func newWordCache() wordCache {
	return wordCache{hot: new([1 << hotBits]cacheLine), short: make([][2]cacheLine, 1<<cacheBits), long: map[string][]Token{}}
}

// key returns a short word as two numbers and its place in the table.
func key(w []byte) (lo, hi uint64, at uint64) {
	n := len(w)
	if cap(w) >= 16 {
		b := w[:16]
		lo, hi = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		if n <= 8 {
			lo &= ^uint64(0) >> (64 - 8*n)
			hi = 0
		} else {
			hi &= ^uint64(0) >> (128 - 8*n)
		}
	} else {
		var b [16]byte
		copy(b[:], w)
		lo, hi = binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])
	}
	hi |= uint64(n) << 56
	h := (lo ^ hi*0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9
	return lo, hi, (h ^ h>>32) * 0x94d049bb133111eb >> (64 - cacheBits)
}

func (c *wordCache) get(w []byte, out []Token) ([]Token, bool) {
	if len(w) <= maxShort {
		lo, hi, at := key(w)
		h, set := &c.hot[at%(1<<hotBits)], &c.short[at]
		if h.lo == lo && h.hi == hi {
			return h.append(out), true
		}
		for i := range set {
			if l := &set[i]; l.lo == lo && l.hi == hi {
				*h = *l
				return l.append(out), true
			}
		}
	}
	if len(w) <= maxLong {
		if ids, ok := c.long[string(w)]; ok {
			return append(out, ids...), true
		}
	}
	return out, false
}

func (l *cacheLine) append(out []Token) []Token {
	switch l.n {
	case 1:
		return append(out, l.ids[0])
	case 2:
		return append(out, l.ids[0], l.ids[1])
	}
	return append(out, l.ids[:l.n]...)
}

func (c *wordCache) put(w []byte, ids []Token) {
	if len(w) <= maxShort && len(ids) <= len(cacheLine{}.ids) {
		lo, hi, at := key(w)
		set := &c.short[at]
		set[1] = set[0]
		l := &set[0]
		l.lo, l.hi, l.n = lo, hi, int32(copy(l.ids[:], ids))
		return
	}
	if len(w) > maxLong {
		return
	}
	if len(c.long) >= maxLongKept {
		clear(c.long)
	}
	c.long[string(w)] = append([]Token(nil), ids...)
}
