package cvector

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"gollama/internal/engine"
	"gollama/internal/pipeline"
)

// ErrPairs is what errors about files of pairs wrap.
var ErrPairs = errors.New("pairs")

// Limits of the input, far above what makes sense.
const (
	maxPairs     = 1 << 20
	maxPairsSize = 1 << 30 // bytes of a file of lines
)

// Text is one side of a pair: a plain text, or a conversation for the model's chat template.
type Text struct {
	Plain    string
	Messages []engine.ChatMessage // nil for a plain text
}

// Pair is a text that shows what the direction leads to, and one that shows what it leads away from.
type Pair struct {
	Positive, Negative Text
	Baseline           *Text  // what lies between; nil for none
	Completion         string // follows each of the texts
	Where              string // for messages: "line 3"
}

// HasMessages says whether a side of the pair is a conversation.
func (p Pair) HasMessages() bool {
	return p.Positive.Messages != nil || p.Negative.Messages != nil || p.Baseline != nil && p.Baseline.Messages != nil
}

// LinePairs makes pairs of two files with a text a line, the n-th of one and the n-th of the other. Empty lines, the
// carriage return before a line's end and a byte order mark are left out; escape then replaces escapes in each line.
// Source: tools/cvector-generator/cvector-generator.cpp, ctrlvec_load_prompt_file, which keeps carriage returns.
func LinePairs(positive, negative io.Reader, posName, negName string, escape func(string) string) ([]Pair, error) {
	pos, err := readLines(positive, posName, escape)
	if err != nil {
		return nil, err
	}
	neg, err := readLines(negative, negName, escape)
	if err != nil {
		return nil, err
	}
	if len(pos) != len(neg) {
		return nil, fmt.Errorf("%w: %s has %d texts and %s has %d: want as many", ErrPairs, posName, len(pos), negName, len(neg))
	}
	if len(pos) == 0 {
		return nil, fmt.Errorf("%w: %s and %s have no texts", ErrPairs, posName, negName)
	}
	pairs := make([]Pair, len(pos))
	for i := range pos {
		pairs[i] = Pair{Positive: Text{Plain: pos[i].text}, Negative: Text{Plain: neg[i].text}, Where: fmt.Sprintf("pair %d (line %d of %s)", i+1, pos[i].number, posName)}
	}
	return pairs, nil
}

type line struct {
	text   string
	number int
}

// ReadLines reads a text a line, as LinePairs does: for completions.
func ReadLines(r io.Reader, name string, escape func(string) string) ([]string, error) {
	lines, err := readLines(r, name, escape)
	texts := make([]string, len(lines))
	for i, l := range lines {
		texts[i] = l.text
	}
	return texts, err
}

func readLines(r io.Reader, name string, escape func(string) string) ([]line, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxPairsSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxPairsSize {
		return nil, fmt.Errorf("%w: %s has more than %d bytes", ErrPairs, name, maxPairsSize)
	}
	var out []line
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	for i, l := range bytes.Split(data, []byte("\n")) {
		l = bytes.TrimSuffix(l, []byte("\r"))
		if len(l) == 0 {
			continue
		}
		if !utf8.Valid(l) {
			return nil, fmt.Errorf("%w: %s, line %d, is not UTF-8", ErrPairs, name, i+1)
		}
		out = append(out, line{escape(string(l)), i + 1})
		if len(out) > maxPairs {
			return nil, fmt.Errorf("%w: %s has more than %d texts", ErrPairs, name, maxPairs)
		}
	}
	return out, nil
}

// jsonPair is a line of --pairs.
type jsonPair struct {
	Positive    json.RawMessage `json:"positive"`
	Negative    json.RawMessage `json:"negative"`
	Baseline    json.RawMessage `json:"baseline"`
	Completions []string        `json:"completions"`
}

// JSONPairs reads pairs from JSON lines: {"positive", "negative", "baseline"} with texts, or lists of messages in
// OpenAI's form, and "completions", a list of texts of which each makes a pair of its own, put after all sides. Either
// all pairs have a baseline or none. Other members, such as an id, are left alone.
func JSONPairs(r io.Reader, name string) ([]Pair, error) {
	in := pipeline.NewReader(r, name)
	var pairs []Pair
	for {
		rec, err := in.Next(pipeline.Shard{})
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		var re *pipeline.RecordError
		if errors.As(rec.Err, &re) && re.Code == pipeline.CodeEmptyLine {
			continue
		}
		if rec.Err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrPairs, name, rec.Err)
		}
		list, err := parsePair(rec.Raw, fmt.Sprintf("line %d of %s", rec.Line, name))
		if err != nil {
			return nil, fmt.Errorf("%w: %s, line %d: %w", ErrPairs, name, rec.Line, err)
		}
		if pairs = append(pairs, list...); len(pairs) > maxPairs {
			return nil, fmt.Errorf("%w: %s makes more than %d pairs", ErrPairs, name, maxPairs)
		}
		if first, last := pairs[0], pairs[len(pairs)-1]; (first.Baseline == nil) != (last.Baseline == nil) {
			return nil, fmt.Errorf("%w: %s, line %d: some pairs have a baseline and some have none", ErrPairs, name, rec.Line)
		}
	}
	if len(pairs) == 0 {
		return nil, fmt.Errorf("%w: %s has no pairs", ErrPairs, name)
	}
	return pairs, nil
}

func parsePair(raw []byte, where string) ([]Pair, error) {
	var j jsonPair
	if err := pipeline.Decode(raw, &j); err != nil {
		return nil, err
	}
	p := Pair{Where: where}
	for _, side := range []struct {
		name string
		raw  json.RawMessage
		to   *Text
	}{{"positive", j.Positive, &p.Positive}, {"negative", j.Negative, &p.Negative}} {
		if len(side.raw) == 0 {
			return nil, fmt.Errorf("%q is missing", side.name)
		}
		t, err := parseText(side.raw)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", side.name, err)
		}
		*side.to = t
	}
	if len(j.Baseline) > 0 && string(j.Baseline) != "null" {
		t, err := parseText(j.Baseline)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", "baseline", err)
		}
		p.Baseline = &t
	}
	return Cross([]Pair{p}, j.Completions), nil
}

func parseText(raw json.RawMessage) (Text, error) {
	var t Text
	if raw[0] == '"' {
		return t, pipeline.Decode(raw, &t.Plain)
	}
	if raw[0] != '[' {
		return t, errors.New("want a text or a list of messages")
	}
	if err := pipeline.DecodeList(raw, &t.Messages); err != nil {
		return t, err
	}
	if len(t.Messages) == 0 {
		return t, errors.New("there are no messages")
	}
	return t, nil
}

// Cross returns each pair with each completion after it; without completions, the pairs as they are.
func Cross(pairs []Pair, completions []string) []Pair {
	if len(completions) == 0 {
		return pairs
	}
	var out []Pair
	for _, p := range pairs {
		for i, c := range completions {
			q := p
			q.Completion += c
			q.Where = fmt.Sprintf("%s, completion %d", strings.TrimSuffix(p.Where, ","), i+1)
			out = append(out, q)
		}
	}
	return out
}
