package cvector

import (
	"cmp"
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
	Compat      bool         // with TokenAll: rows as llama-cvector-generator makes them
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
	sum       []float64 // of differences, all layers
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
	maxTexts   = 8        // texts that are evaluated together
	maxCells   = 2048     // tokens that the context has room for, unless one text is longer
	cellsAlign = 256      // llama.cpp rounds a sequence's room up to it
	maxOutputs = 64 << 20 // bytes of logits, which llama.cpp makes room for though nobody reads them
	maxSums    = 64 << 20 // bytes of states on their way
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
}

// Collect evaluates the texts of prompts and reads their hidden states. Texts of one length are evaluated together, each
// in a cache of its own, so that the states are those of the text evaluated alone; none is padded, and long ones are
// evaluated in several batches. p says how the context is made; its sizes and sequences are set here, p.NCtx being the
// most tokens that a text may have, 0 for no limit. Which side a text is on changes no bit of its states. Close the
// result. An error that wraps ErrPairs is about a text.
func Collect(ctx context.Context, m *engine.Model, p engine.Params, prompts []Prompt, o CollectOptions) (out *States, err error) {
	longest, err := longestText(prompts, p.NCtx)
	if err != nil {
		return nil, err
	}
	info := m.Info()
	k := &collector{o: o, bos: m.Vocab().BOS(), out: &States{First: o.First, Last: o.Last, NEmbd: info.NEmbd, compat: o.Compat, baselines: prompts[0].Base != nil}}
	layers := o.Last - o.First + 1
	k.out.sum, k.out.lengths = make([]float64, layers*info.NEmbd), make([]float64, layers)
	if o.KeepRows {
		k.out.store = newStore(layers, info.NEmbd)
		defer func() {
			if err != nil {
				k.out.Close()
			}
		}()
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
		err = k.means(ctx, prompts)
	}
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

// sizes decides how much is evaluated at once.
func (k *collector) sizes(p *engine.Params, info engine.ModelInfo, longest int) {
	room := (longest + cellsAlign - 1) / cellsAlign * cellsAlign
	k.batch, k.texts = p.NUBatch, min(max(maxCells/room, 1), maxTexts)
	if info.Recurrent || info.Hybrid {
		k.texts = 1
	}
	if k.o.Token.kind == tokenAll {
		k.texts = 2
		k.batch = min(k.batch, max(maxSums/(8*(k.o.Last-k.o.First+1)*info.NEmbd), 16))
	}
	p.NOutputsMax = k.texts
	if k.o.Last == info.NLayer-1 && k.o.Token.kind != tokenLast {
		k.batch = min(k.batch, max(maxOutputs/(4*info.NVocab), 32))
		p.NOutputsMax = max(k.batch, k.texts)
	}
	p.NBatch, p.NUBatch = k.batch, k.batch
	p.NOutputsMaxPerSeq = p.NOutputsMax
	p.NParallel = k.texts
	p.NCtx = room * k.texts
	p.KVUnified = false // what lies beside a text's states in one cache for all shows in their last bits
	p.Warmup = false
}

// waiting is a prompt whose texts are evaluated.
type waiting struct {
	Prompt
	states [3][]float64 // positive, negative, baseline
}

// text is one text that is to be evaluated.
type text struct {
	tokens []engine.Token
	states *[]float64
}

// means evaluates texts of which each gives one state: the last token's or a mean.
func (k *collector) means(ctx context.Context, prompts []Prompt) error {
	window := max(maxSums/(8*3*k.tap.Width()), maxTexts)
	for from := 0; from < len(prompts); from += window {
		to := min(from+window, len(prompts))
		if err := k.window(ctx, prompts[from:to], float64(from)/float64(len(prompts)), float64(to-from)/float64(len(prompts))); err != nil {
			return err
		}
	}
	return nil
}

func (k *collector) progress(share float64) {
	if k.o.Progress != nil {
		k.o.Progress(share)
	}
}

// window evaluates some prompts, the texts in the order of their lengths and tokens, which does not tell the sides apart,
// and takes their states in the order of the prompts.
func (k *collector) window(ctx context.Context, prompts []Prompt, begin, share float64) error {
	list := make([]waiting, len(prompts))
	var texts []text
	for i, p := range prompts {
		w := &list[i]
		w.Prompt = p
		texts = append(texts, text{p.Pos, &w.states[0]}, text{p.Neg, &w.states[1]})
		if p.Base != nil {
			texts = append(texts, text{p.Base, &w.states[2]})
		}
	}
	slices.SortStableFunc(texts, func(a, b text) int {
		return cmp.Or(cmp.Compare(len(a.tokens), len(b.tokens)), slices.Compare(a.tokens, b.tokens))
	})
	for from := 0; from < len(texts); {
		n := len(texts[from].tokens)
		to := from + 1
		for to < len(texts) && len(texts[to].tokens) == n && to-from < k.texts && (to-from+1)*n <= k.batch {
			to++
		}
		if err := k.evaluate(ctx, texts[from:to]); err != nil {
			return err
		}
		from = to
		k.progress(begin + share*float64(from)/float64(len(texts)))
	}
	for _, w := range list {
		if err := k.add(w.Pair, w.Where, w.states[0], w.states[1], w.states[2]); err != nil {
			return err
		}
	}
	return nil
}

// counted returns how many tokens of a text count.
func (k *collector) counted(tokens []engine.Token) int {
	n := 0
	for i := range tokens {
		if k.o.Token.counts(i, len(tokens), tokens[0] == k.bos) {
			n++
		}
	}
	return n
}

// evaluate sets the states of texts of one length. One text may be longer than a batch.
func (k *collector) evaluate(ctx context.Context, texts []text) error {
	k.c.ClearMemory()
	width := k.tap.Width()
	sum := make([]float64, len(texts)*width)
	var b engine.Batch
	var slots []int32
	for seq, t := range texts {
		for i, token := range t.tokens {
			slot, last := int32(-1), i == len(t.tokens)-1
			if k.o.Token.counts(i, len(t.tokens), t.tokens[0] == k.bos) {
				slot = int32(seq)
			}
			b.Add(token, i, seq, last || slot >= 0 && k.o.Last == k.lastLayer())
			slots = append(slots, slot)
			if len(b.Tokens) < k.batch && !(last && seq == len(texts)-1) {
				continue
			}
			if err := k.tap.Decode(ctx, k.c, &b, slots, sum); err != nil {
				return err
			}
			b.Reset()
			slots = slots[:0]
		}
	}
	for seq, t := range texts {
		states := sum[seq*width : (seq+1)*width : (seq+1)*width]
		scal(states, 1/float64(k.counted(t.tokens)))
		*t.states = states
	}
	return nil
}

// add takes the states of one sample into the sums.
func (k *collector) add(pair int, where string, pos, neg, base []float64) error {
	out, e := k.out, k.out.NEmbd
	for l := range out.lengths {
		for _, side := range [][]float64{pos, neg} {
			n := norm(side[l*e : (l+1)*e])
			if n-n != 0 {
				return fmt.Errorf("%s: the model's states of layer %d are not finite", where, l+out.First)
			}
			out.lengths[l] += n
		}
	}
	out.sides += 2
	out.Samples++
	for i, p := range pos {
		out.sum[i] += p - neg[i]
	}
	if out.store == nil {
		return nil
	}
	return out.store.add(pair, rounded(pos, base), rounded(neg, base))
}

// rounded returns x less base, if there is one, in 32 bits.
func rounded(x, base []float64) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		if base != nil {
			v -= base[i]
		}
		y[i] = float32(v)
	}
	return y
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
		at := (i - from) * width
		if err := k.add(p.Pair, p.Where, sums[0][at:at+width], sums[1][at:at+width], nil); err != nil {
			return err
		}
	}
	return nil
}

func (k *collector) lastLayer() int { return k.c.Model().Info().NLayer - 1 }
