package completion

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"gollama/internal/engine"
)

// cellContext is a model in which each next token follows from all tokens of
// its sequence: a cell too many, too few or in the wrong place changes the text.
type cellContext struct {
	fail   func(string, ...any)
	nCtx   int
	nSeq   int
	nBatch int
	noRm   bool // as a recurrent model's memory: parts cannot be removed
	noCp   bool
	window int // of attention, 0 is all: the cache lets go of cells before it
	lost   map[int]int
	seqs   map[int][]engine.Token
	rows   [][]float32
	copies int
	tokens int // evaluated
	widths []int
	err    error
}

func newCells(fail func(string, ...any), nCtx, nSeq, nBatch int) *cellContext {
	return &cellContext{fail: fail, nCtx: nCtx, nSeq: nSeq, nBatch: nBatch, seqs: map[int][]engine.Token{}, lost: map[int]int{}}
}

func (c *cellContext) NCtxSeq() int   { return c.nCtx }
func (c *cellContext) NSeqMax() int   { return c.nSeq }
func (c *cellContext) NBatch() int    { return c.nBatch }
func (c *cellContext) NUBatch() int   { return c.nBatch }
func (c *cellContext) CanShift() bool { return true }
func (c *cellContext) ClearMemory()   { clear(c.seqs); clear(c.lost) }

func (c *cellContext) Decode(ctx context.Context, b *engine.Batch) error {
	if c.err != nil {
		return c.err
	}
	if n := len(b.Tokens); n == 0 || n > c.nBatch {
		c.fail("a batch of %d tokens, the limit is %d", n, c.nBatch)
	}
	c.rows = make([][]float32, len(b.Tokens))
	c.tokens += len(b.Tokens)
	c.widths = append(c.widths, len(b.Tokens))
	for i, t := range b.Tokens {
		seq := int(b.Seq[i])
		if seq >= c.nSeq {
			c.fail("sequence %d of %d", seq, c.nSeq)
		}
		if int(b.Pos[i]) != len(c.seqs[seq]) {
			c.fail("sequence %d: token at position %d, want %d", seq, b.Pos[i], len(c.seqs[seq]))
		}
		c.add(seq, t)
		if len(c.seqs[seq]) > c.nCtx {
			c.fail("sequence %d has %d tokens, the limit is %d", seq, len(c.seqs[seq]), c.nCtx)
		}
		if b.Output[i] {
			c.rows[i] = c.after(seq)
		}
	}
	return ctx.Err()
}

func (c *cellContext) add(seq int, t engine.Token) {
	c.seqs[seq] = append(c.seqs[seq], t)
	if c.window > 0 {
		c.lost[seq] = max(c.lost[seq], len(c.seqs[seq])-c.window)
	}
}

// seen returns the cells that the last one attends to; what was let go of is nothing.
func (c *cellContext) seen(seq int) []engine.Token {
	list := slices.Clone(c.seqs[seq])
	clear(list[:min(c.lost[seq], len(list))])
	if c.window > 0 {
		list = list[max(0, len(list)-c.window):]
	}
	return list
}

// after returns logits: the likeliest token is one of 13, now and then the end.
func (c *cellContext) after(seq int) []float32 {
	h := fnv.New64a()
	for _, t := range c.seen(seq) {
		_, _ = h.Write([]byte{byte(t), byte(t >> 8)})
	}
	sum := h.Sum64()
	logits := make([]float32, nVocab)
	best := engine.Token('a' + sum%13)
	if sum%29 == 0 {
		best = eos
	}
	logits[best] = 2
	logits['a'+sum/64%13] += 1
	return logits
}

func (c *cellContext) Logits(i int) ([]float32, error) {
	if i == -1 {
		i = len(c.rows) - 1
	}
	if i < 0 || i >= len(c.rows) || c.rows[i] == nil {
		return nil, fmt.Errorf("no logits in row %d", i)
	}
	return c.rows[i], nil
}

func (c *cellContext) SeqRm(seq, p0, p1 int) bool {
	n := len(c.seqs[seq])
	if p0 <= 0 && p1 < 0 {
		delete(c.seqs, seq)
		delete(c.lost, seq)
		return true
	}
	if p1 < 0 || p1 > n {
		p1 = n
	}
	if p0 >= p1 {
		return true
	}
	if c.noRm {
		return false
	}
	c.seqs[seq] = slices.Concat(c.seqs[seq][:p0], c.seqs[seq][p1:])
	return true
}

func (c *cellContext) SeqAdd(int, int, int, int) bool { return true }
func (c *cellContext) SeqPosMin(seq int) int          { return c.lost[seq] }

func (c *cellContext) SeqCp(src, dst, p0, p1 int) bool {
	if c.noCp {
		return false
	}
	c.copies++
	c.seqs[dst], c.lost[dst] = slices.Clone(c.seqs[src]), c.lost[src]
	return true
}

func (c *cellContext) DecodePrompt(ctx context.Context, tokens []engine.Token, pos0, seq int, progress func(int)) error {
	for from := 0; from < len(tokens); from += c.nBatch {
		var b engine.Batch
		to := min(from+c.nBatch, len(tokens))
		for i := from; i < to; i++ {
			b.Add(tokens[i], pos0+i, seq, i+1 == len(tokens))
		}
		if err := c.Decode(ctx, &b); err != nil {
			return err
		}
		if progress != nil {
			progress(to)
		}
	}
	return nil
}

func (c *cellContext) DecodeLogits(ctx context.Context, tokens []engine.Token, pos0, seq int, each func(int, []float32) error) error {
	for i, t := range tokens {
		if err := c.DecodePrompt(ctx, []engine.Token{t}, pos0+i, seq, nil); err != nil {
			return err
		}
		if err := each(i, c.rows[0]); err != nil {
			return err
		}
	}
	return nil
}

// cellSampler takes the likeliest token, or with Temp above 0 now and then the next one.
type cellSampler struct {
	seed   uint32
	rnd    *rand.Rand
	temp   float32
	open   *int
	failAt int
	n      int
}

func (s *cellSampler) Sample(c *cellContext, i int) (engine.Token, error) {
	if s.n++; s.n == s.failAt {
		return 0, errFake
	}
	logits, err := c.Logits(i)
	if err != nil {
		return 0, err
	}
	best := topN(logits, 2)
	if s.temp > 0 && s.rnd.IntN(3) == 0 {
		return best[1].id, nil
	}
	return best[0].id, nil
}
func (s *cellSampler) Accept(engine.Token, bool) error { return nil }
func (s *cellSampler) Seed() uint32                    { return s.seed }
func (s *cellSampler) Close() error                    { *s.open--; return nil }

// makeSampler makes cellSamplers and counts those that are open.
func makeSampler(open *int) func(p *engine.SamplingParams) (SlotSampler[*cellContext], error) {
	return func(p *engine.SamplingParams) (SlotSampler[*cellContext], error) {
		*open++
		return &cellSampler{seed: p.Seed, rnd: rand.New(rand.NewPCG(uint64(p.Seed), 0)), temp: p.Temp, open: open, failAt: p.MinKeep}, nil
	}
}

// requests hands out a list.
func requests(list []*Request) func(context.Context) (*Request, error) {
	i := 0
	return func(context.Context) (*Request, error) {
		if i == len(list) {
			return nil, io.EOF
		}
		i++
		r := *list[i-1]
		return &r, nil
	}
}

// runSlots returns the replies by id.
func runSlots(t interface{ Fatalf(string, ...any) }, cfg SlotConfig[*cellContext], list []*Request) (map[string]Reply, SlotStats) {
	open := 0
	cfg.Vocab, cfg.NewSampler = fakeVocab{}, makeSampler(&open)
	s, err := NewSlots(cfg)
	if err != nil {
		t.Fatalf("NewSlots: %v", err)
	}
	got := map[string]Reply{}
	err = s.Run(context.Background(), requests(list), func(r Reply) error {
		if _, ok := got[r.ID]; ok {
			t.Fatalf("two replies to %s", r.ID)
		}
		got[r.ID] = r
		return nil
	})
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
	if open != 0 || len(got) != len(list) {
		t.Fatalf("%d samplers are open, %d replies to %d requests", open, len(got), len(list))
	}
	return got, s.Stats()
}

// alone makes the texts of one request, each by itself in a fresh context.
func alone(t interface {
	Fatalf(string, ...any)
	Errorf(string, ...any)
}, nCtx, window int, prefix string, r *Request) ([]Result, error) {
	var list []Result
	for k := range max(r.N, 1) {
		open := 0
		c := newCells(t.Errorf, nCtx, 1, 1000)
		c.window = window
		p := r.Sampling
		p.Seed = SampleSeed(p.Seed, r.ID, k)
		smpl, _ := makeSampler(&open)(&p)
		opt := r.Options
		opt.Prompt, opt.Echo = prefix+opt.Prompt, false
		res, err := Generate(context.Background(), Engine[*cellContext]{Vocab: fakeVocab{}, Context: c, Sampler: smpl, Media: fakeMedia{}}, opt, nil)
		if err != nil {
			return nil, err
		}
		list = append(list, res)
	}
	return list, nil
}

// TestSlotsProperty: whatever the number of slots, the order, the prefix, the
// size of batches and the abilities of the memory, each text is the one that
// its request gives alone.
func TestSlotsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prefix := strings.Repeat("p", rapid.IntRange(0, 20).Draw(t, "prefix"))
		nCtx := rapid.IntRange(40, 90).Draw(t, "nCtx")
		var list []*Request
		for i := range rapid.IntRange(0, 25).Draw(t, "requests") {
			r := &Request{N: rapid.SampledFrom([]int{0, 1, 1, 1, 2, 5}).Draw(t, "n")}
			r.ID = fmt.Sprint(i)
			r.Prompt = strings.Repeat(string(rune('a'+i%26)), rapid.IntRange(0, 70).Draw(t, "prompt")) + "."
			r.NPredict = rapid.IntRange(-2, 40).Draw(t, "predict")
			r.Overflow = rapid.SampledFrom([]Overflow{OverflowError, OverflowShift, OverflowTruncate}).Draw(t, "overflow")
			if r.Overflow == OverflowShift && r.NPredict == -1 {
				r.NPredict = 150
			}
			r.Keep = rapid.IntRange(-1, 5).Draw(t, "keep")
			if rapid.Bool().Draw(t, "stop") {
				r.Stop = []string{"ab", "ccc"}
			}
			r.NProbs = rapid.IntRange(0, 2).Draw(t, "probs")
			r.PromptLogprobs = rapid.Bool().Draw(t, "promptLogprobs")
			r.Sampling.Temp = float32(rapid.IntRange(0, 1).Draw(t, "temp"))
			list = append(list, r)
		}
		cfg := SlotConfig[*cellContext]{Prefix: prefix, Parallel: rapid.IntRange(1, 9).Draw(t, "np")}
		if cfg.Deterministic = rapid.Bool().Draw(t, "deterministic"); cfg.Deterministic {
			cfg.Parallel = PinnedRows
		}
		c := newCells(t.Errorf, nCtx, cfg.Parallel+1, rapid.IntRange(cfg.Parallel, 64).Draw(t, "nBatch"))
		c.noRm = rapid.Bool().Draw(t, "noRm")
		c.noCp = rapid.Bool().Draw(t, "noCp")
		c.window = rapid.SampledFrom([]int{0, 0, 5, 30}).Draw(t, "window")
		if c.noRm || c.window > 0 { // and no shifts
			for _, r := range list {
				r.Overflow = OverflowError
			}
		}
		cfg.Context = c
		if len(prefix)+1 > nCtx-promptReserve {
			t.Skip("the prefix does not fit")
		}
		got, _ := runSlots(t, cfg, list)
		for _, r := range list {
			want, err := alone(t, nCtx, c.window, prefix, r)
			g := got[r.ID]
			if (err != nil) != (g.Err != nil) || err != nil && err.Error() != g.Err.Error() {
				t.Fatalf("%s: error %v, want %v", r.ID, g.Err, err)
			}
			for k := range want {
				g, w := g.Results[k], want[k]
				if g.Text != w.Text || g.FinishReason != w.FinishReason || g.Seed != w.Seed || g.Truncated != w.Truncated || g.Stop != w.Stop ||
					g.Usage.PromptTokens != w.Usage.PromptTokens || g.Usage.CompletionTokens != w.Usage.CompletionTokens {
					t.Fatalf("%s, text %d:\ngot  %+v\nwant %+v", r.ID, k, g, w)
				}
				if fmt.Sprint(logprobs(g.Logprobs)) != fmt.Sprint(logprobs(w.Logprobs)) || fmt.Sprint(logprobs(g.PromptLogprobs)) != fmt.Sprint(logprobs(w.PromptLogprobs)) {
					t.Fatalf("%s, text %d: log-probabilities\ngot  %v %v\nwant %v %v", r.ID, k, logprobs(g.PromptLogprobs), logprobs(g.Logprobs), logprobs(w.PromptLogprobs), logprobs(w.Logprobs))
				}
			}
		}
	})
}

func logprobs(list []TokenLogprob) (out []string) {
	for _, l := range list {
		p := "null"
		if l.Logprob != nil {
			p = fmt.Sprint(*l.Logprob)
		}
		out = append(out, fmt.Sprint(l.ID, " ", p))
	}
	return out
}

func request(id, prompt string, n int) *Request {
	r := &Request{}
	r.ID, r.Prompt, r.NPredict = id, prompt, n
	return r
}

// TestSlotsPrefix counts: the prefix is evaluated once, and copied once a slot.
func TestSlotsPrefix(t *testing.T) {
	var list []*Request
	for i := range 64 {
		list = append(list, request(fmt.Sprint(i), fmt.Sprintf("q%d?", i), 4))
	}
	c := newCells(t.Errorf, 2000, 9, 512)
	_, st := runSlots(t, SlotConfig[*cellContext]{Context: c, Prefix: strings.Repeat("x", 1000), Parallel: 8}, list)
	if st.CachedTokens != 64*1001 || st.PromptTokens != 1001+10*3+54*4 || c.copies > 8+8 { // the last texts may move together, as they end
		t.Errorf("%d tokens cached, %d evaluated, %d copies", st.CachedTokens, st.PromptTokens, c.copies)
	}
}

// TestSlotsSamples: a prompt is evaluated once for all its texts.
func TestSlotsSamples(t *testing.T) {
	r := request("a", strings.Repeat("x", 200), 8)
	r.N, r.Sampling.Temp = 20, 1
	c := newCells(t.Errorf, 512, 4, 64)
	got, st := runSlots(t, SlotConfig[*cellContext]{Context: c, Parallel: 4}, []*Request{r})
	if st.PromptTokens != 201 || st.CachedTokens != 19*201 {
		t.Errorf("%d tokens of prompt evaluated, %d cached, want 201, %d", st.PromptTokens, st.CachedTokens, 19*201)
	}
	texts := map[string]bool{}
	for _, res := range got["a"].Results {
		texts[res.Text] = true
	}
	if len(texts) < 10 {
		t.Errorf("%d different texts of 20", len(texts))
	}
}

// TestSlotsFair: a long prompt does not stop the texts that are being made, and is itself read on.
func TestSlotsFair(t *testing.T) {
	c := newCells(t.Errorf, 4096, 2, 32)
	list := []*Request{request("short", "a", 60), request("long", strings.Repeat("b", 3000), 1)}
	var order []string
	open := 0
	s, err := NewSlots(SlotConfig[*cellContext]{Vocab: fakeVocab{}, Context: c, NewSampler: makeSampler(&open), Parallel: 2})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Run(t.Context(), requests(list), func(r Reply) error { order = append(order, r.ID); return nil })
	if err != nil || !slices.Equal(order, []string{"short", "long"}) {
		t.Errorf("got %v, %v, want the short one first", order, err)
	}
	if want := 3001/31 + 2; s.Stats().Batches > want {
		t.Errorf("%d batches, want at most %d: a batch takes what fits", s.Stats().Batches, want)
	}
}

// TestSlotsPinned: with Deterministic every batch of generated tokens has all slots.
func TestSlotsPinned(t *testing.T) {
	c := newCells(t.Errorf, 256, PinnedRows, 64)
	list := []*Request{request("a", strings.Repeat("x", 100), 5), request("b", "y", 9)}
	runSlots(t, SlotConfig[*cellContext]{Context: c, Parallel: PinnedRows, Deterministic: true}, list)
	for _, w := range c.widths {
		if w != PinnedRows && w != 64 && w != 37 && w != 2 {
			t.Errorf("batches of %v tokens", c.widths)
		}
	}
	if _, err := NewSlots(SlotConfig[*cellContext]{Context: c, Parallel: 3, Deterministic: true}); err == nil {
		t.Error("3 slots with pinned shapes")
	}
}

func TestSlotsErrors(t *testing.T) {
	c := newCells(t.Errorf, 64, 4, 64)
	bad := request("sample", "a", 9)
	bad.N, bad.Sampling.MinKeep = 3, 2 // the second token fails
	first := request("first", "a", 9)
	first.N, first.Sampling.MinKeep = 3, 1
	long := request("long", strings.Repeat("x", 100), 1)
	none := request("n", "a", 1)
	none.N = -1
	list := []*Request{bad, first, request("ok", "a", 3), long, none, request("tokenize", "bad", 1)}
	got, st := runSlots(t, SlotConfig[*cellContext]{Context: c, Parallel: 4}, list)
	var tooLong *PromptTooLongError
	if !errors.Is(got["sample"].Err, errFake) || !errors.Is(got["first"].Err, errFake) || got["ok"].Err != nil || got["n"].Err == nil ||
		!errors.As(got["long"].Err, &tooLong) || !errors.Is(got["tokenize"].Err, errFake) || st.Failed != 5 || st.Requests != 6 {
		t.Errorf("got %v, %+v", got, st)
	}
	if _, err := NewSlots(SlotConfig[*cellContext]{Context: c, Parallel: 4, Prefix: "x"}); err == nil {
		t.Error("4 slots and a prefix in 4 sequences")
	}

	// What ends the run: next, done, the engine, cancelling.
	cut := errors.New("cut")
	for name, run := range map[string]func(s *Slots[*cellContext]) error{
		"next": func(s *Slots[*cellContext]) error {
			return s.Run(t.Context(), func(context.Context) (*Request, error) { return nil, cut }, nil)
		},
		"done": func(s *Slots[*cellContext]) error {
			return s.Run(t.Context(), requests([]*Request{request("a", "a", 5), request("b", "b", 50)}), func(Reply) error { return cut })
		},
		"engine": func(s *Slots[*cellContext]) error {
			s.Context.err = cut
			return s.Run(t.Context(), requests([]*Request{request("a", "a", 5)}), nil)
		},
		"cancelled": func(s *Slots[*cellContext]) error {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			n := 0
			err := s.Run(ctx, requests([]*Request{request("a", "a", 1), request("b", "b", -1)}), func(Reply) error { n++; cancel(); return nil })
			if n == 1 && errors.Is(err, context.Canceled) {
				return cut
			}
			return err
		},
		"waiting for a request": func(s *Slots[*cellContext]) error {
			ctx, cancel := context.WithCancel(t.Context())
			err := s.Run(ctx, func(ctx context.Context) (*Request, error) { cancel(); <-ctx.Done(); return nil, ctx.Err() }, nil)
			if errors.Is(err, context.Canceled) {
				return cut
			}
			return err
		},
	} {
		open := 0
		s, err := NewSlots(SlotConfig[*cellContext]{Vocab: fakeVocab{}, Context: newCells(t.Errorf, 64, 2, 64), NewSampler: makeSampler(&open), Parallel: 2})
		if err != nil {
			t.Fatal(err)
		}
		if err := run(s); !errors.Is(err, cut) || open != 0 {
			t.Errorf("%s: got %v, want %v; %d samplers are open", name, err, cut, open)
		}
	}
}
