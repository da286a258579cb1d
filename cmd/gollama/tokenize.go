package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/term"

	"gollama/internal/engine"
	"gollama/internal/tokens"
)

var tokenizeCommand = &command{
	name:     "tokenize",
	synopsis: "-m FILE [flags] [FILE...]",
	short:    "Turn texts into token ids, or ids into text.",
	long: `Reads the vocabulary of a GGUF model, not its weights, and documents: -p, files
(-f FILE or just FILE), or standard input when neither is given and it is no
terminal. A document is a file, or a line, a zero-ended part or a JSON object of
one. Writes ids, pieces, counts or a token file, in the order of the documents.
What the ids are, llama_tokenize of the pinned llama.cpp decides.

A document that fails is reported, and the others follow; a token file is
written only when none fails.

Examples:
  gollama tokenize -m model.gguf -p "Once upon a time"
  gollama tokenize -m model.gguf --format ids prompt.txt | gollama tokenize -m model.gguf --decode
  gollama tokenize -m model.gguf --lines --format bin -o corpus.bin prompt.txt`,
	posArgs: 1 << 30,
}

func init() { tokenizeCommand.run = tokenize }

// tokenize is the whole of gollama tokenize.
func tokenize(ctx context.Context, e *env, o *options, args []string) error {
	o.tok.files = append(o.tok.files, args...)
	if err := o.finish("tokenize"); err != nil {
		return err
	}
	if err := o.finishTokenizeMedia(); err != nil {
		return err
	}
	t := &o.tok
	if !t.hasInput(o) && !t.vocab {
		if term.IsTerminal(int(e.stdin.Fd())) {
			return usagef("nothing to tokenize").withHint(`-p TEXT, a file, or text on standard input; -p "" for none`)
		}
		t.files = []string{"-"}
	}
	l, err := setupLogging(e, "gollama tokenize", o)
	if err != nil {
		return err
	}
	defer l.close()
	if o.hasMedia() {
		run := &tokenizer{env: e, o: o, t: t, l: l}
		return canceledBy(ctx, run.toText(func(w io.Writer) error { return run.tokenizeMedia(ctx, w) }))
	}
	m, err := tokens.Open(ctx, o.Model, map[string]tokens.Mode{"auto": tokens.Auto, "fast": tokens.Fast, "engine": tokens.ByEngine}[t.encoder])
	if err != nil {
		return canceledBy(ctx, err)
	}
	defer func() { _ = m.Close() }() // nothing is written to it
	if !m.IsFast() && t.encoder == "auto" {
		l.log.Info("llama_tokenize does the work: " + m.Slow())
	}
	if _, _, err := m.Ends(t.encoding()); err != nil {
		return usagef("%s", err).withHint("--bos auto or --eos auto leaves it to the model")
	}
	run := &tokenizer{env: e, o: o, t: t, l: l, m: m, chat: &chatTokens{ctx: ctx, o: o}}
	defer run.chat.close()
	switch {
	case t.vocab:
		err = run.toText(run.dumpVocab)
	case t.decode:
		err = run.toText(func(w io.Writer) error { return run.decode(ctx, w) })
	case t.format == "bin" && !t.stats:
		err = run.toFile(ctx)
	default:
		err = run.toText(func(w io.Writer) error { return run.encode(ctx, w) })
	}
	return canceledBy(ctx, err)
}

func (t *tokenizeOptions) hasInput(o *options) bool {
	return o.promptGiven || len(t.files) > 0 || t.filesFrom != "" || t.stdin
}

// encoding returns what the package tokens needs to know.
func (t *tokenizeOptions) encoding() tokens.Options {
	opt := tokens.Options{BOS: tokens.Policy(t.bos), EOS: tokens.Policy(t.eos), Parse: t.special == "parse",
		Invalid: tokens.Invalid(t.invalid), MaxTokens: t.maxTokens, Truncate: t.truncate}
	if t.noBOS {
		opt.BOS, opt.EOS = tokens.Off, tokens.Off
	}
	return opt
}

// finishTokenize checks what single flags cannot show.
func (o *options) finishTokenize() error {
	t := &o.tok
	given := func(names ...string) (list []string) {
		for _, n := range names {
			if o.isSet(n) {
				list = append(list, "--"+n)
			}
		}
		return list
	}
	splits := 0
	for _, on := range []bool{t.lines, t.null && t.filesFrom == "", t.jsonl} {
		if on {
			splits++
		}
	}
	compat := t.ids || t.showCount
	switch {
	case o.promptGiven && (len(t.files) > 0 || t.filesFrom != "" || t.stdin):
		return usagef("-p and a file both give text: give one of them")
	case t.stdin && (len(t.files) > 0 || t.filesFrom != ""):
		return usagef("--stdin and a file both give text: give one of them").withHint("- is standard input among files")
	case o.Escape && !o.promptGiven:
		return usagef("-e works on -p only; the bytes of a file are used as they are")
	case splits > 1:
		return usagef("%s: give one of them", strings.Join(given("lines", "null", "jsonl"), " and "))
	case o.isSet("field") && !t.jsonl:
		return usagef("--field needs --jsonl")
	case compat && o.isSet("format"):
		return usagef("%s has a format of its own: leave --format out", strings.Join(given("ids", "show-count"), " and "))
	case t.truncate && t.maxTokens == 0:
		return usagef("--truncate needs --max-tokens")
	case t.overlap > 0 && t.overlap >= t.chunk:
		return usagef("--overlap %d: want less than --chunk, which is %d", t.overlap, t.chunk)
	case t.chunk > 0 && t.pack > 0:
		return usagef("--chunk and --pack: give one of them")
	case t.pack > 0 && (compat || t.format != "ids" && t.format != "jsonl" && t.format != "bin"):
		return usagef("--pack joins documents: want --format ids, jsonl or bin")
	case t.chunk > 0 && compat:
		return usagef("--chunk: llama-tokenize has no form for it").withHint("--format ids or jsonl")
	case t.format == "bin" && !t.stats && !t.decode && !t.vocab && (o.OutFile == "" || o.OutFile == "-"):
		return usagef("--format bin needs a file: a token file is three").withHint("-o FILE")
	case t.plot != "" && !t.stats:
		return usagef("--plot needs --stats")
	case t.decode && o.promptGiven && o.Escape:
		return usagef("-e: ids have nothing to replace")
	}
	for _, in := range append([]string{o.Model, t.filesFrom}, t.files...) {
		for _, out := range []string{o.OutFile, t.plot, o.logFile} {
			if in != "-" && in != "" && out != "" && sameFile(in, out) {
				return usagef("%s would be replaced, and it is read too", out)
			}
		}
	}
	return nil
}

// tokenizer is one call of gollama tokenize.
type tokenizer struct {
	env *env
	o   *options
	t   *tokenizeOptions
	l   *logging
	m   *tokens.Model
	sum summary

	chat *chatTokens
}

// encoding returns how documents become ids.
func (k *tokenizer) encoding() tokens.Options {
	opt := k.t.encoding()
	opt.Chat = k.chat.render
	return opt
}

// summary is what went wrong or deserves a word, over all documents.
type summary struct {
	docs, failed, sources int
	first                 error // of a document
	replaced, doubleBOS   int
	dropped               int
	cut                   int
	over                  int // documents with more than --fail-over tokens
	overFirst             string
}

// toText runs f with the output for text, and commits that.
func (k *tokenizer) toText(f func(w io.Writer) error) error {
	dst, err := openResult(k.env, k.o)
	if err != nil {
		return err
	}
	defer dst.abort()
	err = f(dst.out)
	if err != nil && !isRecords(err) {
		return err
	}
	if cerr := dst.commit(); cerr != nil {
		return cerr
	}
	return err
}

// isRecords tells errors of documents from errors of the work: the output is
// whole in their case.
func isRecords(err error) bool {
	var r *recordsError
	var in *inputError
	return errors.As(err, &r) || errors.As(err, &in)
}

// input returns the documents that the flags name.
func (k *tokenizer) input() *tokens.Input {
	t := k.t
	in := &tokens.Input{Stdin: k.env.stdin, Field: t.field, Files: tokens.Names(t.files)}
	switch {
	case t.lines:
		in.Split = tokens.ByLine
	case t.jsonl:
		in.Split = tokens.ByJSONL
	case t.null && t.filesFrom == "":
		in.Split = tokens.ByNull
	}
	if k.o.promptGiven {
		text := k.o.Prompt
		if k.o.Escape {
			text = unescape(text)
		}
		in.Texts = []string{text}
	}
	if t.stdin {
		in.Files = tokens.Names([]string{"-"})
	}
	if t.filesFrom != "" {
		in.Files = func(yield func(string, error) bool) {
			more := true
			tokens.Names(t.files)(func(n string, err error) bool { more = yield(n, err); return more })
			if more {
				k.listed(yield)
			}
		}
	}
	return in
}

// listed yields the names in --files-from.
func (k *tokenizer) listed(yield func(string, error) bool) {
	src := io.Reader(k.env.stdin)
	if k.t.filesFrom != "-" {
		f, err := os.Open(k.t.filesFrom)
		if err != nil {
			yield(k.t.filesFrom, err)
			return
		}
		defer func() { _ = f.Close() }() // only read from
		src = f
	}
	sep := byte('\n')
	if k.t.null {
		sep = 0
	}
	r := bufio.NewReader(src)
	for {
		name, err := r.ReadString(sep)
		if name = strings.TrimSuffix(name, string(sep)); name != "" && !yield(name, nil) {
			return
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			yield(k.t.filesFrom, err)
			return
		}
	}
}

// note counts a result for the summary and reports its error.
func (k *tokenizer) note(r *tokens.Result) {
	s := &k.sum
	s.docs++
	if r.Err != nil {
		if s.failed++; s.first == nil {
			s.first = r.Err
		} else if s.failed == 2 {
			k.l.message("error", oneLine(s.first)) // the first alone is the error at the end
		}
		if s.failed > 1 {
			k.l.message("error", oneLine(r.Err))
		}
		if errors.Is(r.Err, tokens.ErrNoInput) {
			s.sources++
		}
		return
	}
	if n := len(r.IDs); k.t.failOver > 0 && n > k.t.failOver {
		if s.over++; s.over == 1 {
			s.overFirst = fmt.Sprintf("%s has %d tokens, more than %d", docName(&r.Doc), n, k.t.failOver)
		}
	}
	s.replaced += r.Replaced
	s.dropped += r.Dropped
	if r.DoubleBOS {
		s.doubleBOS++
	}
	if r.Cut > 0 {
		s.cut++
	}
}

func docName(d *tokens.Doc) string {
	switch {
	case d.Source == "":
		return "the text of -p"
	case d.Unit != "":
		return fmt.Sprintf("%s, %s %d,", inputName(d.Source), d.Unit, d.Record+1)
	}
	return inputName(d.Source)
}

// conclude says what deserves a word and returns the error that the documents
// make.
func (k *tokenizer) conclude() error {
	s := &k.sum
	if s.replaced > 0 {
		k.l.warnf("%d bytes were no valid UTF-8 and became U+FFFD", s.replaced)
	}
	if s.dropped > 0 {
		k.l.warnf("the vocabulary has no token for some bytes: %d are lost", s.dropped)
	}
	if s.doubleBOS > 0 {
		k.l.warnf("%d of %d documents begin with a BOS token of their own and have two now", s.doubleBOS, s.docs)
		k.l.message("hint", "--bos off adds none, --special literal takes the text as it is")
	}
	if s.cut > 0 {
		k.l.warnf("%d of %d documents were cut to %d tokens", s.cut, s.docs, k.t.maxTokens)
	}
	var invalid *tokens.InvalidError
	switch {
	case s.failed == 1 && (s.docs == 1 || s.sources == 1):
		hint := ""
		if errors.As(s.first, &invalid) {
			hint = "--invalid-utf8 replace turns such bytes into U+FFFD"
		}
		return &inputError{err: s.first, hint: hint}
	case s.failed > 0 && (s.sources > 0 || s.failed == s.docs):
		return &inputError{err: fmt.Errorf("%d of %d documents failed", s.failed, s.docs)}
	case s.failed == 1:
		return &recordsError{fmt.Sprintf("1 of %d documents failed: %s", s.docs, oneLine(s.first))}
	case s.failed > 0:
		return &recordsError{fmt.Sprintf("%d of %d documents failed", s.failed, s.docs)}
	case s.over == 1:
		return &inputError{err: errors.New(s.overFirst)}
	case s.over > 1:
		return &inputError{err: fmt.Errorf("%d of %d documents have more than %d tokens; the first: %s", s.over, s.docs, k.t.failOver, s.overFirst)}
	}
	return nil
}

// dumpVocab writes the vocabulary.
func (k *tokenizer) dumpVocab(w io.Writer) error {
	var b []byte
	for i := range engine.Token(k.m.NTokens()) {
		b = strconv.AppendInt(b, int64(i), 10)
		b = append(append(append(b, '\t'), k.m.Kind(i)...), '\t')
		b = strconv.AppendFloat(b, float64(k.m.Score(i)), 'g', -1, 32)
		b = append(strconv.AppendQuote(append(b, '\t'), k.m.Text(i)), '\t')
		b = append(strconv.AppendQuote(b, string(k.m.Piece(i))), '\n')
		if len(b) > 1<<16 {
			if _, err := w.Write(b); err != nil {
				return err
			}
			b = b[:0]
		}
	}
	_, err := w.Write(b)
	return err
}
