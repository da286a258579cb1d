package pipeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"
)

func TestParseRecord(t *testing.T) {
	for _, tt := range []struct {
		raw, id, code string
	}{
		{`{"id":"a","prompt":"x"}`, `"a"`, ""},
		{`{"id":"\u0061\/<"}`, `"a/<"`, ""},
		{`{"id":7}`, "7", ""},
		{`{"id":-7}`, "-7", ""},
		{` {"prompt":"x"} ` + "\r", "9", ""},
		{`{"custom_id":"c","id":"d"}`, `"d"`, ""},
		{`{"custom_id":"c"}`, `"c"`, ""},
		{`{"Id":"a"}`, "9", ""}, // names are exact
		{``, "9", CodeEmptyLine},
		{"\t ", "9", CodeEmptyLine},
		{`{`, "9", CodeInvalidJSON},
		{`[1]`, "9", CodeInvalidJSON},
		{`"x"`, "9", CodeInvalidJSON},
		{`{"a":1}{"b":2}`, "9", CodeInvalidJSON},
		{`{"a":1,"a":2}`, "9", CodeInvalidJSON},
		{"{\"a\":\"\xff\"}", "9", CodeInvalidJSON},
		{`{"id":1.5}`, "9", CodeInvalidID},
		{`{"id":null}`, "9", CodeInvalidID},
		{`{"id":"` + strings.Repeat("x", 1001) + `"}`, "9", CodeInvalidID},
		{strings.Repeat("[", 20000), "9", CodeInvalidJSON},
	} {
		r := ParseRecord(9, []byte(tt.raw))
		code := ""
		var e *RecordError
		if errors.As(r.Err, &e) {
			code = e.Code
		}
		if r.ID != tt.id || code != tt.code || r.Line != 9 {
			t.Errorf("%.60s: got id %s, %v, want %s, %q", tt.raw, r.ID, r.Err, tt.id, tt.code)
		}
		if r.Err != nil && strings.Contains(r.Err.Error(), "\n") {
			t.Errorf("%.60s: the error has several lines: %q", tt.raw, r.Err)
		}
	}
}

func TestText(t *testing.T) {
	for _, tt := range []struct {
		raw, want string
		ok        bool
	}{
		{`"a\u0000b"`, "a\x00b", true},
		{`"\ud83d\ude00"`, "😀", true},
		{`"\\ud800"`, `\ud800`, true},
		{`"\ufffd"`, "\ufffd", true},
		{`"\ud83d"`, "", false},
		{`"\ud83dx\ude00"`, "", false},
		{`"\ude00\ud83d"`, "", false},
		{`"\ud83d\ud83d\ude00"`, "", false},
		{`1`, "", false},
		{`null`, "", false},
		{``, "", false},
	} {
		got, err := Text(json.RawMessage(tt.raw))
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%s: got %q, %v, want %q, ok %v", tt.raw, got, err, tt.want, tt.ok)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	for _, s := range []string{`{"id":"a","x":[1,{"y":null}]}`, `{"id":3}`, "", `{"a":"\ud800"}`, `{"custom_id":"\u00e9"}`, "\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := ParseRecord(1, raw)
		if r.Err == nil && !json.Valid(raw) {
			t.Errorf("%q is no JSON", raw)
		}
		if !json.Valid([]byte(r.ID)) {
			t.Errorf("%q: the id %q is no JSON", raw, r.ID)
		}
		for _, v := range r.Fields {
			s, err := Text(v)
			var std string
			if json.Unmarshal(v, &std) == nil && err == nil && s != std {
				t.Errorf("%q: got %q, want %q", v, s, std)
			}
		}
	})
}

func readAll(t *testing.T, r *Reader, s Shard) (lines []string) {
	t.Helper()
	for {
		rec, err := r.Next(s)
		if errors.Is(err, io.EOF) {
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%d:%s", rec.Line, rec.Raw))
	}
}

func TestReader(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", ""},
		{"\n", "1:"},
		{"a\nb", "1:a 2:b"},
		{"a\n\nb\n", "1:a 2: 3:b"},
		{"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", "1:a 2:\xef\xbb\xbfb"},
		{strings.Repeat("x", 200000) + "\ny\n", "1:" + strings.Repeat("x", 200000) + " 2:y"},
	} {
		if got := strings.Join(readAll(t, NewReader(strings.NewReader(tt.text), "x"), Shard{}), " "); got != tt.want {
			t.Errorf("%.40q: got %.60q, want %.60q", tt.text, got, tt.want)
		}
	}
	long := io.MultiReader(strings.NewReader("a\n"), io.LimitReader(endless('x'), MaxLine+1), strings.NewReader("\nb\n"))
	r := NewReader(long, "x")
	for i, code := range []string{CodeInvalidJSON, CodeLineTooLong, CodeInvalidJSON} {
		rec, err := r.Next(Shard{})
		var e *RecordError
		if err != nil || !errors.As(rec.Err, &e) || e.Code != code || rec.Line != i+1 {
			t.Fatalf("line %d: got %+v, %v, want %s", i+1, rec, err, code)
		}
	}
	broken := NewReader(io.MultiReader(strings.NewReader("a\n"), errReader{}), "in.jsonl")
	if _, err := broken.Next(Shard{}); err != nil {
		t.Fatal(err)
	}
	if _, err := broken.Next(Shard{}); !errors.Is(err, errRead) || !strings.Contains(err.Error(), "line 1 of in.jsonl") {
		t.Errorf("got %v", err)
	}
}

var errRead = errors.New("cannot read")

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errRead }

type endless byte

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e)
	}
	return len(p), nil
}

func TestReaderCompressed(t *testing.T) {
	dir := t.TempDir()
	var gz, zs bytes.Buffer
	g := gzip.NewWriter(&gz)
	z, err := zstd.NewWriter(&zs)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []io.WriteCloser{g, z} {
		if _, err := io.WriteString(w, "{\"id\":1}\n{\"id\":2}\nlast"); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range map[string][]byte{"a.gz": gz.Bytes(), "b.zst": zs.Bytes()} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		in, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(readAll(t, NewReader(in, name), Shard{}), " "); got != `1:{"id":1} 2:{"id":2} 3:last` {
			t.Errorf("%s: got %q", name, got)
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		if n, err := CountLines(path); n != 3 || err != nil {
			t.Errorf("%s has %d lines, %v, want 3", name, n, err)
		}
		if err := os.WriteFile(path, data[:len(data)-9], 0o666); err != nil { // cut in the middle
			t.Fatal(err)
		}
		if in, err = Open(path); err != nil {
			t.Fatal(err)
		}
		r := NewReader(in, name)
		for err == nil {
			_, err = r.Next(Shard{})
		}
		if errors.Is(err, io.EOF) {
			t.Errorf("%s: a cut file ends like a whole one", name)
		}
		_ = in.Close()
	}
}

func TestShards(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.IntRange(0, 40).Draw(t, "lines")
		n := rapid.IntRange(1, 9).Draw(t, "n")
		seen := map[int]int{}
		for i := range n {
			s := Shard{i, n}
			r := NewReader(strings.NewReader(strings.Repeat("x\n", lines)), "x")
			count := 0
			for {
				rec, err := r.Next(s)
				if err != nil {
					break
				}
				seen[rec.Line]++
				count++
			}
			if got := s.Count(lines); got != count {
				t.Fatalf("shard %s of %d lines: Count %d, want %d", s, lines, got, count)
			}
		}
		for line := 1; line <= lines; line++ {
			if seen[line] != 1 {
				t.Fatalf("line %d is in %d shards", line, seen[line])
			}
		}
	})
	for _, text := range []string{"", "1", "a/2", "2/2", "-1/2", "0/0", "1/2/3"} {
		if s, err := ParseShard(text); err == nil {
			t.Errorf("ParseShard(%q) = %v", text, s)
		}
	}
}

func TestEnvShard(t *testing.T) {
	for _, tt := range []struct {
		env  string
		n    int
		want string
		bad  bool
	}{
		{"", 0, "0/0", false},
		{"SLURM_ARRAY_TASK_ID=3 SLURM_ARRAY_TASK_COUNT=8 SLURM_ARRAY_TASK_MIN=0", 0, "3/8", false},
		{"SLURM_ARRAY_TASK_ID=8 SLURM_ARRAY_TASK_COUNT=8 SLURM_ARRAY_TASK_MIN=1", 0, "7/8", false},
		{"SLURM_ARRAY_TASK_ID=10 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=0 SLURM_ARRAY_TASK_STEP=5", 0, "2/3", false},
		{"SLURM_ARRAY_TASK_ID=3", 0, "", true},
		{"SLURM_ARRAY_TASK_ID=3", 4, "3/4", false},
		{"SLURM_ARRAY_TASK_ID=x SLURM_ARRAY_TASK_COUNT=8", 0, "", true},
		{"SLURM_ARRAY_TASK_ID=9 SLURM_ARRAY_TASK_COUNT=8", 0, "", true},
		{"JOB_COMPLETION_INDEX=2", 5, "2/5", false},
		{"JOB_COMPLETION_INDEX=2", 0, "", true},
		{"JOB_COMPLETION_INDEX=5", 5, "", true},
	} {
		getenv := func(name string) string {
			for _, kv := range strings.Fields(tt.env) {
				if k, v, _ := strings.Cut(kv, "="); k == name {
					return v
				}
			}
			return ""
		}
		s, _, err := EnvShard(getenv, tt.n)
		if (err != nil) != tt.bad || !tt.bad && s.String() != tt.want {
			t.Errorf("%s, %d: got %s, %v, want %s", tt.env, tt.n, s, err, tt.want)
		}
	}
}
