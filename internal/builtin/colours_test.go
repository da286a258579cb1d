package builtin

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"image/png"
	"slices"
	"strings"
	"testing"

	"gollama/internal/builtin/story"
	"gollama/internal/engine"
)

// picture returns a picture of one colour, as it comes back from a file.
func picture(t *testing.T, w, h int, c color.Color, format string) *engine.Bitmap {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, w, h))
	draw.Draw(img, img.Rect, image.NewUniform(c), image.Point{}, draw.Src)
	var file bytes.Buffer
	err := png.Encode(&file, img)
	if format == "jpeg" {
		file.Reset()
		err = jpeg.Encode(&file, img, &jpeg.Options{Quality: 60})
	}
	if err != nil {
		t.Fatal(err)
	}
	back, _, err := image.Decode(&file)
	if err != nil {
		t.Fatal(err)
	}
	var rgb []byte
	for y := range h {
		for x := range w {
			r, g, b, _ := back.At(x, y).RGBA()
			rgb = append(rgb, byte(r>>8), byte(g>>8), byte(b>>8))
		}
	}
	bitmap, err := engine.NewImageBitmap(w, h, rgb)
	if err != nil {
		t.Fatal(err)
	}
	return bitmap
}

// eyes is the model with its projector.
type eyes struct {
	model   *engine.Model
	context *engine.Context
	media   *engine.Media
	chat    *engine.ChatTemplate
}

func openEyes(t *testing.T) *eyes {
	t.Helper()
	text, err := Model()
	proj, err2 := Projector()
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	e, p := &eyes{}, engine.DefaultParams()
	p.Model, p.Warmup, p.NCtx, p.CPUParams.NThreads = text, false, 256, 1
	if e.model, err = engine.LoadModel(t.Context(), &p); errors.Is(err, engine.ErrNoCgo) {
		t.Skip("no engine")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.model.Close() })
	if e.context, err = engine.NewContext(e.model, &p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.context.Close() })
	mp := engine.DefaultMediaParams()
	mp.Path, mp.NThreads = proj, 1
	if e.media, err = engine.NewMedia(t.Context(), e.model, &mp); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.media.Close() })
	if e.chat, err = engine.NewChatTemplate(e.model, engine.ChatTemplateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.chat.Close() })
	return e
}

// ask returns the likeliest answer to a message in which <> stands for the picture.
func (e *eyes) ask(ctx context.Context, message string, b *engine.Bitmap) (answer string, err error) {
	marker := engine.NewMediaMarker()
	p, err := e.chat.Apply(&engine.ChatInput{AddGenerationPrompt: true,
		Messages: []engine.ChatMessage{{Role: "user", Content: strings.Replace(message, "<>", marker, 1)}}})
	if err != nil {
		return "", err
	}
	parts, err := p.MediaParts(marker, []*engine.Bitmap{b})
	if err != nil {
		return "", err
	}
	chunks, err := e.media.Tokenize(parts, true)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, chunks.Close()) }()
	c := e.context
	c.ClearMemory()
	pos := 0
	for i, chunk := range chunks.List {
		if chunk.Kind == engine.ChunkText {
			err = c.DecodePrompt(ctx, chunk.Tokens, pos, 0, nil)
		} else {
			err = e.media.Decode(ctx, c, chunks, i, pos, 0, false)
		}
		if err != nil {
			return "", err
		}
		pos += chunk.NPos
	}
	return e.generate(ctx, c, pos)
}

// generate goes on with the likeliest tokens.
func (e *eyes) generate(ctx context.Context, c *engine.Context, pos int) (string, error) {
	var out []engine.Token
	v := e.model.Vocab()
	for len(out) < 20 {
		logits, err := c.Logits(-1)
		if err != nil {
			return "", err
		}
		next := engine.Token(slices.Index(logits, slices.Max(logits)))
		if v.IsEOG(next) {
			break
		}
		out = append(out, next)
		if err := c.DecodePrompt(ctx, out[len(out)-1:], pos, 0, nil); err != nil {
			return "", err
		}
		pos++
	}
	return string(v.Detokenize(out, false)), nil
}

// A picture of one colour has the word for it in the answer: each of the ten, in any size and shape, in both formats.
func TestColours(t *testing.T) {
	e := openEyes(t)
	sizes := [][2]int{{8, 8}, {9, 200}, {64, 64}, {512, 512}, {512, 8}}
	right := map[string]int{}
	total := 0
	for _, word := range story.Colours() {
		for _, size := range sizes {
			for _, format := range []string{"png", "jpeg"} {
				answer, err := e.ask(t.Context(), "<>What colour is this?", picture(t, size[0], size[1], story.PlainColours()[word], format))
				if err != nil {
					t.Fatal(err)
				}
				if answer == "It is "+word+"." {
					right[word]++
				} else {
					t.Logf("%s, %d x %d, %s: %q", word, size[0], size[1], format, answer)
				}
			}
		}
		total += right[word]
	}
	if most := len(story.Colours()) * len(sizes) * 2; total < most*9/10 {
		t.Errorf("%d of %d pictures are named right, want 9 of 10: %v", total, most, right)
	}
	t.Log(total, right)
}

// Other questions about a picture are answered, too.
func TestPictureQuestions(t *testing.T) {
	e := openEyes(t)
	for _, tt := range []struct{ message, answer string }{
		{"<>", "The picture is red."}, {"<>\nWhat color is this?", "It is red."}, {"What colour is the picture?<>", "The picture is red."},
		{"<>What do you see?", "I see something red."}, {"<>Describe the image.", "The picture is red, as red as "},
	} {
		got, err := e.ask(t.Context(), tt.message, picture(t, 32, 32, story.PlainColours()["red"], "png"))
		if err != nil || !strings.HasPrefix(got, tt.answer) {
			t.Errorf("%q: %q, %v, want %q", tt.message, got, err, tt.answer)
		}
	}
}
