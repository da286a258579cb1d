package imatrix

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"gollama/internal/gguf"
)

// Keys and tensor suffixes of the GGUF form. The first four keys and the first two suffixes are llama-imatrix's.
const (
	keyType       = "general.type"
	keyDatasets   = "imatrix.datasets"
	keyChunkCount = "imatrix.chunk_count"
	keyChunkSize  = "imatrix.chunk_size"
	keyModel      = "gollama.imatrix.model"
	keyRanges     = "gollama.imatrix.ranges"
	keyPrefix     = "gollama."

	sufSum2     = ".in_sum2"
	sufCounts   = ".counts"
	sufSum2Low  = ".in_sum2_lo"
	sufSum      = ".in_sum"
	sufSumLow   = ".in_sum_lo"
	sufCountLow = ".counts_lo"
)

// maxLegacy is the size in bytes beyond which a file in the format before GGUF is not read: that of a model of 700
// billion weights has 1.1 GB.
const maxLegacy = 4 << 30

// Open reads a file of either format. chunkSize is the tokens in a chunk of a file in the format before GGUF, which
// does not say it: 0 leaves counts in chunks. Errors name the path and wrap [ErrFormat] or a [gguf.FormatError] where
// the file is not what it should be.
func Open(path string, chunkSize int) (*File, error) {
	g, err := gguf.Open(path)
	if err == nil {
		defer func() { _ = g.Close() }() // only read from
		f, err := fromGGUF(g)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return f, nil
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
		return nil, fmt.Errorf("%s: %w", path, formatErrorf("%d bytes, want at most %d", st.Size(), int64(maxLegacy)))
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f, err := parseLegacy(data, chunkSize)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// IsFormat reports whether err says that a file is not an importance matrix, or a damaged one.
func IsFormat(err error) bool { return errors.Is(err, ErrFormat) || errors.Is(err, gguf.ErrFormat) }

// fromGGUF reads the GGUF form.
func fromGGUF(g *gguf.File) (*File, error) {
	if kind, ok := g.Str(keyType); ok && kind != "imatrix" {
		return nil, formatErrorf("%s is %q, want imatrix", keyType, kind)
	}
	if arch, ok := g.Str("general.architecture"); ok {
		return nil, formatErrorf("it is a model of architecture %q", arch)
	}
	f := &File{}
	f.Datasets, _ = g.Strings(keyDatasets)
	size, _ := g.Uint(keyChunkSize)
	f.ChunkSize = int(min(size, math.MaxInt32))
	f.Model, _ = g.Str(keyModel)
	if list, ok := g.Strings(keyRanges); ok {
		var err error
		if f.Ranges, err = parseRanges(list); err != nil {
			return nil, formatErrorf("%s: %s", keyRanges, err)
		}
	}
	for _, kv := range g.KVs {
		if strings.HasPrefix(kv.Key, keyPrefix) && kv.Key != keyModel && kv.Key != keyRanges {
			f.Keys = append(f.Keys, kv)
		}
	}
	for i, info := range g.Tensors {
		name, ok := strings.CutSuffix(info.Name, sufSum2)
		if !ok {
			if base, ok := strings.CutSuffix(info.Name, sufCounts); ok {
				if _, ok := g.Tensor(base + sufSum2); !ok {
					return nil, formatErrorf("entry %q has counts and no values", base)
				}
			}
			continue
		}
		e, err := readEntry(g, i, name)
		if err != nil {
			return nil, err
		}
		f.Entries = append(f.Entries, e)
	}
	if len(f.Entries) == 0 {
		return nil, formatErrorf("it has no entries")
	}
	return f, f.sort()
}

// readEntry reads the entry whose sums of squares are tensor i.
func readEntry(g *gguf.File, i int, name string) (*Entry, error) {
	e := &Entry{Name: name}
	j, ok := g.Tensor(name + sufCounts)
	if !ok {
		return nil, formatErrorf("entry %q has no counts", name)
	}
	var err error
	if e.Sum2, err = readSums(g, i, nil); err != nil {
		return nil, err
	}
	if k, ok := g.Tensor(name + sufSum2Low); ok {
		if e.Sum2, err = readSums(g, k, e.Sum2); err != nil {
			return nil, err
		}
	}
	if k, ok := g.Tensor(name + sufSum); ok {
		if e.Sum, err = readSums(g, k, nil); err != nil {
			return nil, err
		}
		if k, ok := g.Tensor(name + sufSumLow); ok {
			if e.Sum, err = readSums(g, k, e.Sum); err != nil {
				return nil, err
			}
		}
	}
	counts, err := readSums(g, j, nil)
	if err != nil {
		return nil, err
	}
	if k, ok := g.Tensor(name + sufCountLow); ok {
		if counts, err = readSums(g, k, counts); err != nil {
			return nil, err
		}
	}
	e.Counts = make([]uint64, len(counts))
	for k, c := range counts {
		if !(c >= 0 && c <= maxCount) {
			return nil, formatErrorf("entry %q: count %g at position %d, want 0 to %d", name, c, k, uint64(maxCount))
		}
		e.Counts[k] = uint64(math.Round(c))
	}
	return e, e.check()
}

// pieceSize is how many bytes of a tensor are read at once.
const pieceSize = 1 << 20

// readSums returns tensor i as float64, added to the values of high if that is not nil.
func readSums(g *gguf.File, i int, high []float64) ([]float64, error) {
	info := g.Tensors[i]
	if info.Type != gguf.TypeF32 && info.Type != gguf.TypeF64 {
		return nil, formatErrorf("tensor %q is %s, want f32 or f64", info.Name, info.Type)
	}
	n := int(info.Elements())
	if high != nil && len(high) != n {
		return nil, formatErrorf("tensor %q has %d values, want %d", info.Name, n, len(high))
	}
	if high == nil {
		high = make([]float64, n)
	}
	r, size, order := g.TensorReader(i), int(info.Type.TypeSize()), g.ByteOrder
	buf := make([]byte, min(n*size, pieceSize))
	for at := 0; at < n; {
		b := buf[:min(len(buf), (n-at)*size)]
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, fmt.Errorf("tensor %q: %w", info.Name, err)
		}
		addFloats(high[at:at+len(b)/size], b, size, order)
		at += len(b) / size
	}
	return high, nil
}

// addFloats adds the numbers in b, of 4 or 8 bytes each, to dst.
func addFloats(dst []float64, b []byte, size int, order binary.ByteOrder) {
	switch {
	case order == binary.ByteOrder(binary.BigEndian) && size == 4:
		for k := range dst {
			dst[k] += float64(math.Float32frombits(binary.BigEndian.Uint32(b[k*4:])))
		}
	case order == binary.ByteOrder(binary.BigEndian):
		for k := range dst {
			dst[k] += math.Float64frombits(binary.BigEndian.Uint64(b[k*8:]))
		}
	case size == 4:
		for ; len(dst) > 0 && len(b) >= 4; dst, b = dst[1:], b[4:] {
			dst[0] += float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
		}
	default:
		for ; len(dst) > 0 && len(b) >= 8; dst, b = dst[1:], b[8:] {
			dst[0] += math.Float64frombits(binary.LittleEndian.Uint64(b))
		}
	}
}
