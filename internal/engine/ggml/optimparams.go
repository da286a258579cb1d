package ggml

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// OptimTensor is one tensor for an optimizer step. All slices that a step uses
// have the length of W; M and V are the optimizer's state, zeros at first.
type OptimTensor struct {
	W     []float32 // values, changed
	G     []float32 // gradient, only read
	M     []float32 // first moment, changed
	V     []float32 // second moment, changed; AdamW only
	Decay bool      // weight decay applies
}

// AdamWParams are the numbers of one AdamW step.
type AdamWParams struct {
	LR, Beta1, Beta2, Eps float32
	Decay                 float32 // decoupled: W shrinks by LR*Decay
	Step                  int64   // from 1, for the bias corrections
	Scale                 float32 // multiplies each gradient first (clipping)
}

// SGDParams are the numbers of one step of gradient descent.
type SGDParams struct {
	LR       float32
	Momentum float32 // 0: none, and M may be nil
	Nesterov bool
	Decay    float32 // decoupled: W shrinks by LR*Decay
	Scale    float32 // multiplies each gradient first (clipping)
}

// MuonParams are the numbers of one Muon step.
type MuonParams struct {
	LR       float32
	Momentum float32
	Decay    float32 // decoupled: W shrinks by LR*Decay
	Scale    float32 // multiplies each gradient first (clipping)
}

// optimBlock is how many values one call into C handles. Blocks begin at
// multiples of it in each tensor whatever the number of threads, so that
// results do not depend on it.
const optimBlock = 1 << 16

// check reports slices that do not match; state is what the optimizer needs.
func (t *OptimTensor) check(i int, m, v bool) error {
	n := len(t.W)
	if len(t.G) != n || m && len(t.M) != n || v && len(t.V) != n {
		return fmt.Errorf("optimizer: tensor %d: %d values with %d gradients and state of %d and %d", i, n, len(t.G), len(t.M), len(t.V))
	}
	return nil
}

// span is one block of one tensor.
type span struct{ tensor, lo, hi int }

// spans cuts tensors of the lengths n into blocks.
func spans(n []int) []span {
	var list []span
	for i, n := range n {
		for lo := 0; lo < n; lo += optimBlock {
			list = append(list, span{i, lo, min(lo+optimBlock, n)})
		}
	}
	return list
}

// eachSpan runs f for the number of each block on up to threads goroutines.
func eachSpan(list []span, threads int, f func(i int, s span)) {
	threads = min(threads, len(list), runtime.GOMAXPROCS(0))
	if threads <= 1 {
		for i, s := range list {
			f(i, s)
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range threads {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(list) {
					return
				}
				f(i, list[i])
			}
		})
	}
	wg.Wait()
}
