//go:build cgo

package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/draw"
	_ "image/jpeg"
	_ "image/png"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gollama/internal/engine/ggml"
)

const mtmdFixtures = "../../../shared/fixtures/mtmd"

// projectorFile returns the path of a projector of the fixtures.
func projectorFile(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(mtmdFixtures, "models", name+".gguf")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%v: this test reads the shared fixtures", err)
	}
	return path
}

// openMedia loads a projector of the fixtures and the text model for it.
func openMedia(t testing.TB, name string, change func(*MediaParams)) *Media {
	t.Helper()
	p := DefaultParams()
	p.Model, p.Warmup = projectorFile(t, "text-chat"), false
	if strings.Contains(name, "qwen2vl") {
		p.Model = projectorFile(t, "text-qwen2vl")
	}
	m, err := LoadModel(t.Context(), &p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	mp := DefaultMediaParams()
	mp.Path, mp.NThreads = projectorFile(t, name), 1
	if change != nil {
		change(&mp)
	}
	md, err := NewMedia(t.Context(), m, &mp)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = md.Close() })
	return md
}

// picture decodes a file as it lies there.
func picture(t testing.TB, path string) *Bitmap {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Skipf("%v: this test reads the engine's sources or the shared fixtures", err)
	}
	defer func() { _ = f.Close() }()
	img, _, err := image.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	r := img.Bounds()
	rgba := image.NewNRGBA(r)
	draw.Draw(rgba, r, img, r.Min, draw.Src)
	rgb := make([]byte, 0, 3*r.Dx()*r.Dy())
	for i := 0; i < len(rgba.Pix); i += 4 {
		rgb = append(rgb, rgba.Pix[i:i+3]...)
	}
	b, err := NewImageBitmap(r.Dx(), r.Dy(), rgb)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	testJPEG = "../../.engine/src/tools/mtmd/test-1.jpeg"
	testMP3  = "../../.engine/src/tools/mtmd/test-2.mp3"
)

func shape(c *MediaChunks) string {
	var b strings.Builder
	for i, x := range c.List {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s:%d", x.Kind, x.NTokens)
		if x.NPos != x.NTokens {
			fmt.Fprintf(&b, "/%d", x.NPos)
		}
	}
	return b.String()
}

// look is a prompt around a medium.
func look(b *Bitmap) []MediaPart {
	return []MediaPart{{Text: "look "}, {Media: b}, {Text: " what is this"}}
}

// TestMediaCounts has the chunks that libmtmd itself makes of "look <__media__> what is this" and these files, from a
// C++ program over mtmd_tokenize of the same pin; the text model's vocabulary has no tokens for the marks around an image
// (<start_of_image> and the like) and spells them. Placeholders count the same, and nothing is encoded.
func TestMediaCounts(t *testing.T) {
	for _, tt := range []struct{ projector, file, want string }{
		{"nano-vision-mlp", testJPEG, "text:5 image:4 text:8"},
		{"nano-vision-mlp-1tok", testJPEG, "text:5 image:1 text:8"},
		{"mmproj-mlp", testJPEG, "text:5 image:4 text:8"},
		{"mmproj-mlp-2l", testJPEG, "text:5 image:16 text:8"},
		{"nano-vision-llava16", testJPEG, "text:5 image:4 image:4 image:4 image:4 image:4 text:8"}, // overview and 2x2 tiles
		{"mmproj-internvl", testJPEG, "text:10 image:4 image:4 image:4 image:4 image:4 text:14"},   // 2x2 tiles and overview
		{"mmproj-gemma3", testJPEG, "text:19 image:4 text:20"},
		{"mmproj-gemma4uv", testJPEG, "text:13 image:540 text:16"},   // 27 x 20 squares of 24 pixels
		{"mmproj-pixtral", testJPEG, "text:5 image:998 text:18"},     // 37 x 27 patches of 16 less one row's: 27 rows of 36, 26 breaks
		{"mmproj-qwen2vl", testJPEG, "text:18 image:391/23 text:19"}, // 23 x 17 squares of 28
		{"mmproj-both", testJPEG, "text:13 image:540 text:16"},       // as gemma4uv
		{"mmproj-qwen2a", testMP3, "text:19 audio:750 text:22"},      // 30 s, padded
		{"nano-audio-qwen2a", testMP3, "text:19 audio:750 text:22"},  //
		{"mmproj-gemma4ua", testMP3, "text:14 audio:436 text:17"},    // 40 ms each
		{"mmproj-both", testMP3, "text:14 audio:436 text:17"},        //
		{"nano-audio-qwen2a", "a-0200.wav", "text:19 audio:750 text:22"},
		{"nano-audio-qwen2a", "a-29s9.wav", "text:19 audio:750 text:22"},
		{"nano-audio-qwen2a", "a-30s.wav", "text:19 audio:750 audio:750 text:22"}, // upstream: the second is silence
		{"nano-audio-qwen2a", "a-30s1.wav", "text:19 audio:750 audio:750 text:22"},
		{"nano-audio-qwen2a", "a-61s.wav", "text:19 audio:750 audio:750 audio:750 text:22"},
	} {
		md := openMedia(t, tt.projector, nil)
		b := medium(t, md, tt.file)
		c, err := md.Tokenize(look(b), true)
		if err != nil {
			t.Fatal(err)
		}
		if got := shape(c); got != tt.want {
			t.Errorf("%s, %s: got %s, want %s", tt.projector, filepath.Base(tt.file), got, tt.want)
		}
		empty := &Bitmap{ID: b.ID, Width: b.Width, Height: b.Height, Audio: b.Audio, NSamples: b.NSamples}
		counted, err := md.Tokenize(look(empty), true)
		if err != nil {
			t.Fatal(err)
		}
		if got := shape(counted); got != tt.want {
			t.Errorf("%s, %s: counted %s, want %s", tt.projector, filepath.Base(tt.file), got, tt.want)
		}
		for i := range counted.List {
			if _, err := md.Embed(t.Context(), nil, counted, i); err == nil {
				t.Errorf("%s: chunk %d of a placeholder has embeddings", tt.projector, i)
			}
		}
		if s := md.Stats(); s.Encodes != 0 {
			t.Errorf("%s: counting encoded: %+v", tt.projector, s)
		}
		_, _ = counted.Close(), c.Close()
	}
}

// medium opens a picture or a sound, of the fixtures if path is a name.
func medium(t testing.TB, md *Media, path string) *Bitmap {
	t.Helper()
	if filepath.Base(path) == path {
		path = filepath.Join(mtmdFixtures, "media", path)
	}
	if ext := filepath.Ext(path); ext != ".mp3" && ext != ".wav" {
		return picture(t, path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Skipf("%v: this test reads the engine's sources or the shared fixtures", err)
	}
	b, err := md.DecodeAudio(data)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestMediaEmbed: what is encoded depends on the medium alone, and is computed once.
func TestMediaEmbed(t *testing.T) {
	jpeg, grad := picture(t, testJPEG), picture(t, filepath.Join(mtmdFixtures, "media", "grad.png"))
	for _, name := range []string{"mmproj-mlp", "nano-vision-llava16", "mmproj-internvl", "mmproj-gemma3"} {
		md := openMedia(t, name, nil)
		embed := func(parts []MediaPart, n int) [][]float32 { // of medium n
			c, err := md.Tokenize(parts, true)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			var out [][]float32
			for i := range c.List {
				if c.List[i].Media == n {
					e, err := md.Embed(t.Context(), nil, c, i)
					if err != nil {
						t.Fatal(err)
					}
					if len(e) != c.List[i].NTokens*md.Info().NEmbd {
						t.Errorf("%s: got %d floats for %d tokens", name, len(e), c.List[i].NTokens)
					}
					out = append(out, e)
				}
			}
			return out
		}
		want := embed(look(jpeg), 0)
		encodes := md.Stats().Encodes
		if encodes != len(want) {
			t.Errorf("%s: %d encodes for %d chunks", name, encodes, len(want))
		}
		got := embed([]MediaPart{{Media: grad}, {Text: "and"}, {Media: jpeg}}, 1)
		if s := md.Stats(); s.Encodes != encodes || s.CacheHits != len(want) {
			t.Errorf("%s: a picture was encoded again: %+v", name, s)
		}
		if !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%s: the same picture has other embeddings", name)
		}
		cold := openMedia(t, name, func(p *MediaParams) { p.CacheBytes = 0 })
		md = cold
		if got := embed([]MediaPart{{Media: grad}, {Media: jpeg}}, 1); !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%s: beside another picture it has other embeddings", name)
		}
		if got := embed(look(grad), 0); slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%s: two pictures have the same embeddings", name)
		}
		if s := cold.Stats(); s.CacheBytes != 0 || s.CacheHits != 0 {
			t.Errorf("%s: without a cache: %+v", name, s)
		}
	}
}

func TestEmbdCache(t *testing.T) {
	c := newEmbdCache(100)
	row := func(n int) [][]float32 { return [][]float32{make([]float32, n)} }
	c.put("a", row(10))
	c.put("b", row(10))
	c.get("a")
	c.put("c", row(10)) // 120 bytes: b goes
	c.put("d", row(26)) // too large
	for key, want := range map[string]bool{"a": true, "b": false, "c": true, "d": false} {
		if got := c.get(key) != nil; got != want {
			t.Errorf("%s: kept %v, want %v", key, got, want)
		}
	}
	if c.bytes != 80 || c.order.Len() != 2 || len(c.byKey) != 2 {
		t.Errorf("got %d bytes, %d, %d", c.bytes, c.order.Len(), len(c.byKey))
	}
}

// TestMediaExtremes: no shape of a picture ends the process.
func TestMediaExtremes(t *testing.T) {
	sizes := [][2]int{{1, 1}, {2000, 2}, {2, 2000}, {1, 3000}, {20000, 24}, {65536, 1}}
	for _, name := range []string{"mmproj-mlp", "nano-vision-llava16", "mmproj-internvl", "mmproj-gemma3", "mmproj-gemma4uv", "mmproj-pixtral", "mmproj-qwen2vl"} {
		md := openMedia(t, name, nil)
		for _, size := range sizes {
			b, err := NewImageBitmap(size[0], size[1], make([]byte, 3*size[0]*size[1]))
			if err != nil {
				t.Fatal(err)
			}
			c, err := md.Tokenize(look(b), true)
			if err != nil {
				if !errors.Is(err, ErrMedia) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s, %v: %v", name, size, err)
				}
				continue
			}
			for i := range c.List {
				if c.List[i].Kind == ChunkImage && c.List[i].NTokens < 2000 {
					if _, err := md.Embed(t.Context(), nil, c, i); err != nil && !errors.Is(err, ErrMedia) {
						t.Errorf("%s, %v: %v", name, size, err)
					}
				}
			}
			_ = c.Close()
		}
	}
	if _, err := NewImagePlaceholder(65536, 65536); err == nil {
		t.Error("an image of 4 Gpixels is taken")
	}
	if _, err := NewAudioBitmap(make([]float32, 1)); err == nil {
		t.Error("a sound of one sample is taken")
	}
}

// freeNaNs leaves memory full of NaN to the allocations that follow on this thread.
func freeNaNs(t *testing.T) {
	t.Helper()
	s, err := ggml.NewSched(ggml.SchedConfig{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	nan := bytes.Repeat([]byte{0xff}, 30<<20)
	for _, size := range []int{len(nan), 1 << 20} { // after a large one is freed, the small ones are no mappings of their own
		var list []*ggml.Context
		for range len(nan) / size {
			c, err := ggml.NewContext(1)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, c)
			x, err := c.NewTensor(ggml.TypeF32, size/4)
			if err == nil {
				err = s.AllocTensors(c, "CPU")
			}
			if err == nil {
				err = x.Set(nan[:size])
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range list {
			c.Close()
		}
	}
}

// TestMediaDirtyMemory: embeddings do not depend on what was in the memory before. Pixtral's encoder multiplied it by zero.
func TestMediaDirtyMemory(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	media := map[string]string{"mmproj-qwen2a": "a-0200.wav", "mmproj-gemma4ua": "a-0200.wav"}
	for _, name := range []string{"mmproj-mlp", "nano-vision-llava16", "mmproj-internvl", "mmproj-gemma3", "mmproj-gemma4uv", "mmproj-pixtral", "mmproj-qwen2vl"} {
		media[name] = testJPEG
	}
	for name, file := range media {
		var list [][]float32
		for _, dirty := range []bool{false, true} {
			if dirty {
				freeNaNs(t)
			}
			md := openMedia(t, name, func(mp *MediaParams) { mp.Warmup = false })
			c, err := md.Tokenize(look(medium(t, md, file)), true)
			if err != nil {
				t.Fatal(err)
			}
			embds, err := md.Embed(t.Context(), nil, c, slices.IndexFunc(c.List, func(x MediaChunk) bool { return x.Kind != ChunkText }))
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, embds)
			_, _ = c.Close(), md.Close()
		}
		if i := slices.IndexFunc(list[1], func(x float32) bool { return x != x }); i >= 0 || !slices.Equal(list[0], list[1]) {
			t.Errorf("%s: in memory that held NaN the embeddings differ, NaN at %d", name, i)
		}
	}
}

// TestMediaUBatch: an image without causal attention is refused if it does not fit a physical batch, and evaluated if
// that is as large as MinUBatch says. The last token has logits.
func TestMediaUBatch(t *testing.T) {
	md := openMedia(t, "mmproj-gemma4uv", nil)
	if got := md.MinUBatch(); got != 1120 {
		t.Errorf("MinUBatch is %d, want 1120", got)
	}
	c, err := md.Tokenize([]MediaPart{{Media: picture(t, testJPEG)}}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	last := slices.IndexFunc(c.List, func(x MediaChunk) bool { return x.Kind == ChunkImage })
	for _, ubatch := range []int{512, 1120} {
		p := DefaultParams()
		p.NCtx, p.NUBatch, p.Warmup, p.CPUParams.NThreads = 2048, ubatch, false, 1
		ctx, err := NewContext(md.m, &p)
		if err != nil {
			t.Fatal(err)
		}
		err = md.Decode(t.Context(), ctx, c, last, 0, 0, true)
		if ubatch < 540 {
			if !errors.Is(err, ErrMedia) || !strings.Contains(err.Error(), "an image of 540 tokens must fit one batch") {
				t.Errorf("-ub %d: got %v", ubatch, err)
			}
		} else if logits, lerr := ctx.Logits(-1); err != nil || lerr != nil || len(logits) != md.m.info.NVocab {
			t.Errorf("-ub %d: got %v, %d logits, %v", ubatch, err, len(logits), lerr)
		}
		if !ctx.Causal() {
			t.Error("the context's attention stays without order")
		}
		_ = ctx.Close()
	}
}

func TestMediaParams(t *testing.T) {
	gemma := projectorFile(t, "mmproj-gemma4uv")
	for _, tt := range []struct {
		change func(*MediaParams)
		want   string
	}{
		{func(p *MediaParams) { p.ImageMaxTokens = 64 }, "--image-max-tokens: got 64, want at least 70, the projector's minimum (gemma4uv)"},
		{func(p *MediaParams) { p.ImageMinTokens = 2000 }, "--image-min-tokens: got 2000, want at most 1120, the projector's maximum (gemma4uv)"},
		{func(p *MediaParams) { p.ImageMinTokens, p.ImageMaxTokens = 200, 100 }, "--image-min-tokens: got 200, want at most the 100 of --image-max-tokens"},
		{func(p *MediaParams) { p.ImageMaxTokens = 1 << 20 }, "want at most 65536"},
		{func(p *MediaParams) { p.BatchMaxTokens = 0 }, "--mtmd-batch-max-tokens: got 0, want 1 or more"},
		{func(p *MediaParams) { p.Path = projectorFile(t, "text-chat") }, `it is not a projector (mmproj): general.architecture is "llama"`},
		{func(p *MediaParams) { p.Path = "/nowhere/x.gguf" }, "/nowhere/x.gguf: no such file"},
		{func(p *MediaParams) { p.Path = t.TempDir() }, "it is a directory"},
		{func(p *MediaParams) { p.Path = "" }, "no projector file was given"},
		{func(p *MediaParams) { p.Device = "GPU9" }, `there is no device "GPU9"`},
	} {
		m := openMedia(t, "mmproj-mlp", nil).m
		p := DefaultMediaParams()
		p.Path = gemma
		tt.change(&p)
		if _, err := NewMedia(t.Context(), m, &p); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %q", err, tt.want)
		}
	}
	few := openMedia(t, "mmproj-gemma4uv", func(p *MediaParams) { p.ImageMinTokens, p.ImageMaxTokens = 30, 100 })
	c, err := few.Tokenize([]MediaPart{{Media: picture(t, testJPEG)}}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if n := c.List[1].NTokens; n < 30 || n > 100 {
		t.Errorf("got %d tokens, want 30 to 100", n)
	}
}

func TestMediaClose(t *testing.T) {
	before := live.Load()
	md := openMedia(t, "mmproj-mlp", nil)
	c, err := md.Tokenize(look(picture(t, testJPEG)), true)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := md.Embed(ctx, nil, c, 1); !errors.Is(err, ErrCanceled) {
		t.Errorf("cancelled: got %v", err)
	}
	for range 2 {
		_, _ = c.Close(), md.Close()
	}
	if _, err := md.Tokenize(nil, true); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: got %v", err)
	}
	if _, err := md.Embed(t.Context(), nil, c, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: got %v", err)
	}
	_ = md.m.Close()
	if after := live.Load(); after != before {
		t.Errorf("%d objects are left open", after-before)
	}
	for _, parts := range [][]MediaPart{{{Media: &Bitmap{Audio: true, NSamples: 9}}}} {
		if _, err := openMedia(t, "mmproj-mlp", nil).Tokenize(parts, true); !errors.Is(err, ErrNoModality) {
			t.Errorf("sound for a projector of images: got %v", err)
		}
	}
}

// BenchmarkMediaEncode encodes test-1.jpeg anew each time, on one thread; in ms/encode, without tokenizing.
func BenchmarkMediaEncode(b *testing.B) {
	jpeg := picture(b, testJPEG)
	for _, name := range []string{"mmproj-pixtral", "mmproj-gemma4uv", "mmproj-qwen2vl"} {
		b.Run(name, func(b *testing.B) {
			md := openMedia(b, name, func(p *MediaParams) { p.CacheBytes = 0 })
			for b.Loop() {
				c, err := md.Tokenize(look(jpeg), true)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := md.Embed(b.Context(), nil, c, 1); err != nil {
					b.Fatal(err)
				}
				_ = c.Close()
			}
			s := md.Stats()
			b.ReportMetric(s.EncodeMS/float64(s.Runs), "ms/encode")
		})
	}
}
