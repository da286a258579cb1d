package tokens

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Stats counts what was encoded.
type Stats struct {
	Documents, Tokens, Bytes int64
	Counts                   []int64 // of each token
}

// Add counts a result.
func (s *Stats) Add(r *Result) {
	s.Documents++
	s.Bytes += int64(len(r.Text))
	s.Tokens += int64(len(r.IDs))
	for _, t := range r.IDs {
		s.Counts[t]++
	}
}

// ranked returns the tokens that were met, the most frequent first.
func (s *Stats) ranked() []Token {
	var list []Token
	for t, n := range s.Counts {
		if n > 0 {
			list = append(list, Token(t))
		}
	}
	slices.SortStableFunc(list, func(a, b Token) int { return cmp.Compare(s.Counts[b], s.Counts[a]) })
	return list
}

// shownFrequent is how many tokens Append lists.
const shownFrequent = 20

// Append appends the numbers as lines of name, tab and value, then the most
// frequent tokens as lines of "token", id, count, share and piece.
func (s *Stats) Append(dst []byte, m *Model) []byte {
	list := s.ranked()
	ratio := func(a, b int64) string {
		if b == 0 {
			return "-"
		}
		return strconv.FormatFloat(float64(a)/float64(b), 'f', 4, 64)
	}
	entropy := 0.0 // bits a token
	for _, t := range list {
		p := float64(s.Counts[t]) / float64(s.Tokens)
		entropy -= p * math.Log2(p)
	}
	dst = fmt.Appendf(dst, "documents\t%d\ntokens\t%d\nbytes\t%d\nbytes_per_token\t%s\ntokens_per_document\t%s\n",
		s.Documents, s.Tokens, s.Bytes, ratio(s.Bytes, s.Tokens), ratio(s.Tokens, s.Documents))
	dst = fmt.Appendf(dst, "entropy_bits\t%.4f\nused\t%d\nunused\t%d\n", entropy, len(list), m.NTokens()-len(list))
	for _, t := range list[:min(len(list), shownFrequent)] {
		dst = fmt.Appendf(dst, "token\t%d\t%d\t%s\t%q\n", t, s.Counts[t], ratio(s.Counts[t], s.Tokens), m.Piece(t))
	}
	return dst
}

// Size and margins of the plot, in pixels.
const (
	plotW, plotH = 720.0, 480.0
	plotMargin   = 60.0
)

// Plot writes rank against frequency, both logarithmic, as an SVG.
func (s *Stats) Plot(w io.Writer, title string) error {
	list := s.ranked()
	most := int64(1)
	if len(list) > 0 {
		most = s.Counts[list[0]]
	}
	xMax, yMax := math.Log10(float64(max(len(list), 10))), math.Log10(float64(max(most, 10)))
	x := func(rank float64) float64 { return plotMargin + math.Log10(rank)/xMax*(plotW-2*plotMargin) }
	y := func(n float64) float64 { return plotH - plotMargin - math.Log10(n)/yMax*(plotH-2*plotMargin) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%g" height="%g" font-family="sans-serif" font-size="12">`+"\n", plotW, plotH)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/><text x="%g" y="24" text-anchor="middle" font-size="14">%s</text>`+"\n", plotW/2, html.EscapeString(title))
	for d := 0; float64(d) <= xMax; d++ {
		v := math.Pow(10, float64(d))
		fmt.Fprintf(&b, `<path d="M%.1f %.1fV%.1f" stroke="#ddd"/><text x="%.1f" y="%.1f" text-anchor="middle">%g</text>`+"\n", x(v), plotMargin, plotH-plotMargin, x(v), plotH-plotMargin+16, v)
	}
	for d := 0; float64(d) <= yMax; d++ {
		v := math.Pow(10, float64(d))
		fmt.Fprintf(&b, `<path d="M%.1f %.1fH%.1f" stroke="#ddd"/><text x="%.1f" y="%.1f" text-anchor="end">%g</text>`+"\n", plotMargin, y(v), plotW-plotMargin, plotMargin-6, y(v)+4, v)
	}
	fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="middle">rank</text><text x="16" y="%g" text-anchor="middle" transform="rotate(-90 16 %g)">occurrences</text>`+"\n", plotW/2, plotH-16, plotH/2, plotH/2)
	b.WriteString(`<polyline fill="none" stroke="#1f5fa8" stroke-width="1.5" points="`)
	lastX := -1.0
	for i, t := range list {
		px := x(float64(i + 1))
		if px-lastX >= 0.5 || i == len(list)-1 { // no more points than can be seen
			fmt.Fprintf(&b, "%.1f,%.1f ", px, y(float64(s.Counts[t])))
			lastX = px
		}
	}
	b.WriteString(`"/>` + "\n</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}
