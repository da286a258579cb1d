package cvector

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"gollama/internal/engine"
)

// CollectOptions say what Collect reads.
type CollectOptions struct {
	First, Last int // layers, counted from 0: the outputs of these blocks
	Token       TokenMode
	Compat      bool         // with TokenAll: rows as llama-cvector-generator makes them; its digits need engine.SetReference
	Pad         engine.Token // with Compat: what the shorter side is filled up with
	KeepRows    bool         // keep each sample, for what needs more than means; without it, memory does not grow with the pairs
	Progress    func(share float64)
}

// States are the hidden states of pairs, layer by layer.
type States struct {
	First, Last int
	NEmbd       int
	Samples     int

	compat    bool
	baselines bool
	sum       []float64 // of positive states less that of negative ones, all layers
	lengths   []float64 // sum of the lengths of states, by layer
	sides     int       // states in lengths
	store     *store    // nil without KeepRows
}

// Close takes away what did not fit in memory.
func (s *States) Close() {
	if s != nil && s.store != nil {
		s.store.close()
	}
}

// Layer returns the samples of layer l, counted from 0, which must be in range and kept.
func (s *States) Layer(l int) (*Samples, error) {
	out, err := s.store.layer(l - s.First)
	if err != nil {
		return nil, err
	}
	out.Baselines = s.baselines
	if s.compat {
		return nonzero(out), nil
	}
	out.mean = s.MeanDifference(l)
	return out, nil
}

// MeanDifference returns the mean of the differences of a layer, as it was added up in 64 bits.
func (s *States) MeanDifference(l int) []float64 {
	at := (l - s.First) * s.NEmbd
	mean := append([]float64{}, s.sum[at:at+s.NEmbd]...)
	scal(mean, 1/float64(s.Samples))
	return mean
}

// Length returns the mean length of the states of a layer.
func (s *States) Length(l int) float64 { return s.lengths[l-s.First] / float64(s.sides) }

// nonzero drops the samples that llama-cvector-generator takes for zero: those whose difference has no element above
// 1e-6. Negative ones it does not look at. Source: callback_data::filter_nonzero_rows.
func nonzero(s *Samples) *Samples {
	const eps = 1e-6
	return subset(s, func(i int) bool {
		p, n := s.Pos.Row(i), s.Neg.Row(i)
		for k := range p {
			if p[k]-n[k] > eps {
				return true
			}
		}
		return false
	})
}

// Limits of what is held at once.
const (
	maxTexts   = 16       // texts that are evaluated together
	wholeBlock = 64       // from so many tokens on, flash attention on a CPU has a kernel that rounds by what is beside
	cellsAlign = 256      // llama.cpp rounds a context's room up to it
	maxOutputs = 64 << 20 // bytes of logits, which llama.cpp makes room for though nobody reads them
	maxSums    = 16 << 20 // bytes of states on their way
)

// collector is a Collect in progress.
type collector struct {
	o     CollectOptions
	c     *engine.Context
	tap   *engine.States
	bos   engine.Token
	batch int // tokens
	texts int // sequences
	out   *States

	sums  [2][]float64 // of states, positive and negative ones
	sum   []float64    // of the texts in evaluation
	b     engine.Batch
	slots []int32
}

// Collect evaluates the texts of prompts and reads their hidden states. Several go in a batch, which has what they begin
// with in common once; none is padded, and long ones are evaluated in several batches. p says how the context is made; its
// sizes and sequences are set here, p.NCtx being the most tokens that a text may have, 0 for no limit. Which side a text is
// on changes no bit of its states. Close the result. An error that wraps ErrPairs is about a text.
func Collect(ctx context.Context, m *engine.Model, p engine.Params, prompts []Prompt, o CollectOptions) (out *States, err error) {
	longest, err := longestText(prompts, p.NCtx)
	if err != nil {
		return nil, err
	}
	info := m.Info()
	k := &collector{o: o, bos: m.Vocab().BOS(), out: &States{First: o.First, Last: o.Last, NEmbd: info.NEmbd, compat: o.Compat, baselines: prompts[0].Base != nil}}
	layers := o.Last - o.First + 1
	k.sums[0], k.sums[1] = make([]float64, layers*info.NEmbd), make([]float64, layers*info.NEmbd)
	k.out.lengths = make([]float64, layers)
	if o.KeepRows {
		sides := 2
		if k.out.baselines && o.Token.kind != tokenAll {
			sides = 3
		}
		k.out.store = newStore(layers, info.NEmbd, sides)
		defer func() {
			if err != nil {
				k.out.Close()
			}
		}()
	}
	var texts []text
	if o.Token.kind != tokenAll {
		texts = inOrder(prompts)
	}
	k.sizes(&p, info, longest)
	if k.tap, err = engine.NewStates(m, o.First, o.Last); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, k.tap.Close()) }()
	if k.c, err = engine.NewContextTap(m, &p, k.tap); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, k.c.Close()) }()
	if o.Token.kind == tokenAll {
		err = k.all(ctx, prompts)
	} else {
		err = k.means(ctx, texts)
	}
	for i, v := range k.sums[sideNeg] {
		k.sums[sidePos][i] -= v
	}
	k.out.sum = k.sums[sidePos]
	return k.out, err
}

func longestText(prompts []Prompt, limit int) (int, error) {
	longest := 0
	for _, p := range prompts {
		for _, t := range [][]engine.Token{p.Pos, p.Neg, p.Base} {
			if limit > 0 && len(t) > limit {
				return 0, fmt.Errorf("%w: %s: a text of %d tokens, the context has %d", ErrPairs, p.Where, len(t), limit)
			}
			longest = max(longest, len(t))
		}
	}
	return longest, nil
}

// sizes decides how much is evaluated at once. Batches of short texts stay below a block of flash attention, where the states
// of a token are to the bit those that it has without other texts in the cache.
func (k *collector) sizes(p *engine.Params, info engine.ModelInfo, longest int) {
	width := (k.o.Last - k.o.First + 1) * info.NEmbd
	k.batch, k.texts = p.NUBatch, min(max(maxSums/(8*width), 1), maxTexts)
	p.KVUnified = true
	switch {
	case k.o.Token.kind == tokenAll:
		k.texts, k.batch, p.KVUnified = 2, min(k.batch, max(maxSums/(8*width), 16)), false
	case info.Recurrent || info.Hybrid:
		k.texts = 1
	case longest < wholeBlock:
		k.batch = min(k.batch, wholeBlock-1)
	}
	p.NOutputsMax = k.texts
	if k.o.Last == info.NLayer-1 && k.o.Token.kind != tokenLast {
		k.batch = min(k.batch, max(maxOutputs/(4*info.NVocab), 32))
		p.NOutputsMax = max(k.batch, k.texts)
	}
	p.NBatch, p.NUBatch = k.batch, k.batch
	p.NOutputsMaxPerSeq = p.NOutputsMax
	p.NParallel = k.texts
	p.NCtx = (max(longest, k.batch) + cellsAlign - 1) / cellsAlign * cellsAlign
	if !p.KVUnified {
		p.NCtx *= k.texts
	}
	p.Warmup = false
}

func (k *collector) progress(share float64) {
	if k.o.Progress != nil {
		k.o.Progress(share)
	}
}

// means evaluates texts of which each gives one state: the last token's or a mean.
func (k *collector) means(ctx context.Context, texts []text) error {
	for from := 0; from < len(texts); {
		n, err := k.evaluate(ctx, texts[from:])
		if err != nil {
			return err
		}
		from += n
		k.progress(float64(from) / float64(len(texts)))
	}
	return nil
}

// evaluate takes the states of the first of texts, as many as a batch holds, or one that is longer, and returns how many.
func (k *collector) evaluate(ctx context.Context, texts []text) (int, error) {
	common, n := k.pack(texts)
	texts = texts[:n]
	width := k.tap.Width()
	sum := slices.Grow(k.sum[:0], k.texts*width)[:n*width]
	clear(sum)
	k.sum = sum
	k.c.ClearMemory()
	for seq, t := range texts {
		for i := common[seq]; i < len(t.tokens); i++ {
			slot, last := int32(-1), i == len(t.tokens)-1
			if t.counts(k, i) {
				slot = int32(seq)
			}
			to := seq + 1
			for to < n && common[to] > i {
				to++
			}
			k.b.AddShared(t.tokens[i], i, seq, to-seq, last || slot >= 0 && k.o.Last == k.lastLayer())
			k.slots = append(k.slots, slot)
			if len(k.b.Tokens) < k.batch && !(last && seq == n-1) {
				continue
			}
			err := k.tap.Decode(ctx, k.c, &k.b, k.slots, sum)
			k.b.Reset()
			k.slots = k.slots[:0]
			if err != nil {
				return 0, err
			}
		}
	}
	for i, t := range texts {
		states := sum[i*width : (i+1)*width]
		scal(states, 1/float64(t.counted(k)))
		for _, u := range t.uses {
			if err := k.add(u.sample, u.pair, u.where, u.side, states); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

// add takes the states of one side of a sample into the sums.
func (k *collector) add(sample, pair int, where string, side side, states []float64) error {
	out, e := k.out, k.out.NEmbd
	out.Samples = max(out.Samples, sample+1)
	if side != sideBase {
		for l := range out.lengths {
			n := norm(states[l*e : (l+1)*e])
			if n-n != 0 {
				return fmt.Errorf("%s: the model's states of layer %d are not finite", where, l+out.First)
			}
			out.lengths[l] += n
		}
		out.sides++
		sum := k.sums[side]
		for i, v := range states {
			sum[i] += v
		}
	}
	if out.store == nil {
		return nil
	}
	return out.store.put(sample, pair, side, states)
}

// all evaluates pairs whose tokens are samples by themselves, the two sides a part at a time.
func (k *collector) all(ctx context.Context, prompts []Prompt) error {
	for i, p := range prompts {
		pos, neg := p.Pos, p.Neg
		first, n := 0, min(len(pos), len(neg))
		if k.o.Compat {
			pos, neg = padded(pos, neg, k.o.Pad), padded(neg, pos, k.o.Pad)
			n = len(pos)
		} else {
			for first < n-1 && pos[first] == neg[first] {
				first++ // what both begin with has the same states
			}
		}
		k.c.ClearMemory()
		for from := 0; from < n; from += k.batch {
			if err := k.part(ctx, p, pos, neg, first, from, min(from+k.batch, n)); err != nil {
				return err
			}
		}
		k.progress(float64(i+1) / float64(len(prompts)))
	}
	return nil
}

// padded returns a, filled up with pad to the length of the longer one.
func padded(a, b []engine.Token, pad engine.Token) []engine.Token {
	a = slices.Clone(a)
	for len(a) < len(b) {
		a = append(a, pad)
	}
	return a
}

// part evaluates the tokens from to to of both sides and adds those from first on.
func (k *collector) part(ctx context.Context, p Prompt, pos, neg []engine.Token, first, from, to int) error {
	width := k.tap.Width()
	sums := [2][]float64{make([]float64, (to-from)*width), make([]float64, (to-from)*width)}
	order := []int{0, 1}
	if slices.Compare(pos, neg) > 0 {
		order = []int{1, 0}
	}
	for seq, side := range order {
		var b engine.Batch
		var slots []int32
		for i := from; i < to; i++ {
			b.Add([2][]engine.Token{pos, neg}[side][i], i, seq, true)
			slots = append(slots, int32(i-from))
		}
		if k.out.Last < k.lastLayer() {
			for i := range b.Output {
				b.Output[i] = i == len(b.Output)-1
			}
		}
		if err := k.tap.Decode(ctx, k.c, &b, slots, sums[side]); err != nil {
			return err
		}
	}
	for i := max(first, from); i < to; i++ {
		at, sample := (i-from)*width, k.out.Samples
		for s, sum := range sums {
			if err := k.add(sample, p.Pair, p.Where, side(s), sum[at:at+width]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *collector) lastLayer() int { return k.c.Model().Info().NLayer - 1 }
