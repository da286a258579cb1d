//go:build cgo

package completion

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"gollama/internal/engine"
	"gollama/internal/engine/ggml"
	"gollama/internal/media"
)

const (
	mtmdFixtures = "../../../shared/fixtures/mtmd"
	testJPEG     = "../../.engine/src/tools/mtmd/test-1.jpeg"
)

// vision is a text model with a projector, a context and a session.
type vision struct {
	t  *testing.T
	p  engine.Params
	m  *engine.Model
	md *engine.Media
	c  *engine.Context
	s  *Session[*engine.Context]
}

func newVision(t *testing.T, projector string, nCtx int, change func(*engine.Params, *engine.MediaParams)) *vision {
	t.Helper()
	v := &vision{t: t, p: engine.DefaultParams()}
	v.p.Model, v.p.NCtx, v.p.Warmup, v.p.Sampling.Temp, v.p.CPUParams.NThreads = mtmdFixtures+"/models/text-chat.gguf", nCtx, false, 0, 1
	if strings.Contains(projector, "qwen2vl") {
		v.p.Model = mtmdFixtures + "/models/text-qwen2vl.gguf"
	}
	if _, err := os.Stat(v.p.Model); err != nil {
		t.Skipf("%v: this test reads the shared fixtures", err)
	}
	v.p.MMProj = mtmdFixtures + "/models/" + projector + ".gguf"
	mp := v.p.Media()
	if change != nil {
		change(&v.p, &mp)
	}
	var err error
	if v.m, err = engine.LoadModel(t.Context(), &v.p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.m.Close() })
	if v.md, err = engine.NewMedia(t.Context(), v.m, &mp); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.md.Close() })
	v.p.NUBatch = max(v.p.NUBatch, v.md.MinUBatch())
	v.p.NBatch = max(v.p.NBatch, v.md.MinUBatch())
	v.fresh()
	return v
}

// fresh makes a new context and a session in it.
func (v *vision) fresh() {
	v.t.Helper()
	if v.c != nil {
		_ = v.c.Close()
	}
	var err error
	if v.c, err = engine.NewContext(v.m, &v.p); err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { _ = v.c.Close() })
	if v.s, err = NewSession(Engine[*engine.Context]{Vocab: v.m.Vocab(), Context: v.c, Media: v.md}); err != nil {
		v.t.Fatal(err)
	}
}

func (v *vision) open(path string) *engine.Bitmap {
	v.t.Helper()
	if filepath.Base(path) == path {
		path = filepath.Join(mtmdFixtures, "media", path)
	}
	f, err := media.Open(path, media.Options{})
	if err != nil {
		v.t.Fatal(err)
	}
	b, err := OpenMedia(v.md, f, false)
	if err != nil {
		v.t.Fatal(err)
	}
	return b
}

// ask generates n tokens after what parts say: strings and bitmaps.
func (v *vision) ask(n int, parts ...any) (Result, error) {
	v.t.Helper()
	s, err := engine.NewSampler(v.m, &v.p.Sampling)
	if err != nil {
		v.t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	return v.s.Generate(context.WithoutCancel(v.t.Context()), Options{Parts: toParts(parts), NPredict: n}, s, nil)
}

func toParts(list []any) (parts []engine.MediaPart) {
	for _, p := range list {
		switch p := p.(type) {
		case string:
			parts = append(parts, engine.MediaPart{Text: p})
		case *engine.Bitmap:
			parts = append(parts, engine.MediaPart{Media: p})
		}
	}
	return parts
}

func (v *vision) must(parts ...any) Result {
	v.t.Helper()
	r, err := v.ask(12, parts...)
	if err != nil {
		v.t.Fatal(err)
	}
	return r
}

// TestMediaNeverTheWrongPicture: in one session, in any order and with one text's media in the next, each answer is that
// of a context of its own; a picture that was seen before costs no encode.
func TestMediaNeverTheWrongPicture(t *testing.T) {
	for _, projector := range []string{"mmproj-mlp", "mmproj-mlp-2l", "nano-vision-llava16", "mmproj-internvl", "mmproj-gemma3", "mmproj-gemma4uv", "mmproj-pixtral", "mmproj-qwen2vl"} {
		v := newVision(t, projector, 4096, nil)
		second := "red.png"
		if strings.Contains(projector, "internvl") || strings.Contains(projector, "llava16") {
			second = testJPEG // several tiles
		}
		a, b := v.open("grad.png"), v.open(second)
		prompts := map[string][]any{
			"A":    {"look ", a, " what is this"},
			"B":    {"look ", b, " what is this"},
			"AB":   {"look ", a, " and ", b, " what is this"},
			"BA":   {"look ", b, " and ", a, " what is this"},
			"A...": {"look ", a}, // it ends in a picture
			"B...": {"look ", b},
		}
		want := map[string]string{}
		for name, parts := range prompts {
			v.fresh()
			want[name] = v.must(parts...).Text
		}
		if want["A"] == want["B"] || want["AB"] == want["BA"] || want["A..."] == want["B..."] {
			t.Errorf("%s: the pictures make no difference: %q", projector, want)
		}
		before := v.md.Stats()
		v.fresh()
		for _, name := range []string{"A", "B", "A", "AB", "BA", "B", "A...", "B...", "A", "AB", "A...", "A..."} {
			if got := v.must(prompts[name]...).Text; got != want[name] {
				t.Errorf("%s: %s: got %q, want %q", projector, name, got, want[name])
			}
		}
		if after := v.md.Stats(); after.Encodes != before.Encodes || after.CacheHits == before.CacheHits {
			t.Errorf("%s: pictures were encoded again: %+v, before %+v", projector, after, before)
		}
	}
}

// TestMediaUsage: what is in the context is not evaluated again, up to the last whole medium.
func TestMediaUsage(t *testing.T) {
	v := newVision(t, "mmproj-qwen2vl", 1024, nil)
	b := v.open(testJPEG)
	r := v.must("look ", b, " what is this")
	// 391 tokens of the picture at 23 positions; the vocabulary spells the marks around it.
	if u := r.Usage; u.MediaTokens != 391 || u.PromptTokens-u.NPos != 391-23 || u.CachedTokens != 0 {
		t.Errorf("got %+v, want 391 tokens at 23 positions", u)
	}
	if got, want := v.c.SeqPosMax(0), r.Usage.NPos+r.Usage.CompletionTokens-2; got != want {
		t.Errorf("the last position is %d, want %d", got, want)
	}
	again := v.must("look ", b, " what is this")
	if u := again.Usage; u.CachedTokens != u.PromptTokens-1 || again.Text != r.Text {
		t.Errorf("again: got %+v, %q, want all but one cached and %q", u, again.Text, r.Text)
	}
	other := v.must("look ", b, " tell me")
	if u := other.Usage; u.CachedTokens < 391+18 || u.CachedTokens >= u.PromptTokens-1 {
		t.Errorf("another question: got %+v", u)
	}
	v.fresh()
	if fresh := v.must("look ", b, " tell me"); fresh.Text != other.Text {
		t.Errorf("another question: got %q, want %q", other.Text, fresh.Text)
	}
}

// TestMediaFull: a prompt that does not fit is refused before anything is encoded, and a full context ends the text.
func TestMediaFull(t *testing.T) {
	v := newVision(t, "mmproj-qwen2vl", 256, nil)
	b := v.open(testJPEG)
	_, err := v.ask(5, "look ", b, " what is this")
	var long *PromptTooLongError
	if !errors.As(err, &long) || long.Limit != 252 || v.md.Stats().Encodes != 0 {
		t.Errorf("got %v, %+v", err, v.md.Stats())
	}
	v = newVision(t, "mmproj-qwen2vl", 512, func(p *engine.Params, _ *engine.MediaParams) { p.Sampling.IgnoreEOS = true })
	r, err := v.ask(-1, "look ", b, " what is this")
	if want := 512 - r.Usage.PromptTokens; err != nil || r.FinishReason != FinishContext || r.Usage.CompletionTokens != want {
		t.Errorf("got %d tokens, %s, %v, want %d", r.Usage.CompletionTokens, r.FinishReason, err, want)
	}
	for _, o := range []Overflow{OverflowShift, OverflowTruncate} {
		_, err := v.s.Generate(t.Context(), Options{Parts: toParts([]any{"x", b}), Overflow: o}, noSampler{}, nil)
		if !errors.Is(err, ErrMediaShift) && !errors.Is(err, ErrNoShift) {
			t.Errorf("%s: got %v", o, err)
		}
	}
}

type noSampler struct{}

func (noSampler) Sample(*engine.Context, int) (engine.Token, error) { return 0, errFake }
func (noSampler) Accept(engine.Token, bool) error                   { return nil }
func (noSampler) Seed() uint32                                      { return 0 }

// TestMediaFailureBetween: a picture that fails changes nothing for those around it.
func TestMediaFailureBetween(t *testing.T) {
	v := newVision(t, "mmproj-mlp", 512, nil)
	a, b := v.open("grad.png"), v.open(testJPEG)
	want := v.must("look ", a, " what is this").Text
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := v.s.Generate(ctx, Options{Parts: toParts([]any{"look ", b, " what"}), NPredict: 3}, noSampler{}, nil)
	if err != nil || r.FinishReason != FinishCancelled {
		t.Errorf("cancelled: got %s, %v", r.FinishReason, err)
	}
	bad := *b
	bad.RGB = bad.RGB[:10]
	if _, err := v.ask(3, "look ", &bad, " what"); err == nil {
		t.Error("a picture without its pixels is taken")
	}
	if got := v.must("look ", a, " what is this").Text; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestMediaRelease: without a projector the session is one of text, and what it held is gone.
func TestMediaRelease(t *testing.T) {
	v := newVision(t, "mmproj-mlp", 512, nil)
	a := v.open("grad.png")
	want := v.must("Once upon a time").Text
	v.must("look ", a, " what is this")
	v.s.SetMedia(nil)
	if _, err := v.ask(3, "look ", a, " what"); !errors.Is(err, ErrNoMedia) {
		t.Errorf("got %v, want ErrNoMedia", err)
	}
	if got := v.must("Once upon a time"); got.Text != want || got.Usage.CachedTokens != 0 {
		t.Errorf("got %q, %+v, want %q", got.Text, got.Usage, want)
	}
	// Another projector: the picture is the same and its embeddings are not.
	other := newVision(t, "mmproj-mlp-2l", 512, nil)
	mp := engine.DefaultMediaParams()
	mp.Path = mtmdFixtures + "/models/mmproj-mlp-2l.gguf"
	md, err := engine.NewMedia(t.Context(), v.m, &mp)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = md.Close() }()
	v.s.SetMedia(md)
	if got, want := v.must("look ", a, " what is this").Text, other.must("look ", a, " what is this").Text; got != want {
		t.Errorf("another projector: got %q, want %q", got, want)
	}
}

// TestMediaBatches: the sizes of batches change no text, where attention is causal.
func TestMediaBatches(t *testing.T) {
	want := ""
	for _, n := range []int{4096, 512, 32} {
		v := newVision(t, "mmproj-qwen2vl", 512, func(p *engine.Params, _ *engine.MediaParams) { p.NBatch, p.NUBatch = n, min(n, 512) })
		got := v.must("look ", v.open(testJPEG), " what is this").Text
		if want == "" {
			want = got
		}
		if got != want {
			t.Errorf("-b %d: got %q, want %q", n, got, want)
		}
	}
}

// TestMediaMarkerIsText: what a user writes is never a place for a picture.
func TestMediaMarkerIsText(t *testing.T) {
	v := newVision(t, "mmproj-mlp", 512, nil)
	a := v.open("grad.png")
	for _, text := range []string{"<__media__>", engine.NewMediaMarker()} {
		c, err := v.md.Tokenize(toParts([]any{"say " + text + " to ", a}), true)
		if err != nil {
			t.Fatal(err)
		}
		said := string(v.m.Vocab().Detokenize(c.List[0].Tokens, true))
		if len(c.List) != 2 || !strings.Contains(said, text) {
			t.Errorf("got %d chunks, %q", len(c.List), said)
		}
		_ = c.Close()
	}
	if _, err := v.ask(1, "say <__media__>"); err != nil {
		t.Error(err)
	}
}

// TestMediaMany: 300 pictures through one session leave nothing behind.
func TestMediaMany(t *testing.T) {
	v := newVision(t, "mmproj-mlp", 256, func(_ *engine.Params, mp *engine.MediaParams) { mp.CacheBytes = 20 * 4 * 4 * 64 })
	var at20 int64
	resident := func() int64 {
		debug.FreeOSMemory() // what the collector has not looked at yet is no leak
		return ggml.ProcessMemory("VmRSS")
	}
	for i := range 300 {
		rgb := make([]byte, 3*32*32)
		for k := range rgb {
			rgb[k] = byte(k * (i + 1))
		}
		b, err := engine.NewImageBitmap(32, 32, rgb)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v.ask(2, "look ", b, " what is this"); err != nil {
			t.Fatal(err)
		}
		if i == 20 {
			at20 = resident()
		}
	}
	s := v.md.Stats()
	if s.Encodes != 300 || s.CacheBytes > 20*4*4*64 {
		t.Errorf("got %+v, want 300 encodes and at most 20 pictures kept", s)
	}
	// 5 % of what the process had after 20 pictures, and 2 MiB that the Go heap comes and goes by. A
	// preprocessed picture kept each time would be 280 x 37 KiB.
	if now := resident(); at20 > 0 && now > at20+at20/20+2<<20 {
		t.Errorf("the process grew from %d to %d KiB", at20>>10, now>>10)
	}
}
