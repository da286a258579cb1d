package engine

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
)

// maxExclusions bounds the work on one schema: where more would be needed, its
// alternatives count as not exclusive.
const maxExclusions = 100_000

// checkOneOf refuses alternatives of which two may be valid at once: a grammar
// writes one of them and cannot know the others.
func (n *schemaNormalizer) checkOneOf(alts []any, path string) error {
	e := exclusion{n: n}
	for i, a := range alts {
		for j, b := range alts {
			if i != j && !e.excludes(a.(*jsonObject), b.(*jsonObject), 0) {
				return fmt.Errorf("%s: what is valid by alternative %d may be so by %d too, which a grammar cannot exclude; anyOf would allow it",
					path, i, j)
			}
		}
	}
	return nil
}

type exclusion struct {
	n    *schemaNormalizer
	done int
}

// excludes reports whether no text of the grammar for a is valid by b, both in
// normal form. It says so only where that is certain.
func (e *exclusion) excludes(a, b *jsonObject, depth int) bool {
	if e.done++; e.done > maxExclusions || depth > 16 {
		return false
	}
	a, b = e.n.target(a), e.n.target(b)
	if alts, ok := a.m["anyOf"].([]any); ok {
		return !slices.ContainsFunc(alts, func(x any) bool { return !e.excludes(x.(*jsonObject), b, depth+1) })
	}
	if alts, ok := b.m["anyOf"].([]any); ok {
		return !slices.ContainsFunc(alts, func(x any) bool { return !e.excludes(a, x.(*jsonObject), depth+1) })
	}
	if values, ok := a.m["enum"].([]any); ok {
		return !slices.ContainsFunc(values, func(v any) bool { return b.untyped || mayBe(v, b) })
	}
	s, t := a.m["type"], b.m["type"]
	if values, ok := b.m["enum"].([]any); ok {
		return s != nil && !slices.ContainsFunc(values, func(v any) bool { return mayBe(v, a) })
	}
	switch {
	case s == nil || t == nil:
		return false
	case s == "integer" && t == "integer":
		return outside(a, b)
	case s == "object" && t == "object":
		return e.excludesObject(a, b, depth)
	}
	return !b.untyped && !ofType(s.(string), t.(string)) && !ofType(t.(string), s.(string))
}

// mayBe reports whether the value v may be one of s, which is no anyOf.
func mayBe(v any, s *jsonObject) bool {
	if values, ok := s.m["enum"].([]any); ok {
		return slices.ContainsFunc(values, func(w any) bool { return canonical(v) == canonical(w) })
	}
	t, ok := s.m["type"].(string)
	return !ok || ofType(jsonType(v), t)
}

// outside reports whether no integer that is written for a is within the bounds
// of b, of which those that normalInteger sets where the source has none do not
// count.
func outside(a, b *jsonObject) bool {
	limit := func(s *jsonObject, key string) *big.Int {
		n, ok := s.m[key].(json.Number)
		v, isInt := new(big.Int).SetString(string(n), 10)
		if !ok || !isInt || s == b && v.CmpAbs(big.NewInt(mostDigits)) >= 0 {
			return nil
		}
		return v
	}
	low, high := limit(a, "minimum"), limit(a, "maximum")
	least, most := limit(b, "minimum"), limit(b, "maximum")
	return high != nil && least != nil && high.Cmp(least) < 0 || low != nil && most != nil && low.Cmp(most) > 0
}

// excludesObject: objects of a never have a property that b asks for, or always
// have one that b does not allow, or one whose values b does not allow.
func (e *exclusion) excludesObject(a, b *jsonObject, depth int) bool {
	p, _ := a.m["properties"].(*jsonObject)
	q, _ := b.m["properties"].(*jsonObject)
	if p == nil {
		p = newObject()
	}
	if q == nil {
		q = newObject()
	}
	more := a.m["additionalProperties"]
	closed := more == false || more == nil && a.has("properties")
	asked, _ := b.m["required"].([]any)
	for _, v := range asked {
		if name, _ := v.(string); closed && !p.has(name) {
			return true
		}
	}
	always, _ := a.m["required"].([]any)
	for _, v := range always {
		name, _ := v.(string)
		theirs, ok := q.m[name].(*jsonObject)
		if !ok {
			if b.m["additionalProperties"] == false {
				return true
			}
			continue
		}
		if e.excludes(p.m[name].(*jsonObject), theirs, depth+1) {
			return true
		}
	}
	return false
}
