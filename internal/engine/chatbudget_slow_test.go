//go:build slow && cgo && unix

package engine

import (
	"strings"
	"testing"
	"time"

	"gollama/internal/engine/ggml"
)

// longBombs repeat what takes long on a long text x, on a text p of many parts, or on many messages m.
var longBombs = map[string]string{
	"the output":         `{{ x }}{{ p }}`,
	"joined":             `{% set y = x ~ x %}`,
	"compared":           `{% set y = x == x ~ '' %}{% set y = p == x %}`,
	"looked for":         `{% set y = 'Whz' in x %}`,
	"letter case":        `{% set y = x | title %}`,
	"indented":           `{% set y = x | indent %}`,
	"split and joined":   `{% set y = x.split(' ') | join('') %}`,
	"JSON":               `{% set y = m | tojson(indent=3) %}`,
	"as text":            `{% set y = m ~ '' %}`,
	"sorted":             `{% set y = m | sort(attribute='role') %}`,
	"selected":           `{% set y = m | selectattr('content', 'equalto', x) | list %}`,
	"a key":              `{% set y = {x: 1}[x] %}`,
	"a loop with an end": `{% for a in m %}{% if 1 %}{% if 1 %}{% break %}{% endif %}{% endif %}{% endfor %}`,
	"no number":          `{% set y = 'a' | int %}`,
	"a macro":            `{% macro f(a) %}{{ a }}{% endmacro %}{% set y = f(x) %}`,
}

// TestTemplateLongBombs: what a template may use grows with the conversation, and a step takes the same time whatever is
// done: with a conversation of 1 MB each ends after some 10 s of one core, here with room for what else the machine does.
func TestTemplateLongBombs(t *testing.T) {
	long := &ChatInput{Messages: []ChatMessage{user(strings.Repeat("Why <is> the sky blue?\n", 45000))}}
	many := &ChatInput{}
	for range 500 {
		many.Messages = append(many.Messages, user(strings.Repeat("Why <is> the sky blue?\n", 45)), assistant(strings.Repeat("Who knows? ", 90)))
	}
	slowest := time.Duration(0)
	for name, body := range longBombs {
		source := `{% set m = messages %}{% set x = messages[0].content %}{% set n = namespace(p='ab') %}` +
			`{% for i in range(14) %}{% set n.p = n.p ~ n.p %}{% endfor %}{% set p = n.p %}` +
			`{% if x | length > 100 %}{% for i in range(10000) %}{% for j in range(10000) %}` + body + `{% endfor %}{% endfor %}{% endif %}`
		for size, in := range map[string]*ChatInput{"1 message": long, "1,000 messages": many} {
			t.Run(name+", "+size, func(t *testing.T) {
				start := ggml.ProcessorTime()
				_, err := renderOnce(source, in)
				took := ggml.ProcessorTime() - start
				slowest = max(slowest, took)
				t.Logf("%.1f s: %v", took.Seconds(), err)
				if err == nil || !overBudget(err) {
					t.Errorf("%v, want that a limit is met", err)
				}
				if took > 20*time.Second {
					t.Errorf("it took %.1f s", took.Seconds())
				}
			})
		}
	}
	t.Logf("the slowest took %.1f s", slowest.Seconds())
}
