//go:build cgo

package engine

import (
	"os"
	"strings"
	"testing"
)

// storySampler returns the story model's context after a word, and a sampler with what change sets.
func storySampler(t *testing.T, change func(p *SamplingParams)) (*Context, *Sampler) {
	t.Helper()
	p := testParams("../../../shared/models/stories260K.gguf")
	if _, err := os.Stat(p.Model); err != nil {
		t.Skipf("%v: this test reads the shared model", err)
	}
	p.NCtx, p.Sampling.Temp = 256, 0
	m := openModel(t, p)
	c, err := NewContext(m, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.DecodePrompt(t.Context(), []Token{m.Vocab().BOS()}, 0, 0, nil); err != nil {
		t.Fatal(err)
	}
	change(&p.Sampling)
	s, err := NewSampler(m, &p.Sampling)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return c, s
}

// told lets the sampler accept a text as if it had been generated.
func told(t *testing.T, c *Context, s *Sampler, text string) {
	t.Helper()
	tokens, err := c.Model().Vocab().Tokenize(text, false, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range tokens {
		if err := s.Accept(id, true); err != nil {
			t.Fatalf("accept %q of %q: %v", c.Model().Vocab().Piece(id, true), text, err)
		}
	}
}

// next samples n tokens, all after the same logits, and returns their text.
func next(t *testing.T, c *Context, s *Sampler, n int) string {
	t.Helper()
	var b strings.Builder
	for range n {
		id, err := s.Sample(c, -1)
		if err != nil {
			t.Fatal(err)
		}
		if c.Model().Vocab().IsEOG(id) {
			return b.String()
		}
		b.Write(c.Model().Vocab().Piece(id, true))
		if err := s.Accept(id, true); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func TestLazyGrammar(t *testing.T) {
	lazy := func(p *SamplingParams) {
		p.Grammar = `root ::= "<call>" ("x" | "y") "</call>"`
		p.GrammarLazy, p.GrammarTriggers = true, []GrammarTrigger{{Type: 1, Value: "<call>"}}
	}
	c, s := storySampler(t, lazy)
	free := next(t, c, s, 3)
	if free == "" || strings.HasPrefix(free, "<") {
		t.Fatalf("before the trigger: %q", free)
	}
	told(t, c, s, "I will <call>")
	if got := next(t, c, s, 40); got != "x</call>" && got != "y</call>" {
		t.Errorf("after the trigger: %q", got)
	}
	// Reasoning may write the trigger and is free.
	c, s = storySampler(t, func(p *SamplingParams) {
		lazy(p)
		p.GenerationPrompt, p.ReasoningBudgetStart, p.ReasoningBudgetEnd = "<think>", "<think>", []string{"</think>"}
	})
	told(t, c, s, "I could <call>")
	if got := next(t, c, s, 3); got != free {
		t.Errorf("in reasoning: %q, want %q", got, free)
	}
	told(t, c, s, "</think>")
	told(t, c, s, "<call>")
	if got := next(t, c, s, 40); got != "x</call>" && got != "y</call>" {
		t.Errorf("after reasoning: %q", got)
	}
	// A pattern over the whole text.
	c, s = storySampler(t, func(p *SamplingParams) {
		lazy(p)
		p.GrammarTriggers = []GrammarTrigger{{Type: 3, Value: `[\s\S]*?(<call>)[\s\S]*`}}
	})
	told(t, c, s, strings.Repeat(" there", 300))
	told(t, c, s, "<call>")
	if got := next(t, c, s, 40); got != "x</call>" && got != "y</call>" {
		t.Errorf("after a pattern: %q", got)
	}
}

func TestReasoningBudget(t *testing.T) {
	for _, tt := range []struct {
		budget int
		msg    string
		want   string // how it ends
	}{{0, "", "</think>"}, {0, "Enough.", "Enough.</think>"}, {4, "", "</think>"}, {4, "Enough.", "Enough.</think>"}} {
		c, s := storySampler(t, func(p *SamplingParams) {
			p.GenerationPrompt, p.ReasoningBudgetStart, p.ReasoningBudgetEnd = "<think>", "<think>", []string{"</think>"}
			p.ReasoningBudgetTokens, p.ReasoningBudgetMessage = tt.budget, tt.msg
		})
		free := next(t, c, s, tt.budget)
		got := ""
		for range 40 {
			if got += next(t, c, s, 1); strings.HasSuffix(got, "</think>") {
				break
			}
		}
		if got = strings.ReplaceAll(got, " ", ""); got != tt.want || strings.Contains(free, "<") {
			t.Errorf("budget %d, %q: %q and then %q, want %q", tt.budget, tt.msg, free, got, tt.want)
		}
		if after := next(t, c, s, 2); strings.Contains(after, "<") {
			t.Errorf("budget %d: then %q", tt.budget, after)
		}
	}
}

func TestAnswerErrors(t *testing.T) {
	for _, tt := range []struct {
		change func(p *SamplingParams)
		want   string
	}{
		{func(p *SamplingParams) { p.Grammar, p.GrammarLazy = `root ::= "a"`, true }, "no triggers"},
		{func(p *SamplingParams) {
			p.Grammar, p.GrammarLazy, p.GrammarTriggers = `root ::= "a"`, true, []GrammarTrigger{{Type: 4}}
		}, "type 4, want 0 to 3"},
		{func(p *SamplingParams) {
			p.Grammar, p.GrammarLazy, p.GrammarTriggers = `root ::= "a"`, true, []GrammarTrigger{{Type: 2, Value: "("}}
		}, "new sampler: "},
		{func(p *SamplingParams) {
			p.Grammar, p.GrammarOfChat, p.GenerationPrompt = `root ::= "a"`, true, "x y z"
		}, "new sampler: "},
		{func(p *SamplingParams) { p.ReasoningBudgetTokens = -2 }, "--reasoning-budget"},
	} {
		p := testParams("../../../shared/models/stories260K.gguf")
		if _, err := os.Stat(p.Model); err != nil {
			t.Skipf("%v: this test reads the shared model", err)
		}
		m := openModel(t, p)
		tt.change(&p.Sampling)
		s, err := NewSampler(m, &p.Sampling)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v, want %q", p.Sampling.GrammarTriggers, err, tt.want)
		}
		_ = s.Close()
	}
}
