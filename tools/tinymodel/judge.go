package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"gollama/internal/builtin/story"
	"gollama/internal/pipeline"
)

// maxLine is the longest line that is read, in bytes; a story has under 1000.
const maxLine = 1 << 20

// judge says how samples are read and how the report is written.
type judge struct {
	prompt string // stood before each text
	json   bool
}

// summary counts samples.
type summary struct {
	Type        string  `json:"type"` // "summary"
	Samples     int     `json:"samples"`
	Grammatical int     `json:"grammatical"` // stories or conversations of the language, perhaps cut at the end
	Complete    int     `json:"complete"`    // and not cut
	Happy       int     `json:"happy"`
	Sad         int     `json:"sad"`
	Unclear     int     `json:"unclear"`
	Distinct    int     `json:"distinct"`
	Words       float64 `json:"words"` // mean of a sample
}

// failure is a sample that is not grammatical.
type failure struct {
	Type  string `json:"type"` // "failure"
	Line  int    `json:"line"`
	Error string `json:"error"`
	Text  string `json:"text"`
}

// read judges the samples of in, which name stands for in messages, and writes failures and summary to w.
func (j *judge) read(in io.Reader, name string, w io.Writer) (summary, error) {
	s := summary{Type: "summary"}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	seen := map[string]bool{}
	words := 0
	err := readRecords(in, name, func(line int, r record) error {
		text, complete, err := j.sample(r)
		words += len(strings.Fields(text))
		if !seen[text] {
			seen[text] = true
			s.Distinct++
		}
		s.add(story.Mood(text), complete, err)
		if err == nil {
			return nil
		}
		if j.json {
			return enc.Encode(failure{"failure", line, err.Error(), text})
		}
		_, err = fmt.Fprintf(w, "%s:%d: %v\n    %s\n", name, line, err, strings.ReplaceAll(text, "\n", "\n    "))
		return err
	})
	if err != nil {
		return s, err
	}
	if s.Samples == 0 {
		return s, fmt.Errorf("%s: no samples", name)
	}
	s.Words = float64(words) / float64(s.Samples)
	if j.json {
		return s, enc.Encode(s)
	}
	_, err = fmt.Fprintf(w, "%d samples: %d grammatical, %d complete; %d happy, %d sad, %d unclear; %d distinct; %.1f words each\n",
		s.Samples, s.Grammatical, s.Complete, s.Happy, s.Sad, s.Unclear, s.Distinct, s.Words)
	return s, err
}

// sample returns a sample as text, and what is to say of it.
func (j *judge) sample(r record) (text string, complete bool, err error) {
	if r.Messages == nil {
		text = j.prompt + r.Text
		found, err := story.Parse(text)
		return text, found.Complete, err
	}
	var turns []string
	for _, m := range r.Messages {
		turns = append(turns, m.Content)
	}
	complete, err = story.Conversation(r.Messages)
	return strings.Join(turns, "\n"), complete, err
}

func (s *summary) add(tone story.Tone, complete bool, err error) {
	s.Samples++
	if err == nil {
		s.Grammatical++
	}
	if complete {
		s.Complete++
	}
	switch tone {
	case story.Happy:
		s.Happy++
	case story.Sad:
		s.Sad++
	default:
		s.Unclear++
	}
}

// least are the shares that samples must reach.
type least struct{ grammatical, complete float64 }

// verdict returns an error if a share is too small.
func (l least) verdict(s summary) error {
	short := func(name string, got int, want float64) error {
		if share := float64(got) / float64(s.Samples); share < want {
			return fmt.Errorf("%.3f of the samples are %s, want %.3f", share, name, want)
		}
		return nil
	}
	return errors.Join(short("grammatical", s.Grammatical, l.grammatical), short("complete", s.Complete, l.complete))
}

// readRecords calls each with the records of in and their lines, from 1. A line is a JSON object with "text" or
// "messages", whose other keys do not count, or plain text, which is the text itself; empty lines do not count.
func readRecords(in io.Reader, name string, each func(line int, r record) error) error {
	sc := bufio.NewScanner(in)
	sc.Buffer(make([]byte, 0, 1<<16), maxLine)
	line := 0
	for sc.Scan() {
		line++
		text := bytes.TrimSpace(sc.Bytes())
		if len(text) == 0 {
			continue
		}
		r := record{Text: string(text)}
		if text[0] == '{' {
			var err error
			if r, err = parseRecord(text); err != nil {
				return fmt.Errorf("%s:%d: %w", name, line, err)
			}
		}
		if err := each(line, r); err != nil {
			return err
		}
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("%s:%d: %w", name, line+1, err)
	}
	return nil
}

func parseRecord(line []byte) (record, error) {
	var keys struct {
		Text     *string         `json:"text"`
		Messages []story.Message `json:"messages"`
	}
	if err := pipeline.Decode(line, &keys); err != nil {
		return record{}, err
	}
	switch {
	case keys.Text != nil && keys.Messages == nil:
		return record{Text: *keys.Text}, nil
	case keys.Text == nil && keys.Messages != nil:
		return record{Messages: keys.Messages}, nil
	}
	return record{}, errors.New(`want one of "text" and "messages"`)
}
