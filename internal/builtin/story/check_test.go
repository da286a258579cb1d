package story

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// Stories that nobody drew.
const (
	lostBall = `Once upon a time, there was a little girl named Mia. The sun was shining, and the birds were singing. ` +
		`She had a red ball, as red as a cherry. But one day, it was gone. Mia wished to have it back. ` +
		`She looked in the park, but it was not there. Then an old owl named Toby came along. ` +
		`"Have you seen something red?" asked Mia. Together they found it under a bush, safe and sound. ` +
		`And they lived happily ever after.`
	drySeed = `Long ago, a quiet robot named Oscar lived behind the windmill. The sky was grey, and the trees were bare. ` +
		`Oscar had a seed and wanted to grow a tulip. He planted it in the garden. But the ground was as hard as stone. ` +
		`Oscar brought water every day, but it did not help. Oscar counted the days on a wall. ` +
		`One morning, the frost came, and it was dead. Oscar went home with tears in his eyes.`
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       Story
	}{
		{"whole, happy", lostBall, Story{true, Happy, "Mia", "girl", "lost", "red"}},
		{"whole, sad", drySeed, Story{true, Sad, "Oscar", "robot", "seed", ""}},
		{"spaces around", "\n  " + drySeed + " \n", Story{true, Sad, "Oscar", "robot", "seed", ""}},
		{"cut in a word", lostBall[:200], Story{false, Happy, "Mia", "girl", "lost", "red"}},
		{"cut in a name", "Once upon a time, there was a little girl named Mi", Story{false, Unclear, "", "girl", "", ""}},
		{"cut before the mood", "Once upon a time, there was a little girl named Mia.", Story{false, Unclear, "Mia", "girl", "", ""}},
		{"cut in the plot's first sentence", drySeed[:120], Story{false, Sad, "Oscar", "robot", "", ""}},
		{"one letter", "O", Story{false, Unclear, "", "", "", ""}},
	} {
		got, err := Parse(tt.text)
		if err != nil || got != tt.want {
			t.Errorf("%s: Parse(%q) = %+v, %v, want %+v", tt.name, tt.text, got, err, tt.want)
		}
		if !Grammatical(tt.text) || Complete(tt.text) != tt.want.Complete {
			t.Errorf("%s: Grammatical %v, Complete %v", tt.name, Grammatical(tt.text), Complete(tt.text))
		}
	}
}

func TestParseRefuses(t *testing.T) {
	replace := func(old, with string) string {
		i := strings.LastIndex(lostBall, old)
		if i < 0 {
			t.Fatalf("no %q", old)
		}
		return lostBall[:i] + with + lostBall[i+len(old):]
	}
	for _, tt := range []struct {
		name, text, got, want string
	}{
		{"other words", "It was a dark and stormy night.", "It was a dark and stormy", "In "},
		{"wrong pronoun", replace("She looked", "He looked"), "He looked", "She"},
		{"wrong name", replace("asked Mia", "asked Leo"), "Leo", "Mia"},
		{"unknown name", replace("named Toby", "named Tony"), "Tony", "Toby"},
		{"same name", replace("named Toby", "named Mia"), "Mia", ""},
		{"boy's name for a girl", strings.Replace(lostBall, "Mia.", "Tom.", 1), "Tom.", "Mia"},
		{"wrong colour", replace("something red?", "something blue?"), "blue", "red"},
		{"a plum is not red", replace("as a cherry", "as a plum"), "plum", ""},
		{"sad in a happy story", replace("And they lived happily ever after.", "And they were sad for many years."), "", ""},
		{"no obstacle", replace("But one day, it was gone. ", ""), "", ""},
		{"more after the end", lostBall + " Once upon a time", " Once upon a time", "the end"},
		{"twice", replace("Mia wished to have it back. ", "Mia wished to have it back. Mia wished to have it back. "), "", ""},
		{"two spaces", replace("asked Mia", "asked  Mia"), "", ""},
		{"lower case", strings.ToLower(lostBall), "", ""},
		{"not UTF-8", "Once upon a time\xff, there was", "", ""},
	} {
		_, err := Parse(tt.text)
		var e *SyntaxError
		if !errors.As(err, &e) {
			t.Errorf("%s: Parse = %v, want a SyntaxError:\n%s", tt.name, err, tt.text)
			continue
		}
		if !strings.HasPrefix(tt.text[e.Offset:], e.Got) || !strings.HasPrefix(e.Got, tt.got) || !strings.HasPrefix(e.Want, tt.want) {
			t.Errorf("%s: %v, want it at %q, wanting %q", tt.name, err, tt.got, tt.want)
		}
		if Grammatical(tt.text) || Complete(tt.text) {
			t.Errorf("%s: Grammatical %v, Complete %v", tt.name, Grammatical(tt.text), Complete(tt.text))
		}
	}
	if Grammatical("") || Grammatical(" \n") || Complete("") {
		t.Error("an empty text is a story")
	}
}

// A story that ends anywhere is grammatical, and complete only at its end.
func TestEveryBeginningIsGrammatical(t *testing.T) {
	for i := range uint64(12) {
		text := New(rng(i))
		for n := 1; n < len(text); n++ {
			if s, err := Parse(text[:n]); err != nil || s.Complete {
				t.Fatalf("%+v, %v: %q", s, err, text[:n])
			}
		}
	}
}

// Any single slip in a drawn story is noticed: it is no longer complete, and not
// grammatical unless what is left is its beginning.
func TestSlipsAreNoticed(t *testing.T) {
	refuse := func(what string, changed []string) {
		t.Helper()
		text := strings.Join(changed, " ")
		if s, err := Parse(text); err == nil && !(strings.HasPrefix(what, "without") && !s.Complete) {
			t.Errorf("%s is accepted:\n%s", what, text)
		}
	}
	for i := range uint64(100) {
		text := New(rng(i))
		list := strings.Fields(text)
		for j, word := range list {
			bare := strings.Trim(word, `".,!?:`)
			last := j == len(list)-1
			if !last && word != list[j+1] {
				changed := slices.Clone(list)
				changed[j], changed[j+1] = changed[j+1], changed[j]
				refuse("swapped: "+word, changed)
			}
			changed := slices.Delete(slices.Clone(list), j, j+1)
			if last {
				refuse("without "+word, changed)
			} else {
				refuse("missing: "+word, changed)
			}
			refuse("doubled: "+word, slices.Insert(slices.Clone(list), j, word))
			for _, with := range others(t, bare) {
				changed := slices.Clone(list)
				changed[j] = strings.Replace(word, bare, with, 1)
				if with != bare && !onlyOnce(text, bare) {
					refuse(word+" as "+with, changed)
				}
			}
		}
	}
}

// onlyOnce says whether text has the word once.
func onlyOnce(text, word string) bool {
	n := 0
	for _, w := range words(text) {
		if w == word {
			n++
		}
	}
	return n == 1
}

// others returns what a pronoun or name could be confused with.
func others(t *testing.T, word string) []string {
	t.Helper()
	pronouns := map[string][]string{
		"he": {"she"}, "she": {"he"}, "He": {"She"}, "She": {"He"}, "his": {"her"}, "His": {"Her"}, "him": {"her"},
		"her": {"his", "him"}, "Her": {"His"}, "himself": {"herself"}, "herself": {"himself"},
	}
	if list := pronouns[word]; list != nil {
		return list
	}
	for _, e := range language().classes["name"].entries {
		if e.text == word {
			return []string{"Mia", "Tom", "Zoe", "Pip"}
		}
	}
	return nil
}

func TestMood(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       Tone
	}{
		{"happy story", lostBall, Happy},
		{"sad story", drySeed, Sad},
		{"no text", "", Unclear},
		{"no cue", "Once upon a time, there was a little girl named Mia. Mia wished to have it back.", Unclear},
		{"as many of both", "The sun was shining, and the birds were singing. Rain was falling, and the wind was cold.", Unclear},
		{"more sad ones", "Every morning she sang a merry song. It was the saddest day of her life. Rain was falling, and the wind was cold.", Sad},
		{"not grammatical as a whole", "It was the happiest day of her life! said the cat. It was the happiest day of his life.", Happy},
		{"quoted", `Mia sat. "What an adventure!" said Mia.`, Happy},
		{"cut in the cue", "It was the happiest day of her", Unclear},
		{"other text", "The happy cat smiled.", Unclear},
	} {
		if got := Mood(tt.text); got != tt.want {
			t.Errorf("%s: Mood(%q) = %s, want %s", tt.name, tt.text, got, tt.want)
		}
	}
}

// No sentence tells both moods.
func TestCuesAreClear(t *testing.T) {
	for i := range uint64(200) {
		text := New(rng(i))
		want := Mood(text)
		for at := range sentences(text) {
			for _, c := range cues() {
				m := matcher{text: text}
				if c.alt.tone != want && m.items(c.alt.items, at, func(int) bool { return true }) {
					t.Errorf("a %s story has a sentence of rule %q: %q", want, c.rule.name, text[at:])
				}
			}
		}
	}
}

func TestConversation(t *testing.T) {
	ask := func(turns ...string) []Message {
		var ms []Message
		for i, text := range turns {
			ms = append(ms, Message{[]string{"user", "assistant"}[i%2], text})
		}
		return ms
	}
	for _, tt := range []struct {
		name     string
		ms       []Message
		complete bool
		err      string
	}{
		{"a picture", ask(" red red red red\nWhat colour is the picture?", "The picture is red."), true, ""},
		{"question on the picture's line", ask(" red What colour is the picture?", "The picture is red."), true, ""},
		{"another colour", ask(" red\nWhat colour is the picture?", "The picture is blue."), false, "blue"},
		{"a cut answer", ask(" red\nWhat colour is the picture?", "The picture is r"), false, ""},
		{"no answer", ask("What does a cow say?"), false, ""},
		{"a fact", ask("What does a cow say?", "A cow says moo."), true, ""},
		{"no fact", ask("What does a cow say?", "A cow says quack."), false, "quack"},
		{"the story asked for", ask("Please tell me a story about a robot.", drySeed), true, ""},
		{"of another", ask("Please tell me a story about a pig.", drySeed), false, "robot"},
		{"the mood asked for", ask("Tell me a sad story.", drySeed), true, ""},
		{"of the other mood", ask("Tell me a happy story.", drySeed), false, `got "grey`},
		{"four turns", ask("Hello!", "Hello! Shall I tell you a story?", "Yes, please.", lostBall), true, ""},
		{"no turns", nil, false, "no text"},
		{"roles", []Message{{"assistant", "Hello!"}}, false, `role "assistant", want "user"`},
		{"the separator", ask("Hello!" + turn + "Hello!"), false, "contains the character"},
	} {
		complete, err := Conversation(tt.ms)
		if complete != tt.complete || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: Conversation(%q) = %v, %v, want %v, %q", tt.name, tt.ms, complete, err, tt.complete, tt.err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(lostBall)
	f.Add(drySeed)
	f.Add(drySeed[:77])
	f.Add(New(rng(5)))
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err == nil && s.Complete != Complete(text) {
			t.Errorf("Parse: complete %v, Complete: %v", s.Complete, Complete(text))
		}
		var e *SyntaxError
		if errors.As(err, &e) && (e.Offset < 0 || e.Offset > len(text) || e.Error() == "") {
			t.Errorf("offset %d in a text of %d bytes", e.Offset, len(text))
		}
		switch Mood(text) {
		case Happy, Sad, Unclear:
		default:
			t.Errorf("Mood = %q", Mood(text))
		}
		if _, err := Conversation([]Message{{"user", "Tell me a story."}, {"assistant", strings.TrimSpace(text)}}); s.Complete && err != nil {
			t.Errorf("a story, but not as an answer: %v", err)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	text := New(rng(1))
	for b.Loop() {
		if _, err := Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}
