package graph

import (
	"errors"

	"gollama/internal/engine/ggml"
)

// memory keeps what was taken with ggml.NewFloats, to give all of it back.
type memory struct{ blocks [][]float32 }

// floats returns n zeros.
func (m *memory) floats(n int) ([]float32, error) {
	s, err := ggml.NewFloats(n)
	if err == nil {
		m.blocks = append(m.blocks, s)
	}
	return s, err
}

func (m *memory) close() error {
	var errs []error
	for _, b := range m.blocks {
		errs = append(errs, ggml.FreeFloats(b))
	}
	m.blocks = nil
	return errors.Join(errs...)
}

// arena hands out parts of one block, each on a cache line of its own. A nil
// block only counts, so that one list of requests both sizes and fills it.
type arena struct {
	block []float32
	n     int
}

func (a *arena) take(n int) []float32 {
	const line = 16 // floats
	from := a.n
	a.n += (n + line - 1) / line * line
	if a.block == nil {
		return nil
	}
	return a.block[from : from+n : from+n]
}

func (a *arena) mat(rows, cols int) ggml.Mat {
	return ggml.NewMat(a.take(rows*cols), rows, cols)
}
