package imatrix

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// TensorStats are statistics of the mean squares of one weight, over all columns of which something was measured. They
// are those of llama-imatrix's --show-statistics, in float64. Source: compute_statistics and compute_cossim.
type TensorStats struct {
	Name        string   `json:"name"`
	Block       int      `json:"block"` // -1 for a weight of no block
	Tensor      string   `json:"tensor"`
	Tokens      uint64   `json:"tokens"`
	N           int      `json:"n"` // columns
	Sum         float64  `json:"sum"`
	Min         float64  `json:"min"`
	Max         float64  `json:"max"`
	Mean        float64  `json:"mean"`
	Std         float64  `json:"std"`
	Active      float64  `json:"active"`       // share above 1e-5
	Entropy     float64  `json:"entropy"`      // bits, of the shares of the sum
	EntropyNorm *float64 `json:"entropy_norm"` // share of what N equal columns have; null for one column
	ZD          float64  `json:"zd"`           // share of columns more than a standard deviation above the mean
	Cosine      *float64 `json:"cosine"`       // of the sums with those of the same tensor a block before; null if there is none
	// MeanCosine is Cosine for the means of the activations themselves, which only files of this program have.
	MeanCosine *float64 `json:"mean_cosine,omitempty"`
	Top        []Column `json:"top,omitempty"` // the columns with the largest mean squares
	Experts    []uint64 `json:"experts,omitempty"`
	Dead       int      `json:"dead_experts,omitempty"`
}

// Column is one of the columns that stand out.
type Column struct {
	Index int     `json:"index"` // in the entry; of an expert, the expert's number times the width plus the column
	Mean  float64 `json:"mean_square"`
}

// LayerStats are means over the weights of a block, by their columns.
type LayerStats struct {
	Block  int     `json:"block"`
	Sum    float64 `json:"sum"`
	ZD     float64 `json:"zd"`
	Cosine float64 `json:"cosine"` // 0 where there is none, as llama-imatrix has it
}

// Stats are the statistics of a file.
type Stats struct {
	Tensors []TensorStats `json:"tensors"` // by tensor, then by falling sum, as llama-imatrix lists them
	Layers  []LayerStats  `json:"layers"`
}

const (
	activeAbove = 1e-5 // upstream's threshold
	topColumns  = 5
)

// Stats computes statistics. Entries without any token are left out.
func (f *File) Stats() Stats {
	var s Stats
	for _, e := range f.Entries {
		if e.Tokens() == 0 {
			continue
		}
		t := e.stats()
		if t.Block > 0 {
			if prev := f.Entry(strings.Replace(e.Name, "blk."+itoa(t.Block)+".", "blk."+itoa(t.Block-1)+".", 1)); prev != nil {
				t.Cosine = cosine(e.Sum2, prev.Sum2)
				t.MeanCosine = cosine(e.Sum, prev.Sum)
			}
		}
		s.Tensors = append(s.Tensors, t)
	}
	slices.SortStableFunc(s.Tensors, func(a, b TensorStats) int {
		return cmp.Or(cmp.Compare(a.Tensor, b.Tensor), cmp.Compare(b.Sum, a.Sum))
	})
	s.Layers = layers(s.Tensors)
	return s
}

// means calls each with the mean square of every column of which something was measured.
func (e *Entry) means(each func(i int, m float64)) {
	width := e.Width()
	for k, c := range e.Counts {
		if c == 0 {
			continue
		}
		for i := k * width; i < (k+1)*width; i++ {
			each(i, e.Sum2[i]/float64(c))
		}
	}
}

func (e *Entry) stats() TensorStats {
	t := TensorStats{Name: e.Name, Tokens: e.Tokens(), Min: math.Inf(1)}
	t.Block, t.Tensor = SplitName(e.Name)
	if e.Experts() > 0 {
		t.Experts = e.Counts
		for _, c := range e.Counts {
			if c == 0 {
				t.Dead++
			}
		}
	}
	active := 0
	e.means(func(i int, m float64) {
		t.N++
		t.Sum += m
		t.Min, t.Max = min(t.Min, m), max(t.Max, m)
		if m > activeAbove {
			active++
		}
		t.Top = keepTop(t.Top, Column{i, m})
	})
	n := float64(t.N)
	t.Mean, t.Active = t.Sum/n, float64(active)/n
	var square float64
	e.means(func(_ int, m float64) {
		square += (m - t.Mean) * (m - t.Mean)
		if p := m / t.Sum; p > 0 {
			t.Entropy -= p * math.Log2(p)
		}
	})
	t.Std = math.Sqrt(square / n)
	if t.N > 1 {
		norm := t.Entropy / math.Log2(n)
		t.EntropyNorm = &norm
	}
	if t.Std > 0 {
		above := 0
		e.means(func(_ int, m float64) {
			if (m-t.Mean)/t.Std > 1 {
				above++
			}
		})
		t.ZD = float64(above) / n
	}
	return t
}

// keepTop puts c among the largest so far.
func keepTop(top []Column, c Column) []Column {
	if len(top) == topColumns && c.Mean <= top[len(top)-1].Mean {
		return top
	}
	i, _ := slices.BinarySearchFunc(top, c, func(a, b Column) int { return cmp.Or(cmp.Compare(b.Mean, a.Mean), cmp.Compare(a.Index, b.Index)) })
	top = slices.Insert(top, i, c)
	return top[:min(len(top), topColumns)]
}

// cosine returns the cosine of the angle between a and b, nil if they are not of one length or one is zero.
func cosine(a, b []float64) *float64 {
	if len(a) != len(b) || len(a) == 0 {
		return nil
	}
	var dot, aa, bb float64
	for i, x := range a {
		dot, aa, bb = dot+x*b[i], aa+x*x, bb+b[i]*b[i]
	}
	c := dot / (math.Sqrt(aa) * math.Sqrt(bb))
	if math.IsNaN(c) || math.IsInf(c, 0) {
		return nil
	}
	return &c
}

// layers averages over the weights of each block.
func layers(tensors []TensorStats) []LayerStats {
	type sums struct{ n, sum, zd, cos float64 }
	byBlock := map[int]*sums{}
	var blocks []int
	for _, t := range tensors {
		if t.Block < 0 {
			continue
		}
		if byBlock[t.Block] == nil {
			byBlock[t.Block] = &sums{}
			blocks = append(blocks, t.Block)
		}
		s, n := byBlock[t.Block], float64(t.N)
		s.n, s.sum, s.zd = s.n+n, s.sum+n*t.Sum, s.zd+n*t.ZD
		if t.Cosine != nil {
			s.cos += n * *t.Cosine
		}
	}
	slices.Sort(blocks)
	var list []LayerStats
	for _, b := range blocks {
		s := byBlock[b]
		list = append(list, LayerStats{b, s.sum / s.n, s.zd / s.n, s.cos / s.n})
	}
	return list
}
