package tokens

import (
	"cmp"
	"math"
	"slices"
)

// merger joins the symbols of one word. The order is llama.cpp's: of all pairs
// that can be joined the one of the lowest rank, of several the leftmost.
//
// A heap of all pairs would do, and be slow for words of millions of symbols.
// So pairs wait in three places: sorted ones, which are taken from the front; a
// heap of those that came later and go before the last of the sorted; and all
// others, which are sorted when the first two are empty. A run of equal
// characters is never reordered this way.
type merger struct {
	syms   []symbol
	sorted []pair // from head on
	head   int
	heap   []pair // keys up to that of the last in sorted
	later  []pair // keys beyond it
	memo   []memoLine
}

// memoLine is what became of two tokens side by side when last looked up. The
// tables lie far apart in memory and compare texts; few pairs make up most of
// what words are joined of, and these fit into the processor's cache.
type memoLine struct {
	key  uint64 // both tokens, plus one; 0 is empty
	rank uint32 // or notJoined
	tok  Token  // what they become, or -1 if that is no token
}

const (
	memoBits = 14
	// notJoined is no rank: merges are fewer, and of scores only NaN maps to it,
	// which finishSPM refuses.
	notJoined = math.MaxUint32
)

// symbol is a part of the word; one that was joined to the left is empty.
type symbol struct {
	start, end int32  // bytes
	prev, next int32  // -1 for none
	hash       uint64 // 0: not known yet
	tok        Token  // -1: none, or not known
}

// pair is a symbol and the next, which can be joined.
type pair struct {
	key  uint64 // rank and left symbol
	size int32  // bytes of both; other than that, the pair is out of date
	tok  Token  // what they become, or -1
}

func (p pair) left() int32 { return int32(p.key & 0xffffffff) }

// reset makes ready for a word of up to n symbols.
func (m *merger) reset(n int) {
	m.syms = slices.Grow(m.syms[:0], n)
	m.later = slices.Grow(m.later[:0], n)
}

// add appends a symbol.
func (m *merger) add(start, end int, hash uint64, tok Token) {
	n := int32(len(m.syms))
	if n > 0 {
		m.syms[n-1].next = n
	}
	m.syms = append(m.syms, symbol{start: int32(start), end: int32(end), prev: n - 1, next: -1, hash: hash, tok: tok})
}

// candidate returns the pair of left and the symbol after it in text, if they
// can be joined.
func (m *merger) candidate(t *tables, text []byte, left int32) (p pair, ok bool) {
	l := &m.syms[left]
	r := &m.syms[l.next]
	p.size = r.end - l.start
	var rank uint32
	if l.tok >= 0 && r.tok >= 0 {
		key := uint64(l.tok)<<32 | uint64(r.tok) + 1
		line := &m.memo[key*0x9e3779b97f4a7c15>>(64-memoBits)]
		if line.key != key {
			line.key = key
			line.rank, line.tok = m.lookup(t, text, l, r)
		}
		rank, p.tok = line.rank, line.tok
	} else {
		rank, p.tok = m.lookup(t, text, l, r)
	}
	p.key = uint64(rank)<<32 | uint64(left)
	return p, rank != notJoined
}

// lookup returns the rank of two symbols, or notJoined, and the token that they
// become, -1 for none.
func (m *merger) lookup(t *tables, text []byte, l, r *symbol) (rank uint32, tok Token) {
	word := text[l.start:r.end]
	if t.ranks == nil {
		left, right := text[l.start:l.end], text[r.start:r.end]
		n, tok := t.rank(l.hashOf(t, left), r.hashOf(t, right), left, right, word)
		if n < 0 {
			return notJoined, -1
		}
		return uint32(n), tok
	}
	if tok = t.token(t.hash(word), word); tok < 0 {
		return notJoined, -1
	}
	return t.ranks[tok], tok
}

// hashOf returns the hash of s, whose text is given.
func (s *symbol) hashOf(t *tables, text []byte) uint64 {
	if s.hash == 0 {
		s.hash = t.hash(text)
	}
	return s.hash
}

// current reports whether p's symbols are still as they were. The next of a
// symbol stays the same until the two are joined.
func (m *merger) current(p pair) bool {
	l := &m.syms[p.left()]
	return l.end > l.start && l.next >= 0 && m.syms[l.next].end-l.start == p.size
}

// neighbours finds the pairs of the symbols that were added.
func (m *merger) neighbours(t *tables, text []byte) {
	for i := range int32(len(m.syms) - 1) {
		if p, ok := m.candidate(t, text, i); ok {
			m.later = append(m.later, p)
		}
	}
}

// bytes is neighbours for the last two symbols, which are the bytes a and b.
func (m *merger) bytes(t *tables, a, b byte) {
	if rank := t.first[uint(a)<<8|uint(b)]; rank > 0 {
		left := len(m.syms) - 2
		m.later = append(m.later, pair{uint64(rank-1)<<32 | uint64(left), m.syms[left+1].end - m.syms[left].start, t.firstTok[uint(a)<<8|uint(b)]})
	}
}

// join joins the pairs that were found, and those that come of it.
func (m *merger) join(t *tables, text []byte) {
	m.sorted, m.head, m.heap = m.sorted[:0], 0, m.heap[:0]
	for {
		p, ok := m.pop()
		if !ok {
			return
		}
		if !m.current(p) {
			continue
		}
		left := p.left()
		l := &m.syms[left]
		r := &m.syms[l.next]
		l.end, l.next, l.tok, l.hash = r.end, r.next, p.tok, 0
		r.end = r.start
		if l.next >= 0 {
			m.syms[l.next].prev = left
		}
		if l.prev >= 0 {
			if p, ok := m.candidate(t, text, l.prev); ok {
				m.push(p)
			}
		}
		if l.next >= 0 {
			if p, ok := m.candidate(t, text, left); ok {
				m.push(p)
			}
		}
	}
}

// push adds a pair.
func (m *merger) push(p pair) {
	if n := len(m.sorted); n == 0 || p.key > m.sorted[n-1].key {
		m.later = append(m.later, p)
		return
	}
	m.heap = append(m.heap, p)
	h, i := m.heap, len(m.heap)-1
	for i > 0 {
		up := (i - 1) / 2
		if h[up].key <= p.key {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = p
}

// pop takes the pair of the lowest key.
func (m *merger) pop() (p pair, ok bool) {
	if m.head == len(m.sorted) && len(m.heap) == 0 {
		m.refill()
	}
	switch {
	case m.head < len(m.sorted) && (len(m.heap) == 0 || m.sorted[m.head].key <= m.heap[0].key):
		m.head++
		return m.sorted[m.head-1], true
	case len(m.heap) > 0:
		return m.popHeap(), true
	}
	return p, false
}

// refill sorts those that wait, without what is out of date.
func (m *merger) refill() {
	m.sorted, m.later, m.head = m.later, m.sorted[:0], 0
	kept := m.sorted[:0]
	inOrder := true
	for _, p := range m.sorted {
		if m.current(p) {
			inOrder = inOrder && (len(kept) == 0 || kept[len(kept)-1].key <= p.key)
			kept = append(kept, p)
		}
	}
	m.sorted = kept
	if !inOrder {
		slices.SortFunc(m.sorted, func(a, b pair) int { return cmp.Compare(a.key, b.key) })
	}
}

func (m *merger) popHeap() pair {
	h := m.heap
	top, p := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	m.heap = h
	for i := 0; len(h) > 0; {
		c := 2*i + 1
		if c+1 < len(h) && h[c+1].key < h[c].key {
			c++
		}
		if c >= len(h) || p.key <= h[c].key {
			h[i] = p
			break
		}
		h[i] = h[c]
		i = c
	}
	return top
}
