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

// stepTime is what a step takes at most: 10 to 20 ns of one core, with room for what else the machine does.
const stepTime = 60 * time.Nanosecond

// TestTemplateLongBombs: what a template may use grows with the conversation, and a step takes the same time whatever is
// done, so that with a conversation of 1 MB each ends after a few seconds.
func TestTemplateLongBombs(t *testing.T) {
	long := &ChatInput{Messages: []ChatMessage{user(strings.Repeat("Why <is> the sky blue?\n", 45000))}}
	many := &ChatInput{}
	for range 100 {
		many.Messages = append(many.Messages, user(strings.Repeat("Why <is> the sky blue?\n", 225)), assistant(strings.Repeat("Who knows? ", 450)))
	}
	slowest := time.Duration(0)
	for name, body := range longBombs {
		source := `{% set m = messages %}{% set x = messages[0].content %}{% set n = namespace(p='ab') %}` +
			`{% for i in range(14) %}{% set n.p = n.p ~ n.p %}{% endfor %}{% set p = n.p %}` +
			`{% if x | length > 100 %}{% for i in range(10000) %}{% for j in range(10000) %}` + body + `{% endfor %}{% endfor %}{% endif %}`
		for size, in := range map[string]*ChatInput{"1 message": long, "200 messages": many} {
			t.Run(name+", "+size, func(t *testing.T) {
				start := ggml.ProcessorTime()
				_, err := renderOnce(source, in)
				took := ggml.ProcessorTime() - start
				slowest = max(slowest, took)
				t.Logf("%.1f s: %v", took.Seconds(), err)
				if err == nil || !overBudget(err) {
					t.Errorf("%v, want that a limit is met", err)
				}
				if taken, _ := templateSteps(); took > time.Duration(taken)*stepTime {
					t.Errorf("%d steps took %.1f s", taken, took.Seconds())
				}
			})
		}
	}
	t.Logf("the slowest took %.1f s", slowest.Seconds())
}

// TestTemplateThousandTurns: a long talk in short turns is no bomb, though gemma-4's template goes through all messages for each.
func TestTemplateThousandTurns(t *testing.T) {
	source := pinnedTemplates(t)["google-gemma-4-31B-it"]
	if source == "" {
		t.Fatal("no template of gemma-4")
	}
	start := ggml.ProcessorTime()
	p, err := openTemplate(t, nil, source).Render(shaped(1001, 200, 0))
	taken, allowed := templateSteps()
	if err != nil || strings.Count(p.Text, "<|turn>user\n") != 501 || 2*taken > allowed {
		t.Errorf("%d steps of %d, %v", taken, allowed, err)
	}
	t.Logf("%d steps of %d in %.1f s", taken, allowed, (ggml.ProcessorTime() - start).Seconds())
}
