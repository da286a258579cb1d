package data

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
)

// Dataset is a fixed list of examples. Its methods may be called from several goroutines.
type Dataset struct {
	src   *corpus
	spans []span
	ends  []int // row i holds spans[ends[i-1]:ends[i]]
	stats Stats
}

// Stats counts what is in a dataset.
type Stats struct {
	Documents int   `json:"documents"` // documents of which at least one token is in an example
	Examples  int   `json:"examples"`
	Tokens    int64 `json:"tokens"`  // input positions of all examples together
	Labels    int64 `json:"labels"`  // positions that are scored
	Longest   int   `json:"longest"` // positions of the longest example
}

// span is a run of tokens of one document, evaluated together: n tokens give n-1 positions, as the
// last one is only a label.
type span struct{ doc, from, n int32 }

// Len returns the number of examples.
func (d *Dataset) Len() int {
	if d == nil {
		return 0
	}
	return len(d.ends)
}

// Close closes the cache file, also for the dataset that was loaded together with d. It may be called
// twice and on nil.
func (d *Dataset) Close() error {
	if d == nil {
		return nil
	}
	return d.src.close()
}

// Stats returns counts over all examples.
func (d *Dataset) Stats() Stats { return d.stats }

// addRow appends an example made of spans.
func (d *Dataset) addRow(spans ...span) {
	d.spans = append(d.spans, spans...)
	d.ends = append(d.ends, len(d.spans))
	n := 0
	for _, s := range spans {
		n += int(s.n) - 1
	}
	d.stats.Examples++
	d.stats.Tokens += int64(n)
	d.stats.Longest = max(d.stats.Longest, n)
}

func (d *Dataset) row(i int) []span {
	start := 0
	if i > 0 {
		start = d.ends[i-1]
	}
	return d.spans[start:d.ends[i]]
}

// Example returns example i, 0 <= i < Len. It is the caller's own. An error is one of reading the
// cache. It panics if there is no example i.
func (d *Dataset) Example(i int) (*Example, error) {
	spans := d.row(i)
	total := 0
	for _, s := range spans {
		total += int(s.n) - 1
	}
	ex := &Example{Tokens: make([]int32, 0, total), Labels: make([]int32, 0, total)}
	weights := make([]float32, 0, total)
	for k, s := range spans {
		tokens, w := make([]int32, s.n), make([]float32, s.n)
		if err := d.src.read(s, tokens, w); err != nil {
			return nil, fmt.Errorf("read example %d: %w", i, err)
		}
		ex.Tokens = append(ex.Tokens, tokens[:s.n-1]...)
		for j, t := range tokens[1:] {
			if w[j+1] == 0 {
				t = NoLabel
			}
			ex.Labels = append(ex.Labels, t)
		}
		weights = append(weights, w[1:]...)
		if len(spans) > 1 {
			for p := range s.n - 1 {
				ex.Positions = append(ex.Positions, p)
				ex.Segments = append(ex.Segments, int32(k))
			}
		}
	}
	for j, w := range weights {
		if w != 1 && ex.Labels[j] != NoLabel {
			ex.Weights = weights
		}
	}
	return ex, nil
}

// Order returns the order of n examples in an epoch: a permutation of 0 to n-1 that depends on
// nothing else, so that a resumed run needs no state for it.
func Order(n int, seed uint64, epoch int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	// The generator is specified (PCG-DXSM), rand.Shuffle is not: draw from it here, so that a new
	// Go release cannot change the order of a run that is resumed.
	pcg := rand.NewPCG(seed, uint64(epoch))
	for i := n - 1; i > 0; i-- {
		j := below(pcg, uint64(i)+1)
		order[i], order[j] = order[j], order[i]
	}
	return order
}

// below returns a number in [0, n), each equally likely: Lemire's method, "Fast random integer
// generation in an interval", 2019.
func below(src rand.Source, n uint64) uint64 {
	for {
		hi, lo := bits.Mul64(src.Uint64(), n)
		if lo >= n || lo >= -n%n {
			return hi
		}
	}
}
