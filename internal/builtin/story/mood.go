package story

import (
	"iter"
	"sync"
)

// cue is an alternative that is told in stories of one mood only, with the rule it belongs to.
type cue struct {
	rule *rule
	alt  *alt
}

// cues are the sentences that tell the mood of a story.
var cues = sync.OnceValue(func() []cue {
	var list []cue
	seen := map[*rule]bool{}
	var visit func(r *rule)
	visit = func(r *rule) {
		if seen[r] {
			return
		}
		seen[r] = true
		for _, a := range r.alts {
			if a.tone != "" {
				list = append(list, cue{r, a})
			}
			for _, it := range a.items {
				for _, it := range append([]item{it}, it.optional...) {
					if it.rule != nil {
						visit(it.rule)
					}
				}
			}
		}
	}
	visit(language().rule("story"))
	return list
})

// Mood returns the mood in which text is told: that of most of its sentences, or
// Unclear if no sentence tells one or as many tell the other. The sentences are
// taken one by one, so that a text need not be grammatical as a whole.
func Mood(text string) Tone {
	count := map[Tone]int{}
	for i := range sentences(text) {
		if c := findCue(text, i); c != nil {
			count[c.alt.tone]++
		}
	}
	switch {
	case count[Happy] > count[Sad]:
		return Happy
	case count[Sad] > count[Happy]:
		return Sad
	}
	return Unclear
}

// sentences yields where a sentence may begin, with a capital letter or a quotation
// mark: at the beginning, and after the end of another, any quotation marks and a
// space. It may be inside of one ("Yes!" Mia said), where no cue is found.
func sentences(text string) iter.Seq[int] {
	return func(yield func(int) bool) {
		ended := true
		for i := range len(text) {
			c := text[i]
			begins := c >= 'A' && c <= 'Z' || c == '"'
			if begins && ended && (i == 0 || text[i-1] == ' ' || text[i-1] == '\n') && !yield(i) {
				return
			}
			switch c {
			case '.', '!', '?':
				ended = true
			case ' ', '\n', '"':
			default:
				ended = false
			}
		}
	}
}

// findCue returns the cue that begins at byte i of text, or nil.
func findCue(text string, i int) *cue {
	m := matcher{text: text}
	anything := func(int) bool { return true }
	for j := range cues() {
		c := &cues()[j]
		if m.items(c.alt.items, i, anything) {
			return c
		}
		m.undo(mark{})
	}
	return nil
}
