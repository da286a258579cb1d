package cvector

import (
	"errors"
	"fmt"
	"io"
	"os"
	"unsafe"
)

// memoryRows is how many bytes of states are kept in memory; the rest goes to a file without a name, so that the memory
// does not grow with the number of pairs.
const memoryRows = 64 << 20

// store keeps the states of samples, all layers of one after the other, and gives them back layer by layer.
type store struct {
	layers, width int
	blocks        [][]float32 // of the first samples: layers x (positive, negative) x width each
	limit         int         // samples that are kept in memory
	file          *os.File
	pair          []int
}

func newStore(layers, width int) *store {
	size := 2 * layers * width * 4
	return &store{layers: layers, width: width, limit: max(memoryRows/size, 1)}
}

// add keeps the states of one sample: layers x width values for each side.
func (s *store) add(pair int, pos, neg []float32) error {
	block := make([]float32, 0, 2*len(pos))
	for l := range s.layers {
		at, end := l*s.width, (l+1)*s.width
		block = append(append(block, pos[at:end]...), neg[at:end]...)
	}
	s.pair = append(s.pair, pair)
	if len(s.blocks) < s.limit {
		s.blocks = append(s.blocks, block)
		return nil
	}
	if s.file == nil {
		f, err := os.CreateTemp("", "gollama-cvector-*")
		if err != nil {
			return fmt.Errorf("states that do not fit in memory: %w", err)
		}
		_ = os.Remove(f.Name()) // where an open file cannot be removed, close does it
		s.file = f
	}
	if _, err := s.file.Write(bytesOf(block)); err != nil {
		return fmt.Errorf("states that do not fit in memory: %w", err)
	}
	return nil
}

// bytesOf is the memory of x: what is written is read back by the same process.
func bytesOf(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

// layer returns the samples of one layer.
func (s *store) layer(l int) (*Samples, error) {
	n := len(s.pair)
	out := &Samples{Pos: NewMatrix(n, s.width), Neg: NewMatrix(n, s.width), Pair: s.pair}
	both := make([]float32, 2*s.width)
	block, at := 2*s.layers*s.width, 2*l*s.width
	for i := range n {
		from := both
		if i < len(s.blocks) {
			from = s.blocks[i][at:][:2*s.width]
		} else if _, err := s.file.ReadAt(bytesOf(both), 4*(int64(i-len(s.blocks))*int64(block)+int64(at))); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, fmt.Errorf("states that did not fit in memory: %w", err)
		}
		copy(out.Pos.Row(i), from[:s.width])
		copy(out.Neg.Row(i), from[s.width:])
	}
	return out, nil
}

func (s *store) close() {
	if s.file != nil {
		_ = s.file.Close()
		_ = os.Remove(s.file.Name())
	}
}
