//go:build cgo

package engine

import (
	"bytes"
	"encoding/binary"
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gollama/internal/gguf"
)

var adaptersDir = flag.String("adapters", "", "keep the files that TestAdaptersLikePeer makes in this `folder`")

// writeFormula writes a file whose i-th value, counted over all tensors, is
// ((37i + 11) mod 101 - 50) / 50 * scale: the same bits on every machine.
func writeFormula(t *testing.T, path string, kvs gguf.KVs, tensors []gguf.TensorInfo, scale float32) string {
	t.Helper()
	w, err := gguf.Create(path, kvs, tensors)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	i := 0
	for _, ti := range tensors {
		var buf bytes.Buffer
		for range ti.Elements() {
			_ = binary.Write(&buf, binary.LittleEndian, float32((37*i+11)%101-50)/50*scale)
			i++
		}
		if err := w.WriteTensor(ti.Name, &buf); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// storyAdapters writes a LoRA adapter of rank 4 and a control vector for
// stories260K: 5 layers, 64 wide, 172 in the feed-forward part.
func storyAdapters(t *testing.T) (lora, vector string) {
	t.Helper()
	dir := *adaptersDir
	if dir == "" {
		dir = t.TempDir()
	}
	f32 := func(name string, shape ...uint64) gguf.TensorInfo {
		return gguf.TensorInfo{Name: name, Type: gguf.TypeF32, Shape: shape}
	}
	pair := func(base string, in, out uint64) []gguf.TensorInfo {
		return []gguf.TensorInfo{f32(base+".weight.lora_a", in, 4), f32(base+".weight.lora_b", 4, out)}
	}
	lora = writeFormula(t, filepath.Join(dir, "lora.gguf"), loraKeys(), slices.Concat(
		pair("blk.0.attn_q", 64, 64), pair("blk.1.attn_output", 64, 64), pair("blk.2.ffn_down", 172, 64), pair("blk.4.ffn_up", 64, 172)), 0.25)
	vector = writeFormula(t, filepath.Join(dir, "vector.gguf"), vectorKeys(), []gguf.TensorInfo{
		f32("direction.1", 64), f32("direction.2", 64), f32("direction.3", 64), f32("direction.4", 64)}, 0.5)
	return lora, vector
}

// readGolden returns the rows of a file of lines "name value value ...".
func readGolden(t *testing.T, path string) map[string][]float64 {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]float64{}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		for _, f := range fields[1:] {
			x, err := strconv.ParseFloat(f, 64)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			rows[fields[0]] = append(rows[fields[0]], x)
		}
	}
	return rows
}

// The rows of testdata/adapters.golden come from testdata/adapters.cpp, which
// says how: every 16th logit after "Once upon a time".
func TestAdaptersLikePeer(t *testing.T) {
	path := needStory(t)
	lora, vector := storyAdapters(t)
	if *adaptersDir != "" {
		t.Skipf("the adapters are in %s; run adapters.cpp on them", *adaptersDir)
	}
	golden := readGolden(t, "testdata/adapters.golden")
	SetReference(true, true)
	defer SetReference(false, false)
	for _, tt := range []struct {
		name         string
		lora, vector bool
		from, to     int
	}{
		{"none", false, false, -1, -1},
		{"lora", true, false, -1, -1},
		{"vector", false, true, -1, -1},
		{"vector-2-3", false, true, 2, 3},
		{"both", true, true, 2, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := testParams(path)
			if tt.lora {
				p.LoRAAdapters = []LoRAInfo{{lora, 0.5}}
			}
			if tt.vector {
				p.ControlVectors = []ControlVectorInfo{{vector, 1.5}}
				p.ControlVectorLayerStart, p.ControlVectorLayerEnd = tt.from, tt.to
			}
			got := logitsOf(t, openContext(t, openModel(t, p), p), []Token{1, 403, 407, 261, 378})
			want, worst, moved := golden[tt.name], 0.0, 0.0
			if len(want) != 32 {
				t.Fatalf("%d golden values, want 32", len(want))
			}
			for i, w := range want {
				worst = max(worst, math.Abs(float64(got[16*i])-w))
				moved = max(moved, math.Abs(golden["none"][i]-w))
			}
			// Kernels of different instruction sets add in another order, and the cache is f16.
			if !(worst <= 1e-3) {
				t.Errorf("logits differ by %.5f from llama.cpp's, want at most 0.001", worst)
			}
			if tt.name != "none" && moved < 0.1 {
				t.Errorf("the golden logits differ by %.5f from those without, too little to tell anything", moved)
			}
			t.Logf("largest difference %.6f; the adapters move logits by up to %.2f", worst, moved)
		})
	}
}
