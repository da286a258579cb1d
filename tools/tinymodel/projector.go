package main

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"

	"gollama/internal/builtin/story"
	"gollama/internal/engine/ggml"
	"gollama/internal/gguf"
)

// The projector is of libmtmd's type mlp with no layer of a vision tower. libmtmd shrinks a picture to side by side
// pixels, with bars where it is not square; the one patch takes red, green and blue of the middle pixel, which is the
// mean of the middle of the picture and never a bar; then comes W2 gelu(W1 rgb + b1) + b2. W1 and b1 are random,
// and W2 and b2 are the least squares solution for the colours of palette and all between them, each of which is to
// give the embedding of its word. So a picture is one token, the one that the word is in the texts.
const (
	side     = 3 // pixels of the picture, and of the patch
	channels = 3
	hidden   = 256 // random features
	steepest = 3   // standard deviation of the entries of W1
	ridge    = 1e-4
	levels   = 17  // of each channel, on the grid of colours that is fitted
	jitter   = 10. // standard deviation of the colours around those of the palette, in 1/255
	jittered = 100 // of each
)

// projector maps a colour to an embedding.
type projector struct {
	w1 [][channels]float32 // [hidden]
	b1 []float32           // [hidden]
	w2 *mat.Dense          // hidden x embedding
	b2 []float64           // [embedding]
}

// colours are rgb values from -1 to 1, as libmtmd gives them for a mean and a deviation of 0.5.
type rgb [channels]float32

func fromBytes(r, g, b float64) rgb {
	at := func(v float64) float32 { return float32(min(max(v, 0), 255)/255)*2 - 1 }
	return rgb{at(r), at(g), at(b)}
}

// fitProjector fits to the embeddings of the colours' words, in the order of story.Colours.
func fitProjector(words *mat.Dense, seed uint64) (*projector, error) {
	rng := rand.New(rand.NewPCG(seed, 1))
	p := &projector{w1: make([][channels]float32, hidden), b1: make([]float32, hidden)}
	for i := range p.w1 {
		for c := range channels {
			p.w1[i][c] = float32(rng.NormFloat64() * steepest)
			p.b1[i] -= p.w1[i][c] * float32(rng.Float64()*2-1) // the bend is somewhere among the colours
		}
	}
	points := fittedColours(rng)
	nWords, nEmbd := words.Dims()
	x, y := mat.NewDense(len(points), hidden+1, nil), mat.NewDense(len(points), nWords, nil)
	for i, c := range points {
		x.SetRow(i, append(p.features(c), 1))
		y.Set(i, nearest(c), 1)
	}
	scores, err := leastSquares(x, y, ridge*float64(len(points)))
	if err != nil {
		return nil, fmt.Errorf("projector: %w", err)
	}
	var out mat.Dense
	out.Mul(scores, words) // scores of words for features become embeddings
	p.w2 = mat.DenseCopyOf(out.Slice(0, hidden, 0, nEmbd))
	p.b2 = mat.Row(nil, hidden, &out)
	return p, nil
}

// leastSquares returns the S for which |X S - Y|^2 + ridge |S|^2 is least: (X'X + ridge I) S = X'Y.
func leastSquares(x, y *mat.Dense, ridge float64) (*mat.Dense, error) {
	var xx mat.SymDense
	xx.SymOuterK(1, x.T())
	n := xx.SymmetricDim()
	for i := range n {
		xx.SetSym(i, i, xx.At(i, i)+ridge)
	}
	var chol mat.Cholesky
	if !chol.Factorize(&xx) {
		return nil, fmt.Errorf("least squares: the matrix of %d columns is singular", n)
	}
	var xy, s mat.Dense
	xy.Mul(x.T(), y)
	return &s, chol.SolveTo(&s, &xy)
}

// fittedColours returns a grid over all colours, and many near those of the palette.
func fittedColours(rng *rand.Rand) []rgb {
	var list []rgb
	const step = 255. / (levels - 1)
	for i := range levels * levels * levels {
		list = append(list, fromBytes(float64(i%levels)*step, float64(i/levels%levels)*step, float64(i/levels/levels)*step))
	}
	for _, e := range palette {
		for range jittered {
			list = append(list, fromBytes(e.r+jitter*rng.NormFloat64(), e.g+jitter*rng.NormFloat64(), e.b+jitter*rng.NormFloat64()))
		}
	}
	return list
}

// features returns gelu(W1 c + b1), rounded as ggml's table of halves rounds it.
func (p *projector) features(c rgb) []float64 {
	x, half := make([]float32, hidden), make([]uint16, hidden)
	round := func() { ggml.F32ToF16(half, x); ggml.F16ToF32(x, half) }
	for i, w := range p.w1 {
		x[i] = p.b1[i] + w[0]*c[0] + w[1]*c[1] + w[2]*c[2]
	}
	round()
	for i, v := range x {
		v := float64(v)
		x[i] = float32(0.5 * v * (1 + math.Tanh(math.Sqrt(2/math.Pi)*v*(1+0.044715*v*v))))
	}
	round()
	out := make([]float64, hidden)
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

// embed returns the embedding that the projector gives a colour.
func (p *projector) embed(c rgb) []float64 {
	var y mat.VecDense
	y.MulVec(p.w2.T(), mat.NewVecDense(hidden, p.features(c)))
	out := make([]float64, len(p.b2))
	for i := range out {
		out[i] = y.AtVec(i) + p.b2[i]
	}
	return out
}

// wordEmbeddings returns the embeddings of the colours' words, with a space before each, from a model's file: a row
// for each of story.Colours.
func wordEmbeddings(path string) (*mat.Dense, error) {
	f, err := gguf.OpenModel(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read from
	v, ok := f.Get("tokenizer.ggml.tokens")
	tokens, isList := gguf.As[[]string](v)
	i, hasEmbd := f.Tensor("token_embd.weight")
	if !ok || !isList || !hasEmbd {
		return nil, fmt.Errorf("%s: no vocabulary with embeddings", path)
	}
	t := f.Tensors[i]
	data, err := f.ReadTensor(i)
	if err != nil {
		return nil, err
	}
	values, err := ggml.Dequantize(ggml.Type(t.Type), data, int(t.Elements()))
	if err != nil {
		return nil, err
	}
	ids := map[string]int{}
	for id, text := range tokens {
		ids[text] = id
	}
	colours, n := story.Colours(), int(t.Shape[0])
	words := mat.NewDense(len(colours), n, nil)
	for row, word := range colours {
		id, ok := ids["Ġ"+word] // how the vocabulary writes a space
		if !ok {
			return nil, fmt.Errorf("%s: %q is not one token", path, " "+word)
		}
		for j, v := range values[id*n : (id+1)*n] {
			words.Set(row, j, float64(v))
		}
	}
	return words, nil
}

// write makes the GGUF file.
func (p *projector) write(path string) error {
	nEmbd := len(p.b2)
	kernel := make([]float32, side*side*channels*channels) // [x, y, channel in, channel out]
	const middle = side/2*side + side/2
	for c := range channels {
		kernel[c*side*side*channels+c*side*side+middle] = 1
	}
	w1, w2, b2 := make([]float32, 0, hidden*channels), make([]float32, 0, hidden*nEmbd), make([]float32, nEmbd)
	for _, row := range p.w1 {
		w1 = append(w1, row[:]...)
	}
	for j := range nEmbd {
		for i := range hidden {
			w2 = append(w2, float32(p.w2.At(i, j)))
		}
		b2[j] = float32(p.b2[j])
	}
	tensors := []struct {
		name  string
		shape []uint64
		data  []float32
	}{
		{"v.patch_embd.weight", []uint64{side, side, channels, channels}, kernel},
		{"v.position_embd.weight", []uint64{channels, 1}, make([]float32, channels)},
		{"mm.0.weight", []uint64{channels, hidden}, w1},
		{"mm.0.bias", []uint64{hidden}, p.b1},
		{"mm.2.weight", []uint64{hidden, uint64(nEmbd)}, w2},
		{"mm.2.bias", []uint64{uint64(nEmbd)}, b2},
	}
	var infos []gguf.TensorInfo
	for _, t := range tensors {
		infos = append(infos, gguf.TensorInfo{Name: t.name, Type: gguf.TypeF32, Shape: t.shape})
	}
	w, err := gguf.Create(path, projectorKeys(nEmbd), infos)
	if err != nil {
		return err
	}
	defer w.Abort()
	for _, t := range tensors {
		if err := w.WriteTensor(t.name, bytes.NewReader(ggml.Bytes(t.data))); err != nil {
			return err
		}
	}
	return w.Close()
}

func projectorKeys(nEmbd int) gguf.KVs {
	half := []float32{0.5, 0.5, 0.5}
	return gguf.KVs{
		{Key: "general.architecture", Value: gguf.ValueOf("clip")},
		{Key: "general.type", Value: gguf.ValueOf("mmproj")},
		{Key: "general.name", Value: gguf.ValueOf("gollama storyteller, colours of pictures")},
		{Key: "general.license", Value: gguf.ValueOf("MIT")},
		{Key: "general.description", Value: gguf.ValueOf("Gives a picture the embedding of the word for its colour; fitted by least squares in tools/tinymodel.")},
		{Key: "clip.has_vision_encoder", Value: gguf.ValueOf(true)},
		{Key: "clip.projector_type", Value: gguf.ValueOf("mlp")},
		{Key: "clip.vision.image_size", Value: gguf.ValueOf(uint32(side))},
		{Key: "clip.vision.patch_size", Value: gguf.ValueOf(uint32(side))},
		{Key: "clip.vision.embedding_length", Value: gguf.ValueOf(uint32(channels))},
		{Key: "clip.vision.projection_dim", Value: gguf.ValueOf(uint32(nEmbd))},
		{Key: "clip.vision.block_count", Value: gguf.ValueOf(uint32(0))},
		{Key: "clip.vision.feed_forward_length", Value: gguf.ValueOf(uint32(channels))},
		{Key: "clip.vision.attention.head_count", Value: gguf.ValueOf(uint32(1))},
		{Key: "clip.vision.attention.layer_norm_epsilon", Value: gguf.ValueOf(float32(1e-6))},
		{Key: "clip.vision.image_mean", Value: gguf.ValueOf(half)},
		{Key: "clip.vision.image_std", Value: gguf.ValueOf(half)},
	}
}
