//go:build cgo

package engine

import (
	"fmt"
	"image"
	"image/draw"
	_ "image/jpeg"
	_ "image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
		fmt.Fprintf(&b, "%s%d/%d", x.Kind, x.NTokens, x.NPos)
	}
	return b.String()
}

func TestMediaTokenize(t *testing.T) {
	jpeg := picture(t, testJPEG)
	for _, name := range []string{"mmproj-mlp", "mmproj-mlp-2l", "nano-vision-mlp", "nano-vision-mlp-1tok", "nano-vision-llava16", "mmproj-internvl", "mmproj-gemma3",
		"mmproj-gemma4uv", "mmproj-pixtral", "mmproj-qwen2vl", "mmproj-both"} {
		md := openMedia(t, name, nil)
		c, err := md.Tokenize([]MediaPart{{Text: "look "}, {Media: jpeg}, {Text: " what is this"}}, true)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(name, shape(c), md.MinUBatch(), md.Info())
		for i := range c.List {
			if c.List[i].Kind != ChunkText {
				e, err := md.Embed(t.Context(), c, i)
				if err != nil {
					t.Fatal(err)
				}
				t.Log(len(e), e[:3])
			}
		}
		t.Log(md.Stats())
		_ = c.Close()
	}
	data, err := os.ReadFile(testMP3)
	if err != nil {
		t.Skip(err)
	}
	for _, name := range []string{"mmproj-qwen2a", "nano-audio-qwen2a", "mmproj-gemma4ua", "mmproj-both"} {
		md := openMedia(t, name, nil)
		b, err := md.DecodeAudio(data)
		if err != nil {
			t.Fatal(err)
		}
		c, err := md.Tokenize([]MediaPart{{Text: "hear "}, {Media: b}, {Text: " what is this"}}, true)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(name, shape(c), b.NSamples)
		for i := range c.List {
			if c.List[i].Kind != ChunkText {
				e, err := md.Embed(t.Context(), c, i)
				if err != nil {
					t.Fatal(err)
				}
				t.Log(len(e), e[:3])
			}
		}
		_ = c.Close()
	}
}
