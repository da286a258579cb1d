package cvector

import (
	"math"
	"slices"
)

// Folds is into how many parts the pairs are cut to test each on a direction made of the others.
const Folds = 5

// Quality is how well a direction tells positive from negative texts that it was not made of. Values that too few pairs
// leave open are NaN.
type Quality struct {
	Separation float64 // share of pairs whose positive text lies further along than its negative one; ties count half
	AUC        float64 // chance that a positive text lies further along than a negative one, of whatever pair
	CohensD    float64 // distance of the two means in standard deviations
	SplitHalf  float64 // cosine of the directions that the odd and the even pairs make

	Pos, Neg []float64 // where each text lies along the held-out direction, from the middle between the two kinds
}

// Validate tests the direction that m makes of s: each pair lies in one of at most Folds parts, and is judged by the
// direction of the other parts. One pair leaves everything open.
func Validate(s *Samples, m Method) Quality {
	q := openQuality()
	number, pairs := ordinals(s.Pair)
	if pairs < 2 {
		return q
	}
	folds := min(Folds, pairs)
	for f := range folds {
		in := subset(s, func(i int) bool { return number[i]%folds != f })
		v, err := unit(in, m)
		if err != nil {
			return q
		}
		middle := (meanAlong(in.Pos, v) + meanAlong(in.Neg, v)) / 2
		for i := range s.Pos.N {
			if number[i]%folds == f {
				q.Pos = append(q.Pos, dotRow(s.Pos.Row(i), v)-middle)
				q.Neg = append(q.Neg, dotRow(s.Neg.Row(i), v)-middle)
			}
		}
	}
	q.Separation, q.AUC, q.CohensD = separation(q.Pos, q.Neg), auc(q.Pos, q.Neg), cohensD(q.Pos, q.Neg)
	odd, err1 := unit(subset(s, func(i int) bool { return number[i]%2 == 0 }), m)
	even, err2 := unit(subset(s, func(i int) bool { return number[i]%2 == 1 }), m)
	if err1 == nil && err2 == nil {
		q.SplitHalf = Cosine(odd, even)
	}
	return q
}

func openQuality() Quality {
	return Quality{Separation: math.NaN(), AUC: math.NaN(), CohensD: math.NaN(), SplitHalf: math.NaN()}
}

// ordinals numbers the pairs that there are from 0 on, without gaps.
func ordinals(pair []int) (number []int, n int) {
	number = make([]int, len(pair))
	for i := range pair {
		if i > 0 && pair[i] != pair[i-1] {
			n++
		}
		number[i] = n
	}
	return number, n + min(len(pair), 1)
}

// subset copies the samples that keep picks.
func subset(s *Samples, keep func(i int) bool) *Samples {
	out := &Samples{Pos: Matrix{E: s.Pos.E}, Neg: Matrix{E: s.Neg.E}, Baselines: s.Baselines}
	for i := range s.Pos.N {
		if !keep(i) {
			continue
		}
		out.Pos.Data = append(out.Pos.Data, s.Pos.Row(i)...)
		out.Neg.Data = append(out.Neg.Data, s.Neg.Row(i)...)
		out.Pair = append(out.Pair, s.Pair[i])
		out.Pos.N++
		out.Neg.N++
	}
	return out
}

func meanAlong(m Matrix, v []float64) float64 {
	var sum float64
	for i := range m.N {
		sum += dotRow(m.Row(i), v)
	}
	return sum / float64(m.N)
}

func separation(pos, neg []float64) float64 {
	var right float64
	for i, p := range pos {
		switch {
		case p > neg[i]:
			right++
		case p == neg[i]:
			right += 0.5
		}
	}
	return right / float64(len(pos))
}

// auc is the area under the ROC curve: Mann and Whitney's U over the number of comparisons, ties counting half.
func auc(pos, neg []float64) float64 {
	sorted := slices.Clone(neg)
	slices.Sort(sorted)
	var u float64
	for _, p := range pos {
		below, _ := slices.BinarySearch(sorted, p)
		notAbove := below
		for notAbove < len(sorted) && sorted[notAbove] == p {
			notAbove++
		}
		u += float64(below+notAbove) / 2
	}
	return u / (float64(len(pos)) * float64(len(neg)))
}

// cohensD is the difference of the means over the pooled standard deviation; NaN if there is no spread.
func cohensD(pos, neg []float64) float64 {
	mp, vp := meanVariance(pos)
	mn, vn := meanVariance(neg)
	sd := math.Sqrt((vp + vn) / 2)
	if !(sd > 0) {
		return math.NaN()
	}
	return (mp - mn) / sd
}

func meanVariance(x []float64) (mean, variance float64) {
	for _, v := range x {
		mean += v
	}
	mean /= float64(len(x))
	for _, v := range x {
		variance += (v - mean) * (v - mean)
	}
	return mean, variance / float64(len(x)-1)
}
