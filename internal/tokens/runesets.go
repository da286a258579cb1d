package tokens

import "unicode/utf8"

// runeSet is a set of code points as a regular expression's brackets give it.
type runeSet struct {
	ranges [][2]rune // ascending and apart
	ascii  [128]bool
}

// newSet reads single characters and ranges such as a-z, in any order.
func newSet(text string) *runeSet {
	set := &runeSet{}
	rs := []rune(text)
	for i := 0; i < len(rs); i++ {
		lo, hi := rs[i], rs[i]
		if i+2 < len(rs) && rs[i+1] == '-' {
			hi = rs[i+2]
			i += 2
		}
		set.ranges = append(set.ranges, [2]rune{lo, hi})
		for r := lo; r <= hi && r < utf8.RuneSelf; r++ {
			set.ascii[r] = true
		}
	}
	return set
}

// at returns the bytes of the code point at s[i] if it is in the set, else 0.
// White space beyond ASCII is in no set: llama.cpp replaces it by \v before it
// runs a std::wregex.
func (set *runeSet) at(s []byte, i int) int {
	if i >= len(s) {
		return 0
	}
	if s[i] < utf8.RuneSelf {
		if set.ascii[s[i]] {
			return 1
		}
		return 0
	}
	r, size := char(s[i:])
	if classes[r]&isSpace != 0 {
		return 0
	}
	for _, x := range set.ranges {
		if r >= x[0] && r <= x[1] {
			return size
		}
	}
	return 0
}

// run is [set]+ from s[i] on; it returns its end.
func (set *runeSet) run(s []byte, i int) int {
	for {
		n := set.at(s, i)
		if n == 0 {
			return i
		}
		i += n
	}
}

// runs is [set]+, or of several sets the first that matches.
func runs(sets ...*runeSet) splitter {
	return matches(func(s []byte) int {
		for _, set := range sets {
			if n := set.run(s, 0); n > 0 {
				return n
			}
		}
		return 0
	})
}

// spacedRuns is \s?[set]+.
func spacedRuns(set *runeSet) splitter {
	return matches(func(s []byte) int {
		if n := set.run(s, 0); n > 0 {
			return n
		}
		c, size := classAt(s, 0)
		if c&isSpace == 0 {
			return 0
		}
		if n := set.run(s, size); n > size {
			return n
		}
		return 0
	})
}

// The sets of llama.cpp's src/llama-vocab.cpp (llm_tokenizer_bpe).
var (
	deepseekLetters = newSet("A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af" +
		"\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5" +
		"\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba" +
		"\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45" +
		"\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe" +
		"\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102" +
		"\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139" +
		"\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3" +
		"\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06" +
		"\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3" +
		"\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df" +
		"\U0001e900-\U0001e943")
	deepseekPunct = newSet("!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002")
	deepseekCJK   = newSet("\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff")
	han           = newSet("\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff")
	afmoeScripts  = newSet("\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf" +
		"\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af" +
		"\u1100-\u11ff")
	youtu1     = newSet("\uac00-\ud7a3\u3131-\u318e")
	youtu2     = newSet("\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f")
	youtu3     = newSet("\u3105-\u312f")
	youtu4     = newSet("\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff")
	bloomStops = newSet("(|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)")
)
