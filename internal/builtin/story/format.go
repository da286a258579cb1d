package story

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// parseGrammar reads a grammar. Lines that begin in the first column say "class
// NAME [distinct]" or "rule NAME"; indented lines below them are its entries or
// alternatives; # begins a comment line. An error names the line.
func parseGrammar(text string) (*grammar, error) {
	g := &grammar{classes: map[string]*class{}, rules: map[string]*rule{}, roles: map[string]int{"_": forgets}}
	type pending struct {
		line int
		alt  *alt
		text string
	}
	var (
		later []pending // alternatives are read when all names are known
		c     *class
		r     *rule
	)
	for i, line := range strings.Split(text, "\n") {
		n, words := i+1, strings.Fields(line)
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		var err error
		switch {
		case line[0] != ' ':
			c, r, err = g.head(words, n)
		case c != nil:
			err = c.addEntries(line)
		case r != nil:
			a := &alt{weight: 1}
			r.alts = append(r.alts, a)
			later = append(later, pending{n, a, strings.TrimSpace(line)})
		default:
			err = fmt.Errorf("belongs to no class or rule")
		}
		if err != nil {
			return nil, fmt.Errorf("grammar line %d: %w", n, err)
		}
	}
	for _, p := range later {
		if err := g.readAlt(p.alt, p.text); err != nil {
			return nil, fmt.Errorf("grammar line %d: %w", p.line, err)
		}
	}
	if err := g.check(); err != nil {
		return nil, err
	}
	return g, nil
}

// head reads a line that begins a class or a rule.
func (g *grammar) head(words []string, line int) (*class, *rule, error) {
	distinct := len(words) == 3 && words[2] == "distinct"
	if len(words) != 2 && !distinct {
		return nil, nil, fmt.Errorf("want \"class NAME [distinct]\" or \"rule NAME\"")
	}
	name := words[1]
	switch {
	case words[0] == "class" && g.classes[name] == nil:
		c := &class{name: name, distinct: distinct}
		g.classes[name] = c
		g.order = append(g.order, c)
		return c, nil, nil
	case words[0] == "rule" && g.rules[name] == nil && !distinct:
		r := &rule{name: name, from: line}
		g.rules[name] = r
		return nil, r, nil
	}
	return nil, nil, fmt.Errorf("%s %q: unknown or a second one", words[0], name)
}

// addEntries reads "text; text | feature=value w=weight".
func (c *class) addEntries(line string) error {
	texts, marks, _ := strings.Cut(line, "|")
	proto := entry{weight: 1}
	for _, word := range strings.Fields(marks) {
		name, value, ok := strings.Cut(word, "=")
		if !ok {
			return fmt.Errorf("feature %q: want name=value", word)
		}
		if name != "w" {
			proto.features = append(proto.features, feature{name, value})
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return fmt.Errorf("weight %q: want a number from 1", value)
		}
		proto.weight = n
	}
	for text := range strings.SplitSeq(texts, ";") {
		e := proto
		if e.text = strings.TrimSpace(text); e.text == "" {
			return fmt.Errorf("an empty entry")
		}
		c.entries = append(c.entries, &e)
	}
	return nil
}

// escapes of literal text: the turn, a space at an end, a line break.
var escapes = strings.NewReplacer(" // ", turn, `\s`, " ", `\n`, "\n")

// readAlt reads "[*weight] [+|-] text with {slots} and [rules]" into a.
func (g *grammar) readAlt(a *alt, text string) error {
	if rest, ok := strings.CutPrefix(text, "*"); ok {
		number, after, _ := strings.Cut(rest, " ")
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 {
			return fmt.Errorf("weight %q: want a number from 1", number)
		}
		a.weight, text = n, after
	}
	if rest, ok := strings.CutPrefix(text, "+ "); ok {
		a.tone, text = Happy, rest
	} else if rest, ok := strings.CutPrefix(text, "- "); ok {
		a.tone, text = Sad, rest
	}
	for text = escapes.Replace(text); text != ""; {
		i := strings.IndexAny(text, "{[")
		if i < 0 {
			i = len(text)
		}
		if i > 0 {
			a.items = append(a.items, item{text: text[:i]})
			text = text[i:]
			continue
		}
		end := strings.IndexByte(text, text[0]+2) // } and ] stand two after { and [
		if end < 0 {
			return fmt.Errorf("%q is not closed", text)
		}
		if err := g.readRef(a, text[0] == '{', text[1:end]); err != nil {
			return err
		}
		text = text[end+1:]
	}
	return nil
}

// readRef adds a slot, "^a ROLE.CLASS", or a rule, "NAME" or "NAME?", to a.
func (g *grammar) readRef(a *alt, isSlot bool, ref string) error {
	if isSlot {
		s := &slot{}
		rest, ok := strings.CutPrefix(ref, "^")
		s.capital = ok
		rest, s.article = strings.CutPrefix(rest, "a ")
		role, name, _ := strings.Cut(rest, ".")
		if s.class = g.classes[name]; s.class == nil || role == "" {
			return fmt.Errorf("slot {%s}: no such class", ref)
		}
		id, ok := g.roles[role]
		if !ok {
			id = len(g.roles)
			g.roles[role] = id
		}
		s.role = id
		for _, e := range s.class.entries {
			s.forms = append(s.forms, s.form(e.text))
		}
		a.items = append(a.items, item{slot: s})
		return nil
	}
	name, optional := strings.CutSuffix(ref, "?")
	r := g.rules[name]
	if r == nil {
		return fmt.Errorf("no rule %q", name)
	}
	if !optional {
		a.items = append(a.items, item{rule: r})
		return nil
	}
	last := len(a.items) - 1
	if last < 0 || a.items[last].text != " " {
		return fmt.Errorf("[%s]: want one space before it, which goes with it", ref)
	}
	a.items[last] = item{optional: []item{{text: " "}, {rule: r}}}
	return nil
}

// check finds what would make a rule useless, or endless.
func (g *grammar) check() error {
	for _, c := range g.order {
		if len(c.entries) == 0 {
			return fmt.Errorf("class %q has no entries", c.name)
		}
	}
	var visit func(r *rule, above []*rule) error
	visit = func(r *rule, above []*rule) error {
		if len(r.alts) == 0 {
			return fmt.Errorf("grammar line %d: rule %q has no alternatives", r.from, r.name)
		}
		if slices.Contains(above, r) {
			return fmt.Errorf("grammar line %d: rule %q contains itself", r.from, r.name)
		}
		above = append(above, r)
		for _, a := range r.alts {
			for _, it := range a.items {
				for _, it := range append([]item{it}, it.optional...) {
					if it.rule == nil {
						continue
					}
					if err := visit(it.rule, above); err != nil {
						return err
					}
				}
			}
		}
		return nil
	}
	for _, r := range g.rules {
		if err := visit(r, nil); err != nil {
			return err
		}
	}
	return nil
}
