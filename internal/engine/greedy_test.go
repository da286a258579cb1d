//go:build cgo

package engine

import "testing"

// TestGreedyIsTheChain compares the short way at temperature 0 with the chain of samplers, which a penalty too small to
// change a logit forces.
func TestGreedyIsTheChain(t *testing.T) {
	params := testParams(needStory(t))
	m := openModel(t, params)
	c := openContext(t, m, params)
	for i, change := range []func(*SamplingParams){
		func(*SamplingParams) {},
		func(p *SamplingParams) { p.IgnoreEOS = true },
		func(p *SamplingParams) { p.LogitBias = []LogitBias{{Token: 432, Bias: -100}, {Token: 403, Bias: -100}} }, // ", the"
		func(p *SamplingParams) { p.TopK = 1 },
		func(p *SamplingParams) { p.TopNSigma = 1 },
	} {
		short := params.Sampling
		change(&short)
		chain := short
		chain.PenaltyFreq = 1e-30
		got, want := generate(t, c, &short, "Once upon a time", 64), generate(t, c, &chain, "Once upon a time", 64)
		if got != want {
			t.Errorf("case %d: short way %q, chain %q", i, got, want)
		}
	}
}
