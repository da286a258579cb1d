package engine

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"gollama/internal/gguf"
)

// layerRange resolves -1 and checks a control vector's layers.
func layerRange(start, end, nLayer int) (int, int, error) {
	if start <= 0 {
		start = 1
	}
	if end <= 0 {
		end = nLayer
	}
	if start > end || end > nLayer {
		return 0, 0, fmt.Errorf("--control-vector-layer-range: layers %d to %d are not in the model's 1 to %d", start, end, nLayer)
	}
	return start, end, nil
}

// sumControlVectors returns the weighted sum of the files' directions: nEmbd
// floats for each of nLayer layers from layer 1 on, zeros where there is none.
// llama.cpp leaves what was there before in layers that a shorter array lacks.
// Every flaw of a file is an error. Source: common_control_vector_load.
func sumControlVectors(list []ControlVectorInfo, arch string, nEmbd, nLayer int) ([]float32, error) {
	sum := make([]float32, nEmbd*nLayer)
	for _, v := range list {
		if msg, err := addControlVector(sum, v, arch, nEmbd, nLayer); err != nil {
			return nil, err
		} else if msg != "" {
			return nil, &Error{Op: "load control vector", Path: v.Path, Msg: msg, Err: ErrModel}
		}
	}
	for _, x := range sum {
		if !finite(x) {
			return nil, &Error{Op: "load control vector", Path: list[0].Path, Msg: "the weighted sum is not finite", Err: ErrModel}
		}
	}
	return sum, nil
}

func addControlVector(sum []float32, v ControlVectorInfo, arch string, nEmbd, nLayer int) (string, error) {
	if !finite(v.Strength) {
		return "its strength is not a finite number", nil
	}
	f, err := openGGUF("load control vector", v.Path, gguf.Open)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if a, ok := f.Str("general.architecture"); ok && a != "controlvector" {
		return fmt.Sprintf("it is not a control vector: general.architecture is %q", a), nil
	}
	if hint, ok := f.Str("controlvector.model_hint"); ok && hint != arch {
		return fmt.Sprintf("it is for the architecture %q, the model's is %q", hint, arch), nil
	}
	if len(f.Tensors) == 0 {
		return "it has no directions", nil
	}
	for i, t := range f.Tensors {
		layer, msg := directionLayer(t, nEmbd, nLayer)
		if msg != "" {
			return msg, nil
		}
		data, err := f.ReadTensor(i)
		if err != nil {
			return "", fileError("load control vector", v.Path, err)
		}
		dst := sum[(layer-1)*nEmbd:]
		for k := range nEmbd {
			x := math.Float32frombits(binary.LittleEndian.Uint32(data[4*k:]))
			if !finite(x) {
				return fmt.Sprintf("tensor %q has a value that is not finite", t.Name), nil
			}
			dst[k] += x * v.Strength
		}
	}
	return "", nil
}

// directionLayer returns the layer of a tensor named direction.N, or what is
// wrong with it.
func directionLayer(t gguf.TensorInfo, nEmbd, nLayer int) (int, string) {
	num, ok := strings.CutPrefix(t.Name, "direction.")
	layer, err := strconv.Atoi(num)
	switch {
	case !ok || err != nil:
		return 0, fmt.Sprintf("tensor %q is not named direction.N", t.Name)
	case layer < 1 || layer >= nLayer:
		// The last layer's output goes to no further layer: llama.cpp never applies a direction there.
		return 0, fmt.Sprintf("tensor %q is for layer %d, the model has directions for 1 to %d", t.Name, layer, nLayer-1)
	case t.Type != gguf.TypeF32:
		return 0, fmt.Sprintf("tensor %q is of type %s, want f32", t.Name, t.Type)
	case t.Elements() != uint64(nEmbd) || shape4(t)[0] != uint64(nEmbd):
		return 0, fmt.Sprintf("tensor %q has shape %v, the model's embedding has %d elements", t.Name, t.Shape, nEmbd)
	}
	return layer, ""
}

// checkLoRA looks for what llama_adapter_lora_init and the graph would assert
// on, and for adapters of other models.
func checkLoRA(path string, m *modelFile) error {
	f, err := openGGUF("load LoRA adapter", path, gguf.Open)
	if err != nil {
		return err
	}
	defer f.Close()
	msg := checkLoRAKeys(f, m.arch)
	if msg == "" {
		msg = checkLoRATensors(f, m.shapes)
	}
	if msg == "" {
		msg = checkLoRAEmbedding(f, m)
	}
	if msg != "" {
		return &Error{Op: "load LoRA adapter", Path: path, Msg: msg, Err: ErrModel}
	}
	return nil
}

func checkLoRAKeys(f *gguf.File, arch string) string {
	for _, want := range []struct{ key, value string }{{"general.type", "adapter"}, {"adapter.type", "lora"}} {
		got, ok := f.Str(want.key)
		if !ok {
			return fmt.Sprintf("it is not a LoRA adapter: the key %s is missing", want.key)
		}
		if got != want.value {
			return fmt.Sprintf("it is not a LoRA adapter: %s is %q", want.key, got)
		}
	}
	if got, ok := f.Str("general.architecture"); !ok || got != arch {
		return fmt.Sprintf("it is for the architecture %q, the model's is %q", got, arch)
	}
	alpha, ok := f.Get("adapter.lora.alpha")
	if ok && alpha.Kind() != gguf.KindFloat32 {
		return fmt.Sprintf("the key adapter.lora.alpha is of type %s, want f32", alpha.Kind())
	}
	if x, _ := alpha.Float(); ok && !finite(float32(x)) {
		return "the key adapter.lora.alpha is not a finite number"
	}
	return ""
}

func checkLoRATensors(f *gguf.File, shapes map[string][4]uint64) string {
	if len(f.Tensors) == 0 {
		return "it has no tensors"
	}
	for _, t := range f.Tensors {
		if strings.HasSuffix(t.Name, "_norm.weight") {
			continue // llama.cpp skips them
		}
		base, isA := strings.CutSuffix(t.Name, ".lora_a")
		if !isA {
			var isB bool
			if base, isB = strings.CutSuffix(t.Name, ".lora_b"); !isB {
				return fmt.Sprintf("tensor %q is neither a lora_a nor a lora_b", t.Name)
			}
		}
		switch t.Type {
		case gguf.TypeF32, gguf.TypeF16, gguf.TypeBF16:
		default:
			if t.Type.BlockSize() <= 1 {
				return fmt.Sprintf("tensor %q is of type %s, which cannot be multiplied", t.Name, t.Type)
			}
		}
		want, ok := shapes[base]
		if !ok {
			return fmt.Sprintf("tensor %q does not exist in the model", base)
		}
		if s := shape4(t); s[2] != want[2] || s[3] != want[3] {
			return fmt.Sprintf("tensor %q has shape %v, which does not fit the model's", t.Name, t.Shape)
		}
	}
	return ""
}

// checkLoRAEmbedding looks at an adapter of the embedding, whose ranks llama.cpp
// does not compare. Where the output has no tensor of its own it is the embedding
// under the same name, and build_lora_mm multiplies with these parts, which are
// the wrong way round for that; encoders without an output do not.
func checkLoRAEmbedding(f *gguf.File, m *modelFile) string {
	const embd = "token_embd.weight"
	a, okA := f.Tensor(embd + ".lora_a")
	b, okB := f.Tensor(embd + ".lora_b")
	if !okA || !okB {
		return "" // llama.cpp has an error for one without the other
	}
	if rankA, rankB := shape4(f.Tensors[a])[0], shape4(f.Tensors[b])[0]; rankA != rankB {
		return fmt.Sprintf("tensor %q: lora_a has rank %d, lora_b %d", embd, rankA, rankB)
	}
	encoder := strings.Contains(m.arch, "bert") || m.arch == "t5encoder"
	if _, ok := m.shapes["output.weight"]; !ok && !encoder {
		return fmt.Sprintf("tensor %q cannot be adapted: the model shares it with its output", embd)
	}
	return ""
}
