package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A writer of random texts of a grammar in GBNF, apart from llama.cpp's reader
// of grammars: what it writes, the grammar allows.

type gbnfRules map[string]*gbnfNode

// gbnfNode is alternatives of sequences, a class, or a reference, repeated.
type gbnfNode struct {
	alts     [][]*gbnfNode
	text     []rune // one of these, a class
	ref      string
	min, max int // of repetitions
}

type gbnfReader struct{ s string }

func (p *gbnfReader) space() { p.s = strings.TrimLeft(p.s, " \t") }

// readGBNF reads a grammar as llama.cpp's conversion writes it, a rule a line.
func readGBNF(grammar string) gbnfRules {
	rules := gbnfRules{}
	for line := range strings.Lines(grammar) {
		name, body, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ::= ")
		p := &gbnfReader{body}
		rules[name] = p.alternatives()
		if !ok || p.s != "" {
			panic(fmt.Sprintf("rule %q: cannot read %q", line, p.s))
		}
	}
	return rules
}

func (p *gbnfReader) alternatives() *gbnfNode {
	n := &gbnfNode{alts: [][]*gbnfNode{nil}, min: 1, max: 1}
	for p.space(); p.s != "" && p.s[0] != ')'; p.space() {
		last := len(n.alts) - 1
		if p.s[0] == '|' {
			p.s = p.s[1:]
			n.alts = append(n.alts, nil)
			continue
		}
		n.alts[last] = append(n.alts[last], p.repeated(p.item()))
	}
	return n
}

func (p *gbnfReader) item() *gbnfNode {
	n := &gbnfNode{min: 1, max: 1}
	switch c := p.s[0]; c {
	case '(':
		p.s = p.s[1:]
		n = p.alternatives()
		p.s = strings.TrimPrefix(p.s, ")")
	case '"':
		var list []*gbnfNode
		for p.s = p.s[1:]; p.s[0] != '"'; {
			r := p.char()
			list = append(list, &gbnfNode{text: []rune{r}, min: 1, max: 1})
		}
		p.s = p.s[1:]
		n.alts = [][]*gbnfNode{list}
	case '[':
		n.text = p.class()
	default:
		end := strings.IndexFunc(p.s, func(r rune) bool { return !strings.ContainsRune("-0123456789", r) && !('a' <= r|0x20 && r|0x20 <= 'z') })
		if end < 0 {
			end = len(p.s)
		}
		n.ref, p.s = p.s[:end], p.s[end:]
		if n.ref == "" {
			panic(fmt.Sprintf("cannot read %q", p.s))
		}
	}
	return n
}

// pool are the characters that a class is tried with: all of ASCII and some more.
var pool = func() (list []rune) {
	for r := rune(0); r < 0x80; r++ {
		list = append(list, r)
	}
	return append(list, 0x85, 0xa0, 'é', 0x2028, 'ሴ', 0xfeff, 0x1f600, 0x10ffff)
}()

func (p *gbnfReader) class() []rune {
	p.s = p.s[1:]
	negated := strings.HasPrefix(p.s, "^")
	p.s = strings.TrimPrefix(p.s, "^")
	var ranges [][2]rune
	for p.s[0] != ']' {
		lo := p.char()
		hi := lo
		if len(p.s) > 1 && p.s[0] == '-' && p.s[1] != ']' {
			p.s = p.s[1:]
			hi = p.char()
		}
		ranges = append(ranges, [2]rune{lo, hi})
	}
	p.s = p.s[1:]
	list := slices.Clone(pool)
	for _, r := range ranges {
		list = append(list, r[0], r[1])
	}
	return slices.DeleteFunc(list, func(c rune) bool {
		return slices.ContainsFunc(ranges, func(r [2]rune) bool { return r[0] <= c && c <= r[1] }) == negated
	})
}

func (p *gbnfReader) char() rune {
	if p.s[0] != '\\' {
		r, n := utf8.DecodeRuneInString(p.s)
		p.s = p.s[n:]
		return r
	}
	c := p.s[1]
	p.s = p.s[2:]
	if n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]; n > 0 {
		v, err := strconv.ParseUint(p.s[:n], 16, 32)
		if err != nil {
			panic(err)
		}
		p.s = p.s[n:]
		return rune(v)
	}
	if i := strings.IndexByte("nrt", c); i >= 0 {
		return rune("\n\r\t"[i])
	}
	return rune(c)
}

func (p *gbnfReader) repeated(n *gbnfNode) *gbnfNode {
	const many = 1 << 30
	min, max := 1, 1
	switch {
	case strings.HasPrefix(p.s, "*"):
		min, max, p.s = 0, many, p.s[1:]
	case strings.HasPrefix(p.s, "+"):
		max, p.s = many, p.s[1:]
	case strings.HasPrefix(p.s, "?"):
		min, p.s = 0, p.s[1:]
	case strings.HasPrefix(p.s, "{"):
		body, rest, _ := strings.Cut(p.s[1:], "}")
		lo, hi, comma := strings.Cut(body, ",")
		min, _ = strconv.Atoi(lo)
		max = min
		if comma {
			if max = many; hi != "" {
				max, _ = strconv.Atoi(hi)
			}
		}
		p.s = rest
	default:
		return n
	}
	return &gbnfNode{alts: [][]*gbnfNode{{n}}, min: min, max: max}
}

// gbnfWriter writes texts; deep inside it takes the shortest way out.
type gbnfWriter struct {
	rules gbnfRules
	rng   *rand.Rand
	high  map[string]int // how many rules deep the shortest text of a rule is
	b     strings.Builder
}

const tooHigh = 1 << 20

func newGBNFWriter(grammar string, rng *rand.Rand) *gbnfWriter {
	w := &gbnfWriter{rules: readGBNF(grammar), rng: rng, high: map[string]int{}}
	for name := range w.rules {
		w.high[name] = tooHigh
	}
	for changed := true; changed; {
		changed = false
		for name, n := range w.rules {
			if h := w.height(n) + 1; h < w.high[name] {
				w.high[name], changed = h, true
			}
		}
	}
	return w
}

func (w *gbnfWriter) height(n *gbnfNode) int {
	switch {
	case n.min == 0 || n.text != nil:
		return 0
	case n.ref != "":
		return w.high[n.ref]
	}
	best := tooHigh
	for _, seq := range n.alts {
		best = min(best, w.seqHeight(seq))
	}
	return best
}

func (w *gbnfWriter) seqHeight(seq []*gbnfNode) int {
	h := 0
	for _, m := range seq {
		h = max(h, w.height(m))
	}
	return h
}

// text returns a text of the rule root, "" and false if it has none.
func (w *gbnfWriter) text() (string, bool) {
	if w.high["root"] >= tooHigh {
		return "", false
	}
	w.b.Reset()
	w.write(w.rules["root"], 0)
	return w.b.String(), true
}

func (w *gbnfWriter) write(n *gbnfNode, depth int) {
	deep := depth > 12 || w.b.Len() > 2000
	times := n.min
	if n.max > n.min && !deep && slices.ContainsFunc(n.alts, func(seq []*gbnfNode) bool { return w.seqHeight(seq) < tooHigh }) {
		times += w.rng.IntN(min(n.max-n.min, 3) + 1)
	}
	for range times {
		switch {
		case n.text != nil:
			w.b.WriteRune(n.text[w.rng.IntN(len(n.text))])
		case n.ref != "":
			w.write(w.rules[n.ref], depth+1)
		default:
			for _, m := range w.choose(n.alts, deep) {
				w.write(m, depth)
			}
		}
	}
}

func (w *gbnfWriter) choose(alts [][]*gbnfNode, deep bool) []*gbnfNode {
	var list [][]*gbnfNode
	best := tooHigh
	for _, seq := range alts {
		h := w.seqHeight(seq)
		if deep && h < best {
			best, list = h, nil
		}
		if h < tooHigh && (!deep || h == best) {
			list = append(list, seq)
		}
	}
	return list[w.rng.IntN(len(list))]
}
