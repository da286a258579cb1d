package opt

import (
	"fmt"

	"gollama/internal/opt/data"
)

// Dataset is a list of training examples: a [data.Dataset], or the caller's.
type Dataset interface {
	Len() int                             // number of examples
	Example(i int) (*data.Example, error) // example i, 0 <= i < Len, the caller's to change
}

// Shuffle returns the order of n examples in an epoch. Shards, runs of shard
// examples, change places whole; the last may be shorter. It depends on nothing
// but its arguments.
//
// Source: ggml-opt.cpp, ggml_opt_dataset_shuffle, which shuffles shards too.
func Shuffle(n, shard int, seed uint64, epoch int) []int {
	shard = max(shard, 1)
	order := make([]int, 0, n)
	for _, s := range data.Order((n+shard-1)/shard, seed, epoch) {
		for i := s * shard; i < min((s+1)*shard, n); i++ {
			order = append(order, i)
		}
	}
	return order
}

// InOrder returns 0 to n-1.
func InOrder(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

// Batch returns up to n examples of d from place first of order on.
func Batch(d Dataset, order []int, first, n int) ([]*data.Example, error) {
	var batch []*data.Example
	for _, i := range order[first:min(first+n, len(order))] {
		if i < 0 || i >= d.Len() {
			return nil, fmt.Errorf("example %d of %d", i, d.Len())
		}
		ex, err := d.Example(i)
		if err != nil {
			return nil, err
		}
		batch = append(batch, ex)
	}
	return batch, nil
}

// Merge puts neighbours together into rows of up to limit tokens, which are
// computed at once. Documents of one row do not see each other, so the loss is
// the same. An example longer than limit stays alone.
func Merge(batch []*data.Example, limit int) []*data.Example {
	var rows []*data.Example
	for start := 0; start < len(batch); {
		end, n := start+1, len(batch[start].Tokens)
		for end < len(batch) && n+len(batch[end].Tokens) <= limit {
			n += len(batch[end].Tokens)
			end++
		}
		if end == start+1 {
			rows = append(rows, batch[start])
		} else {
			rows = append(rows, join(batch[start:end]))
		}
		start = end
	}
	return rows
}

// join makes one example of several.
func join(list []*data.Example) *data.Example {
	out := &data.Example{}
	weighted := false
	for _, ex := range list {
		weighted = weighted || ex.Weights != nil
	}
	next := int32(0) // first free segment number
	for _, ex := range list {
		out.Tokens = append(out.Tokens, ex.Tokens...)
		out.Labels = append(out.Labels, ex.Labels...)
		top := next
		for i := range ex.Tokens {
			pos, seg := int32(i), next
			if ex.Positions != nil {
				pos = ex.Positions[i]
			}
			if ex.Segments != nil {
				seg = next + ex.Segments[i]
			}
			top = max(top, seg)
			out.Positions = append(out.Positions, pos)
			out.Segments = append(out.Segments, seg)
			if !weighted {
				continue
			}
			w := float32(1)
			if ex.Weights != nil {
				w = ex.Weights[i]
			}
			out.Weights = append(out.Weights, w)
		}
		next = top + 1
	}
	return out
}

// weightOf returns the sum of the weights of the scored positions.
func weightOf(ex *data.Example) float64 {
	sum := 0.0
	for i, label := range ex.Labels {
		switch {
		case label == data.NoLabel:
		case ex.Weights == nil:
			sum++
		default:
			sum += float64(ex.Weights[i])
		}
	}
	return sum
}
