package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"gollama/internal/pipeline"
)

// A message that says <|im_end|> must not end its turn. So before a template writes a conversation
// for which that matters, a marker, a character that stands nowhere else, goes into the text of every control token
// in it, where it breaks the token and nothing else: not at the ends of a text, which templates
// trim, nor where it would make an empty text look full. In what the template writes, the markers
// show what came from a message. See segments for how that becomes tokens.

// special is a token that the tokenizer looks for before all others.
type special struct {
	text           string
	control        bool // else user-defined, and found in any text
	lstrip, rstrip bool // it swallows the white space before or after it
}

// specials are a vocabulary's special tokens.
type specials struct {
	list  []special // in the order in which the tokenizer looks for them, the longest first
	start map[byte][]int
}

// newSpecials keeps list, whose order is that of the ids. Tokens of one character cannot be broken
// and are left out: they stand for themselves also in a message.
func newSpecials(list []special) *specials {
	s := &specials{start: map[byte][]int{}}
	for _, sp := range list {
		if utf8.RuneCountInString(sp.text) > 1 {
			s.list = append(s.list, sp)
		}
	}
	sort.SliceStable(s.list, func(i, j int) bool { return len(s.list[i].text) > len(s.list[j].text) })
	for i, sp := range s.list {
		s.start[sp.text[0]] = append(s.start[sp.text[0]], i)
	}
	return s
}

// at returns whether the text of a control token begins at byte i of text.
func (s *specials) at(text string, i int) bool {
	for _, k := range s.start[text[i]] {
		if s.list[k].control && strings.HasPrefix(text[i:], s.list[k].text) {
			return true
		}
	}
	return false
}

// mark puts the marker into every control token of text, after its first character.
func (s *specials) mark(text string, marker rune) string {
	var b strings.Builder
	done := 0
	for i := range len(text) {
		if !s.at(text, i) {
			continue
		}
		_, n := utf8.DecodeRuneInString(text[i:])
		b.WriteString(text[done : i+n])
		b.WriteRune(marker)
		done = i + n
	}
	if done == 0 {
		return text
	}
	b.WriteString(text[done:])
	return b.String()
}

// markEnds marks text also where a control token could come to be of its end or start and what the
// template writes next to it.
func (s *specials) markEnds(text string, marker rune) string {
	text = s.mark(text, marker)
	inner := strings.TrimFunc(text, unicode.IsSpace)
	if inner == "" {
		return text
	}
	at := strings.Index(text, inner)
	tail, head := 0, 0 // lengths of the longest end that begins a control token, and start that ends one
	for _, sp := range s.list {
		if !sp.control {
			continue
		}
		for n := min(len(sp.text)-1, len(inner)); n > tail; n-- {
			if strings.HasSuffix(inner, sp.text[:n]) {
				tail = n
			}
		}
		for n := min(len(sp.text)-1, len(inner)); n > head; n-- {
			if strings.HasPrefix(inner, sp.text[len(sp.text)-n:]) {
				head = n
			}
		}
	}
	m := string(marker)
	if tail > 0 {
		i := len(inner) - tail
		_, n := utf8.DecodeRuneInString(inner[i:])
		inner = inner[:i+n] + m + inner[i+n:]
	}
	if head > 0 {
		// Inside what it breaks if there is an inside: templates look at how a text begins.
		n := 0
		if _, first := utf8.DecodeRuneInString(inner); first < head {
			n = first
		}
		inner = inner[:n] + m + inner[n:]
	}
	return text[:at] + inner + text[at+len(strings.TrimFunc(text, unicode.IsSpace)):]
}

// markJSON marks the strings of a JSON text, escapes resolved; the rest of it stays as it is. What
// is not JSON is marked as text.
func (s *specials) markJSON(text string, marker rune) string {
	if !json.Valid([]byte(text)) {
		return s.mark(text, marker)
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		if text[i] != '"' {
			b.WriteByte(text[i])
			i++
			continue
		}
		end := i + 1
		for text[end] != '"' {
			if text[end] == '\\' {
				end++
			}
			end++
		}
		end++
		b.WriteString(s.markQuoted(text[i:end], marker))
		i = end
	}
	return b.String()
}

func (s *specials) markQuoted(quoted string, marker rune) string {
	var plain string
	if err := pipeline.Decode([]byte(quoted), &plain); err != nil {
		return quoted
	}
	marked := s.mark(plain, marker)
	if marked == plain {
		return quoted
	}
	out, err := marshal(marked)
	if err != nil {
		return quoted
	}
	return string(out)
}

// errMarker is what a conversation gets that uses every marker.
var errMarker = errors.New("the conversation uses all of the private characters U+10FF00 to U+10FFFD")

// chooseMarker returns a private-use character that none of texts has.
func chooseMarker(texts ...[]byte) (rune, error) {
	for r := rune(0x10FFFD); r >= 0x10FF00; r-- {
		enc := []byte(string(r))
		if !slices.ContainsFunc(texts, func(t []byte) bool { return bytes.Contains(t, enc) }) {
			return r, nil
		}
	}
	return 0, errMarker
}

// marked returns in with markers in messages and tools. changed is false if there was nothing to
// mark; whole tells that a text has a control token as it is, not only a piece of one at its end.
func (s *specials) marked(in *ChatInput, marker rune) (out *ChatInput, changed, whole bool) {
	text := func(t string, mark func(string, rune) string) string {
		m := mark(t, marker)
		changed = changed || m != t
		whole = whole || s.mark(t, marker) != t
		return m
	}
	c := *in
	c.Messages = slices.Clone(in.Messages)
	for i := range c.Messages {
		m := &c.Messages[i]
		m.Content, m.Reasoning = text(m.Content, s.markEnds), text(m.Reasoning, s.markEnds)
		m.Name, m.ToolCallID = text(m.Name, s.mark), text(m.ToolCallID, s.mark)
		m.Parts, m.ToolCalls = slices.Clone(m.Parts), slices.Clone(m.ToolCalls)
		for j := range m.Parts {
			m.Parts[j].Text = text(m.Parts[j].Text, s.markEnds)
		}
		for j := range m.ToolCalls {
			t := &m.ToolCalls[j]
			t.ID, t.Name = text(t.ID, s.mark), text(t.Name, s.mark)
			t.Arguments = text(t.Arguments, s.markJSON)
		}
	}
	c.Tools = slices.Clone(in.Tools)
	for i := range c.Tools {
		t := &c.Tools[i]
		t.Name, t.Description = text(t.Name, s.mark), text(t.Description, s.markEnds)
		t.Parameters = json.RawMessage(text(string(t.Parameters), s.markJSON))
	}
	// The grammar is made of the input without markers.
	c.JSONSchema, c.Grammar, c.ToolChoice = "", "", "none"
	return &c, changed, whole
}

// piece is a part of a text: a special token, or what stands between two.
type piece struct {
	from, to int
	token    *special // nil: text
}

// split divides text at its special tokens as tokenizer_st_partition of src/llama-vocab.cpp does:
// the longest tokens first, wherever they stand.
func (s *specials) split(text string) []piece {
	seen := map[int]bool{}
	for i := range len(text) {
		for _, k := range s.start[text[i]] {
			if strings.HasPrefix(text[i:], s.list[k].text) {
				seen[k] = true
			}
		}
	}
	order := make([]int, 0, len(seen))
	for k := range seen {
		order = append(order, k)
	}
	sort.Ints(order)
	pieces := []piece{{to: len(text)}}
	for _, k := range order {
		pieces = splitAt(pieces, text, &s.list[k])
	}
	return pieces
}

func splitAt(pieces []piece, text string, sp *special) []piece {
	var out []piece
	for _, p := range pieces {
		for p.token == nil {
			i := strings.Index(text[p.from:p.to], sp.text)
			if i < 0 {
				break
			}
			if i > 0 {
				out = append(out, piece{from: p.from, to: p.from + i})
			}
			out = append(out, piece{from: p.from + i, to: p.from + i + len(sp.text), token: sp})
			p.from += i + len(sp.text)
		}
		if p.from < p.to {
			out = append(out, p)
		}
	}
	return out
}

// segments cuts a marked prompt into pieces to tokenize. A stretch between two special tokens of
// the template that has a marker is literal; all between such stretches stays together, so that
// it gets the tokens that it gets within the whole prompt.
func (s *specials) segments(marked string, marker rune) []ChatSegment {
	var out []ChatSegment
	add := func(text string, literal bool) {
		if n := len(out); n > 0 && out[n-1].Literal == literal {
			out[n-1].Text += text
		} else if text != "" {
			out = append(out, ChatSegment{Text: text, Literal: literal})
		}
	}
	pieces := s.split(marked)
	for i, p := range pieces {
		text := marked[p.from:p.to]
		if p.token != nil || !strings.ContainsRune(text, marker) {
			add(text, false)
			continue
		}
		text = strings.ReplaceAll(text, string(marker), "")
		// The tokenizer would do this if it saw the neighbours.
		const space = " \t\n\v\f\r"
		if i > 0 && pieces[i-1].token != nil && pieces[i-1].token.rstrip {
			text = strings.TrimLeft(text, space)
		}
		if i+1 < len(pieces) && pieces[i+1].token != nil && pieces[i+1].token.lstrip {
			text = strings.TrimRight(text, space)
		}
		add(text, true)
	}
	return out
}
