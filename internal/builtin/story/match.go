package story

import (
	"fmt"
	"strings"
)

// SyntaxError says where a text leaves the language.
type SyntaxError struct {
	Offset int    // bytes from the beginning of the text
	Got    string // what stands there
	Want   string // what could stand there; one of several, perhaps
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("byte %d: got %q, want %q", e.Offset, e.Got, e.Want)
}

// matcher looks for a way to read text by a rule. It tries all, deepest first: the
// alternatives of this language part early, so this takes a few steps a word.
type matcher struct {
	binding
	text   string
	cutOK  bool // the text may end anywhere
	wasCut bool // and did
	far    int  // how far any try came
	want   string
}

// match reads r at pos and hands the offset behind it to next. It returns true when
// next did, or when the text was cut; the binding is then that of the reading.
func (m *matcher) match(r *rule, pos int, next func(int) bool) bool {
	at := m.mark()
	for _, a := range r.alts {
		if m.enter(r, a, pos) && m.items(a.items, pos, next) {
			return true
		}
		m.undo(at)
	}
	return false
}

func (m *matcher) items(items []item, pos int, next func(int) bool) bool {
	if len(items) == 0 {
		return next(pos)
	}
	it, rest := items[0], items[1:]
	then := func(pos int) bool { return m.items(rest, pos, next) }
	switch {
	case it.rule != nil:
		return m.match(it.rule, pos, then)
	case it.optional != nil:
		at := m.mark()
		if m.items(it.optional, pos, then) {
			return true
		}
		m.undo(at)
		return then(pos)
	case it.slot != nil:
		return m.slot(it.slot, pos, then)
	}
	return m.literal(it.text, pos, then)
}

func (m *matcher) slot(s *slot, pos int, next func(int) bool) bool {
	at := m.mark()
	for i, e := range s.class.entries {
		if m.fill(s, e) && m.literal(s.forms[i], pos, next) {
			return true
		}
		m.undo(at)
	}
	return false
}

// literal reads want at pos.
func (m *matcher) literal(want string, pos int, next func(int) bool) bool {
	got := m.text[pos:]
	if strings.HasPrefix(got, want) {
		return next(pos + len(want))
	}
	n := 0
	for n < min(len(got), len(want)) && got[n] == want[n] {
		n++
	}
	if pos+n > m.far || m.want == "" {
		m.far, m.want = pos+n, want[n:]
	}
	m.wasCut = m.cutOK && n == len(got)
	return m.wasCut
}

// filled returns what the class of a role was filled with, or "". Where the text was
// cut, a word of which only a part is there does not count.
func (m *matcher) filled(role, class string) string {
	g := language()
	for _, x := range m.slots {
		if x.role == g.roles[role] && x.class == g.classes[class] && strings.Contains(m.text, x.entry.text) {
			return x.entry.text
		}
	}
	return ""
}

// plot returns the name of the rule that rule "plot" was read as, or "" if the text
// was cut in its first sentence, which may be that of another plot as well.
func (m *matcher) plot() string {
	for i, s := range m.path {
		if s.rule.name == "plot" && m.path[len(m.path)-1].pos > s.pos {
			return m.path[i+1].rule.name
		}
	}
	return ""
}

// theEnd is what a text should have had where it goes on.
const theEnd = "the end"

// end is the last step of a reading: that the text ends here.
func (m *matcher) end(pos int) bool {
	if pos == len(m.text) {
		return true
	}
	if pos >= m.far {
		m.far, m.want = pos, theEnd
	}
	return false
}

// failure describes how far the readings came.
func (m *matcher) failure() error {
	const show = 24 // bytes
	word := strings.LastIndexAny(m.text[:m.far], " "+turn) + 1
	if m.want == theEnd {
		word = m.far
	}
	clip := func(s string) string {
		s, _, _ = strings.Cut(s, turn)
		return s[:min(len(s), show)]
	}
	return &SyntaxError{word, clip(m.text[word:]), clip(m.text[word:m.far] + m.want)}
}
