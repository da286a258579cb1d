package opt

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"

	"gollama/internal/gguf"
)

// tensor is an F32 tensor of a checkpoint.
type tensor struct {
	name  string
	shape []int64 // ne[0] first
	data  []float32
}

func (t tensor) info() gguf.TensorInfo {
	info := gguf.TensorInfo{Name: t.name, Type: gguf.TypeF32}
	for _, ne := range t.shape {
		info.Shape = append(info.Shape, uint64(ne))
	}
	return info
}

// copyChunk is how many values are converted at once.
const copyChunk = 1 << 16

// floatsTo writes x to w, little endian.
func floatsTo(w io.Writer, x []float32) error {
	buf := make([]byte, 0, 4*min(len(x), copyChunk))
	for part := range slices.Chunk(x, copyChunk) {
		buf = buf[:0]
		for _, v := range part {
			buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(v))
		}
		if _, err := w.Write(buf); err != nil {
			return err
		}
	}
	return nil
}

// floatsFrom fills x from r, little endian.
func floatsFrom(r io.Reader, x []float32) error {
	buf := make([]byte, 4*min(len(x), copyChunk))
	for part := range slices.Chunk(x, copyChunk) {
		b := buf[:4*len(part)]
		if _, err := io.ReadFull(r, b); err != nil {
			return err
		}
		for i := range part {
			part[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
	}
	return nil
}

// writeTensors makes a GGUF file of F32 tensors at path and brings it to disk.
func writeTensors(path string, kvs gguf.KVs, tensors []tensor) error {
	infos := make([]gguf.TensorInfo, len(tensors))
	for i, t := range tensors {
		infos[i] = t.info()
	}
	out, err := gguf.Create(path, kvs, infos)
	if err != nil {
		return err
	}
	defer out.Abort()
	for _, t := range tensors {
		if err := out.Next(t.name); err != nil {
			return err
		}
		if err := floatsTo(out, t.data); err != nil {
			return err
		}
	}
	return out.Close()
}

// readTensors fills the tensors from the GGUF file at path, which may hold
// others too. Nothing is changed unless all of them are there in F32 with their
// shapes.
func readTensors(path string, tensors []tensor) error {
	f, err := gguf.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read from
	at := make([]int, len(tensors))
	for i, t := range tensors {
		n, ok := f.Tensor(t.name)
		if !ok {
			return fmt.Errorf("%s: tensor %q is missing", path, t.name)
		}
		got, want := f.Tensors[n], t.info()
		if got.Type != gguf.TypeF32 || !slices.Equal(trim(got.Shape), trim(want.Shape)) {
			return fmt.Errorf("%s: tensor %q: %s of shape %v, want f32 of shape %v", path, t.name, got.Type, got.Shape, want.Shape)
		}
		at[i] = n
	}
	for i, t := range tensors {
		if err := floatsFrom(f.TensorReader(at[i]), t.data); err != nil {
			return fmt.Errorf("%s: tensor %q: %w", path, t.name, err)
		}
	}
	return nil
}

// trim drops sizes of 1 at the end, which a file may leave out.
func trim(shape []uint64) []uint64 {
	for len(shape) > 0 && shape[len(shape)-1] == 1 {
		shape = shape[:len(shape)-1]
	}
	return shape
}
