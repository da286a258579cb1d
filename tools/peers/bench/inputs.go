package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"gollama/internal/builtin/story"
)

// shapes are the models that the targets speak of: what ../synth calls them, whose vocabulary they have, the type
// of the file that it writes, and whether the output matrix is the token embedding.
var shapes = map[string]struct {
	vocab, typ string
	tied       bool
}{
	"25m":  {"llama-spm", "f32", false}, // 32k tokens
	"135m": {"starcoder", "f16", true},  // 49k
	"0.5b": {"qwen2", "f16", true},      // 151k
}

// model returns the path of a model of random weights, "135m-q8_0", which is made if it is not there.
func (b *bench) model(ctx context.Context, name string) (string, error) {
	preset, typ, _ := strings.Cut(name, "-")
	s, ok := shapes[preset]
	if !ok {
		return "", fmt.Errorf("model %q: want 25m, 135m or 0.5b, and a type", name)
	}
	if typ == s.typ {
		return b.synth(ctx, name+".gguf", "-preset", preset, "-vocab", b.vocab(s.vocab), fmt.Sprintf("-f32=%t", typ == "f32"), fmt.Sprintf("-tied=%t", s.tied))
	}
	base, err := b.model(ctx, preset+"-"+s.typ)
	if err != nil {
		return "", err
	}
	return b.make(ctx, name+".gguf", func(part string) []string {
		return []string{b.peer("llama-quantize"), base, part, strings.ToUpper(typ)}
	})
}

// adapter returns the path of a LoRA adapter of rank 16 for all linears of a model.
func (b *bench) adapter(ctx context.Context, preset string) (string, error) {
	return b.make(ctx, preset+"-lora.gguf", func(part string) []string {
		return []string{"go", "run", "./peers/synth", "-preset", preset, "-vocab", b.vocab(shapes[preset].vocab), "-lora", part}
	})
}

// projector returns the path of a projector of images for a model.
func (b *bench) projector(ctx context.Context, name string, args ...string) (string, error) {
	return b.make(ctx, name+".gguf", func(part string) []string {
		return append([]string{"go", "run", "./peers/synth", "-mmproj", part}, args...)
	})
}

func (b *bench) synth(ctx context.Context, file string, args ...string) (string, error) {
	return b.make(ctx, file, func(part string) []string {
		return append([]string{"go", "run", "./peers/synth", "-out", part}, args...)
	})
}

// vocab returns the path of one of llama.cpp's files of vocabularies.
func (b *bench) vocab(name string) string {
	return filepath.Join("..", ".engine", "src", "models", "ggml-vocab-"+name+".gguf")
}

// make returns the path of a file in the cache folder, made by a command if it is not there. The command writes to
// another name, so that one that is stopped leaves nothing that looks whole.
func (b *bench) make(ctx context.Context, file string, command func(part string) []string) (string, error) {
	path := filepath.Join(b.dir, file)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return "", err
	}
	fmt.Fprintln(os.Stderr, "bench: making", path)
	part := path + ".part"
	args := command(part)
	if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("make %s: %w\n%s", path, err, tail(out, 600))
	}
	return path, os.Rename(part, path)
}

// textFile writes the first n bytes of the text, without half a rune at the end, to a file and returns its name. A
// shorter text is repeated.
func (b *bench) textFile(n int) (path string, err error) {
	path = b.tmp(fmt.Sprintf("text-%d.txt", n))
	out, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	for left := int64(n); left > 0; {
		in, err := os.Open(b.text)
		if err != nil {
			return "", err
		}
		k, err := io.CopyN(out, in, left)
		_ = in.Close() // only read from
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		if k == 0 {
			return "", fmt.Errorf("-text %s: empty", b.text)
		}
		left -= k
	}
	end := make([]byte, min(n, utf8.UTFMax))
	if _, err := out.ReadAt(end, int64(n-len(end))); err != nil {
		return "", err
	}
	return path, out.Truncate(int64(n - halfRune(end)))
}

// halfRune returns the length of a rune that is begun at the end of b and not whole.
func halfRune(b []byte) int {
	for i := len(b) - 1; i >= 0; i-- {
		if utf8.RuneStart(b[i]) {
			if utf8.FullRune(b[i:]) {
				return 0
			}
			return len(b) - i
		}
	}
	return 0
}

// firstBytes returns about n bytes of the text.
func (b *bench) firstBytes(n int) ([]byte, error) {
	path, err := b.textFile(n)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// stories writes a text of n bytes of the built-in model's language, for a machine that has no book.
func stories(path string, n int) error {
	var text bytes.Buffer
	for rng := rand.New(rand.NewPCG(1, 0)); text.Len() < n; {
		text.WriteString(story.New(rng))
		text.WriteString("\n\n")
	}
	return os.WriteFile(path, text.Bytes(), 0o644)
}

// images writes n pictures, no two alike, to a folder and returns its name.
func (b *bench) images(n int) (string, error) {
	dir := b.tmp("images")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for i := range n {
		m := image.NewRGBA(image.Rect(0, 0, 160, 120))
		for y := range 120 {
			for x := range 160 {
				m.SetRGBA(x, y, color.RGBA{uint8(x + i), uint8(y * 2), uint8(i * 5), 255})
			}
		}
		var buf bytes.Buffer
		if err := png.Encode(&buf, m); err != nil {
			return "", err
		}
		if err := os.WriteFile(imageName(dir, i), buf.Bytes(), 0o644); err != nil {
			return "", err
		}
	}
	return dir, nil
}

func imageName(dir string, i int) string { return filepath.Join(dir, fmt.Sprintf("%03d.png", i)) }

// words returns a text of n common words, of about a token each.
func words(n int) string {
	list := strings.Fields("the people of this little town went to see what had come down from the hill in the night and " +
		"found only some water and a white stone that no one could move by hand or with all the horses they had")
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(list[i%len(list)])
	}
	return b.String()
}

// wordFile writes words to a file.
func (b *bench) wordFile(n int) (string, error) {
	path := b.tmp(fmt.Sprintf("words-%d.txt", n))
	return path, os.WriteFile(path, []byte(words(n)), 0o644)
}

// writePrompt writes words to a temporary file and returns its name.
func writePrompt(n int) (string, error) {
	f, err := os.CreateTemp("", "bench-*.txt")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(words(n))
	if e := f.Close(); err == nil {
		err = e
	}
	return f.Name(), err
}

// findText looks for the text, and draws stories if there is none.
func (b *bench) findText() error {
	if _, err := os.Stat(b.text); err == nil {
		return nil
	}
	b.text = filepath.Join(b.dir, "stories.txt")
	if _, err := os.Stat(b.text); err == nil {
		return nil
	}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	return stories(b.text, 3_200_000)
}
