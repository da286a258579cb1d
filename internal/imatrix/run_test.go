package imatrix

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"gollama/internal/engine"
	"gollama/internal/gguf"
)

// fakeModel is a context and its collector: each token meets a weight with its number and another with its square, and
// its log-probability is minus the number of tokens before it in the sequence.
type fakeModel struct {
	nSeq, nUBatch int
	on, skip      bool
	conflicts     int          // batches that end in a conflict while weights share
	nan           engine.Token // a token of which the model makes no number
	fail          error

	share    bool
	sum2     [2]float64
	count    int64
	bad      bool
	conflict bool
	last     []int // positions of the last batch
	batches  []string
}

func (f *fakeModel) NCtxSeq() int { return 256 }
func (f *fakeModel) NBatch() int  { return f.nUBatch }
func (f *fakeModel) NUBatch() int { return f.nUBatch }
func (f *fakeModel) NSeqMax() int { return f.nSeq }
func (f *fakeModel) ClearMemory() { f.last = nil }

func (f *fakeModel) Decode(ctx context.Context, b *engine.Batch) error {
	if err := ctx.Err(); err != nil {
		return engine.ErrCanceled
	}
	if f.fail != nil {
		return f.fail
	}
	if len(b.Tokens) > f.nUBatch {
		return fmt.Errorf("a batch of %d tokens", len(b.Tokens))
	}
	lens := map[int32]int{}
	f.last = nil
	for i, t := range b.Tokens {
		if !b.Output[i] {
			return errors.New("a token is no output")
		}
		if t == f.nan {
			f.bad = true
		}
		if f.on {
			f.sum2[0] += float64(t)
			f.sum2[1] += float64(t) * float64(t)
			f.count++
		}
		lens[b.Seq[i]]++
		f.last = append(f.last, int(b.Pos[i]))
	}
	f.conflict = f.conflict || f.share && f.conflicts > 0
	f.batches = append(f.batches, fmt.Sprint(len(lens), "x", lens[0], " skip ", f.skip))
	return nil
}

func (f *fakeModel) Logprobs(rows []int, tokens []engine.Token, out []float64) error {
	for i, r := range rows {
		out[i] = -float64(f.last[r])
	}
	return nil
}

func (f *fakeModel) Mode(on, skip bool) { f.on, f.skip = on, skip }
func (f *fakeModel) Reset(share bool) {
	f.share, f.sum2, f.count, f.bad, f.conflict = share, [2]float64{}, 0, false, false
}

func (f *fakeModel) Check() error {
	switch {
	case f.bad:
		return &engine.NonFiniteError{Weight: "a"}
	case f.conflict:
		f.conflicts--
		return engine.ErrConflict
	}
	return nil
}

func (f *fakeModel) Each(each func(engine.Collected)) {
	each(engine.Collected{Weights: []int{0, 1}, Sum2: f.sum2[:1], Sum: f.sum2[:1], Counts: []int64{f.count}})
	each(engine.Collected{Weights: []int{2}, Sum2: f.sum2[1:], Sum: f.sum2[1:], Counts: []int64{f.count}})
}

func newRun(f *fakeModel) *Run[*fakeModel] {
	return &Run[*fakeModel]{Context: f, Collector: f, Weights: []string{"c", "a", "b"}, File: &File{ChunkSize: 4, Ranges: Ranges{}}}
}

// sequence is a piece of n tokens from first on; it is number k of the data.
func sequence(k int64, first engine.Token, n, from int) Piece {
	p := Piece{Hash: "h", Span: Span{k, k + 1}, From: from}
	for i := range n {
		p.Tokens = append(p.Tokens, first+engine.Token(i))
	}
	return p
}

func TestGroup(t *testing.T) {
	f := &fakeModel{nSeq: 4, nUBatch: 8, nan: -1}
	r := newRun(f)
	// Four windows of 4 tokens, two of each at once; then three of 3, 5 and 11 tokens.
	if err := r.Group(t.Context(), []Piece{sequence(0, 1, 4, 2), sequence(1, 5, 4, 2), sequence(2, 9, 4, 2), sequence(3, 13, 4, 2)}); err != nil {
		t.Fatal(err)
	}
	if err := r.Group(t.Context(), []Piece{sequence(4, 17, 3, 0), sequence(5, 20, 5, 0), sequence(6, 25, 11, 0)}); err != nil {
		t.Fatal(err)
	}
	want := []string{"4x2 skip false", "4x2 skip false", "2x3 skip true", "1x8 skip true", "1x3 skip true"}
	if !slices.Equal(f.batches, want) {
		t.Errorf("batches %q, want %q", f.batches, want)
	}
	const n = 35 // tokens 1 to 35
	a, b := r.File.Entry("a"), r.File.Entry("b")
	if a.Sum2[0] != n*(n+1)/2 || b.Sum2[0] != n*(n+1)*(2*n+1)/6 || a.Counts[0] != n || b.Counts[0] != n || !reflect.DeepEqual(r.File.Entry("c").Sum2, a.Sum2) {
		t.Errorf("a %+v, b %+v", a, b)
	}
	if !slices.IsSortedFunc(r.File.Entries, func(a, b *Entry) int { return int(a.Name[0]) - int(b.Name[0]) }) {
		t.Error("entries are not in order")
	}
	if !reflect.DeepEqual(r.File.Ranges, Ranges{"h": {{0, 7}}}) {
		t.Errorf("ranges %v", r.File.Ranges)
	}
	// Of each window, tokens 2 and 3 are scored, after positions 1 and 2.
	if r.PPL.N != 8 || r.PPL.Sum != 12 || r.PPL.SumSq != 20 || math.Abs(r.PPL.Value()-math.Exp(1.5)) > 1e-12 {
		t.Errorf("perplexity %+v", r.PPL)
	}
	if got, want := r.PPL.Error(), math.Sqrt(0.25/7)*math.Exp(1.5); math.Abs(got-want) > 1e-12 {
		t.Errorf("error %v, want %v", got, want)
	}
}

// A window's cut where scoring begins is at whole blocks, or there is none.
func TestWindowCuts(t *testing.T) {
	for size, want := range map[int][]string{
		256: {"1x128 skip true", "1x128 skip false"},
		200: {"1x200 skip false"},
		128: {"1x64 skip true", "1x64 skip false"},
	} {
		f := &fakeModel{nSeq: 1, nUBatch: 256, nan: -1}
		if err := newRun(f).Group(t.Context(), []Piece{sequence(0, 1, size, size/2+1)}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(f.batches, want) {
			t.Errorf("%d tokens: %q, want %q", size, f.batches, want)
		}
	}
}

// Windows that are not scored are computed in parts, which add the same rows in the same order.
func TestUnscoredParts(t *testing.T) {
	for _, c := range []struct{ step, size, n, want int }{
		{512, 512, 4, 64}, {512, 128, 16, 64}, {512, 512, 1, 64}, {2048, 4096, 1, 64},
		{512, 500, 4, 512}, {512, 100, 20, 512}, {512, 130, 15, 512}, {32, 512, 4, 32}, {64, 512, 4, 64},
	} {
		if got := UnscoredBatch(c.step, c.size, c.n); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
	f := &fakeModel{nSeq: 2, nUBatch: 64, nan: -1}
	r := newRun(f)
	r.Step = 256
	if err := r.Group(t.Context(), []Piece{sequence(0, 1, 256, 0), sequence(1, 1000, 256, 0)}); err != nil {
		t.Fatal(err)
	}
	// Sequence 0 has no token in the batches of sequence 1.
	half := []string{"1x64 skip true", "1x64 skip true", "1x0 skip true", "1x0 skip true"}
	if want := slices.Concat(half, half); !slices.Equal(f.batches, want) {
		t.Errorf("batches %q, want %q", f.batches, want)
	}
	if got := r.File.Entry("a"); got.Counts[0] != 512 || got.Sum2[0] != 256*257/2+256*999+256*257/2 {
		t.Errorf("%+v", got)
	}
}

func TestGroupConflict(t *testing.T) {
	f := &fakeModel{nSeq: 2, nUBatch: 8, nan: -1, conflicts: 1}
	r := newRun(f)
	for k := range int64(2) {
		if err := r.Group(t.Context(), []Piece{sequence(k, 1, 4, 0)}); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.File.Entry("a"); got.Sum2[0] != 20 || got.Counts[0] != 8 || f.share {
		t.Errorf("%+v, share %v", got, f.share)
	}
}

// What fails leaves the file as it was; what makes no numbers is left out where that is asked for.
func TestGroupFails(t *testing.T) {
	f := &fakeModel{nSeq: 4, nUBatch: 16, nan: 7}
	r := newRun(f)
	good, bad := sequence(0, 1, 4, 2), sequence(1, 5, 4, 2)
	if err := r.Group(t.Context(), []Piece{good}); err != nil {
		t.Fatal(err)
	}
	before := fmt.Sprintf("%+v %+v", r.File.Entries[0], r.PPL)
	same := func(what string) {
		t.Helper()
		if got := fmt.Sprintf("%+v %+v", r.File.Entries[0], r.PPL); got != before || !r.File.Ranges.Has("h", Span{0, 1}) || r.File.Ranges.Has("h", Span{1, 2}) {
			t.Errorf("%s: %s %v, want %s", what, got, r.File.Ranges, before)
		}
	}
	var nan *engine.NonFiniteError
	if err := r.Group(t.Context(), []Piece{sequence(2, 20, 4, 2), bad}); !errors.As(err, &nan) {
		t.Errorf("not a number: %v", err)
	}
	same("not a number")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Group(ctx, []Piece{sequence(2, 20, 4, 2)}); !errors.Is(err, engine.ErrCanceled) {
		t.Errorf("canceled: %v", err)
	}
	same("canceled")
	if err := r.Group(t.Context(), []Piece{good}); err == nil {
		t.Error("measured twice")
	}
	same("twice")
	r.Skip = true
	if err := r.Group(t.Context(), []Piece{sequence(2, 20, 4, 2), bad, sequence(3, 24, 4, 2)}); err != nil {
		t.Fatal(err)
	}
	if got := r.File.Entry("a"); got.Counts[0] != 12 || got.Sum2[0] != 1+2+3+4+20+21+22+23+24+25+26+27 || len(r.Skipped) != 1 || r.Skipped[0].Span != bad.Span {
		t.Errorf("%+v, skipped %v", got, r.Skipped)
	}
	if !r.File.Ranges.Has("h", Span{0, 4}) {
		t.Errorf("ranges %v: what was skipped is not to be tried again", r.File.Ranges)
	}
	// A file of another model.
	r = newRun(f)
	r.File.Entries = []*Entry{{Name: "a", Sum2: []float64{1, 2}, Counts: []uint64{1}}}
	if err := r.Group(t.Context(), []Piece{good}); err == nil || r.File.Entries[0].Counts[0] != 1 {
		t.Errorf("another width: %v", err)
	}
}

func TestWeights(t *testing.T) {
	var tensors []gguf.TensorInfo
	for _, name := range []string{"token_embd.weight", "blk.0.attn_norm.weight", "blk.0.attn_q.weight", "blk.0.attn_q.bias", "blk.0.ffn_up_exps.weight", "output_norm.weight"} {
		shape := []uint64{4, 4}
		if name == "blk.0.attn_norm.weight" || name == "output_norm.weight" || name == "blk.0.attn_q.bias" {
			shape = shape[:1]
		}
		tensors = append(tensors, gguf.TensorInfo{Name: name, Shape: shape})
	}
	blocks := []string{"blk.0.attn_q.weight", "blk.0.ffn_up_exps.weight"}
	if got := Weights(tensors, false); !slices.Equal(got, blocks) {
		t.Errorf("%q", got)
	}
	if got, want := Weights(tensors, true), append(slices.Clone(blocks), "token_embd.weight"); !slices.Equal(got, want) {
		t.Errorf("tied head: %q, want %q", got, want)
	}
	tensors = append(tensors, gguf.TensorInfo{Name: "output.weight", Shape: []uint64{4, 4}})
	if got, want := Weights(tensors, true), append(slices.Clone(blocks), "output.weight"); !slices.Equal(got, want) {
		t.Errorf("head: %q, want %q", got, want)
	}
}
