package story

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
)

//go:embed grammar.txt
var source string

// language is the grammar of this package. A fault in it is a bug, found by any test.
var language = sync.OnceValue(func() *grammar {
	g, err := parseGrammar(source)
	if err != nil {
		panic(err)
	}
	return g
})

// grammar is a set of rules, whose slots are filled from classes of words.
type grammar struct {
	classes map[string]*class
	rules   map[string]*rule
	order   []*class // as written
	roles   map[string]int
}

// class is what a slot may be filled with.
type class struct {
	name     string
	distinct bool // no two roles are filled with the same entry
	entries  []*entry
}

// entry is one filling. Its features must agree with those of the role that the slot belongs to.
type entry struct {
	text     string
	weight   int
	features []feature
}

type feature struct{ name, value string }

// rule is a choice of alternatives.
type rule struct {
	name string
	alts []*alt
	from int // line of the grammar, for messages
}

// alt is one alternative: its items in a row.
type alt struct {
	weight int
	tone   Tone // told only in stories of this mood; "" in all
	items  []item
}

// item is one of: a literal text, a slot, a rule, an optional rule with the text before it.
type item struct {
	text     string
	slot     *slot
	rule     *rule
	optional []item
}

// slot is a place for an entry of class. What a role was given for a class stays for the whole text.
type slot struct {
	class   *class
	role    int      // forgets: each time anew
	capital bool     // with a capital letter
	article bool     // with a or an
	forms   []string // of the entries of class, as they stand in the text here
}

// forgets is the role _, which keeps nothing.
const forgets = 0

// turn separates the turns of a conversation.
const turn = "\x1e"

// form returns text as it stands at s.
func (s *slot) form(text string) string {
	if s.article {
		a := "a "
		if strings.ContainsRune("aeiou", rune(text[0])) {
			a = "an "
		}
		text = a + text
	}
	if s.capital {
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	return text
}

// binding is what a text has settled so far. It only grows while a text is read or
// drawn, so that going back is cutting off its end.
type binding struct {
	slots    []boundSlot
	features []boundFeature
	path     []step
	tone     Tone // of the text; "" when nothing told it yet
}

// step is a rule that was entered, and where.
type step struct {
	rule *rule
	pos  int // bytes from the beginning of the text
}

type boundSlot struct {
	role  int
	class *class
	entry *entry
}

type boundFeature struct {
	role int
	feature
}

// mark is a state of a binding to go back to.
type mark struct {
	slots, features, path int
	tone                  Tone
}

func (b *binding) mark() mark {
	return mark{len(b.slots), len(b.features), len(b.path), b.tone}
}

func (b *binding) undo(m mark) {
	b.slots, b.features, b.path, b.tone = b.slots[:m.slots], b.features[:m.features], b.path[:m.path], m.tone
}

// fill puts e into s and says whether that agrees with what is settled. If it does not, nothing is changed.
func (b *binding) fill(s *slot, e *entry) bool {
	if s.role == forgets {
		return true
	}
	known := false
	for _, x := range b.slots {
		if x.class != s.class {
			continue
		}
		if x.role == s.role {
			if x.entry != e {
				return false
			}
			known = true
		} else if s.class.distinct && x.entry == e {
			return false
		}
	}
	if known { // and so are its features
		return true
	}
	m := b.mark()
	for _, f := range e.features {
		if !b.set(boundFeature{s.role, f}) {
			b.undo(m)
			return false
		}
	}
	b.slots = append(b.slots, boundSlot{s.role, s.class, e})
	return true
}

// set settles a feature of a role, and says whether it agrees with what is settled.
func (b *binding) set(f boundFeature) bool {
	for _, x := range b.features {
		if x.role == f.role && x.name == f.name {
			return x.value == f.value
		}
	}
	b.features = append(b.features, f)
	return true
}

// enter begins an alternative of r at pos, and says whether its mood is that of the text.
func (b *binding) enter(r *rule, a *alt, pos int) bool {
	if a.tone != "" {
		if b.tone != "" && b.tone != a.tone {
			return false
		}
		b.tone = a.tone
	}
	b.path = append(b.path, step{r, pos})
	return true
}

func (g *grammar) rule(name string) *rule {
	r := g.rules[name]
	if r == nil {
		panic(fmt.Sprintf("story: no rule %q", name))
	}
	return r
}
