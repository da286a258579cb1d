package data

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"

	"gollama/internal/engine"
	"gollama/internal/tokens"
)

// brackets is a chat template: each message is [role:content], and the generation prompt [assistant:.
type brackets struct{}

func (brackets) Source(bool) string { return "brackets" }
func (brackets) Render(in *engine.ChatInput) (*engine.ChatPrompt, error) {
	p := &engine.ChatPrompt{}
	for _, m := range in.Messages {
		p.Text += "[" + m.Role + ":" + m.Content + "]"
	}
	if in.AddGenerationPrompt {
		p.Text += "[assistant:"
	}
	return p, nil
}
func (brackets) Tokenize(p *engine.ChatPrompt) ([]engine.Token, error) {
	return bytesTokenizer{}.Tokenize(p.Text, true, true)
}

func write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func options(paths ...string) Options {
	o := Options{Vocab: bytesTokenizer{}, Chat: brackets{}, MaxLen: 64}
	for _, p := range paths {
		o.Sources = append(o.Sources, Source{Path: p})
	}
	return o
}

func load(t testing.TB, o Options) (train, val *Dataset, rep *Report) {
	t.Helper()
	train, val, rep, err := Load(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = train.Close() })
	return train, val, rep
}

// show writes an example as its input, with what is scored in upper case hex, e.g. "a>b".
func show(ex *Example) string {
	var b strings.Builder
	for i, id := range ex.Tokens {
		if i > 0 && ex.Segments != nil && ex.Segments[i] != ex.Segments[i-1] {
			b.WriteString(" | ")
		}
		fmt.Fprintf(&b, "%s", name(id))
		if ex.Labels[i] != NoLabel {
			fmt.Fprintf(&b, ">%s ", name(ex.Labels[i]))
		}
	}
	return b.String()
}

func name(id int32) string {
	switch id {
	case 256:
		return "^"
	case 257:
		return "$"
	}
	return string(rune(id))
}

func TestLoadForms(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"a.txt", "ab", "^>a a>b b>$ "},
		{"a.txt", "\xef\xbb\xbfab", "^>a a>b b>$ "},
		{"a.txt", "a\r\n\x00", "^>a a>\r \r>\n \n>\x00 \x00>$ "},
		{"a.jsonl", `{"text":"ab"}`, "^>a a>b b>$ "},
		{"a.jsonl", "\xef\xbb\xbf{\"text\":\"ab\"}\r\n\r\n", "^>a a>b b>$ "},
		{"a.jsonl", `{"prompt":"ab","completion":"c"}`, "^ab>c c>$ "},
		{"a", ` {"prompt":"","completion":"c"}`, "^>c c>$ "},
		{"a.ndjson", `{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]}`, "^[user:x][assistant:>y y>] "},
		{"a.jsonl", `{"messages":[{"role":"assistant","content":"y"}]}`, "^[assistant:>y y>] "},
		{"a", "plain", "^>p p>l l>a a>i i>n n>$ "},
	} {
		train, val, _ := load(t, options(write(t, tt.name, tt.text)))
		if train.Len() != 1 || val.Len() != 0 {
			t.Errorf("%q: %d and %d examples", tt.text, train.Len(), val.Len())
			continue
		}
		if got := show(example(t, train, 0)); got != tt.want {
			t.Errorf("%q = %q, want %q", tt.text, got, tt.want)
		}
	}
}

func TestLoadErrors(t *testing.T) {
	bad := func(line string) string { return "{\"text\":\"a\"}\n\n" + line + "\n{\"text\":\"b\"}\n" }
	for _, tt := range []struct{ name, text, want string }{
		{"a.jsonl", bad(`{"text":"a"`), "a.jsonl:3: byte 11: unexpected end of JSON input"},
		{"a.jsonl", bad(`{"text":1}`), "a.jsonl:3: text: got a number, want a string"},
		{"a.jsonl", bad(`[1]`), "a.jsonl:3: got an array, want an object"},
		{"a.jsonl", bad(`{"txt":"a"}`), "a.jsonl:3: 0 of"},
		{"a.jsonl", bad(`{"text":"a","messages":[]}`), `a.jsonl:3: "messages" is empty`},
		{"a.jsonl", bad(`{"text":"a","prompt":"b","completion":"c"}`), "a.jsonl:3: 2 of"},
		{"a.jsonl", bad(`{"prompt":"b"}`), `a.jsonl:3: "prompt" and "completion" go together`},
		{"a.jsonl", bad(`{"messages":[{"role":"user","content":7}]}`), "a.jsonl:3: messages[0].content: got a number, want a string or an array of parts"},
		{"a.jsonl", bad(`{"messages":[{"role":"user","content":"x","weight":-1}]}`), "a.jsonl:3: messages[0].weight: got -1, want 0 to "},
		{"a.jsonl", bad("{\"text\":\"\xff\"}"), "a.jsonl:3: it is not UTF-8"},
		{"a.txt", "a\nb\xffc", "a.txt:2: it is not UTF-8"},
		{"a.jsonl", bad(`{"text":"` + strings.Repeat("x", 70) + `"}`), "a.jsonl:3: 72 tokens, at most 65 fit"},
		{"a.jsonl", "", "nothing to learn from: it is empty"},
		{"a.txt", "", "nothing to learn from: it is empty"},
		{"a.jsonl", `{"text":""}`, "1 empty records"},
		{"a.jsonl", `{"messages":[{"role":"user","content":"x"}]}`, "1 records in which nothing is scored"},
	} {
		o := options(write(t, tt.name, tt.text))
		o.Threads = 3
		_, _, _, err := Load(context.Background(), o)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60q: %v, want %q", tt.text, err, tt.want)
		}
	}
	for want, change := range map[string]func(*Options){
		"no data":              func(o *Options) { o.Sources = nil },
		"no such file":         func(o *Options) { o.Sources[0].Path += "x" },
		"max_len 1":            func(o *Options) { o.MaxLen = 1 },
		"too_long \"x\"":       func(o *Options) { o.TooLong = "x" },
		"share of 1":           func(o *Options) { o.ValShare = 1 },
		"format \"x\"":         func(o *Options) { o.Sources[0].Format = "x" },
		"a weight of -1":       func(o *Options) { o.Sources[0].Weight = -1 },
		"hash of the vocabula": func(o *Options) { o.CacheDir = "x" },
		"need a chat template": func(o *Options) { o.Chat = nil },
	} {
		o := options(write(t, "a.jsonl", `{"messages":[{"role":"assistant","content":"x"}]}`))
		change(&o)
		if _, _, _, err := Load(context.Background(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Load = %v, want %q", err, want)
		}
	}
}

// A line of 50 MB is a record that is too long, and not the end of the program.
func TestLoadLongLine(t *testing.T) {
	path := write(t, "a.jsonl", "{\"text\":\"a\"}\n{\"text\":\""+strings.Repeat("x", 50<<20)+"\"}\n")
	if _, _, _, err := Load(context.Background(), options(path)); err == nil || !strings.Contains(err.Error(), "a.jsonl:2: 52428802 tokens") {
		t.Errorf("Load = %v", err)
	}
	path = write(t, "b.jsonl", strings.Repeat("x", maxLine+1))
	if _, _, _, err := Load(context.Background(), options(path)); err == nil || !strings.Contains(err.Error(), "b.jsonl:1: the line is longer") {
		t.Errorf("Load = %v", err)
	}
}

func TestTooLong(t *testing.T) {
	path := write(t, "a.jsonl", `{"text":"abcdefgh"}`+"\n"+`{"prompt":"abcdefgh","completion":"i"}`)
	o := options(path)
	o.MaxLen, o.TooLong = 4, "truncate"
	train, _, rep := load(t, o)
	if got := show(example(t, train, 0)); train.Len() != 1 || got != "^>a a>b b>c c>d " || rep.Truncated != 2 || rep.CutTokens != 5+6 || rep.NoLabels != 1 {
		t.Errorf("%d examples, %q, %+v", train.Len(), got, rep)
	}
	o.TooLong = "split"
	train, _, rep = load(t, o)
	var got []string
	for i := range train.Len() {
		got = append(got, show(example(t, train, i)))
	}
	// The second record's first two pieces have nothing to learn.
	if want := []string{"^>a a>b b>c c>d ", "^>e e>f f>g g>h ", "^>$ ", "^>i i>$ "}; !slices.Equal(got, want) || rep.Split != 2 || rep.Labels != 11 {
		t.Errorf("%q, %+v", got, rep)
	}
}

func TestPacking(t *testing.T) {
	var lines strings.Builder
	for _, n := range []int{3, 6, 2, 1, 5} {
		fmt.Fprintf(&lines, "{\"text\":%q}\n", strings.Repeat("x", n))
	}
	o := options(write(t, "a.jsonl", lines.String()))
	o.MaxLen, o.Pack = 8, true
	train, _, _ := load(t, o)
	// Positions of the documents: 4, 7, 3, 2, 6. First fit into rows of 8: {4, 3}, {7}, {2, 6}.
	var sizes [][]int32
	for i := range train.Len() {
		ex := example(t, train, i)
		sizes = append(sizes, ex.Segments)
		for j := range ex.Tokens {
			if ex.Segments != nil && (ex.Positions[j] == 0) != (ex.Tokens[j] == 256) {
				t.Errorf("example %d: %+v", i, ex)
			}
		}
	}
	if want := [][]int32{{0, 0, 0, 0, 1, 1, 1}, nil, {0, 0, 1, 1, 1, 1, 1, 1}}; !reflect.DeepEqual(sizes, want) {
		t.Errorf("segments %v, want %v", sizes, want)
	}
	if s := train.Stats(); s != (Stats{Documents: 5, Examples: 3, Tokens: 22, Labels: 22, Longest: 8}) {
		t.Errorf("%+v", s)
	}
}

// Documents that say the same are on one side, and which side it is depends on nothing else.
func TestSplitHasNoLeak(t *testing.T) {
	var lines strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&lines, "{\"text\":\"document %d\"}\n", i%500)
	}
	o := options(write(t, "a.jsonl", lines.String()))
	o.ValShare = 0.1
	train, val, _ := load(t, o)
	seen := map[string]bool{}
	for i := range train.Len() {
		seen[show(example(t, train, i))] = true
	}
	for i := range val.Len() {
		if s := show(example(t, val, i)); seen[s] {
			t.Errorf("on both sides: %s", s)
		}
	}
	// 500 different documents: 50 +- 6.7 on the validation side, twice each.
	if val.Len()%2 != 0 || val.Len() < 2*20 || val.Len() > 2*80 || train.Len()+val.Len() != 1000 {
		t.Errorf("%d and %d examples", train.Len(), val.Len())
	}
}

func TestSourceWeights(t *testing.T) {
	var lines strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&lines, "{\"text\":\"document %d\"}\n", i)
	}
	o := options(write(t, "a.jsonl", lines.String()), write(t, "b.jsonl", strings.ReplaceAll(lines.String(), "doc", "tok")))
	o.Sources[0].Weight, o.Sources[1].Weight = 2, 0.25
	train, _, rep := load(t, o)
	n := map[byte]int{}
	for i := range train.Len() {
		n[byte(example(t, train, i).Tokens[1])]++
	}
	if n['d'] != 2000 || n['t'] < 250-70 || n['t'] > 250+70 || rep.Documents != 2000 { // 5 deviations of 13.7
		t.Errorf("%v, %+v", n, rep)
	}
}

func TestCompressed(t *testing.T) {
	const text = `{"text":"ab"}`
	var gz bytes.Buffer
	w := gzip.NewWriter(&gz)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{"a.jsonl.gz": gz.String(), "a.jsonl.zst": string(z.EncodeAll([]byte(text), nil))} {
		train, _, _ := load(t, options(write(t, name, data)))
		if got := show(example(t, train, 0)); got != "^>a a>b b>$ " {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// writeTokens writes a token file of a vocabulary of n tokens with the hash "v1".
func writeTokens(t testing.TB, n int, docs ...[]engine.Token) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.bin")
	var man tokens.Manifest
	man.Vocab.SHA256 = "v1"
	w, err := tokens.Create(path, n, man)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range docs {
		if err := w.Add(d, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTokenFiles(t *testing.T) {
	docs := [][]engine.Token{{256, 'a', 'b', 257}, {}, {256, 'c', 257}}
	o := options(writeTokens(t, 258, docs...))
	o.VocabHash = "v1"
	train, _, rep := load(t, o)
	if train.Len() != 2 || show(example(t, train, 0)) != "^>a a>b b>$ " || show(example(t, train, 1)) != "^>c c>$ " || rep.Tokens != 7 {
		t.Errorf("%d examples, %+v", train.Len(), rep)
	}
	o.CacheDir = t.TempDir()
	for _, cached := range []bool{false, true} {
		if _, _, rep := load(t, o); rep.Cached != cached {
			t.Errorf("cached = %v", rep.Cached)
		}
	}
	o.CacheDir, o.VocabHash = "", "v2"
	bigger := options(writeTokens(t, 70000, docs...))
	for _, o := range []Options{o, bigger} {
		if _, _, _, err := Load(context.Background(), o); err == nil || !strings.Contains(err.Error(), "another vocabulary") {
			t.Errorf("Load = %v", err)
		}
	}
}

func all(t testing.TB, d *Dataset) (out []*Example) {
	t.Helper()
	for i := range d.Len() {
		out = append(out, example(t, d, i))
	}
	return out
}

func TestCache(t *testing.T) {
	var lines strings.Builder
	for i := range 300 {
		fmt.Fprintf(&lines, "{\"text\":\"document %d\"}\n{\"prompt\":\"p\",\"completion\":\"%d\"}\n", i, i)
		fmt.Fprintf(&lines, `{"messages":[{"role":"user","content":"u","weight":0.25},{"role":"assistant","content":"%d"}]}`+"\n", i)
	}
	o := options(write(t, "a.jsonl", lines.String()))
	o.Pack, o.ValShare, o.Threads = true, 0.1, 2
	wantTrain, wantVal, _ := load(t, o)
	o.CacheDir, o.VocabHash = filepath.Join(t.TempDir(), "new", "cache"), "v1"
	for i, cached := range []bool{false, true} {
		train, val, rep := load(t, o)
		if rep.Cached != cached || !reflect.DeepEqual(all(t, train), all(t, wantTrain)) || !reflect.DeepEqual(all(t, val), all(t, wantVal)) || train.Stats() != wantTrain.Stats() {
			t.Errorf("run %d: cached %v, %+v", i, rep.Cached, train.Stats())
		}
		if err := train.Close(); err != nil || val.Close() != nil {
			t.Error(err)
		}
	}
	for name, change := range map[string]func(*Options){
		"vocabulary": func(o *Options) { o.VocabHash = "v2" }, "length": func(o *Options) { o.MaxLen++ },
		"roles": func(o *Options) { o.TrainOn = []string{"user"} }, "data": func(o *Options) { o.Sources[0].Path = write(t, "a.jsonl", `{"text":"a"}`) },
	} {
		c := o
		c.Sources = slices.Clone(o.Sources)
		c.ValShare = 0
		change(&c)
		if _, _, rep := load(t, c); rep.Cached {
			t.Errorf("another %s, and the cache is used", name)
		}
	}
	files, err := filepath.Glob(filepath.Join(o.CacheDir, "*"))
	if err != nil || len(files) != 5 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, f := range files { // a damaged cache is made anew
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)-60] ^= 1
		if err := os.WriteFile(f, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if train, _, rep := load(t, o); rep.Cached || !reflect.DeepEqual(all(t, train), all(t, wantTrain)) {
		t.Errorf("a damaged cache: %+v", rep)
	}
}

func TestLoadCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, _, err := Load(ctx, options(write(t, "a.txt", "abc"))); err == nil {
		t.Error("a canceled load succeeds")
	}
}

type readerAt struct{ *bytes.Reader }

func (readerAt) Close() error { return nil }

func FuzzReadCache(f *testing.F) {
	dir := f.TempDir()
	o := options(write(f, "a.jsonl", `{"text":"abc"}`+"\n"+`{"prompt":"p","completion":"q"}`))
	o.CacheDir, o.VocabHash = dir, "v"
	load(f, o)
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	b, err := os.ReadFile(files[0])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		c, _, err := readCache(readerAt{bytes.NewReader(b)}, int64(len(b)), 258)
		if err != nil {
			return
		}
		for i, d := range c.docs {
			_ = c.read(span{doc: int32(i), n: d.n}, make([]int32, d.n), make([]float32, d.n))
			c.labels(i)
		}
	})
}

func FuzzParseRecord(f *testing.F) {
	for _, s := range []string{`{"text":"a"}`, `{"prompt":"a","completion":"b"}`, `{"messages":[{"role":"user","content":[{"type":"text","text":"x"}],"weight":0.5}],"tools":[{"type":"function","function":{"name":"f"}}]}`, `[`, `{"messages":[null]}`} {
		f.Add([]byte(s))
	}
	o := options()
	o.TooLong = "split"
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := parseRecord(line)
		if err != nil {
			return
		}
		e, err := o.encode(&r)
		if err != nil {
			return
		}
		for _, p := range e.pieces {
			if len(p.tokens) > o.MaxLen+1 || len(p.tokens) < 2 || labelsOf(p.runs) == 0 {
				t.Errorf("a piece of %d tokens", len(p.tokens))
			}
		}
	})
}

func FuzzReadText(f *testing.F) {
	f.Add([]byte("a\nb\xff"), true)
	f.Add([]byte("\xef\xbb\xbf{\"text\":\"a\"}\n"), false)
	f.Fuzz(func(t *testing.T, b []byte, plain bool) {
		format := map[bool]string{true: "text"}[plain]
		var got strings.Builder
		err := readText(bufioReader(b), "f", format, func(r record) error { got.WriteString(r.text); return nil })
		if plain && err == nil && got.String() != strings.TrimPrefix(string(b), "\xef\xbb\xbf") {
			t.Errorf("%q is read as %q", b, got.String())
		}
	})
}

func bufioReader(b []byte) *bufio.Reader { return bufio.NewReaderSize(bytes.NewReader(b), 16) }

// A text is cut at line ends, or inside a very long line, never inside a character, and nothing is lost.
func TestReadChunk(t *testing.T) {
	text := strings.Repeat("one line\n", 20) + strings.Repeat("é世🎉", 50) + "\nend"
	for most := 1; most < 40; most++ {
		r := bufioReader([]byte(text))
		var got strings.Builder
		for {
			part, err := readChunk(r, most)
			if !utf8.Valid(part) || len(part) > most+16+utf8.UTFMax {
				t.Fatalf("most %d: %q", most, part)
			}
			got.Write(part)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if got.String() != text {
			t.Errorf("most %d: %q", most, got.String())
		}
	}
}
