//go:build cgo

package engine

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gollama/internal/gguf"
)

func logitsOf(t *testing.T, c *Context, tokens []Token) []float32 {
	t.Helper()
	c.ClearMemory()
	if err := c.DecodePrompt(context.Background(), tokens, 0, 0, nil); err != nil {
		t.Fatal(err)
	}
	l, err := c.Logits(-1)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(l)
}

func TestTiny(t *testing.T) {
	p := testParams(writeTiny(t))
	var last float32
	p.LoadProgressCallback = func(x float32) bool { last = x; return true }
	m := openModel(t, p)
	if i := m.Info(); i.Arch != "llama" || i.NLayer != tinyLayers || i.NVocab != tinyVocab || i.NCtxTrain != tinyCtx || last != 1 {
		t.Errorf("Info = %+v, progress %v", i, last)
	}
	c := openContext(t, m, p)
	tokens, err := m.Vocab().Tokenize("hi \x00é", true, false)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(m.Vocab().Detokenize(tokens[1:], false)); got != " hi \x00é" {
		t.Errorf("round trip = %q from %v", got, tokens)
	}
	if l := logitsOf(t, c, tokens); len(l) != tinyVocab || slices.ContainsFunc(l, func(x float32) bool { return !finite(x) }) {
		t.Errorf("logits = %v", l)
	}
	if generate(t, c, &p.Sampling, "abc", 5) == "" {
		t.Error("nothing was generated")
	}
}

func TestCloseTwice(t *testing.T) {
	p := testParams(writeTiny(t))
	m := openModel(t, p)
	c := openContext(t, m, p)
	s, err := NewSampler(m, &p.Sampling)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the model first: it must outlive the others
		if err := errors.Join(m.Close(), s.Close(), c.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Decode(context.Background(), &Batch{}); !errors.Is(err, ErrClosed) {
		t.Errorf("Decode = %v", err)
	}
	if _, err := m.Vocab().Tokenize("a", false, false); !errors.Is(err, ErrClosed) {
		t.Errorf("Tokenize = %v", err)
	}
	if _, err := NewContext(m, p); !errors.Is(err, ErrClosed) {
		t.Errorf("NewContext = %v", err)
	}
	if s.Accept(1, true) != ErrClosed || (*Context)(nil).Close() != nil || (*Model)(nil).Close() != nil {
		t.Error("nil or closed values misbehave")
	}
}

func TestTruncatedModel(t *testing.T) {
	data, err := os.ReadFile(writeTiny(t))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "cut.gguf")
	for i := range 100 {
		if err := os.WriteFile(path, data[:len(data)*i/100], 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := LoadModel(context.Background(), testParams(path))
		if err == nil {
			m.Close()
			t.Fatalf("%d%%: no error", i)
		}
		if !errors.Is(err, ErrModel) || !strings.Contains(err.Error(), path) || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%d%%: error %q", i, err)
		}
	}
}

func TestWrongFiles(t *testing.T) {
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage.gguf")
	if err := os.WriteFile(garbage, bytes.Repeat([]byte("no model "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	noArch := tinyKeys().With("general.architecture", gguf.ValueOf("nonesuch"))
	tests := []struct{ name, path, want string }{
		{"missing", filepath.Join(dir, "none.gguf"), "no such file"},
		{"directory", dir, "it is a directory"},
		{"garbage", garbage, "magic"},
		{"adapter", writeGGUF(t, "l.gguf", loraKeys(), loraTensors("blk.0.attn_q.weight")), "it is a LoRA adapter"},
		{"vector", writeVector(t, vectorKeys(), tinyEmbd, 1), "it is a control vector"},
		{"architecture", writeGGUF(t, "a.gguf", noArch, tinyTensors()), "unknown model architecture: 'nonesuch'"},
		{"tensors", writeGGUF(t, "t.gguf", tinyKeys(), tinyTensors()[:5]), "not found"},
		{"keys", writeGGUF(t, "k.gguf", tinyKeys().Without("llama.block_count"), tinyTensors()), "key not found"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := LoadModel(context.Background(), testParams(tt.path))
			if !errors.Is(err, ErrModel) || !strings.HasPrefix(err.Error(), tt.path+": ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("LoadModel = %v, want %q", err, tt.want)
			}
		})
	}
}

// TestWrittenFiles loads what package gguf writes: with several alignments, and three of the pinned source's
// vocabularies written again, if they are there. The others come out of package gguf's own tests byte for byte.
func TestWrittenFiles(t *testing.T) {
	tokens := []Token{1, 260, 270, 280}
	var want []float32
	for _, align := range []uint32{32, 8, 64, 256} {
		p := testParams(writeGGUF(t, "a.gguf", tinyKeys().With(gguf.KeyAlignment, gguf.ValueOf(align)), tinyTensors()))
		got := logitsOf(t, openContext(t, openModel(t, p), p), tokens)
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Errorf("alignment %d: the logits differ", align)
		}
	}
	for _, name := range []string{"llama-spm", "gpt-2", "bert-bge"} {
		path := "../../.engine/src/models/ggml-vocab-" + name + ".gguf"
		f, err := gguf.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			t.Logf("not compared: %v", err)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		p := testParams(writeGGUF(t, filepath.Base(path), f.KVs, nil))
		p.VocabOnly = true
		tokens, _ := f.Strings("tokenizer.ggml.tokens")
		if m, err := LoadModel(context.Background(), p); err != nil {
			t.Errorf("%s: %v", filepath.Base(path), err)
		} else if n := m.Info().NVocab; n != len(tokens) {
			t.Errorf("%s: got %d tokens, want %d", filepath.Base(path), n, len(tokens))
		} else if err := m.Close(); err != nil {
			t.Error(err)
		}
		f.Close()
	}
}

func TestSplitModel(t *testing.T) {
	whole := testParams(writeTiny(t))
	prefix := filepath.Join(t.TempDir(), "part")
	w, err := gguf.CreateSplit(prefix, tinyKeys(), tinyTensors(), gguf.SplitLimits{Tensors: 11})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, w, tinyTensors())
	parts := testParams(gguf.SplitPath(prefix, 0, 3))
	tokens := []Token{1, 260, 270, 280}
	want := logitsOf(t, openContext(t, openModel(t, whole), whole), tokens)
	if got := logitsOf(t, openContext(t, openModel(t, parts), parts), tokens); !slices.Equal(got, want) {
		t.Error("the split model's logits differ")
	}
	os.Remove(gguf.SplitPath(prefix, 1, 3))
	if _, err := LoadModel(context.Background(), parts); err == nil || !strings.Contains(err.Error(), "00002-of-00003") {
		t.Errorf("with a part missing: %v", err)
	}
}

func TestCancel(t *testing.T) {
	p := testParams(writeTiny(t))
	ctx, cancel := context.WithCancel(context.Background())
	c := openContext(t, openModel(t, p), p)
	cancel()
	if err := c.DecodePrompt(ctx, []Token{1, 5}, 0, 0, nil); !errors.Is(err, ErrCanceled) || !errors.Is(err, context.Canceled) {
		t.Errorf("decode = %v", err)
	}
	if _, err := LoadModel(ctx, p); !errors.Is(err, ErrCanceled) {
		t.Errorf("LoadModel = %v", err)
	}
	ctx, cancel = context.WithCancel(context.Background())
	defer cancel()
	tokens := slices.Repeat([]Token{270}, tinyCtx)
	err := c.DecodeLogits(ctx, tokens, 0, 0, func(i int, _ []float32) error { cancel(); return ctx.Err() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("decode = %v", err)
	}
	for name, f := range map[string]func(float32) bool{"stop": func(float32) bool { return false }, "panic": func(float32) bool { panic("x") }} {
		p.LoadProgressCallback = f
		if _, err := LoadModel(context.Background(), p); err == nil || (name == "stop") != errors.Is(err, ErrCanceled) {
			t.Errorf("%s in the callback: %v", name, err)
		}
	}
}

func TestState(t *testing.T) {
	p := testParams(writeTiny(t))
	m := openModel(t, p)
	a, b := openContext(t, m, p), openContext(t, m, p)
	ctx := context.Background()
	logitsOf(t, a, []Token{1, 260, 261, 262})
	state, err := a.State()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.SetState(state); err != nil || b.SeqPosMax(0) != 3 {
		t.Fatalf("SetState = %v, last position %d", err, b.SeqPosMax(0))
	}
	var rows [2][]float32
	for i, c := range []*Context{a, b} {
		if err := c.DecodePrompt(ctx, []Token{263}, 4, 0, nil); err != nil {
			t.Fatal(err)
		}
		l, _ := c.Logits(-1)
		rows[i] = slices.Clone(l)
	}
	if !slices.Equal(rows[0], rows[1]) {
		t.Error("logits differ after the state was restored")
	}
	state[len(state)/2] ^= 1
	for _, bad := range [][]byte{nil, state[:5], state[:len(state)-1], state} {
		if err := b.SetState(bad); err == nil || b.SeqPosMax(0) != -1 {
			t.Errorf("a damaged state of %d bytes: %v", len(bad), err)
		}
	}
}

func TestLoRA(t *testing.T) {
	p := testParams(writeTiny(t))
	m := openModel(t, p)
	c := openContext(t, m, p)
	tokens := []Token{1, 260, 261}
	before := logitsOf(t, c, tokens)
	good := writeGGUF(t, "good.gguf", loraKeys(), loraTensors("blk.1.attn_q.weight"))
	wrong := writeGGUF(t, "wrong.gguf", loraKeys(), loraTensors("blk.9.attn_q.weight"))
	half := writeGGUF(t, "half.gguf", loraKeys(), loraTensors("blk.1.attn_q.weight")[:1])
	other := writeGGUF(t, "other.gguf", loraKeys().With("general.architecture", gguf.ValueOf("qwen2")), loraTensors("blk.1.attn_q.weight"))
	if err := c.SetLoRA([]LoRAInfo{{good, 1}}); err != nil || c.SeqPosMax(0) != -1 {
		t.Fatalf("SetLoRA = %v, last position %d", err, c.SeqPosMax(0))
	}
	if slices.Equal(logitsOf(t, c, tokens), before) {
		t.Error("the adapter changes nothing")
	}
	for _, bad := range []string{wrong, half, other, p.Model, "none.gguf"} {
		if err := c.SetLoRA([]LoRAInfo{{good, 1}, {bad, 1}}); err == nil || !strings.HasPrefix(err.Error(), bad+": ") {
			t.Errorf("SetLoRA = %v", err)
		}
	}
	if got := c.LoRAs(); len(got) != 1 || got[0].Path != good {
		t.Errorf("LoRAs = %v", got)
	}
	if err := c.SetLoRA(nil); err != nil || !slices.Equal(logitsOf(t, c, tokens), before) {
		t.Errorf("removing all: %v, or the logits differ", err)
	}
}

func TestControlVector(t *testing.T) {
	p := testParams(writeTiny(t))
	c := openContext(t, openModel(t, p), p)
	tokens := []Token{1, 260, 261}
	before := logitsOf(t, c, tokens)
	good := writeVector(t, vectorKeys(), tinyEmbd, 1, 2)
	one := writeVector(t, vectorKeys(), tinyEmbd, 1)
	set := func(path string) ([]float32, error) {
		if err := c.SetControlVector([]ControlVectorInfo{{path, 2}}, -1, -1); err != nil {
			return nil, err
		}
		return logitsOf(t, c, tokens), nil
	}
	fresh, err := set(one)
	if err != nil || slices.Equal(fresh, before) {
		t.Fatalf("the vector changes nothing, or %v", err)
	}
	if _, err := set(good); err != nil {
		t.Fatal(err)
	}
	// A shorter vector must not leave the second layer's direction behind.
	if again, err := set(one); err != nil || !slices.Equal(again, fresh) {
		t.Errorf("a stale layer is left, or %v", err)
	}
	bad := map[string]string{
		"size":  writeVector(t, vectorKeys(), tinyEmbd/2, 1),
		"layer": writeVector(t, vectorKeys(), tinyEmbd, 1, tinyLayers),
		"zero":  writeVector(t, vectorKeys(), tinyEmbd, 0),
		"hint":  writeVector(t, vectorKeys().With("controlvector.model_hint", gguf.ValueOf("qwen2")), tinyEmbd, 1),
		"model": p.Model, "missing": "none.gguf",
	}
	for name, path := range bad {
		if _, err := set(path); err == nil || !strings.HasPrefix(err.Error(), path+": ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.SetControlVector(nil, -1, -1); err != nil || !slices.Equal(logitsOf(t, c, tokens), before) {
		t.Errorf("removing it: %v, or the logits differ", err)
	}
	if err := c.SetControlVector([]ControlVectorInfo{{good, float32(math.NaN())}}, -1, -1); err == nil {
		t.Error("a NaN strength is accepted")
	}
}
