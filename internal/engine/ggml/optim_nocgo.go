//go:build !cgo

package ggml

// AdamW returns ErrNoCgo.
func AdamW(tensors []OptimTensor, p AdamWParams, threads int) error { return ErrNoCgo }

// SGD returns ErrNoCgo.
func SGD(tensors []OptimTensor, p SGDParams, threads int) error { return ErrNoCgo }

// SumSquares returns the sum of the squares of each slice, in double.
func SumSquares(x [][]float32, threads int) []float64 {
	sums := make([]float64, len(x))
	for i, x := range x {
		for _, v := range x {
			sums[i] += float64(v) * float64(v)
		}
	}
	return sums
}

// Muon cannot be used without cgo.
type Muon struct{}

// NewMuon returns a Muon whose steps return ErrNoCgo.
func NewMuon(threads int) *Muon { return &Muon{} }

// Close does nothing.
func (u *Muon) Close() {}

// Step returns ErrNoCgo.
func (u *Muon) Step(t OptimTensor, n0, n1 int, p MuonParams) error { return ErrNoCgo }

// Orthogonalize returns ErrNoCgo.
func (u *Muon) Orthogonalize(y, x []float32, n0, n1 int) error { return ErrNoCgo }
