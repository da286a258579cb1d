package cvector

import (
	"fmt"
	"slices"

	"gollama/internal/engine"
)

// Prompt is a pair as tokens.
type Prompt struct {
	Pos, Neg, Base []engine.Token // Base is nil without a baseline
	Pair           int            // index in the pairs that were given
	Where          string
}

// Tokenizer makes tokens of texts; an engine.Vocab is one.
type Tokenizer interface {
	Tokenize(text string, addSpecial, parseSpecial bool) ([]engine.Token, error)
	AddEOS() bool
	EOS() engine.Token
}

// Template makes prompts of conversations; an engine.ChatTemplate is one.
type Template interface {
	Apply(*engine.ChatInput) (*engine.ChatPrompt, error)
	Tokenize(*engine.ChatPrompt) ([]engine.Token, error)
}

// Tokenize makes tokens of pairs. In plain texts the names of control tokens are these tokens, as for
// llama-cvector-generator; in messages and completions they are text. A conversation ends where the assistant begins to
// speak, or, if its last message is the assistant's, goes on there. tmpl may be nil if no pair has messages. Pairs whose
// sides are the same tokens have no contrast: they are left out and returned as same, unless keep is set.
func Tokenize(v Tokenizer, tmpl Template, pairs []Pair, keep bool) (prompts []Prompt, same []Pair, err error) {
	t := tokenizing{v: v, tmpl: tmpl}
	for i, p := range pairs {
		out := Prompt{Pair: i, Where: p.Where}
		if out.Pos, err = t.text(p.Positive, p.Completion); err != nil {
			return nil, nil, fmt.Errorf("%w: %s, positive: %w", ErrPairs, p.Where, err)
		}
		if out.Neg, err = t.text(p.Negative, p.Completion); err != nil {
			return nil, nil, fmt.Errorf("%w: %s, negative: %w", ErrPairs, p.Where, err)
		}
		if p.Baseline != nil {
			if out.Base, err = t.text(*p.Baseline, p.Completion); err != nil {
				return nil, nil, fmt.Errorf("%w: %s, baseline: %w", ErrPairs, p.Where, err)
			}
		}
		if slices.Equal(out.Pos, out.Neg) && !keep {
			same = append(same, p)
			continue
		}
		prompts = append(prompts, out)
	}
	if len(prompts) == 0 {
		return nil, same, fmt.Errorf("%w: the positive and the negative text are the same tokens in all %d pairs: there is no contrast", ErrPairs, len(pairs))
	}
	return prompts, same, nil
}

type tokenizing struct {
	v    Tokenizer
	tmpl Template
}

func (t *tokenizing) text(text Text, completion string) ([]engine.Token, error) {
	tokens, err := t.start(text, completion)
	if err != nil {
		return nil, err
	}
	// A text that is an example of how one begins does not end.
	if n := len(tokens); n > 1 && t.v.AddEOS() && tokens[n-1] == t.v.EOS() {
		tokens = tokens[:n-1]
	}
	if completion != "" && text.Messages != nil {
		more, err := t.v.Tokenize(completion, false, false)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, more...)
	}
	if len(tokens) == 0 {
		return nil, fmt.Errorf("the text has no tokens")
	}
	return tokens, nil
}

func (t *tokenizing) start(text Text, completion string) ([]engine.Token, error) {
	if text.Messages == nil {
		return t.v.Tokenize(text.Plain+completion, true, true)
	}
	if t.tmpl == nil {
		return nil, fmt.Errorf("messages need a chat template")
	}
	in := &engine.ChatInput{Messages: text.Messages, AddGenerationPrompt: true}
	if text.Messages[len(text.Messages)-1].Role == "assistant" {
		in.AddGenerationPrompt, in.Continue = false, engine.ContinueContent
	}
	p, err := t.tmpl.Apply(in)
	if err != nil {
		return nil, err
	}
	return t.tmpl.Tokenize(p)
}
