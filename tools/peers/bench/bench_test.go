package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"gollama/internal/imatrix"
)

func TestPromptLine(t *testing.T) {
	const stderr = `I common_perf_print:        load time =      35.33 ms
I common_perf_print: prompt eval time =      19.29 ms /    30 tokens (    0.64 ms per token,  1554.97 tokens per second)
I common_perf_print:        eval time =      62.81 ms /    63 runs   (    1.00 ms per token,  1003.06 tokens per second)
`
	m := promptLine.FindStringSubmatch(stderr)
	if m == nil || m[1] != "19.29" || m[2] != "30" {
		t.Errorf("got %q, want 19.29 ms and 30 tokens", m)
	}
}

func TestRate(t *testing.T) {
	p := process{first: 100, last: 1100}
	if got := p.rate(51); got != 50 {
		t.Errorf("50 tokens in the second after the first: %v tokens/s, want 50", got)
	}
}

func TestSpan(t *testing.T) {
	for _, test := range []struct {
		v    []float64
		want span
	}{{nil, span{}}, {[]float64{3}, span{3, 3, 3}}, {[]float64{9, 1, 2}, span{2, 1, 9}}, {[]float64{4, 1, 2, 9}, span{3, 1, 9}}} {
		if got := spanOf(test.v); got != test.want {
			t.Errorf("spanOf(%v) = %v, want %v", test.v, got, test.want)
		}
	}
}

// A result of three rounds, of which one side failed to give a figure in one.
func example() *result {
	return &result{Name: "group/case", About: "an example", Machine: "m", Program: "p", Measures: []measure{
		faster("peer", 2),
		smaller("peer", 0.5),
		compare("rate", "rate", "tok/s", speed, "peer", 0),
		compare("nothing", "nothing", "s", took, "peer", 1),
	}, Rounds: []map[string]outcome{
		{ours: {wall: 2, cpu: 1, memory: 30, "rate": 4}, "peer": {wall: 8, cpu: 3, memory: 60, "rate": 2}},
		{ours: {wall: 2, cpu: 1, memory: 30, "rate": 4}, "peer": {wall: 3, cpu: 5, memory: 40, "rate": 4}},
		{ours: {wall: 1, memory: 30}, "peer": {wall: 5, cpu: 4, memory: 50, "rate": 1}},
	}}
}

func TestRows(t *testing.T) {
	rows := example().rows()
	for i, want := range []struct {
		ratio  span
		best   float64
		cpu    float64
		met    string
		rounds int
	}{
		{span{4, 1.5, 5}, 3, 4, "yes", 3},
		{span{0.6, 0.5, 0.75}, 0.75, 0, "no", 3},
		{span{1.5, 1, 2}, 1, 0, "", 2},
		{span{}, 0, 0, "not measured", 0},
	} {
		r := rows[i]
		if r.ratio != want.ratio || r.best != want.best || r.cpu != want.cpu || r.met() != want.met || r.rounds != want.rounds {
			t.Errorf("%s: got %v, best %v, cpu %v, %q of %d rounds; want %+v", r.What, r.ratio, r.best, r.cpu, r.met(), r.rounds, want)
		}
	}
	if yes, of := met(rows); yes != 1 || of != 3 {
		t.Errorf("%d of %d targets are met, want 1 of 3", yes, of)
	}
}

// What the table shows as the wanted ratio is met.
func TestMetIsWhatIsShown(t *testing.T) {
	r := row{measure: compare("x", "x", "s", amount, "peer", 1.05), ratio: span{median: 1.0503}, rounds: 1}
	if shown := r.cells()[5]; shown != "1.050" || r.met() != "yes" {
		t.Errorf("shown as %s, met: %s", shown, r.met())
	}
	if r.ratio.median = 1.0506; r.met() != "no" || r.cells()[5] != "1.051" {
		t.Errorf("shown as %s, met: %s", r.cells()[5], r.met())
	}
}

func TestResultsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.jsonl")
	a, b, last := example(), example(), example()
	b.Name, last.About = "group/other", "the last one"
	for _, r := range []*result{a, b, last} {
		if err := appendResult(path, r); err != nil {
			t.Fatal(err)
		}
	}
	list, err := readResults(path)
	if err != nil || len(list) != 2 || list[0].About != "the last one" || list[1].Name != "group/other" {
		t.Fatalf("got %d results, %v", len(list), err)
	}
	if got, want := list[1].rows()[0], example().rows()[0]; got.ratio != want.ratio {
		t.Errorf("read back: %v, want %v", got.ratio, want.ratio)
	}
	if err := os.WriteFile(path, []byte("{}\nnot JSON\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readResults(path); err == nil || !strings.Contains(err.Error(), path+":2") {
		t.Errorf("got %v, want an error that names line 2", err)
	}
}

func TestInsert(t *testing.T) {
	page := "before\n" + mark + "old\n" + markEnd + "after\n"
	got, err := insert([]byte(page), "new")
	if err != nil || string(got) != "before\n"+mark+"\nnew\n"+markEnd+"after\n" {
		t.Errorf("got %q, %v", got, err)
	}
	again, err := insert(got, "new")
	if err != nil || string(again) != string(got) {
		t.Errorf("a second time: %q, %v", again, err)
	}
	for _, bad := range []string{"", mark, markEnd + mark} {
		if _, err := insert([]byte(bad), "new"); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestTables(t *testing.T) {
	list := []*result{example()}
	rows := list[0].rows()
	if s := text(rows); !strings.Contains(s, "1 of 3 targets are met") || strings.Count(s, "group/case") != 4 {
		t.Errorf("the table is\n%s", s)
	}
	s := markdown(list, rows)
	for _, line := range []string{"### group\n", "| case | time | 2.00 s | peer 5.00 s | 4.00 [1.500, 5.00], best 3.00, cpu 4.00 | ≥ 2 | yes |", "| ≤ 0.5 | no |", "- `group/case`: an example"} {
		if !strings.Contains(s, line) {
			t.Errorf("no %q in\n%s", line, s)
		}
	}
	c := picture(rows)
	if len(c.Rows) != 2 || c.Rows[0].Middle != 2 || c.Rows[1].Low != 0.5/0.75 || c.Rows[1].High != 1 {
		t.Errorf("the picture has %+v", c.Rows)
	}
}

// Players take turns in beginning, and a failure names the player.
func TestTurns(t *testing.T) {
	var order []string
	say := func(name string, err error) player {
		return player{name, func(context.Context) (outcome, error) { order = append(order, name); return outcome{wall: 1}, err }}
	}
	tr := turns(nil, say("a", nil), say("b", nil), say("c", nil))
	for i := range 3 {
		if got, err := tr.round(t.Context(), i); err != nil || len(got) != 3 {
			t.Fatalf("got %v, %v", got, err)
		}
	}
	if s := strings.Join(order, ""); s != "abcbcacab" {
		t.Errorf("the order was %s", s)
	}
	if _, err := turns(nil, say("d", errors.New("broken"))).round(t.Context(), 0); err == nil || err.Error() != "d: broken" {
		t.Errorf("got %v", err)
	}
}

// A case that fails in its second round keeps the first one.
func TestPartialResult(t *testing.T) {
	c := contest{name: "x/y", setup: func(context.Context) (*trial, error) {
		return &trial{[]measure{faster("peer", 1)}, func(_ context.Context, n int) (map[string]outcome, error) {
			if n == 1 {
				return nil, errors.New("broken")
			}
			return map[string]outcome{ours: {wall: 1}, "peer": {wall: 2}}, nil
		}}, nil
	}}
	b := &bench{options: options{repeat: 3, gollama: "/bin/false"}}
	r, err := c.run(t.Context(), b)
	if err == nil || r == nil || len(r.Rounds) != 1 || len(r.Measures) != 1 {
		t.Errorf("got %+v, %v; want one round and an error", r, err)
	}
	c.setup = func(context.Context) (*trial, error) { return nil, errors.New("no model") }
	if r, err := c.run(t.Context(), b); err == nil || r != nil {
		t.Errorf("got %+v, %v; want an error alone", r, err)
	}
}

// Every group of the subcommands has a case in -quick, names are different, and each says what it does.
func TestContests(t *testing.T) {
	seen, quick := map[string]bool{}, map[string]bool{}
	for _, c := range contests(&bench{}) {
		if seen[c.name] || c.about == "" || c.setup == nil || strings.Count(c.name, "/") < 1 {
			t.Errorf("%s: twice, or without words", c.name)
		}
		seen[c.name] = true
		group, _, _ := strings.Cut(c.name, "/")
		quick[group] = quick[group] || c.quick
	}
	for _, g := range []string{"run", "records", "tokenize", "finetune", "export-lora", "imatrix", "cvector-generate", "mtmd"} {
		if !quick[g] {
			t.Errorf("nothing of %s is in -quick", g)
		}
	}
	s := settings{options: options{quick: true}, only: regexp.MustCompile("^mtmd/")}
	if list := selected(contests(&bench{}), s); len(list) != 2 {
		t.Errorf("%d cases of mtmd in -quick, want 2", len(list))
	}
}

func TestExecute(t *testing.T) {
	p, err := execute(t.Context(), "/bin/sh", "-c", "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; echo done")
	if err != nil || string(p.stdout) != "done\n" || p.cpu <= 0 || p.memory <= 0 || p.wall < p.last || p.first != p.last {
		t.Errorf("got %+v, %v", p, err)
	}
	if _, err := execute(t.Context(), "/bin/sh", "-c", "echo why >&2; exit 3"); err == nil || !strings.HasSuffix(err.Error(), "why") {
		t.Errorf("got %v, want an error with what it wrote", err)
	}
	if _, err := start(t.Context(), "/bin/sh", "-c", ":"); !errors.Is(err, errNoOutput) {
		t.Errorf("got %v, want %v", err, errNoOutput)
	}
}

// A text that is too short is repeated, and none ends in half a rune.
func TestTextFile(t *testing.T) {
	dir := t.TempDir()
	b := &bench{options: options{text: filepath.Join(dir, "source")}, work: dir}
	if err := os.WriteFile(b.text, []byte("aé日\n"), 0o644); err != nil { // 1, 2, 3 and 1 bytes
		t.Fatal(err)
	}
	for n := 1; n < 30; n++ {
		got, err := b.firstBytes(n)
		if err != nil || !utf8.Valid(got) || len(got) > n || len(got) < n-2 || !strings.HasPrefix(strings.Repeat("aé日\n", 5), string(got)) {
			t.Errorf("%d bytes: got %q, %v", n, got, err)
		}
	}
	if err := os.WriteFile(b.text, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := b.textFile(5); err == nil {
		t.Error("an empty text: no error")
	}
}

func TestStoriesStandIn(t *testing.T) {
	dir := t.TempDir()
	b := &bench{options: options{text: filepath.Join(dir, "missing"), dir: dir}, work: dir}
	if err := b.findText(); err != nil {
		t.Fatal(err)
	}
	if got, err := b.firstBytes(1000); err != nil || len(got) < 990 {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

func TestShards(t *testing.T) {
	dir := t.TempDir()
	var out strings.Builder
	if err := inside([]string{"shards", "-n", "2", dir}, &out); err != nil || !strings.Contains(out.String(), `"wall"`) {
		t.Fatalf("got %q, %v", out.String(), err)
	}
	for _, name := range []string{"00.gguf", "01.gguf"} {
		f, err := imatrix.Open(filepath.Join(dir, name), 0)
		if err != nil || len(f.Entries) != 32*7 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := inside([]string{"else"}, &out); err == nil {
		t.Error("no error")
	}
}

func TestLastRate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.jsonl")
	if err := os.WriteFile(path, []byte(`{"step":1,"timing":{"tok_s":10}}`+"\n"+`{"step":2,"timing":{"tok_s":12.5}}`+"\n"+`{"step":3}`+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := lastRate(path); err != nil || got != 12.5 {
		t.Errorf("got %v, %v, want 12.5", got, err)
	}
}

func TestParse(t *testing.T) {
	s, err := parse([]string{"-quick", "-models", "a.gguf,b.gguf", "-only", "run/"})
	if err != nil || !slices.Equal(s.models, []string{"a.gguf", "b.gguf"}) || s.procs != 8 {
		t.Errorf("got %+v, %v", s, err)
	}
	for _, args := range [][]string{{"-n", "0"}, {"-procs", "65"}, {"-only", "("}, {"x"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("parse(%q): no error", args)
		}
	}
}
