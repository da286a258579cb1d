package lora

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"gollama/internal/gguf"
)

// Importance holds, by tensor name, the mean squares of the activations that each column of a tensor meets: ne[0]
// values, for experts ne[0] for each.
type Importance map[string][]float32

// maxLegacy is the size in bytes beyond which a file in the old format is not read: the matrices of a model of 400
// billion weights take a few megabytes.
const maxLegacy = 1 << 30

// ReadImportance reads a file that llama-imatrix wrote, in GGUF or in the older format. Values are means, an expert
// that met no token has ones. Source: load_imatrix in tools/quantize/quantize.cpp.
func ReadImportance(path string) (Importance, error) {
	f, err := gguf.Open(path)
	if err == nil {
		defer func() { _ = f.Close() }() // only read from
		m, err := importanceOf(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return m, nil
	}
	var format *gguf.FormatError
	if !errors.As(err, &format) || format.Field != "magic" {
		return nil, err
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.Size() > maxLegacy {
		return nil, fmt.Errorf("%s: %d bytes, want an importance matrix of at most %d", path, st.Size(), maxLegacy)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m, err := parseLegacyImportance(data)
	if err != nil {
		return nil, fmt.Errorf("%s: not an importance matrix: %w", path, err)
	}
	return m, nil
}

func importanceOf(f *gguf.File) (Importance, error) {
	if kind, ok := f.Str(keyType); ok && kind != "imatrix" {
		return nil, fmt.Errorf("%s is %q, want imatrix", keyType, kind)
	}
	m := Importance{}
	for i, info := range f.Tensors {
		name, ok := strings.CutSuffix(info.Name, ".in_sum2")
		if !ok {
			continue
		}
		j, ok := f.Tensor(name + ".counts")
		if !ok {
			return nil, fmt.Errorf("tensor %q has no counts", info.Name)
		}
		if info.Type != gguf.TypeF32 || f.Tensors[j].Type != gguf.TypeF32 {
			return nil, fmt.Errorf("tensor %q and its counts are %s and %s, want f32", info.Name, info.Type, f.Tensors[j].Type)
		}
		sums, err := readFloats(f, i)
		if err != nil {
			return nil, err
		}
		counts, err := readFloats(f, j)
		if err != nil {
			return nil, err
		}
		if len(counts) == 0 || len(sums)%len(counts) != 0 {
			return nil, fmt.Errorf("tensor %q has %d values for %d counts", info.Name, len(sums), len(counts))
		}
		width := len(sums) / len(counts)
		for k := range sums {
			if c := float32(math.Round(float64(counts[k/width]))); c > 0 {
				sums[k] /= c
			} else {
				sums[k] = 1
			}
		}
		if m[name], err = checkImportance(name, sums); err != nil {
			return nil, err
		}
	}
	if len(m) == 0 {
		return nil, errors.New("it holds no importance matrix")
	}
	return m, nil
}

// parseLegacyImportance reads the format before GGUF: a count of entries, each with its name, the calls and the values,
// sums over the calls. Source: common_imatrix_load_legacy in common/imatrix-loader.cpp.
func parseLegacyImportance(data []byte) (Importance, error) {
	at := 0
	number := func(what string, limit int) (int, error) {
		if len(data)-at < 4 {
			return 0, fmt.Errorf("offset %d: the file ends before %s", at, what)
		}
		v := int(int32(binary.LittleEndian.Uint32(data[at:])))
		if v < 0 || v > limit {
			return 0, fmt.Errorf("offset %d: %s: got %d, want 0 to %d", at, what, v, limit)
		}
		at += 4
		return v, nil
	}
	entries, err := number("the number of entries", len(data)/16)
	if err != nil {
		return nil, err
	}
	m := Importance{}
	for range entries {
		n, err := number("the length of a name", len(data)-at)
		if err != nil {
			return nil, err
		}
		n = min(n, len(data)-at)
		name := string(data[at : at+n])
		at += n
		calls, err := number("the calls of "+name, math.MaxInt32)
		if err != nil {
			return nil, err
		}
		values, err := number("the values of "+name, (len(data)-at)/4)
		if err != nil {
			return nil, err
		}
		if values > (len(data)-at)/4 {
			return nil, fmt.Errorf("offset %d: the file ends within the values of %q", at, name)
		}
		x := make([]float32, values)
		for i := range x {
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[at:])) / float32(max(calls, 1))
			at += 4
		}
		if m[name], err = checkImportance(name, x); err != nil {
			return nil, err
		}
	}
	if len(m) == 0 {
		return nil, errors.New("it holds no entries")
	}
	return m, nil
}

func checkImportance(name string, x []float32) ([]float32, error) {
	for i, v := range x {
		if !(v >= 0 && v <= math.MaxFloat32) {
			return nil, fmt.Errorf("entry %q: value %g at position %d, want a finite one of 0 or more", name, v, i)
		}
	}
	return x, nil
}
