package tokens

import "sync"

// pre is what a pre-tokenizer's name stands for in the pinned llama.cpp
// (src/llama-vocab.cpp, llama_vocab::impl::load and llm_tokenizer_bpe).
type pre struct {
	passes       []splitter // each cuts the words of the one before
	rawUTF8      bool       // symbols are characters, not bytes in GPT-2's spelling
	escapeSpaces bool       // a space becomes U+2581 first
	gemma4       bool       // a run of newlines may be one token; BOS is always added
	ignoreMerges bool       // a word that is a token is not merged from its parts
	addBOS       bool
	addSEP       bool
	noBOS        bool // there is no default BOS
}

var (
	gptPass   = first(gpt2)
	digit     = one(isNumber)
	llama3    = first((&style{contractions: true, letters: isLetter, notPunct: isLetter | isNumber, numbers: 3, tail: "\r\n", tails: unlimited}).first)
	qwen2     = first((&style{contractions: true, letters: isLetter, notPunct: isLetter | isNumber, numbers: 1, tail: "\r\n", tails: unlimited}).first)
	qwen35    = first((&style{contractions: true, letters: isLetter | isMark, notPunct: isLetter | isMark | isNumber, numbers: 1, tail: "\r\n", tails: unlimited}).first)
	ufakzeka  = first((&style{letters: isLetter, notPunct: isLetter | isNumber, numbers: 1, tail: "\r\n", tails: unlimited}).first)
	seedCoder = first((&style{contractions: true, letters: isLetter, notPunct: isLetter | isNumber, numbers: 1}).first)
	miniCPM   = first((&style{contractions: true, letters: isLetter, notPunct: isLetter | isNumber, numbers: unlimited, tail: "\r\n", tails: unlimited}).first)
	tekken    = first((&style{word: casedWord(isLetter, false), notPunct: isLetter | isNumber, numbers: 1, tail: "\r\n/", tails: unlimited}).first)
	gpt4o     = first((&style{word: casedWord(isLetter, true), notPunct: isLetter | isNumber, numbers: 3, tail: "\r\n/", tails: unlimited}).first)
	granite   = first((&style{word: casedWord(isLetter|isMark, true), notPunct: isLetter | isNumber, numbers: 3, tail: "\r\n/", tails: unlimited}).first)
	youtu     = first((&style{word: markedWord, notPunct: isLetter | isNumber, numbers: 1, tail: "\r\n/", tails: unlimited}).first)
	tinyAya   = first((&style{word: markedWord, notPunct: isLetter | isNumber, numbers: 3, tail: "\r\n/", tails: unlimited}).first)
	exaoneMoE = first((&style{contractions: true, word: spacedWord, notPunct: isLetter | isNumber, numbers: 1, tail: "\r\n/", tails: 1}).first)

	deepseekV3 = matches(func(s []byte) int { return deepseek(s, false) })
	spark      = matches(func(s []byte) int { return deepseek(s, true) })
	bloom      = matches(func(s []byte) int {
		i := 0
		if s[0] == ' ' {
			i = 1
		}
		start := i
		for i < len(s) {
			c, size := classAt(s, i)
			if c&isSpace != 0 || bloomStops.at(s, i) > 0 {
				break
			}
			i += size
		}
		if i == start {
			return 0
		}
		return i
	})
)

// Chameleon's first expressions.
var (
	sentinel = matches(func(s []byte) int {
		const tag = "<sentinel:"
		if len(s) < len(tag) || string(s[:len(tag)]) != tag {
			return 0
		}
		i := len(tag)
		for i < len(s) && s[i] >= '0' && s[i] <= '9' {
			i++
		}
		if i == len(tag) || i == len(s) || s[i] != '>' {
			return 0
		}
		return i + 1
	})
	imageToken = matches(func(s []byte) int { // (IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z
		const tag = "IMGIMG"
		if len(s) < len(tag) || string(s[:len(tag)]) != tag {
			return 0
		}
		i := len(tag)
		for i < len(s) && i < len(tag)+4 && s[i] >= 'A' && s[i] <= 'I' {
			i++
		}
		if i == len(tag) || i == len(s) || s[i] != 'Z' {
			return 0
		}
		return i + 1
	})
	tabs = matches(func(s []byte) int { // ([\t\n]|    |  )
		switch {
		case s[0] == '\t' || s[0] == '\n':
			return 1
		case len(s) >= 4 && string(s[:4]) == "    ":
			return 4
		case len(s) >= 2 && string(s[:2]) == "  ":
			return 2
		}
		return 0
	})
	asciiPunct = matches(func(s []byte) int { // [\p{P}!-/:-@\[-`{-~]
		c, size := classAt(s, 0)
		if c&isPunct != 0 || size == 1 && c&isSymbol != 0 {
			return size
		}
		return 0
	})
)

// preFamilies lists pre-tokenizers with all the names that stand for them, but
// "whitespace": that belongs to a tokenizer model of its own, and llama.cpp
// aborts where another model has it and a text two spaces.
var preFamilies = []struct {
	names []string
	pre   pre
}{
	{[]string{"", "default"}, pre{passes: []splitter{asciiRun("$+<=>^~|"), gptPass, upTo(isNumber, unlimited), threeDigits}}},
	{[]string{"minicpm5"}, pre{passes: []splitter{upTo(isNumber, 3), miniCPM}, ignoreMerges: true}},
	{[]string{"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"},
		pre{passes: []splitter{llama3}, ignoreMerges: true, addBOS: true}},
	{[]string{"dbrx", "smaug-bpe"}, pre{passes: []splitter{llama3}}},
	{[]string{"glm4", "chatglm-bpe"}, pre{passes: []splitter{llama3}, noBOS: true}},
	{[]string{"jais-2"}, pre{passes: []splitter{llama3, cascade}}},
	{[]string{"deepseek-llm"}, pre{passes: []splitter{newline, spacedRuns(deepseekLetters), spacedRuns(deepseekPunct), spaceEnd, runs(deepseekCJK), upTo(isNumber, unlimited)}}},
	{[]string{"deepseek-coder"}, pre{passes: []splitter{newline, spaced(isLetter), spaced(isPunct), runs(deepseekCJK), digit}}},
	{[]string{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"}, pre{passes: []splitter{upTo(isNumber, 3), runs(han), deepseekV3}}},
	{[]string{"spark2_5"}, pre{passes: []splitter{upTo(isNumber, 3), runs(han), spark, digit}}},
	{[]string{"youtu"}, pre{passes: []splitter{runs(youtu1, youtu2, youtu3, youtu4), youtu}, ignoreMerges: true}},
	{[]string{"falcon"}, pre{passes: []splitter{asciiRun("$+<=>^~|`"), gptPass, threeDigits}}},
	{[]string{"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"}, pre{passes: []splitter{digit, gptPass}}},
	{[]string{"gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum", "modern-bert",
		"mpt", "olmo", "jais", "exaone4", "trillion", "granite-docling"}, pre{passes: []splitter{gptPass}}},
	{[]string{"jina-v1-en", "jina-v2-code", "roberta-bpe"}, pre{passes: []splitter{gptPass}, addSEP: true}},
	{[]string{"stablelm2", "qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "hunyuan", "solar-open", "grok-2"}, pre{passes: []splitter{qwen2}}},
	{[]string{"laguna"}, pre{passes: []splitter{lines, qwen2}}},
	{[]string{"qwen35"}, pre{passes: []splitter{qwen35}}},
	{[]string{"poro-chat", "bloom", "gpt3-finnish"}, pre{passes: []splitter{bloom}}},
	{[]string{"viking"}, pre{passes: []splitter{bloom, digit}}},
	{[]string{"tekken"}, pre{passes: []splitter{tekken}, ignoreMerges: true, addBOS: true}},
	{[]string{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, pre{passes: []splitter{gpt4o}}},
	{[]string{"granite-embed-multi-97m"}, pre{passes: []splitter{granite}, ignoreMerges: true}},
	{[]string{"tiny_aya", "cohere2moe"}, pre{passes: []splitter{afmoeDigits, tinyAya}}},
	{[]string{"chameleon"}, pre{passes: []splitter{sentinel, imageToken, tabs, digit, asciiPunct, gptPass}, addBOS: true}},
	{[]string{"kimi-k2"}, pre{passes: []splitter{first(kimi)}}},
	{[]string{"superbpe"}, pre{passes: []splitter{upTo(isNumber, unlimited), superDigits}}},
	{[]string{"bailingmoe", "bailingmoe2", "llada-moe"}, pre{passes: []splitter{qwen2}}},
	{[]string{"seed-coder"}, pre{passes: []splitter{seedCoder}}},
	{[]string{"ufakzeka"}, pre{passes: []splitter{ufakzeka}}},
	{[]string{"afmoe"}, pre{passes: []splitter{afmoeDigits, runs(afmoeScripts), deepseekV3}}},
	{[]string{"exaone-moe"}, pre{passes: []splitter{exaoneMoE}}},
	{[]string{"gemma4", "granite-embed-multi-311m"}, pre{passes: []splitter{lines}, rawUTF8: true, escapeSpaces: true, gemma4: true}},
	{[]string{"sarvam-moe"}, pre{passes: []splitter{lines}, rawUTF8: true, escapeSpaces: true}},
}

// preByName finds a pre-tokenizer; it also sets the classes that all of them
// look at.
var preByName = sync.OnceValue(func() map[string]*pre {
	useClasses()
	m := map[string]*pre{}
	for i := range preFamilies {
		for _, name := range preFamilies[i].names {
			m[name] = &preFamilies[i].pre
		}
	}
	return m
})

// useClasses makes the class table ready for the splitters.
var useClasses = sync.OnceFunc(func() {
	classes = classTable()
	copy(asciiClass[:], classes[:])
})
