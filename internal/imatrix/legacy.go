package imatrix

import (
	"encoding/binary"
	"fmt"
	"math"

	"gollama/internal/pipeline"
)

// parser reads the format before GGUF, all little endian: the number of entries (int32); for each the length of its
// name (int32), the name, the chunks (int32), the number of values (int32) and the values (float32): means times
// chunks. Files of newer programs go on with all chunks (int32), and the length (int32) and name of the text.
// Source: common_imatrix_load_legacy in common/imatrix-loader.cpp.
type parser struct {
	data []byte
	at   int
}

func (p *parser) number(what string, limit int) (int, error) {
	if len(p.data)-p.at < 4 {
		return 0, formatErrorf("offset %d: the file ends before %s", p.at, what)
	}
	v := int(int32(binary.LittleEndian.Uint32(p.data[p.at:])))
	if v < 0 || v > limit {
		return 0, formatErrorf("offset %d: %s: got %d, want 0 to %d", p.at, what, v, limit)
	}
	p.at += 4
	return v, nil
}

func (p *parser) text(what string) (string, error) {
	n, err := p.number("the length of "+what, len(p.data)-p.at)
	if err != nil {
		return "", err
	}
	if n > len(p.data)-p.at {
		return "", formatErrorf("offset %d: the file ends within %s", p.at, what)
	}
	s := string(p.data[p.at : p.at+n])
	p.at += n
	return s, nil
}

// minEntry is the fewest bytes an entry takes.
const minEntry = 4 + 1 + 4 + 4 + 4

// parseLegacy reads the format before GGUF; for chunkSize see [Open].
func parseLegacy(data []byte, chunkSize int) (*File, error) {
	p := &parser{data: data}
	n, err := p.number("the number of entries", len(data)/minEntry)
	if err != nil {
		return nil, err
	}
	f := &File{Legacy: true, ChunkSize: chunkSize}
	for range n {
		e, err := p.entry(max(chunkSize, 1))
		if err != nil {
			return nil, err
		}
		f.Entries = append(f.Entries, e)
	}
	if p.at < len(data) {
		if _, err := p.number("the number of chunks", math.MaxInt32); err != nil {
			return nil, err
		}
		name, err := p.text("the name of the text")
		if err != nil {
			return nil, err
		}
		f.Datasets = []string{name}
	}
	if len(f.Entries) == 0 {
		return nil, formatErrorf("it has no entries")
	}
	return f, f.sort()
}

func (p *parser) entry(chunkSize int) (*Entry, error) {
	name, err := p.text("a name")
	if err != nil {
		return nil, err
	}
	calls, err := p.number(fmt.Sprintf("the chunks of %q", name), math.MaxInt32)
	if err != nil {
		return nil, err
	}
	n, err := p.number(fmt.Sprintf("the values of %q", name), (len(p.data)-p.at)/4)
	if err != nil {
		return nil, err
	}
	if n > (len(p.data)-p.at)/4 {
		return nil, formatErrorf("offset %d: the file ends within the values of %q", p.at, name)
	}
	// Upstream wrote 0 chunks of fewer tokens than one has, and reads them as 1.
	e := &Entry{Name: name, Sum2: make([]float64, n), Counts: []uint64{uint64(max(calls, 1)) * uint64(chunkSize)}}
	for i := range e.Sum2 {
		// The product of two float32 is rounded to one by llama-imatrix, and when it is written here.
		e.Sum2[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(p.data[p.at:]))) * float64(chunkSize)
		p.at += 4
	}
	return e, e.check()
}

// legacy returns the file in the format before GGUF, byte for byte as llama-imatrix writes it, and what is lost by it:
// the names of the entries of which no expert met a token, which are left out, and of those of which some did not.
// Source: IMatrixCollector::save_imatrix_legacy.
func (f *File) legacy() (data []byte, empty, partial []string, err error) {
	if f.ChunkSize < 1 {
		return nil, nil, nil, fmt.Errorf("the number of tokens in a chunk is not known, by which counts become chunks")
	}
	put := func(v int) { data = binary.LittleEndian.AppendUint32(data, uint32(int32(v))) }
	put(0) // the number of entries comes later
	kept := 0
	for _, e := range f.Entries {
		if err := e.check(); err != nil {
			return nil, nil, nil, err
		}
		zeros := 0
		for _, c := range e.Counts {
			if c == 0 {
				zeros++
			}
		}
		if zeros == len(e.Counts) {
			empty = append(empty, e.Name)
			continue
		}
		if zeros > 0 {
			partial = append(partial, e.Name)
		}
		kept++
		calls := (e.Tokens() + uint64(f.ChunkSize) - 1) / uint64(f.ChunkSize)
		if calls > math.MaxInt32 || len(e.Sum2) > math.MaxInt32 {
			return nil, nil, nil, fmt.Errorf("entry %q: %d chunks of %d values, want at most %d of each", e.Name, calls, len(e.Sum2), math.MaxInt32)
		}
		put(len(e.Name))
		data = append(data, e.Name...)
		put(int(calls))
		put(len(e.Sum2))
		width := e.Width()
		for i, v := range e.Sum2 {
			value, count := float32(v), float32(e.Counts[i/width])
			if count == 0 {
				value, count = 1, 1
			}
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(value/count*float32(calls)))
		}
	}
	binary.LittleEndian.PutUint32(data, uint32(kept))
	put(f.Chunks())
	name := ""
	if len(f.Datasets) > 0 {
		name = f.Datasets[len(f.Datasets)-1]
	}
	put(len(name))
	return append(data, name...), empty, partial, nil
}

// WriteLegacy writes the format before GGUF to path, which appears when it is whole. What is left out or changed is
// returned: entries without a token, and those with experts that met none, which get ones. Counts of experts, the
// tokens in a chunk and sums beyond float32 have no place in it.
func (f *File) WriteLegacy(path string) (empty, partial []string, err error) {
	data, empty, partial, err := f.legacy()
	if err != nil {
		return nil, nil, err
	}
	return empty, partial, pipeline.WriteFile(path, data)
}
