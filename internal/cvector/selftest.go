package cvector

import (
	"context"
	"errors"
	"fmt"

	"gollama/internal/engine"
)

// ErrSelfTest is what the error wraps that says that the runtime does not apply a vector as it should.
var ErrSelfTest = errors.New("self-test")

// SelfTest applies direction.k alone, for each of layers, and checks that the output of block k moves by it to the last
// bit, and that of block k-1 not at all: some architectures leave control vectors out without a word. tokens is a text,
// of which a few tokens are enough; p says how the context is made.
func SelfTest(ctx context.Context, m *engine.Model, p engine.Params, v *Vector, layers []int, tokens []engine.Token) (err error) {
	n := m.Info().NLayer
	tokens = tokens[:min(len(tokens), 8)]
	p.NParallel, p.NCtx, p.NBatch, p.NUBatch, p.Warmup, p.ControlVectors = 1, 64, 64, 64, false, nil
	p.NOutputsMax, p.NOutputsMaxPerSeq = 1, 1
	tap, err := engine.NewStates(m, 0, n-1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tap.Close()) }()
	c, err := engine.NewContextTap(m, &p, tap)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	base, err := lastStates(ctx, c, tap, tokens)
	if err != nil {
		return err
	}
	for _, k := range layers {
		dirs := make([]float32, (n-1)*v.NEmbd)
		copy(dirs[(k-1)*v.NEmbd:], v.Dirs[k])
		if err := c.SetDirections(dirs, -1, -1); err != nil {
			return err
		}
		moved, err := lastStates(ctx, c, tap, tokens)
		if err != nil {
			return err
		}
		for i, d := range v.Dirs[k] {
			below, at := (k-1)*v.NEmbd+i, k*v.NEmbd+i
			if moved[below] != base[below] {
				return fmt.Errorf("%w: direction.%d moves the output of block %d", ErrSelfTest, k, k-1)
			}
			if want := float32(base[at]) + d; float32(moved[at]) != want {
				return fmt.Errorf("%w: direction.%d should make element %d of block %d's output %g, and it is %g", ErrSelfTest, k, i, k, want, moved[at])
			}
		}
	}
	return nil
}

// lastStates returns the states of the last token, all layers.
func lastStates(ctx context.Context, c *engine.Context, tap *engine.States, tokens []engine.Token) ([]float64, error) {
	c.ClearMemory()
	var b engine.Batch
	slots := make([]int32, len(tokens))
	for i, t := range tokens {
		slots[i] = -1
		b.Add(t, i, 0, i == len(tokens)-1)
	}
	slots[len(tokens)-1] = 0
	sum := make([]float64, tap.Width())
	return sum, tap.Decode(ctx, c, &b, slots, sum)
}
