package cvector

import (
	"slices"

	"gollama/internal/engine"
)

// side is what a text is in its sample.
type side int

const (
	sidePos side = iota
	sideNeg
	sideBase
)

// use is a place where the states of a text go.
type use struct {
	sample, pair int
	side         side
	where        string
}

// text is one text that is to be evaluated.
type text struct {
	tokens []engine.Token
	uses   []use
}

// inOrder returns the texts of prompts, each once, by their tokens: so those that begin alike follow one another, and the
// order does not tell the sides apart.
func inOrder(prompts []Prompt) []text {
	var texts []text
	for i, p := range prompts {
		for s, tokens := range [][]engine.Token{p.Pos, p.Neg, p.Base} {
			if tokens != nil {
				texts = append(texts, text{tokens, []use{{i, p.Pair, side(s), p.Where}}})
			}
		}
	}
	slices.SortStableFunc(texts, func(a, b text) int { return slices.Compare(a.tokens, b.tokens) })
	once := texts[:0]
	for _, t := range texts {
		if n := len(once); n > 0 && slices.Equal(once[n-1].tokens, t.tokens) {
			once[n-1].uses = append(once[n-1].uses, t.uses...)
			continue
		}
		once = append(once, t)
	}
	return once
}

// counts says whether the state of token i goes into that of the text.
func (t text) counts(k *collector, i int) bool {
	return k.o.Token.counts(i, len(t.tokens), t.tokens[0] == k.bos)
}

// counted returns how many tokens of the text count.
func (t text) counted(k *collector) int {
	n := 0
	for i := range t.tokens {
		if t.counts(k, i) {
			n++
		}
	}
	return n
}

// pack returns how many of texts are evaluated together, and how many tokens each of these has in common with the one before:
// none of those that count for it, as a token has one slot.
func (k *collector) pack(texts []text) (common []int, n int) {
	tokens := 0
	for n = 0; n < min(len(texts), k.texts); n++ {
		t, have := texts[n], 0
		for n > 0 && have < min(len(t.tokens), len(texts[n-1].tokens)) && t.tokens[have] == texts[n-1].tokens[have] && !t.counts(k, have) {
			have++
		}
		tokens += len(t.tokens) - have
		if n > 0 && tokens > k.batch {
			break
		}
		common = append(common, have)
	}
	return common, n
}
