package main

import (
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gollama/internal/completion"
	"gollama/internal/media"
)

// visionFixtures are the projectors of images, with the context that a small picture needs.
var visionFixtures = []string{"mmproj-mlp", "mmproj-mlp-2l", "nano-vision-llava16", "mmproj-internvl", "mmproj-gemma3", "mmproj-gemma4uv", "mmproj-pixtral", "mmproj-qwen2vl"}

// mediaArgs are the flags for a projector of the fixtures and the text model that goes with it.
func mediaArgs(t *testing.T, projector string) []string {
	t.Helper()
	text := "text-chat"
	if strings.Contains(projector, "qwen2vl") {
		text = "text-qwen2vl"
	}
	dir := filepath.Join(mediaFixtures, "models")
	if _, err := os.Stat(dir); err != nil || !hasEngine() {
		t.Skipf("no engine or no fixtures: %v", err)
	}
	return []string{"mtmd", "-m", filepath.Join(dir, text+".gguf"), "--mmproj", filepath.Join(dir, projector+".gguf"), "-p", "look", "--temp", "0", "-n", "8", "-q",
		"-c", "1024", "-t", "1"}
}

// pictures writes n pictures of noise, each another, of sizes from 16 to 80 pixels, and returns their names in order.
func pictures(t *testing.T, dir string, n int) []string {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	var names []string
	for i := range n {
		img := image.NewRGBA(image.Rect(0, 0, 16+rng.IntN(64), 16+rng.IntN(64)))
		base := [3]int{rng.IntN(256), rng.IntN(256), rng.IntN(256)}
		for y := range img.Rect.Dy() {
			for x := range img.Rect.Dx() {
				img.Set(x, y, color.RGBA{uint8(base[0] + rng.IntN(40)), uint8(base[1] + x), uint8(base[2] + y), 255})
			}
		}
		path := filepath.Join(dir, fmt.Sprintf("p%04d.png", i))
		writePNG(t, path, img)
		names = append(names, path)
	}
	return names
}

func writePNG(t *testing.T, path string, img image.Image) {
	t.Helper()
	f, err := os.Create(path)
	if err == nil {
		if err = png.Encode(f, img); err == nil {
			err = f.Close()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// mediaLine is what the tests read of a result.
type mediaLine struct {
	ID    int
	Text  string
	Cache struct{ Encodes int }
	Media []struct {
		Content string `json:"content_sha256"`
	}
	Logprobs []completion.TokenLogprob
}

// mediaRunOf runs mtmd over files, in their order, and returns the lines by file, and how often the encoder ran.
func mediaRunOf(t *testing.T, args, files []string, more ...string) (lines map[string]mediaLine, encodes int) {
	t.Helper()
	list := filepath.Join(t.TempDir(), "list")
	var text strings.Builder
	for i, f := range files {
		fmt.Fprintf(&text, "{\"id\":%d,\"media\":%q}\n", i, f)
	}
	if err := os.WriteFile(list, []byte(text.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	out, msg, code := gollama(t, slices.Concat(args, []string{"--records", list}, more)...)
	if code != 0 {
		t.Fatalf("status %d: %s%.2000s", code, msg, out)
	}
	lines = map[string]mediaLine{}
	for i, line := range strings.Split(strings.TrimSuffix(out, "\n"), "\n") {
		var l mediaLine
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.ID != i {
			t.Fatalf("line %d: %v: %.200s", i, err, line)
		}
		tie := 0.0
		if !slices.Contains(more, "-np") && !slices.Contains(more, "--deterministic") {
			tie = batchTie
		}
		if old, ok := lines[files[i]]; ok && l.differs(old, tie) {
			t.Errorf("%s: %q, and before %q", files[i], l.Text, old.Text)
		}
		lines[files[i]] = l
		encodes += l.Cache.Encodes
	}
	if len(lines) == 0 {
		t.Fatal("no lines")
	}
	return lines, encodes
}

// batchTie is how much likelier a token must be than another to be taken whatever is computed beside it: two and a half times
// what TestRounding of internal/completion finds for weights of 32 bits and flash attention.
const batchTie = 5e-3

// differs reports whether a text is another than want, beyond what the shape of a batch can do: the first token that is not
// the same is the second likeliest of both, and hardly less likely.
func (l mediaLine) differs(want mediaLine, tie float64) bool {
	if l.Text == want.Text {
		return false
	}
	for i, w := range want.Logprobs {
		if i < len(l.Logprobs) && l.Logprobs[i].ID == w.ID {
			continue
		}
		return i >= len(l.Logprobs) || len(w.Top) < 2 || l.Logprobs[i].ID != w.Top[1].ID || *w.Top[0].Logprob-*w.Top[1].Logprob > tie
	}
	return true
}

// checkMediaTexts compares the texts of pictures in one process with those of a process each, for every projector: in any
// order, with reuse and without. One at a time they are the same, and with --deterministic among themselves, else but for
// ties. Many of them must be texts of their own, else the test could not fail.
func checkMediaTexts(t *testing.T, n, singles int) {
	dir := t.TempDir()
	files := pictures(t, dir, n)
	back := slices.Clone(files)
	slices.Reverse(back)
	mixed := slices.Concat(files[n/2:], files[:n/2], files[:n/3])
	for _, projector := range visionFixtures {
		t.Run(projector, func(t *testing.T) {
			args := append(mediaArgs(t, projector), "--logprobs", "2", "--format", "json")
			one, encodes := mediaRunOf(t, args, files, "-np", "1")
			pinned, _ := mediaRunOf(t, args, files, "--deterministic")
			distinct := map[string]bool{}
			for _, l := range one {
				distinct[l.Text] = true
			}
			t.Logf("%d pictures, %d texts, %d chunks encoded", n, len(distinct), encodes)
			if len(distinct) < min(n/2, 50) {
				t.Errorf("%d pictures give %d texts", n, len(distinct))
			}
			compare := func(want map[string]mediaLine, tie float64, list []string, more ...string) {
				got, again := mediaRunOf(t, args, list, more...)
				for f, l := range want {
					if got[f].differs(l, tie) {
						t.Errorf("%v: %s gives %q, want %q", more, filepath.Base(f), got[f].Text, l.Text)
					}
				}
				if len(list) > n && again != encodes {
					t.Errorf("%v: %d chunks encoded, want %d: a picture that comes again is not", more, again, encodes)
				}
			}
			compare(one, 0, mixed, "-np", "1")
			compare(one, 0, back, "-np", "1", "--no-reuse", "--prefetch", "0")
			compare(one, batchTie, mixed)
			compare(one, batchTie, back, "--no-reuse", "--prefetch", "0")
			compare(pinned, 0, mixed, "--deterministic")
			compare(pinned, 0, back, "--deterministic", "--no-reuse")
			for _, f := range files[:singles] {
				out, msg, code := gollama(t, append(slices.Clone(args), "--image", f, "--format", "text", "--logprobs", "0")...)
				if code != 0 || out != one[f].Text {
					t.Errorf("%s alone: status %d, %q, want %q %s", filepath.Base(f), code, out, one[f].Text, msg)
				}
			}
		})
	}
}

func TestMTMDTexts(t *testing.T) { checkMediaTexts(t, 8, 2) }

// TestMTMDSounds: two sounds that are the same for three quarters of their length share nothing.
func TestMTMDSounds(t *testing.T) {
	args := append(mediaArgs(t, "mmproj-gemma4ua"), "-c", "2048", "--logprobs", "2", "--format", "json")
	dir := filepath.Join(mediaFixtures, "media")
	a, b := filepath.Join(dir, "tail-a.wav"), filepath.Join(dir, "tail-b.wav")
	lines, encodes := mediaRunOf(t, args, []string{a, b, a, b, a}, "-np", "1")
	if lines[a].Media[0].Content == lines[b].Media[0].Content {
		t.Error("the sounds have one hash")
	}
	if encodes != 2 {
		t.Errorf("%d encodes, want 2", encodes)
	}
	for _, f := range []string{a, b} {
		out, msg, code := gollama(t, append(slices.Clone(args), "--audio", f, "--format", "text", "--logprobs", "0")...)
		if code != 0 || out != lines[f].Text {
			t.Errorf("%s alone: status %d, %q, want %q %s", filepath.Base(f), code, out, lines[f].Text, msg)
		}
	}
}

// TestMTMDOrientation: a photograph with an EXIF orientation has the pixels of one that was turned before; with --no-exif
// it has those of the file.
func TestMTMDOrientation(t *testing.T) {
	args := mediaArgs(t, "mmproj-mlp")
	dir := filepath.Join(mediaFixtures, "media")
	plain, err := media.Open(filepath.Join(dir, "exif-1.jpg"), media.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := plain.Pixels()
	if err != nil {
		t.Fatal(err)
	}
	// Where the pixel at x, y of the upright picture stands in the file (TIFF 6.0, Orientation).
	turns := map[string]func(x, y int) (int, int){
		"1": func(x, y int) (int, int) { return x, y },
		"3": func(x, y int) (int, int) { return p.Width - 1 - x, p.Height - 1 - y },
		"6": func(x, y int) (int, int) { return y, p.Height - 1 - x },
		"8": func(x, y int) (int, int) { return p.Width - 1 - y, x },
	}
	var files, turned []string
	for n, from := range turns {
		w, h := p.Width, p.Height
		if n == "6" || n == "8" {
			w, h = h, w
		}
		img := image.NewRGBA(image.Rect(0, 0, w, h))
		for y := range h {
			for x := range w {
				fx, fy := from(x, y)
				c := p.RGB[3*(fy*p.Width+fx):]
				img.SetRGBA(x, y, color.RGBA{c[0], c[1], c[2], 255})
			}
		}
		path := filepath.Join(t.TempDir(), n+".png")
		writePNG(t, path, img)
		files, turned = append(files, filepath.Join(dir, "exif-"+n+".jpg")), append(turned, path)
	}
	list := slices.Concat(files, turned)
	with, _ := mediaRunOf(t, args, list, "-n", "0")
	without, _ := mediaRunOf(t, args, list, "-n", "0", "--no-exif")
	ids := map[string]bool{}
	for i, f := range files {
		id := with[f].Media[0].Content
		ids[id] = true
		if id != with[turned[i]].Media[0].Content {
			t.Errorf("%s does not have the pixels of the picture that was turned before", f)
		}
		if without[f].Media[0].Content != with[filepath.Join(dir, "exif-1.jpg")].Media[0].Content {
			t.Errorf("%s with --no-exif is not the picture of orientation 1", f)
		}
	}
	if len(ids) != 4 {
		t.Errorf("%d pictures of 4 orientations", len(ids))
	}
}

// TestMTMDBatchSizes: how a prompt is cut into batches changes no text of a causal projector.
func TestMTMDBatchSizes(t *testing.T) {
	files := pictures(t, t.TempDir(), 3)
	for _, projector := range []string{"mmproj-mlp", "mmproj-qwen2vl"} {
		args := mediaArgs(t, projector)
		want, _ := mediaRunOf(t, args, files, "-np", "1")
		for _, b := range []string{"32", "512", "4096"} {
			got, _ := mediaRunOf(t, args, files, "-np", "1", "-b", b, "-ub", b)
			for f, l := range want {
				if got[f].Text != l.Text {
					t.Errorf("%s -b %s: %s gives %q, want %q", projector, b, filepath.Base(f), got[f].Text, l.Text)
				}
			}
		}
	}
}
