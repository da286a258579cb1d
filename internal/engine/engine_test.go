//go:build cgo

package engine

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const storyPath = "../../../shared/models/stories260K.gguf"

// story is what llama.cpp writes after "Once upon a time" at temperature 0.
const story = ", there was a little girl named Lily. She loved to play outside in the park. One day, she saw"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(playRole(role))
	}
	code := m.Run()
	if n := live.Load(); n != 0 && code == 0 {
		os.Stderr.WriteString("a model, context or sampler was not closed\n")
		code = 1
	}
	os.Exit(code)
}

// needStory returns the path of the shared story model.
func needStory(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(storyPath); err != nil {
		t.Skipf("%s is not there", filepath.Clean(storyPath))
	}
	return storyPath
}

// testParams are defaults for small models: two threads, no warm-up.
func testParams(path string) *Params {
	p := DefaultParams()
	p.Model = path
	p.Warmup = false
	p.CPUParams.NThreads = 2
	p.Sampling.Temp = 0
	return &p
}

func openModel(t testing.TB, p *Params) *Model {
	t.Helper()
	m, err := LoadModel(context.Background(), p)
	if err != nil {
		t.Fatalf("LoadModel: %v", err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func openContext(t *testing.T, m *Model, p *Params) *Context {
	t.Helper()
	c, err := NewContext(m, p)
	if err != nil {
		t.Fatalf("NewContext: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// generate samples n tokens after prompt with p's sampler.
func generate(t *testing.T, c *Context, sp *SamplingParams, prompt string, n int) string {
	t.Helper()
	v := c.Model().Vocab()
	tokens, err := v.Tokenize(prompt, true, false)
	if err != nil {
		t.Fatalf("Tokenize: %v", err)
	}
	s, err := NewSampler(c.Model(), sp)
	if err != nil {
		t.Fatalf("NewSampler: %v", err)
	}
	defer s.Close()
	ctx := context.Background()
	c.ClearMemory()
	if err := c.DecodePrompt(ctx, tokens, 0, 0, nil); err != nil {
		t.Fatalf("DecodePrompt: %v", err)
	}
	var out []byte
	pos := len(tokens)
	for range n {
		id, err := s.Sample(c, -1)
		if err != nil {
			t.Fatalf("Sample: %v", err)
		}
		if err := s.Accept(id, true); err != nil {
			t.Fatalf("Accept: %v", err)
		}
		if v.IsEOG(id) {
			break
		}
		out = append(out, v.Piece(id, false)...)
		if err := c.DecodePrompt(ctx, []Token{id}, pos, 0, nil); err != nil {
			t.Fatalf("decode: %v", err)
		}
		pos++
	}
	return string(out)
}

func TestGreedyStory(t *testing.T) {
	path := needStory(t)
	tests := []struct {
		name string
		set  func(*Params)
	}{
		{"defaults", func(*Params) {}},
		{"warmup", func(p *Params) { p.Warmup = true }},
		{"one thread", func(p *Params) { p.CPUParams.NThreads = 1 }},
		{"flash attention", func(p *Params) { p.FlashAttnType = FlashAttnOn }},
		{"no flash attention", func(p *Params) { p.FlashAttnType = FlashAttnOff }},
		{"batch of 1", func(p *Params) { p.NBatch = 1 }},
		{"f32 cache", func(p *Params) { p.CacheTypeK, p.CacheTypeV = CacheF32, CacheF32 }},
		{"two pools and a mask", func(p *Params) { p.CPUParamsBatch.NThreads = 1; p.CPUParams.CPUMask = []int{0} }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := testParams(path)
			tt.set(p)
			c := openContext(t, openModel(t, p), p)
			if got := generate(t, c, &p.Sampling, "Once upon a time", 32); got != story {
				t.Errorf("generated %q, want %q", got, story)
			}
		})
	}
}

func TestStoryTokens(t *testing.T) {
	p := testParams(needStory(t))
	p.VocabOnly = true
	v := openModel(t, p).Vocab()
	got, err := v.Tokenize("Once upon a time", true, false)
	if want := []Token{1, 403, 407, 261, 378}; err != nil || !slices.Equal(got, want) {
		t.Errorf("Tokenize = %v, %v, want %v", got, err, want)
	}
	if text := string(v.Detokenize(got, false)); text != " Once upon a time" {
		t.Errorf("Detokenize = %q", text)
	}
}

func TestPromptLogprobs(t *testing.T) {
	p := testParams(needStory(t))
	c := openContext(t, openModel(t, p), p)
	tokens := []Token{1, 403, 407, 261, 378}
	var got []float64
	err := c.DecodeLogits(context.Background(), tokens, 0, 0, func(i int, l []float32) error {
		if i+1 < len(tokens) {
			sum := 0.0
			for _, x := range l {
				sum += math.Exp(float64(x - slices.Max(l)))
			}
			got = append(got, float64(l[tokens[i+1]]-slices.Max(l))-math.Log(sum))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// llama.cpp's own, in float32 with an f16 cache: hence the tolerance.
	for i, want := range []float64{-0.2438, -0.0175, -0.0121, -0.0007} {
		if math.Abs(got[i]-want) > 2e-3 {
			t.Errorf("logprob %d = %.4f, want %.4f", i, got[i], want)
		}
	}
}

// A prompt that is longer than the model's training length of 128 must be
// chunked by what the context says, not by what was asked for.
func TestLongPrompt(t *testing.T) {
	p := testParams(needStory(t))
	m := openModel(t, p)
	c := openContext(t, m, p)
	var done int
	if err := c.DecodePrompt(context.Background(), slices.Repeat([]Token{403}, 206), 0, 0, func(n int) { done = n }); err != nil || done != 206 {
		t.Errorf("DecodePrompt = %v after %d tokens of n_batch %d", err, done, c.NBatch())
	}
	c.ClearMemory()
	if err := c.DecodePrompt(context.Background(), slices.Repeat([]Token{403}, c.NCtx()+1), 0, 0, nil); err == nil {
		t.Error("a prompt longer than the context is accepted")
	}
}

func TestTokenizeLongRun(t *testing.T) {
	p := testParams("../../.engine/src/models/ggml-vocab-deepseek-llm.gguf")
	if _, err := os.Stat(p.Model); err != nil {
		t.Skipf("the engine's vocabularies are not there: %v", err)
	}
	p.VocabOnly = true
	m := openModel(t, p)
	tokens, err := m.Vocab().Tokenize(strings.Repeat("a", 3000000), true, false)
	if err != nil || len(tokens) < 100000 {
		t.Errorf("Tokenize = %d tokens, %v", len(tokens), err)
	}
	if _, err := NewContext(m, p); err == nil {
		t.Error("a context without weights is made")
	}
}

func TestGrammar(t *testing.T) {
	for gbnf, want := range map[string]string{
		`root ::= "a" | [0-9]+`: "", `root ::= <think> "a"`: "",
		`root ::= foo`: "rule 'foo' is not defined", `x ::= "a"`: "it has no rule named root",
		`root ::= root "a"`: "left side", `root ::= "a`: "unexpected end", ``: "it has no rules", "%llguidance {}": "llguidance",
		`root ::= ` + strings.Repeat("(", 200000): "grammar",
	} {
		err := CheckGrammar(gbnf)
		if (want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("CheckGrammar(%.30q) = %v, want %q", gbnf, err, want)
		}
	}
	p := testParams(writeTiny(t))
	c := openContext(t, openModel(t, p), p)
	p.Sampling.Grammar = `root ::= "yes" | "no"`
	if got := generate(t, c, &p.Sampling, "a", 10); got != "yes" && got != "no" {
		t.Errorf("generated %q", got)
	}
	p.Sampling.Grammar, p.Sampling.JSONSchema = "", `{"enum":["x","y"]}`
	if got := generate(t, c, &p.Sampling, "a", 10); got != `"x"` && got != `"y"` {
		t.Errorf("generated %q", got)
	}
}

func TestSampler(t *testing.T) {
	p := testParams(writeTiny(t))
	m := openModel(t, p)
	sp := DefaultSamplingParams()
	sp.LogitBias = []LogitBias{{Token: tinyVocab, Bias: 1}}
	if _, err := NewSampler(m, &sp); err == nil || !strings.Contains(err.Error(), "--logit-bias") {
		t.Errorf("a bias of an unknown token: %v", err)
	}
	sp.LogitBias = nil
	s, err := NewSampler(m, &sp)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Seed() == RandomSeed || s.Describe() == "" {
		t.Errorf("Seed = %d, Describe = %q", s.Seed(), s.Describe())
	}
	sp.Seed = 7
	c := openContext(t, m, p)
	if a, b := generate(t, c, &sp, "abc", 20), generate(t, c, &sp, "abc", 20); a != b {
		t.Errorf("one seed gives %q and %q", a, b)
	}
	if _, err := s.Sample(c, 17); err == nil {
		t.Error("a row without output is sampled")
	}
	if s.Accept(-1, true) == nil || s.Accept(tinyVocab, true) == nil {
		t.Error("a token outside the vocabulary is accepted")
	}
}

func TestLogger(t *testing.T) {
	var lines []string
	SetLogger(LogDebug, func(level int, text string) { lines = append(lines, text) })
	defer SetLogger(0, nil)
	openModel(t, testParams(writeTiny(t)))
	if len(lines) < 10 || strings.Contains(strings.Join(lines, ""), "\n") {
		t.Errorf("%d log lines", len(lines))
	}
}
