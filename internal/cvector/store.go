package cvector

import (
	"errors"
	"fmt"
	"io"
	"unsafe"

	"gollama/internal/pipeline"
)

// memoryRows is how many bytes of states are kept in memory; the rest goes to a file without a name, so that the memory
// does not grow with the number of pairs.
const memoryRows = 4 << 20

// store keeps the states of samples, all layers of one after the other, and gives them back layer by layer.
type store struct {
	layers, width int
	blocks        [][]float32    // of the first samples: a side after the other, layers x width each; nil if not there yet
	limit         int            // samples that are kept in memory
	file          *pipeline.File // of the others
	pair          []int
	sides         int // 2, or 3 with baselines, which layer takes off
	row           []float32
}

func newStore(layers, width, sides int) *store {
	size := sides * layers * width * 4
	return &store{layers: layers, width: width, sides: sides, limit: max(memoryRows/size, 1)}
}

// size returns how many values a side of a sample has.
func (s *store) size() int { return s.layers * s.width }

// put keeps the states of a side of a sample, layers x width values. Sides come in any order, each once.
func (s *store) put(sample, pair int, side side, states []float64) error {
	for len(s.pair) <= sample {
		s.pair = append(s.pair, 0)
	}
	s.pair[sample] = pair
	if s.row == nil {
		s.row = make([]float32, s.size())
	}
	for i, v := range states {
		s.row[i] = float32(v)
	}
	if sample < s.limit {
		for len(s.blocks) <= sample {
			s.blocks = append(s.blocks, nil)
		}
		if s.blocks[sample] == nil {
			s.blocks[sample] = make([]float32, s.sides*s.size())
		}
		copy(s.blocks[sample][int(side)*s.size():], s.row)
		return nil
	}
	if s.file == nil {
		f, err := pipeline.Scratch("")
		if err != nil {
			return fmt.Errorf("states that do not fit in memory: %w", err)
		}
		s.file = f
	}
	if _, err := s.file.WriteAt(bytesOf(s.row), s.offset(sample, side, 0)); err != nil {
		return fmt.Errorf("states that do not fit in memory: %w", err)
	}
	return nil
}

// offset returns where in the file a layer of a side of a sample is.
func (s *store) offset(sample int, side side, layer int) int64 {
	return 4 * ((int64(sample-s.limit)*int64(s.sides)+int64(side))*int64(s.size()) + int64(layer*s.width))
}

// bytesOf is the memory of x: what is written is read back by the same process.
func bytesOf(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

// layer returns the samples of one layer, without their baselines.
func (s *store) layer(l int) (*Samples, error) {
	n := len(s.pair)
	out := &Samples{Pos: NewMatrix(n, s.width), Neg: NewMatrix(n, s.width), Pair: s.pair}
	base := make([]float32, s.width)
	for i := range n {
		rows := [][]float32{out.Pos.Row(i), out.Neg.Row(i), base}
		for k, row := range rows[:s.sides] {
			if err := s.read(i, side(k), l, row); err != nil {
				return nil, err
			}
		}
		for _, row := range rows[:sideBase] {
			for j, v := range base {
				row[j] -= v
			}
		}
	}
	return out, nil
}

// read sets row to a layer of a side of a sample.
func (s *store) read(sample int, side side, layer int, row []float32) error {
	if sample < s.limit {
		copy(row, s.blocks[sample][int(side)*s.size()+layer*s.width:][:s.width])
		return nil
	}
	_, err := s.file.ReadAt(bytesOf(row), s.offset(sample, side, layer))
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("states that did not fit in memory: %w", err)
	}
	return nil
}

func (s *store) close() { s.file.Abort() }
