//go:build cgo

package engine

import (
	"encoding/json"
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gollama/internal/engine/schematest"
)

// schemaSeed makes other random schemas: -args -schema-seed N.
var schemaSeed = flag.Uint64("schema-seed", 6, "seed of random schemas")

// mutantSchemas is how many TestSchemasMutants makes.
var mutantSchemas = 300

// schemaMutator alters schemas with pieces of others.
type schemaMutator struct {
	*rand.Rand
	pieces []any // all values of all schemas
}

// gather adds a value and what it holds to the pieces.
func (m *schemaMutator) gather(v any) {
	m.pieces = append(m.pieces, v)
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			m.gather(v[k])
		}
	case []any:
		for _, x := range v {
			m.gather(x)
		}
	}
}

// piece is a value of another schema: of the same kind, mostly.
func (m *schemaMutator) piece(like any) any {
	kind := func(v any) string { b, _ := json.Marshal(v); return string(b[:1]) }
	for range 50 {
		p := m.pieces[m.IntN(len(m.pieces))]
		if kind(p) == kind(like) || m.IntN(30) == 0 {
			return p
		}
	}
	return like
}

// alter returns a copy of v with one change in it.
func (m *schemaMutator) alter(v any) any {
	if m.IntN(4) == 0 {
		return m.piece(v)
	}
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			break
		}
		c := maps.Clone(v)
		keys := slices.Sorted(maps.Keys(v))
		k := keys[m.IntN(len(keys))]
		switch other, _ := m.piece(v).(map[string]any); m.IntN(6) {
		case 0:
			delete(c, k)
		case 1, 2:
			for _, k := range slices.Sorted(maps.Keys(other)) {
				if m.IntN(2) == 0 {
					c[k] = other[k]
				}
			}
		default:
			c[k] = m.alter(v[k])
		}
		return c
	case []any:
		if len(v) > 0 {
			c := slices.Clone(v)
			i := m.IntN(len(v))
			c[i] = m.alter(v[i])
			return c
		}
	case float64:
		return v + float64(m.IntN(7)-3)
	}
	return m.piece(v)
}

// TestSchemasMutants: the same as TestSchemas for schemas that are put together of pieces of llama.cpp's own.
func TestSchemasMutants(t *testing.T) {
	m := &schemaMutator{Rand: rand.New(rand.NewPCG(*schemaSeed, uint64(mutantSchemas)))}
	var all []any
	for _, text := range schematest.Pinned(t) {
		var v any
		if json.Unmarshal([]byte(text), &v) == nil {
			all = append(all, v)
			m.gather(v)
		}
	}
	n, wrong := 0, 0
	for range mutantSchemas {
		v := all[m.IntN(len(all))]
		for range 1 + m.IntN(4) {
			v = m.alter(v)
		}
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		refused, err := checkTexts(string(b), 10, m.Rand)
		switch {
		case refused != nil:
		case err != nil && strings.Contains(err.Error(), "the validator does not take it"):
			wrong++ // a keyword with a value of another kind
		case err != nil:
			t.Errorf("%s: %v", b, err)
		default:
			n++
		}
	}
	t.Logf("of %d %d have a grammar, and %d are no schemas and were not refused", mutantSchemas, n, wrong)
	if n < mutantSchemas/10 {
		t.Errorf("%d of %d have a grammar: they are too wild", n, mutantSchemas)
	}
}
