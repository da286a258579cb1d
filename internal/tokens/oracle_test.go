package tokens

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// vocabDir has the 19 vocabularies of the pinned source, with texts and ids.
const vocabDir = "../../.engine/src/models"

// both is a vocabulary with both ways to encode; the same twice if it has no fast path.
type both struct {
	fast, slow *Model
	f, s       Encoder
}

func openBoth(t testing.TB, path string) *both {
	t.Helper()
	b := &both{}
	var err error
	if b.slow, err = Open(context.Background(), path, ByEngine); err != nil {
		t.Skipf("no engine or no vocabulary: %v", err)
	}
	t.Cleanup(func() { _ = b.slow.Close() })
	b.s = b.slow.NewEncoder()
	if slowVocabs[vocabName(path)] != "" {
		b.fast, b.f = b.slow, b.s
		return b
	}
	if b.fast, err = Open(context.Background(), path, Auto); err != nil {
		t.Fatal(err)
	}
	b.f = b.fast.NewEncoder()
	return b
}

// compare encodes text both ways.
func (b *both) compare(text []byte, parse bool) error {
	want, err := b.s.Encode(nil, text, parse)
	got, gotErr := b.f.Encode(nil, slices.Clone(text), parse)
	if (err != nil) != (gotErr != nil) {
		return fmt.Errorf("%.100q, parse %v: error %v, llama_tokenize %v", text, parse, gotErr, err)
	}
	if slices.Equal(got, want) {
		return nil
	}
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	show := func(ids []Token) string {
		var s []string
		for _, t := range ids[max(0, i-2):min(len(ids), i+6)] {
			s = append(s, fmt.Sprintf("%d %q", t, b.fast.Piece(t)))
		}
		return strings.Join(s, ", ")
	}
	return fmt.Errorf("%.200q, parse %v: token %d of %d: %s; llama_tokenize, %d: %s", text, parse, i, len(got), show(got), len(want), show(want))
}

// vocabs lists the vocabulary files.
func vocabs(t testing.TB) []string {
	t.Helper()
	list, _ := filepath.Glob(filepath.Join(vocabDir, "ggml-vocab-*.gguf"))
	if len(list) < 19 {
		t.Skipf("%s has %d vocabularies; make engine", vocabDir, len(list))
	}
	return list
}

func vocabName(path string) string {
	return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "ggml-vocab-"), ".gguf")
}

// slowVocabs have no fast path, with the reason.
var slowVocabs = map[string]string{"bert-bge": "vocabulary of type wpm", "nomic-bert-moe": "vocabulary of type ugm"}

// pinned returns texts and ids of upstream's own test (tests/test-tokenizer-0.cpp).
func pinned(t *testing.T, path string) (texts []string, ids [][]Token) {
	t.Helper()
	inp, err := os.ReadFile(path + ".inp")
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.ReadFile(path + ".out")
	if err != nil {
		t.Fatal(err)
	}
	texts = strings.Split(strings.TrimSuffix(string(inp), "\n__ggml_vocab_test__\n"), "\n__ggml_vocab_test__\n")
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(texts) != len(lines) {
		t.Fatalf("%d texts, %d lines of ids", len(texts), len(lines))
	}
	for _, l := range lines {
		var list []Token
		for _, f := range strings.Fields(l) {
			var id Token
			if _, err := fmt.Sscan(f, &id); err != nil {
				t.Fatal(err)
			}
			list = append(list, id)
		}
		ids = append(ids, list)
	}
	return texts, ids
}

// TestVocabularies compares the fast path with the engine on each vocabulary, which is loaded once: upstream's own vectors,
// what is added at the ends, pieces and special tokens, hostile text, whole texts, and the way back.
func TestVocabularies(t *testing.T) {
	files, _ := filepath.Glob("../../../shared/data/*.txt")
	var vectors atomic.Int64
	paths := vocabs(t)
	if _, err := os.Stat(storyPath); err == nil {
		paths = append(paths, storyPath)
	}
	t.Run("all", func(t *testing.T) {
		for i, path := range paths {
			t.Run(vocabName(path), func(t *testing.T) {
				t.Parallel()
				b := openBoth(t, path)
				t.Run("pinned", func(t *testing.T) { vectors.Add(comparePinned(t, b, path)) })
				t.Run("ends", func(t *testing.T) { compareEnds(t, b) })
				if why := slowVocabs[vocabName(path)]; why != "" {
					if m, err := Open(context.Background(), path, Fast); err == nil || !strings.Contains(err.Error(), why) {
						_ = m.Close()
						t.Errorf("the fast path: %v, want none because of %q", err, why)
					}
					return
				}
				if b.fast.Slow() != "" {
					t.Fatalf("no fast path because of %q", b.fast.Slow())
				}
				t.Run("pieces", func(t *testing.T) { comparePieces(t, b) })
				t.Run("hostile", func(t *testing.T) { differ(t, b, uint64(i), hostileBytes(t, 150_000)) })
				t.Run("texts", func(t *testing.T) { compareTexts(t, b, files) })
				if name := vocabName(path); name == "gemma-4" || name == "llama-bpe" { // others have tokens for the bytes
					t.Run("spaces", func(t *testing.T) { compareSpaces(t, b) })
				}
				t.Run("back", func(t *testing.T) { roundTrip(t, b.fast, path) })
			})
		}
	})
	if n := vectors.Load(); n != 2*694 {
		t.Errorf("%d vectors, want 694 both ways", n)
	}
}

// comparePinned compares both ways with the pinned vectors and returns how many are equal.
func comparePinned(t *testing.T, b *both, path string) (equal int64) {
	texts, ids := pinned(t, path)
	for _, e := range []Encoder{b.f, b.s} {
		for i, text := range texts {
			got, err := e.Encode(nil, []byte(text), false)
			if err != nil || !slices.Equal(got, ids[i]) {
				t.Errorf("%T: %q = %v, %v, want %v", e, text, got, err, ids[i])
				continue
			}
			equal++
		}
	}
	return equal
}

// comparePieces compares what is known of each token with the engine's.
func comparePieces(t *testing.T, b *both) {
	v, ev := b.fast.Vocab, b.slow.eng.Vocab()
	if v.Type != ev.Type() || v.BOS != ev.BOS() || v.EOS != ev.EOS() || v.SEP != ev.SEP() || v.AddBOS != ev.AddBOS() || v.AddEOS != ev.AddEOS() {
		t.Errorf("type %s BOS %d EOS %d SEP %d add %v %v, engine %s %d %d %d %v %v", v.Type, v.BOS, v.EOS, v.SEP, v.AddBOS, v.AddEOS,
			ev.Type(), ev.BOS(), ev.EOS(), ev.SEP(), ev.AddBOS(), ev.AddEOS())
	}
	for i := range Token(v.NTokens()) {
		if got, want := b.fast.Piece(i), b.slow.Piece(i); string(got) != string(want) {
			t.Errorf("piece %d = %q, want %q", i, got, want)
		}
		if got, want := v.attrs[i]&attrControl != 0, ev.IsControl(i); got != want {
			t.Errorf("token %d %q: control %v, want %v", i, v.texts[i], got, want)
		}
		if got, want := v.Score(i), ev.Score(i); got != want {
			t.Errorf("score %d = %v, want %v", i, got, want)
		}
	}
}

// compareTexts compares whole texts.
func compareTexts(t *testing.T, b *both, files []string) {
	if len(files) == 0 {
		t.Skip("../shared/data is not there")
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if os.Getenv("GOLLAMA_HOSTILE_MB") == "" {
			text = text[:min(len(text), 100_000)] // make check-long takes them whole
		}
		if err := b.compare(text, true); err != nil {
			t.Errorf("%s: %v", filepath.Base(file), err)
		}
	}
}

// compareSpaces: a space in more bytes than one is a space for both ways. As it
// stands, llama_tokenize ends the process at one where spaces are written as U+2581.
func compareSpaces(t *testing.T, b *both) {
	for _, e := range []Encoder{b.f, b.s} {
		for _, text := range []string{"\xc0\xa0", "a\xc0\xa0b", "a\xe0\x80\xa0\xf0\x80\x80\xa0b\xff"} {
			plain := strings.NewReplacer("\xc0\xa0", " ", "\xe0\x80\xa0", " ", "\xf0\x80\x80\xa0", " ").Replace(text)
			got, err := e.Encode(nil, []byte(text), true)
			want, werr := e.Encode(nil, []byte(plain), true)
			if err != nil || werr != nil || !slices.Equal(got, want) || len(got) == 0 {
				t.Errorf("%T: %q: %v %v, want %v %v", e, text, got, err, want, werr)
			}
		}
	}
}
