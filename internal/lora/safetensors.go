package lora

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"gollama/internal/engine/ggml"
	"gollama/internal/pipeline"
)

// maxSafetensorsHeader is the limit of the reference implementation (safetensors, MAX_HEADER_SIZE).
const maxSafetensorsHeader = 100_000_000

// safeTensor describes one tensor of a safetensors file.
type safeTensor struct {
	name  string
	dtype string
	shape []uint64 // outermost dimension first, as PyTorch has it
	start int64    // in the file
	size  int64    // bytes
}

// safeDtypes holds the bytes of one element. Others exist; no adapter is trained in them.
var safeDtypes = map[string]int64{"F64": 8, "F32": 4, "F16": 2, "BF16": 2}

// readSafetensors reads the header of r, which holds size bytes: the tensors in the order of their data.
// Source: https://huggingface.co/docs/safetensors, "Format".
func readSafetensors(r io.ReaderAt, size int64) ([]safeTensor, error) {
	var head [8]byte
	if size < 8 {
		return nil, adapterErrorf("the file has %d bytes, want a length of 8 bytes first", size)
	}
	if _, err := r.ReadAt(head[:], 0); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(head[:])
	if n > maxSafetensorsHeader || n > uint64(size-8) {
		return nil, adapterErrorf("offset 0: header of %d bytes, want at most %d", n, min(maxSafetensorsHeader, size-8))
	}
	text := make([]byte, n)
	if _, err := r.ReadAt(text, 8); err != nil {
		return nil, err
	}
	list, err := parseSafetensors(text, size-8-int64(n))
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i].start += 8 + int64(n)
	}
	return list, nil
}

// parseSafetensors reads the JSON of a header before data of room bytes.
func parseSafetensors(text []byte, room int64) ([]safeTensor, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	bad := func(err error) ([]safeTensor, error) {
		return nil, adapterErrorf("header: offset %d: %s", 8+dec.InputOffset(), err)
	}
	if tok, err := dec.Token(); err != nil {
		return bad(err)
	} else if tok != json.Delim('{') {
		return bad(errors.New("want a JSON object"))
	}
	var list []safeTensor
	seen := map[string]bool{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return bad(err)
		}
		name, _ := tok.(string)
		if seen[name] {
			return bad(fmt.Errorf("%q is there twice", name))
		}
		seen[name] = true
		if name == "__metadata__" {
			var skip map[string]string
			if err := pipeline.DecodeNext(dec, &skip); err != nil {
				return bad(err)
			}
			continue
		}
		t, err := decodeSafeTensor(dec, name, room)
		if err != nil {
			return bad(err)
		}
		list = append(list, t)
	}
	if _, err := dec.Token(); err != nil {
		return bad(err)
	}
	slices.SortFunc(list, func(a, b safeTensor) int {
		if a.start != b.start {
			return int(min(max(a.start-b.start, -1), 1))
		}
		return int(min(max(a.size-b.size, -1), 1))
	})
	for i := 1; i < len(list); i++ {
		if prev := list[i-1]; list[i].start < prev.start+prev.size {
			return nil, adapterErrorf("header: tensor %q begins at %d, but %q has the bytes %d to %d", list[i].name, list[i].start, prev.name, prev.start, prev.start+prev.size)
		}
	}
	return list, nil
}

// decodeSafeTensor reads the description of the tensor called name.
func decodeSafeTensor(dec *json.Decoder, name string, room int64) (safeTensor, error) {
	var v struct {
		Dtype   string   `json:"dtype"`
		Shape   []uint64 `json:"shape"`
		Offsets []int64  `json:"data_offsets"`
	}
	t := safeTensor{name: name}
	if err := pipeline.DecodeNext(dec, &v); err != nil {
		return t, err
	}
	width, ok := safeDtypes[v.Dtype]
	if !ok {
		return t, fmt.Errorf("tensor %q: dtype %q, want F64, F32, F16 or BF16", name, v.Dtype)
	}
	if len(v.Offsets) != 2 || v.Offsets[0] < 0 || v.Offsets[1] < v.Offsets[0] || v.Offsets[1] > room {
		return t, fmt.Errorf("tensor %q: data_offsets %v, want two within the %d bytes of data", name, v.Offsets, room)
	}
	t.dtype, t.shape, t.start, t.size = v.Dtype, v.Shape, v.Offsets[0], v.Offsets[1]-v.Offsets[0]
	n := t.size / width
	for _, d := range v.Shape {
		if d == 0 || n%max(int64(min(d, math.MaxInt64)), 1) != 0 {
			return t, fmt.Errorf("tensor %q: shape %v does not match its %d bytes of %s", name, v.Shape, t.size, v.Dtype)
		}
		n /= int64(d)
	}
	if n != 1 || t.size%width != 0 {
		return t, fmt.Errorf("tensor %q: shape %v does not match its %d bytes of %s", name, v.Shape, t.size, v.Dtype)
	}
	return t, nil
}

// floats reads the values of t.
func (t *safeTensor) floats(r io.ReaderAt) ([]float32, error) {
	b := make([]byte, t.size)
	if _, err := r.ReadAt(b, t.start); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", t.name, err)
	}
	x := make([]float32, t.size/safeDtypes[t.dtype])
	switch t.dtype {
	case "F32":
		copy(byteView(x), b)
	case "F16":
		ggml.F16ToF32(x, halves(b))
	case "BF16":
		ggml.BF16ToF32(x, halves(b))
	case "F64":
		for i := range x {
			x[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:])))
		}
	}
	return x, nil
}

// safeEntry is a tensor to write: float32, outermost dimension first.
type safeEntry struct {
	name  string
	shape []uint64
	read  func() ([]float32, error)
}

// writeSafetensors writes the file to out, which errors call path. Tensors are in the order given; the header is padded
// with blanks so that the data begins at a multiple of 8, as the reference implementation does.
func writeSafetensors(out io.Writer, path string, entries []safeEntry) error {
	type info struct {
		Dtype   string    `json:"dtype"`
		Shape   []uint64  `json:"shape"`
		Offsets [2]uint64 `json:"data_offsets"`
	}
	text := []byte(`{"__metadata__":{"format":"pt"}`)
	at := uint64(0)
	for _, e := range entries {
		size := uint64(4)
		for _, d := range e.shape {
			size *= d
		}
		v, err := json.Marshal(info{"F32", e.shape, [2]uint64{at, at + size}})
		if err != nil {
			return err
		}
		name, err := json.Marshal(e.name)
		if err != nil {
			return err
		}
		text = slices.Concat(text, []byte(","), name, []byte(":"), v)
		at += size
	}
	text = append(text, '}')
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	if _, err := out.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)); err != nil {
		return err
	}
	for _, e := range entries {
		x, err := e.read()
		if err != nil {
			return err
		}
		if err := checkFinite(e.name, x); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if _, err := out.Write(byteView(x)); err != nil {
			return err
		}
	}
	return nil
}
