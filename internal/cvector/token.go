package cvector

import (
	"fmt"
	"strconv"
	"strings"
)

// TokenMode says which tokens of a text count.
type TokenMode struct {
	kind tokenKind
	n    int // of span
}

type tokenKind int

const (
	tokenLast tokenKind = iota
	tokenMean
	tokenAll
	tokenSpan
)

// The modes that have no number.
var (
	TokenLast = TokenMode{kind: tokenLast} // the last one
	TokenMean = TokenMode{kind: tokenMean} // the mean of all, but for one that only marks the start
	TokenAll  = TokenMode{kind: tokenAll}  // each by itself: those of the two sides at one place make a sample
)

// ParseTokenMode reads last, mean, all or span:N, the mean of the last N.
func ParseTokenMode(s string) (TokenMode, error) {
	for _, m := range []TokenMode{TokenLast, TokenMean, TokenAll} {
		if s == m.String() {
			return m, nil
		}
	}
	if num, ok := strings.CutPrefix(s, "span:"); ok {
		n, err := strconv.Atoi(num)
		if err == nil && n >= 1 && n <= 1<<20 {
			return TokenMode{tokenSpan, n}, nil
		}
	}
	return TokenMode{}, fmt.Errorf("unknown value %q, want last, mean, all or span:N with N from 1 on", s)
}

func (m TokenMode) String() string {
	switch m.kind {
	case tokenMean:
		return "mean"
	case tokenAll:
		return "all"
	case tokenSpan:
		return fmt.Sprintf("span:%d", m.n)
	}
	return "last"
}

// counts says whether token i of n counts; start says that the first one only marks the start.
func (m TokenMode) counts(i, n int, start bool) bool {
	switch m.kind {
	case tokenLast:
		return i == n-1
	case tokenSpan:
		return i >= n-m.n
	case tokenMean:
		return i > 0 || !start || n == 1
	}
	return true
}
