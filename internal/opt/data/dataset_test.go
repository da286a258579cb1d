package data

import (
	"slices"
	"strings"
	"testing"

	"gollama/internal/engine"
)

// bytesTokenizer has a token for each byte; BOS is 256 and EOS 257.
type bytesTokenizer struct{}

func (bytesTokenizer) NTokens() int                { return 258 }
func (bytesTokenizer) BOS() engine.Token           { return 256 }
func (bytesTokenizer) EOS() engine.Token           { return 257 }
func (bytesTokenizer) AddBOS() bool                { return true }
func (b bytesTokenizer) IsEOG(t engine.Token) bool { return t == b.EOS() }
func (b bytesTokenizer) Tokenize(text string, addSpecial, _ bool) (out []engine.Token, _ error) {
	if addSpecial {
		out = append(out, b.BOS())
	}
	for _, c := range []byte(text) {
		out = append(out, engine.Token(c))
	}
	return out, nil
}

func example(t testing.TB, d *Dataset, i int) *Example {
	t.Helper()
	ex, err := d.Example(i)
	if err != nil {
		t.Fatal(err)
	}
	return ex
}

// The counts are those of llama-finetune: ndata = (n_tok-n_ctx-1)/stride, and 279 windows of 294 for
// training in the reference run.
func TestWindows(t *testing.T) {
	for _, tt := range []struct {
		bytes, nCtx int
		share       float64
		train, val  int
	}{
		{37888, 256, 0.05, 279, 15}, {11, 8, 0, 1, 0}, {8, 8, 0, 1, 0}, {99, 9, 0, 22, 0}, {100, 10, 0.5, 9, 9},
	} {
		train, val, err := Windows(bytesTokenizer{}, strings.Repeat("x", tt.bytes)+"\n", tt.nCtx, tt.share)
		if err != nil || train.Len() != tt.train || val.Len() != tt.val {
			t.Errorf("Windows(%d bytes, %d, %v) = %d and %d, %v, want %d and %d", tt.bytes, tt.nCtx, tt.share, train.Len(), val.Len(), err, tt.train, tt.val)
		}
	}
}

func TestWindowContent(t *testing.T) {
	train, _, err := Windows(bytesTokenizer{}, "abcdefghijk", 4, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][2][]int32{
		{{256, 'a', 'b', 'c'}, {'a', 'b', 'c', 'd'}}, {{'b', 'c', 'd', 'e'}, {'c', 'd', 'e', 'f'}}, {{'d', 'e', 'f', 'g'}, {'e', 'f', 'g', 'h'}},
	} {
		ex := example(t, train, i)
		if !slices.Equal(ex.Tokens, want[0]) || !slices.Equal(ex.Labels, want[1]) || ex.Weights != nil || ex.Positions != nil || ex.Segments != nil {
			t.Errorf("example %d = %+v, want %v", i, ex, want)
		}
	}
	if s := train.Stats(); train.Len() != 3 || s != (Stats{Documents: 1, Examples: 3, Tokens: 12, Labels: 12, Longest: 4}) {
		t.Errorf("%d examples, %+v", train.Len(), s)
	}
}

func TestWindowErrors(t *testing.T) {
	for _, tt := range []struct {
		text  string
		nCtx  int
		share float64
		want  string
	}{
		{"", 8, 0, "the text has 1 tokens, a window of 8 needs 9"},
		{"abc", 256, 0.05, "the text has 4 tokens"},
		{"abcdefgh", 8, 0.05, "leaves none for training"},
		{"abc", 1, 0, "at least 2"}, {"abc", 0, 0, "at least 2"}, {"abc", -5, 0, "at least 2"},
		{"abcdefgh", 2, 1, "validation share"}, {"abcdefgh", 2, -0.1, "validation share"},
	} {
		if _, _, err := Windows(bytesTokenizer{}, tt.text, tt.nCtx, tt.share); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Windows(%q, %d, %v) = %v, want %q", tt.text, tt.nCtx, tt.share, err, tt.want)
		}
	}
}

func TestOrder(t *testing.T) {
	if got := Order(8, 1, 0); !slices.Equal(got, Order(8, 1, 0)) || slices.Equal(got, Order(8, 1, 1)) || slices.Equal(got, Order(8, 2, 0)) {
		t.Errorf("Order(8, 1, 0) = %v, epoch 1 %v, seed 2 %v", got, Order(8, 1, 1), Order(8, 2, 0))
	}
	// Recorded: a run that is resumed by a later version must see the same order.
	if got, want := Order(8, 42, 3), []int{1, 7, 4, 3, 2, 0, 6, 5}; !slices.Equal(got, want) {
		t.Errorf("Order(8, 42, 3) = %v, want %v", got, want)
	}
	var counts [5][5]int
	const epochs = 20000
	for e := range epochs {
		order := Order(5, 9, e)
		for i, x := range order {
			counts[i][x]++
		}
		slices.Sort(order)
		if !slices.Equal(order, []int{0, 1, 2, 3, 4}) {
			t.Fatalf("not a permutation: %v", order)
		}
	}
	// Each of the 25 counts is binomial with mean 4000 and deviation 57; 5 deviations are passed
	// once in a million.
	for i := range counts {
		for x, c := range counts[i] {
			if c < epochs/5-285 || c > epochs/5+285 {
				t.Errorf("%d stands at place %d in %d of %d epochs", x, i, c, epochs)
			}
		}
	}
}
