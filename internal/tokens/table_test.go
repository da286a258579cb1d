package tokens

import "testing"

// Each merge is found by its halves, with the token that it makes, and what is none is not: whether tokens are listed in the
// order of merges or not, and whether bits say first what there is.
func TestRank(t *testing.T) {
	for name, listed := range map[string]bool{"gpt-2": true, "qwen2": true, "llama-bpe": false, "gemma-4": false} {
		tab := open(t, name, Fast).tables
		if (tab.cuts != nil) != listed || (tab.maybe != nil) != (name != "gemma-4") {
			t.Errorf("%s: cuts %v, bits %v: the test does not show what it should", name, tab.cuts != nil, tab.maybe != nil)
		}
		first := map[string]int32{}
		for i, m := range tab.v.merges {
			if _, ok := first[m]; !ok {
				first[m] = int32(i)
			}
		}
		look := func(left, right string) (int32, Token) {
			l, r := []byte(left), []byte(right)
			return tab.rank(tab.hash(l), tab.hash(r), l, r, []byte(left+right))
		}
		none := 0
		for i := 0; i < len(tab.v.merges); i += 7 {
			m := tab.v.merges[i]
			cut := cutMerge(m)
			if cut == 0 {
				continue
			}
			left, right := m[:cut], m[cut+1:]
			joined := []byte(left + right)
			if rank, tok := look(left, right); rank != first[m] || tok != tab.token(tab.hash(joined), joined) {
				t.Fatalf("%s: merge %d, %q: rank %d, token %d", name, i, m, rank, tok)
			}
			// The same text cut elsewhere, and the halves the other way round.
			for _, other := range [][2]string{{right, left}, {left + right[:1], right[1:]}} {
				want, ok := first[other[0]+" "+other[1]]
				if !ok {
					want = -1
					none++
				}
				if rank, _ := look(other[0], other[1]); rank != want {
					t.Fatalf("%s: %q and %q: rank %d, want %d", name, other[0], other[1], rank, want)
				}
			}
		}
		if none < len(tab.v.merges)/14 {
			t.Errorf("%s: %d pairs that are no merges: too few to show anything", name, none)
		}
	}
}
