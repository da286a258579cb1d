//go:build cgo

package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gollama/internal/gguf"
)

// tinyKeysOf are tinyKeys for another architecture, with more numbers of it.
func tinyKeysOf(arch string, numbers map[string]uint32) gguf.KVs {
	kvs := tinyKeys()
	for i := range kvs {
		if k, ok := strings.CutPrefix(kvs[i].Key, "llama."); ok {
			kvs[i].Key = arch + "." + k
		}
	}
	kvs[0].Value = gguf.ValueOf(arch)
	for k, v := range numbers {
		kvs = append(kvs, gguf.KV{Key: arch + "." + k, Value: gguf.ValueOf(v)})
	}
	return kvs
}

// writeMamba writes a recurrent model, and writeGemma2 one with sliding windows.
func writeMamba(t *testing.T) string {
	const inner, state, rank, conv = 2 * tinyEmbd, 8, 4, 4
	f := func(name string, shape ...uint64) gguf.TensorInfo {
		return gguf.TensorInfo{Name: name, Type: gguf.TypeF32, Shape: shape}
	}
	list := []gguf.TensorInfo{f("token_embd.weight", tinyEmbd, tinyVocab), f("output_norm.weight", tinyEmbd), f("output.weight", tinyEmbd, tinyVocab)}
	for i := range tinyLayers {
		b := fmt.Sprintf("blk.%d.", i)
		list = append(list, f(b+"attn_norm.weight", tinyEmbd), f(b+"ssm_in.weight", tinyEmbd, 2*inner), f(b+"ssm_conv1d.weight", conv, inner),
			f(b+"ssm_conv1d.bias", inner), f(b+"ssm_x.weight", inner, rank+2*state), f(b+"ssm_dt.weight", rank, inner), f(b+"ssm_dt.bias", inner),
			f(b+"ssm_a", state, inner), f(b+"ssm_d", inner), f(b+"ssm_out.weight", inner, tinyEmbd))
	}
	kvs := tinyKeysOf("mamba", map[string]uint32{"ssm.conv_kernel": conv, "ssm.inner_size": inner, "ssm.state_size": state, "ssm.time_step_rank": rank})
	return writeGGUF(t, "mamba.gguf", kvs, list)
}

func writeGemma2(t *testing.T) string {
	var list []gguf.TensorInfo
	for _, ti := range tinyTensors() {
		if ti.Name != "output.weight" { // it is that of token_embd
			list = append(list, ti)
		}
	}
	for i := range tinyLayers {
		for _, name := range []string{"post_attention_norm", "post_ffw_norm"} {
			list = append(list, gguf.TensorInfo{Name: fmt.Sprintf("blk.%d.%s.weight", i, name), Type: gguf.TypeF32, Shape: []uint64{tinyEmbd}})
		}
	}
	return writeGGUF(t, "gemma2.gguf", tinyKeysOf("gemma2", map[string]uint32{"attention.sliding_window": 64}), list)
}

// specOf returns a speculator over a new context of two sequences, in the ways of types.
func specOf(t *testing.T, path, draft string, change func(p *Params), types ...SpecType) (*Context, *Speculator, error) {
	t.Helper()
	p := DefaultParams()
	p.Model, p.Warmup, p.NCtx, p.NParallel, p.CPUParams.NThreads = path, false, 512, 2, 1
	p.Speculative.Types, p.Speculative.Draft.Model = types, draft
	p.Speculative.NgramSimple = NgramParams{SizeN: 2, SizeM: 4, MinHits: 1}
	if change != nil {
		change(&p)
	}
	m := openModel(t, &p)
	var d *Model
	if draft != "" {
		q := p.ForDraft()
		d = openModel(t, &q)
	}
	c := openContext(t, m, &p)
	s, err := NewSpeculator(c, d, &p)
	t.Cleanup(func() { _ = s.Close() })
	return c, s, err
}

// TestNoRollback: what cannot take tokens back is told from what can.
func TestNoRollback(t *testing.T) {
	tiny, mamba, gemma := writeTiny(t), writeMamba(t), writeGemma2(t)
	full := func(p *Params) { p.SWAFull = true }
	for _, x := range []struct {
		path, draft string
		change      func(p *Params)
		typ         SpecType
		want        error
	}{
		{tiny, "", nil, SpecNgramSimple, nil}, {mamba, "", nil, SpecNgramSimple, ErrNoRollback},
		{gemma, "", nil, SpecNgramSimple, ErrNoRollback}, {gemma, "", full, SpecNgramSimple, nil},
		{tiny, tiny, nil, SpecDraftSimple, nil}, {tiny, mamba, nil, SpecDraftSimple, ErrNoRollback},
		{gemma, tiny, full, SpecDraftSimple, nil},
	} {
		if _, _, err := specOf(t, x.path, x.draft, x.change, x.typ); !errors.Is(err, x.want) {
			t.Errorf("%s, draft %s: got %v, want %v", x.path, x.draft, err, x.want)
		}
	}
}

func TestCheckDraft(t *testing.T) {
	open := func(path string) *Model {
		p := DefaultParams()
		p.Model, p.VocabOnly = path, true
		return openModel(t, &p)
	}
	kvs := tinyKeys()
	tokens, _ := kvs.Strings("tokenizer.ggml.tokens")
	tokens = slices.Clone(tokens)
	tokens[270] = "other"
	kvs = kvs.With("tokenizer.ggml.tokens", gguf.ValueOf(tokens))
	tiny, other := open(writeTiny(t)), open(writeGGUF(t, "other.gguf", kvs, tinyTensors()))
	vocab := func(name string) *Model { return open("../../.engine/src/models/ggml-vocab-" + name + ".gguf") }
	for _, x := range []struct {
		target, draft *Model
		want          string
	}{
		{tiny, tiny, ""}, {tiny, nil, "there is no draft model"},
		{tiny, other, `token 270 is "other" there and "l" in the model`},
		{tiny, vocab("llama-spm"), "it has 32000 tokens, the model 286: more than 128 apart"},
		{vocab("llama-spm"), vocab("qwen2"), "its vocabulary is bpe, the model's spm"},
		{vocab("llama-bpe"), vocab("qwen2"), "it begins a text with token"},
	} {
		err := CheckDraft(x.target, x.draft)
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("got %v, want %q", err, x.want)
		}
	}
}

// TestSpeculator drives one by hand: it learns a text that repeats, its
// sequences do not mix, and misuse is an error and not an assertion in C.
func TestSpeculator(t *testing.T) {
	c, s, err := specOf(t, writeTiny(t), "", nil, SpecNgramSimple, SpecNgramCache, SpecNgramMod, SpecNgramMapK, SpecNgramMapK4V)
	if err != nil {
		t.Fatal(err)
	}
	var text []Token
	for range 8 {
		text = append(text, 100, 101, 102, 103, 104, 105)
	}
	if err := errors.Join(s.Begin(0, text), s.Begin(1, []Token{1, 9, 8, 7})); err != nil {
		t.Fatal(err)
	}
	list := []Guess{{Seq: 0, Pos: len(text), Max: 3, Last: 100}, {Seq: 1, Pos: 4, Max: 3, Last: 100}}
	if err := s.Speculate(list); err != nil || !slices.Equal(list[0].Tokens, []Token{101, 102, 103}) || len(list[1].Tokens) != 0 {
		t.Errorf("got %v, %v", list, err)
	}
	if err := s.Accept(0, 2); err != nil {
		t.Error(err)
	}
	if err := s.Move(0, 1); err != nil {
		t.Error(err)
	}
	list = []Guess{{Seq: 1, Pos: len(text) + 3, Max: 2, Last: 103}}
	if err := s.Speculate(list); err != nil || !slices.Equal(list[0].Tokens, []Token{104, 105}) {
		t.Errorf("after a move: %v, %v", list, err)
	}
	for what, err := range map[string]error{
		"no guess":     s.Accept(0, 0),
		"too many":     s.Accept(1, 3),
		"sequence":     s.Begin(2, nil),
		"no such move": s.Move(0, -1),
		"token":        s.Speculate([]Guess{{Seq: 0, Pos: 1, Max: 1, Last: tinyVocab}}),
		"position":     s.Speculate([]Guess{{Seq: 0, Pos: -1, Max: 1, Last: 1}}),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil || c.follower != nil {
		t.Errorf("close: %v", err)
	}
	if err := s.Begin(0, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("after close: %v", err)
	}
}

// TestDraftMemory: the draft model's memory is changed as its target's is.
func TestDraftMemory(t *testing.T) {
	tiny := writeTiny(t)
	c, s, err := specOf(t, tiny, tiny, nil, SpecDraftSimple)
	if err != nil {
		t.Fatal(err)
	}
	same := func(what string) {
		t.Helper()
		for seq := range 2 {
			if a, b := c.SeqPosMax(seq), s.draft.SeqPosMax(seq); a != b {
				t.Errorf("%s: sequence %d ends at %d, in the draft at %d", what, seq, a, b)
			}
		}
	}
	if err := c.DecodePrompt(t.Context(), []Token{1, 100, 101, 102, 103}, 0, 0, nil); err != nil {
		t.Fatal(err)
	}
	same("prompt")
	if err := s.Begin(0, []Token{1, 100, 101, 102, 103}); err != nil {
		t.Fatal(err)
	}
	list := []Guess{{Seq: 0, Pos: 5, Max: 9, Last: 104}}
	if err := s.Speculate(list); err != nil || len(list[0].Tokens) != 3 {
		t.Fatalf("got %v, %v, want 3 tokens", list, err)
	}
	same("guess")
	c.SeqRm(0, 3, -1)
	same("removed")
	c.SeqCp(0, 1, -1, -1)
	same("copied")
	c.SeqKeep(1)
	same("kept")
	if !c.SeqAdd(1, 1, 3, 4) {
		t.Error("no shift")
	}
	same("shifted")
	if err := c.SetState([]byte("x")); err == nil {
		t.Error("a state was restored beside a draft model")
	}
	c.ClearMemory()
	same("cleared")
}

func TestParseSpecTypes(t *testing.T) {
	for in, want := range map[string][]SpecType{
		"none": nil, "ngram-mod,ngram-mod": {SpecNgramMod}, "draft-simple,ngram-simple": {SpecDraftSimple, SpecNgramSimple}, "ngram-mod,none": nil,
	} {
		if got, err := ParseSpecTypes(in); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "x", "draft-mtp", "ngram-mod,"} {
		if _, err := ParseSpecTypes(in); err == nil {
			t.Errorf("%q: no error", in)
		}
	}
}
