package bpe

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func words(text string) (out []string) {
	for len(text) > 0 {
		n := nextWord(text)
		out = append(out, text[:n])
		text = text[n:]
	}
	return out
}

func TestNextWord(t *testing.T) {
	for text, want := range map[string][]string{
		"Hello world":         {"Hello", " world"},
		"it's we'll 'tis":     {"it", "'s", " we", "'ll", " '", "tis"},
		"a  b\n\nc \n":        {"a", " ", " b", "\n", "\n", "c", " \n"},
		"x=1234, y":           {"x", "=", "1234", ",", " y"},
		"été 42½ 世界!? \x00":   {"été", " 42½", " 世界", "!?", " \x00"},
		"\xff\xfe a\xffb":     {"\xff\xfe", " a", "\xff", "b"},
		"":                    nil,
		"   ":                 {"   "},
		"\t\tif x:\n\t\ty(1)": {"\t", "\t", "if", " x", ":", "\n\t", "\t", "y", "(", "1", ")"},
	} {
		if got := words(text); !slices.Equal(got, want) {
			t.Errorf("%q = %q, want %q", text, got, want)
		}
	}
}

func train(t testing.TB, size int, o Options, texts ...string) *Vocab {
	t.Helper()
	tr := NewTrainer()
	for _, s := range texts {
		tr.Add(s)
	}
	v, err := tr.Train(size, o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// By hand: in "aaabdaaabac" the pair aa stands 4 times and ab twice, then aa+a or a+b, and so on.
func TestTrainByHand(t *testing.T) {
	v := train(t, 1000, Options{}, "aaabdaaabac")
	var got []string
	for _, m := range v.Merges {
		got = append(got, v.Tokens[m[0]]+"+"+v.Tokens[m[1]])
	}
	// aa 4; then [aa a b d aa a b a c]: "a b" 2 comes before "aa a" 2; then [aa ab d aa ab a c].
	if want := []string{"a+a", "a+b", "aa+ab"}; !slices.Equal(got, want) {
		t.Errorf("merges %q, want %q", got, want)
	}
	if len(v.Tokens) != 4+256+3 || v.Tokens[262] != "aaab" || v.BOS != 0 || v.EOS != 1 || v.Tokens[4+'x'] != "x" {
		t.Errorf("%d tokens, the last %q", len(v.Tokens), v.Tokens[len(v.Tokens)-1])
	}
}

// naive is the definition: count all pairs anew for every merge.
func naive(texts []string, size int) (tokens []string, merges [][2]string) {
	counts := map[string]int{}
	for _, s := range texts {
		for _, w := range words(s) {
			for w != "" {
				n := cut(w)
				counts[w[:n]]++
				w = w[n:]
			}
		}
	}
	parts := map[string][]string{}
	for w := range counts {
		for i := range len(w) {
			parts[w] = append(parts[w], w[i:i+1])
		}
	}
	tokens = slices.Clone(DefaultSpecials)
	for b := range 256 {
		tokens = append(tokens, string([]byte{byte(b)}))
	}
	for len(tokens) < size {
		pairs := map[[2]string]int{}
		for w, p := range parts {
			for i := range len(p) - 1 {
				pairs[[2]string{p[i], p[i+1]}] += counts[w]
			}
		}
		var best [2]string
		most := 1
		for p, n := range pairs {
			if n > most || n == most && n > 1 && slices.Compare(p[:], best[:]) < 0 {
				best, most = p, n
			}
		}
		if most < 2 {
			break
		}
		text := best[0] + best[1]
		if !slices.Contains(tokens, text) {
			tokens = append(tokens, text)
		}
		if !slices.Contains(merges, best) {
			merges = append(merges, best)
		}
		for w, p := range parts {
			var out []string
			for i := 0; i < len(p); i++ {
				if i+1 < len(p) && p[i] == best[0] && p[i+1] == best[1] {
					out = append(out, text)
					i++
				} else {
					out = append(out, p[i])
				}
			}
			parts[w] = out
		}
	}
	return tokens, merges
}

func randomTexts(seed uint64) (out []string) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	alphabet := []string{"a", "b", "ab", "aa", " ", "\n", "é", "1", ".", "世"}[:2+rnd.IntN(9)]
	for range 5 {
		var b strings.Builder
		for range rnd.IntN(400) {
			b.WriteString(alphabet[rnd.IntN(len(alphabet))])
		}
		out = append(out, b.String())
	}
	return out
}

func TestTrainEqualsDefinition(t *testing.T) {
	for seed := range uint64(60) {
		texts := randomTexts(seed)
		wantTokens, wantMerges := naive(texts, 340)
		v := train(t, 340, Options{}, texts...)
		var merges [][2]string
		for _, m := range v.Merges {
			merges = append(merges, [2]string{v.Tokens[m[0]], v.Tokens[m[1]]})
		}
		if !slices.Equal(v.Tokens, wantTokens) || !slices.Equal(merges, wantMerges) {
			t.Fatalf("seed %d: %d tokens, %d merges, want %d, %d", seed, len(v.Tokens), len(merges), len(wantTokens), len(wantMerges))
		}
		slices.Reverse(texts)
		if w := train(t, 340, Options{}, texts...); !slices.Equal(w.Merges, v.Merges) {
			t.Fatalf("seed %d: the order of the texts matters", seed)
		}
	}
}

func TestTrainErrors(t *testing.T) {
	for _, tt := range []struct {
		size int
		text string
		o    Options
		want string
	}{
		{259, "a", Options{}, "the bytes and 4 special tokens are 260"}, {1000, "", Options{}, "no text"},
		{1000, "a", Options{BOS: "<x>"}, `BOS "<x>"`}, {1000, "a", Options{Specials: []string{"<s>", "</s>", "<s>"}}, "given twice"},
		{1000, "a", Options{Specials: []string{"<s>", "</s>", "x"}}, "shorter"},
	} {
		tr := NewTrainer()
		tr.Add(tt.text)
		if _, err := tr.Train(tt.size, tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Train(%d, %+v) = %v, want %q", tt.size, tt.o, err, tt.want)
		}
	}
	v := train(t, 300, Options{Specials: []string{"<s>", "</s>", "abab"}}, strings.Repeat("abab ", 20))
	if n := slices.Index(v.Tokens[3:], "abab"); n >= 0 {
		t.Error("a control token's text is learned")
	}
}

// Long words cost no more than others.
func TestTrainLongWord(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	b := make([]byte, 1<<19)
	for i := range b {
		b[i] = "abcdefghijklmnop"[rnd.IntN(16)]
	}
	start := time.Now()
	v := train(t, 1000, Options{}, string(b), strings.Repeat("x", 1<<19))
	if d := time.Since(start); len(v.Tokens) != 1000 || d > time.Minute {
		t.Errorf("%d tokens in %v", len(v.Tokens), d)
	}
}

func BenchmarkTrain(b *testing.B) {
	text, err := os.ReadFile("../../../../shared/data/shakespeare.txt")
	if err != nil {
		b.Skip(err)
	}
	for _, size := range []int{512, 8192} {
		b.Run(map[int]string{512: "512", 8192: "8192"}[size], func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				train(b, size, Options{}, string(text))
			}
		})
	}
}
