package opt

import (
	"math"

	"gollama/internal/opt/graph"
)

// Result sums the losses of examples. The zero value is empty; it survives JSON
// to the bit.
type Result struct {
	Total    graph.Loss `json:"total"`
	Examples int64      `json:"examples"`
	// Sums over the examples of w², w²x and w²x², w the weight and x the mean
	// loss of an example, for the uncertainty.
	W2   float64 `json:"w2"`
	W2X  float64 `json:"w2x"`
	W2XX float64 `json:"w2xx"`
}

// Add counts an example.
func (r *Result) Add(l graph.Loss) {
	r.Total.Add(l)
	if l.Weight <= 0 {
		return
	}
	r.Examples++
	r.W2 += l.Weight * l.Weight
	r.W2X += l.Weight * l.Sum
	r.W2XX += l.Sum * l.Sum
}

// Loss returns the mean loss of a token in nats, weighted, and its standard
// error, by the scatter of the examples' losses. Both are NaN without a token,
// the error also with one example.
func (r *Result) Loss() (mean, unc float64) {
	if r.Total.Weight <= 0 {
		return math.NaN(), math.NaN()
	}
	mean = r.Total.Sum / r.Total.Weight
	if r.Examples < 2 {
		return mean, math.NaN()
	}
	n := float64(r.Examples)
	scatter := max(r.W2XX-2*mean*r.W2X+mean*mean*r.W2, 0) // Σ w²(x-mean)²
	return mean, math.Sqrt(scatter*n/(n-1)) / r.Total.Weight
}

// Accuracy returns the share of tokens that were the likeliest, and its
// standard error. Source: ggml-opt.cpp, ggml_opt_result_accuracy. NaN as in
// [Result.Loss].
func (r *Result) Accuracy() (share, unc float64) {
	n := float64(r.Total.Scored)
	if n < 1 {
		return math.NaN(), math.NaN()
	}
	share = float64(r.Total.Correct) / n
	if n < 2 {
		return share, math.NaN()
	}
	return share, math.Sqrt(share * (1 - share) / (n - 1))
}

// merge adds all that b counted.
func (r *Result) merge(b Result) {
	r.Total.Add(b.Total)
	r.Examples += b.Examples
	r.W2 += b.W2
	r.W2X += b.W2X
	r.W2XX += b.W2XX
}
