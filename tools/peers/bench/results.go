package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"gollama/internal/chart"
	"gollama/internal/pipeline"
)

// appendResult adds a line to a file of results.
func appendResult(path string, r *result) (err error) {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = f.Write(append(line, '\n'))
	return err
}

// readResults reads a file of results, in the order in which cases came first, with the last result of each.
func readResults(path string) ([]*result, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []*result
	n := 0
	for line := range bytes.Lines(text) {
		n++
		r := &result{}
		if err := pipeline.Decode(line, r); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		if i := slices.IndexFunc(list, func(x *result) bool { return x.Name == r.Name }); i >= 0 {
			list[i] = r
		} else {
			list = append(list, r)
		}
	}
	return list, nil
}

// show prints the table and writes the picture and the page that were asked for.
func (s *settings) show(list []*result) error {
	order := map[string]int{}
	for i, c := range contests(&bench{}) {
		order[c.name] = i
	}
	slices.SortStableFunc(list, func(a, b *result) int { return order[a.Name] - order[b.Name] })
	var rows []row
	for _, r := range list {
		rows = append(rows, r.rows()...)
	}
	if len(rows) == 0 {
		return errors.New("no results")
	}
	fmt.Print(text(rows))
	if s.svg != "" {
		if err := os.WriteFile(s.svg, picture(rows).SVG(), 0o644); err != nil {
			return err
		}
	}
	if s.markdown == "" {
		return nil
	}
	page, err := os.ReadFile(s.markdown)
	if err != nil {
		return err
	}
	page, err = insert(page, markdown(list, rows))
	if err != nil {
		return fmt.Errorf("%s: %w", s.markdown, err)
	}
	return os.WriteFile(s.markdown, page, 0o644)
}

// columns are the heads of the table.
var columns = []string{"case", "what", "gollama", "peer", "", "ratio", "least", "most", "of the best", "by cpu time", "wanted", "met"}

// cells returns what the table shows of a row.
func (r row) cells() []string {
	sign := ""
	switch {
	case r.Want == 0:
	case r.Kind == amount:
		sign = fmt.Sprintf("<= %g", r.Want)
	default:
		sign = fmt.Sprintf(">= %g", r.Want)
	}
	return []string{r.Name, r.What, figure(r.ours, r.Unit), figure(r.peer, r.Unit), r.Against, ratio(r.ratio.median), ratio(r.ratio.min),
		ratio(r.ratio.max), ratio(r.best), ratio(r.cpu), sign, r.met()}
}

func figure(v float64, unit string) string {
	switch {
	case v == 0:
		return ""
	case v < 10:
		return fmt.Sprintf("%.2f %s", v, unit)
	case v < 100:
		return fmt.Sprintf("%.1f %s", v, unit)
	}
	return fmt.Sprintf("%.0f %s", v, unit)
}

func ratio(v float64) string {
	switch {
	case v == 0:
		return ""
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 2:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// text is the table for a terminal.
func text(rows []row) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(columns, "\t"))
	for _, r := range rows {
		fmt.Fprintln(w, strings.Join(r.cells(), "\t"))
	}
	_ = w.Flush() // a builder takes everything
	yes, of := met(rows)
	fmt.Fprintf(&b, "\n%d of %d targets are met\n", yes, of)
	return b.String()
}

func met(rows []row) (yes, of int) {
	for _, r := range rows {
		if r.Want != 0 {
			of++
		}
		if r.met() == "yes" {
			yes++
		}
	}
	return yes, of
}

// markdown is the table for a page, with what was run, on what, and when.
func markdown(list []*result, rows []row) string {
	var b strings.Builder
	yes, of := met(rows)
	machines, programs := map[string]bool{}, map[string]bool{}
	from, to := list[0].Time, list[0].Time
	for _, r := range list {
		machines[r.Machine], programs[r.Program] = true, true
		if r.Time.Before(from) {
			from = r.Time
		}
		if r.Time.After(to) {
			to = r.Time
		}
	}
	fmt.Fprintf(&b, "%s, %s to %s, on %s: **%d of %d targets are met**.\n", names(programs), from.Format("2006-01-02 15:04"), to.Format("15:04 MST"), names(machines), yes, of)
	group := ""
	for _, r := range rows {
		g, _, _ := strings.Cut(r.Name, "/")
		if g != group {
			group = g
			fmt.Fprintf(&b, "\n### %s\n\n| case | what | gollama | against | ratio [least, most] | wanted | |\n|---|---|---|---|---|---|---|\n", g)
		}
		c := r.cells()
		spread := c[5]
		if r.rounds > 1 {
			spread += fmt.Sprintf(" [%s, %s], best %s", c[6], c[7], c[8])
		}
		if r.cpu != 0 {
			spread += ", cpu " + c[9]
		}
		want := strings.NewReplacer("<=", "≤", ">=", "≥").Replace(c[10])
		fmt.Fprintf(&b, "| %s | %s | %s | %s %s | %s | %s | %s |\n", strings.TrimPrefix(r.Name, g+"/"), c[1], c[2], c[4], c[3], spread, want, c[11])
	}
	b.WriteString("\nWhat was run:\n\n")
	for _, r := range list {
		fmt.Fprintf(&b, "- `%s`: %s", r.Name, r.About)
		if r.Quick {
			b.WriteString(" (`-quick`)")
		}
		for _, m := range r.Measures {
			if m.Note != "" {
				fmt.Fprintf(&b, "; %s: %s", m.What, m.Note)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// names lists the keys of a set.
func names(set map[string]bool) string {
	var list []string
	for name := range set {
		list = append(list, name)
	}
	slices.Sort(list)
	return strings.Join(list, " and ")
}

const (
	mark    = "<!-- bench -->\n"
	markEnd = "<!-- end -->\n"
)

// insert puts a table between the marks of a page.
func insert(page []byte, table string) ([]byte, error) {
	before, rest, ok := bytes.Cut(page, []byte(mark))
	_, after, ended := bytes.Cut(rest, []byte(markEnd))
	if !ok || !ended {
		return nil, fmt.Errorf("no %q and %q", strings.TrimSpace(mark), strings.TrimSpace(markEnd))
	}
	return slices.Concat(before, []byte(mark+"\n"+table+"\n"+markEnd), after), nil
}

// picture shows how many times as good as wanted each ratio is.
func picture(rows []row) *chart.Ranges {
	c := &chart.Ranges{Title: "how many times as good as wanted: 1 is what is wanted, right of it is better", Log: true, Mark: 1}
	for _, r := range rows {
		if r.Want == 0 || r.rounds == 0 {
			continue
		}
		lo, hi := r.score(r.ratio.min), r.score(r.ratio.max)
		name := fmt.Sprintf("%s: %s, against %s", r.Name, r.What, r.Against)
		c.Rows = append(c.Rows, chart.Range{Name: name, Low: min(lo, hi), Middle: r.times(), High: max(lo, hi)})
	}
	return c
}
