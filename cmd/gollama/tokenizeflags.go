package main

// tokenizeOptions are the settings of gollama tokenize alone.
type tokenizeOptions struct {
	files     []string
	filesFrom string
	lines     bool
	null      bool
	jsonl     bool
	field     string
	stdin     bool

	format    string // pieces, ids, json, jsonl, count or bin
	ids       bool   // llama-tokenize's output
	showCount bool
	offsets   string // byte or rune
	vocab     bool
	stats     bool
	plot      string
	decode    bool

	bos, eos string // auto, on or off
	noBOS    bool   // llama-tokenize's: neither
	special  string // parse or literal
	invalid  string // auto, error or replace
	encoder  string // auto, fast or engine
	jobs     int

	maxTokens int
	truncate  bool
	failOver  int
	chunk     int
	overlap   int
	pack      int
}

func defaultTokenize() tokenizeOptions {
	return tokenizeOptions{field: "text", format: "pieces", offsets: "byte", bos: "auto", eos: "auto", special: "parse", invalid: "auto", encoder: "auto"}
}

const (
	inTokenize    = " tokenize "
	groupInput    = "Input"
	groupTokens   = "Output"
	groupEncoding = "Encoding"
	groupLimits   = "Length"
)

// tokenizeFlags are the flags of gollama tokenize.
func tokenizeFlags() []flagDef {
	type o = *options
	str := func(p func(*tokenizeOptions) *string) func(o) *string { return func(o o) *string { return p(&o.tok) } }
	yes := func(p func(*tokenizeOptions) *bool) binding {
		return boolVar(func(o o) *bool { return p(&o.tok) })
	}
	num := func(p func(*tokenizeOptions) *int) binding {
		return intVar(func(o o) *int { return p(&o.tok) }, 0, maxInt32)
	}
	rows := inGroup(groupInput,
		flagDef{name: "prompt", alias: []string{"-p"}, arg: "TEXT", help: "tokenize TEXT, used as it is", share: "prompt", binding: promptVar()},
		flagDef{name: "file", alias: []string{"-f"}, arg: "FILE", def: "standard input", help: "tokenize FILE, byte for byte; - is standard input; gzip and Zstandard are unpacked; may be given more than once, and files may stand without -f too",
			binding: listVar(func(o o) *[]string { return &o.tok.files }, func(s string) ([]string, error) { return []string{s}, nil }, identity)},
		flagDef{name: "files-from", arg: "FILE", def: "none", help: "read the names of files from FILE, one a line, or with -0 each ended by a zero byte; - is standard input", binding: fileVar(str(func(t *tokenizeOptions) *string { return &t.filesFrom }))},
		flagDef{name: "stdin", help: "tokenize standard input", binding: yes(func(t *tokenizeOptions) *bool { return &t.stdin })},
		flagDef{name: "lines", help: "each line is a document, without its newline", binding: yes(func(t *tokenizeOptions) *bool { return &t.lines })},
		flagDef{name: "null", alias: []string{"-0"}, help: "each part that ends with a zero byte is a document", binding: yes(func(t *tokenizeOptions) *bool { return &t.null })},
		flagDef{name: "jsonl", help: "each line is a JSON object with a document", binding: yes(func(t *tokenizeOptions) *bool { return &t.jsonl })},
		flagDef{name: "field", arg: "NAME", help: "the text in a JSON object; a.b is b within a; an array is taken for messages, which are written in the model's chat template", binding: stringVar(str(func(t *tokenizeOptions) *string { return &t.field }))},
		flagDef{name: "escape", alias: []string{"-e"}, fixed: map[string]string{"--no-escape": "false"}, help: `replace \n, \r, \t, \\, \", \' and \xHH in the text of -p`, binding: boolVar(func(o o) *bool { return &o.Escape })},
	)
	rows = append(rows, inGroup(groupTokens,
		flagDef{name: "output", alias: []string{"-o"}, arg: "FILE", def: "standard output", help: "write to FILE, which appears when all is done; bin also writes FILE.idx and FILE.json", binding: fileVar(func(o o) *string { return &o.OutFile })},
		flagDef{name: "format", arg: "FORMAT", help: "pieces (number, id, start, end, quoted piece, with tabs between), ids (a line for each document), json, jsonl, count (tokens, documents, bytes of each input) or bin (a token file)",
			binding: wordVar(str(func(t *tokenizeOptions) *string { return &t.format }), "pieces", "ids", "json", "jsonl", "count", "bin")},
		flagDef{name: "ids", help: "write [1, 2, 3] as llama-tokenize does", binding: yes(func(t *tokenizeOptions) *bool { return &t.ids })},
		flagDef{name: "show-count", help: "write the number of tokens after them as llama-tokenize does; without --ids its table comes first", binding: yes(func(t *tokenizeOptions) *bool { return &t.showCount })},
		flagDef{name: "offsets", arg: "UNIT", help: "count offsets in byte or rune", binding: wordVar(str(func(t *tokenizeOptions) *string { return &t.offsets }), "byte", "rune")},
		flagDef{name: "decode", help: "turn ids, a line for each document, or token files back into the bytes of the text", binding: yes(func(t *tokenizeOptions) *bool { return &t.decode })},
		flagDef{name: "vocab", help: "write the vocabulary: id, type, score, quoted text, quoted piece, with tabs between", binding: yes(func(t *tokenizeOptions) *bool { return &t.vocab })},
		flagDef{name: "stats", help: "write statistics in place of the ids: bytes a token, the most frequent tokens, how many are unused", binding: yes(func(t *tokenizeOptions) *bool { return &t.stats })},
		flagDef{name: "plot", arg: "FILE", def: "none", help: "draw how often tokens occur, by rank, as FILE.svg", binding: fileVar(str(func(t *tokenizeOptions) *string { return &t.plot }))},
	)...)
	rows = append(rows, inGroup(groupEncoding,
		flagDef{name: "bos", arg: "auto|on|off", help: "a BOS token before each document; auto as the model wants it", binding: mixed(wordVar(str(func(t *tokenizeOptions) *string { return &t.bos }), "auto", "on", "off"))},
		flagDef{name: "eos", arg: "auto|on|off", help: "an EOS token (BERT: SEP) after each document", binding: mixed(wordVar(str(func(t *tokenizeOptions) *string { return &t.eos }), "auto", "on", "off"))},
		flagDef{name: "no-bos", help: "neither BOS nor EOS, as in llama-tokenize", binding: yes(func(t *tokenizeOptions) *bool { return &t.noBOS })},
		flagDef{name: "special", fixed: map[string]string{"--no-parse-special": "literal", "--parse-special": "parse"}, arg: "parse|literal", help: "texts such as </s> are the special tokens, or plain text", binding: wordVar(str(func(t *tokenizeOptions) *string { return &t.special }), "parse", "literal")},
		flagDef{name: "invalid-utf8", arg: "error|replace|auto", help: "invalid UTF-8 is an error, or each byte of it becomes U+FFFD; auto keeps it where the vocabulary loses no byte (SPM), else it is an error", binding: wordVar(str(func(t *tokenizeOptions) *string { return &t.invalid }), "error", "replace", "auto")},
		flagDef{name: "encoder", arg: "auto|fast|engine", help: "gollama's own tokenizer where it is proven equal, it alone, or llama_tokenize", binding: wordVar(str(func(t *tokenizeOptions) *string { return &t.encoder }), "auto", "fast", "engine")},
		flagDef{name: "jobs", alias: []string{"-j", "-t", "--threads"}, arg: "N", def: "the number of CPUs", help: "documents tokenized at the same time", binding: num(func(t *tokenizeOptions) *int { return &t.jobs })},
	)...)
	rows = append(rows, inGroup(groupLimits,
		flagDef{name: "max-tokens", arg: "N", def: "no limit", help: "a document with more tokens is an error", binding: num(func(t *tokenizeOptions) *int { return &t.maxTokens })},
		flagDef{name: "truncate", help: "cut documents to --max-tokens instead", binding: yes(func(t *tokenizeOptions) *bool { return &t.truncate })},
		flagDef{name: "fail-over", arg: "N", def: "never", help: "end with status 4 if any document has more than N tokens", binding: num(func(t *tokenizeOptions) *int { return &t.failOver })},
		flagDef{name: "chunk", arg: "N", def: "off", help: "cut documents into chunks of N tokens, the last perhaps shorter", binding: num(func(t *tokenizeOptions) *int { return &t.chunk })},
		flagDef{name: "overlap", arg: "N", help: "begin each chunk with the last N tokens of the one before", binding: num(func(t *tokenizeOptions) *int { return &t.overlap })},
		flagDef{name: "pack", arg: "N", def: "off", help: "join documents and cut them into sequences of N tokens, the last perhaps shorter", binding: num(func(t *tokenizeOptions) *int { return &t.pack })},
	)...)
	for i := range rows {
		rows[i].in = inTokenize
	}
	return rows
}

// promptVar binds -p.
func promptVar() binding {
	return binding{kind: kindString, set: func(o *options, s string) error { o.Prompt, o.promptGiven = s, true; return nil },
		get: func(o *options) any {
			if o.promptGiven {
				return o.Prompt
			}
			return nil
		},
		reset: func(o *options) { o.Prompt, o.promptGiven = "", false }}
}
