package imatrix

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Span is a half-open interval of what a text is made of: tokens, or records.
type Span struct{ From, To int64 }

// Ranges says what was measured of which data, by the hash of it: spans in order that do not touch. It is what keeps
// anything from counting twice.
type Ranges map[string][]Span

// Add puts in a span. The error is an *OverlapError if some of it is there; the ranges then stay as they are.
func (r Ranges) Add(hash string, s Span) error {
	if s.From >= s.To {
		return nil
	}
	list := r[hash]
	i, _ := slices.BinarySearchFunc(list, s.From, func(t Span, from int64) int { return cmp.Compare(t.From, from) })
	for _, k := range []int{i - 1, i} {
		if k >= 0 && k < len(list) && list[k].From < s.To && s.From < list[k].To {
			return &OverlapError{hash, Span{max(list[k].From, s.From), min(list[k].To, s.To)}}
		}
	}
	list = slices.Insert(list, i, s)
	if i+1 < len(list) && list[i].To == list[i+1].From {
		list[i].To = list[i+1].To
		list = slices.Delete(list, i+1, i+2)
	}
	if i > 0 && list[i-1].To == list[i].From {
		list[i-1].To = list[i].To
		list = slices.Delete(list, i, i+1)
	}
	r[hash] = list
	return nil
}

// Has reports whether all of a span is there.
func (r Ranges) Has(hash string, s Span) bool {
	list := r[hash]
	i, ok := slices.BinarySearchFunc(list, s.From, func(t Span, from int64) int { return cmp.Compare(t.From, from) })
	if !ok {
		i--
	}
	return i >= 0 && list[i].From <= s.From && s.To <= list[i].To
}

// OverlapError says that data would count twice.
type OverlapError struct {
	Hash string
	Span Span
}

func (e *OverlapError) Error() string {
	return fmt.Sprintf("%d to %d of data %s would count twice", e.Span.From, e.Span.To-1, e.Hash)
}

// strings returns the form in a file: "HASH:FROM-TO,FROM-TO" with the first and the last of each span, by hash.
func (r Ranges) strings() []string {
	list := []string{}
	for _, hash := range slices.Sorted(maps.Keys(r)) {
		var b strings.Builder
		for i, s := range r[hash] {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "%d-%d", s.From, s.To-1)
		}
		list = append(list, hash+":"+b.String())
	}
	return list
}

func parseRanges(list []string) (Ranges, error) {
	r := Ranges{}
	for _, text := range list {
		hash, spans, ok := strings.Cut(text, ":")
		if !ok || hash == "" {
			return nil, fmt.Errorf("%.60q: want HASH:FROM-TO and more such spans with commas between", text)
		}
		if r[hash] != nil {
			return nil, fmt.Errorf("data %.60q is there twice", hash)
		}
		last := int64(-1)
		for span := range strings.SplitSeq(spans, ",") {
			a, b, ok := strings.Cut(span, "-")
			from, err := strconv.ParseUint(a, 10, 62)
			to, err2 := strconv.ParseUint(b, 10, 62)
			if !ok || err != nil || err2 != nil || from > to || int64(from) <= last {
				return nil, fmt.Errorf("%.60q: want FROM-TO, after the one before", span)
			}
			last = int64(to)
			if err := r.Add(hash, Span{int64(from), int64(to) + 1}); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}
