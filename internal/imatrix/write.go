package imatrix

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"gollama/internal/gguf"
)

// maxName is how many bytes the name of a weight has at most, for what is added to it to fit in a tensor's name.
const maxName = 63 - len(sufSum2Low)

// Write writes the GGUF form to path, which appears when it is whole. A reader that knows llama-imatrix's part only
// finds in_sum2 and counts, float32, rounded from what is in memory. Beside them stand:
//
//	NAME.in_sum2_lo  float64: what in_sum2 lacks
//	NAME.in_sum      float32: the sums of the activations, and NAME.in_sum_lo, float64, what it lacks
//	NAME.counts_lo   float32: what counts lack, if they lack something (more than 2^24 tokens)
//
// so that reading the file gives the same numbers. plain leaves them and the keys of this program out.
func (f *File) Write(path string, plain bool) error {
	infos, err := f.tensors(plain)
	if err != nil {
		return err
	}
	w, err := gguf.Create(path, f.keys(plain), infos)
	if err != nil {
		return err
	}
	defer w.Abort()
	if err := f.writeData(w, plain); err != nil {
		return err
	}
	return w.Close()
}

// Stream writes what [File.Write] does to w, which may be a pipe.
func (f *File) Stream(w io.Writer, plain bool) error {
	infos, err := f.tensors(plain)
	if err != nil {
		return err
	}
	out, err := gguf.NewWriter(w, f.keys(plain), infos)
	if err != nil {
		return err
	}
	if err := f.writeData(out, plain); err != nil {
		return err
	}
	return out.Close()
}

func (f *File) keys(plain bool) gguf.KVs {
	kvs := gguf.KVs{
		{Key: keyType, Value: gguf.ValueOf("imatrix")},
		{Key: keyDatasets, Value: gguf.ValueOf(f.Datasets)},
		{Key: keyChunkCount, Value: gguf.ValueOf(uint32(f.Chunks()))},
		{Key: keyChunkSize, Value: gguf.ValueOf(uint32(f.ChunkSize))},
	}
	if plain {
		return kvs
	}
	if f.Model != "" {
		kvs = append(kvs, gguf.KV{Key: keyModel, Value: gguf.ValueOf(f.Model)})
	}
	if f.Ranges != nil {
		kvs = append(kvs, gguf.KV{Key: keyRanges, Value: gguf.ValueOf(f.Ranges.strings())})
	}
	return append(kvs, f.Keys...)
}

// tensors describes the tensors, in the order of writing.
func (f *File) tensors(plain bool) ([]gguf.TensorInfo, error) {
	if f.ChunkSize < 1 {
		return nil, fmt.Errorf("the number of tokens in a chunk is not known, which GGUF needs")
	}
	var infos []gguf.TensorInfo
	for _, e := range f.Entries {
		if err := e.check(); err != nil {
			return nil, err
		}
		if len(e.Name) > maxName {
			return nil, fmt.Errorf("entry %q: a name of %d bytes, want at most %d", e.Name, len(e.Name), maxName)
		}
		n := uint64(len(e.Counts))
		add := func(suffix string, typ gguf.Type, width uint64) {
			shape := []uint64{width, n}
			if n == 1 {
				shape = shape[:1] // as ggml writes it
			}
			infos = append(infos, gguf.TensorInfo{Name: e.Name + suffix, Type: typ, Shape: shape})
		}
		width := uint64(e.Width())
		add(sufSum2, gguf.TypeF32, width)
		add(sufCounts, gguf.TypeF32, 1)
		if plain {
			continue
		}
		add(sufSum2Low, gguf.TypeF64, width)
		if e.Sum != nil {
			add(sufSum, gguf.TypeF32, width)
			add(sufSumLow, gguf.TypeF64, width)
		}
		if countsLow(e.Counts) != nil {
			add(sufCountLow, gguf.TypeF32, 1)
		}
	}
	return infos, nil
}

// countsLow returns what counts lack as float32, nil if it is nothing.
func countsLow(counts []uint64) []float64 {
	low, lacks := make([]float64, len(counts)), false
	for i, c := range counts {
		low[i] = float64(int64(c) - int64(float32(c)))
		lacks = lacks || low[i] != 0
	}
	if !lacks {
		return nil
	}
	return low
}

func (f *File) writeData(w *gguf.Writer, plain bool) error {
	var buf []byte
	put := func(name string, typ gguf.Type, n int, value func(i int) float64) error {
		buf = buf[:0]
		for i := range n {
			if typ == gguf.TypeF64 {
				buf = binary.LittleEndian.AppendUint64(buf, math.Float64bits(value(i)))
				continue
			}
			buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(float32(value(i))))
		}
		if err := w.Next(name); err != nil {
			return err
		}
		_, err := w.Write(buf)
		return err
	}
	high := func(x []float64) func(int) float64 { return func(i int) float64 { return x[i] } }
	low := func(x []float64) func(int) float64 {
		return func(i int) float64 { return x[i] - float64(float32(x[i])) }
	}
	for _, e := range f.Entries {
		n := len(e.Sum2)
		steps := []error{put(e.Name+sufSum2, gguf.TypeF32, n, high(e.Sum2)),
			put(e.Name+sufCounts, gguf.TypeF32, len(e.Counts), func(i int) float64 { return float64(e.Counts[i]) })}
		if !plain {
			steps = append(steps, put(e.Name+sufSum2Low, gguf.TypeF64, n, low(e.Sum2)))
			if e.Sum != nil {
				steps = append(steps, put(e.Name+sufSum, gguf.TypeF32, n, high(e.Sum)), put(e.Name+sufSumLow, gguf.TypeF64, n, low(e.Sum)))
			}
			if x := countsLow(e.Counts); x != nil {
				steps = append(steps, put(e.Name+sufCountLow, gguf.TypeF32, len(x), high(x)))
			}
		}
		for _, err := range steps {
			if err != nil {
				return err
			}
		}
	}
	return nil
}
