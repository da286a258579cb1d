//go:build cgo

package completion

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"gollama/internal/engine"
)

// specModel is a model with a speculator over it, and its parameters.
type specModel struct {
	m *engine.Model
	p engine.Params
}

func openSpec(t *testing.T, path string) *specModel {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%v: this test reads the shared model", err)
	}
	p := engine.DefaultParams()
	p.Model, p.Warmup, p.NCtx, p.CPUParams.NThreads = path, false, 512, 1
	p.CacheTypeK, p.CacheTypeV, p.FlashAttnType = engine.CacheF32, engine.CacheF32, engine.FlashAttnOff
	m, err := engine.LoadModel(t.Context(), &p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return &specModel{m, p}
}

// context returns a context of np sequences, and what guesses tokens in it, in the ways of types.
func (s *specModel) context(t *testing.T, np int, draft *engine.Model, types ...engine.SpecType) (*engine.Context, *engine.Speculator) {
	t.Helper()
	p := s.p
	p.NParallel, p.NCtx = np, np*s.p.NCtx
	p.Speculative.Types = types
	p.Speculative.Draft.Model, p.Speculative.Draft.CacheTypeK, p.Speculative.Draft.CacheTypeV = stories, p.CacheTypeK, p.CacheTypeV
	p.Speculative.NgramSimple = engine.NgramParams{SizeN: 3, SizeM: 8, MinHits: 1}
	p.Speculative.NgramMapK = p.Speculative.NgramSimple
	p.Speculative.NgramMapK4V = p.Speculative.NgramSimple
	p.Speculative.NgramMod = engine.NgramModParams{NMatch: 3, NMax: 8, NMin: 1}
	c, err := engine.NewContext(s.m, &p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if len(types) == 0 {
		return c, nil
	}
	sp, err := engine.NewSpeculator(c, draft, &p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sp.Close() })
	return c, sp
}

// generate makes one text in a context of its own.
func (s *specModel) generate(t *testing.T, draft *engine.Model, opt Options, sampling engine.SamplingParams, types ...engine.SpecType) Result {
	t.Helper()
	c, sp := s.context(t, 1, draft, types...)
	smpl, err := engine.NewSampler(s.m, &sampling)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = smpl.Close() }()
	e := Engine[*engine.Context]{Vocab: s.m.Vocab(), Context: c, Sampler: smpl}
	if sp != nil {
		e.Speculator = sp
	}
	opt.ParseSpecial = true
	res, err := Generate(context.Background(), e, opt, nil)
	if err != nil {
		t.Fatal(err)
	}
	if end := c.SeqPosMax(0); end >= res.NCtx || opt.Overflow == OverflowError && end+1 > res.Usage.PromptTokens+res.Usage.CompletionTokens {
		t.Errorf("%v: the context ends at position %d: %+v", types, end, res.Usage)
	}
	return res
}

// apart returns by how much log-probabilities differ at most.
func apart(a, b []TokenLogprob) float64 {
	most := 0.0
	for i := range a {
		if i >= len(b) || a[i].ID != b[i].ID {
			return math.Inf(1)
		}
		most = max(most, math.Abs(*a[i].Logprob-*b[i].Logprob))
	}
	return most
}

var allSpecTypes = []engine.SpecType{engine.SpecNgramSimple, engine.SpecNgramMapK, engine.SpecNgramMapK4V, engine.SpecNgramMod,
	engine.SpecNgramCache, engine.SpecDraftSimple}

// TestStoriesSpeculation: guesses of every kind leave the text as it is: at
// temperature 0 and above, to the last token that fits, with stop strings, a
// grammar and a shift. Model, cache and attention are F32: there the logits of
// a batch of one and of more differ by some 1e-5, so log-probabilities may by
// 1e-4. Flash attention has F16 inside, which makes 3e-3 of that by rounding
// the other way now and then, and a text of this model another one at times.
func TestStoriesSpeculation(t *testing.T) {
	s := openSpec(t, stories)
	rewrite := strings.Repeat("Once upon a time, there was a little girl named Lily. She loved to play outside in the park. ", 2)
	greedy := engine.DefaultSamplingParams()
	greedy.Temp = 0
	warm := engine.DefaultSamplingParams()
	warm.Seed, warm.PenaltyRepeat = 7, 1.1
	bound := greedy
	bound.Grammar = `root ::= (" " [a-z]+){1,30} "."`
	for name, x := range map[string]struct {
		opt      Options
		sampling engine.SamplingParams
	}{
		"greedy":  {Options{Prompt: rewrite, NPredict: 100, NProbs: 2}, greedy},
		"warm":    {Options{Prompt: rewrite, NPredict: 100, NProbs: 2}, warm},
		"full":    {Options{Prompt: "Once upon a time", NPredict: -1}, func() engine.SamplingParams { p := greedy; p.IgnoreEOS = true; return p }()},
		"stop":    {Options{Prompt: rewrite, NPredict: 300, Stop: []string{"She loved to play outside in the"}}, greedy},
		"grammar": {Options{Prompt: "Once", NPredict: 200, Grammar: true}, bound},
		"shift":   {Options{Prompt: "Once upon a time", NPredict: 600, Overflow: OverflowShift, Keep: 4}, func() engine.SamplingParams { p := greedy; p.IgnoreEOS = true; return p }()},
	} {
		want := s.generate(t, nil, x.opt, x.sampling)
		for _, typ := range allSpecTypes {
			got := s.generate(t, s.m, x.opt, x.sampling, typ)
			if got.Text != want.Text || got.FinishReason != want.FinishReason || got.Stop != want.Stop || got.Usage != want.Usage || got.Truncated != want.Truncated {
				t.Errorf("%s, %v: got %q, %s %+v\nwant %q, %s %+v", name, typ, got.Text, got.FinishReason, got.Usage, want.Text, want.FinishReason, want.Usage)
			}
			if d := apart(want.Logprobs, got.Logprobs); d > 1e-4 {
				t.Errorf("%s, %v: log-probabilities differ by %g", name, typ, d)
			}
			n, came := got.Timings.DraftN, got.Timings.DraftNAccepted
			t.Logf("%s, %v: %d of %d guesses came, %d tokens", name, typ, came, n, got.Usage.CompletionTokens)
			switch {
			case came > n, name == "full" && came == 0:
				t.Errorf("%s, %v: %d of %d guesses came", name, typ, came, n)
			case typ == engine.SpecDraftSimple && name == "greedy" && came != n:
				t.Errorf("the model guesses itself wrong: %d of %d", came, n)
			}
		}
	}
}

// TestStoriesSlotsSpeculate: the texts of records are the same with guesses,
// for 1, 3 and 8 slots, with a shared prefix and several texts of one prompt.
func TestStoriesSlotsSpeculate(t *testing.T) {
	s := openSpec(t, stories)
	sampling := engine.DefaultSamplingParams()
	sampling.Temp = 0
	var list []*Request
	for i, p := range []string{"Once upon a time", "The dog", "One day, a big", "She was very", "Tom and Sam", "A cat", "The sun", "It was a cold day"} {
		r := request(fmt.Sprint(i), p, 10+8*i)
		r.Sampling, r.ParseSpecial, r.N = sampling, true, 1+i%2
		if i == 5 {
			r.NPredict, r.Overflow, r.Sampling.IgnoreEOS = 300, OverflowShift, true
		}
		list = append(list, r)
	}
	run := func(np int, prefix string, types ...engine.SpecType) (map[string]Reply, SlotStats) {
		c, sp := s.context(t, np+1, s.m, types...)
		cfg := SlotConfig[*engine.Context]{Vocab: s.m.Vocab(), Context: c, Parallel: np, Prefix: prefix,
			NewSampler: func(p *engine.SamplingParams) (SlotSampler[*engine.Context], error) { return engine.NewSampler(s.m, p) }}
		if sp != nil {
			cfg.Speculator = sp
		}
		slots, err := NewSlots(cfg)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]Reply{}
		if err := slots.Run(t.Context(), requests(list), func(r Reply) error { got[r.ID] = r; return nil }); err != nil {
			t.Fatal(err)
		}
		return got, slots.Stats()
	}
	s.p.NCtx = 256
	for _, prefix := range []string{"", "Lily had a friend. "} {
		want, _ := run(1, prefix)
		for np, types := range map[int][]engine.SpecType{1: allSpecTypes, 3: {engine.SpecNgramCache, engine.SpecNgramMod}, 8: {engine.SpecDraftSimple}} {
			got, st := run(np, prefix, types...)
			if st.ConfirmedTokens == 0 || st.ConfirmedTokens > st.GuessedTokens {
				t.Errorf("%d slots, %v: %d of %d guesses came", np, types, st.ConfirmedTokens, st.GuessedTokens)
			}
			for id, w := range want {
				for k, r := range w.Results {
					if g := got[id]; g.Err != nil || g.Results[k].Text != r.Text || g.Results[k].FinishReason != r.FinishReason {
						t.Errorf("%d slots, %v, %s: got %v %q\nwant %q", np, types, id, g.Err, g.Results[k].Text, r.Text)
					}
				}
			}
		}
	}
}

// TestSpeculationRounding says by how much log-probabilities differ with
// guesses and without, in a cache of F16; infinitely if two tokens that are
// almost equally likely change places. For another model: -args -model FILE.
func TestSpeculationRounding(t *testing.T) {
	s := openSpec(t, *roundingModel)
	sampling := engine.DefaultSamplingParams()
	sampling.Temp, sampling.IgnoreEOS = 0, true
	text := "the dog was in a big red box and she saw him play with it one day. "
	s.p.NCtx, s.p.CacheTypeK, s.p.CacheTypeV = 1024, engine.CacheF16, engine.CacheF16
	for _, x := range []struct {
		fa engine.FlashAttnType
		n  int // repetitions
	}{{engine.FlashAttnOn, 4}, {engine.FlashAttnOn, 34}, {engine.FlashAttnOff, 4}} {
		s.p.FlashAttnType = x.fa
		opt := Options{Prompt: strings.Repeat(text, x.n), NPredict: 24, NProbs: 1}
		want := s.generate(t, nil, opt, sampling)
		got := s.generate(t, s.m, opt, sampling, engine.SpecDraftSimple) // its own draft: nearly all comes
		d := apart(want.Logprobs, got.Logprobs)
		t.Logf("flash attention %v, prompt of %d tokens: %.2g; %d of %d guesses came", x.fa, got.Usage.PromptTokens, d,
			got.Timings.DraftNAccepted, got.Timings.DraftN)
		if got.Timings.DraftNAccepted == 0 || got.Usage != want.Usage || d > 1e-2 && *roundingModel == stories {
			t.Errorf("got %+v, want %+v; log-probabilities differ by %g", got.Usage, want.Usage, d)
		}
	}
}
