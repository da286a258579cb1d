//go:build cgo

package completion

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"gollama/internal/engine"
)

const stories = "../../../shared/models/stories260K.gguf"

// storiesModel is loaded once; it is small and stays until the process ends.
var storiesModel *engine.Model

// onStories runs a completion on stories260K at temperature 0.
func onStories(t *testing.T, nCtx int, opt Options, change func(*engine.Params)) (Result, error) {
	t.Helper()
	if _, err := os.Stat(stories); err != nil {
		t.Skipf("%v: this test reads the shared model", err)
	}
	p := engine.DefaultParams()
	p.Model, p.NCtx, p.Warmup, p.Sampling.Temp = stories, nCtx, false, 0
	p.CPUParams.NThreads = 1
	if change != nil {
		change(&p)
	}
	if storiesModel == nil {
		m, err := engine.LoadModel(t.Context(), &p)
		if err != nil {
			t.Fatal(err)
		}
		storiesModel = m
	}
	c, err := engine.NewContext(storiesModel, &p)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	s, err := engine.NewSampler(storiesModel, &p.Sampling)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	opt.ParseSpecial = true
	e := Engine[*engine.Context]{Vocab: storiesModel.Vocab(), Context: c, Sampler: s}
	return Generate(context.WithoutCancel(t.Context()), e, opt, nil)
}

// The answers of the tests below are those of llama.cpp v0.5.0, measured with
// its llama-completion on the same model and prompt.
const lily = ", there was a little girl named Lily. She loved to play outside in the park. One day, she saw"

func TestStoriesStops(t *testing.T) {
	long := ", there was a little girl named Lily. She loved to play outside in the park. One day, she saw a big, red ball."
	for _, tt := range []struct {
		prompt string
		n      int
		stops  []string
		want   string
		reason string
	}{
		{"Once upon a time", 32, nil, lily, FinishLength},
		{"Once upon a time", 60, []string{"Lily"}, ", there was a little girl named ", FinishStop},
		{"Once upon a time", 60, []string{"ittl"}, ", there was a l", FinishStop},
		{"Once upon a time", 60, []string{"zzz", "Lily"}, ", there was a little girl named ", FinishStop},
		{"Once upon a time", 60, []string{long}, "", FinishStop},
		{"", 16, nil, " Once upon a time, there was a little girl named Lily. She", FinishLength},
	} {
		r, err := onStories(t, 512, Options{Prompt: tt.prompt, NPredict: tt.n, Stop: tt.stops}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.Text != tt.want || r.FinishReason != tt.reason {
			t.Errorf("%q, stops %q: got %q, %s, want %q, %s", tt.prompt, tt.stops, r.Text, r.FinishReason, tt.want, tt.reason)
		}
	}
	r, err := onStories(t, 512, Options{Prompt: "Once upon a time.", NPredict: 8, Stop: []string{"time."}}, nil)
	if err != nil || r.Text == "" || r.FinishReason != FinishLength {
		t.Errorf("stop in the prompt: got %q, %s, %v, want text", r.Text, r.FinishReason, err)
	}
}

func TestStoriesContext(t *testing.T) {
	r, err := onStories(t, 256, Options{Prompt: "Once upon a time", NPredict: -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const want = "6c4769b845e936b638cf9c9011cdb0dba5d608cf78e9e9e5673a607d89221a62"
	if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(r.Text))); sum != want || len(r.Text) != 548 ||
		r.Usage.CompletionTokens != 251 || r.FinishReason != FinishContext {
		t.Errorf("got %d bytes, %s, %d tokens, %s, want 548 bytes, %s, 251 tokens, context",
			len(r.Text), sum, r.Usage.CompletionTokens, r.FinishReason, want)
	}
	dogs := strings.Repeat("Once upon a time there was a dog. ", 60)
	if r, err := onStories(t, 512, Options{Prompt: dogs[:700], NPredict: 1}, nil); err != nil || r.Usage.PromptTokens != 206 {
		t.Errorf("got %d prompt tokens, %v, want 206", r.Usage.PromptTokens, err)
	}
	_, err = onStories(t, 256, Options{Prompt: dogs, NPredict: 1}, nil)
	var long *PromptTooLongError
	if !errors.As(err, &long) || *long != (PromptTooLongError{602, 252}) {
		t.Errorf("got %v, want 602 tokens, limit 252", err)
	}
}

func TestStoriesLogprobs(t *testing.T) {
	r, err := onStories(t, 512, Options{Prompt: "Once upon a time", NPredict: 16, NProbs: 3, PromptLogprobs: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	near := func(what string, c Candidate, id engine.Token, want float64) {
		t.Helper()
		// 2e-3: the tolerance of the reference, whose kernels may round differently.
		if c.ID != id || c.Logprob == nil || math.Abs(*c.Logprob-want) > 2e-3 {
			t.Errorf("%s: got %d %v, want %d %v", what, c.ID, c.Logprob, id, want)
		}
	}
	if len(r.PromptLogprobs) != 5 || r.PromptLogprobs[0].ID != 1 {
		t.Fatalf("prompt: got %+v", r.PromptLogprobs)
	}
	for i, want := range []struct {
		id engine.Token
		lp float64
	}{{403, -0.2438}, {407, -0.0175}, {261, -0.0121}, {378, -0.0007}} {
		near("prompt", r.PromptLogprobs[i+1].Candidate, want.id, want.lp)
	}
	top := r.Logprobs[0].Top
	near("top 1", top[0], 432, -0.0318)
	near("top 2", top[1], 383, -3.5473)
	near("top 3", top[2], 322, -8.1195)
	sum := 0.0
	for _, lp := range r.Logprobs {
		sum += *lp.Logprob
	}
	if math.Abs(sum+2.1802) > 2e-3 {
		t.Errorf("sum of 16 is %v, want -2.1802", sum)
	}
}

func TestStoriesSampling(t *testing.T) {
	for name, tt := range map[string]struct {
		n      int
		change func(*engine.Params)
		want   string
	}{
		"seed": {32, func(p *engine.Params) { p.Sampling.Temp, p.Sampling.Seed = 0.8, 1 },
			", there was a little girl named Lily. She loved to eat paper with her favorite coat"},
		"bias": {16, func(p *engine.Params) { p.Sampling.LogitBias = []engine.LogitBias{{Token: 317, Bias: -100}} },
			", there was a little girl named Amy. She loved"},
		"top-k 1": {32, func(p *engine.Params) { p.Sampling.Temp, p.Sampling.TopK, p.Sampling.Seed = 0.8, 1, 7 }, lily},
		"batch 1": {32, func(p *engine.Params) { p.NBatch = 1 }, lily},
	} {
		r, err := onStories(t, 512, Options{Prompt: "Once upon a time", NPredict: tt.n}, tt.change)
		if err != nil || r.Text != tt.want {
			t.Errorf("%s: got %q, %v, want %q", name, r.Text, err, tt.want)
		}
	}
}

// TestStoriesShift goes round a context of 256 tokens more than twice.
func TestStoriesShift(t *testing.T) {
	r, err := onStories(t, 256, Options{Prompt: "Once upon a time", NPredict: 600, Overflow: OverflowShift},
		func(p *engine.Params) { p.Sampling.IgnoreEOS = true })
	if err != nil || r.Usage.CompletionTokens != 600 || !r.Truncated || !strings.HasPrefix(r.Text, lily) {
		t.Errorf("got %d tokens, truncated %v, %v, want 600, true", r.Usage.CompletionTokens, r.Truncated, err)
	}
}
