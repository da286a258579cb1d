//go:build cgo

package ggml

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Rows of every type are widened to ggml's values, to the bit: blocks of random bytes, whose scales
// are any half that is finite, subnormal ones and negative zero too.
func TestWiden(t *testing.T) {
	eachVector(t, func(t *testing.T) {
		types := 0
		p := newPool(t, 1)
		rng := rand.New(rand.NewPCG(3, 0))
		for _, info := range Types() {
			scales, own := halves[info.Name]
			if !own {
				continue
			}
			types++
			const blocks = 4096
			packed := Bytes(floats(t, (blocks*info.BlockBytes+3)/4, 0))[:blocks*info.BlockBytes]
			for i := range packed {
				packed[i] = byte(rng.Uint32())
			}
			for b := range blocks {
				for _, at := range scales { // no infinity
					if h := &packed[b*info.BlockBytes+at+1]; *h&0x7c == 0x7c {
						*h &^= 0x40
					}
				}
			}
			n := blocks * info.BlockSize
			want, err := Dequantize(info.Type, packed, n)
			if err != nil {
				t.Fatal(err)
			}
			got := floats(t, n, 0)
			p.Gather(NewMat(got, 1, n), Weights{Type: info.Type, Data: packed, Rows: 1, Cols: n}, nil, 1)
			for i := range want {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
					t.Fatalf("%s: value %d of block %d is %g, want %g", info.Name, i%info.BlockSize, i/info.BlockSize, got[i], want[i])
				}
			}
		}
		if types != len(halves) {
			t.Errorf("%d types were tried, want %d", types, len(halves))
		}
	})
}

// halves holds the types that the kernels widen themselves: where in a block its halves are.
var halves = map[string][]int{
	"q4_0": {0}, "q5_0": {0}, "q8_0": {0}, "q4_K": {0, 2}, "q5_K": {0, 2}, "q6_K": {208},
}
