//go:build cgo

package engine

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gollama/internal/engine/ggml"
)

// bombs are templates that recurse or loop without end, or make something huge.
var bombs = map[string]string{
	"a macro that calls itself":      `{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}`,
	"two macros":                     `{% macro f(x) %}a{{ g(x + 1) }}{% endmacro %}{% macro g(x) %}{{ f(x) ~ 'b' }}{% endmacro %}{{ f(1) }}`,
	"a macro that sets":              `{% macro f(x) %}{% set y = f(x) %}{% endmacro %}{{ f(1) }}`,
	"a caller":                       `{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{% call f() %}a{% endcall %}`,
	"a default":                      `{% macro f(x=f()) %}{% endmacro %}{{ f() }}`,
	"macros that branch":             `{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}`,
	"strftime_now and a macro":       `{% macro f(x) %}{{ strftime_now('%d') }}{{ f(x) }}{% endmacro %}{{ f(1) }}`,
	"a range":                        `{% for i in range(1000000000000) %}a{% endfor %}`,
	"a range that steps":             `{{ range(0, -9223372036854775807, -1) | length }}`,
	"loops in loops":                 `{% for a in range(1000) %}{% for b in range(1000) %}{% for c in range(1000) %}{% for d in range(1000) %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}`,
	"a loop that filters":            `{% for a in range(1000) %}{% for b in range(100000) if b > 100000 %}{% endfor %}{% endfor %}`,
	"a text that is repeated":        `{{ 'abc' * 1000000000000 }}`,
	"an empty text that is repeated": `{{ '' * 9000000000000000000 }}`,
	"nothing that is repeated":       `{% set x %}{% endset %}{{ x * 9000000000000000000 }}`,
	"a text that doubles":            `{% set n = namespace(x='abcdefgh') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x | length }}`,
	"a list that doubles":            `{% set n = namespace(x=['a']) %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}{{ n.x | tojson }}`,
	"a text that is replaced":        `{% set n = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set n.x = n.x | replace('a', 'aaaaaaaa') %}{% endfor %}{{ n.x }}`,
	"between all letters":            `{% set n = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set n.x = n.x | replace('', n.x) %}{% endfor %}{{ n.x }}`,
	"joined":                         `{% set x = 'a' * 500000 %}{% set l = [] %}{% for i in range(50000) %}{% set _ = l.append(x) %}{% endfor %}{{ l | join(x) | length }}`,
	"formatted":                      `{% set n = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set n.x = '{}{}{}'.format(n.x, n.x, n.x) %}{% endfor %}`,
	"indented":                       `{{ ('a\n' * 1000) | indent(1000000000) }}`,
	"indented by a text":             `{% set n = namespace(x='a\nb') %}{% for i in range(60) %}{% set n.x = n.x | indent(n.x) %}{% endfor %}`,
	"JSON indented":                  `{{ [[1, 2], [3, 4]] | tojson(indent=2000000000) }}`,
	"split and split":                `{% set x = 'ab' * 100000 %}{% for i in range(100000) %}{% set y = x.split('b') %}{% endfor %}`,
	"trimmed":                        `{% set x = 'a' * 5000000 %}{% set y = 'b' * 5000000 ~ 'a' %}{{ x | trim(y) | length }}`,
	"looked for":                     `{% set x = 'a' * 5000000 %}{% set y = 'a' * 2000000 ~ 'b' %}{{ y in x }}`,
	"looked for in a list":           `{% set r = range(100000) %}{% for i in r %}{% if 'z' in r %}{% endif %}{% endfor %}`,
	"parts that are trimmed":         `{{ ('' * 500000 ~ 'a') | trim }}`,
	"lists shared, as JSON":          doubling(`[n.x, n.x]`, `{{ n.x | tojson }}`),
	"lists shared, as text":          doubling(`[n.x, n.x]`, `{{ n.x | string }}`),
	"lists shared, as output":        doubling(`[n.x, n.x]`, `{{ n.x }}`),
	"tuples shared, compared":        doubling(`(n.x, n.x)`, `{{ n.x == n.x }}`),
	"tuples shared, a key":           doubling(`(n.x, n.x)`, `{{ {n.x: 1} }}`),
	"objects shared":                 doubling(`{'a': n.x, 'b': n.x}`, `{{ n.x | tojson }}`),
	"lists in lists":                 `{% set n = namespace(x=[]) %}{% for i in range(100000) %}{% for j in range(100) %}{% set n.x = [n.x] %}{% endfor %}{% endfor %}{{ n.x | tojson }}`,
	"a list in itself":               `{% set x = [] %}{% set y = x.append(x) %}{{ x | tojson }}`,
	"a list in itself, as text":      `{% set x = [] %}{% set y = x.append(x) %}{{ x | string }}`,
	"a list in itself, as output":    `{% set x = [] %}{% set y = x.append(x) %}{{ x }}`,
	"a namespace in itself":          `{% set x = namespace() %}{% set x.x = x %}{{ x | tojson }}`,
	"parentheses":                    `{{ ` + strings.Repeat("(", 50000) + `1` + strings.Repeat(")", 50000) + ` }}`,
	"open parentheses":               `{{ ` + strings.Repeat("(", 50000),
	"brackets":                       `{{ ` + strings.Repeat("[", 50000) + strings.Repeat("]", 50000) + ` }}`,
	"braces":                         `{{ ` + strings.Repeat("{1:", 50000) + strings.Repeat("}", 50000) + ` }}`,
	"not not":                        `{{ ` + strings.Repeat("not ", 50000) + `1 }}`,
	"minus minus":                    `{{ ` + strings.Repeat("- ", 50000) + `1 }}`,
	"choices":                        `{{ ` + strings.Repeat("1 if 0 else ", 50000) + `1 }}`,
	"sums":                           `{{ 1` + strings.Repeat(" + 1", 260000) + ` }}`,
	"filters":                        `{{ 'a'` + strings.Repeat("|trim", 260000) + ` }}`,
	"members":                        `{{ a` + strings.Repeat("['a']", 260000) + ` }}`,
	"calls":                          `{{ a` + strings.Repeat("()", 510000) + ` }}`,
	"blocks":                         strings.Repeat(`{% if 1 %}`, 50000) + strings.Repeat(`{% endif %}`, 50000),
	"else if":                        `{% if 0 %}` + strings.Repeat(`{% elif 0 %}`, 50000) + `{% endif %}`,
	"loops":                          strings.Repeat(`{% for a in [1] %}`, 50000) + strings.Repeat(`{% endfor %}`, 50000),
	"filter blocks":                  strings.Repeat(`{% filter trim %}`, 50000) + strings.Repeat(`{% endfilter %}`, 50000),
	"set blocks":                     strings.Repeat(`{% set a %}`, 50000) + strings.Repeat(`{% endset %}`, 50000),
	"many parts":                     strings.Repeat(`{{ a }}`, 600000),
	"markers":                        `{% for i in range(100000) %}<>{% endfor %}`,
	"include":                        `{% include '/etc/passwd' %}`,
	"import":                         `{% import '/etc/passwd' as p %}{{ p }}`,
	"extends":                        `{% extends '/etc/passwd' %}`,
	"divided by nothing":             `{{ 1 is divisibleby(0) }}`,
}

// doubling is a template whose n.x holds itself as x says, 60 times, and then what end says.
func doubling(x, end string) string {
	return `{% set n = namespace(x=1) %}{% for i in range(60) %}{% set n.x = ` + x + ` %}{% endfor %}` + end
}

// slowBombs take seconds: they meet the limit of steps. TestTemplateBombs runs them with -tags slow alone.
var slowBombs = []string{"a loop that filters", "looked for in a list", "loops in loops", "lists shared, as JSON", "lists shared, as text", "objects shared",
	"macros that branch", "parts that are trimmed", "tuples shared, compared"}

var runSlowBombs = false

// oddities come to an end.
var oddities = map[string]string{
	"no overflow":            `{{ range(0, 9223372036854775807, 9223372036854775806) | length }}{{ [1, 2, 3][1:3:9223372036854775807] }}`,
	"the largest by -1":      `{{ (-9223372036854775807 - 1) is divisibleby(-1) }}`,
	"an order that is none":  `{{ (` + strings.Repeat("[10, '5', 9, 'a', 1.5, '77', 3] + ", 40) + `[]) | sort | length }}`,
	"line ends":              strings.Repeat("\r\n", 1000000) + "\r",
	"a chain of functions":   `{% set n = namespace(x=[]) %}{% for i in range(1000) %}{% set n.x = [n.x.append] %}{% endfor %}`,
	"a chain of namespaces":  `{% set n = namespace(x=1) %}{% for i in range(1000) %}{% set n.x = namespace(a=n.x) %}{% endfor %}`,
	"a chain of lists":       `{% set n = namespace(x=[]) %}{% for i in range(2000) %}{% set n.x = [n.x] %}{% endfor %}{% set n.x = 1 %}`,
	"a chain of callers":     `{% set n = namespace(x=1) %}{% macro m() %}{% set n.x = caller %}{% endmacro %}{% for i in range(500) %}{% call m() %}{% endcall %}{% endfor %}`,
	"a list equal to itself": `{% set x = [] %}{% set y = x.append(x) %}{{ x == x }}`,
}

// TestTemplateBombs: a template that does not come to an end, or would fill the
// memory, is an error of one line, soon; other templates do not notice.
func TestTemplateBombs(t *testing.T) {
	in := &ChatInput{Messages: []ChatMessage{user("a")}, AddGenerationPrompt: true}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			if text, err := renderOnce(`{{ messages[0].content }}`, in); err != nil || text != "a" {
				t.Errorf("beside a bomb: %q, %v", text, err)
				return
			}
		}
	}()
	slowest := time.Duration(0)
	for name, source := range bombs {
		if !runSlowBombs && slices.Contains(slowBombs, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			text, err := renderOnce(source, in)
			took := time.Since(start)
			slowest = max(slowest, took)
			t.Logf("%.2f s: %.80q, %v", took.Seconds(), text, err)
			if err == nil {
				t.Errorf("%.80q, want an error", text)
			} else if len(err.Error()) > 200 || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: not one short line", err)
			}
		})
	}
	for name, source := range oddities {
		t.Run(name, func(t *testing.T) {
			if text, err := renderOnce(source, in); err != nil {
				t.Errorf("%.80q, %v", text, err)
			}
		})
	}
	close(stop)
	wg.Wait()
	t.Logf("the slowest took %.1f s, the most memory was %d MiB", slowest.Seconds(), memoryPeak(t)>>20)
	if peak := memoryPeak(t); peak > 1<<30 && !asan {
		t.Errorf("%d MiB of memory, want at most 1024", peak>>20)
	}
}

// memoryPeak is the most that the process has held, in bytes; 0 where that is not told.
func memoryPeak(t *testing.T) int64 {
	peak := ggml.ProcessMemory("VmHWM")
	if peak == 0 && runtime.GOOS == "linux" {
		t.Fatal("no VmHWM")
	}
	return peak
}

// TestTemplateCycles: values that hold each other are freed.
func TestTemplateCycles(t *testing.T) {
	in := &ChatInput{Messages: []ChatMessage{user("a")}}
	// 4096 parts of a text, some 300 kB
	const text = `{% set n = namespace(a='abcdefgh') %}{% for i in range(12) %}{% set n.a = n.a ~ n.a %}{% endfor %}`
	for _, source := range []string{
		`{% set x = [n.a] %}{% set y = x.append(x) %}`,
		`{% set n.x = n %}`,
		`{% macro m() %}{% set n.x = caller %}{% endmacro %}{% call m() %}{% endcall %}`,
		`{% set x = [n.a] %}{% set y = x.append(x.append) %}{% set z = x.append([namespace(a=x)]) %}{{ raise_exception('no') }}`,
	} {
		before := memoryPeak(t)
		for range 30 {
			_, _ = renderOnce(text+source, in) // each of dozens of passes would leave a text or more
		}
		if grown := memoryPeak(t) - before; grown > 64<<20 && !asan {
			t.Errorf("%s: %d MiB are left", source, grown>>20)
		}
	}
}

func renderOnce(source string, in *ChatInput) (string, error) {
	ct, err := NewChatTemplate(nil, ChatTemplateOptions{Source: source})
	if err != nil {
		return "", err
	}
	p, err := ct.Render(in)
	if err != nil {
		_ = ct.Close()
		return "", err
	}
	return p.Text, ct.Close()
}

// FuzzChatTemplate: no template ends the process.
func FuzzChatTemplate(f *testing.F) {
	for _, source := range pinnedTemplates(f) {
		f.Add(source)
	}
	for name, source := range bombs {
		if len(source) < 1000 && !slices.Contains(slowBombs, name) {
			f.Add(source)
		}
	}
	in := &ChatInput{Messages: []ChatMessage{user("a"), assistant("b"), user("c")}, AddGenerationPrompt: true}
	f.Fuzz(func(_ *testing.T, source string) {
		_, _ = renderOnce(source, in)
	})
}

// manyShapes are conversations that templates need many steps for: of few long messages, and of many short ones, with tool
// calls and without.
var manyShapes = []struct {
	name  string
	n     int // messages
	size  int // bytes of each
	tools int // that there are, of ten parameters each
}{{"short", 3, 10, 0}, {"short, tools", 3, 10, 1}, {"long", 21, 10000, 0}, {"long, tools", 21, 10000, 1}, {"many", manyTurns, 100, 0},
	{"many, tools", manyTurns, 100, 1}, {"many tools", 3, 10, 20}}

// shaped makes a conversation of n messages of size bytes each, the last of them a user's or a tool's.
func shaped(n, size, tools int) *ChatInput {
	in := &ChatInput{AddGenerationPrompt: true}
	text := strings.Repeat("Why <is> it so?\n", size/16+1)[:size]
	in.Messages = append(in.Messages, user(text))
	for i := range tools {
		var props []string
		for k := range 10 {
			props = append(props, fmt.Sprintf(`"p%d":{"type":"string","description":"one of them","enum":["a","b","c"]}`, k))
		}
		in.Tools = append(in.Tools, ChatTool{Name: fmt.Sprintf("f%d", i), Description: "does it",
			Parameters: []byte(`{"type":"object","properties":{` + strings.Join(props, ",") + `},"required":["p0","p1"]}`)})
	}
	for len(in.Messages) < n {
		if tools > 0 {
			call := ToolCall{ID: "call12345", Name: "f0", Arguments: `{"p0":"` + strings.Repeat("b", size) + `"}`}
			in.Messages = append(in.Messages, ChatMessage{Role: "assistant", ToolCalls: []ToolCall{call}}, ChatMessage{Role: "tool", ToolCallID: call.ID, Name: "f0", Content: text})
			continue
		}
		in.Messages = append(in.Messages, assistant(text), user(text))
	}
	return in
}

// TestTemplateSteps: each of llama.cpp's templates takes at most half of the steps that it may, whatever the shape of the
// conversation.
func TestTemplateSteps(t *testing.T) {
	for _, shape := range manyShapes {
		in := shaped(shape.n, shape.size, shape.tools)
		most, which, of, n := 0, "", 0, 0
		for name, source := range pinnedTemplates(t) {
			apply := openTemplate(t, nil, source).Render
			if shape.name == "short" {
				apply = openTemplate(t, nil, source).Apply // which makes the parser of the answer, too
			}
			_, err := apply(in)
			if err != nil && !overBudget(err) {
				continue // it refuses such a conversation
			}
			n++
			taken, allowed := templateSteps()
			if err != nil || 2*taken > allowed {
				t.Errorf("%s, %s: %d steps of %d, %v", name, shape.name, taken, allowed, err)
			}
			if taken > most {
				most, which, of = taken, name, allowed
			}
		}
		if n == 0 {
			t.Errorf("%s: no template writes it", shape.name)
		}
		t.Logf("%s: at most %.1f of %.0f million steps (%s), %d templates", shape.name, float64(most)/1e6, float64(of)/1e6, which, n)
	}
}

// longTurns is how many TestTemplateBudget has, of 2 kB.
var longTurns = 40

// manyTurns is how many messages a conversation of many has.
const manyTurns = 151

// TestTemplateBudget: a long conversation is no bomb.
func TestTemplateBudget(t *testing.T) {
	in := &ChatInput{AddGenerationPrompt: true, Messages: []ChatMessage{{Role: "system", Content: strings.Repeat("Be good. ", 2000)}}}
	for range longTurns {
		in.Messages = append(in.Messages, user(strings.Repeat("Why <is> the sky blue?\n", 40)), assistant(strings.Repeat("Who knows. ", 90)))
	}
	in.Messages = append(in.Messages, user("a"))
	n := 0
	for name, source := range pinnedTemplates(t) {
		_, err := openTemplate(t, nil, source).Render(in)
		if err != nil && overBudget(err) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			n++
		}
	}
	if n == 0 {
		t.Error("no template writes the conversation")
	}
	t.Logf("%d templates", n)
}

// overBudget reports whether err is one of shim_budget.cpp's.
func overBudget(err error) bool {
	for _, s := range []string{"has not come to an end", "MiB of memory", "without end", "parts", "for a message of one word"} {
		if strings.Contains(err.Error(), s) {
			return true
		}
	}
	return false
}
