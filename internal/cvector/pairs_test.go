package cvector

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func same(s string) string { return s }

func linePairs(pos, neg string) ([]Pair, error) {
	return LinePairs(strings.NewReader(pos), strings.NewReader(neg), "pos.txt", "neg.txt", same)
}

func TestLinePairs(t *testing.T) {
	want, err := linePairs("a\nb c\n", "x\ny\n")
	if err != nil {
		t.Fatal(err)
	}
	if len(want) != 2 || want[1].Positive.Plain != "b c" || want[1].Negative.Plain != "y" {
		t.Fatalf("got %+v", want)
	}
	for name, files := range map[string][2]string{
		"line ends of Windows": {"a\r\nb c\r\n", "x\r\ny\r\n"},
		"no last line end":     {"a\nb c", "x\ny"},
		"byte order mark":      {"\ufeffa\nb c\n", "\ufeffx\ny\n"},
	} {
		got, err := linePairs(files[0], files[1])
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	got, err := linePairs("\n\na\n\r\nb\n", "x\n\n\ny\n")
	if err != nil || len(got) != 2 || got[1].Positive.Plain != "b" || !strings.Contains(got[1].Where, "line 5 of pos.txt") {
		t.Errorf("empty lines: %+v, %v", got, err)
	}
	up, err := LinePairs(strings.NewReader("a"), strings.NewReader("b"), "p", "n", strings.ToUpper)
	if err != nil || up[0].Positive.Plain != "A" || up[0].Negative.Plain != "B" {
		t.Errorf("escapes: %+v, %v", up, err)
	}
}

func TestLinePairsBad(t *testing.T) {
	for _, tt := range []struct{ name, pos, neg, want string }{
		{"unequal", "a\nb\n", "x\n", "pos.txt has 2 texts and neg.txt has 1"},
		{"empty", "", "", "have no texts"},
		{"empty lines", "\n\n", "\r\n", "have no texts"},
		{"not UTF-8", "a\n\xff\n", "x\ny\n", "pos.txt, line 2, is not UTF-8"},
	} {
		if _, err := linePairs(tt.pos, tt.neg); !errors.Is(err, ErrPairs) || !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%s: error %v, want one with %q", tt.name, err, tt.want)
		}
	}
}

func jsonPairs(text string) ([]Pair, error) {
	return JSONPairs(strings.NewReader(text), "pairs.jsonl")
}

func TestJSONPairs(t *testing.T) {
	got, err := jsonPairs(`{"positive":"I am happy.","negative":"I am sad.","completions":[" Today"," The"]}

{"id":7,"positive":[{"role":"user","content":"hi"}],"negative":[{"role":"system","content":"be sad"},{"role":"user","content":"hi"}]}
`)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || got[0].Completion != " Today" || got[1].Completion != " The" || got[1].Negative.Plain != "I am sad." {
		t.Fatalf("got %+v", got)
	}
	if m := got[2].Negative.Messages; len(m) != 2 || m[0].Role != "system" || m[1].Content != "hi" || !strings.Contains(got[2].Where, "line 3") {
		t.Errorf("messages: %+v", got[2])
	}
	with, err := jsonPairs(`{"positive":"a","negative":"b","baseline":"c"}`)
	if err != nil || with[0].Baseline == nil || with[0].Baseline.Plain != "c" {
		t.Errorf("baseline: %+v, %v", with, err)
	}
}

func TestJSONPairsBad(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "\n\n", "has no pairs"},
		{"not JSON", `{"positive":`, "line 1"},
		{"no negative", `{"positive":"a"}`, `"negative" is missing`},
		{"a number", `{"positive":"a","negative":3}`, "want a text or a list of messages"},
		{"no messages", `{"positive":[],"negative":"a"}`, "there are no messages"},
		{"some baselines", `{"positive":"a","negative":"b"}` + "\n" + `{"positive":"a","negative":"b","baseline":"c"}`, "line 2: some pairs have a baseline"},
		{"not UTF-8", "{\"positive\":\"\xff\",\"negative\":\"b\"}", "is not UTF-8"},
		{"completions", `{"positive":"a","negative":"b","completions":"c"}`, "line 1"},
	} {
		if _, err := jsonPairs(tt.text); !errors.Is(err, ErrPairs) || !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%s: error %v, want one with %q", tt.name, err, tt.want)
		}
	}
}

func TestCross(t *testing.T) {
	pairs := Cross([]Pair{{Where: "a"}, {Where: "b", Completion: "1"}}, []string{"x", "y"})
	var got []string
	for _, p := range pairs {
		got = append(got, p.Completion)
	}
	if !slices.Equal(got, []string{"x", "y", "1x", "1y"}) {
		t.Errorf("completions %q", got)
	}
}

func FuzzJSONPairs(f *testing.F) {
	f.Add(`{"positive":"a","negative":"b","baseline":null,"completions":["x"]}`)
	f.Add(`{"positive":[{"role":"user","content":[{"type":"text","text":"a"}]}],"negative":"b"}`)
	f.Fuzz(func(t *testing.T, text string) {
		pairs, err := jsonPairs(text)
		if err != nil {
			return
		}
		for _, p := range pairs {
			if p.Positive.Plain != "" && p.Positive.Messages != nil {
				t.Fatalf("both a text and messages: %+v", p)
			}
		}
	})
}

func FuzzLinePairs(f *testing.F) {
	f.Add("a\r\nb", "\ufeffx\ny\n")
	f.Fuzz(func(t *testing.T, pos, neg string) {
		pairs, err := linePairs(pos, neg)
		for _, p := range pairs {
			if err != nil || p.Positive.Plain == "" || strings.Contains(p.Positive.Plain, "\n") {
				t.Fatalf("%+v, %v", p, err)
			}
		}
	})
}

// What did not fit in memory comes back as what did.
func TestStore(t *testing.T) {
	const layers, width, n = 3, 5, 9
	rnd := rand.New(rand.NewPCG(1, 1))
	s := newStore(layers, width, 2)
	s.limit = 4
	defer s.close()
	var pos, neg [][]float32
	for i := range n {
		p, q := make([]float32, layers*width), make([]float32, layers*width)
		for k := range p {
			p[k], q[k] = rnd.Float32(), rnd.Float32()
		}
		pos, neg = append(pos, p), append(neg, q)
		for k, x := range [][]float32{q, p} { // in any order
			if err := s.put(i, i/2, sideNeg-side(k), widen(x)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if s.file == nil {
		t.Fatal("nothing went to the file: the test shows nothing")
	}
	for l := range layers {
		got, err := s.layer(l)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if !slices.Equal(got.Pos.Row(i), pos[i][l*width:(l+1)*width]) || !slices.Equal(got.Neg.Row(i), neg[i][l*width:(l+1)*width]) || got.Pair[i] != i/2 {
				t.Fatalf("layer %d, sample %d differs", l, i)
			}
		}
	}
}

func TestDefaultPairs(t *testing.T) {
	pairs, err := DefaultPairs(same)
	if err != nil {
		t.Fatal(err)
	}
	if len(pairs) < 60 {
		t.Errorf("%d pairs, want 60 or more", len(pairs))
	}
	seen := map[string]bool{}
	for _, p := range pairs {
		if p.Positive.Plain == p.Negative.Plain || seen[p.Positive.Plain] || seen[p.Negative.Plain] {
			t.Errorf("%s: a text is there twice: %q, %q", p.Where, p.Positive.Plain, p.Negative.Plain)
		}
		seen[p.Positive.Plain], seen[p.Negative.Plain] = true, true
	}
}
