package lora

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"gollama/internal/gguf"
)

// testdata/outtypes.golden is what llama-quantize does; outtypes.sh, beside it, made it and says how.
func TestOutTypesLikePeer(t *testing.T) {
	data, err := os.ReadFile("testdata/outtypes.golden")
	if err != nil {
		t.Fatal(err)
	}
	models := map[string]testModel{
		"tied":   {arch: "llama", embd: 896, ff: 4864, layers: 24, heads: 14, kvHeads: 2, tied: true, typ: gguf.TypeF16},
		"untied": {arch: "llama", embd: 256, ff: 1024, layers: 12, heads: 8, kvHeads: 2, typ: gguf.TypeF16},
	}
	compared := 0
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		m := models[f[0]]
		out, err := ParseOutType(f[1])
		if err != nil {
			t.Fatal(err)
		}
		infos := append(m.linears(), gguf.TensorInfo{Name: embdName, Type: m.typ, Shape: []uint64{m.embd, nVocab}})
		if !m.tied {
			infos = append(infos, gguf.TensorInfo{Name: outputName, Type: m.typ, Shape: []uint64{m.embd, nVocab}})
		}
		byName := map[string]gguf.TensorInfo{}
		var names []string
		for _, info := range infos {
			byName[info.Name], names = info, append(names, info.Name)
		}
		c := newChooser(out, m.keys(), names, false)
		for layer, want := range f[3:] {
			name := f[2] + ".weight"
			if _, ok := byName[name]; !ok {
				name = fmt.Sprintf("blk.%d.%s", layer, name)
			}
			info, ok := byName[name]
			if !ok {
				t.Fatalf("%q: no tensor %q", line, name)
			}
			if got := c.of(info); got.String() != want {
				t.Errorf("%s as %s: %s is %s, want %s", f[0], f[1], name, got, want)
			}
			compared++
		}
	}
	if compared < 3000 {
		t.Errorf("%d tensors compared, want 3000 and more", compared)
	}
}

func TestParseOutType(t *testing.T) {
	for name, want := range map[string]string{"keep": "keep", "Q4_K": "q4_k_m", "q5_k": "q5_k_m", "BF16": "bf16", "Q4_K_S": "q4_k_s"} {
		if got, err := ParseOutType(name); err != nil || got.Name != want {
			t.Errorf("ParseOutType(%q) = %q, %v, want %q", name, got.Name, err, want)
		}
	}
	if _, err := ParseOutType("q7"); err == nil || !strings.Contains(err.Error(), "keep, f32, f16") {
		t.Errorf("got %v, want the list", err)
	}
}

// Norms, and what llama-quantize keeps, stay as they are.
func TestQuantizable(t *testing.T) {
	for name, want := range map[string]bool{
		"blk.0.attn_q.weight": true, "blk.0.attn_norm.weight": false, "blk.0.ffn_gate_inp.weight": false,
		"blk.0.attn_q.bias": false, "rope_freqs.weight": true, "blk.0.ssm_conv1d.weight": false, "token_embd.weight": true,
	} {
		if got := (gguf.TensorInfo{Name: name, Shape: []uint64{64, 8}}).Quantizable(); got != want {
			t.Errorf("Quantizable(%s) = %v, want %v", name, got, want)
		}
	}
	if (gguf.TensorInfo{Name: "rope_freqs.weight", Shape: []uint64{64, 1}}).Quantizable() {
		t.Error("a row is converted")
	}
}
