package tokens

import (
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// table finds the index of a string by its hash: open addressing, at most two
// thirds full, so that one look is enough most of the time.
type table struct {
	mask  uint32
	slots []slot
}

type slot struct {
	tag uint32 // the hash's upper half
	idx int32  // plus one; 0 is empty
}

func newTable(n int) table {
	size := 1 << bits.Len(uint(max(n, 2)*3/2-1))
	return table{mask: uint32(size - 1), slots: make([]slot, size)}
}

// find returns the index for which same is true among those of hash h, or -1
// and the slot for a new one.
func (t *table) find(h uint64, same func(idx int32) bool) (idx int32, free *slot) {
	tag := uint32(h >> 32)
	for i := uint32(h); ; i++ {
		s := &t.slots[i&t.mask]
		if s.idx == 0 {
			return -1, s
		}
		if s.tag == tag && same(s.idx-1) {
			return s.idx - 1, nil
		}
	}
}

// tables are what the fast path looks things up in. They are not changed once
// made.
type tables struct {
	v      *Vocab
	seed   maphash.Seed
	tokens table // by text
	merges table // by both halves
	// Most pairs are no merge, and the table is megabytes. A bit for each upper part of a hash that is in it, its bitShift
	// lower bits left out, tells nearly all of them. nil where words are cut by junction first.
	maybe    []uint64
	bitShift int
	// Most vocabularies list what comes of their merges in the order of these. Then merge i makes the token firstMerged+i,
	// and cuts[i] is the length of its left half: neither the merge's own text nor the table of tokens, each far away in
	// memory, need be looked at. cuts[i] is 0 where it is not so, and cuts nil if that is often.
	firstMerged Token
	cuts        []uint8

	literal, parse *specials
	bytes          [256]Token // for symbols that are no token; TokenNull for none
	symbol         [256]Token // of the symbols of one byte, -1 for none
	spelled        [256]spelling
	first          []uint32 // BPE: of each two bytes, their rank plus one, or 0
	firstTok       []Token  // and what they become, or -1
	ranks          []uint32 // SPM: of each token, the best score first
	// junction has a bit for each pair of bytes at which symbols may be merged,
	// nil where words are short anyhow.
	junction *[256 * 256 / 64]uint64
}

// spelling is how GPT-2 writes a byte: as a character of one or two bytes.
type spelling struct {
	text [2]byte
	n    int32
	hash uint64
}

func (t *tables) hash(s []byte) uint64 { return maphash.Bytes(t.seed, s) }

// pairHash makes one hash of those of a merge's halves.
func pairHash(left, right uint64) uint64 {
	h := (left*0x9e3779b97f4a7c15 ^ bits.RotateLeft64(right, 23)) * 0xbf58476d1ce4e5b9
	return h ^ h>>31
}

// token returns the token of text, whose hash is h, or -1.
func (t *tables) token(h uint64, text []byte) Token {
	tag := uint32(h >> 32)
	for i := uint32(h); ; i++ {
		s := &t.tokens.slots[i&t.tokens.mask]
		if s.idx == 0 {
			return -1
		}
		if s.tag == tag && t.v.texts[s.idx-1] == string(text) {
			return Token(s.idx - 1)
		}
	}
}

// rank returns the place in the list of merges of the symbols left and right, whose hashes are l and r, or -1, and the token
// that they become, or -1. word is both.
func (t *tables) rank(l, r uint64, left, right, word []byte) (int32, Token) {
	h := pairHash(l, r)
	if t.maybe != nil {
		if bit := h >> t.bitShift; t.maybe[bit>>6]>>(bit&63)&1 == 0 {
			return -1, -1
		}
	}
	tag := uint32(h >> 32)
	for i := uint32(h); ; i++ {
		s := &t.merges.slots[i&t.merges.mask]
		if s.idx == 0 {
			return -1, -1
		}
		if s.tag != tag {
			continue
		}
		if t.cuts != nil && t.cuts[s.idx-1] != 0 {
			if tok := t.firstMerged + Token(s.idx-1); int(t.cuts[s.idx-1]) == len(left) && t.v.texts[tok] == string(word) {
				return s.idx - 1, tok
			}
			continue
		}
		m := t.v.merges[s.idx-1]
		if n := len(left); len(m) == n+1+len(right) && m[n] == ' ' && m[:n] == string(left) && m[n+1:] == string(right) {
			return s.idx - 1, t.token(t.hash(word), word)
		}
	}
}

// newTables makes the tables of a vocabulary that the fast path can serve.
func newTables(v *Vocab) (*tables, error) {
	t := &tables{v: v, seed: maphash.MakeSeed()}
	merged := make(chan struct{})
	h := t.hashMerges()
	go func() {
		defer close(merged)
		h.work()
		h.chunks.Wait()
		t.addMerges(h.hashes)
	}()
	err := t.addTokens()
	t.literal, t.parse = newSpecials(v, false), newSpecials(v, true)
	h.work()
	<-merged
	if err != nil {
		return nil, err
	}
	t.findSymbols()
	if v.Type == "spm" {
		return t, t.finishSPM()
	}
	t.finishBPE()
	return t, nil
}

func (t *tables) addTokens() error {
	texts := t.v.texts
	t.tokens = newTable(len(texts))
	for i, s := range texts {
		h := maphash.String(t.seed, s)
		old, free := t.tokens.find(h, func(idx int32) bool { return texts[idx] == s })
		if free == nil {
			return fmt.Errorf("tokens %d and %d are both %q", old, i, s)
		}
		*free = slot{uint32(h >> 32), int32(i) + 1}
	}
	return nil
}

// mergeHashes is the hashing of merges, which several goroutines share.
type mergeHashes struct {
	t      *tables
	hashes []uint64 // 0 for a merge without halves
	next   atomic.Int64
	chunks sync.WaitGroup // those that are not done
}

const hashChunk = 1 << 13

func (t *tables) hashMerges() *mergeHashes {
	h := &mergeHashes{t: t, hashes: make([]uint64, len(t.v.merges))}
	h.chunks.Add((len(h.hashes) + hashChunk - 1) / hashChunk)
	return h
}

// work hashes chunks until all are taken.
func (h *mergeHashes) work() {
	for {
		end := int(h.next.Add(hashChunk))
		begin := end - hashChunk
		if begin >= len(h.hashes) {
			return
		}
		for i, m := range h.t.v.merges[begin:min(end, len(h.hashes))] {
			if cut := cutMerge(m); cut > 0 {
				h.hashes[begin+i] = pairHash(maphash.String(h.t.seed, m[:cut]), maphash.String(h.t.seed, m[cut+1:]))
			}
		}
		h.chunks.Done()
	}
}

// addMerges enters the merges; of equal ones the first counts. Their hashes are there: the loop does little but wait for
// memory, and the processor waits for several places at once. What has no halves, which upstream enters as a pair of empty
// strings, no symbols are.
func (t *tables) addMerges(hashes []uint64) {
	merges := t.v.merges
	t.merges = newTable(len(merges))
	t.first = make([]uint32, 1<<16)
	if t.v.pre != nil && !t.v.pre.rawUTF8 {
		size := bits.Len(uint(8*max(len(merges), 8) - 1)) // 8 bits a merge or more
		t.maybe, t.bitShift = make([]uint64, 1<<(size-6)), 64-size
	}
	slots, mask := t.merges.slots, t.merges.mask
next:
	for i, h := range hashes {
		cut := 0
		if len(merges[i]) <= 5 || h == 0 {
			cut = cutMerge(merges[i])
		}
		if h == 0 && cut == 0 {
			continue
		}
		at, tag := uint32(h)&mask, uint32(h>>32)
		for slots[at].idx != 0 {
			if slots[at].tag == tag && merges[slots[at].idx-1] == merges[i] {
				continue next
			}
			at = (at + 1) & mask
		}
		slots[at] = slot{tag, int32(i) + 1}
		if t.maybe != nil {
			bit := h >> t.bitShift
			t.maybe[bit>>6] |= 1 << (bit & 63)
		}
		if cut > 0 { // two characters of at most two bytes
			if a, b := byteOf(merges[i][:cut]), byteOf(merges[i][cut+1:]); a >= 0 && b >= 0 {
				t.first[a<<8|b] = uint32(i) + 1
			}
		}
	}
	t.findListed()
}

// findListed sets firstMerged and cuts.
func (t *tables) findListed() {
	merges, texts := t.v.merges, t.v.texts
	t.firstMerged = firstMerged(t.v)
	cuts, listed := make([]uint8, len(merges)), 0
	for i, m := range merges {
		if i&1023 == 1023 && listed < i-i/10 {
			return
		}
		tok := int(t.firstMerged) + i
		if tok >= len(texts) {
			break
		}
		s := texts[tok]
		if len(s) != len(m)-1 {
			continue
		}
		if cut := cutMerge(m); cut > 0 && cut < 256 && s[:cut] == m[:cut] && s[cut:] == m[cut+1:] {
			cuts[i] = uint8(cut)
			listed++
		}
	}
	if listed >= len(merges)-len(merges)/10 {
		t.cuts = cuts
	}
}

// firstMerged returns the token that the first merge makes if it is among the first, where all bytes and some special tokens
// may stand before it; else 0, which is right for no merge or few.
func firstMerged(v *Vocab) Token {
	if len(v.merges) == 0 {
		return 0
	}
	m := v.merges[0]
	cut := cutMerge(m)
	for i, s := range v.texts[:min(len(v.texts), 4096)] {
		if cut > 0 && len(s) == len(m)-1 && s[:cut] == m[:cut] && s[cut:] == m[cut+1:] {
			return Token(i)
		}
	}
	return 0
}

// cutMerge returns where the space between the halves of a merge is, 0 if there
// is none.
func cutMerge(m string) int {
	if len(m) < 2 {
		return 0
	}
	return strings.IndexByte(m[1:], ' ') + 1
}

// byteOf returns the byte that a text of one character stands for in GPT-2's
// spelling, or -1.
func byteOf(text string) int {
	r, size := utf8.DecodeRuneInString(text)
	if size != len(text) {
		return -1
	}
	if b, ok := bytesOf()[r]; ok {
		return int(b)
	}
	return -1
}

// byteToken returns the token <0xXX>, or -1.
func (t *tables) byteToken(b int) Token {
	text := fmt.Appendf(nil, "<0x%02X>", b)
	return t.token(t.hash(text), text)
}

// findSymbols finds the tokens of symbols and of pairs of bytes.
func (t *tables) findSymbols() {
	byBytes := t.v.pre != nil && !t.v.pre.rawUTF8
	for b := range t.symbol {
		text := []byte{byte(b)}
		if byBytes {
			s := &t.spelled[b]
			s.n = int32(utf8.EncodeRune(s.text[:], spellings()[b]))
			text = s.text[:s.n]
			s.hash = t.hash(text)
		}
		t.symbol[b] = t.token(t.hash(text), text)
	}
	if !byBytes {
		return
	}
	t.firstTok = make([]Token, len(t.first))
	for i, rank := range t.first {
		t.firstTok[i] = -1
		if rank > 0 {
			a, b := &t.spelled[i>>8], &t.spelled[i&255]
			text := append(append(make([]byte, 0, 4), a.text[:a.n]...), b.text[:b.n]...)
			t.firstTok[i] = t.token(t.hash(text), text)
		}
	}
}

// finishSPM is for vocabularies of type spm.
func (t *tables) finishSPM() error {
	t.ranks = make([]uint32, len(t.v.texts))
	for i := range t.ranks {
		score := t.v.Score(Token(i))
		if score != score {
			return fmt.Errorf("token %d has a score that is no number", i)
		}
		t.ranks[i] = descending(score)
	}
	for b := range t.bytes {
		t.bytes[b] = t.byteToken(b)
		if one := []byte{byte(b)}; t.bytes[b] < 0 {
			t.bytes[b] = t.token(t.hash(one), one)
		}
		if t.bytes[b] < 0 {
			return fmt.Errorf("there is no token for byte %#02x", b)
		}
	}
	t.junction = new([256 * 256 / 64]uint64)
	for _, s := range t.v.texts {
		for i := 0; ; {
			i += symbolLen(s[i])
			if i >= len(s) {
				break
			}
			t.join(s[i-1], s[i])
		}
	}
	return nil
}

// descending maps a score to a number that is the smaller the better the score.
func descending(score float32) uint32 {
	u := math.Float32bits(score + 0) // -0 becomes 0
	if u>>31 != 0 {
		return u
	}
	return ^(u | 1<<31)
}

// finishBPE is for vocabularies of type bpe.
func (t *tables) finishBPE() {
	for b := range t.spelled {
		if t.v.pre.rawUTF8 {
			t.bytes[b] = t.byteToken(b)
		} else {
			one := []byte{byte(b)}
			t.bytes[b] = t.token(t.hash(one), one)
		}
	}
	if !t.v.pre.rawUTF8 {
		return
	}
	t.junction = new([256 * 256 / 64]uint64)
	for _, m := range t.v.merges {
		if cut := cutMerge(m); cut > 0 && cut+1 < len(m) {
			t.join(m[cut-1], m[cut+1])
		}
	}
}

// join says that symbols that end with a and begin with b may be merged.
func (t *tables) join(a, b byte) {
	i := uint(a)<<8 | uint(b)
	t.junction[i>>6] |= 1 << (i & 63)
}

func (t *tables) joined(a, b byte) bool {
	i := uint(a)<<8 | uint(b)
	return t.junction[i>>6]>>(i&63)&1 != 0
}

// symbolLen is unicode_len_utf8: the bytes that a first byte stands for.
func symbolLen(b byte) int {
	switch {
	case b < 0xc0:
		return 1
	case b < 0xe0:
		return 2
	case b < 0xf0:
		return 3
	}
	return 4
}
