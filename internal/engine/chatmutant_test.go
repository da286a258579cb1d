//go:build cgo

package engine

import (
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// templateMutants is how many TestTemplateMutants makes.
var templateMutants = 300

// templatePiece takes a template apart: blocks, expressions, and the text between.
var templatePiece = regexp.MustCompile(`(?s){%.*?%}|{{.*?}}|{#.*?#}|[^{]+|{`)

// hostilePieces are put between those of real templates.
var hostilePieces = []string{
	`{% set x = messages %}`, `{% set _ = messages.append(messages) %}`, `{% set x = (x, x) %}`, `{% set x = [x, x, x.append] %}`,
	`{% set n = namespace(x=messages) %}`, `{% set n.x = n %}`, `{% set n.x = caller %}`, `{% set x %}`, `{% endset %}`, `{% macro f(a, b=1) %}`,
	`{% endmacro %}`, `{{ f(f, x) }}`, `{{ f() }}`, `{% call f(x) %}`, `{% call(y) f(x) %}`, `{% endcall %}`, `{{ caller(x) }}`, `{% for i in range(7) %}`,
	`{% for a, b in x.items() %}`, `{% for i in x if i %}`, `{% break %}`, `{% continue %}`, `{% endfor %}`, `{% filter indent(3) %}`, `{% endfilter %}`,
	`{% if x is divisibleby(0) %}`, `{% elif x %}`, `{% else %}`, `{% endif %}`, `{{ x | tojson(indent=2) }}`, `{{ x | string | length }}`, `{{ x == n.x }}`,
	`{{ messages | sort(attribute='content') }}`, `{{ [1, 'a', 1.5, '1', x] | sort }}`, `{{ x[::-1] }}`, `{{ x[9:-9:-3] }}`, `{{ x.pop(0) }}`, `{{ messages.pop() }}`,
	`{{ {x: n, n: x} }}`, `{{ x | join(x) }}`, `{{ x.split('') }}`, `{{ (x ~ '').split('a') }}`, `{{ x | replace('a', x) }}`, `{{ '{}{}'.format(x, x) }}`,
	`{{ x | map(attribute='content') | list | first }}`, `{{ x | selectattr('role', 'equalto', x) | list }}`, `{{ n.items() | dictsort }}`, `{{ x | int(base=37) }}`,
	`{{ -9223372036854775807 - 2 }}`, `{{ 9223372036854775808 }}`, `{{ 1 % 0 }}`, `{{ 1 // 0 }}`, `{{ 1.0 / 0 }}`, `{{ x if x else }}`, `{{ f(x=x, *x) }}`, `{{ a.b.c.d }}`,
	`{% set a, b = messages %}`, `{% set messages = x %}`, `{% generation %}`, `{{ loop.index }}`, `{{ strftime_now('%Y%') }}`, `{{ x is in x }}`, `{{ x in messages }}`,
}

// TestTemplateMutants: templates made of pieces of real and of hostile ones do
// not end the process.
func TestTemplateMutants(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, uint64(templateMutants)))
	all := pinnedTemplates(t)
	var sources [][]string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		sources = append(sources, templatePiece.FindAllString(all[name], -1))
	}
	ends := 0
	for range templateMutants {
		source := mutant(sources, rng)
		in := &ChatInput{Messages: []ChatMessage{user("a"), assistant("b"), user("c")}, AddGenerationPrompt: true}
		if rng.IntN(2) == 0 {
			in.Tools = []ChatTool{weather}
		}
		ct, err := NewChatTemplate(nil, ChatTemplateOptions{Source: source})
		if err == nil {
			_, err = ct.Apply(in)
			_ = ct.Close()
		}
		if err == nil {
			ends++
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: not one line", err)
		}
	}
	t.Logf("%d of %d make a prompt", ends, templateMutants)
	if ends < templateMutants/50 {
		t.Errorf("%d of %d mutants make a prompt: they are too wild", ends, templateMutants)
	}
}

// mutant alters a few pieces of one source, or makes a template of hostile ones alone.
func mutant(sources [][]string, rng *rand.Rand) string {
	pick := func(list []string) string { return list[rng.IntN(len(list))] }
	pieces := slices.Clone(sources[rng.IntN(len(sources))])
	if rng.IntN(3) == 0 {
		pieces = []string{pick(hostilePieces)}
	}
	for range 1 + rng.IntN(6) {
		at := rng.IntN(len(pieces))
		switch rng.IntN(5) {
		case 0:
			pieces[at] = pick(hostilePieces)
		case 1:
			pieces = slices.Delete(pieces, at, at+1)
			pieces = append(pieces, "")
		case 2:
			pieces = slices.Insert(pieces, at, pick(sources[rng.IntN(len(sources))]))
		default:
			pieces = slices.Insert(pieces, at, pick(hostilePieces), pick(hostilePieces))
		}
	}
	return strings.Join(pieces, "")
}
