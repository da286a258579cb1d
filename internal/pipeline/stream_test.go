package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// echoLine is the result of a good record.
func echoLine(r *Record) []byte {
	return fmt.Appendf(nil, `{"id":%s,"line":%d,"key":"%s"}`, r.ID, r.Line, echoKey(r))
}

func echoKey(r *Record) string { return fmt.Sprintf("k%d", len(r.Raw)) }

func echoError(r *Record, err error) ([]byte, error) {
	return fmt.Appendf(nil, `{"id":%s,"error":%q,"key":"%s"}`, r.ID, err, echoKey(r)), nil
}

func parseEcho(line []byte) (ParsedLine, error) {
	var v struct {
		ID    json.RawMessage
		Key   string
		Error string
	}
	err := json.Unmarshal(line, &v)
	return ParsedLine{string(v.ID), v.Key, v.Error != "", strings.Contains(v.Error, "is that of line")}, err
}

func echoStream(input string, out *Output, cfg StreamConfig) *Stream {
	cfg.In, cfg.Out, cfg.Key, cfg.ErrorLine = NewReader(strings.NewReader(input), "x"), out, echoKey, echoError
	return NewStream(cfg)
}

// drive does what is left in chance's order, with at most width records at a
// time, and stops after stop results if that is not negative.
func drive(t interface{ Fatalf(string, ...any) }, s *Stream, rnd *rand.Rand, width, stop int) (done int) {
	var open []*Record
	ended := false
	for {
		for !ended && len(open) < width {
			r, err := s.Next(context.Background())
			if errors.Is(err, io.EOF) {
				ended = true
				break
			}
			if err != nil {
				t.Fatalf("Next: %v", err)
			}
			open = append(open, r)
			if rnd.IntN(3) == 0 {
				break
			}
		}
		if len(open) == 0 && ended || done == stop {
			return done
		}
		i := rnd.IntN(len(open))
		r := open[i]
		open = append(open[:i], open[i+1:]...)
		var err error
		if bytes.Contains(r.Raw, []byte(`"fail"`)) {
			err = s.Fail(r, errors.New("it fails"))
		} else {
			err = s.Done(r, echoLine(r))
		}
		if err != nil {
			t.Fatalf("Done: %v", err)
		}
		done++
	}
}

// someRecords is a list of records, some of which are bad in one way or another.
func someRecords(t *rapid.T) string {
	var b strings.Builder
	for i := range rapid.IntRange(0, 40).Draw(t, "records") {
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0:
			b.WriteString("{bad\n")
		case 1:
			b.WriteString("\n")
		case 2:
			b.WriteString(`{"id":"same"}` + "\n")
		case 3:
			fmt.Fprintf(&b, `{"id":"f%d","fail":1}`+"\n", i)
		case 4:
			b.WriteString(`{"x":1}` + "\n")
		default:
			fmt.Fprintf(&b, `{"id":"r%d"}`+"\n", i)
		}
	}
	return strings.TrimSuffix(b.String(), rapid.SampledFrom([]string{"", "\n"}).Draw(t, "end"))
}

// TestStreamResume: a run that is killed anywhere, even inside a line, and
// resumed, as often as may be, gives the file of one that was not.
func TestStreamResume(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		text := someRecords(t)
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		width := rapid.IntRange(1, 8).Draw(t, "width")
		cfg := StreamConfig{MaxErrors: -1, Unordered: rapid.Bool().Draw(t, "unordered")}
		var whole bytes.Buffer
		s := echoStream(text, WriterOutput(&whole), cfg)
		drive(t, s, rnd, width, -1)
		failed := s.Counts().Failed
		if n := s.Counts(); n.Written != n.Read || n.Read != strings.Count(whole.String(), "\n") {
			t.Fatalf("counts %+v for %d lines", n, strings.Count(whole.String(), "\n"))
		}
		path := filepath.Join(dir, "out")
		_ = os.Remove(path)
		for range rapid.IntRange(0, 4).Draw(t, "kills") {
			out, err := ResumeOutput(path, parseEcho)
			if err != nil {
				t.Fatalf("resume: %v", err)
			}
			drive(t, echoStream(text, out, cfg), rnd, width, rnd.IntN(20))
			_ = out.file.Close()                                       // without the sync of Close, as a kill
			if st, err := os.Stat(path); err == nil && st.Size() > 0 { // the kill comes inside a write
				if err := os.Truncate(path, st.Size()-rnd.Int64N(min(st.Size(), 60))); err != nil {
					t.Fatalf("truncate: %v", err)
				}
			}
		}
		out, err := ResumeOutput(path, parseEcho)
		if err != nil {
			t.Fatalf("resume: %v", err)
		}
		s = echoStream(text, out, cfg)
		did := drive(t, s, rnd, width, -1)
		_ = out.file.Close()
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("%v", err)
		}
		if n := s.Counts(); n.Skipped+n.Written != n.Read || did > n.Written || n.Failed != failed {
			t.Fatalf("counts %+v, %d done, want %d failed", n, did, failed)
		}
		if cfg.Unordered {
			if a, b := sortedLines(string(got)), sortedLines(whole.String()); a != b {
				t.Fatalf("got\n%s\nwant\n%s", a, b)
			}
			return
		}
		if string(got) != whole.String() {
			t.Fatalf("got\n%s\nwant\n%s", got, whole.String())
		}
	})
}

func sortedLines(s string) string {
	lines := strings.SplitAfter(s, "\n")
	for i := range lines { // few lines: insertion sort
		for j := i; j > 0 && lines[j] < lines[j-1]; j-- {
			lines[j], lines[j-1] = lines[j-1], lines[j]
		}
	}
	return strings.Join(lines, "")
}

func TestStreamOrder(t *testing.T) {
	var b strings.Builder
	s := echoStream("{\"id\":1}\n{\"id\":2}\n{\"id\":1}\n", WriterOutput(&b), StreamConfig{MaxErrors: -1})
	one, _ := s.Next(t.Context())
	two, _ := s.Next(t.Context())
	if _, err := s.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end: the third has the id of the first", err)
	}
	if err := s.Done(two, echoLine(two)); err != nil || b.Len() != 0 {
		t.Errorf("%v; written before the first: %q", err, b.String())
	}
	if err := s.Done(one, echoLine(one)); err != nil {
		t.Error(err)
	}
	want := "{\"id\":1,\"line\":1,\"key\":\"k8\"}\n{\"id\":2,\"line\":2,\"key\":\"k8\"}\n{\"id\":1,\"error\":\"line 3: the id 1 is that of line 1\",\"key\":\"k8\"}\n"
	if b.String() != want {
		t.Errorf("got %s, want %s", b.String(), want)
	}
}

func TestStreamOtherRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(path, []byte(`{"id":"a","key":"other"}`+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	out, err := ResumeOutput(path, parseEcho)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	if _, err := echoStream(`{"id":"a"}`, out, StreamConfig{MaxErrors: -1}).Next(t.Context()); !errors.Is(err, ErrOtherRun) {
		t.Errorf("got %v, want %v", err, ErrOtherRun)
	}
	if err := os.WriteFile(path, []byte("no result\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := ResumeOutput(path, parseEcho); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("got %v", err)
	}
	if _, err := CreateOutput(path); !errors.Is(err, ErrOutputExists) {
		t.Errorf("got %v, want %v", err, ErrOutputExists)
	}
	if o, err := CreateOutput(os.DevNull); err != nil {
		t.Error(err)
	} else if err := o.Close(); err != nil {
		t.Error(err)
	}
}

func TestStreamMaxErrors(t *testing.T) {
	var b strings.Builder
	s := echoStream("{\n{\"id\":\"a\"}\n{\n{\n{\"id\":\"b\"}\n", WriterOutput(&b), StreamConfig{MaxErrors: 1})
	a, err := s.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end after the second failed record", err)
	}
	if err := s.Done(a, echoLine(a)); err != nil { // what was begun is written
		t.Error(err)
	}
	if !errors.Is(s.Err(), ErrTooManyErrors) || strings.Count(b.String(), "\n") != 3 {
		t.Errorf("got %v, %q", s.Err(), b.String())
	}
}

// TestStreamWindow: a slow record holds up the reading, so that results do not pile up.
func TestStreamWindow(t *testing.T) {
	s := echoStream(strings.Repeat("{}\n", 100), WriterOutput(io.Discard), StreamConfig{MaxErrors: -1, Window: 5})
	slow, _ := s.Next(t.Context())
	for range 4 {
		r, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Done(r, echoLine(r)); err != nil {
			t.Fatal(err)
		}
	}
	got := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _, err := s.Next(ctx); got <- err }()
	select {
	case err := <-got:
		t.Fatalf("the sixth record came while the first was not done: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	if err := s.Done(slow, echoLine(slow)); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
	for range 4 { // fill it again, and give up
		_, _ = s.Next(t.Context())
	}
	go func() { _, err := s.Next(ctx); got <- err }()
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

type failingWriter struct{ left int }

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.left--; w.left < 0 {
		return 0, errRead
	}
	return len(p), nil
}

func TestEach(t *testing.T) {
	text := strings.Repeat("{}\n", 200)
	double := func(_ context.Context, r *Record) (any, error) {
		if r.Line%10 == 0 {
			return nil, errors.New("ten")
		}
		return map[string]int{"line": r.Line}, nil
	}
	for _, workers := range []int{0, 1, 7} {
		var b strings.Builder
		s := echoStream(text, WriterOutput(&b), StreamConfig{MaxErrors: -1})
		if err := Each(t.Context(), s, workers, double); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(b.String(), "\n")
		if n := s.Counts(); len(lines) != 201 || lines[0] != `{"line":1}` || lines[198] != `{"line":199}` || n.Failed != 20 || n.Written != 200 {
			t.Errorf("%d workers: %d lines, %+v", workers, len(lines), n)
		}
	}
	if err := Each(t.Context(), echoStream(text, WriterOutput(&failingWriter{left: 50}), StreamConfig{MaxErrors: -1}), 3, double); !errors.Is(err, errRead) {
		t.Errorf("got %v, want %v", err, errRead)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var once sync.Once
	err := Each(ctx, echoStream(text, WriterOutput(io.Discard), StreamConfig{MaxErrors: -1}), 3, func(ctx context.Context, r *Record) (any, error) {
		once.Do(cancel)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

// TestStreamMemory: 200,000 records leave little behind.
func TestStreamMemory(t *testing.T) {
	const n = 200_000
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	text := strings.Repeat(`{"text":"`+strings.Repeat("x", 100)+`"}`+"\n", n)
	before := heap()
	s := echoStream(text, WriterOutput(io.Discard), StreamConfig{MaxErrors: -1})
	if err := Each(t.Context(), s, 4, func(_ context.Context, r *Record) (any, error) { return r.Raw[:0], nil }); err != nil {
		t.Fatal(err)
	}
	// What is kept of each is the hash of its id.
	if after := heap(); after > before+n*60 {
		t.Errorf("%d bytes a record are left", (after-before)/n)
	}
	runtime.KeepAlive(s)
}
