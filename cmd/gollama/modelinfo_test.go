package main

import (
	"bytes"
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"gollama/internal/gguf"
)

// infoOf returns what run --model-info --json and run --model-info say of a file.
func infoOf(t *testing.T, path string) (m modelInfo, text string) {
	t.Helper()
	out, msg, code := gollama(t, "run", "-m", path, "--model-info", "--json")
	if code != 0 || msg != "" {
		t.Fatalf("status %d, stderr %q", code, msg)
	}
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		t.Fatal(err)
	}
	text, msg, code = gollama(t, "run", "-m", path, "--model-info")
	if code != 0 || msg != "" {
		t.Fatalf("status %d, stderr %q", code, msg)
	}
	return m, text
}

func contains(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if !strings.Contains(text, l+"\n") {
			t.Errorf("no line %q in:\n%s", l, text)
		}
	}
}

func TestModelInfoSplit(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "m")
	kvs := smallKeys().With("tokenizer.chat_template", gguf.ValueOf("{{ x }}\n\x1b[2J")).With("llama.odd", gguf.ValueOf(float32(math.NaN()))).
		With("tokenizer.ggml.bos_token_id", gguf.ValueOf(uint32(1)))
	tensors := []gguf.TensorInfo{
		{Name: "a", Type: gguf.TypeF32, Shape: []uint64{32, 2}}, {Name: "b", Type: gguf.TypeQ8_0, Shape: []uint64{320}}, {Name: "c", Type: gguf.TypeF32, Shape: []uint64{8}},
	}
	w, err := gguf.CreateSplit(prefix, kvs, tensors, gguf.SplitLimits{Tensors: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, ti := range tensors {
		if err := w.WriteTensor(ti.Name, bytes.NewReader(make([]byte, ti.Size()))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	m, text := infoOf(t, gguf.SplitPath(prefix, 0, 3))
	// By hand: 64 + 8 floats and 10 blocks of 34 bytes.
	if m.Kind != "model" || len(m.Paths) != 3 || m.Parameters != 392 || m.DataBytes != 4*72+340 || m.Tensors != 3 ||
		len(m.Types) != 2 || m.Types[0] != (typeInfo{"q8_0", 1, 320, 340}) || m.Types[1] != (typeInfo{"f32", 2, 72, 288}) {
		t.Errorf("got %+v", m)
	}
	if m.Vocabulary.Tokens != smallVocab || m.Vocabulary.Special["bos"] != (tokenInfo{1, "<s>"}) || m.Templates["default"] != "{{ x }}\n\x1b[2J" ||
		m.Keys["llama.odd"] != "NaN" || m.Sizes["block_count"] != 2.0 {
		t.Errorf("got %+v", m)
	}
	contains(t, text, "parameters     392 in 3 tensors, 628 bytes, 12.82 bits each", "  q8_0         1 tensors, 340 bytes, 54.1 %",
		`chat template  default, 12 bytes: "{{ x }}\n\x1b[2J"`, "  llama.odd = NaN", `  special      bos 1 "<s>"`)
}

func TestModelInfoKinds(t *testing.T) {
	for _, tt := range []struct {
		name    string
		kvs     gguf.KVs
		tensors []gguf.TensorInfo
		lines   []string
	}{
		{"adapter", gguf.KVs{
			{Key: "general.type", Value: gguf.ValueOf("adapter")}, {Key: "general.architecture", Value: gguf.ValueOf("llama")},
			{Key: "adapter.type", Value: gguf.ValueOf("lora")}, {Key: "adapter.lora.alpha", Value: gguf.ValueOf(float32(16))},
		}, []gguf.TensorInfo{
			{Name: "x.lora_a", Shape: []uint64{8, 4}}, {Name: "x.lora_b", Shape: []uint64{4, 8}},
			{Name: "y.lora_a", Shape: []uint64{8, 2}}, {Name: "y.lora_b", Shape: []uint64{2, 8}},
		}, []string{`kind           adapter, architecture "llama"`, "adapter        lora, alpha 16, 2 pairs, ranks [2 4]"}},
		{"mmproj", gguf.KVs{
			{Key: "general.architecture", Value: gguf.ValueOf("clip")}, {Key: "clip.projector_type", Value: gguf.ValueOf("mlp")},
			{Key: "clip.vision.image_size", Value: gguf.ValueOf(uint32(336))}, {Key: "clip.audio.num_mel_bins", Value: gguf.ValueOf(uint32(80))},
		}, []gguf.TensorInfo{{Name: "x"}}, []string{`kind           mmproj, architecture "clip"`, `sizes          projector "mlp"`, "vision         image size 336", "audio          mel bins 80"}},
		{"vocabulary", smallKeys(), nil, []string{`kind           vocabulary, architecture "llama"`}},
		{"empty", nil, nil, []string{`kind           unknown, architecture ""`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "m.gguf")
			w, err := gguf.Create(path, tt.kvs, tt.tensors)
			if err != nil {
				t.Fatal(err)
			}
			for _, ti := range tt.tensors {
				if err := w.WriteTensor(ti.Name, bytes.NewReader(make([]byte, ti.Size()))); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			_, text := infoOf(t, path)
			contains(t, text, tt.lines...)
		})
	}
}
