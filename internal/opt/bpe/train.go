package bpe

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Trainer collects the words of texts and makes a vocabulary of them.
type Trainer struct {
	counts map[string]int64
}

// NewTrainer returns a trainer that has seen nothing.
func NewTrainer() *Trainer { return &Trainer{counts: map[string]int64{}} }

// Add counts the words of text. The memory that it takes is that of the different words.
func (t *Trainer) Add(text string) {
	for len(text) > 0 {
		n := nextWord(text)
		for word := text[:n]; word != ""; {
			k := cut(word)
			t.counts[strings.Clone(word[:k])]++
			word = word[k:]
		}
		text = text[n:]
	}
}

// Options say what a vocabulary has beside what is learned.
type Options struct {
	// Specials are the texts of control tokens, which get the first ids; DefaultSpecials if nil.
	Specials []string
	// BOS and EOS are two of Specials; the first and second of DefaultSpecials if empty.
	BOS, EOS string
}

// DefaultSpecials are BOS, EOS, and what ChatML needs.
var DefaultSpecials = []string{"<s>", "</s>", "<|im_start|>", "<|im_end|>"}

// pair is two neighbouring tokens.
type pair struct{ a, b int32 }

// learner is a training run.
type learner struct {
	v       *Vocab
	ids     map[string]int32
	special map[string]bool
	words   [][]int32
	counts  []int64
	pairs   map[pair]int64   // how often each stands somewhere
	where   map[pair][]int32 // words that have it, or had it once
	merged  map[pair]bool
	queue   queue
}

// Train makes a vocabulary of size tokens: the specials, the 256 bytes, and the pairs that stand in
// the texts most often, each made of tokens before it. It has fewer where the texts have no pair
// left that stands in them twice. Among equally frequent pairs the one comes first whose texts are.
func (t *Trainer) Train(size int, o Options) (*Vocab, error) {
	v, err := newVocab(&o)
	if err != nil {
		return nil, err
	}
	if size < len(v.Tokens) {
		return nil, fmt.Errorf("a vocabulary of %d tokens: the bytes and %d special tokens are %d", size, len(o.Specials), len(v.Tokens))
	}
	if len(t.counts) == 0 {
		return nil, errors.New("train a vocabulary: there is no text")
	}
	l := &learner{v: v, ids: map[string]int32{}, special: map[string]bool{}, pairs: map[pair]int64{}, where: map[pair][]int32{}, merged: map[pair]bool{}}
	for i := range v.NSpecial {
		l.special[v.Tokens[i]] = true
	}
	for i := v.NSpecial; i < len(v.Tokens); i++ {
		l.ids[v.Tokens[i]] = int32(i)
	}
	l.addWords(t.counts)
	for len(v.Tokens) < size {
		p, ok := l.next()
		if !ok {
			break
		}
		l.merge(p)
	}
	return v, nil
}

func (l *learner) addWords(counts map[string]int64) {
	words := make([]string, 0, len(counts))
	for w := range counts {
		words = append(words, w)
	}
	slices.Sort(words) // a map has no order
	for i, w := range words {
		tokens := make([]int32, len(w))
		for j := range len(w) {
			tokens[j] = int32(l.v.NSpecial) + int32(w[j])
		}
		l.words, l.counts = append(l.words, tokens), append(l.counts, counts[w])
		for j := range len(tokens) - 1 {
			l.count(int32(i), tokens[j], tokens[j+1], 1)
		}
	}
	for p, n := range l.pairs {
		l.queue.items = append(l.queue.items, item{p, n})
	}
	l.queue.tokens = &l.v.Tokens
	heap.Init(&l.queue)
}

// count adds sign times the count of word i to that of the pair a, b.
func (l *learner) count(i, a, b int32, sign int64) {
	p := pair{a, b}
	l.pairs[p] += sign * l.counts[i]
	if at := l.where[p]; sign > 0 && (len(at) == 0 || at[len(at)-1] != i) {
		l.where[p] = append(at, i)
	}
}

// next takes the most frequent pair from the queue. What stands there with a count that is no longer
// true goes back with the true one: counts only fall while a pair is in the queue, or it is put there
// anew.
func (l *learner) next() (pair, bool) {
	for l.queue.Len() > 0 {
		top := heap.Pop(&l.queue).(item)
		n := l.pairs[top.pair]
		switch {
		case n < 2:
			continue
		case n != top.n:
			if n < top.n {
				heap.Push(&l.queue, item{top.pair, n})
			}
			continue
		case l.special[l.text(top.pair)]: // that text is a control token's
			continue
		}
		return top.pair, true
	}
	return pair{}, false
}

func (l *learner) text(p pair) string { return l.v.Tokens[p.a] + l.v.Tokens[p.b] }

// merge makes a token of p, unless another pair has made one of that text, and puts it into all words.
func (l *learner) merge(p pair) {
	text := l.text(p)
	id, known := l.ids[text]
	if !known {
		id = int32(len(l.v.Tokens))
		l.ids[text] = id
		l.v.Tokens = append(l.v.Tokens, text)
	}
	if !l.merged[p] { // else it came to be again, of a token that has two origins
		l.merged[p] = true
		l.v.Merges = append(l.v.Merges, [2]int32{p.a, p.b})
	}
	changed := map[pair]bool{}
	at := l.where[p]
	delete(l.where, p)
	for _, i := range at {
		l.replace(i, p, id, changed)
	}
	delete(l.pairs, p)
	for q := range changed { // the heap's order does not depend on the order of insertion
		heap.Push(&l.queue, item{q, l.pairs[q]})
	}
}

// replace puts id in the place of p in word i, and notes the pairs that come to be.
func (l *learner) replace(i int32, p pair, id int32, changed map[pair]bool) {
	old := l.words[i]
	tokens := old[:0]
	for j := 0; j < len(old); j++ {
		if j+1 == len(old) || old[j] != p.a || old[j+1] != p.b {
			tokens = append(tokens, old[j])
			continue
		}
		if n := len(tokens); n > 0 {
			l.count(i, tokens[n-1], p.a, -1)
			l.count(i, tokens[n-1], id, 1)
			changed[pair{tokens[n-1], id}] = true
		}
		if j+2 < len(old) {
			l.count(i, p.b, old[j+2], -1)
			l.count(i, id, old[j+2], 1)
			changed[pair{id, old[j+2]}] = true
		}
		tokens = append(tokens, id)
		j++
	}
	l.words[i] = tokens
}

// queue is a heap of pairs, the most frequent on top.
type queue struct {
	items  []item
	tokens *[]string
}

type item struct {
	pair
	n int64
}

func (q *queue) Len() int { return len(q.items) }
func (q *queue) Less(i, j int) bool {
	a, b := q.items[i], q.items[j]
	if a.n != b.n {
		return a.n > b.n
	}
	t := *q.tokens
	if c := cmp.Compare(t[a.a], t[b.a]); c != 0 {
		return c < 0
	}
	return t[a.b] < t[b.b]
}
func (q *queue) Swap(i, j int) { q.items[i], q.items[j] = q.items[j], q.items[i] }
func (q *queue) Push(x any)    { q.items = append(q.items, x.(item)) }
func (q *queue) Pop() any {
	last := q.items[len(q.items)-1]
	q.items = q.items[:len(q.items)-1]
	return last
}
