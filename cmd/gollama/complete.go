package main

import (
	"context"
	"fmt"
	"sort"
	"strings"
)

var completionCommand = &command{
	name: "completion", synopsis: "bash|zsh|fish", noConfig: true, posArgs: 1,
	short: "Write a script that completes the command line in a shell.",
	long: `Reads nothing. Writes the script to standard output.

Examples:
  source <(gollama completion bash)
  gollama completion zsh > "${fpath[1]}/_gollama"
  gollama completion fish > ~/.config/fish/completions/gollama.fish`,
}

func init() { completionCommand.run = runCompletion }

func runCompletion(_ context.Context, e *env, _ *options, args []string) error {
	shells := map[string]func() string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}
	if len(args) == 0 {
		return usagef("no shell given").withHint("one of bash, zsh, fish")
	}
	f, ok := shells[args[0]]
	if !ok {
		return usagef("unknown shell %q", args[0]).withHint("one of bash, zsh, fish")
	}
	return e.out.text(f())
}

// completions returns the spellings of a subcommand's flags.
func completions(cmd string) []string {
	names := []string{"--help"}
	for name, s := range spellings(cmd) {
		if s.flag.reject == "" && s.flag.group != "" {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

func bashCompletion() string {
	var b strings.Builder
	b.WriteString("# bash completion for gollama\n_gollama() {\n\tlocal cur=${COMP_WORDS[COMP_CWORD]} words=\n")
	fmt.Fprintf(&b, "\tif [ \"$COMP_CWORD\" -eq 1 ]; then\n\t\twords=%q\n", strings.Join(append(topNames(), "--help"), " "))
	b.WriteString("\telse\n\t\tcase \"${COMP_WORDS[1]} ${COMP_WORDS[2]} \" in\n")
	for _, c := range commandsByLength() {
		words := completions(c.name)
		if c == completionCommand {
			words = append(words, "bash", "zsh", "fish")
		}
		for _, child := range c.children() {
			words = append(words, strings.TrimPrefix(child.name, c.name+"-"))
		}
		fmt.Fprintf(&b, "\t\t%q*) words=%q ;;\n", c.shown()+" ", strings.Join(words, " "))
	}
	b.WriteString("\t\tesac\n\tfi\n\tCOMPREPLY=()\n\tif [[ $cur == -* || $COMP_CWORD -eq 1 || ${COMP_WORDS[1]} == completion ]]; then\n")
	b.WriteString("\t\tmapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n\tfi\n}\ncomplete -o bashdefault -o default -F _gollama gollama\n")
	return b.String()
}

func zshCompletion() string {
	var b strings.Builder
	b.WriteString("#compdef gollama\n_gollama() {\n\tif (( CURRENT == 2 )); then\n\t\tlocal -a commands=(\n")
	for _, c := range commands() {
		if c.parent == "" {
			fmt.Fprintf(&b, "\t\t\t%s\n", shellQuote(c.name+":"+c.short))
		}
	}
	b.WriteString("\t\t)\n\t\t_describe subcommand commands\n\t\treturn\n\tfi\n\tlocal -a flags\n\tcase \"${words[2]} ${words[3]} \" in\n")
	for _, c := range commandsByLength() {
		fmt.Fprintf(&b, "\t%q*) flags=(%s) ;;\n", c.shown()+" ", strings.Join(completions(c.name), " "))
	}
	b.WriteString("\tesac\n\tif [[ ${words[2]} == completion ]]; then\n\t\tcompadd bash zsh fish\n\telif [[ ${words[CURRENT]} == -* ]]; then\n\t\tcompadd -- $flags\n\telse\n\t\t_files\n\tfi\n}\nif [ \"$funcstack[1]\" = _gollama ]; then\n\t_gollama \"$@\"\nelse\n\tcompdef _gollama gollama\nfi\n")
	return b.String()
}

func fishCompletion() string {
	var b strings.Builder
	b.WriteString("# fish completion for gollama\n")
	for _, c := range commands() {
		if c.parent == "" {
			fmt.Fprintf(&b, "complete -c gollama -n __fish_use_subcommand -f -a %s -d %s\n", c.name, shellQuote(c.short))
		}
	}
	for _, c := range commands() {
		if c.parent != "" {
			fmt.Fprintf(&b, "complete -c gollama -n '__fish_seen_subcommand_from %s' -f -a %s -d %s\n", c.parent, strings.TrimPrefix(c.name, c.parent+"-"), shellQuote(c.short))
		}
		for _, g := range groups {
			for _, f := range groupRows(c.name, g) {
				fmt.Fprintf(&b, "complete -c gollama -n '%s'", fishCondition(c))
				for _, n := range flagNames(f) {
					n, _, _ = strings.Cut(n, " ")
					bare := strings.TrimLeft(n, "-")
					switch {
					case strings.HasPrefix(n, "--"):
						b.WriteString(" -l " + bare)
					case len(bare) == 1:
						b.WriteString(" -s " + bare)
					default:
						b.WriteString(" -o " + bare)
					}
				}
				if f.takesValue() && len(f.fixed) == 0 {
					b.WriteString(" -r")
				}
				fmt.Fprintf(&b, " -d %s\n", shellQuote(helpText(c, f)))
			}
		}
	}
	b.WriteString("complete -c gollama -n '__fish_seen_subcommand_from completion' -f -a 'bash zsh fish'\n")
	return b.String()
}

// shellQuote quotes for sh, zsh and fish: fish knows the same single quotes,
// with backslashes for a quote, so quotes are left out.
func shellQuote(s string) string {
	return "'" + strings.NewReplacer("'", "", `\`, `\\`).Replace(s) + "'"
}

// fishCondition says when a subcommand's flags are of use.
func fishCondition(c *command) string {
	if c.parent == "" {
		return "__fish_seen_subcommand_from " + c.name
	}
	return "__fish_seen_subcommand_from " + c.parent + "; and __fish_seen_subcommand_from " + strings.TrimPrefix(c.name, c.parent+"-")
}

// topNames returns the subcommands that stand first on a command line.
func topNames() []string {
	var names []string
	for _, c := range commands() {
		if c.parent == "" {
			names = append(names, c.name)
		}
	}
	return names
}

// commandsByLength returns the subcommands, those of subcommands first.
func commandsByLength() []*command {
	list := commands()
	sort.SliceStable(list, func(i, j int) bool { return list[i].parent != "" && list[j].parent == "" })
	return list
}
