package lora

import (
	"fmt"
	"sync"

	"gollama/internal/engine/ggml"
)

// loading holds the adapters' matrices of one target from its first block to its last.
type loading struct {
	t       *target
	float64 bool
	once    sync.Once
	parts   []loadedPart
	err     error
}

// loadedPart is a pair in the form that rows are computed from: row i of matrix e of the update is
// sum over k of coef[i][k] * basis[e][k].
type loadedPart struct {
	rank  int
	scale float64   // 1 where coef is scaled
	coef  []float32 // rows x rank
	basis []float32 // matrices x rank x ne[0]
	whole *Matrix
	user  float64
}

// hasWhole reports whether an adapter brings a whole tensor.
func (t *target) hasWhole() bool {
	for _, p := range t.parts {
		if p.tensor.Whole != nil {
			return true
		}
	}
	return false
}

func (l *loading) load() {
	for _, p := range l.t.parts {
		lp := loadedPart{whole: p.tensor.Whole, user: p.user, rank: p.tensor.Rank(), scale: p.scale}
		if lp.rank > 0 {
			a, b := p.tensor.A, p.tensor.B
			if IsEmbedding(p.tensor.Base) {
				a, b = b, a
			}
			if lp.basis, l.err = a.Floats(); l.err != nil {
				return
			}
			if lp.coef, l.err = b.Floats(); l.err != nil {
				return
			}
			if IsEmbedding(p.tensor.Base) { // B is [rank, n_embd], one matrix
				lp.basis = transpose(lp.basis, int(a.dim(1)), lp.rank)
			}
			if l.err = checkFinite(p.tensor.Base+suffixA, lp.basis); l.err != nil {
				return
			}
			if l.err = checkFinite(p.tensor.Base+suffixB, lp.coef); l.err != nil {
				return
			}
			if !l.float64 && lp.scale != 1 {
				scaled := make([]float32, len(lp.coef))
				for i, v := range lp.coef {
					scaled[i] = float32(float64(v) * lp.scale)
				}
				lp.coef, lp.scale = scaled, 1
			}
		}
		l.parts = append(l.parts, lp)
	}
}

// add adds the parts to the rows of b in buf.x; buf.w holds them as they were where the target has a whole tensor.
func (l *loading) add(b *block, buf *buffers) error {
	l.once.Do(l.load)
	if l.err != nil {
		return l.err
	}
	for i := range l.parts {
		if l.parts[i].whole != nil {
			if err := l.parts[i].addWhole(b, buf); err != nil {
				return err
			}
		}
	}
	n := b.t.width()
	_, perMatrix := b.t.rows()
	if l.float64 {
		l.add64(b, buf, n, b.row/perMatrix)
		return nil
	}
	for i := range l.parts {
		if p := &l.parts[i]; p.rank > 0 {
			ggml.AddLowRank(buf.x, p.basisOf(b.row/perMatrix, n), p.coef[b.row*p.rank:(b.row+b.rows)*p.rank], b.rows, n, p.rank)
		}
	}
	return nil
}

// basisOf returns the basis of one matrix.
func (p *loadedPart) basisOf(matrix, n int) []float32 {
	return p.basis[matrix*p.rank*n : (matrix+1)*p.rank*n]
}

// add64 is add for pairs, with sums in float64 over all of them, rounded once.
func (l *loading) add64(b *block, buf *buffers, n, matrix int) {
	buf.d = grow(buf.d, n)
	for row := range b.rows {
		x := buf.x[row*n : (row+1)*n]
		for j, v := range x {
			buf.d[j] = float64(v)
		}
		for i := range l.parts {
			p := &l.parts[i]
			if p.rank == 0 {
				continue
			}
			basis := p.basisOf(matrix, n)
			for k, c := range p.coef[(b.row+row)*p.rank : (b.row+row+1)*p.rank] {
				c := float64(c) * p.scale
				for j, v := range basis[k*n : (k+1)*n] {
					buf.d[j] += c * float64(v)
				}
			}
		}
		for j, v := range buf.d {
			x[j] = float32(v)
		}
	}
}

// addWhole moves the rows towards those of the whole tensor: all the way at a factor of 1.
func (p *loadedPart) addWhole(b *block, buf *buffers) error {
	n := b.t.width()
	whole, err := p.whole.rowsAt(b.row, b.rows, n)
	if err != nil {
		return err
	}
	if err := checkFinite(b.t.info.Name, whole); err != nil {
		return err
	}
	for i, v := range whole {
		switch {
		case p.user == 1 && buf.x[i] == buf.w[i]: // the first adapter to change it: exactly its value
			buf.x[i] = v
		default:
			buf.x[i] += float32(p.user * (float64(v) - float64(buf.w[i])))
		}
	}
	return nil
}

// rowsAt returns rows of n values, read alone where the file allows it: a whole embedding is as large as the model's.
func (m *Matrix) rowsAt(first, rows, n int) ([]float32, error) {
	if m.Data == nil && m.readRows != nil {
		return m.readRows(first*n, rows*n)
	}
	x, err := m.Floats()
	if err != nil {
		return nil, err
	}
	if len(x) < (first+rows)*n {
		return nil, fmt.Errorf("%d values, want %d", len(x), (first+rows)*n)
	}
	return x[first*n : (first+rows)*n], nil
}
