package story

import (
	"errors"
	"fmt"
	"image/color"
	"strings"
)

// Tone is the mood of a story.
type Tone string

// The moods.
const (
	Happy   Tone = "happy"
	Sad     Tone = "sad"
	Unclear Tone = "unclear"
)

// Story is what [Parse] finds in a text.
type Story struct {
	Complete bool // it has its beginning, wish, obstacle and ending, and nothing after
	Tone     Tone
	Hero     string // name; "" if the text ends before it
	Kind     string // girl, boy, fox, ...
	Plot     string // lost, shop, skill, friend, trip, gift, rescue or seed; "" if the text ends before
	Colour   string // of the thing that the plot is about, or ""
}

// Parse reads a story of which the end may be missing. White space around it does
// not count. The error is a [*SyntaxError] when the text, as far as it goes, is not
// of the language: a sentence of no pattern, a pronoun or a name of somebody else,
// a happy sentence in a sad story, a stage of the story left out.
func Parse(text string) (Story, error) {
	m, err := read("story", strings.TrimSpace(text))
	if err != nil {
		return Story{}, err
	}
	return Story{
		Complete: !m.wasCut,
		Tone:     Mood(text),
		Hero:     m.filled("A", "name"),
		Kind:     m.filled("A", "kind"),
		Plot:     m.plot(),
		Colour:   m.filled("W", "colour"),
	}, nil
}

// Grammatical says whether text is a story of the language, or the beginning of one. An empty text is not.
func Grammatical(text string) bool {
	_, err := Parse(text)
	return err == nil
}

// Complete says whether text is a whole story of the language.
func Complete(text string) bool {
	s, err := Parse(text)
	return err == nil && s.Complete
}

// Conversation reads turns, of which the last may be cut, and says whether they are
// complete. The roles must alternate and begin with "user".
func Conversation(ms []Message) (complete bool, err error) {
	var texts []string
	for i, m := range ms {
		if want := roleOf(i); m.Role != want {
			return false, fmt.Errorf("turn %d: role %q, want %q", i+1, m.Role, want)
		}
		if strings.Contains(m.Content, turn) {
			return false, fmt.Errorf("turn %d: contains the character %q", i+1, turn)
		}
		texts = append(texts, m.Content)
	}
	for { // subject by subject, each of two turns or more
		n := subject(texts)
		if n == len(texts) {
			m, err := read("chat", strings.Join(texts, turn))
			return err == nil && !m.wasCut, err
		}
		texts = texts[n:]
	}
}

// subject returns how many turns the first subject has: those that are a whole conversation of their own, or all.
func subject(turns []string) int {
	for n := 2; n < len(turns); n += 2 {
		if m, err := read("chat", strings.Join(turns[:n], turn)); err == nil && !m.wasCut {
			return n
		}
	}
	return len(turns)
}

// Colours returns the words for colours that the language knows.
func Colours() []string {
	var list []string
	for _, e := range language().classes["colour"].entries {
		list = append(list, e.text)
	}
	return list
}

// PlainColours returns, for each word of [Colours], a colour that nobody would call by another: to ask the model about.
func PlainColours() map[string]color.RGBA {
	return map[string]color.RGBA{
		"red": {255, 0, 0, 255}, "orange": {255, 140, 0, 255}, "yellow": {255, 255, 0, 255}, "green": {0, 150, 0, 255},
		"blue": {0, 0, 255, 255}, "purple": {128, 0, 160, 255}, "pink": {255, 170, 200, 255}, "brown": {130, 70, 20, 255},
		"black": {0, 0, 0, 255}, "white": {255, 255, 255, 255},
	}
}

// read finds a reading of text by the rule: a whole one if there is one, else one that is cut.
func read(rule, text string) (*matcher, error) {
	if text == "" {
		return nil, errors.New("no text")
	}
	var m *matcher
	for _, cutOK := range []bool{false, true} {
		m = &matcher{text: text, cutOK: cutOK}
		if m.match(language().rule(rule), 0, m.end) {
			return m, nil
		}
	}
	return nil, m.failure()
}
