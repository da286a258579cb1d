package lora

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"gollama/internal/engine"
	"gollama/internal/gguf"
	"gollama/internal/pipeline"
)

// Comparison is how far the merged model's logits are from those of the base with the adapters applied at run time,
// over all positions of one prompt.
type Comparison struct {
	Prompt   string  `json:"prompt"`
	Tokens   int     `json:"tokens"`
	Relative float64 `json:"relative_rms"` // root of sum of squared differences by sum of squares
	MaxAbs   float64 `json:"max_abs"`
	Top      float64 `json:"same_top"` // share of positions with the same likeliest token
}

// Bound is what a merge may differ by. One of the numbers is set.
type Bound struct {
	Relative float64 // of Comparison.Relative
	MaxAbs   float64 // of Comparison.MaxAbs, where everything is float32
	Type     gguf.Type
	Rounding float64 // part of Relative that is due to quantizing what was merged
}

// exceeds reports whether c is beyond the bound; NaN is.
func (b Bound) exceeds(c Comparison) bool {
	if b.MaxAbs > 0 {
		return !(c.MaxAbs <= b.MaxAbs)
	}
	return !(c.Relative <= b.Relative)
}

// String returns the bound in words.
func (b Bound) String() string {
	switch {
	case b.MaxAbs > 0:
		return fmt.Sprintf("largest difference %g for %s", b.MaxAbs, b.Type)
	case b.Rounding > 0:
		return fmt.Sprintf("relative RMS %.3g for %s, %.3g of it for rounding in quantization", b.Relative, b.Type, b.Rounding)
	}
	return fmt.Sprintf("relative RMS %.3g for %s", b.Relative, b.Type)
}

// roundingGain is how much larger the relative error of logits may be than that of the weights. Errors of tensors are
// independent and add up like the root of their number, but each moves only its part of the residual stream: 4 was
// measured on a random model of 2 layers, which has no trained robustness. The rest is margin.
const roundingGain = 6

// bound returns the loosest bound among the types of the tensors that were changed. Where the base is quantized, the
// engine rounds activations to 8 bits before it multiplies with W, but not before A. What quantizing the result adds
// is in proportion to the rounding that was measured.
func (p *Plan) bound() Bound {
	worst := Bound{Type: gguf.TypeF32}
	noise, size := 0.0, 0.0
	for _, t := range p.targets {
		if t.copied() {
			continue
		}
		for _, typ := range []gguf.Type{t.from, t.info.Type} {
			if b := arithmeticBound(typ); b > worst.Relative {
				worst.Relative, worst.Type = b, typ
			}
		}
		if t.info.Type.BlockSize() > 1 {
			noise += t.stats.noise
			size += t.stats.base
		}
	}
	if worst.Relative == 0 {
		worst.MaxAbs = 1e-3
	}
	if size > 0 {
		worst.Rounding = roundingGain * math.Sqrt(noise/size)
		worst.Relative += worst.Rounding
	}
	return worst
}

// arithmeticBound is the relative RMS that the arithmetic of a type may cause, 0 for float32. The numbers are twice to
// three times what was measured: 1.1e-3 for F16, 1.4e-2 for Q8_0, 2.4e-2 for Q4_K.
func arithmeticBound(t gguf.Type) float64 {
	switch bits := float64(t.TypeSize()) * 8 / float64(max(t.BlockSize(), 1)); {
	case t == gguf.TypeF32 || t == gguf.TypeF64:
		return 0
	case t == gguf.TypeF16:
		return 3e-3
	case t == gguf.TypeBF16:
		return 2.4e-2 // three bits less than F16
	case bits > 8:
		return 3e-2
	}
	return 5e-2
}

// verifyTexts are the prompts: kinds of text that a tokenizer treats differently.
var verifyTexts = []string{
	"Once upon a time there was a little girl who lived at the edge of the forest.",
	"def main():\n    for i in range(10):\n        print(i * i)\n",
	"The capital of France is Paris, and the capital of Italy is",
	"Das Wetter ist heute schön, aber morgen soll es regnen.",
	"1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89,",
	"{\"name\": \"Ada\", \"born\": 1815, \"tags\": [\"maths\", \"engines\"]}",
	"He said that he would come back, but nobody in the town believed him any more.",
	"Q: What is the boiling point of water at sea level?\nA:",
}

// verifyPrompt returns the i-th prompt; beyond the list two texts make a new one.
func verifyPrompt(i int) string {
	n := len(verifyTexts)
	if i < n {
		return verifyTexts[i]
	}
	return verifyTexts[i%n] + " " + verifyTexts[(i%n+i/n)%n]
}

// Verify compares the model at merged, which p made, with p's base and its adapters applied at run time, on n prompts
// of at most 64 tokens, and returns the differences and the bound for them. Both models are loaded at the same time,
// with a cache of float32. Adapters or parts of them that the engine cannot apply itself are put into scratch files
// in the folder dir ([pipeline.Scratch]). An error that wraps [ErrDiffers] comes with the comparisons.
func (p *Plan) Verify(ctx context.Context, merged, dir string, adapters []Scaled, n int) ([]Comparison, Bound, error) {
	bound := p.bound()
	temp := &scratch{dir: dir}
	defer temp.drop()
	base, loras, err := p.runtime(ctx, temp, adapters)
	if err != nil {
		return nil, bound, err
	}
	want, err := openSide(ctx, base, loras, p.opt.Threads)
	if err != nil {
		return nil, bound, err
	}
	defer want.close()
	got, err := openSide(ctx, merged, nil, p.opt.Threads)
	if err != nil {
		return nil, bound, err
	}
	defer got.close()
	var list []Comparison
	bad := -1
	for i := range n {
		c, err := compare(ctx, want, got, verifyPrompt(i))
		if err != nil {
			return list, bound, err
		}
		list = append(list, c)
		if bad < 0 && bound.exceeds(c) {
			bad = i
		}
	}
	if bad >= 0 {
		c := list[bad]
		return list, bound, &differsError{fmt.Sprintf("the merged model differs from the adapter at run time: prompt %d: relative RMS %.3g, largest difference %.3g, want at most %s",
			bad+1, c.Relative, c.MaxAbs, bound)}
	}
	return list, bound, nil
}

// ErrDiffers is wrapped by the error that a merged model is further from its base and adapters than its type allows.
var ErrDiffers = fmt.Errorf("models differ")

type differsError struct{ msg string }

func (e *differsError) Error() string { return e.msg }
func (e *differsError) Unwrap() error { return ErrDiffers }

// scratch is the folder of scratch files, and those that were begun.
type scratch struct {
	dir   string
	files []*pipeline.File
}

// create begins a GGUF file.
func (s *scratch) create(kvs gguf.KVs, tensors []gguf.TensorInfo) (*gguf.Writer, error) {
	f, err := pipeline.Scratch(s.dir)
	if err != nil {
		return nil, err
	}
	s.files = append(s.files, f)
	return gguf.NewWriter(f, kvs, tensors)
}

// last returns the path of the file that was begun last.
func (s *scratch) last() string { return s.files[len(s.files)-1].Path() }

func (s *scratch) drop() {
	for _, f := range s.files {
		f.Abort()
	}
}

// runtime returns a base and adapters that the engine can load.
func (p *Plan) runtime(ctx context.Context, temp *scratch, adapters []Scaled) (string, []engine.LoRAInfo, error) {
	whole, base := false, p.path()
	var loras []engine.LoRAInfo
	for _, a := range adapters {
		pairs := &Adapter{Arch: a.Arch, Alpha: a.Alpha}
		for _, t := range a.Tensors {
			whole = whole || t.Whole != nil
			if t.A != nil {
				pairs.Tensors = append(pairs.Tensors, Tensor{Base: t.Base, A: t.A, B: t.B, Scale: t.Scale})
			}
		}
		path := a.Path
		if len(pairs.Tensors) < len(a.Tensors) || !strings.HasSuffix(path, ".gguf") || slices.ContainsFunc(a.Tensors, func(t Tensor) bool { return t.Whole != nil }) {
			if len(pairs.Tensors) == 0 {
				continue
			}
			if err := pairs.writeGGUF(path, temp.create); err != nil {
				return "", nil, err
			}
			path = temp.last()
		}
		loras = append(loras, engine.LoRAInfo{Path: path, Scale: a.Scale})
	}
	if whole || len(p.targets) > len(p.base.Tensors) {
		if err := p.writeStandIn(ctx, temp); err != nil {
			return "", nil, err
		}
		base = temp.last()
	}
	return base, loras, nil
}

// writeStandIn writes the base with whole tensors put in and the output untied, but without pairs.
func (p *Plan) writeStandIn(ctx context.Context, temp *scratch) error {
	q := &Plan{Keys: p.base.KVs, base: p.base, opt: Options{OutType: Keep, Threads: p.opt.Threads, Importance: p.opt.Importance}}
	for _, t := range p.targets {
		s := &target{info: t.info, src: t.src, from: t.from, weight: t.weight}
		s.info.Type = t.from
		for _, part := range t.parts {
			if part.tensor.Whole != nil {
				part.tensor = &Tensor{Base: part.tensor.Base, Whole: part.tensor.Whole}
				s.parts = append(s.parts, part)
			}
		}
		q.targets = append(q.targets, s)
		q.Tensors = append(q.Tensors, s.info)
	}
	w, err := temp.create(q.Keys, q.Tensors)
	if err != nil {
		return err
	}
	return q.Run(ctx, w, nil)
}

// side is one of the two models.
type side struct {
	model   *engine.Model
	context *engine.Context
}

const verifyCtx = 256 // tokens; 64 are used

func openSide(ctx context.Context, path string, loras []engine.LoRAInfo, threads int) (*side, error) {
	p := engine.DefaultParams()
	p.Model, p.LoRAAdapters, p.NCtx, p.NBatch, p.NUBatch = path, loras, verifyCtx, verifyCtx, verifyCtx
	p.CPUParams.NThreads, p.CPUParamsBatch.NThreads = threads, threads
	p.CacheTypeK, p.CacheTypeV, p.FlashAttnType = engine.CacheF32, engine.CacheF32, engine.FlashAttnOff
	p.NoExtraBufts = true // repacked weights have kernels of their own
	p.Warmup = false
	s := &side{}
	var err error
	if s.model, err = engine.LoadModel(ctx, &p); err != nil {
		return nil, err
	}
	if s.context, err = engine.NewContext(s.model, &p); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *side) close() {
	_ = s.context.Close() // nothing was written
	_ = s.model.Close()
}

// maxVerifyTokens bounds a prompt.
const maxVerifyTokens = 64

func compare(ctx context.Context, want, got *side, prompt string) (Comparison, error) {
	c := Comparison{Prompt: prompt}
	tokens, err := want.model.Vocab().Tokenize(prompt, true, false)
	if err != nil {
		return c, err
	}
	tokens = tokens[:min(len(tokens), maxVerifyTokens)]
	c.Tokens = len(tokens)
	var rows [][]float32
	want.context.ClearMemory()
	err = want.context.DecodeLogits(ctx, tokens, 0, 0, func(_ int, logits []float32) error {
		rows = append(rows, slices.Clone(logits))
		return nil
	})
	if err != nil {
		return c, err
	}
	var diff, size float64
	same := 0
	got.context.ClearMemory()
	err = got.context.DecodeLogits(ctx, tokens, 0, 0, func(i int, logits []float32) error {
		if len(logits) != len(rows[i]) {
			return fmt.Errorf("the merged model has %d logits, the base %d", len(logits), len(rows[i]))
		}
		for j, w := range rows[i] {
			d := float64(logits[j]) - float64(w)
			diff += d * d
			size += float64(w) * float64(w)
			c.MaxAbs = math.Max(c.MaxAbs, math.Abs(d)) // NaN wins
		}
		if argmax(logits) == argmax(rows[i]) {
			same++
		}
		return nil
	})
	c.Relative = math.Sqrt(diff / size)
	c.Top = float64(same) / float64(max(len(tokens), 1))
	return c, err
}

func argmax(x []float32) int {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return best
}
