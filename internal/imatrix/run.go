package imatrix

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"gollama/internal/engine"
	"gollama/internal/gguf"
)

// Weights returns the names of the weights of a model that are measured: those of its blocks, and with head the one
// that makes logits, which of a model without output.weight is its embedding.
func Weights(tensors []gguf.TensorInfo, head bool) []string {
	var names []string
	last := ""
	for _, t := range tensors {
		if !strings.HasSuffix(t.Name, ".weight") || len(t.Shape) < 2 {
			continue
		}
		switch {
		case measured(t.Name):
			names = append(names, t.Name)
		case t.Name == "output.weight", t.Name == "token_embd.weight" && last == "":
			last = t.Name
		}
	}
	if head && last != "" {
		names = append(names, last)
	}
	return names
}

// Context is what measuring needs of *engine.Context, all sequences of which it uses.
type Context interface {
	NCtxSeq() int
	NBatch() int
	NUBatch() int
	NSeqMax() int
	Decode(ctx context.Context, b *engine.Batch) error
	Logprobs(rows []int, tokens []engine.Token, out []float64) error
	ClearMemory()
}

// Collector is what measuring needs of *engine.Collector.
type Collector interface {
	Mode(on, skipHead bool)
	Reset(share bool)
	Check() error
	Each(f func(in engine.Collected))
}

// Piece is a sequence of tokens that is measured, with nothing before it.
type Piece struct {
	Tokens []engine.Token
	Hash   string // of the data that it is of
	Span   Span   // which part of that: pieces of one span are measured together or not at all
	From   int    // the log-probabilities of Tokens[From:] count for the perplexity; 0 for none
}

// Perplexity is the sum over scored tokens.
type Perplexity struct {
	N          int
	Sum, SumSq float64 // of the negative log-probabilities, nats
}

func (p *Perplexity) add(logprobs []float64) {
	for _, v := range logprobs {
		p.N++
		p.Sum -= v
		p.SumSq += v * v
	}
}

// Value returns exp(Sum/N), 1 for no tokens.
func (p *Perplexity) Value() float64 {
	if p.N == 0 {
		return 1
	}
	return math.Exp(p.Sum / float64(p.N))
}

// Error is the standard error of the value, as llama-perplexity has it after "+/-".
func (p *Perplexity) Error() float64 {
	if p.N < 2 {
		return 0
	}
	n := float64(p.N)
	mean := p.Sum / n
	return math.Sqrt(max(p.SumSq/n-mean*mean, 0)/(n-1)) * p.Value()
}

// Run measures pieces in a context and adds them to a file.
type Run[C Context] struct {
	Context   C
	Collector Collector
	Weights   []string // in the order that the collector has them
	File      *File    // what was measured so far: Group adds to it, all of its pieces or none
	PPL       Perplexity
	Skip      bool    // leave out pieces of which the model makes no numbers, and count them
	Step      int     // tokens that are measured together, if the context takes them in parts; 0 for what it takes at once
	Skipped   []Piece // these

	alone   bool // weights do not share inputs
	batch   engine.Batch
	rows    []int
	next    []engine.Token
	out     []float64
	scored  Perplexity
	ordered []*Entry // of the file, by weight
}

// limit is how many tokens the engine computes at once.
func (r *Run[C]) limit() int { return min(r.Context.NBatch(), r.Context.NUBatch()) }

// step is how many tokens are measured together, which decides in which order rows are added.
func (r *Run[C]) step() int { return max(r.Step, r.limit()) }

// UnscoredBatch returns the batch in which tokens without a score are computed, of those that are measured in windows of
// size tokens, n side by side and step of them together: as every token is an output, llama.cpp makes room for its logits,
// though nothing computes them. It is a block of flash attention if that changes no bit and no order, and else step.
func UnscoredBatch(step, size, n int) int {
	part := min(max(1, step/n), size)
	blocks := part%wholeBlock == 0 && size%wholeBlock == 0
	whole := wholeBlock%part == 0 && size%part == 0
	if step > wholeBlock && (blocks || whole) {
		return wholeBlock
	}
	return step
}

// Group measures pieces. If it returns an error, the file is as before: the error of ctx or of the engine, or an
// *engine.NonFiniteError that names the weight.
func (r *Run[C]) Group(ctx context.Context, pieces []Piece) error {
	err := r.try(ctx, pieces)
	if errors.Is(err, engine.ErrConflict) && !r.alone {
		r.alone = true
		err = r.try(ctx, pieces)
	}
	var bad *engine.NonFiniteError
	if !errors.As(err, &bad) && !errors.Is(err, errNaN) || !r.Skip {
		return err
	}
	// The pieces of one span stand or fall together.
	spans := slices.Collect(bySpan(pieces))
	if len(spans) == 1 {
		r.Skipped = append(r.Skipped, pieces...)
		return r.mark(pieces)
	}
	for _, span := range spans {
		if err := r.Group(ctx, span); err != nil {
			return err
		}
	}
	return nil
}

// bySpan yields the runs of pieces that are of one span.
func bySpan(pieces []Piece) func(yield func([]Piece) bool) {
	return func(yield func([]Piece) bool) {
		for len(pieces) > 0 {
			n := 1
			for n < len(pieces) && pieces[n].Span == pieces[0].Span && pieces[n].Hash == pieces[0].Hash {
				n++
			}
			if !yield(pieces[:n]) {
				return
			}
			pieces = pieces[n:]
		}
	}
}

// errNaN says that logits are no numbers, while the inputs of all weights are.
var errNaN = errors.New("the model's logits are not numbers")

// try measures pieces and, if all went well, adds them to the file.
func (r *Run[C]) try(ctx context.Context, pieces []Piece) error {
	r.Collector.Reset(!r.alone)
	r.scored = Perplexity{}
	if err := r.evaluate(ctx, pieces); err != nil {
		if cerr := r.Collector.Check(); cerr != nil && ctx.Err() == nil {
			return cerr
		}
		return err
	}
	if err := r.Collector.Check(); err != nil {
		return err
	}
	if err := r.fits(); err != nil {
		return err
	}
	if err := r.mark(pieces); err != nil {
		return err
	}
	r.commit()
	r.PPL.N, r.PPL.Sum, r.PPL.SumSq = r.PPL.N+r.scored.N, r.PPL.Sum+r.scored.Sum, r.PPL.SumSq+r.scored.SumSq
	return nil
}

// mark writes down what was measured.
func (r *Run[C]) mark(pieces []Piece) error {
	if r.File.Ranges == nil {
		return nil
	}
	for span := range bySpan(pieces) {
		if err := r.File.Ranges.Add(span[0].Hash, span[0].Span); err != nil {
			return err
		}
	}
	return nil
}

// evaluate runs the pieces through the model: windows of one length side by side, others several in a batch, and one
// that is longer than a batch in parts.
func (r *Run[C]) evaluate(ctx context.Context, pieces []Piece) error {
	for len(pieces) > 0 {
		n, total := 1, len(pieces[0].Tokens)
		equal := true
		for n < len(pieces) && n < r.Context.NSeqMax() {
			size := len(pieces[n].Tokens)
			same := equal && size == len(pieces[0].Tokens)
			if !same && total+size > r.step() {
				break
			}
			equal = same
			n, total = n+1, total+size
		}
		if !equal && total > r.step() { // some were of one length, until one was not
			for n = 1; len(pieces[n].Tokens) == len(pieces[0].Tokens); n++ {
				continue
			}
			equal = true
		}
		r.Context.ClearMemory()
		var err error
		if equal {
			err = r.windows(ctx, pieces[:n])
		} else {
			err = r.pack(ctx, pieces[:n])
		}
		if err != nil {
			return err
		}
		pieces = pieces[n:]
	}
	return nil
}

// wholeBlock is how many tokens flash attention on the CPU takes at once, if there are as many: parts of windows are cut
// at multiples of it, so that a cut more changes no bit of the result.
const wholeBlock = 64

// windows evaluates pieces of one length side by side, in the shapes of llama-perplexity: an equal part of each in a
// batch. A part is cut where scoring begins, as what comes before needs no logits.
func (r *Run[C]) windows(ctx context.Context, pieces []Piece) error {
	size, part := len(pieces[0].Tokens), max(1, r.step()/len(pieces))
	half := size / 2
	for pos := 0; pos < size; {
		end := min(pos+part, size)
		if pos < half && half < end && (half-pos)%wholeBlock == 0 && (end-half)%wholeBlock == 0 {
			end = half
		}
		r.reset()
		for seq, p := range pieces {
			r.add(p, pos, end, seq)
		}
		if err := r.decode(ctx); err != nil {
			return err
		}
		pos = end
	}
	return nil
}

// pack evaluates pieces that are one batch together.
func (r *Run[C]) pack(ctx context.Context, pieces []Piece) error {
	r.reset()
	for seq, p := range pieces {
		r.add(p, 0, len(p.Tokens), seq)
	}
	return r.decode(ctx)
}

func (r *Run[C]) reset() {
	r.batch.Reset()
	r.rows, r.next = r.rows[:0], r.next[:0]
}

// add puts tokens pos to end of a piece into the batch. All of them are outputs: else the model would not compute the
// last block's feed-forward for them.
func (r *Run[C]) add(p Piece, pos, end, seq int) {
	for i := pos; i < end; i++ {
		if p.From > 0 && i+1 >= p.From && i+1 < len(p.Tokens) {
			r.rows = append(r.rows, len(r.batch.Tokens))
			r.next = append(r.next, p.Tokens[i+1])
		}
		r.batch.Add(p.Tokens[i], i, seq, true)
	}
}

func (r *Run[C]) decode(ctx context.Context) error {
	r.Collector.Mode(true, len(r.rows) == 0)
	err := r.compute(ctx)
	r.Collector.Mode(false, false)
	if err != nil {
		return fmt.Errorf("evaluate %d tokens: %w", len(r.batch.Tokens), err)
	}
	if len(r.rows) == 0 {
		return nil
	}
	r.out = slices.Grow(r.out[:0], len(r.rows))[:len(r.rows)]
	if err := r.Context.Logprobs(r.rows, r.next, r.out); err != nil {
		return err
	}
	for _, v := range r.out {
		if math.IsNaN(v) {
			return errNaN
		}
	}
	r.scored.add(r.out)
	return nil
}

// compute evaluates the batch, in parts if the context takes no more; what is scored is one part.
func (r *Run[C]) compute(ctx context.Context) error {
	b, limit := &r.batch, r.limit()
	if len(b.Tokens) <= limit || len(r.rows) > 0 {
		return r.Context.Decode(ctx, b)
	}
	for from := 0; from < len(b.Tokens); from += limit {
		to := min(from+limit, len(b.Tokens))
		part := engine.Batch{Tokens: b.Tokens[from:to], Pos: b.Pos[from:to], Seq: b.Seq[from:to], Output: b.Output[from:to]}
		if err := r.Context.Decode(ctx, &part); err != nil {
			return err
		}
	}
	return nil
}

// fits checks the entries that the file has against what was measured.
func (r *Run[C]) fits() error {
	if r.ordered == nil {
		r.ordered = make([]*Entry, len(r.Weights))
		for i, name := range r.Weights {
			r.ordered[i] = r.File.Entry(name)
		}
	}
	var err error
	r.Collector.Each(func(in engine.Collected) {
		for _, w := range in.Weights {
			e := r.ordered[w]
			if e == nil {
				continue
			}
			if len(e.Counts) == 1 && len(in.Counts) > 1 { // one count of an older file stands for each expert
				e.Counts = slices.Repeat(e.Counts, len(in.Counts))
			}
			if len(e.Sum2) != len(in.Sum2) || len(e.Counts) != len(in.Counts) {
				err = errors.Join(err, fmt.Errorf("entry %q has %d values and %d counts, the model makes %d and %d", e.Name, len(e.Sum2), len(e.Counts), len(in.Sum2), len(in.Counts)))
			}
		}
	})
	return err
}

// commit adds what was measured to the file.
func (r *Run[C]) commit() {
	r.Collector.Each(func(in engine.Collected) {
		for _, w := range in.Weights {
			e := r.ordered[w]
			if e == nil {
				e = &Entry{Name: r.Weights[w], Sum2: make([]float64, len(in.Sum2)), Sum: make([]float64, len(in.Sum2)), Counts: make([]uint64, len(in.Counts))}
				r.ordered[w] = e
				i, _ := slices.BinarySearchFunc(r.File.Entries, e.Name, func(o *Entry, name string) int { return strings.Compare(o.Name, name) })
				r.File.Entries = slices.Insert(r.File.Entries, i, e)
			}
			addTo(e.Sum2, in.Sum2)
			if e.Sum != nil {
				addTo(e.Sum, in.Sum)
			}
			for k, n := range in.Counts {
				e.Counts[k] += uint64(n)
			}
		}
	})
}

func addTo(dst, x []float64) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] += x[i]
	}
}
