package story

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Message is one turn of a conversation, in the form that chat templates take.
type Message struct {
	Role    string `json:"role"` // "user" or "assistant"
	Content string `json:"content"`
}

// The length of a drawn story.
const (
	minWords = 60
	maxWords = 150
)

// New draws a story: one paragraph of 60 to 150 words, as often happy as sad. Equal
// states of rng give equal stories.
func New(rng *rand.Rand) string {
	for {
		text := draw(rng, "story")
		if n := len(strings.Fields(text)); n >= minWords && n <= maxWords {
			return text
		}
	}
}

// maxBefore is how many words a conversation may have for another subject to follow.
const maxBefore = 200

// NewChat draws a conversation. It begins with a turn of the user and ends with one of the assistant. One in three goes
// on with another subject, which has nothing to do with what was said before.
func NewChat(rng *rand.Rand) []Message {
	var ms []Message
	for words := 0; ; {
		for text := range strings.SplitSeq(draw(rng, "chat"), turn) {
			ms = append(ms, Message{roleOf(len(ms)), text})
			words += len(strings.Fields(text))
		}
		if words > maxBefore || rng.IntN(3) > 0 {
			return ms
		}
	}
}

// roleOf returns the role of turn i.
func roleOf(i int) string { return []string{"user", "assistant"}[i%2] }

// drawer writes a text by a rule.
type drawer struct {
	rng *rand.Rand
	binding
	strings.Builder
}

func draw(rng *rand.Rand, rule string) string {
	d := drawer{rng: rng}
	// Settled first: the rules do not have as many happy lines as sad ones.
	d.tone = []Tone{Happy, Sad}[rng.IntN(2)]
	d.rule(language().rule(rule))
	return d.String()
}

func (d *drawer) rule(r *rule) {
	i := pick(d.rng, r.alts, func(a *alt) int {
		if a.tone != "" && a.tone != d.tone {
			return 0
		}
		return a.weight
	})
	if i < 0 {
		panic(fmt.Sprintf("story: rule %q has no alternative for a %s story", r.name, d.tone))
	}
	d.items(r.alts[i].items)
}

func (d *drawer) items(items []item) {
	for _, it := range items {
		switch {
		case it.rule != nil:
			d.rule(it.rule)
		case it.optional != nil:
			if d.rng.IntN(2) == 0 {
				d.items(it.optional)
			}
		case it.slot != nil:
			d.slot(it.slot)
		default:
			d.WriteString(it.text)
		}
	}
}

func (d *drawer) slot(s *slot) {
	i := pick(d.rng, s.class.entries, func(e *entry) int {
		m := d.mark()
		defer d.undo(m)
		if !d.fill(s, e) {
			return 0
		}
		return e.weight
	})
	if i < 0 {
		panic(fmt.Sprintf("story: no entry of class %q agrees with the text %q", s.class.name, d.String()))
	}
	d.fill(s, s.class.entries[i])
	d.WriteString(s.forms[i])
}

// pick draws an index of list with probabilities in proportion to weight, or -1 if all weigh 0.
func pick[T any](rng *rand.Rand, list []*T, weight func(*T) int) int {
	weights, sum := make([]int, len(list)), 0
	for i, x := range list {
		weights[i] = weight(x)
		sum += weights[i]
	}
	if sum == 0 {
		return -1
	}
	n := rng.IntN(sum)
	for i, w := range weights {
		if n -= w; n < 0 {
			return i
		}
	}
	panic("unreachable")
}
