package main

import (
	"context"
	"fmt"
	"strings"
)

var manCommand = &command{
	name: "man", noConfig: true,
	short: "Write the manual page.",
	long: `Reads nothing. Writes the page in roff to standard output.

Examples:
  gollama man | man -l -
  gollama man > /usr/local/share/man/man1/gollama.1
  gollama man | man -l -T utf8 - | less`,
}

func init() { manCommand.run = runMan }

func runMan(_ context.Context, e *env, _ *options, _ []string) error {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH GOLLAMA 1 \"\" \"gollama %s\" \"User Commands\"\n", roff(version))
	b.WriteString(".SH NAME\ngollama \\- work with GGUF models\n.SH SYNOPSIS\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, ".B gollama %s\n%s\n.br\n", roff(c.shown()), roff(c.synopsis))
	}
	b.WriteString(".SH DESCRIPTION\ngollama works with GGUF models from the command line.\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, ".SH GOLLAMA %s\n%s\n.PP\n.nf\n%s\n.fi\n", strings.ToUpper(c.shown()), roff(c.short), roff(strings.TrimSpace(c.long)))
		for _, g := range groups {
			rows := groupRows(c.name, g)
			if len(rows) == 0 {
				continue
			}
			fmt.Fprintf(&b, ".SS %s\n", roff(g))
			for _, f := range rows {
				writeManFlag(&b, c, f)
			}
		}
	}
	b.WriteString(".SH CONFIGURATION\nSettings come from the defaults, then the file of \\-\\-config, then the environment, then the command line; the last wins. The file is YAML: long names as keys, at the top or under the name of a subcommand.\n")
	fmt.Fprintf(&b, ".SH EXIT STATUS\n.nf\n%s.fi\n", roff(strings.TrimPrefix(exitStatus, "Exit status:\n")))
	return e.out.text(b.String())
}

func writeManFlag(b *strings.Builder, c *command, f *flagDef) {
	fmt.Fprintf(b, ".TP\n\\fB%s\\fR", roff(strings.Join(flagNames(f), ", ")))
	if f.arg != "" {
		fmt.Fprintf(b, " \\fI%s\\fR", roff(f.arg))
	}
	b.WriteString("\n" + roff(helpText(c, f)))
	if d := defaultText(c, f); d != "" {
		fmt.Fprintf(b, " (default: %s)", roff(d))
	}
	if f.env != "" {
		fmt.Fprintf(b, "\n.br\nEnvironment: %s", roff(f.env))
	}
	b.WriteString("\n")
}

// roff escapes text: backslashes, dashes, and what starts a line as a request.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
