package main

import (
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"

	"gollama/internal/builtin/story"
)

// fitted returns a projector for words with random embeddings.
func fitted(t *testing.T) (*projector, *mat.Dense) {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 7))
	words := mat.NewDense(len(story.Colours()), 32, nil)
	words.Apply(func(int, int, float64) float64 { return rng.NormFloat64() }, words)
	p, err := fitProjector(words, 1)
	if err != nil {
		t.Fatal(err)
	}
	return p, words
}

// closest returns the word whose embedding has the smallest angle with v, and that angle's cosine.
func closest(words *mat.Dense, v []float64) (word int, cosine float64) {
	rows, _ := words.Dims()
	x := mat.NewVecDense(len(v), v)
	for i := range rows {
		w := words.RowView(i)
		if c := mat.Dot(x, w) / mat.Norm(x, 2) / mat.Norm(w, 2); c > cosine {
			word, cosine = i, c
		}
	}
	return word, cosine
}

// Colours that were not fitted, near those of the palette as JPEG leaves them, and anywhere.
func TestProjectorNamesColours(t *testing.T) {
	p, words := fitted(t)
	rng := rand.New(rand.NewPCG(3, 4))
	least := 1.
	for _, e := range palette {
		for range 20 {
			c := fromBytes(e.r+rng.NormFloat64()*4, e.g+rng.NormFloat64()*4, e.b+rng.NormFloat64()*4)
			got, cosine := closest(words, p.embed(c))
			least = min(least, cosine)
			if word := story.Colours()[got]; word != e.word && nearest(c) == nearest(fromBytes(e.r, e.g, e.b)) {
				t.Errorf("rgb %v %v %v: %s, want %s", e.r, e.g, e.b, word, e.word)
			}
		}
	}
	t.Logf("least cosine near the palette %.3f", least)
	right := 0
	const n = 3000
	for range n {
		c := fromBytes(rng.Float64()*255, rng.Float64()*255, rng.Float64()*255)
		if got, _ := closest(words, p.embed(c)); got == nearest(c) {
			right++
		}
	}
	t.Logf("%.1f %% of all colours", 100*float64(right)/n)
	if right < n*85/100 {
		t.Errorf("%d of %d colours have the word of the nearest of the palette, want 85 %%", right, n)
	}
}

// At the least the gradient X'(X S - Y) + ridge S is 0.
func TestLeastSquares(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	random := func(r, c int) *mat.Dense {
		m := mat.NewDense(r, c, nil)
		m.Apply(func(int, int, float64) float64 { return rng.NormFloat64() }, m)
		return m
	}
	x, y := random(200, 30), random(200, 4)
	const ridge = 0.7
	s, err := leastSquares(x, y, ridge)
	if err != nil {
		t.Fatal(err)
	}
	var rest, gradient, shrink mat.Dense
	rest.Mul(x, s)
	rest.Sub(&rest, y)
	gradient.Mul(x.T(), &rest)
	shrink.Scale(ridge, s)
	gradient.Add(&gradient, &shrink)
	if g := mat.Norm(&gradient, 2); g > 1e-10 {
		t.Errorf("gradient %g at the least", g)
	}
	if _, err := leastSquares(mat.NewDense(3, 2, nil), mat.NewDense(3, 1, nil), 0); err == nil {
		t.Error("a matrix of zeros has a solution")
	}
}
