package main

import (
	"fmt"
	"sort"
	"strings"
)

// spelling is one way to write a flag.
type spelling struct {
	flag  *flagDef
	value string // the value that this spelling stands for; only if fixed
	fixed bool
}

// spellings returns all ways to write the flags of a subcommand, with dashes.
func spellings(cmd string) map[string]spelling {
	m := map[string]spelling{}
	for i := range flagTable {
		f := &flagTable[i]
		if !f.takenBy(cmd) {
			continue
		}
		m["--"+f.name] = spelling{flag: f}
		for _, a := range f.alias {
			m[a] = spelling{flag: f}
		}
		for name, v := range f.fixed {
			m[name] = spelling{flag: f, value: v, fixed: true}
		}
	}
	return m
}

// lookup finds a flag as the user wrote it: underscores stand for dashes, and
// one dash or two are the same before a name of more than one letter.
func lookup(m map[string]spelling, written string) (spelling, bool) {
	for _, name := range []string{written, strings.ReplaceAll(written, "_", "-")} {
		if s, ok := m[name]; ok {
			return s, true
		}
		bare := strings.TrimLeft(name, "-")
		if len(bare) > 1 {
			for _, other := range []string{"-" + bare, "--" + bare} {
				if s, ok := m[other]; ok {
					return s, true
				}
			}
		}
	}
	return spelling{}, false
}

// isHelp says whether an argument asks for help.
func isHelp(arg string) bool {
	return arg == "-h" || arg == "--help" || arg == "-help" || arg == "--usage" || arg == "-?"
}

// canonical rewrites a subcommand's arguments to --long-name=value, so that
// urfave/cli, which refuses two spellings of one flag, sees one spelling, and
// the last value wins as in llama.cpp. written[i] is how the user wrote the
// flag out[i]. Positional arguments come last, after "--"; help says whether it
// was asked for.
func canonical(cmd string, args []string) (out, written []string, help bool, err error) {
	m := spellings(cmd)
	var rest []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if isHelp(arg) {
			return nil, nil, true, nil
		}
		if arg == "--" {
			rest = append(rest, args[i+1:]...)
			break
		}
		if len(arg) < 2 || arg[0] != '-' {
			rest = append(rest, arg)
			continue
		}
		name, value, hasValue := strings.Cut(arg, "=")
		s, ok := lookup(m, name)
		if !ok {
			return nil, nil, false, unknownFlag(cmd, m, name)
		}
		f := s.flag
		switch {
		case f.reject != "":
			return nil, nil, false, usagef("%s: not supported", name).withHint("%s", f.reject)
		case s.fixed && hasValue:
			return nil, nil, false, usagef("%s takes no value", name)
		case s.fixed:
			value = s.value
		case !f.takesValue() && !hasValue:
			value = "true"
		case !hasValue:
			n := max(f.args, 1)
			if i+n >= len(args) {
				return nil, nil, false, usagef("%s needs a value: %s", name, f.arg)
			}
			for _, v := range args[i+1 : i+1+n] {
				if t, ok := m[v]; ok || isHelp(v) {
					e := usagef("%s needs a value, but %s follows, which is a flag", name, v)
					if ok && t.flag == f {
						e = usagef("%s needs a value: %s", name, f.arg)
					}
					return nil, nil, false, e.withHint("if %s is the value, write %s=%s", v, name, v)
				}
			}
			value = strings.Join(args[i+1:i+1+n], ",")
			i += n
		}
		out = append(out, "--"+f.name+"="+value)
		written = append(written, name)
	}
	if len(rest) > 0 {
		out = append(append(out, "--"), rest...)
	}
	return out, written, false, nil
}

// unknownFlag names the flag that the user may have meant.
func unknownFlag(cmd string, m map[string]spelling, name string) *usageError {
	if s, ok := lookup(spellings("run"), name); ok {
		if why := hintElsewhere(cmd, s.flag); why != "" {
			return usagef("%s: not supported", name).withHint("%s", why)
		}
	}
	e := usagef("unknown flag %s", name)
	if near := nearest(m, name); near != "" {
		return e.withHint("did you mean %s?", near)
	}
	for _, other := range commandNames() {
		if _, ok := lookup(spellings(other), name); ok && other != cmd {
			return e.withHint("%s is a flag of gollama %s", name, other)
		}
	}
	return e
}

// nearest returns the spelling that differs from name by a typing error or
// two, or "".
func nearest(m map[string]spelling, name string) string {
	names := make([]string, 0, len(m))
	for n, s := range m {
		if s.flag.reject == "" {
			names = append(names, n)
		}
	}
	sort.Strings(names)
	bare := strings.TrimLeft(name, "-")
	best, bestName := min(3, len(bare)/2+1), ""
	for _, n := range names {
		if len(n) < 4 {
			continue
		}
		if d := distance(bare, strings.TrimLeft(n, "-")); d < best {
			best, bestName = d, n
		}
	}
	return bestName
}

// distance is the number of letters to add, remove, replace or swap with the next to get from a to b (optimal string
// alignment).
func distance(a, b string) int {
	var before, last []int // of the two letters of a that came before
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := last[j]
			if a[i] != b[j] {
				cost++
			}
			row[j+1] = min(cost, row[j]+1, last[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}

// argAssignments makes assignments of the values that urfave/cli parsed.
func argAssignments(values []recorded, written []string) []assignment {
	list := make([]assignment, len(values))
	for i, v := range values {
		where := "--" + v.flag.name
		if i < len(written) {
			where = written[i]
		}
		list[i] = assignment{flag: v.flag, value: v.value, level: levelArgs, where: where}
	}
	return list
}

// envAssignments reads the environment in the order of the table. An empty
// variable counts as unset. As in llama.cpp, LLAMA_ARG_NO_X, if set to
// anything, is X=false for a flag that has a negated form.
func envAssignments(cmd string, getenv func(string) string) []assignment {
	var list []assignment
	for i := range flagTable {
		f := &flagTable[i]
		if f.env == "" || !f.takenBy(cmd) {
			continue
		}
		if v := getenv(f.env); v != "" {
			list = append(list, assignment{flag: f, value: v, level: levelEnv, where: "environment variable " + f.env})
		}
		if f.kind != kindBool || len(f.fixed) == 0 {
			continue
		}
		no := strings.Replace(f.env, "LLAMA_ARG_", "LLAMA_ARG_NO_", 1)
		if getenv(no) != "" {
			list = append(list, assignment{flag: f, value: "false", level: levelEnv, where: "environment variable " + no})
		}
	}
	return append(list, shiftEnv(cmd, getenv)...)
}

// shiftEnv reads LLAMA_ARG_CONTEXT_SHIFT, a truth value for a flag that has
// more than two values here.
func shiftEnv(cmd string, getenv func(string) string) []assignment {
	const name = "LLAMA_ARG_CONTEXT_SHIFT"
	s, ok := spellings(cmd)["--on-overflow"]
	v, value := getenv(name), "error"
	if !ok || v == "" {
		if !ok || getenv("LLAMA_ARG_NO_CONTEXT_SHIFT") == "" {
			return nil
		}
		v = "false"
	}
	on, err := parseBool(v)
	if err != nil {
		value = v // apply names it as wrong
	} else if on {
		value = "shift"
	}
	return []assignment{{flag: s.flag, value: value, level: levelEnv, where: fmt.Sprintf("environment variable %s", name)}}
}
