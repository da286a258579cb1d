//go:build cgo

package completion

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"gollama/internal/engine"
	"gollama/internal/gguf"
)

// slots makes texts after prompts, np at once, and returns the results by name and what was counted.
func (v *vision) slots(np int, deterministic bool, prompts map[string][]any, names ...string) (map[string]Result, SlotStats) {
	v.t.Helper()
	p := v.p
	p.NCtx, p.NParallel, p.NBatch, p.NUBatch = v.p.NCtx*np, np, max(v.p.NBatch, np), max(v.p.NUBatch, np)
	c, err := engine.NewContext(v.m, &p)
	if err != nil {
		v.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	s, err := NewSlots(SlotConfig[*engine.Context]{Vocab: v.m.Vocab(), Context: c, Media: v.md, Parallel: np, Deterministic: deterministic,
		NewSampler: func(p *engine.SamplingParams) (SlotSampler[*engine.Context], error) { return engine.NewSampler(v.m, p) }})
	if err != nil {
		v.t.Fatal(err)
	}
	var list []*Request
	for i, name := range names {
		r := request(fmt.Sprint(i), "", 12)
		r.Sampling, r.NProbs = v.p.Sampling, 1
		if r.Chunks, err = v.md.Tokenize(toParts(prompts[name]), true); err != nil {
			v.t.Fatal(err)
		}
		defer func() { _ = r.Chunks.Close() }()
		list = append(list, r)
	}
	got := map[string]Result{}
	err = s.Run(v.t.Context(), requests(list), func(r Reply) error {
		if r.Err != nil {
			return r.Err
		}
		i := 0
		_, _ = fmt.Sscan(r.ID, &i)
		if old, ok := got[names[i]]; ok && old.Text != r.Results[0].Text {
			v.t.Errorf("%s: %q, and before %q", names[i], r.Results[0].Text, old.Text)
		}
		got[names[i]] = r.Results[0]
		return nil
	})
	if err != nil {
		v.t.Fatal(err)
	}
	return got, s.Stats()
}

// TestMediaSlots: texts about pictures made at once are those made alone, and a picture is encoded once.
func TestMediaSlots(t *testing.T) {
	for _, projector := range []string{"mmproj-mlp", "nano-vision-llava16", "mmproj-internvl", "mmproj-gemma3", "mmproj-gemma4uv", "mmproj-pixtral", "mmproj-qwen2vl"} {
		v := newVision(t, projector, 1024, nil)
		a, b, c := v.open("grad.png"), v.open("red.png"), v.open("wide.png")
		prompts := map[string][]any{
			"A": {"look ", a, " what is this"}, "B": {"look ", b, " what is this"}, "C": {"look ", c, " what is this"},
			"A2": {"look ", a, " tell me"}, "AB": {"look ", a, " and ", b, " what is this"}, "BA": {"look ", b, " and ", a, " what is this"},
			"A...": {"look ", a}, "B...": {"look ", b}, "text": {"Once upon a time"},
		}
		want := map[string]string{}
		for name, parts := range prompts {
			v.fresh()
			want[name] = v.must(parts...).Text
		}
		before := v.md.Stats()
		names := []string{"A", "B", "A", "AB", "text", "C", "BA", "A2", "B...", "A...", "B", "C", "AB", "A...", "text", "A2", "BA", "B..."}
		for _, np := range []int{1, 4, PinnedRows} {
			if np == PinnedRows && projector != "mmproj-mlp" {
				continue // TestMediaRounding has more of it
			}
			got, st := v.slots(np, np == PinnedRows, prompts, names...)
			for name, text := range want {
				if got[name].Text != text {
					t.Errorf("%s, %d slots: %s: got %q, want %q", projector, np, name, got[name].Text, text)
				}
			}
			if np == 1 && st.CachedTokens == 0 {
				t.Errorf("%s: nothing is reused: %+v", projector, st)
			}
		}
		if after := v.md.Stats(); after.Encodes != before.Encodes {
			t.Errorf("%s: pictures were encoded again: %+v, before %+v", projector, after, before)
		}
	}
}

// TestMediaRounding: under Deterministic the bits of log-probabilities after pictures depend neither on the number of slots
// nor on the neighbours, nor on whether the beginning was there already.
func TestMediaRounding(t *testing.T) {
	for _, projector := range []string{"mmproj-mlp", "mmproj-qwen2vl", "mmproj-gemma3"} {
		v := newVision(t, projector, 1024, nil)
		a, b := v.open("grad.png"), v.open("red.png")
		prompts := map[string][]any{
			"A": {"look ", a, " what is this"}, "A2": {"look ", a, " tell me what you see here and why"}, "B": {"look ", b, " what is this"},
			"AB": {"look ", a, " and ", b, " what is this"}, "B...": {"look ", b},
		}
		for name := range prompts {
			alone, _ := v.slots(PinnedRows, true, prompts, name)
			for _, np := range []int{PinnedRows, 2 * PinnedRows} {
				beside, _ := v.slots(np, true, prompts, "A", "B...", "AB", "A2", "B", "A2", "A", "AB", "B...", "A2", "A")
				if x, y := logprobs(alone[name].Logprobs), logprobs(beside[name].Logprobs); !slices.Equal(x, y) {
					t.Errorf("%s, %s, %d slots: log-probabilities\n%v\nalone\n%v", projector, name, np, y, x)
				}
			}
		}
	}
}

// TestMediaGolden has the chunks and the 12 tokens that a C++ program over libmtmd 0.5.0 and llama_decode gets for this
// prompt; its picture is decoded by stb_image, which differs from ours in the last bits.
func TestMediaGolden(t *testing.T) {
	v := newVision(t, "mmproj-mlp", 512, nil)
	s, err := engine.NewSampler(v.m, &v.p.Sampling)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	r, err := v.s.Generate(t.Context(), Options{Parts: toParts([]any{"look ", v.open(testJPEG), " what is this"}), NPredict: 12, NProbs: 1}, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []engine.Token
	for _, p := range r.Logprobs {
		got = append(got, p.ID)
	}
	want := []engine.Token{450, 436, 410, 447, 416, 416, 412, 261, 419, 355, 426, 13}
	if u := r.Usage; !slices.Equal(got, want) || u.PromptTokens != 5+4+8 || u.MediaTokens != 4 {
		t.Errorf("got %v after %d tokens, %d of them of the picture; want %v after 17, 4", got, u.PromptTokens, u.MediaTokens, want)
	}
}

// TestMediaAdapter: what was computed with other weights is not taken over. Embeddings are the projector's alone and stay.
func TestMediaAdapter(t *testing.T) {
	v := newVision(t, "mmproj-mlp", 512, nil)
	a := v.open("grad.png")
	prompt := []any{"look ", a, " what is this"}
	plain := v.must(prompt...).Text
	adapter := []engine.LoRAInfo{{Path: writeAdapter(t), Scale: 1}}
	for _, list := range [][]engine.LoRAInfo{adapter, nil, adapter} {
		if err := v.c.SetLoRA(list); err != nil {
			t.Fatal(err)
		}
		v.s.Drop()
		r := v.must(prompt...)
		if r.Usage.CachedTokens != 0 || (r.Text == plain) != (list == nil) {
			t.Errorf("%d adapters: %q with %d tokens reused; without adapters it is %q", len(list), r.Text, r.Usage.CachedTokens, plain)
		}
	}
	if s := v.md.Stats(); s.Encodes != 1 {
		t.Errorf("got %d encodes, want 1", s.Encodes)
	}
	// A projector with other limits makes other tokens of the same picture.
	few := newVision(t, "mmproj-gemma4uv", 1024, func(_ *engine.Params, mp *engine.MediaParams) { mp.ImageMaxTokens = 100 })
	many := newVision(t, "mmproj-gemma4uv", 1024, nil)
	b := v.open(testJPEG)
	if x, y := few.must("look ", b).Usage.MediaTokens, many.must("look ", b).Usage.MediaTokens; x > 100 || y != 540 {
		t.Errorf("got %d and %d tokens, want at most 100, and 540", x, y)
	}
}

// writeAdapter writes a LoRA adapter for the text model of the fixtures, whose layers are 64 wide.
func writeAdapter(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lora.gguf")
	tensors := []gguf.TensorInfo{{Name: "blk.1.attn_output.weight.lora_a", Type: gguf.TypeF32, Shape: []uint64{64, 4}},
		{Name: "blk.1.attn_output.weight.lora_b", Type: gguf.TypeF32, Shape: []uint64{4, 64}}}
	w, err := gguf.Create(path, gguf.KVs{{Key: "general.architecture", Value: gguf.ValueOf("llama")}, {Key: "general.type", Value: gguf.ValueOf("adapter")},
		{Key: "adapter.type", Value: gguf.ValueOf("lora")}, {Key: "adapter.lora.alpha", Value: gguf.ValueOf(float32(8))}}, tensors)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for _, ti := range tensors {
		var data []byte
		for i := range ti.Elements() {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32((37*i+11)%101)/50-1))
		}
		if err := w.WriteTensor(ti.Name, bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}
