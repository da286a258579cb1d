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
	m, v    [][]float32 // of params; nil where not used
	updates int64       // made so far
	muon    *ggml.Muon
}

// NewOptimizer makes an optimizer of params, which it keeps. momentum says
// whether SGD has a state for it. threads below 1 means ggml.DefaultThreads.
func NewOptimizer(kind Kind, params []*graph.Param, momentum bool, threads int) *Optimizer {
	if threads < 1 {
		threads = ggml.DefaultThreads()
	}
	o := &Optimizer{kind: kind, threads: threads, params: params, m: make([][]float32, len(params)), v: make([][]float32, len(params))}
	for i, p := range params {
		if kind != SGD || momentum {
			o.m[i] = make([]float32, len(p.Data))
		}
		if kind == AdamW || kind == Muon && !p.Matrix {
			o.v[i] = make([]float32, len(p.Data))
		}
	}
	if kind == Muon {
		o.muon = ggml.NewMuon(threads)
	}
	return o
}

// Close frees memory outside Go. It may be called twice and on nil.
func (o *Optimizer) Close() {
	if o != nil {
		o.muon.Close()
	}
}

// Updates returns the number of updates made.
func (o *Optimizer) Updates() int64 { return o.updates }

// StateBytes returns the size of the state.
func (o *Optimizer) StateBytes() int64 {
	n := int64(0)
	for i := range o.params {
		n += 4 * int64(len(o.m[i])+len(o.v[i]))
	}
	return n
}

// GradNorm returns the norm of all gradients together.
func (o *Optimizer) GradNorm() float64 {
	g := make([][]float32, len(o.params))
	for i, p := range o.params {
		g[i] = p.Grad
	}
	return math.Sqrt(ggml.SumSquares(g, o.threads))
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
	o.updates++
	plain := make([]ggml.OptimTensor, 0, len(o.params))
	for i, t := range o.params {
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
