package lora

import (
	"strings"
	"testing"

	"gollama/internal/gguf"
)

// A weighted merge has less weighted error than one without weights.
func TestImportanceCounts(t *testing.T) {
	needEngine(t)
	m := smallModel()
	m.typ, m.layers = gguf.TypeQ4_K, 1
	const q = "blk.0.attn_q.weight"
	weight := random(5, 256, 1)
	for i, v := range weight {
		weight[i] = v * v * v * v
	}
	a := &Adapter{Arch: "llama", Alpha: 8, Tensors: []Tensor{pair(1, q, 8, 256, 256)}}
	base, adapter := m.writeModel(t), writeAdapter(t, a)
	loss := func(opt Options) float64 {
		f, o := mustMerge(t, base, opt, adapter)
		want := reference(values(t, o.base, q), &a.Tensors[0], 1)
		sum := 0.0
		for i, v := range values(t, f, q) {
			d := float64(v) - want[i]
			sum += float64(weight[i%256]) * d * d
		}
		return sum
	}
	if with, without := loss(Options{Importance: Importance{q: weight}}), loss(Options{}); !(with < without) {
		t.Errorf("weighted error %g with weights, %g without", with, without)
	}
	_, _, err := merge(t, base, Options{Importance: Importance{q: weight[:100]}}, adapter)
	if err == nil || !strings.Contains(err.Error(), "100 values, want 256") {
		t.Errorf("got %v", err)
	}
}
