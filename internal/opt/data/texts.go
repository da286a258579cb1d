package data

import (
	"context"
	"fmt"
)

// Texts calls add with every text that a source trains on, such as for learning a vocabulary: of
// a record its text, its prompt and completion, or what its messages say, without roles and names.
func Texts(ctx context.Context, s Source, add func(string)) error {
	if s.Format == "tokens" || formatOf(s.Path) == "tokens" && (s.Format == "" || s.Format == "auto") {
		return fmt.Errorf("%s: a token file has no texts", s.Path)
	}
	return readSource(ctx, &Options{Sources: []Source{s}}, 0, func(r record) error {
		for _, text := range r.texts() {
			add(text)
		}
		return nil
	})
}

func (r *record) texts() []string {
	texts := []string{r.text, r.prompt, r.completion}
	for _, m := range r.messages {
		texts = append(texts, m.Content, m.Reasoning)
		for _, p := range m.Parts {
			texts = append(texts, p.Text)
		}
		for _, c := range m.ToolCalls {
			texts = append(texts, c.Arguments)
		}
	}
	return texts
}
