//go:build cgo

package completion

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"gollama/internal/engine"
)

// With another model the tests below say what its kernels do:
// go test ./internal/completion -run Rounding -v -args -model FILE
var roundingModel = flag.String("model", stories, "model of the Rounding tests")

// slotsOn runs requests in np slots of a model and returns the replies by id.
func slotsOn(t *testing.T, m *engine.Model, np, nCtx int, deterministic bool, list []*Request, change func(p *engine.Params)) map[string]Reply {
	t.Helper()
	p := engine.DefaultParams()
	p.Warmup, p.NParallel, p.NCtx = false, np, np*nCtx
	if change != nil {
		change(&p)
	}
	c, err := engine.NewContext(m, &p)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	s, err := NewSlots(SlotConfig[*engine.Context]{Vocab: m.Vocab(), Context: c, Parallel: np, Deterministic: deterministic,
		NewSampler: func(p *engine.SamplingParams) (SlotSampler[*engine.Context], error) { return engine.NewSampler(m, p) }})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]Reply{}
	if err := s.Run(context.Background(), requests(list), func(r Reply) error { got[r.ID] = r; return nil }); err != nil {
		t.Fatal(err)
	}
	return got
}

// roundingRequests are answers of 12 tokens with their log-probabilities, to
// prompts of 5 to 150 tokens, and neighbours of which some are long.
func roundingRequests(neighbours int) []*Request {
	words := strings.Fields("the dog was in a big red box and she saw him play with it one day")
	rnd := rand.New(rand.NewPCG(3, 4))
	text := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteString(words[rnd.IntN(len(words))] + " ")
		}
		return b.String()
	}
	sampling := engine.DefaultSamplingParams()
	sampling.Temp, sampling.IgnoreEOS = 0, true
	var list []*Request
	for i, n := range []int{3, 9, 14, 40, 120} {
		r := request(fmt.Sprint("r", i), text(n), 12)
		r.NProbs, r.Sampling = 1, sampling
		list = append(list, r)
	}
	for i := range neighbours {
		r := request(fmt.Sprint("n", i), text([]int{5, 60, 350, 17}[i%4]), 3+7*(i%5))
		r.Sampling = sampling
		list = append(list, r)
	}
	return list
}

// furthest returns by how much the log-probabilities of r0 to r4 differ at
// most, infinity for other tokens.
func furthest(a, b map[string]Reply) float64 {
	most := 0.0
	for i := range 5 {
		x, y := a[fmt.Sprint("r", i)].Results[0].Logprobs, b[fmt.Sprint("r", i)].Results[0].Logprobs
		for k := range x {
			if k >= len(y) || x[k].ID != y[k].ID {
				return math.Inf(1)
			}
			most = max(most, math.Abs(*x[k].Logprob-*y[k].Logprob))
		}
	}
	return most
}

// TestRounding: under Deterministic the bits of a text's log-probabilities do
// not depend on the number of slots, the neighbours and the order; without, they
// may, and by how much is logged.
func TestRounding(t *testing.T) {
	if _, err := os.Stat(*roundingModel); err != nil {
		t.Skipf("%v: this test reads the shared model", err)
	}
	p := engine.DefaultParams()
	p.Model = *roundingModel
	m, err := engine.LoadModel(t.Context(), &p)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	for _, fa := range []engine.FlashAttnType{engine.FlashAttnOn, engine.FlashAttnOff} {
		change := func(p *engine.Params) { p.FlashAttnType = fa }
		for _, det := range []bool{true, false} {
			few := roundingRequests(0)
			ref := slotsOn(t, m, PinnedRows, 1024, det, few, change)
			alone := map[string]Reply{}
			for _, r := range few {
				maps.Copy(alone, slotsOn(t, m, PinnedRows, 1024, det, []*Request{r}, change))
			}
			d := furthest(ref, alone)
			t.Logf("flash attention %v, deterministic %v, one text in all: %.2g", fa, det, d)
			if det && d != 0 {
				t.Errorf("flash attention %v, one text in all: log-probabilities differ by %g", fa, d)
			}
			for _, np := range []int{1, 2, 8, 16, 32} {
				if det && np%PinnedRows != 0 {
					continue
				}
				list := roundingRequests(3 * np / 2)
				rand.New(rand.NewPCG(uint64(np), 1)).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
				d := furthest(ref, slotsOn(t, m, np, 1024, det, list, change))
				t.Logf("flash attention %v, deterministic %v, %d slots: %.2g", fa, det, np, d)
				if det && d != 0 {
					t.Errorf("flash attention %v, %d slots: log-probabilities differ by %g", fa, np, d)
				}
			}
		}
	}
}

// TestStoriesSlots: what is made in slots is what llama.cpp's own tool answers, with a shared prefix too.
func TestStoriesSlots(t *testing.T) {
	if _, err := os.Stat(stories); err != nil {
		t.Skipf("%v: this test reads the shared model", err)
	}
	p := engine.DefaultParams()
	p.Model = stories
	m, err := engine.LoadModel(t.Context(), &p)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	sampling := engine.DefaultSamplingParams()
	sampling.Temp = 0
	var list []*Request
	for i := range 6 {
		r := request(fmt.Sprint(i), "Once upon a time", 32)
		r.Sampling, r.ParseSpecial, r.N = sampling, true, 1+i%3
		list = append(list, r)
	}
	for id, r := range slotsOn(t, m, 4, 512, false, list, nil) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		for _, res := range r.Results {
			if res.Text != lily || res.FinishReason != FinishLength {
				t.Errorf("%s: got %q, %s, want %q", id, res.Text, res.FinishReason, lily)
			}
		}
	}
	// A shift in one slot leaves the others alone.
	shift := request("shift", "Once upon a time", 600)
	shift.Sampling, shift.Overflow = sampling, OverflowShift
	shift.Sampling.IgnoreEOS = true
	got := slotsOn(t, m, 3, 256, false, append(list, shift), nil)
	if r := got["shift"]; r.Err != nil || r.Results[0].Usage.CompletionTokens != 600 || !strings.HasPrefix(r.Results[0].Text, lily) {
		t.Errorf("shift: got %+v", r)
	}
	if r := got["5"]; r.Err != nil || r.Results[2].Text != lily {
		t.Errorf("beside a shift: got %+v", r)
	}
}

func TestKVBytes(t *testing.T) {
	if _, err := os.Stat(stories); err != nil {
		t.Skipf("%v: this test reads the shared model", err)
	}
	f := openStories(t)
	p := engine.DefaultParams()
	p.Model = stories
	m, err := engine.LoadModel(t.Context(), &p)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	// llama.cpp's own number, from its log.
	var size float64
	engine.SetLogger(engine.LogDebug, func(_ int, text string) {
		if _, rest, ok := strings.Cut(text, "KV buffer size ="); ok {
			var n float64
			if _, err := fmt.Sscan(rest, &n); err == nil {
				size += n
			}
		}
	})
	defer engine.SetLogger(0, nil)
	p.NCtx, p.NParallel = 4096, 2
	c, err := engine.NewContext(m, &p)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if got := float64(2*KVBytes(f.KVs, 2048, p.CacheTypeK, p.CacheTypeV)) / (1 << 20); math.Abs(got-size) > 0.01 || size == 0 {
		t.Errorf("got %.2f MiB, llama.cpp allocates %.2f", got, size)
	}
}
