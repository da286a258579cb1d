package cvector

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
)

// BuildOptions say what Build makes of states.
type BuildOptions struct {
	Method   Method
	Scale    Scale
	Legacy   bool // direction.k is of the output of block k-1, as llama-cvector-generator has it
	Validate bool // test each direction on pairs that were held out
	Threads  int  // layers that are worked on at once
	Progress func(share float64)
}

// Layer is a direction and what there is to tell of it. Numbers that too few pairs leave open are NaN.
type Layer struct {
	Number    int // of the direction in the file
	Block     int // whose output it is of, from 0
	Direction *Direction
	Written   []float32 // as the file has it
	Samples   int
	Length    float64 // mean length of the states
	Previous  float64 // cosine to the direction of the block below; NaN for the first
	Quality   Quality
}

// Build makes the directions of all layers of s. It does not depend on the number of threads.
func Build(s *States, o BuildOptions) ([]*Layer, error) {
	n := s.Last - s.First + 1
	layers := make([]*Layer, n)
	errs := make([]error, n)
	var next, done atomic.Int64
	var wg sync.WaitGroup
	for range max(min(o.Threads, n), 1) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				layers[i], errs[i] = buildLayer(s, s.First+i, o)
				if k := done.Add(1); o.Progress != nil {
					o.Progress(float64(k) / float64(n))
				}
			}
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("layer %d: %w", s.First+i, err)
		}
	}
	for i, l := range layers {
		l.Previous = math.NaN()
		if i > 0 {
			l.Previous = Cosine(l.Direction.Unit, layers[i-1].Direction.Unit)
		}
	}
	return layers, nil
}

func buildLayer(s *States, block int, o BuildOptions) (*Layer, error) {
	l := &Layer{Number: block, Block: block, Length: s.Length(block), Samples: s.Samples, Quality: openQuality()}
	if o.Legacy {
		l.Number++
	}
	if s.store == nil {
		if o.Method != Mean {
			return nil, errors.New("the method needs the samples, which were not kept")
		}
		l.Direction = &Direction{Mean: s.MeanDifference(block)}
		n := norm(l.Direction.Mean)
		if n == 0 {
			return nil, ErrNoContrast
		}
		l.Direction.Unit = append([]float64{}, l.Direction.Mean...)
		scal(l.Direction.Unit, 1/n)
	} else {
		samples, err := s.Layer(block)
		if err != nil {
			return nil, err
		}
		l.Samples = samples.Pos.N
		if l.Direction, err = Solve(samples, o.Method); err != nil {
			return nil, err
		}
		if o.Validate {
			l.Quality = Validate(samples, o.Method)
		}
	}
	var err error
	l.Written, err = narrow(l.Direction.Scaled(o.Scale, o.Method))
	return l, err
}

// VectorOf makes a vector of layers.
func VectorOf(layers []*Layer, arch string, count int) *Vector {
	v := &Vector{Hint: arch, Count: count, NEmbd: len(layers[0].Written), Dirs: map[int][]float32{}}
	for _, l := range layers {
		v.Dirs[l.Number] = l.Written
	}
	return v
}
