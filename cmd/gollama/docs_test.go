package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// update writes what the pages should hold: go test ./cmd/gollama -run TestDocs -update.
var update = flag.Bool("update", false, "write the flag tables and the outputs into README.md and docs")

// docFiles returns the README and the pages of docs, which may be empty.
func docFiles(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{"../../README.md"}, pages...)
}

// compareDoc fails, or with -update writes, if a page is not as it should be.
func compareDoc(t *testing.T, path string, got, want []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	if *update {
		if err := os.WriteFile(path, want, 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	g, w := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
	for i := range w {
		if i >= len(g) || g[i] != w[i] {
			shown := "(nothing)"
			if i < len(g) {
				shown = g[i]
			}
			t.Errorf("%s:%d:\n  it says %s\n  it is   %s\n(-update writes what it is)", path, i+1, shown, w[i])
			return
		}
	}
	t.Errorf("%s:%d: more lines than there should be", path, len(w))
}

var flagTables = regexp.MustCompile(`(?s)(<!-- flags ([a-z-]+) -->\n).*?(<!-- end -->)`)

// TestDocsFlags compares the tables of flags in the pages with the flag table.
// Each subcommand that does work has one.
func TestDocsFlags(t *testing.T) {
	found := map[string]bool{}
	for _, path := range docFiles(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want := flagTables.ReplaceAllFunc(text, func(b []byte) []byte {
			m := flagTables.FindSubmatch(b)
			name := string(m[2])
			if findCommand(name) == nil {
				t.Errorf("%s: there is no subcommand %s", path, name)
				return b
			}
			found[name] = true
			return slices.Concat(m[1], []byte(flagMarkdown(name)), m[3])
		})
		compareDoc(t, path, text, want)
	}
	for _, c := range commands() {
		if !c.noConfig && !found[c.name] {
			t.Errorf("no page in docs has a table of the flags of %s: write <!-- flags %[1]s --> and <!-- end -->", c.name)
		}
	}
}

var upstreamTables = regexp.MustCompile(`(?s)(<!-- upstream ([a-z-]+) -->\n).*?(<!-- end -->)`)

// TestDocsUpstream compares the lists of llama.cpp's flags with its sources and the flag table.
func TestDocsUpstream(t *testing.T) {
	source := upstreamSource(t)
	const path = "../../docs/from-llama.cpp.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	want := upstreamTables.ReplaceAllFunc(text, func(b []byte) []byte {
		m := upstreamTables.FindSubmatch(b)
		cmd := string(m[2])
		found[cmd] = true
		return slices.Concat(m[1], []byte(upstreamMarkdown(t, cmd, upstreamFlags(source, upstreamTools[cmd]))), m[3])
	})
	compareDoc(t, path, text, want)
	for cmd := range upstreamTools {
		if !found[cmd] {
			t.Errorf("%s does not list the flags for %s: write <!-- upstream %[2]s --> and <!-- end -->", path, cmd)
		}
	}
}

// upstreamMarkdown lists the flags of an upstream tool that cmd takes, and below them those that it refuses, by the reason.
func upstreamMarkdown(t *testing.T, cmd string, flags [][]string) string {
	var reasons []string
	refused := map[string][]string{"": nil} // by the reason; "" holds what is taken
	for _, names := range flags {
		spelled := map[string][]string{} // by the reason
		for _, n := range names {
			why := upstreamHint(t, cmd, n)
			spelled[why] = append(spelled[why], "`"+n+"`")
			if why != "" && !slices.Contains(reasons, why) {
				reasons = append(reasons, why)
			}
		}
		for why, n := range spelled {
			refused[why] = append(refused[why], strings.Join(n, ", "))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Taken: %s.\n\n| refused | why |\n|---|---|\n", strings.Join(refused[""], "; "))
	for _, why := range reasons {
		fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(refused[why], "; "), strings.ReplaceAll(why, "|", `\|`))
	}
	return b.String()
}

// flagMarkdown lists the flags of a subcommand, a table for each section.
func flagMarkdown(cmd string) string {
	var b strings.Builder
	cell := strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`)
	for _, g := range groups {
		rows := groupRows(cmd, g)
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n### %s\n\n| flag | what it does | default |\n|---|---|---|\n", g)
		for _, f := range rows {
			names := flagNames(f)
			for i, n := range names {
				names[i] = "`" + n + "`"
			}
			if f.arg != "" {
				names[len(names)-1] += " " + cell.Replace(f.arg)
			}
			text := helpText(findCommand(cmd), f)
			if f.env != "" {
				text += " (" + f.env + ")"
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", strings.Join(names, ", "), cell.Replace(text), cell.Replace(defaultText(findCommand(cmd), f)))
		}
	}
	return b.String() + "\n"
}

// usesJQ finds jq at the beginning of a command.
var usesJQ = regexp.MustCompile(`(?m)(^\$|\|) jq `)

// TestDocsExamples runs the console blocks of the pages, each page in a folder
// of its own with the built-in model, and compares what comes with what the
// page says. A line "..." in a page stands for any lines; a status other
// than 0 is the last line, in brackets.
func TestDocsExamples(t *testing.T) {
	if !hasEngine() {
		t.Skip("no engine")
	}
	for _, path := range docFiles(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(path), ".md"), func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath("jq"); err != nil && usesJQ.Match(text) {
				t.Skip("no jq, which this page uses: make setup installs it")
			}
			dir := t.TempDir()
			compareDoc(t, path, text, runPage(string(text), func(command string) string {
				return runExample(t, dir, command)
			}))
		})
	}
}

// runPage returns a page with the outputs that run gives for its commands.
func runPage(text string, run func(string) string) []byte {
	var b bytes.Buffer
	lines := strings.SplitAfter(text, "\n")
	for i := 0; i < len(lines); {
		line := lines[i]
		i++
		b.WriteString(line)
		if line != "```console\n" {
			continue
		}
		for i < len(lines) && strings.HasPrefix(lines[i], "$ ") {
			command := strings.TrimPrefix(lines[i], "$ ")
			b.WriteString(lines[i])
			for i++; i < len(lines) && strings.HasPrefix(lines[i], "> "); i++ {
				command += strings.TrimPrefix(lines[i], "> ")
				b.WriteString(lines[i])
			}
			start := i
			for i < len(lines) && !strings.HasPrefix(lines[i], "$ ") && lines[i] != "```\n" {
				i++
			}
			said := strings.Join(lines[start:i], "")
			got := run(command)
			if matches(said, got) {
				got = said
			}
			b.WriteString(got)
		}
	}
	return b.Bytes()
}

// matches compares an output with what a page says.
func matches(said, got string) bool {
	parts := strings.Split("\n"+said, "\n...\n")
	for i, p := range parts {
		parts[i] = regexp.QuoteMeta(p)
	}
	return regexp.MustCompile(`\A` + strings.Join(parts, `(?s:\n.*\n|\n)`) + `\z`).MatchString("\n" + got)
}

// runExample runs a command line and returns what a terminal would show.
func runExample(t *testing.T, dir, command string) string {
	t.Helper()
	out, err := bash(t, dir, command, "LC_ALL=C.UTF-8").CombinedOutput()
	text := string(out)
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	var status *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &status):
		text += fmt.Sprintf("[%d]\n", status.ExitCode())
	default:
		t.Fatalf("%s: %v", command, err)
	}
	return text
}

// The runner itself: what it takes for a command, and what for its output.
func TestRunPage(t *testing.T) {
	page := "text\n```console\n$ one\nold\n$ two \\\n> more\nfirst\n...\nlast\n```\n$ not a command\n"
	var ran []string
	got := string(runPage(page, func(c string) string {
		ran = append(ran, c)
		return map[string]string{"one\n": "new\n", "two \\\nmore\n": "first\na\nb\nlast\n"}[c]
	}))
	if want := strings.Replace(page, "old", "new", 1); got != want {
		t.Errorf("the page is %q, want %q", got, want)
	}
	if len(ran) != 2 {
		t.Errorf("ran %q, want two commands", ran)
	}
	for _, c := range []struct {
		said, got string
		want      bool
	}{
		{"a\n", "a\n", true}, {"a\n", "b\n", false}, {"", "", true}, {"", "a\n", false},
		{"...\n", "a\nb\n", true}, {"a\n...\n", "a\n", true}, {"a\n...\n", "b\na\n", false}, {"...\nb\n", "a\nb\n", true},
		{"a\n...\nc\n", "a\nb\nc\n", true}, {"a\n...\nc\n", "a\nb\n", false}, {"a.c\n", "abc\n", false},
	} {
		if matches(c.said, c.got) != c.want {
			t.Errorf("matches(%q, %q) is not %t", c.said, c.got, c.want)
		}
	}
}
