package cvector

import (
	"fmt"
	"math"

	"gollama/internal/gguf"
)

// Term is a vector and its weight in a sum.
type Term struct {
	*Vector
	Weight float64
}

// Add returns the weighted sum of vectors, made in 64 bits. A layer has a direction if one of them has one there. The
// lengths must be equal, and so the architectures and the layer bases that are told. The keys are those that all share.
func Add(terms []Term) (*Vector, error) {
	if len(terms) == 0 {
		return nil, fmt.Errorf("%w: there is nothing to add", ErrVector)
	}
	first := terms[0].Vector
	out := &Vector{Hint: first.Hint, NEmbd: first.NEmbd, Dirs: map[int][]float32{}, Keys: first.Keys}
	sums := map[int][]float64{}
	for _, t := range terms {
		if err := fits(first, t.Vector); err != nil {
			return nil, err
		}
		if out.Hint == "" {
			out.Hint = t.Hint
		}
		out.Count = max(out.Count, t.Count)
		out.Keys = shared(out.Keys, t.Keys)
		for k, dir := range t.Dirs {
			if sums[k] == nil {
				sums[k] = make([]float64, out.NEmbd)
			}
			addRow(sums[k], t.Weight, dir)
		}
	}
	for k, sum := range sums {
		dir, err := narrow(sum)
		if err != nil {
			return nil, fmt.Errorf("direction.%d: %w", k, err)
		}
		out.Dirs[k] = dir
	}
	return out, nil
}

// fits says whether two vectors are for one model.
func fits(a, b *Vector) error {
	base := func(v *Vector) string { s, _ := v.Keys.Str(KeyLayerBase); return s }
	switch {
	case a.NEmbd != b.NEmbd:
		return fmt.Errorf("%w: %s has directions of %d elements, %s of %d", ErrVector, b.Source, b.NEmbd, a.Source, a.NEmbd)
	case a.Hint != b.Hint && a.Hint != "" && b.Hint != "":
		return fmt.Errorf("%w: %s is for the architecture %q, %s for %q", ErrVector, b.Source, b.Hint, a.Source, a.Hint)
	case base(a) != base(b) && base(a) != "" && base(b) != "":
		return fmt.Errorf("%w: %s counts layers as %q, %s as %q", ErrVector, b.Source, base(b), a.Source, base(a))
	}
	return nil
}

// shared returns the keys of a that b has with the same value.
func shared(a, b gguf.KVs) gguf.KVs {
	var out gguf.KVs
	for _, kv := range a {
		if v, ok := b.Get(kv.Key); ok && v.String() == kv.Value.String() {
			out = append(out, kv)
		}
	}
	return out
}

// narrow rounds to 32 bits.
func narrow(x []float64) ([]float32, error) {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(v)
		if d := out[i]; d-d != 0 {
			return nil, fmt.Errorf("element %d, %g, does not fit in 32 bits", i, v)
		}
	}
	return out, nil
}

// Times returns v times a.
func (v *Vector) Times(a float64) (*Vector, error) {
	out, err := Add([]Term{{v, a}})
	if err == nil {
		out.Keys = v.Keys
	}
	return out, err
}

// Normalized returns v with every direction of length 1. A direction of zeros stays.
func (v *Vector) Normalized() (*Vector, error) {
	out := v.with(map[int][]float32{})
	for k, dir := range v.Dirs {
		n := norm(widen(dir))
		if n == 0 {
			out.Dirs[k] = dir
			continue
		}
		x := widen(dir)
		scal(x, 1/n)
		unit, err := narrow(x)
		if err != nil {
			return nil, fmt.Errorf("direction.%d: %w", k, err)
		}
		out.Dirs[k] = unit
	}
	return out, nil
}

// Shifted returns v with direction.k as direction.k+by. by -1 turns a file of llama-cvector-generator into one that the
// runtime applies where it was made. Directions that would come below layer 1, where the runtime has no place for one,
// are left out and returned as lost; if all would, that is an error.
func (v *Vector) Shifted(by int) (out *Vector, lost []int, err error) {
	out = v.with(map[int][]float32{})
	out.Count = 0
	for _, k := range v.Layers() {
		to := k + by
		switch {
		case to < 1:
			lost = append(lost, k)
		case to > maxLayer:
			return nil, nil, fmt.Errorf("%w: direction.%d would become direction.%d, the last there can be is %d", ErrVector, k, to, maxLayer)
		default:
			out.Dirs[to] = v.Dirs[k]
			out.Count = max(out.Count, to)
		}
	}
	if len(out.Dirs) == 0 {
		return nil, nil, fmt.Errorf("%w: shifted by %d, no direction is left", ErrVector, by)
	}
	out.Count = max(out.Count, v.Count+min(by, 0))
	base, _ := v.Keys.Str(KeyLayerBase)
	switch {
	case by == 0:
	case (base == BaseLegacy || base == "") && by == -1:
		out.Keys = out.Keys.With(KeyLayerBase, gguf.ValueOf(BaseRuntime))
	case base == BaseRuntime && by == 1:
		out.Keys = out.Keys.With(KeyLayerBase, gguf.ValueOf(BaseLegacy))
	default:
		out.Keys = out.Keys.Without(KeyLayerBase)
	}
	return out, lost, nil
}

func (v *Vector) with(dirs map[int][]float32) *Vector {
	c := *v
	c.Dirs = dirs
	return &c
}

// LayerInfo is what Info tells of a layer.
type LayerInfo struct {
	Layer  int     `json:"layer"`
	Norm   float64 `json:"norm"`
	Max    float64 `json:"max"`     // largest element, in size
	CosLow float64 `json:"cos_low"` // cosine to the direction of the layer below, 0 if it has none
}

// Info returns what there is to tell of each direction, by layer.
func (v *Vector) Info() []LayerInfo {
	var list []LayerInfo
	for _, k := range v.Layers() {
		x := widen(v.Dirs[k])
		info := LayerInfo{Layer: k, Norm: norm(x)}
		for _, e := range x {
			info.Max = math.Max(info.Max, math.Abs(e))
		}
		if below, ok := v.Dirs[k-1]; ok {
			info.CosLow = Cosine(x, widen(below))
		}
		list = append(list, info)
	}
	return list
}
