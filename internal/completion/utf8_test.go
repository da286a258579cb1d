package completion

import (
	"testing"
	"unicode/utf8"
)

// checkAssembler cuts text where bits of cuts say and compares what comes out.
func checkAssembler(t *testing.T, text string, cuts uint64) {
	t.Helper()
	var a Assembler
	got := ""
	for from, i := 0, 1; i <= len(text); i++ {
		if i < len(text) && cuts>>(i%64)&1 == 0 {
			continue
		}
		out := a.Push([]byte(text[from:i]))
		if utf8.ValidString(text) && !utf8.Valid(out) {
			t.Errorf("%q: piece %q is cut inside a rune", text, out)
		}
		got += string(out)
		if held := text[len(got):i]; len(held) > 3 || held != "" && utf8.FullRuneInString(held) {
			t.Errorf("%q: %q held back, which is complete or no rune", text, held)
		}
		from = i
	}
	got += string(a.Flush())
	if got != text {
		t.Errorf("got %q, want %q", got, text)
	}
	if rest := a.Flush(); len(rest) != 0 {
		t.Errorf("second Flush: got %q", rest)
	}
}

var utf8Texts = []string{"", "abc", "é日😀", "\xff\xfe", "\xe6\x97", "\xf0\x9f\x98", "a\xe6b", "\xf0\x80\x80\x80", "\xed\xa0\x80", "\x80\x80\x80\x80日", "\xf0\x9f日", "\xc0\xaf"}

func TestAssembler(t *testing.T) {
	for _, text := range utf8Texts {
		for cuts := range uint64(1 << 14) {
			checkAssembler(t, text, cuts)
		}
	}
}

func FuzzAssembler(f *testing.F) {
	for _, text := range utf8Texts {
		f.Add(text, ^uint64(0))
	}
	f.Fuzz(checkAssembler)
}
