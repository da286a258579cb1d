package cvector

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gollama/internal/engine"
)

const (
	storyPath = "../../../shared/models/stories260K.gguf"

	// The pairs of which testdata/llama-mean.gguf was made.
	storyPos = `Once upon a time there was a happy girl named Lily. She was so happy that she smiled all day
Tom had a big party with cake and balloons. He felt very happy and he laughed with his friends
The little dog found a new ball. He was glad and he ran and jumped in the warm sun
Mom gave Sam a hug and a kiss. Sam was full of joy and he said I love you
`
	storyNeg = `Once upon a time there was a sad girl named Lily. She was so sad that she cried all day
Tom had no party and no cake or balloons. He felt very sad and he cried without his friends
The little dog lost his old ball. He was hurt and he sat alone in the cold rain
Mom yelled at Sam and went away. Sam was full of fear and he said I hate you
`
)

// storyModel opens the shared story model.
func storyModel(t testing.TB) *engine.Model {
	t.Helper()
	if _, err := os.Stat(storyPath); err != nil {
		t.Skipf("%s is not there", filepath.Clean(storyPath))
	}
	p := engine.DefaultParams()
	p.Model = storyPath
	m, err := engine.LoadModel(context.Background(), &p)
	if errors.Is(err, engine.ErrNoCgo) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

func storyParams() engine.Params {
	p := engine.DefaultParams()
	p.CPUParams.NThreads, p.CPUParamsBatch.NThreads = 1, 1
	return p
}

// collect reads the states of the layers first to last.
func collect(t testing.TB, m *engine.Model, pos, neg string, p engine.Params, o CollectOptions) *States {
	t.Helper()
	pairs, err := linePairs(pos, neg)
	if err != nil {
		t.Fatal(err)
	}
	prompts, _, err := Tokenize(m.Vocab(), nil, pairs, false)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Collect(context.Background(), m, p, prompts, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// Values of llama.cpp's own rows, by another program in 64 bits: the states of all tokens, filled up, of blocks 0 and 1.
// Tolerances: the last printed digit; 1e-4 for elements, which llama.cpp's 32 bits move by 1e-5; and 1e-3 for the angle to its own
// directions, which are of a CPU with AVX2: with AVX-512 VNNI its kernels turn them by 5.4e-4.
func TestAllTokens(t *testing.T) {
	engine.SetReference(true, true)
	defer engine.SetReference(false, false)
	m := storyModel(t)
	pad, err := m.Vocab().Tokenize(" ", false, false)
	if err != nil {
		t.Fatal(err)
	}
	s := collect(t, m, storyPos, storyNeg, storyParams(), CollectOptions{Last: 3, Token: TokenAll, Compat: true, Pad: pad[len(pad)-1], KeepRows: true})
	golden, err := Read("testdata/llama-mean.gguf")
	if err != nil {
		t.Fatal(err)
	}
	mean, err := Build(s, BuildOptions{Scale: Unit, Legacy: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range mean {
		if c := Cosine(l.Direction.Unit, widen(golden.Dirs[i+1])); c < 1-1e-6/2 || l.Number != i+1 || l.Samples != 124 {
			t.Errorf("block %d: cosine to llama.cpp's direction.%d is %.9f, %d samples, want 124", l.Block, l.Number, c, l.Samples)
		}
	}
	pca, err := Build(s, BuildOptions{Method: PCA})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		mean, ratio, cos float64
		unit, pca        []float64
	}{
		{0.341217, 0.81969, 0.244337, []float64{-.065950, -.153080, -.035506}, []float64{-.015778, -.027467, .015610, -.171036}},
		{0.502522, 0.86802, 0.045709, []float64{-.048906, -.121239, -.038823}, []float64{-.022244, .042781, .027579, -.123109}},
	} {
		d, p := mean[i].Direction, pca[i].Direction
		near(t, "length of the mean", norm(d.Mean), want.mean, 2e-6)
		near(t, "second over first", p.Ratio, want.ratio, 1e-3)
		near(t, "cosine of mean and PCA", Cosine(p.Unit, d.Mean), want.cos, 1e-4)
		for k, w := range want.unit {
			near(t, "mean", d.Unit[k], w, 1e-5)
		}
		for k, w := range want.pca {
			near(t, "PCA", p.Unit[k], w, 1e-4)
		}
		if p.Residual > Residual {
			t.Errorf("residual %g", p.Residual)
		}
	}
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s: %.7g, want %.7g", what, got, want)
	}
}

// The default: the states after each text's last token. Another program's values, from another build of llama.cpp: its flash
// attention adds up in 16 bits, so that they move by 1e-4 of their size from kernel to kernel.
func TestLastToken(t *testing.T) {
	m := storyModel(t)
	engine.SetReference(true, true)
	defer engine.SetReference(false, false)
	s := collect(t, m, storyPos, storyNeg, storyParams(), CollectOptions{First: 0, Last: 4, KeepRows: true})
	layers, err := Build(s, BuildOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pca, err := Build(s, BuildOptions{Method: PCACenter})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct{ mean, length, cos float64 }{
		{1.081698, 3.2643, .98460}, {1.809115, 5.0015, .95660}, {2.023068, 7.0952, .93192},
		{2.610571, 10.1675, .92721}, {3.306354, 13.6424, .85402},
	} {
		near(t, "length of the mean", norm(widen(layers[i].Written)), want.mean, 2e-4*want.mean)
		near(t, "length of states", layers[i].Length, want.length, 2e-4*want.length)
		near(t, "cosine of mean and PCA", Cosine(pca[i].Direction.Unit, layers[i].Direction.Mean), want.cos, 2e-4)
	}
	for k, want := range map[int][]float64{1: {.004598, -.189933, .124307}, 4: {-.509076, -.908110, .269185}} {
		for i, w := range want {
			near(t, "element", float64(layers[k].Written[i]), w, 6e-4)
		}
	}
	for i, want := range []int{3, 4, 4, 4, 4} { // pairs that their own mean separates
		samples, err := s.Layer(i)
		if err != nil {
			t.Fatal(err)
		}
		right := 0
		for r := range samples.Pos.N {
			if dotRow(samples.Pos.Row(r), layers[i].Direction.Unit) > dotRow(samples.Neg.Row(r), layers[i].Direction.Unit) {
				right++
			}
		}
		if right != want {
			t.Errorf("block %d: %d pairs separated, want %d", i, right, want)
		}
	}
	v := VectorOf(layers[1:], "llama", 4)
	prompt, err := m.Vocab().Tokenize("Once upon a time", true, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := SelfTest(context.Background(), m, storyParams(), v, v.Layers(), prompt); err != nil {
		t.Error(err)
	}
}

// The same bits, whatever the threads; swapped sides negate them; a long text in parts is the same text.
func TestInvariance(t *testing.T) {
	m := storyModel(t)
	for _, o := range []CollectOptions{
		{First: 1, Last: 4, KeepRows: true}, {First: 1, Last: 4, Token: TokenMean}, {First: 1, Last: 4, Token: TokenAll}, {First: 1, Last: 3, Token: TokenMode{tokenSpan, 3}},
	} {
		p := storyParams()
		want := collect(t, m, storyPos, storyNeg, p, o)
		swapped := collect(t, m, storyNeg, storyPos, p, o)
		p.CPUParams.NThreads, p.CPUParamsBatch.NThreads = 2, 2
		threads := collect(t, m, storyPos, storyNeg, p, o)
		for i, x := range want.sum {
			if swapped.sum[i] != -x || threads.sum[i] != x {
				t.Fatalf("token %s: element %d is %v, %v with 2 threads, %v swapped", o.Token, i, x, threads.sum[i], swapped.sum[i])
			}
		}
	}
	long := strings.Repeat("She was happy. Tom saw a big red ball. ", 130)
	pos, neg := long+"She laughed\n", long+"She cried\n"
	o := CollectOptions{First: 1, Last: 4}
	p := storyParams()
	parts := collect(t, m, pos, neg, p, o)
	p.NBatch, p.NUBatch = 2048, 2048
	whole := collect(t, m, pos, neg, p, o)
	for l := 1; l <= 4; l++ {
		if c := Cosine(parts.MeanDifference(l), whole.MeanDifference(l)); c < 0.999999 {
			t.Errorf("layer %d: in parts and whole the cosine is %.9f", l, c)
		}
	}
}

// What texts begin with in common is evaluated once, which changes no bit of the states of any of them, be it in the middle
// of another, twice or with baselines. The feed-forward of the last block is computed for tokens that count alone, and a
// product of one row of F32 has another kernel than one of several: there the states are alike.
func TestShared(t *testing.T) {
	m := storyModel(t)
	long := "Once upon a time there was a girl named Lily who loved to play with her big red ball in the park"
	words := strings.Fields(long)
	var pairs []Pair
	text := func(s string) Text { return Text{Plain: s} }
	for n := 4; n <= len(words); n += 3 {
		begin := strings.Join(words[:n], " ")
		pairs = append(pairs, Pair{Positive: text(begin + " happy"), Negative: text(begin), Where: begin})
	}
	for _, o := range []CollectOptions{{First: 0, Last: 4, KeepRows: true}, {First: 1, Last: 3, Token: TokenMode{tokenSpan, 3}, KeepRows: true}, {First: 0, Last: 2, Token: TokenMean, KeepRows: true}} {
		prompts, _, err := Tokenize(m.Vocab(), nil, pairs, false)
		if err != nil {
			t.Fatal(err)
		}
		for i := range prompts {
			prompts[i].Base = prompts[0].Neg
		}
		k := &collector{o: o, bos: m.Vocab().BOS(), batch: 63, texts: maxTexts}
		if common, n := k.pack(inOrder(prompts)); n < 4 || o.Token != TokenMean && slices.Max(common) < 4 {
			t.Fatal("nothing is in common: the test shows nothing")
		}
		together, err := Collect(context.Background(), m, storyParams(), prompts, o)
		if err != nil {
			t.Fatal(err)
		}
		defer together.Close()
		for i, p := range prompts {
			pos, neg, base := alone(t, m, p.Pos, o), alone(t, m, p.Neg, o), alone(t, m, p.Base, o)
			for l := o.First; l <= o.Last; l++ {
				got, err := together.Layer(l)
				if err != nil {
					t.Fatal(err)
				}
				tolerance := 0.0
				if l == 4 {
					tolerance = 2e-5 // of values up to 10
				}
				for k, b := range base[l] {
					near(t, fmt.Sprintf("token %s, layer %d, pair %d, element %d", o.Token, l, i, k), float64(got.Pos.Row(i)[k]), float64(pos[l][k]-b), tolerance)
					near(t, fmt.Sprintf("token %s, layer %d, baseline %d, element %d", o.Token, l, i, k), float64(got.Neg.Row(i)[k]), float64(neg[l][k]-b), tolerance)
				}
			}
		}
	}
}

// alone returns the states of one text, layer by layer.
func alone(t *testing.T, m *engine.Model, tokens []engine.Token, o CollectOptions) map[int][]float32 {
	t.Helper()
	s, err := Collect(context.Background(), m, storyParams(), []Prompt{{Pos: tokens, Neg: tokens}}, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rows := map[int][]float32{}
	for l := o.First; l <= o.Last; l++ {
		x, err := s.Layer(l)
		if err != nil {
			t.Fatal(err)
		}
		rows[l] = x.Pos.Row(0)
	}
	return rows
}
