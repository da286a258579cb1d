package imatrix

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gollama/internal/chart"
)

// Metrics are what a heat map can show, by name; "experts" shows the tokens of each expert instead.
var Metrics = []string{"sum", "mean", "max", "std", "entropy", "zd", "cosine", "experts"}

func metric(t *TensorStats, name string) float64 {
	optional := func(p *float64) float64 {
		if p == nil {
			return math.NaN()
		}
		return *p
	}
	switch name {
	case "sum":
		return t.Sum
	case "mean":
		return t.Mean
	case "max":
		return t.Max
	case "std":
		return t.Std
	case "entropy":
		return optional(t.EntropyNorm)
	case "zd":
		return t.ZD
	}
	return optional(t.Cosine)
}

// HeatMap draws a metric of Metrics, by block and tensor.
func (s *Stats) HeatMap(name string) (*chart.HeatMap, error) {
	if !slices.Contains(Metrics, name) {
		return nil, fmt.Errorf("unknown metric %q, want one of %s", name, strings.Join(Metrics, ", "))
	}
	if name == "experts" {
		return s.expertMap()
	}
	h := &chart.HeatMap{Title: "mean squares of activations: " + name, Log: name == "sum" || name == "mean" || name == "max" || name == "std"}
	var blocks []int
	for _, t := range s.Tensors {
		if !slices.Contains(h.Cols, t.Tensor) {
			h.Cols = append(h.Cols, t.Tensor)
		}
		if !slices.Contains(blocks, t.Block) {
			blocks = append(blocks, t.Block)
		}
	}
	rows(h, blocks)
	for i := range s.Tensors {
		t := &s.Tensors[i]
		h.Cells[slices.Index(blocks, t.Block)][slices.Index(h.Cols, t.Tensor)] = metric(t, name)
	}
	return h, nil
}

// rows makes the empty table with these blocks, in order.
func rows(h *chart.HeatMap, blocks []int) {
	slices.Sort(blocks)
	for _, b := range blocks {
		name := "blk." + itoa(b)
		if b < 0 {
			name = "-"
		}
		h.Rows = append(h.Rows, name)
		h.Cells = append(h.Cells, slices.Repeat([]float64{math.NaN()}, len(h.Cols)))
	}
}

// expertMap shows how many tokens each expert of a block met.
func (s *Stats) expertMap() (*chart.HeatMap, error) {
	byBlock := map[int][]uint64{}
	var blocks []int
	most := 0
	for _, t := range s.Tensors {
		if len(t.Experts) > 0 && byBlock[t.Block] == nil {
			byBlock[t.Block] = t.Experts
			blocks = append(blocks, t.Block)
			most = max(most, len(t.Experts))
		}
	}
	if most == 0 {
		return nil, fmt.Errorf("metric experts: no weight has experts")
	}
	h := &chart.HeatMap{Title: "tokens of each expert"}
	for i := range most {
		h.Cols = append(h.Cols, itoa(i))
	}
	rows(h, blocks)
	for r, b := range blocks {
		for c, n := range byBlock[b] {
			h.Cells[r][c] = float64(n)
		}
	}
	return h, nil
}
