package completion

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"gollama/internal/engine"
)

// cellSpeculator guesses what a cellContext says next, from the texts that it
// is told of alone, now and then wrongly. It reports calls out of order and
// texts that are not what the context holds.
type cellSpeculator struct {
	fail    func(string, ...any)
	c       *cellContext
	rnd     *rand.Rand
	wrong   int // one token in so many is wrong; 0: none is
	history map[int][]engine.Token
	open    map[int][]engine.Token
	asked   int
	right   int // accepted
	moved   int
}

func newGuesser(fail func(string, ...any), c *cellContext, wrong int) *cellSpeculator {
	return &cellSpeculator{fail: fail, c: c, rnd: rand.New(rand.NewPCG(1, uint64(wrong))), wrong: wrong,
		history: map[int][]engine.Token{}, open: map[int][]engine.Token{}}
}

func (s *cellSpeculator) Begin(seq int, tokens []engine.Token) error {
	s.history[seq] = slices.Clone(tokens)
	delete(s.open, seq)
	return nil
}

func (s *cellSpeculator) Move(from, to int) error {
	if len(s.open[from]) > 0 {
		s.fail("sequence %d moves with a guess", from)
	}
	s.moved++
	return s.Begin(to, s.history[from])
}

func (s *cellSpeculator) Speculate(list []engine.Guess) error {
	for i := range list {
		g := &list[i]
		h := s.history[g.Seq]
		if len(s.open[g.Seq]) > 0 {
			s.fail("sequence %d: a guess is not accepted yet", g.Seq)
		}
		if cells := s.c.seqs[g.Seq]; len(cells) != g.Pos || len(h) == g.Pos && !slices.Equal(h, cells) {
			s.fail("sequence %d: told of %v, the context holds %v", g.Seq, h, cells)
		}
		h = append(h, g.Last)
		s.history[g.Seq] = h
		for range s.rnd.IntN(max(g.Max, 0) + 1) {
			s.c.seqs[-1] = append(slices.Clone(h), g.Tokens...)
			t := topN(s.c.after(-1), 1)[0].id
			if s.wrong > 0 && s.rnd.IntN(s.wrong) == 0 {
				t = 'z'
			}
			g.Tokens = append(g.Tokens, t)
		}
		delete(s.c.seqs, -1)
		if len(g.Tokens) > 0 {
			s.open[g.Seq] = g.Tokens
		}
		s.asked += len(g.Tokens)
	}
	return nil
}

func (s *cellSpeculator) Accept(seq, n int) error {
	if n > len(s.open[seq]) || len(s.open[seq]) == 0 {
		s.fail("sequence %d: %d of %d accepted", seq, n, len(s.open[seq]))
	}
	s.history[seq] = append(s.history[seq], s.open[seq][:n]...)
	delete(s.open, seq)
	s.right += n
	return nil
}

// TestSessionSpeculates: with guesses, right and wrong ones, each text of a
// session is the one without: text, reason, log-probabilities and cells, at the
// limits of tokens and context too, with stop strings and shifts.
func TestSessionSpeculates(t *testing.T) {
	total := 0
	rapid.Check(t, func(t *rapid.T) {
		nCtx := rapid.IntRange(20, 90).Draw(t, "nCtx")
		nBatch := rapid.SampledFrom([]int{1, 2, 7, 1000}).Draw(t, "nBatch")
		make1 := func(spec bool) (*Session[*cellContext], *cellContext, *cellSpeculator) {
			c := newCells(t.Errorf, nCtx, 1, nBatch)
			e := Engine[*cellContext]{Vocab: fakeVocab{}, Context: c}
			var sp *cellSpeculator
			if spec {
				sp = newGuesser(t.Errorf, c, rapid.SampledFrom([]int{0, 2, 5, 20}).Draw(t, "wrong"))
				e.Speculator = sp
			}
			s, err := NewSession(e)
			if err != nil {
				t.Fatal(err)
			}
			return s, c, sp
		}
		plain, pc, _ := make1(false)
		fast, fc, sp := make1(true)
		for range rapid.IntRange(1, 4).Draw(t, "texts") {
			opt := Options{Prompt: strings.Repeat("x", rapid.IntRange(0, 15).Draw(t, "prompt")), NPredict: rapid.IntRange(-2, 60).Draw(t, "n"),
				NProbs: rapid.IntRange(0, 2).Draw(t, "probs"), Overflow: rapid.SampledFrom([]Overflow{OverflowError, OverflowShift}).Draw(t, "overflow")}
			if opt.Overflow == OverflowShift && opt.NPredict == -1 {
				opt.NPredict = 200
			}
			if rapid.Bool().Draw(t, "stop") {
				opt.Stop = []string{"ab", "ccc", "dea"}
			}
			seed := rapid.Uint32().Draw(t, "seed")
			temp := float32(rapid.IntRange(0, 1).Draw(t, "temp"))
			open := 2
			sample := func() Sampler[*cellContext] {
				return &cellSampler{seed: seed, rnd: rand.New(rand.NewPCG(uint64(seed), 0)), temp: temp, open: &open}
			}
			want, err := plain.Generate(context.Background(), opt, sample(), nil)
			got, gotErr := fast.Generate(context.Background(), opt, sample(), nil)
			if fmt.Sprint(err) != fmt.Sprint(gotErr) {
				t.Fatalf("error %v, want %v", gotErr, err)
			}
			if got.Text != want.Text || got.FinishReason != want.FinishReason || got.Stop != want.Stop || got.Usage != want.Usage ||
				got.Truncated != want.Truncated || fmt.Sprint(logprobs(got.Logprobs)) != fmt.Sprint(logprobs(want.Logprobs)) {
				t.Fatalf("got  %+v\nwant %+v", got, want)
			}
			if !slices.Equal(fc.seqs[0], pc.seqs[0]) || !slices.Equal(fast.cells, plain.cells) {
				t.Fatalf("the context holds %v, want %v", fc.seqs[0], pc.seqs[0])
			}
			if got.Timings.DraftNAccepted > got.Timings.DraftN || len(sp.open) > 0 {
				t.Fatalf("%d of %d guesses came", got.Timings.DraftNAccepted, got.Timings.DraftN)
			}
		}
		total += sp.right
	})
	if total < 100 {
		t.Errorf("%d guesses came in all: the test shows nothing", total)
	}
}

// TestSlotsSpeculate: with guesses each text of many is the one that its
// request gives alone, and texts that move at the end take theirs along.
func TestSlotsSpeculate(t *testing.T) {
	right, moved := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		nCtx := rapid.IntRange(40, 90).Draw(t, "nCtx")
		prefix := strings.Repeat("p", rapid.IntRange(0, 20).Draw(t, "prefix"))
		var list []*Request
		for i := range rapid.IntRange(1, 25).Draw(t, "requests") {
			r := request(fmt.Sprint(i), strings.Repeat(string(rune('a'+i)), rapid.IntRange(0, 12).Draw(t, "prompt"))+".", rapid.IntRange(-2, 60).Draw(t, "n"))
			r.N = rapid.SampledFrom([]int{1, 1, 1, 3}).Draw(t, "texts")
			r.Overflow = rapid.SampledFrom([]Overflow{OverflowError, OverflowShift, OverflowTruncate}).Draw(t, "overflow")
			if r.Overflow == OverflowShift && r.NPredict == -1 {
				r.NPredict = 150
			}
			if rapid.Bool().Draw(t, "stop") {
				r.Stop = []string{"ab", "ccc"}
			}
			r.NProbs = rapid.IntRange(0, 2).Draw(t, "probs")
			r.Sampling.Temp = float32(rapid.IntRange(0, 1).Draw(t, "temp"))
			list = append(list, r)
		}
		np := rapid.IntRange(1, 12).Draw(t, "np")
		c := newCells(t.Errorf, nCtx, np+1, rapid.IntRange(np, 80).Draw(t, "nBatch"))
		c.noCp = rapid.Bool().Draw(t, "noCp")
		sp := newGuesser(t.Errorf, c, rapid.SampledFrom([]int{0, 2, 5, 20}).Draw(t, "wrong"))
		got, st := runSlots(t, SlotConfig[*cellContext]{Context: c, Parallel: np, Prefix: prefix, Speculator: sp}, list)
		for _, r := range list {
			want, err := alone(t, nCtx, 0, prefix, r)
			if g := got[r.ID]; fmt.Sprint(err) != fmt.Sprint(g.Err) {
				t.Fatalf("%s: error %v, want %v", r.ID, g.Err, err)
			}
			for k := range want {
				g, w := got[r.ID].Results[k], want[k]
				if g.Text != w.Text || g.FinishReason != w.FinishReason || g.Stop != w.Stop || g.Usage.CompletionTokens != w.Usage.CompletionTokens ||
					fmt.Sprint(logprobs(g.Logprobs)) != fmt.Sprint(logprobs(w.Logprobs)) || g.Timings != (Timings{}) {
					t.Fatalf("%s, text %d:\ngot  %+v\nwant %+v", r.ID, k, g, w)
				}
			}
		}
		if st.GuessedTokens != sp.asked || st.ConfirmedTokens != sp.right {
			t.Fatalf("%d guesses, %d came; want %d, %d", st.GuessedTokens, st.ConfirmedTokens, sp.asked, sp.right)
		}
		right += sp.right
		moved += sp.moved
	})
	if right < 100 || moved == 0 {
		t.Errorf("%d guesses came, %d texts moved: the test shows nothing", right, moved)
	}
}

// TestSpeculationIsFaster: right guesses save evaluations.
func TestSpeculationIsFaster(t *testing.T) {
	list := []*Request{request("a", "x", 60)}
	count := func(sp bool) int {
		c := newCells(t.Errorf, 128, 1, 128)
		cfg := SlotConfig[*cellContext]{Context: c, Parallel: 1}
		if sp {
			cfg.Speculator = newGuesser(t.Errorf, c, 0)
		}
		_, st := runSlots(t, cfg, list)
		return st.Batches
	}
	if fast, plain := count(true), count(false); fast*2 > plain {
		t.Errorf("%d evaluations with guesses, %d without", fast, plain)
	}
}

func TestSpeculationRefused(t *testing.T) {
	c := newCells(t.Errorf, 64, PinnedRows, 64)
	sp := newGuesser(t.Errorf, c, 0)
	if _, err := NewSlots(SlotConfig[*cellContext]{Context: c, Parallel: PinnedRows, Deterministic: true, Speculator: sp}); err == nil {
		t.Error("guesses with batches of one shape")
	}
	if _, err := NewSession(Engine[*fakeContext]{Vocab: fakeVocab{}, Context: &fakeContext{t: t}, Speculator: sp}); err == nil {
		t.Error("guesses in a context that evaluates no batches")
	}
	c.noRm = true
	r := request("a", "x", 60)
	got, _ := runSlots(t, SlotConfig[*cellContext]{Context: c, Parallel: 1, Speculator: newGuesser(t.Errorf, c, 1)}, []*Request{r})
	if got["a"].Err == nil {
		t.Error("guesses in a memory that gives nothing back")
	}
}
