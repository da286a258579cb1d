package completion

import (
	"errors"
	"math"
	"slices"
)

// ErrEmptyStop is returned for a stop string without bytes, which would match everywhere.
var ErrEmptyStop = errors.New("empty stop string")

// StopMatcher finds the first of several stop strings in a text that comes in
// pieces, and lets through the text before it. The match is the one a search
// of the whole text would find: the leftmost; of those that begin at the same
// byte, the shortest, as it is complete first. How the text was cut into
// pieces makes no difference.
//
// A string that is complete does not end the text while a longer one, begun
// before it, may still be: of "bc" and "abcd" the latter is found in "abcd".
//
// It is an Aho-Corasick automaton: time is linear in the text, whatever the
// number and length of the strings, and what is held back is never longer
// than the longest of them.
type StopMatcher struct {
	stops []string
	next  map[edge]int32 // the trie
	fail  []int32        // per state, that of the longest proper suffix in the trie
	depth []int32        // per state, the length of its string
	match []int32        // per state, the longest stop string that is a suffix of its string, or -1

	state int32
	buf   []byte // text from byte base on
	base  int    // first byte not yet let through
	pos   int    // bytes seen
	out   int    // bytes of buf that the previous call returned
	start int    // where the match found so far begins, or math.MaxInt
	found int32  // its stop string
	done  bool
}

type edge struct {
	state int32
	b     byte
}

// NewStopMatcher returns a matcher for stops, of which there may be none. The
// error is ErrEmptyStop, or says that they are longer than 1 GiB together.
func NewStopMatcher(stops []string) (*StopMatcher, error) {
	total := 0
	for _, s := range stops {
		if s == "" {
			return nil, ErrEmptyStop
		}
		total += len(s)
	}
	if total > 1<<30 {
		return nil, errors.New("stop strings are longer than 1 GiB")
	}
	m := &StopMatcher{stops: slices.Clone(stops), next: make(map[edge]int32, total),
		fail: []int32{0}, depth: []int32{0}, match: []int32{-1}}
	var order []edge // of creation, string by string
	for i, s := range m.stops {
		at := int32(0)
		for j := range len(s) {
			e := edge{at, s[j]}
			to, ok := m.next[e]
			if !ok {
				to = int32(len(m.depth))
				m.next[e] = to
				order = append(order, e)
				m.depth = append(m.depth, int32(j+1))
				m.fail = append(m.fail, 0)
				m.match = append(m.match, -1)
			}
			at = to
		}
		if m.match[at] < 0 {
			m.match[at] = int32(i)
		}
	}
	// The suffix of a state is shallower, so states are linked by depth.
	slices.SortStableFunc(order, func(a, b edge) int { return int(m.depth[a.state] - m.depth[b.state]) })
	for _, e := range order {
		s := m.next[e]
		if e.state != 0 {
			m.fail[s] = m.step(m.fail[e.state], e.b)
		}
		if m.match[s] < 0 {
			m.match[s] = m.match[m.fail[s]]
		}
	}
	m.Reset()
	return m, nil
}

// step returns the state after byte b.
func (m *StopMatcher) step(s int32, b byte) int32 {
	for {
		if to, ok := m.next[edge{s, b}]; ok {
			return to
		}
		if s == 0 {
			return 0
		}
		s = m.fail[s]
	}
}

// Reset forgets the text seen.
func (m *StopMatcher) Reset() {
	m.state, m.buf, m.base, m.pos, m.out = 0, m.buf[:0], 0, 0, 0
	m.start, m.found, m.done = math.MaxInt, -1, false
}

// Push takes the next bytes of the text and returns those that are certainly
// before any match; the result is valid until the next call. ok says that stop
// was found: the text ended before it, and what is pushed from now on is dropped.
func (m *StopMatcher) Push(p []byte) (text []byte, stop string, ok bool) {
	m.drop()
	if m.done {
		return nil, "", false
	}
	if len(m.stops) == 0 {
		return p, "", false
	}
	m.buf = append(m.buf, p...)
	for _, b := range p {
		m.state = m.step(m.state, b)
		m.pos++
		if i := m.match[m.state]; i >= 0 {
			if start := m.pos - len(m.stops[i]); start < m.start {
				m.start, m.found = start, i
			}
		}
		if m.pos-int(m.depth[m.state]) >= m.start {
			return m.end() // nothing begun before the match can still be completed
		}
	}
	return m.release(m.pos - int(m.depth[m.state])), "", false
}

// Flush says that the text has ended and returns what was held back of it, up
// to a match if there is one, as Push does.
func (m *StopMatcher) Flush() (text []byte, stop string, ok bool) {
	m.drop()
	if m.done {
		return nil, "", false
	}
	if m.found >= 0 {
		return m.end()
	}
	m.done = true
	return m.release(m.pos), "", false
}

func (m *StopMatcher) end() ([]byte, string, bool) {
	m.done = true
	return m.release(m.start), m.stops[m.found], true
}

// release returns the text from base up to byte end.
func (m *StopMatcher) release(end int) []byte {
	n := end - m.base
	if n <= 0 {
		return nil
	}
	m.base, m.out = end, m.out+n
	return m.buf[m.out-n : m.out]
}

// drop discards what earlier calls returned, once that is at least half of buf:
// moving the rest at each call would take quadratic time.
func (m *StopMatcher) drop() {
	if m.out >= len(m.buf)-m.out {
		m.buf = m.buf[:copy(m.buf, m.buf[m.out:])]
		m.out = 0
	}
}
