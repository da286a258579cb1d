package tokens

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"

	"gollama/internal/gguf"
)

// hostile makes texts that tokenizers get wrong. Each is one of many kinds, or
// several of them mixed.
type hostile struct {
	r        *rand.Rand
	specials []string
}

func newHostile(seed uint64, v *Vocab) *hostile {
	h := &hostile{r: rand.New(rand.NewPCG(seed, 1))}
	for i, a := range v.attrs {
		if a&specialAttrs != 0 {
			h.specials = append(h.specials, v.texts[i])
		}
	}
	return h
}

// byClass returns a few code points of a class.
func byClass(c class) []rune { return classSamples()[c] }

var classSamples = sync.OnceValue(func() *[256][]rune {
	useClasses()
	lists := new([256][]rune)
	for r, c := range classes {
		if list := &lists[c]; len(*list) < 4000 || r%97 == 0 {
			*list = append(*list, rune(r))
		}
	}
	return lists
})

// alphabet is what pre-tokenizers tell apart, so that short texts of it meet
// every branch.
var alphabet = []string{"a", "b", "Z", "S", "s", "'", "'s", "'LL", "'re", "é", "É", "ſ", "日", "本", "あ", "ア", "가", "ㄅ", "ㄱ", "ไ", "ǅ", "ʰ",
	"1", "2", "٣", "½", "Ⅷ", " ", " ", "  ", "\t", "\n", "\n", "\r\n", "\r", "\v", "\u0085", "\u00a0", "\u3000", "\u2028",
	".", ",", "!", "/", "(", "-", "_", "「", "。", "…", "—", "।", "$", "+", "`", "~", "|", "^", "€", "😀", "́", "ா", "\u200d", "\u0000", "\u200b", "￿", "▁",
	"<", "<sentinel:", ">", "IMGIMG", "A", "<dna>"}

func (h *hostile) rune() rune {
	switch h.r.IntN(4) {
	case 0:
		return rune(h.r.IntN(128))
	case 1:
		list := byClass(class(1) << h.r.IntN(6))
		return list[h.r.IntN(len(list))]
	case 2:
		return rune(h.r.IntN(0x3000))
	}
	for {
		if r := rune(h.r.IntN(unicode.MaxRune + 1)); utf8.ValidRune(r) {
			return r
		}
	}
}

// text returns a text of about n bytes.
func (h *hostile) text(n int) []byte {
	var b []byte
	for len(b) < n {
		b = h.part(b, min(n-len(b), 1+h.r.IntN(200)))
	}
	return b
}

func (h *hostile) part(b []byte, n int) []byte {
	end := len(b) + n
	switch h.r.IntN(9) {
	case 0: // random Unicode
		for len(b) < end {
			b = utf8.AppendRune(b, h.rune())
		}
	case 1: // a long run of one character
		b = append(b, strings.Repeat(string(h.rune()), 1+h.r.IntN(40))...)
	case 2: // a run of one class
		for c := class(1) << h.r.IntN(6); len(b) < end; {
			list := byClass(c)
			b = utf8.AppendRune(b, list[h.r.IntN(len(list))])
		}
	case 3: // invalid UTF-8
		for len(b) < end {
			b = append(b, byte(h.r.IntN(256)))
		}
	case 4: // broken sequences
		for len(b) < end {
			s := []byte(string(h.rune()) + "xy")
			b = append(b, s[h.r.IntN(2):1+h.r.IntN(len(s))]...)
			b = append(b, [][]byte{{0xed, 0xa0, 0x80}, {0xc0, 0xa0}, {0xe0, 0x80, 0x8a}, {0xf0, 0x80, 0x80, 0xa0}, {0xf8, 0x88}, {0xff}}[h.r.IntN(6)]...)
		}
	case 5: // special tokens, whole and in part
		for len(b) < end && len(h.specials) > 0 {
			s := h.specials[h.r.IntN(len(h.specials))]
			if h.r.IntN(4) == 0 {
				s = s[:h.r.IntN(len(s))]
			}
			b = append(append(b, s...), []string{"", " ", "  \n", "x"}[h.r.IntN(4)]...)
		}
	default: // what pre-tokenizers tell apart
		for len(b) < end {
			b = append(b, alphabet[h.r.IntN(len(alphabet))]...)
		}
	}
	return b
}

// differ runs texts of hostile through both ways until total bytes are done.
func differ(t *testing.T, b *both, seed uint64, total int) {
	t.Helper()
	h := newHostile(seed, b.fast.Vocab)
	bad := 0
	for done := 0; done < total && bad < 5; {
		n := 1 + h.r.IntN(40)
		if h.r.IntN(8) == 0 {
			n = 1 + h.r.IntN(4000)
		}
		text := h.text(n)
		done += len(text)
		if err := b.compare(text, h.r.IntN(2) == 0); err != nil {
			t.Error(err)
			bad++
		}
	}
}

// hostileBytes is how much hostile text TestVocabularies takes for each vocabulary; make
// check-long asks for 100 MB, which takes hours.
func hostileBytes(t *testing.T, normal int) int {
	if s := os.Getenv("GOLLAMA_HOSTILE_MB"); s != "" {
		var mb int
		if _, err := fmt.Sscan(s, &mb); err != nil {
			t.Fatal(err)
		}
		return mb << 20
	}
	return normal
}

// smallVocab writes a BPE vocabulary in which almost every cut of a text into
// words shows in its ids: any two bytes that stand next to each other in a word
// may be joined, and so may many triples.
func smallVocab(t *testing.T, pre string) string {
	t.Helper()
	spelled := func(b byte) string {
		for r, x := range bytesOf() {
			if x == b {
				return string(r)
			}
		}
		panic("no spelling")
	}
	raw := pre == "gemma4" || pre == "sarvam-moe" || pre == "granite-embed-multi-311m"
	// units are what the alphabet is made of: characters, or bytes.
	var units, texts []string
	seen := map[string]bool{}
	for _, s := range alphabet {
		for i, r := range strings.ReplaceAll(s, " ", blank) {
			parts := []string{string(r)}
			if raw && r == 0 {
				continue // llama.cpp reads no text beyond a zero byte
			}
			if !raw {
				parts = nil
				for _, b := range []byte(s)[min(i, len(s)-1):] {
					parts = append(parts, spelled(b))
				}
			}
			for _, u := range parts {
				if !seen[u] {
					seen[u] = true
					units = append(units, u)
				}
			}
		}
	}
	texts = append(texts, units...)
	for b := range 256 {
		if s := spelled(byte(b)); raw {
			texts = append(texts, fmt.Sprintf("<0x%02X>", b))
		} else if !seen[s] {
			texts = append(texts, s)
		}
	}
	r := rand.New(rand.NewPCG(7, 7))
	var merges []string
	known := map[string]bool{}
	for _, s := range texts {
		known[s] = true
	}
	add := func(a, b string) {
		merges = append(merges, a+" "+b)
		if !known[a+b] {
			known[a+b] = true
			texts = append(texts, a+b)
		}
	}
	for _, i := range r.Perm(len(units) * len(units)) {
		add(units[i/len(units)], units[i%len(units)])
	}
	pairs := texts[len(texts)-len(units)*len(units):]
	for range 5000 {
		add(pairs[r.IntN(len(pairs))], units[r.IntN(len(units))])
	}
	texts = append(texts, "<bos>", "</eos>", "<unk>")
	types := make([]int32, len(texts))
	for i := range types {
		types[i] = 1
	}
	for i := len(types) - 3; i < len(types); i++ {
		types[i] = 3
	}
	path := filepath.Join(t.TempDir(), "small.gguf")
	kvs := gguf.KVs{
		{Key: "general.architecture", Value: gguf.ValueOf("llama")},
		{Key: "tokenizer.ggml.model", Value: gguf.ValueOf("gpt2")},
		{Key: "tokenizer.ggml.pre", Value: gguf.ValueOf(pre)},
		{Key: "tokenizer.ggml.tokens", Value: gguf.ValueOf(texts)},
		{Key: "tokenizer.ggml.token_type", Value: gguf.ValueOf(types)},
		{Key: "tokenizer.ggml.merges", Value: gguf.ValueOf(merges)},
	}
	w, err := gguf.Create(path, kvs, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPreTokenizers proves each pre-tokenizer of the pin equal, on a vocabulary
// made for it.
func TestPreTokenizers(t *testing.T) {
	for i, f := range preFamilies {
		for j, name := range f.names {
			t.Run("pre="+name, func(t *testing.T) {
				total := hostileBytes(t, 400_000) / 10
				if j > 0 {
					total /= 20 // only that the name means the same
				}
				differ(t, openBoth(t, smallVocab(t, name)), uint64(i), total)
			})
		}
	}
}
