package lora

import (
	"math"
	"sync"

	"gollama/internal/gguf"
)

// stats compares what was merged, W + D, with what was written, Q. All sums are over the measured rows.
type stats struct {
	mu    sync.Mutex
	delta float64 // D * D
	base  float64 // W * W
	along float64 // (Q - W) * D
	noise float64 // (Q - W - D) squared
}

// add measures b: W in buf.w, W + D in buf.x, Q in b.out.
func (s *stats) add(b *block, buf *buffers) error {
	q := buf.x
	if b.t.info.Type != gguf.TypeF32 {
		q = make([]float32, len(buf.x))
		if err := toFloats(q, b.t.info.Type, b.out); err != nil {
			return err
		}
	}
	var delta, base, along, noise float64
	for i, w := range buf.w {
		w, q := float64(w), float64(q[i])
		d := float64(buf.x[i]) - w
		delta += d * d
		base += w * w
		along += (q - w) * d
		noise += (q - w - d) * (q - w - d)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delta += delta
	s.base += base
	s.along += along
	s.noise += noise
	return nil
}

// TensorReport says what became of one merged tensor.
type TensorReport struct {
	Name     string    `json:"name"`
	Ranks    []int     `json:"ranks"`  // of each adapter that changes it; 0 for a whole tensor
	Scales   []float64 `json:"scales"` // factor of B * A, the user's included; of a whole tensor the user's
	From     string    `json:"from"`   // type in the base
	To       string    `json:"to"`     // type written
	Delta    float64   `json:"delta"`  // Frobenius norm of the update D
	Relative float64   `json:"relative"`
	// Relative is Delta divided by the norm of the base's tensor W.
	Survived float64 `json:"survived"`
	// Survived is the share of D that is in what was written, Q: (Q - W) * D / (D * D). 1 is all of it, 0 means that
	// rounding took it away. It is 1 where D is 0.
	Noise float64 `json:"noise"` // norm of Q - (W + D) divided by Delta: rounding, in units of the update
}

// Report returns what became of the tensors that adapters changed, in the order of the file, after [Plan.Run]. Without
// Options.Measure the numbers come from every eighth block of rows, Delta is left out, and tensors written as
// float32 have no numbers.
func (p *Plan) Report() []TensorReport {
	var list []TensorReport
	for _, t := range p.targets {
		if !t.merged() {
			continue
		}
		r := TensorReport{Name: t.info.Name, From: t.from.String(), To: t.info.Type.String(), Survived: 1}
		for _, part := range t.parts {
			r.Ranks = append(r.Ranks, part.tensor.Rank())
			scale := part.scale
			if part.tensor.Rank() == 0 {
				scale = part.user
			}
			r.Scales = append(r.Scales, scale)
		}
		s := &t.stats
		if p.opt.Measure {
			r.Delta = math.Sqrt(s.delta)
		}
		if s.base > 0 {
			r.Relative = math.Sqrt(s.delta / s.base)
		}
		if s.delta > 0 {
			r.Survived = s.along / s.delta
			r.Noise = math.Sqrt(s.noise / s.delta)
		}
		list = append(list, r)
	}
	return list
}
