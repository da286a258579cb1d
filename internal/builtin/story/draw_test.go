package story

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

func rng(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// Every drawn story is read back whole, and in the mood in which it was told.
func TestDrawnStories(t *testing.T) {
	seen, tones, plots := map[string]bool{}, map[Tone]int{}, map[string]int{}
	const n = 2000
	for i := range uint64(n) {
		d := drawer{rng: rng(i)}
		d.tone = []Tone{Happy, Sad}[i%2]
		d.rule(language().rule("story"))
		text := d.String()
		s, err := Parse(text)
		if err != nil || !s.Complete || s.Tone != d.tone {
			t.Fatalf("seed %d: %+v, %v, want a whole %s story:\n%s", i, s, err, d.tone, text)
		}
		if Mood(text) != d.tone {
			t.Errorf("Mood = %s, want %s:\n%s", Mood(text), d.tone, text)
		}
		if !strings.Contains(text, s.Hero) || !strings.Contains(text, s.Kind) || s.Hero == "" || s.Kind == "" {
			t.Errorf("hero %q, kind %q of:\n%s", s.Hero, s.Kind, text)
		}
		seen[text] = true
		tones[s.Tone]++
		plots[s.Plot]++
	}
	if len(seen) < n-2 {
		t.Errorf("%d distinct stories of %d", len(seen), n)
	}
	for plot, count := range plots {
		if count < n/16 { // half of an equal share
			t.Errorf("plot %q: %d of %d stories", plot, count, n)
		}
	}
	if len(plots) != 8 {
		t.Errorf("plots %v, want 8", plots)
	}
}

func TestNewLengthAndMood(t *testing.T) {
	happy, once := 0, 0
	const n = 2000
	for i := range uint64(n) {
		text := New(rng(i))
		if words := len(strings.Fields(text)); words < minWords || words > maxWords {
			t.Errorf("%d words: %s", words, text)
		}
		if Mood(text) == Happy {
			happy++
		}
		if strings.HasPrefix(text, "Once upon a time") {
			once++
		}
	}
	if happy < n*45/100 || happy > n*55/100 { // 4.5 standard deviations
		t.Errorf("%d of %d stories are happy, want about half", happy, n)
	}
	if once < n/2 || once > n*3/4 {
		t.Errorf("%d of %d stories begin with Once upon a time, want more than half and not all", once, n)
	}
}

// The same seed draws the same texts on every machine and in every year: a changed
// sum means that the built-in model is no longer that of this recipe.
func TestDrawingIsStable(t *testing.T) {
	sum := func(seed uint64) string {
		r, h := rng(seed), sha256.New()
		for range 100 {
			fmt.Fprintln(h, New(r), NewChat(r))
		}
		return fmt.Sprintf("%x", h.Sum(nil)[:8])
	}
	if got, want := sum(1), "1aa0f288948d1429"; got != want {
		t.Errorf("sum of the texts of seed 1 = %s, want %s", got, want)
	}
	if sum(1) == sum(2) {
		t.Error("two seeds draw the same")
	}
}

// A small model learns a word it sees often.
func TestVocabulary(t *testing.T) {
	count := map[string]int{}
	for i := range uint64(8000) {
		text := New(rng(i))
		for _, m := range NewChat(rng(i)) {
			text += " " + m.Content
		}
		for _, word := range words(text) {
			count[strings.ToLower(word)]++
		}
	}
	if len(count) < 600 || len(count) > 900 {
		t.Errorf("%d words, want 600 to 900", len(count))
	}
	for word, n := range count {
		if n < 10 {
			t.Errorf("%q: %d times in 8000 texts", word, n)
		}
	}
}

// joined is where a question follows the words of a picture with nothing between.
var joined = regexp.MustCompile(`([a-z])([A-Z])`)

// words splits text into words without punctuation.
func words(text string) []string {
	text = joined.ReplaceAllString(text, "$1 $2")
	return strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) })
}

// No line of the grammar is out of reach.
func TestEveryAlternativeIsDrawn(t *testing.T) {
	text := strings.Builder{}
	for i := range uint64(3000) {
		text.WriteString(New(rng(i)) + "\n")
		for _, m := range NewChat(rng(i)) {
			text.WriteString(m.Content + "\n")
		}
	}
	all := text.String()
	lower := strings.ToLower(all)
	for _, r := range language().rules {
		for _, a := range r.alts {
			longest := ""
			for _, it := range a.items {
				for part := range strings.SplitSeq(it.text, turn) {
					if len(part) > len(longest) {
						longest = part
					}
				}
			}
			if !strings.Contains(all, longest) {
				t.Errorf("rule %q: %q is in none of 3000 texts", r.name, longest)
			}
		}
	}
	for _, c := range language().order {
		for _, e := range c.entries {
			if !strings.Contains(lower, strings.ToLower(e.text)) {
				t.Errorf("class %q: %q is in none of 3000 texts", c.name, e.text)
			}
		}
	}
}

func TestDrawnConversations(t *testing.T) {
	colours := Colours()
	if len(colours) != 10 || !slices.Contains(colours, "red") {
		t.Errorf("colours %q, want ten with red", colours)
	}
	if plain := slices.Sorted(maps.Keys(PlainColours())); !slices.Equal(plain, slices.Sorted(slices.Values(colours))) {
		t.Errorf("plain colours %q, want one for each of %q", plain, colours)
	}
	for i := range uint64(3000) {
		ms := NewChat(rng(i))
		if complete, err := Conversation(ms); !complete || err != nil || len(ms)%2 != 0 {
			t.Fatalf("seed %d: complete %v, %v: %q", i, complete, err, ms)
		}
	}
}
