package imatrix

import (
	"cmp"
	"math"
	"slices"
	"strconv"
)

func itoa(n int) string { return strconv.Itoa(n) }

// TensorDiff says how far two measurements of one weight are apart, by the mean squares a and b of their columns.
type TensorDiff struct {
	Name     string   `json:"name"`
	TokensA  uint64   `json:"tokens_a"`
	TokensB  uint64   `json:"tokens_b"`
	N        int      `json:"n"`        // columns that both measured
	Cosine   float64  `json:"cosine"`   // of a and b
	Relative float64  `json:"relative"` // |a-b| / |a|, euclidean
	Max      float64  `json:"max"`      // largest |a-b| / a of a column; 0 where both are 0
	KL       *float64 `json:"kl"`       // bits, of the shares of a in those of b; null if b lacks some
	Spearman *float64 `json:"spearman"` // correlation of ranks; null for a single column
	Equal    bool     `json:"equal"`    // sums and counts are the same
}

// Diff is what differs between two files.
type Diff struct {
	Tensors []TensorDiff `json:"tensors"` // by name
	OnlyA   []string     `json:"only_a"`
	OnlyB   []string     `json:"only_b"`
	Shapes  []string     `json:"shapes"` // entries of which both have one, of different sizes
}

// Equal reports whether the files have the same entries with the same sums and counts.
func (d *Diff) Equal() bool {
	return len(d.OnlyA)+len(d.OnlyB)+len(d.Shapes) == 0 && !slices.ContainsFunc(d.Tensors, func(t TensorDiff) bool { return !t.Equal })
}

// Compare compares two files.
func Compare(a, b *File) *Diff {
	d := &Diff{Tensors: []TensorDiff{}, OnlyA: []string{}, OnlyB: []string{}, Shapes: []string{}}
	for _, ea := range a.Entries {
		eb := b.Entry(ea.Name)
		switch {
		case eb == nil:
			d.OnlyA = append(d.OnlyA, ea.Name)
		case len(ea.Sum2) != len(eb.Sum2) || len(ea.Counts) != len(eb.Counts) && len(ea.Counts) != 1 && len(eb.Counts) != 1:
			d.Shapes = append(d.Shapes, ea.Name)
		default:
			d.Tensors = append(d.Tensors, compareEntries(ea, eb))
		}
	}
	for _, eb := range b.Entries {
		if a.Entry(eb.Name) == nil {
			d.OnlyB = append(d.OnlyB, eb.Name)
		}
	}
	return d
}

func compareEntries(ea, eb *Entry) TensorDiff {
	t := TensorDiff{Name: ea.Name, TokensA: ea.Tokens(), TokensB: eb.Tokens(), Equal: slices.Equal(ea.Counts, eb.Counts) && slices.Equal(ea.Sum2, eb.Sum2)}
	var a, b []float64
	for i := range ea.Sum2 {
		ca, cb := ea.Counts[i/ea.Width()], eb.Counts[i/eb.Width()]
		if ca > 0 && cb > 0 {
			a, b = append(a, ea.Sum2[i]/float64(ca)), append(b, eb.Sum2[i]/float64(cb))
		}
	}
	t.N = len(a)
	var sumA, sumB, aa, dd float64
	for i := range a {
		diff := math.Abs(a[i] - b[i])
		sumA, sumB, aa, dd = sumA+a[i], sumB+b[i], aa+a[i]*a[i], dd+diff*diff
		if diff > 0 && a[i] > 0 {
			t.Max = max(t.Max, diff/a[i])
		}
	}
	if c := cosine(a, b); c != nil {
		t.Cosine = *c
	}
	if aa > 0 {
		t.Relative = math.Sqrt(dd / aa)
	}
	t.KL = divergence(a, b, sumA, sumB)
	t.Spearman = spearman(a, b)
	return t
}

// divergence is the Kullback-Leibler divergence in bits of the shares of a from those of b.
func divergence(a, b []float64, sumA, sumB float64) *float64 {
	if sumA <= 0 || sumB <= 0 {
		return nil
	}
	kl := 0.0
	for i, x := range a {
		if x == 0 {
			continue
		}
		if b[i] == 0 {
			return nil
		}
		kl += x / sumA * math.Log2(x/sumA*sumB/b[i])
	}
	kl = max(kl, 0) // it is, but for rounding
	return &kl
}

// spearman is the correlation of the ranks, ties having the mean of theirs.
func spearman(a, b []float64) *float64 {
	if len(a) < 2 {
		return nil
	}
	ra, rb := ranks(a), ranks(b)
	mean := float64(len(a)-1) / 2
	for i := range ra {
		ra[i] -= mean
		rb[i] -= mean
	}
	return cosine(ra, rb)
}

func ranks(x []float64) []float64 {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(x[i], x[j]) })
	r := make([]float64, len(x))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && x[order[j]] == x[order[i]] {
			j++
		}
		for k := i; k < j; k++ {
			r[order[k]] = float64(i+j-1) / 2
		}
		i = j
	}
	return r
}
