package completion

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"gollama/internal/engine"
)

// fakeMedia fills the positions of a medium with cells that say which it is.
type fakeMedia struct{}

var errBlank = fmt.Errorf("it is blank: %w", engine.ErrMedia)

func (fakeMedia) Tokenize([]engine.MediaPart, bool) (*engine.MediaChunks, error) { return nil, errFake }

func (fakeMedia) Embed(_ context.Context, _ *cellContext, c *engine.MediaChunks, i int) ([]float32, error) {
	if c.List[i].Kind == engine.ChunkText {
		return nil, errFake
	}
	if c.List[i].ID == "blank" {
		return nil, errBlank
	}
	c.Work.Encodes++
	return nil, nil
}

func (m fakeMedia) Decode(ctx context.Context, c *cellContext, chunks *engine.MediaChunks, i, pos0, seq int, logits bool) error {
	if _, err := m.Embed(ctx, c, chunks, i); err != nil {
		return err
	}
	return m.DecodeSpans(ctx, c, []engine.MediaSpan{{Chunks: chunks, Chunk: i, Pos: pos0, Seq: seq, Logits: logits}})
}

func (fakeMedia) DecodeSpans(_ context.Context, c *cellContext, spans []engine.MediaSpan) error {
	c.rows = nil
	total := 0
	for _, s := range spans {
		x := &s.Chunks.List[s.Chunk]
		total += x.NTokens
		if first := &spans[0].Chunks.List[spans[0].Chunk]; x.NTokens != first.NTokens || x.NonCausal != first.NonCausal {
			c.fail("media of %d and %d tokens together", x.NTokens, first.NTokens)
		}
		if s.Pos != len(c.seqs[s.Seq]) {
			c.fail("sequence %d: medium at position %d, want %d", s.Seq, s.Pos, len(c.seqs[s.Seq]))
		}
		h := fnv.New32a()
		fmt.Fprint(h, x.ID, x.Tile, x.NTokens)
		for range x.NPos {
			c.add(s.Seq, engine.Token(h.Sum32()&0x7fff))
		}
		c.tokens += x.NTokens
		rows := make([][]float32, x.NTokens)
		if s.Logits {
			rows[x.NTokens-1] = c.after(s.Seq)
		}
		c.rows = append(c.rows, rows...)
	}
	c.widths = append(c.widths, total)
	if len(spans) > 1 && total > c.nBatch {
		c.fail("media of %d tokens in a batch of %d", total, c.nBatch)
	}
	return nil
}

// drawChunks makes a prompt of texts and media of which others have the beginning, too.
func drawChunks(t *rapid.T) *engine.MediaChunks {
	c := &engine.MediaChunks{}
	text := func(n int, ch string) {
		tokens, _ := fakeVocab{}.Tokenize(strings.Repeat(ch, n), false, false)
		c.List = append(c.List, engine.MediaChunk{Tokens: tokens, NTokens: n, NPos: n, Media: -1})
	}
	for i := range rapid.IntRange(1, 4).Draw(t, "chunks") {
		if rapid.Bool().Draw(t, "text") {
			text(rapid.SampledFrom([]int{1, 3, 12}).Draw(t, "length"), rapid.SampledFrom([]string{"s", "t"}).Draw(t, "of"))
			continue
		}
		id := rapid.SampledFrom([]string{"cat", "dog", "cat", "dog", "blank"}).Draw(t, "medium")
		n := map[string]int{"cat": 5, "dog": 12, "blank": 3}[id]
		c.List = append(c.List, engine.MediaChunk{Kind: engine.ChunkImage, ID: id, NTokens: n, NPos: min(n, 6), Media: i, NonCausal: id == "dog"})
	}
	if rapid.Bool().Draw(t, "question") {
		text(rapid.IntRange(1, 9).Draw(t, "length"), "?")
	}
	return c
}

// TestSlotsMediaProperty: whatever the number of slots, what they held before and the abilities of the memory, each text
// after images is the one that a session of its own makes.
func TestSlotsMediaProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nCtx := rapid.IntRange(60, 120).Draw(t, "nCtx")
		var list []*Request
		for i := range rapid.IntRange(0, 25).Draw(t, "requests") {
			r := &Request{N: rapid.SampledFrom([]int{1, 1, 1, 2, 5}).Draw(t, "n")}
			r.ID, r.NPredict = fmt.Sprint(i), rapid.IntRange(-1, 30).Draw(t, "predict")
			r.Sampling.Temp = float32(rapid.IntRange(0, 1).Draw(t, "temp"))
			if rapid.IntRange(0, 4).Draw(t, "kind") == 0 {
				r.Prompt = strings.Repeat("x", rapid.IntRange(0, 50).Draw(t, "prompt"))
			} else {
				r.Chunks = drawChunks(t)
			}
			list = append(list, r)
		}
		cfg := SlotConfig[*cellContext]{Media: fakeMedia{}, Parallel: rapid.IntRange(1, 7).Draw(t, "np"), NoReuse: rapid.Bool().Draw(t, "noReuse"), Ahead: rapid.IntRange(0, 3).Draw(t, "ahead")}
		if cfg.Deterministic = rapid.IntRange(0, 2).Draw(t, "deterministic") == 0; cfg.Deterministic {
			cfg.Parallel = PinnedRows
		}
		c := newCells(t.Errorf, nCtx, cfg.Parallel, rapid.IntRange(max(cfg.Parallel, 12), 64).Draw(t, "nBatch"))
		c.noRm, c.noCp = rapid.IntRange(0, 3).Draw(t, "noRm") == 0, rapid.IntRange(0, 3).Draw(t, "noCp") == 0
		c.window = rapid.SampledFrom([]int{0, 0, 5, 30}).Draw(t, "window")
		cfg.Context = c
		got, _ := runSlots(t, cfg, list)
		for _, r := range list {
			want, err := alone(t, nCtx, c.window, "", r)
			g := got[r.ID]
			if (err != nil) != (g.Err != nil) {
				t.Fatalf("%s: error %v, want %v", r.ID, g.Err, err)
			}
			for k := range want {
				g, w := g.Results[k], want[k]
				if g.Text != w.Text || g.FinishReason != w.FinishReason || g.Usage.PromptTokens != w.Usage.PromptTokens || g.Usage.NPos != w.Usage.NPos ||
					g.Usage.MediaTokens != w.Usage.MediaTokens || g.Usage.CompletionTokens != w.Usage.CompletionTokens {
					t.Fatalf("%s, text %d:\ngot  %+v\nwant %+v", r.ID, k, g, w)
				}
			}
		}
	})
}

// about returns a request about a picture of 50 tokens after a text of 20.
func about(i int, picture, question string) *Request {
	r := request(fmt.Sprint(i), "", 3)
	texts := []string{strings.Repeat("s", 20), question}
	r.Chunks = &engine.MediaChunks{}
	for k, text := range texts {
		tokens, _ := fakeVocab{}.Tokenize(text, false, false)
		if k == 1 {
			r.Chunks.List = append(r.Chunks.List, engine.MediaChunk{Kind: engine.ChunkImage, ID: picture, NTokens: 50, NPos: 50})
		}
		r.Chunks.List = append(r.Chunks.List, engine.MediaChunk{Tokens: tokens, NTokens: len(tokens), NPos: len(tokens), Media: -1})
	}
	return r
}

// TestSlotsMediaShare counts: many questions about one picture read it once, and what all prompts begin with is read once.
func TestSlotsMediaShare(t *testing.T) {
	var one, many []*Request
	for i := range 40 {
		one = append(one, about(i, "cat", fmt.Sprintf("%04d?", i)))
		many = append(many, about(i, fmt.Sprint(i), fmt.Sprintf("%04d?", i)))
	}
	for _, tt := range []struct {
		name          string
		list          []*Request
		deterministic bool
		noReuse       bool
		want          int
	}{
		{"one picture", one, false, false, 20 + 50 + 40*5},
		{"one picture, deterministic", one, true, false, 20 + 50 + 40*5},
		{"a picture each", many, false, false, 20 + 40*(50+5)},
		{"no reuse", many, false, true, 40 * (20 + 50 + 5)},
	} {
		c := newCells(t.Errorf, 512, PinnedRows, 128)
		_, st := runSlots(t, SlotConfig[*cellContext]{Context: c, Media: fakeMedia{}, Parallel: PinnedRows, Deterministic: tt.deterministic, NoReuse: tt.noReuse}, tt.list)
		if st.PromptTokens != tt.want || st.PromptTokens+st.CachedTokens != 40*75 {
			t.Errorf("%s: %d tokens evaluated, %d reused, want %d of %d", tt.name, st.PromptTokens, st.CachedTokens, tt.want, 40*75)
		}
	}
}

// TestSlotsMediaTogether: media of one size are evaluated together, as many as fit a batch.
func TestSlotsMediaTogether(t *testing.T) {
	var list []*Request
	for i := range 8 {
		list = append(list, about(i, fmt.Sprint(i), "?"))
	}
	c := newCells(t.Errorf, 512, 8, 4*50)
	runSlots(t, SlotConfig[*cellContext]{Context: c, Media: fakeMedia{}, Parallel: 8}, list)
	if n := strings.Count(fmt.Sprint(c.widths), "200"); n != 2 {
		t.Errorf("batches of %v tokens, want two of 200", c.widths)
	}
}
