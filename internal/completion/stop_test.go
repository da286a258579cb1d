package completion

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

// findStop is the oracle: a search of the whole text.
func findStop(text string, stops []string) (before, stop string, ok bool) {
	at := -1
	for _, s := range stops {
		i := strings.Index(text, s)
		if i >= 0 && (at < 0 || i < at || i == at && len(s) < len(stop)) {
			at, stop = i, s
		}
	}
	if at < 0 {
		return text, "", false
	}
	return text[:at], stop, true
}

// checkStops pushes text in pieces and compares with the oracle, and checks
// that nothing comes out that a match could still take back and that the end
// comes as soon as it is certain.
func checkStops(t *testing.T, text string, stops []string, cut func(left int) int) {
	t.Helper()
	m, err := NewStopMatcher(stops)
	if err != nil {
		t.Fatal(err)
	}
	want, wantStop, wantOK := findStop(text, stops)
	longest := 0
	for _, s := range stops {
		longest = max(longest, len(s))
	}
	var got strings.Builder
	var stop string
	var ok bool
	for at := 0; at < len(text) && !ok; {
		n := cut(len(text) - at)
		var out []byte
		out, stop, ok = m.Push([]byte(text[at : at+n]))
		got.Write(out)
		at += n
		if !ok && at-got.Len() > longest {
			t.Errorf("%q in %q: %d bytes held back, want %d at most", stops, text, at-got.Len(), longest)
		}
	}
	if !ok {
		var out []byte
		out, stop, ok = m.Flush()
		got.Write(out)
	}
	if got.String() != want || stop != wantStop || ok != wantOK {
		t.Errorf("%q in %q: got %q, %q, %v, want %q, %q, %v", stops, text, got.String(), stop, ok, want, wantStop, wantOK)
	}
	for range 2 {
		if out, _, ok := m.Push([]byte(text)); len(out) > 0 || ok {
			t.Errorf("after the end: got %q, %v", out, ok)
		}
		m.Flush()
	}
}

func TestStopMatcher(t *testing.T) {
	for _, tt := range []struct {
		text  string
		stops []string
	}{
		{"there was a girl named Lily. She", []string{"Lily"}},
		{"there was a girl named Lily. She", []string{"zzz", "Lily"}},
		{"a little girl", []string{"ittl"}},
		{"xabcdy", []string{"bc", "abcd"}},
		{"xabcxy", []string{"bc", "abcd"}},
		{"xabc", []string{"bc", "abcd"}},
		{"abab", []string{"abab", "ab"}},
		{"aaaaab", []string{"aab"}},
		{"all of it", []string{"all of it"}},
		{"all of i", []string{"all of it"}},
		{"", []string{"a"}},
		{"none", nil},
		{"é日", []string{"\xa9"}},
		{strings.Repeat("a", 3000) + "b", []string{strings.Repeat("a", 2000) + "b"}},
	} {
		for n := 1; n <= 3; n++ {
			checkStops(t, tt.text, tt.stops, func(left int) int { return min(n, left) })
		}
		checkStops(t, tt.text, tt.stops, func(left int) int { return left })
	}
	if _, err := NewStopMatcher([]string{"a", ""}); !errors.Is(err, ErrEmptyStop) {
		t.Errorf("empty: got %v, want %v", err, ErrEmptyStop)
	}
}

// TestStopMatcherRandom uses two letters, so that strings overlap in every way.
func TestStopMatcherRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	word := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = 'a' + byte(r.IntN(2))
		}
		return string(b)
	}
	for range 50000 {
		stops := make([]string, r.IntN(4))
		for i := range stops {
			stops[i] = word(1 + r.IntN(7))
		}
		checkStops(t, word(r.IntN(30)), stops, func(left int) int { return 1 + r.IntN(left) })
		if t.Failed() {
			return
		}
	}
}

func FuzzStopMatcher(f *testing.F) {
	f.Add("xabcdy", "bc", "abcd", uint64(1))
	f.Add("aaaaab", "aab", "", uint64(7))
	f.Fuzz(func(t *testing.T, text, a, b string, seed uint64) {
		var stops []string
		for _, s := range []string{a, b} {
			if s != "" {
				stops = append(stops, s)
			}
		}
		r := rand.New(rand.NewPCG(seed, 0))
		checkStops(t, text, stops, func(left int) int { return 1 + r.IntN(left) })
	})
}

// TestStopMatcherEarly: the end is reported with the byte that makes it certain.
func TestStopMatcherEarly(t *testing.T) {
	for _, tt := range []struct {
		stops []string
		text  string // ends with the byte that decides
	}{
		{[]string{"bc"}, "abc"}, {[]string{"ab", "abcd"}, "xab"}, {[]string{"bc", "abcd"}, "abcx"}, {[]string{"bc", "abcd"}, "abcd"},
	} {
		m, _ := NewStopMatcher(tt.stops)
		for i := range len(tt.text) {
			if _, _, ok := m.Push([]byte{tt.text[i]}); ok != (i == len(tt.text)-1) {
				t.Errorf("%q in %q: after %d bytes got %v", tt.stops, tt.text, i+1, ok)
			}
		}
	}
}

func BenchmarkStopMatcher(b *testing.B) {
	m, _ := NewStopMatcher([]string{"</s>", "\n\nUser:", strings.Repeat("a", 10000) + "b"})
	p := []byte("aaaa")
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		m.Push(p)
	}
}
