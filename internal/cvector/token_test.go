package cvector

import (
	"slices"
	"testing"
)

func TestTokenMode(t *testing.T) {
	for _, s := range []string{"last", "mean", "all", "span:1", "span:12"} {
		m, err := ParseTokenMode(s)
		if err != nil || m.String() != s {
			t.Errorf("%s: %v, %v", s, m, err)
		}
	}
	for _, s := range []string{"", "first", "span", "span:", "span:0", "span:-1", "span:x"} {
		if _, err := ParseTokenMode(s); err == nil {
			t.Errorf("%q: no error", s)
		}
	}
	count := func(m TokenMode, n int, start bool) (list []int) {
		for i := range n {
			if m.counts(i, n, start) {
				list = append(list, i)
			}
		}
		return list
	}
	for _, tt := range []struct {
		m     TokenMode
		n     int
		start bool
		want  []int
	}{
		{TokenLast, 4, true, []int{3}}, {TokenMean, 3, true, []int{1, 2}}, {TokenMean, 3, false, []int{0, 1, 2}}, {TokenMean, 1, true, []int{0}},
		{TokenMode{tokenSpan, 2}, 4, true, []int{2, 3}}, {TokenMode{tokenSpan, 9}, 2, true, []int{0, 1}}, {TokenAll, 2, true, []int{0, 1}},
	} {
		if got := count(tt.m, tt.n, tt.start); !slices.Equal(got, tt.want) {
			t.Errorf("%s of %d: %v, want %v", tt.m, tt.n, got, tt.want)
		}
	}
}
