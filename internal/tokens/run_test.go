package tokens

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

const storyPath = "../../../shared/models/stories260K.gguf"

// small opens a small vocabulary: an SPM one that is always there with the
// engine.
func small(t testing.TB) *Model {
	t.Helper()
	path := filepath.Join(vocabDir, "ggml-vocab-llama-spm.gguf")
	m, err := Open(context.Background(), path, Fast)
	if err != nil {
		t.Skipf("make engine: %v", err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

func TestRecords(t *testing.T) {
	long := strings.Repeat("x", 700_000)
	for _, tt := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{"a", []string{"a"}},
		{"a\n", []string{"a"}},
		{"a\n\nb\r\n", []string{"a", "", "b\r"}},
		{"\n", []string{""}},
		{long + "\n" + "b\n" + long, []string{long, "b", long}},
	} {
		for _, r := range []io.Reader{strings.NewReader(tt.text), &slowReader{text: tt.text}} {
			var got []string
			if err := records(r, '\n', func(i int, rec []byte) error {
				if i != len(got) {
					t.Errorf("%.20q: record %d is called %d", tt.text, len(got), i)
				}
				got = append(got, string(rec))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("records(%.20q) = %.40q, want %.40q", tt.text, got, tt.want)
			}
		}
	}
}

// slowReader gives a few bytes at a time.
type slowReader struct{ text string }

func (r *slowReader) Read(p []byte) (int, error) {
	if r.text == "" {
		return 0, io.EOF
	}
	n := copy(p, r.text[:min(len(r.text), 4093)])
	r.text = r.text[n:]
	return n, nil
}

// TestPacked: gzip and Zstandard are unpacked, and damage is an error.
func TestPacked(t *testing.T) {
	text := []byte(strings.Repeat("line\n", 1000))
	var gz bytes.Buffer
	w := gzip.NewWriter(&gz)
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	zst := enc.EncodeAll(text, nil)
	dir := t.TempDir()
	for name, data := range map[string][]byte{"plain": text, "gz": gz.Bytes(), "zst": zst, "cut.gz": gz.Bytes()[:gz.Len()/2], "cut.zst": zst[:len(zst)/2]} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		in := &Input{Files: Names([]string{path})}
		n := 0
		in.Read(context.Background(), func(d Doc) bool {
			n++
			if bad := strings.HasPrefix(name, "cut"); bad != (d.Err != nil) || !bad && !bytes.Equal(d.Text, text) {
				t.Errorf("%s: %d bytes, %v", name, len(d.Text), d.Err)
			}
			return true
		})
		if n != 1 {
			t.Errorf("%s: %d documents, want 1", name, n)
		}
	}
}

// TestRunOrder: any number of jobs gives the same results in the same order.
func TestRunOrder(t *testing.T) {
	m := small(t)
	r := rand.New(rand.NewPCG(1, 2))
	var lines []string
	for i := range 20_000 {
		lines = append(lines, fmt.Sprintf("%d %s", i, strings.Repeat("word ", r.IntN(40))))
	}
	var want string
	for _, jobs := range []int{1, 2, 8} {
		var got strings.Builder
		n := 0
		run := &Run{Model: m, Jobs: jobs, Options: Options{Invalid: KeepOrFail},
			Input:  &Input{Files: Names([]string{"-"}), Stdin: strings.NewReader(strings.Join(lines, "\n")), Split: ByLine},
			Format: func(dst []byte, r *Result) []byte { return append(AppendIDs(dst, r.IDs, " "), '\n') },
			Emit: func(b *Batch) error {
				for i, res := range b.Results {
					if res.Record != n || i > 0 && b.Ends[i] <= b.Ends[i-1] {
						return fmt.Errorf("record %d at place %d, ends %v", res.Record, n, b.Ends[i])
					}
					n++
				}
				got.Write(b.Out)
				return nil
			}}
		if err := run.Do(context.Background()); err != nil {
			t.Fatal(err)
		}
		if n != len(lines) {
			t.Errorf("%d jobs: %d documents, want %d", jobs, n, len(lines))
		}
		if want == "" {
			want = got.String()
		} else if got.String() != want {
			t.Errorf("%d jobs: other output than one", jobs)
		}
	}
}

// TestRunEnds: an error of Emit and the end of the context end a run, even when
// the input gives nothing more.
func TestRunEnds(t *testing.T) {
	m := small(t)
	pr, pw := io.Pipe()
	t.Cleanup(func() { _ = pw.Close() })
	stop := errors.New("stop")
	run := &Run{Model: m, Options: Options{Invalid: KeepOrFail}, Input: &Input{Texts: []string{"a"}}, Emit: func(*Batch) error { return stop }}
	if err := run.Do(context.Background()); !errors.Is(err, stop) {
		t.Errorf("Do = %v, want %v", err, stop)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	run.Input = &Input{Files: Names([]string{"-"}), Stdin: pr, Split: ByLine}
	if err := run.Do(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Do = %v, want the context's error", err)
	}
}

// TestMemory: 100 MB of lines take little memory.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	m := small(t)
	line := strings.Repeat("The quick brown fox jumps over the lazy dog. ", 4) + "\n"
	text := io.LimitReader(&repeat{text: line}, 100<<20)
	var s runtime.MemStats
	debug.FreeOSMemory() // what earlier tests left does not count
	runtime.ReadMemStats(&s)
	before, peak := s.HeapInuse, uint64(0)
	n := 0
	run := &Run{Model: m, Options: Options{Invalid: KeepOrFail}, Input: &Input{Files: Names([]string{"-"}), Stdin: text, Split: ByLine},
		Format: func(dst []byte, r *Result) []byte { return AppendIDs(dst, r.IDs, " ") },
		Emit: func(b *Batch) error {
			if n++; n%50 == 0 {
				runtime.ReadMemStats(&s)
				peak = max(peak, s.HeapInuse)
			}
			return nil
		}}
	if err := run.Do(context.Background()); err != nil {
		t.Fatal(err)
	}
	if peak > before+200<<20 {
		t.Errorf("the heap grew from %d to %d MB, want at most 200 more", before>>20, peak>>20)
	}
}

type repeat struct {
	text string
	at   int
}

func (r *repeat) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		k := copy(p[n:], r.text[r.at:])
		n += k
		r.at = (r.at + k) % len(r.text)
	}
	return n, nil
}

// roundTrip: decoding gives the text back, byte for byte, and the offsets
// spell it, for SPM and BPE on valid text and for SPM on any bytes.
func roundTrip(t *testing.T, m *Model, path string) {
	h := newHostile(5, m.Vocab)
	texts, _ := pinned(t, path)
	for range 2000 {
		text := h.text(1 + h.r.IntN(60))
		if m.Type != "spm" {
			text = bytes.ToValidUTF8(text, []byte("x"))
		}
		// Lost by design: a blank looks like a space.
		texts = append(texts, strings.ReplaceAll(string(text), blank, " "))
	}
	if file, err := os.ReadFile("../../../shared/data/shakespeare.txt"); err == nil {
		texts = append(texts, string(file[:1_000_000]))
	}
	w, err := m.newWorker(Options{Invalid: KeepOrFail})
	if err != nil {
		t.Fatal(err)
	}
	strip := newSpecials(m.Vocab, false).strip
	for _, text := range texts {
		r, _ := w.do(Doc{Text: []byte(text)}, nil)
		if r.Err != nil {
			t.Fatalf("%q: %v", text, r.Err)
		}
		if strip || r.Dropped > 0 {
			continue // white space that tokens take along, bytes without a token: lost in llama.cpp too
		}
		if got := m.Decode(nil, r.IDs, w.bos, w.eos); string(got) != text {
			t.Fatalf("decode(encode(%.200q)) = %.200q", text, got)
		}
		if m.Type == "spm" && strings.ToValidUTF8(text, "") != text {
			continue // the blank of a space may be spelled by its bytes
		}
		at, ok := m.Offsets(&r, false)
		if !ok {
			t.Fatalf("no offsets for %.200q", text)
		}
		pos := 0
		for i, o := range at[r.Front:] {
			if o[0] != pos || o[1] < o[0] {
				t.Fatalf("%.100q: token %d is at %v, want it from %d on", text, i, o, pos)
			}
			pos = o[1]
		}
		if pos != len(text) {
			t.Fatalf("%.100q: offsets end at %d of %d", text, pos, len(text))
		}
	}
}

// compareEnds compares with add_special of llama_tokenize.
func compareEnds(t *testing.T, b *both) {
	w, err := b.fast.newWorker(Options{BOS: ModelsOwn, EOS: ModelsOwn, Parse: true, Invalid: KeepOrFail})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "Hello world", " a"} {
		want, err := b.slow.eng.Vocab().Tokenize(text, true, true)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := w.do(Doc{Text: []byte(text)}, nil); !slices.Equal(got.IDs, want) {
			t.Errorf("%q = %v, want %v", text, got.IDs, want)
		}
	}
}

// TestTokenFile writes and reads a token file, and damages it.
func TestTokenFile(t *testing.T) {
	docs := [][]Token{{1, 2, 3}, {}, {65535, 0}}
	for _, vocab := range []int{65536, 65537} {
		path := filepath.Join(t.TempDir(), "t.bin")
		w, err := Create(path, vocab, Manifest{BOS: "auto"})
		if err != nil {
			t.Fatal(err)
		}
		for i, d := range docs {
			if err := w.Add(d, i); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := os.Stat(path); err == nil {
			t.Error("the file is there before Commit")
		}
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		raw, _ := os.ReadFile(path)
		if want := 5 * Width(vocab); len(raw) != want || Width(vocab) == 2 && binary.LittleEndian.Uint16(raw[6:]) != 65535 {
			t.Errorf("vocabulary of %d: % x, want %d bytes", vocab, raw, want)
		}
		f, err := OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range docs {
			start, end := f.Bounds(i)
			got := make([]Token, end-start)
			if err := f.Read(got, start); err != nil || !slices.Equal(got, want) {
				t.Errorf("document %d = %v, %v, want %v", i, got, err, want)
			}
		}
		if err := errors.Join(f.Verify(), f.Close(), f.Close()); err != nil {
			t.Error(err)
		}
		for name, damage := range map[string]func(){
			"short":    func() { _ = os.WriteFile(path, raw[1:], 0o666) },
			"index":    func() { _ = os.WriteFile(path+".idx", bytes.Repeat([]byte{9}, 24), 0o666) },
			"manifest": func() { _ = os.WriteFile(path+".json", []byte(`{"format":"x"}`), 0o666) },
		} {
			damage()
			if _, err := OpenFile(path); !errors.Is(err, ErrFile) {
				t.Errorf("%s: OpenFile = %v, want ErrFile", name, err)
			}
		}
	}
}

// TestManifest: the names that other programs read.
func TestManifest(t *testing.T) {
	bos := Token(1)
	b, err := json.Marshal(Manifest{DType: "uint16", BOSToken: &bos})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{`"dtype":"uint16"`, `"n_tokens":0`, `"n_documents":0`, `"sha256":""`, `"bos_token":1`, `"eos_token":null`} {
		if !strings.Contains(string(b), name) {
			t.Errorf("the manifest lacks %s: %s", name, b)
		}
	}
}

// FuzzEncode compares both ways on a vocabulary of each type.
func FuzzEncode(f *testing.F) {
	var list []*both
	for _, name := range []string{"llama-spm", "llama-bpe", "deepseek-coder", "gpt-neox"} {
		path := filepath.Join(vocabDir, "ggml-vocab-"+name+".gguf")
		if _, err := os.Stat(path); err != nil {
			f.Skip("make engine")
		}
		list = append(list, openBoth(f, path))
	}
	f.Add([]byte("Hello,  world\n\t 123 <|endoftext|>"), true)
	f.Add([]byte("\xff\xe6\xad日本 'LL"), false)
	f.Fuzz(func(t *testing.T, text []byte, parse bool) {
		for _, b := range list {
			if err := b.compare(text, parse); err != nil {
				t.Errorf("%s: %v", vocabName(b.fast.path), err)
			}
		}
	})
}

// TestRunCounts: what upstream's regular expressions crash on (T5).
func TestRunCounts(t *testing.T) {
	m, err := Open(context.Background(), filepath.Join(vocabDir, "ggml-vocab-deepseek-llm.gguf"), Fast)
	if err != nil {
		t.Skip(err)
	}
	for _, tt := range []struct {
		text string
		n    int
		want int
	}{{"a", 30_000, 3750}, {"a", 1_000_000, 125_000}, {"a", 3_000_000, 375_000}, {"一", 300_000, 300_000}, {"1", 300_000, 300_000}, {"!?", 150_000, 150_001}} {
		ids, err := m.NewEncoder().Encode(nil, []byte(strings.Repeat(tt.text, tt.n)), false)
		if err != nil || len(ids) != tt.want {
			t.Errorf("%q x %d: %d ids, %v, want %d", tt.text, tt.n, len(ids), err, tt.want)
		}
	}
}
