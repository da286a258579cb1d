package main

import (
	"fmt"
	"sort"
	"strings"
)

const exitStatus = `Exit status:
  0    done
  1    failed: the model, an adapter, or something inside
  3    finished, but some records failed
  4    bad input: missing, undecodable, or too long for the context
  5    the output is incomplete
  6    the output could not be written
  64   wrong command line or config
  130  interrupted, 143 terminated
`

func rootHelp() string {
	var b strings.Builder
	b.WriteString("gollama works with GGUF models from the command line.\n\nUsage: gollama SUBCOMMAND [flags]\n\nSubcommands:\n")
	for _, c := range commands() {
		if c.parent == "" {
			fmt.Fprintf(&b, "  %-17s %s\n", c.name, c.short)
		}
	}
	b.WriteString("\ngollama SUBCOMMAND --help tells more about each.\n\n")
	b.WriteString(exitStatus)
	return b.String()
}

func commandHelp(c *command) string {
	var b strings.Builder
	usage := strings.TrimSpace("gollama " + c.shown() + " " + c.synopsis)
	fmt.Fprintf(&b, "%s\n\nUsage: %s\n\n%s\n", c.short, usage, strings.TrimSpace(c.long))
	for i, child := range c.children() {
		if i == 0 {
			b.WriteString("\nSubcommands:\n")
		}
		fmt.Fprintf(&b, "  %-12s%s\n", strings.TrimPrefix(child.name, c.name+"-"), child.short)
	}
	for _, g := range groups {
		rows := groupRows(c.name, g)
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%s:\n", g)
		for _, f := range rows {
			b.WriteString(flagHelp(c, f))
		}
	}
	fmt.Fprintf(&b, "\n%s", exitStatus)
	return b.String()
}

// groupRows returns the flags of a subcommand in a section of the help.
func groupRows(cmd, group string) []*flagDef {
	var rows []*flagDef
	for i := range flagTable {
		f := &flagTable[i]
		if f.group == group && f.reject == "" && f.takenBy(cmd) {
			rows = append(rows, f)
		}
	}
	return rows
}

// flagNames returns all spellings, the shortest first.
func flagNames(f *flagDef) []string {
	names := append([]string{"--" + f.name}, f.alias...)
	sort.SliceStable(names, func(i, j int) bool {
		return dashes(names[i]) < dashes(names[j])
	})
	var fixed []string
	for n, v := range f.fixed {
		if f.kind != kindBool {
			n += " (" + v + ")"
		}
		fixed = append(fixed, n)
	}
	sort.Strings(fixed)
	return append(names, fixed...)
}

func dashes(s string) int { return len(s) - len(strings.TrimLeft(s, "-")) }

func flagHelp(c *command, f *flagDef) string {
	var b strings.Builder
	head := strings.Join(flagNames(f), ", ")
	if f.arg != "" {
		head += " " + f.arg
	}
	for i, line := range wrap(head, 96) {
		b.WriteString(strings.Repeat("  ", 1+i) + line + "\n")
	}
	text := helpText(c, f)
	if d := defaultText(c, f); d != "" {
		text += " (default: " + d + ")"
	}
	if f.env != "" {
		text += " [" + f.env + "]"
	}
	for _, line := range wrap(text, 86) {
		b.WriteString("        " + line + "\n")
	}
	return b.String()
}

// defaultText says what a flag of a subcommand is when it is not given.
func defaultText(c *command, f *flagDef) string {
	if s := saidIn[c.name][f.name]; s.def != "" {
		return s.def
	}
	if f.def != "" {
		return f.def
	}
	if f.get == nil {
		return ""
	}
	switch v := f.get(c.options()).(type) {
	case nil:
		return ""
	case bool:
		return map[bool]string{true: "on", false: "off"}[v]
	case []string:
		return strings.Join(v, ", ")
	case string:
		return v
	default:
		return fmt.Sprint(v)
	}
}

// wrap breaks text at blanks into lines of at most width bytes.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
