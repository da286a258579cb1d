package tokens

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"gollama/internal/engine"
)

// fragment is a part of a text: a special token, or plain text if tok is
// TokenNull.
type fragment struct {
	start, end int // bytes
	tok        Token
}

// specials finds special tokens in a text: a trie over their texts.
type specials struct {
	v     *Vocab
	root  [256]int32 // the node of each first byte, 0 for none
	nodes []trieNode // the first is not used
	list  []Token    // longest first, as llama.cpp looks for them
	strip bool       // a token takes white space beside it along
}

type trieNode struct {
	b           byte
	child, next int32 // 0 for none
	order       int32 // place in list of the token that ends here, or -1
}

// newSpecials makes a trie of the special tokens that are looked for: all of
// them, or without parse the user-defined ones alone, which are never text.
func newSpecials(v *Vocab, parse bool) *specials {
	sp := &specials{v: v, nodes: make([]trieNode, 1)}
	for i, a := range v.attrs {
		if a&specialAttrs == 0 || !parse && a&(attrControl|attrUnknown) != 0 {
			continue
		}
		sp.list = append(sp.list, Token(i))
		sp.strip = sp.strip || a&(attrLStrip|attrRStrip) != 0
	}
	slices.SortStableFunc(sp.list, func(a, b Token) int { return cmp.Compare(len(v.texts[b]), len(v.texts[a])) })
	for i, t := range sp.list {
		sp.insert(v.texts[t], int32(i))
	}
	return sp
}

func (sp *specials) insert(text string, order int32) {
	at := sp.root[text[0]]
	if at == 0 {
		at = sp.node(text[0])
		sp.root[text[0]] = at
	}
	for i := 1; i < len(text); i++ {
		next := sp.child(at, text[i])
		if next == 0 {
			next = sp.node(text[i])
			sp.nodes[next].next = sp.nodes[at].child
			sp.nodes[at].child = next
		}
		at = next
	}
	sp.nodes[at].order = order
}

func (sp *specials) node(b byte) int32 {
	sp.nodes = append(sp.nodes, trieNode{b: b, order: -1})
	return int32(len(sp.nodes) - 1)
}

func (sp *specials) child(at int32, b byte) int32 {
	for at = sp.nodes[at].child; at != 0 && sp.nodes[at].b != b; at = sp.nodes[at].next {
	}
	return at
}

// longest returns the end of the longest token that text[i:] starts with, i if
// there is none; mark is called with the place in list of each.
func (sp *specials) longest(text []byte, i int, mark func(order int32)) (end int) {
	end = i
	at := sp.root[text[i]]
	for j := i + 1; at != 0; j++ {
		if n := &sp.nodes[at]; n.order >= 0 {
			end = j
			mark(n.order)
		}
		if j == len(text) {
			break
		}
		at = sp.child(at, text[j])
	}
	return end
}

// partition cuts text at its special tokens and appends the parts to out.
//
// It gives what tokenizer_st_partition of src/llama-vocab.cpp gives: there each
// special token in turn, the longest first, cuts what is still text at each of
// its places. Here one pass finds clusters of places that overlap, and only
// within a cluster, seldom more than one token, the tokens take turns.
func (sp *specials) partition(text []byte, out []fragment) []fragment {
	begin := len(out)
	if len(sp.list) > 0 {
		var places int
		var last int32
		mark := func(order int32) { places++; last = order }
		for i := 0; i < len(text); {
			if sp.root[text[i]] == 0 {
				i++
				continue
			}
			places = 0
			end := sp.longest(text, i, mark)
			for j := i + 1; j < end; j++ {
				if sp.root[text[j]] != 0 {
					end = max(end, sp.longest(text, j, mark))
				}
			}
			switch {
			case places == 1:
				out = append(out, fragment{i, end, sp.list[last]})
			case places > 1:
				out = sp.resolve(text, i, end, out)
			}
			i = max(end, i+1)
		}
	}
	return sp.fill(text, out, begin)
}

// present returns the tokens in the cluster text[start:end], in order.
func (sp *specials) present(text []byte, start, end int) []Token {
	seen := make([]bool, len(sp.list))
	mark := func(order int32) { seen[order] = true }
	for i := start; i < end; i++ {
		if sp.root[text[i]] != 0 {
			sp.longest(text, i, mark)
		}
	}
	var list []Token
	for order, is := range seen {
		if is {
			list = append(list, sp.list[order])
		}
	}
	return list
}

// resolve appends the special tokens of the cluster text[start:end].
func (sp *specials) resolve(text []byte, start, end int, out []fragment) []fragment {
	parts := []fragment{{start, end, engine.TokenNull}}
	for _, t := range sp.present(text, start, end) {
		word := []byte(sp.v.texts[t])
		var next []fragment
		for _, p := range parts {
			if p.tok != engine.TokenNull {
				next = append(next, p)
				continue
			}
			at := p.start
			for {
				i := bytes.Index(text[at:p.end], word)
				if i < 0 {
					break
				}
				if i > 0 {
					next = append(next, fragment{at, at + i, engine.TokenNull})
				}
				next = append(next, fragment{at + i, at + i + len(word), t})
				at += i + len(word)
			}
			if at < p.end {
				next = append(next, fragment{at, p.end, engine.TokenNull})
			}
		}
		parts = next
	}
	for _, p := range parts {
		if p.tok != engine.TokenNull {
			out = append(out, p)
		}
	}
	return out
}

// fill puts the plain text between the special tokens of out[begin:], less the
// white space that those take along.
func (sp *specials) fill(text []byte, out []fragment, begin int) []fragment {
	if len(out) == begin {
		if len(text) > 0 {
			out = append(out, fragment{0, len(text), engine.TokenNull})
		}
		return out
	}
	tokens := slices.Clone(out[begin:])
	out = out[:begin]
	at := 0
	for i, f := range append(tokens, fragment{len(text), len(text), engine.TokenNull}) {
		start, end := at, f.start
		if sp.strip {
			if f.tok != engine.TokenNull && sp.v.attrs[f.tok]&attrLStrip != 0 {
				for end > start && isCSpace(text[end-1]) {
					end--
				}
			}
			if i > 0 && sp.v.attrs[tokens[i-1].tok]&attrRStrip != 0 {
				for start < end && isCSpace(text[start]) {
					start++
				}
			}
		}
		if start < end {
			out = append(out, fragment{start, end, engine.TokenNull})
		}
		if f.tok != engine.TokenNull {
			out = append(out, f)
		}
		at = f.end
	}
	return out
}

// isCSpace is isspace of the C locale.
func isCSpace(b byte) bool { return b == ' ' || b >= '\t' && b <= '\r' }

// ambiguous says why the order in which special tokens are looked for could
// matter beyond their length, by which llama.cpp sorts them with std::sort; it
// is empty if it does not matter. Two of one length must not overlap in a text,
// and where tokens take white space along, none may begin or end with it.
func ambiguous(v *Vocab) string {
	type end struct {
		length int
		part   string
	}
	heads := map[end]Token{}
	strip := false
	var list []Token
	for i, a := range v.attrs {
		if a&specialAttrs == 0 {
			continue
		}
		strip = strip || a&(attrLStrip|attrRStrip) != 0
		list = append(list, Token(i))
		for n := 1; n < len(v.texts[i]); n++ {
			key := end{len(v.texts[i]), v.texts[i][:n]}
			if old, ok := heads[key]; ok && old != Token(i) {
				heads[key] = several
			} else {
				heads[key] = Token(i)
			}
		}
	}
	for _, t := range list {
		text := v.texts[t]
		for n := 1; n < len(text); n++ {
			if other, ok := heads[end{len(text), text[n:]}]; ok && other != t {
				return fmt.Sprintf("special token %q and another of its length can overlap", text)
			}
		}
		if strip && (isCSpace(text[0]) || isCSpace(text[len(text)-1])) {
			return fmt.Sprintf("special token %q has white space at an end, and others take white space along", text)
		}
	}
	return ""
}

// several marks a text that more than one token begins with.
const several Token = -2
