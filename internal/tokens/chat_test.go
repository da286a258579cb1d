package tokens

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gollama/internal/engine"
)

// TestMessages compares conversations in JSON records with what the engine makes of them, on vocabularies that differ in what
// they put round a text.
func TestMessages(t *testing.T) {
	records := []string{
		`{"messages":[{"role":"user","content":"Hello, </s> <|im_end|> you"}]}`,
		`{"id":7,"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"},{"role":"assistant","content":"Yes?"}]}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"in"},{"type":"text","text":"parts"}]}]}`,
	}
	for _, name := range []string{"llama-spm", "llama-bpe", "qwen2"} {
		path := filepath.Join(vocabDir, "ggml-vocab-"+name+".gguf")
		p := engine.DefaultParams()
		p.Model, p.VocabOnly, p.Warmup = path, true, false
		em, err := engine.LoadModel(context.Background(), &p)
		if err != nil {
			t.Skipf("make engine: %v", err)
		}
		defer func() { _ = em.Close() }()
		m, err := Open(context.Background(), path, Auto)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = m.Close() }()
		for _, source := range []string{"chatml", "{{bos_token}}{% for m in messages %}[{{m.role}}] {{m.content}}{{eos_token}}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"} {
			tmpl, err := engine.NewChatTemplate(em, engine.ChatTemplateOptions{Source: source})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tmpl.Close() }()
			var want [][]Token
			render := func(raw json.RawMessage) (*Conversation, error) {
				in := engine.ChatInput{}
				if err := json.Unmarshal(raw, &in.Messages); err != nil {
					return nil, err
				}
				in.AddGenerationPrompt = in.Messages[len(in.Messages)-1].Role != "assistant"
				p, err := tmpl.Render(&in)
				if err != nil {
					return nil, err
				}
				ids, err := tmpl.Tokenize(p)
				if err != nil {
					return nil, err
				}
				want = append(want, ids)
				return &Conversation{Segments: p.Segments, Open: in.AddGenerationPrompt}, nil
			}
			var got [][]Token
			run := &Run{Model: m, Jobs: 1, Options: Options{Parse: true, Chat: render},
				Input: &Input{Stdin: strings.NewReader(strings.Join(records, "\n")), Files: Names([]string{"-"}), Split: ByJSONL, Field: "messages"},
				Emit: func(b *Batch) error {
					for _, r := range b.Results {
						if r.Err != nil {
							t.Errorf("%s: %v", name, r.Err)
						}
						got = append(got, slices.Clone(r.IDs))
					}
					return nil
				}}
			if err := run.Do(context.Background()); err != nil {
				t.Fatal(err)
			}
			if !slices.EqualFunc(got, want, slices.Equal) || len(got) != len(records) {
				t.Errorf("%s, %.20q:\n got %v\nwant %v", name, source, got, want)
			}
		}
	}
}

// TestMessagesWithoutChat: an array where a text is wanted is the document's error.
func TestMessagesWithoutChat(t *testing.T) {
	m := small(t)
	var err error
	run := &Run{Model: m, Input: &Input{Stdin: strings.NewReader(`{"text":["a"]}`), Files: Names([]string{"-"}), Split: ByJSONL, Field: "text"},
		Emit: func(b *Batch) error { err = b.Results[0].Err; return nil }}
	if derr := run.Do(context.Background()); derr != nil || err == nil || err.Error() != "standard input: line 1: it is an array and no string" {
		t.Errorf("run: %v; document: %v", derr, err)
	}
}
