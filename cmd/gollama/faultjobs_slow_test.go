//go:build slow && linux

package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"

	"gollama/internal/lora"
)

var faultMedia = []string{"mtmd", "-m", "IN/mm-text.gguf", "--mmproj", "IN/mmproj.gguf", "-p", "look", "--temp", "0", "-c", "1024", "--no-perf"}

// jobs has one for each subcommand that writes files, on small models.
var jobs = []job{
	{name: "run", args: []string{"run", "-m", "IN/model.gguf", "-f", "IN/prompt.txt", "--temp", "0", "-n", "100", "--ignore-eos", "-o", "OUT/o.txt"},
		outs: []string{"o.txt"}, partial: true},
	{name: "run --records", args: []string{"run", "-m", "IN/model.gguf", "--records", "IN/requests.jsonl", "-np", "4", "-n", "12", "-o", "OUT/o.jsonl"},
		outs: []string{"o.jsonl", "o.jsonl.run.json"}, records: true, again: []string{"--resume"}},
	{name: "run --session", args: []string{"run", "-m", "IN/model.gguf", "-f", "IN/prompt.txt", "--temp", "0", "-n", "60", "--ignore-eos", "--session", "OUT/s.session"},
		outs: []string{"s.session"}, saves: true},
	{name: "tokenize", args: []string{"tokenize", "-m", "IN/model.gguf", "--lines", "--format", "bin", "-o", "OUT/o.bin", "IN/train.txt"},
		outs: []string{"o.bin", "o.bin.idx", "o.bin.json"}},
	{name: "export-lora", args: []string{"export-lora", "-m", "IN/model.gguf", "--lora", "IN/adapter.gguf", "-o", "OUT/o.gguf"},
		outs: []string{"o.gguf"}},
	{name: "finetune", args: []string{"finetune", "-m", "IN/model.gguf", "--data", "IN/train.jsonl", "-o", "OUT/o.gguf", "-c", "64", "--epochs", "1", "--save-every", "2", "--run-dir", "OUT/run", "--resume"},
		outs: []string{"o.gguf"}, keeps: []string{"run"}},
	{name: "imatrix", args: []string{"imatrix", "-q", "-m", "IN/model.gguf", "-f", "IN/calibration.txt", "-c", "64", "-ofreq", "2", "-o", "OUT/o.gguf"},
		outs: []string{"o.gguf"}, saves: true, again: []string{"--resume"}},
	{name: "imatrix --records", args: []string{"imatrix", "-q", "-m", "IN/model.gguf", "--records", "IN/train.jsonl", "-c", "64", "-ofreq", "2", "-o", "OUT/o.gguf"},
		outs: []string{"o.gguf"}, saves: true, again: []string{"--resume"}},
	{name: "imatrix merge", args: []string{"imatrix", "merge", "-o", "OUT/o.gguf", "IN/part1.gguf", "IN/part2.gguf"}, outs: []string{"o.gguf"}},
	{name: "imatrix convert", args: []string{"imatrix", "convert", "IN/part1.gguf", "-o", "OUT/o.dat"}, outs: []string{"o.dat"}},
	{name: "imatrix stats", args: []string{"imatrix", "stats", "IN/part1.gguf", "--image", "OUT/o.png"}, outs: []string{"o.png"}},
	{name: "cvector-generate", args: []string{"cvector-generate", "-q", "-m", "IN/model.gguf", "--positive-file", "IN/happy.txt", "--negative-file", "IN/sad.txt",
		"-o", "OUT/o.gguf", "--report", "OUT/r.json", "--plot", "OUT/p.svg"}, outs: []string{"o.gguf", "r.json", "p.svg"}},
	{name: "cvector-generate add", args: []string{"cvector-generate", "add", "IN/vector.gguf:0.5", "IN/other.gguf", "-o", "OUT/o.gguf"}, outs: []string{"o.gguf"}},
	{name: "cvector-generate scale", args: []string{"cvector-generate", "scale", "IN/vector.gguf", "--unit", "-o", "OUT/o.gguf"}, outs: []string{"o.gguf"}},
	{name: "cvector-generate shift", args: []string{"cvector-generate", "shift", "IN/vector.gguf", "--by", "1", "-o", "OUT/o.gguf"}, outs: []string{"o.gguf"}},
	{name: "mtmd", args: slices.Concat(faultMedia, []string{"--image", "IN/pics/a.png", "-n", "40", "-o", "OUT/o.txt"}), outs: []string{"o.txt"}, partial: true},
	{name: "mtmd --dir", args: slices.Concat(faultMedia, []string{"--dir", "IN/pics", "-n", "12", "-o", "OUT/o.jsonl"}),
		outs: []string{"o.jsonl", "o.jsonl.run.json"}, records: true, again: []string{"--resume"}},
	{name: "mtmd --records", args: slices.Concat(faultMedia, []string{"--records", "IN/media.jsonl", "-n", "12", "-o", "OUT/o.jsonl"}),
		outs: []string{"o.jsonl", "o.jsonl.run.json"}, records: true, again: []string{"--resume"}},
}

// readers are what else reads files: they meet damaged inputs only.
var readers = []job{
	{name: "imatrix convert from dat", args: []string{"imatrix", "convert", "IN/old.dat", "--chunk-size", "512", "-o", "OUT/o.gguf"}, outs: []string{"o.gguf"}},
	{name: "imatrix diff", args: []string{"imatrix", "diff", "IN/part1.gguf", "IN/part2.gguf"}},
	{name: "imatrix check", args: []string{"imatrix", "check", "-m", "IN/model.gguf", "IN/part1.gguf"}},
	{name: "imatrix --in-file", args: []string{"imatrix", "--in-file", "IN/part1.gguf,IN/part2.gguf", "-o", "OUT/o.gguf"}, outs: []string{"o.gguf"}},
	{name: "cvector-generate info", args: []string{"cvector-generate", "info", "IN/vector.gguf"}},
	{name: "cvector-generate --pairs", args: []string{"cvector-generate", "-q", "-m", "IN/model.gguf", "--pairs", "IN/pairs.jsonl", "-o", "OUT/o.gguf"}, outs: []string{"o.gguf"}},
	{name: "mtmd --caps", args: []string{"mtmd", "--mmproj", "IN/mmproj.gguf", "--caps"}},
	{name: "mtmd --audio", args: []string{"mtmd", "-m", "IN/mm-text.gguf", "--mmproj", "IN/mmproj-audio.gguf", "--audio", "IN/sound.wav", "-p", "look", "-n", "2", "-c", "1024", "--count-only"}},
	{name: "run with adapters", args: []string{"run", "-m", "IN/model.gguf", "--lora", "IN/adapter.gguf", "--control-vector", "IN/vector.gguf", "-md", "IN/draft.gguf", "-p", "Once", "-n", "2"}},
	{name: "run with a grammar", args: []string{"run", "-m", "IN/model.gguf", "--grammar-file", "IN/g.gbnf", "-p", "Once", "-n", "2"}},
	{name: "run with a schema", args: []string{"run", "-m", "IN/model.gguf", "--json-schema-file", "IN/schema.json", "-p", "Once", "-n", "2"}},
	{name: "run with a config", args: []string{"run", "-m", "IN/model.gguf", "--config", "IN/config.yaml", "-p", "Once", "-n", "2"}},
	{name: "run --messages", args: []string{"run", "-m", "IN/model.gguf", "--chat-template-file", "IN/t.jinja", "--messages", "IN/messages.json", "-n", "2"}},
	{name: "run --session again", args: []string{"run", "-m", "IN/model.gguf", "-p", "", "--session", "IN/s.session", "-n", "2"}},
	{name: "run --resume", args: []string{"run", "-m", "IN/model.gguf", "--records", "IN/few.jsonl", "-n", "4", "-o", "IN/o.jsonl", "--resume"}},
	{name: "export-lora from PEFT", args: []string{"export-lora", "-m", "IN/model.gguf", "--lora", "IN/peft", "-o", "OUT/o.gguf"}, outs: []string{"o.gguf"}},
	{name: "tokenize --decode", args: []string{"tokenize", "-m", "IN/model.gguf", "--decode", "IN/t.bin"}},
	{name: "finetune on tokens", args: []string{"finetune", "-q", "-m", "IN/model.gguf", "--data", "IN/t.bin", "-o", "OUT/o.gguf", "-c", "32", "--max-steps", "1"}, outs: []string{"o.gguf"}},
	{name: "finetune --resume", args: []string{"finetune", "-q", "--run-dir", "IN/run", "--resume"}},
}

// together are files that a job reads beside one that its command line names.
var together = map[string][]string{
	"o.jsonl": {"o.jsonl.run.json"}, "t.bin": {"t.bin.idx", "t.bin.json"}, "run": {"model.gguf", "train.jsonl"},
}

// faultInputs makes the folder IN.
func faultInputs(t *testing.T) string {
	t.Helper()
	in := t.TempDir()
	put := func(name string, data []byte) {
		t.Helper()
		path := filepath.Join(in, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	copied := func(name, from string) {
		t.Helper()
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		put(name, data)
	}
	copied("model.gguf", story(t))
	copied("draft.gguf", story(t))
	copied("vector.gguf", storyVector)
	copied("other.gguf", storyVector)
	for to, from := range map[string]string{"mm-text.gguf": "models/text-chat.gguf", "mmproj.gguf": "models/mmproj-mlp.gguf", "mmproj-audio.gguf": "models/mmproj-qwen2a.gguf",
		"pics/a.png": "media/grad.png", "pics/b.png": "media/red.png", "pics/c.ppm": "media/red.ppm", "sound.wav": "media/a-1s.wav"} {
		copied(to, filepath.Join(mediaFixtures, from))
	}
	exampleMatrices(t, in)
	if err := lora.WriteGGUF(filepath.Join(in, "adapter.gguf"), storyAdapter()); err != nil {
		t.Fatal(err)
	}
	if err := lora.WritePEFT(filepath.Join(in, "peft"), storyAdapter()); err != nil {
		t.Fatal(err)
	}
	faultTexts(put)
	faultPictures(t, put)
	for _, args := range [][]string{ // files of our own
		{"run", "-m", "IN/model.gguf", "-p", "Once upon a time", "-n", "4", "--session", "IN/s.session"},
		{"run", "-m", "IN/model.gguf", "--records", "IN/few.jsonl", "-n", "4", "-o", "IN/o.jsonl"},
		{"tokenize", "-m", "IN/model.gguf", "--lines", "--format", "bin", "-o", "IN/t.bin", "IN/calibration.txt"},
		{"finetune", "-q", "-m", "IN/model.gguf", "--data", "IN/train.jsonl", "-o", "OUT/o.gguf", "-c", "64", "--max-steps", "4", "--save-every", "2", "--run-dir", "IN/run"},
	} {
		if o := (&job{args: args}).do(t, in, t.TempDir()); o.code != 0 {
			t.Fatalf("%q: status %d: %s", args, o.code, o.stderr)
		}
	}
	return in
}

// faultTexts makes the inputs that are text.
func faultTexts(put func(name string, data []byte)) {
	var requests, train, media strings.Builder
	for i := range 40 {
		fmt.Fprintf(&requests, `{"id":%d,"prompt":"Once upon a time, number %d","seed":%d}`+"\n", i, i, i)
		fmt.Fprintf(&train, `{"prompt":"Once upon a time","completion":" there were %d cats."}`+"\n", i)
	}
	pixel, _ := json.Marshal("data:image/png;base64," + base64.StdEncoding.EncodeToString(picture(func(b *bytes.Buffer, m image.Image) error { return bmp.Encode(b, m) })))
	for i := range 6 {
		fmt.Fprintf(&media, `{"id":%d,"image":%s,"prompt":"look %d"}`+"\n", i, pixel, i)
	}
	for name, text := range map[string]string{
		"prompt.txt": "Once upon a time", "requests.jsonl": requests.String(), "few.jsonl": `{"prompt":"Once"}` + "\n" + `{"prompt":"The dog"}` + "\n",
		"train.jsonl": train.String(), "media.jsonl": media.String(),
		"train.txt":       strings.Repeat("Once upon a time, there was a little girl named Lily.\n", 20000),
		"calibration.txt": strings.Repeat("Once upon a time, there was a little girl named Lily.\n", 200),
		"happy.txt":       "Tom was happy. He smiled\nThe girl was glad and laughed\nMom felt good\n",
		"sad.txt":         "Tom was sad. He cried\nThe girl was upset and wept\nMom felt bad\n",
		"pairs.jsonl":     `{"positive":"I am glad.","negative":"I am sorry.","completions":[" Today"," The sun"," My dog"]}` + "\n",
		"g.gbnf":          "root ::= (\"a\" | \"b\" word)+\nword ::= [a-z]{1,5} \" \"\n",
		"schema.json":     `{"type":"object","properties":{"name":{"type":"string","maxLength":5},"n":{"type":"integer","minimum":3}},"required":["name"]}`,
		"config.yaml":     "temp: 0.5\nctx-size: 128\nrun:\n  top-k: 5\n  stop: [\"a\"]\n",
		"t.jinja":         "{% for m in messages %}<|{{ m.role }}|>{{ m['content'] | trim }}\n{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
		"messages.json":   `[{"role":"system","content":"Be kind."},{"role":"user","content":"Hello"}]`,
	} {
		put(name, []byte(text))
	}
}

// picture encodes a small picture.
func picture(encode func(*bytes.Buffer, image.Image) error) []byte {
	img := image.NewPaletted(image.Rect(0, 0, 24, 16), color.Palette{color.Black, color.White, color.RGBA{200, 30, 30, 255}})
	for i := range img.Pix {
		img.Pix[i] = uint8(i / 7 % 3)
	}
	var b bytes.Buffer
	if err := encode(&b, img); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// faultPictures makes a picture of each kind that can be written here.
func faultPictures(t *testing.T, put func(name string, data []byte)) {
	t.Helper()
	put("pics/d.jpg", picture(func(b *bytes.Buffer, m image.Image) error { return jpeg.Encode(b, m, nil) }))
	put("pics/e.gif", picture(func(b *bytes.Buffer, m image.Image) error { return gif.Encode(b, m, nil) }))
	put("pics/f.bmp", picture(func(b *bytes.Buffer, m image.Image) error { return bmp.Encode(b, m) }))
	put("pics/g.tiff", picture(func(b *bytes.Buffer, m image.Image) error { return tiff.Encode(b, m, nil) }))
}
