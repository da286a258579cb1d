package main

import (
	"encoding/json"
	"io"
	"math/rand/v2"

	"gollama/internal/builtin/story"
	"gollama/internal/pipeline"
)

// record is a line of the file: a story, or the turns of a conversation.
type record struct {
	Text     string          `json:"text,omitempty"`
	Messages []story.Message `json:"messages,omitempty"`
}

// corpus says which texts are written.
type corpus struct {
	n     int
	seed  uint64
	chats float64         // share of conversations
	skip  map[string]bool // stories that are not written
}

// write writes n records as JSON lines. Each has a random source of its own, so that a longer file begins with the
// shorter one. No story comes twice; conversations do, as there are only so many.
func (c *corpus) write(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	seen := map[string]bool{}
	for i := range c.n {
		rng := rand.New(rand.NewPCG(c.seed, uint64(i)))
		var r record
		if rng.Float64() < c.chats {
			r.Messages = story.NewChat(rng)
		} else {
			for r.Text == "" || seen[r.Text] || c.skip[r.Text] {
				r.Text = story.New(rng)
			}
			seen[r.Text] = true
		}
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// readTexts returns the stories of a file that write made.
func readTexts(path string) (map[string]bool, error) {
	in, err := pipeline.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close() //nolint:errcheck // only read from
	texts := map[string]bool{}
	err = readRecords(in, path, func(_ int, r record) error {
		texts[r.Text] = true
		return nil
	})
	delete(texts, "") // of conversations
	return texts, err
}
