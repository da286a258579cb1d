package opt

import (
	"fmt"
	"math"

	"gollama/internal/engine/ggml"
	"gollama/internal/opt/graph"
)

// Optimizer changes a model's parameters by their gradients. It owns the
// optimizer's state: one or two tensors for each parameter.
type Optimizer struct {
	kind    Kind
	threads int
	params  []*graph.Param
	index   map[*graph.Param]int
	m, v    [][]float32 // of params; nil where not used
	block   []float32   // that m and v lie in, outside the Go heap
	squares []float64   // of the gradients of the present update, summed by parameter
	updates int64       // made so far
	muon    *ggml.Muon
}

// NewOptimizer makes an optimizer of params, which it keeps. momentum says
// whether SGD has a state for it. threads below 1 means ggml.DefaultThreads.
func NewOptimizer(kind Kind, params []*graph.Param, momentum bool, threads int) (*Optimizer, error) {
	if threads < 1 {
		threads = ggml.DefaultThreads()
	}
	o := &Optimizer{kind: kind, threads: threads, params: params, index: map[*graph.Param]int{}, squares: make([]float64, len(params)),
		m: make([][]float32, len(params)), v: make([][]float32, len(params))}
	size := 0
	for _, p := range params {
		size += len(p.Data) * o.moments(p, momentum)
	}
	if size > 0 {
		var err error
		if o.block, err = ggml.NewFloats(size); err != nil {
			return nil, fmt.Errorf("the optimizer's state: %w", err)
		}
	}
	rest := o.block
	for i, p := range params {
		o.index[p] = i
		for _, s := range [][][]float32{o.m, o.v}[:o.moments(p, momentum)] {
			n := len(p.Data)
			s[i], rest = rest[:n:n], rest[n:]
		}
	}
	if kind == Muon {
		o.muon = ggml.NewMuon(threads)
	}
	return o, nil
}

// moments returns how many values the state has for each of p's: m, or m and v.
func (o *Optimizer) moments(p *graph.Param, momentum bool) int {
	switch {
	case o.kind == AdamW, o.kind == Muon && !p.Matrix:
		return 2
	case o.kind == Muon, momentum:
		return 1
	}
	return 0
}

// Close frees memory outside Go. It may be called twice and on nil.
func (o *Optimizer) Close() error {
	if o == nil {
		return nil
	}
	o.muon.Close()
	b := o.block
	o.block, o.m, o.v = nil, nil, nil
	return ggml.FreeFloats(b)
}

// Updates returns the number of updates made.
func (o *Optimizer) Updates() int64 { return o.updates }

// StateBytes returns the size of the state.
func (o *Optimizer) StateBytes() int64 { return 4 * int64(len(o.block)) }

// GradNorm returns the norm of all gradients together.
func (o *Optimizer) GradNorm() float64 {
	o.see(o.params)
	return o.norm()
}

// see takes the gradients of params into the norm.
func (o *Optimizer) see(params []*graph.Param) {
	g := make([][]float32, len(params))
	for i, p := range params {
		g[i] = p.Grad
	}
	for i, sum := range ggml.SumSquares(g, o.threads) {
		o.squares[o.index[params[i]]] = sum
	}
}

// norm returns the norm of the gradients that were seen. The order in which they
// were changes no bit.
func (o *Optimizer) norm() float64 {
	sum := 0.0
	for _, s := range o.squares {
		sum += s
	}
	return math.Sqrt(sum)
}

// clipEps is what torch.nn.utils.clip_grad_norm_ adds to the norm.
const clipEps = 1e-6

// Step makes one update with gradients of the norm gradNorm, which p.Clip may
// shorten. The same bits for any number of threads.
func (o *Optimizer) Step(p OptimizerParams, gradNorm float64) error {
	scale := float32(1)
	if p.Clip > 0 && gradNorm > p.Clip {
		scale = float32(p.Clip / (gradNorm + clipEps))
	}
	o.begin()
	return o.apply(p, scale, o.params)
}

// begin starts an update that is made by calls of apply, and of see before each
// of them, for parameters that are all of them in the end.
func (o *Optimizer) begin() {
	o.updates++
	clear(o.squares)
}

// apply moves params, with their gradients times scale.
func (o *Optimizer) apply(p OptimizerParams, scale float32, params []*graph.Param) error {
	plain := make([]ggml.OptimTensor, 0, len(params))
	for _, t := range params {
		i := o.index[t]
		x := ggml.OptimTensor{W: t.Data, G: t.Grad, M: o.m[i], V: o.v[i], Decay: t.Decay}
		if o.kind != Muon || !t.Matrix {
			plain = append(plain, x)
			continue
		}
		n0, n1, err := matrix(t)
		if err == nil {
			err = o.muon.Step(x, n0, n1, ggml.MuonParams{LR: float32(p.LR), Momentum: float32(p.MuonMomentum), Decay: float32(p.WeightDecay), Scale: scale})
		}
		if err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
	}
	if o.kind == SGD {
		return ggml.SGD(plain, ggml.SGDParams{LR: float32(p.LR), Momentum: float32(p.Momentum), Nesterov: p.Nesterov, Decay: float32(p.WeightDecay), Scale: scale}, o.threads)
	}
	return ggml.AdamW(plain, ggml.AdamWParams{LR: float32(p.LR), Beta1: float32(p.Beta1), Beta2: float32(p.Beta2), Eps: float32(p.Eps),
		Decay: float32(p.WeightDecay), Step: o.updates, Scale: scale}, o.threads)
}

// matrix returns the two sizes of a parameter with Matrix set.
func matrix(t *graph.Param) (n0, n1 int, err error) {
	n := int64(1)
	for _, ne := range t.Shape {
		n *= ne
	}
	if len(t.Shape) < 2 || t.Shape[0] < 1 || n != int64(len(t.Data)) {
		return 0, 0, fmt.Errorf("shape %v with %d values is no matrix", t.Shape, len(t.Data))
	}
	return int(t.Shape[0]), int(n / t.Shape[0]), nil
}

// state returns the state as named tensors, in the order of the parameters.
func (o *Optimizer) state() []tensor {
	var list []tensor
	for i, p := range o.params {
		if o.m[i] != nil {
			list = append(list, tensor{stateName(i, "m"), p.Shape, o.m[i]})
		}
		if o.v[i] != nil {
			list = append(list, tensor{stateName(i, "v"), p.Shape, o.v[i]})
		}
	}
	return list
}

// stateName names a tensor of the state by its parameter's number: a name in a
// GGUF file has 63 bytes at most, which a parameter's may use up.
func stateName(i int, what string) string { return fmt.Sprintf("param.%d.%s", i, what) }
