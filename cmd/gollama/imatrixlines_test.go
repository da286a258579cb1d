package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gollama/internal/pipeline"
)

// The lines of a shard come back as they are in the file, and all of the file is hashed.
func TestIndexRecords(t *testing.T) {
	long := `{"text":"` + strings.Repeat("x", 600_000) + `"}` // longer than the buffer
	for name, c := range map[string]struct {
		data  string
		shard pipeline.Shard
		want  map[int]string
	}{
		"plain":       {data: "a\nb\n", want: map[int]string{1: "a", 2: "b"}},
		"no newline":  {data: "a\nb", want: map[int]string{1: "a", 2: "b"}},
		"blank lines": {data: "\n  \na\r\n\t\n\nb\n", want: map[int]string{3: "a\r", 6: "b"}},
		"BOM":         {data: "\xef\xbb\xbfa\nb", want: map[int]string{1: "a", 2: "b"}},
		"long":        {data: long + "\n" + long, want: map[int]string{1: long, 2: long}},
		"shard":       {data: "a\nb\n\nd\ne\n", shard: pipeline.Shard{I: 1, N: 2}, want: map[int]string{2: "b", 4: "d"}},
		"empty":       {data: ""},
		"only blanks": {data: "\n\n"},
	} {
		path := filepath.Join(t.TempDir(), "records")
		if err := os.WriteFile(path, []byte(c.data), 0o600); err != nil {
			t.Fatal(err)
		}
		s := &imatrixSource{shard: c.shard}
		var hashed bytes.Buffer
		if err := s.indexRecords(path, &hashed); err != nil {
			t.Fatal(err)
		}
		if hashed.String() != c.data || (s.records == nil) != (c.data == "") {
			t.Errorf("%s: %d of %d bytes were hashed, open %v", name, hashed.Len(), len(c.data), s.records != nil)
		}
		slices.Reverse(s.lines) // in any order
		got := map[int]string{}
		for _, l := range s.lines {
			raw, err := s.readLine(l)
			if err != nil {
				t.Fatal(err)
			}
			got[int(l.number)] = string(raw)
			if span := l.span(); span.From != int64(l.number)-1 || span.To != int64(l.number) {
				t.Errorf("%s: line %d has span %v", name, l.number, span)
			}
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: %d lines, want %d", name, len(got), len(c.want))
		}
		for n, want := range c.want {
			if got[n] != want {
				t.Errorf("%s, line %d: %.40q, want %.40q", name, n, got[n], want)
			}
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}
}
