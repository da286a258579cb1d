package main

import (
	"errors"
	"os"
	"strings"
	"testing"

	"gollama/internal/builtin/story"
	"gollama/internal/engine"
)

// render applies the model's chat template as gollama does.
func render(t *testing.T, ms []story.Message, generation bool) string {
	t.Helper()
	source, err := os.ReadFile("template.jinja")
	if err != nil {
		t.Fatal(err)
	}
	tmpl, err := engine.NewChatTemplate(nil, engine.ChatTemplateOptions{Source: string(source), BOS: "<s>", EOS: "</s>"})
	if errors.Is(err, engine.ErrNoCgo) {
		t.Skip("templates need the engine")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer tmpl.Close() //nolint:errcheck // nothing is written
	in := &engine.ChatInput{AddGenerationPrompt: generation}
	for _, m := range ms {
		in.Messages = append(in.Messages, engine.ChatMessage{Role: m.Role, Content: m.Content})
	}
	p, err := tmpl.Apply(in)
	if err != nil {
		t.Fatal(err)
	}
	return p.Text
}

func TestTemplate(t *testing.T) {
	ms := []story.Message{
		{Role: "user", Content: " red red\nWhat colour is the picture?"}, {Role: "assistant", Content: "The picture is red."},
		{Role: "user", Content: "Thank you!"}, {Role: "assistant", Content: "You are welcome."},
	}
	const want = "Child:\n red red\nWhat colour is the picture?\nTeller:\nThe picture is red.</s>\n" +
		"Child:\nThank you!\nTeller:\nYou are welcome.</s>\n"
	if got := render(t, ms, false); got != want {
		t.Errorf("template: %q, want %q", got, want)
	}
	// What the model is asked with begins what it was trained on.
	for n := 1; n < len(ms); n += 2 {
		if got := render(t, ms[:n], true); !strings.HasPrefix(want, got) || !strings.HasSuffix(got, "Teller:\n") {
			t.Errorf("prompt of %d turns: %q", n, got)
		}
	}
}
