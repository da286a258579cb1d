package main

import (
	"path/filepath"
	"testing"

	"gollama/internal/gguf"
)

func TestHalf(t *testing.T) {
	for _, test := range []struct {
		x    float32
		want uint16
	}{
		{0, 0}, {1, 0x3c00}, {-2, 0xc000}, {0.5, 0x3800}, {65504, 0x7bff},
		{0x1p-14, 0x0400}, {0x1p-24, 0x0001}, {0x1p-26, 0}, {-0x1p-24, 0x8001},
		{1 + 0x1p-11, 0x3c00},       // halfway, to even
		{1 + 3*0x1p-11, 0x3c02},     // halfway, to even
		{2 - 0x1p-12, 0x4000},       // carry into the exponent
		{0x1p-14 - 0x1p-26, 0x0400}, // subnormal up to normal
	} {
		if got := half(test.x); got != test.want {
			t.Errorf("half(%g) = %#04x, want %#04x", test.x, got, test.want)
		}
	}
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	vocab, out := filepath.Join(dir, "v.gguf"), filepath.Join(dir, "m.gguf")
	w, err := gguf.Create(vocab, gguf.KVs{{Key: "tokenizer.ggml.tokens", Value: gguf.ValueOf([]string{"a", "b", "c"})}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"-vocab", vocab, "-out", out, "-embd", "32", "-layers", "2", "-heads", "4", "-kv-heads", "2", "-ff", "48"}); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read from
	if got, want := len(f.Tensors), 2+2*9; got != want {
		t.Errorf("%d tensors, want %d", got, want)
	}
	i, ok := f.Tensor("blk.1.attn_k.weight")
	if !ok || f.Tensors[i].Shape[0] != 32 || f.Tensors[i].Shape[1] != 16 {
		t.Errorf("blk.1.attn_k.weight: got %v", f.Tensors)
	}
}

func TestParseErrors(t *testing.T) {
	for _, args := range [][]string{
		{}, {"-preset", "7b", "-vocab", "v", "-out", "o"}, {"-preset", "25m"},
		{"-vocab", "v", "-out", "o", "-embd", "32"}, {"-preset", "25m", "-heads", "7", "-vocab", "v", "-out", "o"},
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("parse(%q): no error", args)
		}
	}
}

// A projector has the tensors of its tower, and those that lead to the model.
func TestProjector(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.gguf")
	if err := run([]string{"-embd", "32", "-vision-embd", "64", "-vision-layers", "2", "-vision-size", "8", "-vision-patch", "4", "-mmproj", path}); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read from
	if got, want := len(f.Tensors), 2+2*16+4; got != want {
		t.Errorf("%d tensors, want %d", got, want)
	}
	i, ok := f.Tensor("mm.2.weight")
	if !ok || f.Tensors[i].Shape[0] != 64 || f.Tensors[i].Shape[1] != 32 {
		t.Errorf("mm.2.weight: got %v", f.Tensors)
	}
	for _, args := range [][]string{{"-mmproj", path}, {"-mmproj", path, "-embd", "32", "-vision-size", "9"}, {"-mmproj", path, "-embd", "32", "-vision-embd", "0"}} {
		if err := run(args); err == nil {
			t.Errorf("run(%q): no error", args)
		}
	}
}
