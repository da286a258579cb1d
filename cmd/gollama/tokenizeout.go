package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strconv"

	"gollama/internal/engine"
	"gollama/internal/engine/ggml"
	"gollama/internal/pipeline"
	"gollama/internal/tokens"
)

// encode writes what the documents become in any format but bin.
func (k *tokenizer) encode(ctx context.Context, w io.Writer) error {
	out := &textOut{k: k, w: w}
	run := &tokens.Run{Model: k.m, Input: k.input(), Options: k.encoding(), Jobs: k.t.jobs, Emit: out.emit}
	switch {
	case k.t.stats:
		out.stats = &tokens.Stats{Counts: make([]int64, k.m.NTokens())}
	case k.t.pack > 0:
		out.packer = &packer{n: k.t.pack, emit: out.packed}
	case k.t.format != "count" || k.t.ids || k.t.showCount:
		run.Format = out.formatter()
	}
	if err := run.Do(ctx); err != nil {
		return err
	}
	if err := out.end(); err != nil {
		return err
	}
	return k.conclude()
}

// textOut writes results as text.
type textOut struct {
	k      *tokenizer
	w      io.Writer
	buf    []byte
	stats  *tokens.Stats
	packer *packer
	begun  bool // something was written
	counts []sourceCount
	source string
}

// sourceCount is a line of --format count.
type sourceCount struct {
	name                string
	tokens, docs, bytes int
}

// several reports whether the command line asks for more than one document,
// whatever the input holds.
func (k *tokenizer) several() bool {
	t := k.t
	return t.lines || t.null || t.jsonl || t.filesFrom != "" || len(t.files) > 1 || t.chunk > 0
}

// formatter returns the function that writes a result. It is called on several
// goroutines.
func (out *textOut) formatter() func([]byte, *tokens.Result) []byte {
	k, t := out.k, out.k.t
	runes := t.offsets == "rune"
	compat := t.ids || t.showCount
	return func(dst []byte, r *tokens.Result) []byte {
		if r.Err != nil && (compat || t.format == "pieces" || t.format == "ids") {
			return dst
		}
		if compat {
			return k.m.AppendUpstream(dst, r, t.ids, t.showCount)
		}
		for _, p := range r.Parts(t.chunk, t.overlap) {
			switch t.format {
			case "ids":
				dst = append(tokens.AppendIDs(dst, r.IDs[p.Lo:p.Hi], " "), '\n')
			case "pieces":
				if k.several() {
					dst = fmt.Appendf(dst, "# %s\t%d\t%d\n", strconv.Quote(r.Source), r.Record, max(p.Number, 0))
				}
				dst = k.m.AppendPieces(dst, r, p, runes)
			case "jsonl":
				dst = append(k.m.AppendJSON(dst, r, p, runes), '\n')
			case "json":
				if k.several() {
					dst = append(dst, ",\n"...) // the first loses it again
				}
				dst = k.m.AppendJSON(dst, r, p, runes)
			}
		}
		return dst
	}
}

// emit takes a batch.
func (out *textOut) emit(b *tokens.Batch) error {
	for i := range b.Results {
		r := &b.Results[i]
		out.k.note(r)
		if r.Err != nil {
			continue
		}
		switch {
		case out.stats != nil:
			out.stats.Add(r)
		case out.packer != nil:
			if err := out.packer.add(r.IDs, len(r.Text)); err != nil {
				return err
			}
		case out.k.t.format == "count":
			out.count(r)
		}
	}
	text := b.Out
	if len(text) == 0 {
		return nil
	}
	if out.k.t.format == "json" && out.k.several() && !out.begun {
		text = append([]byte("["), text[1:]...)
	}
	out.begun = true
	_, err := out.w.Write(text)
	return err
}

func (out *textOut) count(r *tokens.Result) {
	if n := len(out.counts); n == 0 || out.source != r.Source {
		out.counts = append(out.counts, sourceCount{name: r.Source})
		out.source = r.Source
	}
	c := &out.counts[len(out.counts)-1]
	c.tokens += len(r.IDs)
	c.bytes += len(r.Text)
	c.docs++
}

// end writes what comes after the last document.
func (out *textOut) end() error {
	k := out.k
	switch {
	case out.stats != nil:
		if err := k.plot(out.stats); err != nil {
			return err
		}
		out.buf = out.stats.Append(out.buf, k.m)
	case out.packer != nil:
		if err := out.packer.end(); err != nil {
			return err
		}
	case k.t.ids || k.t.showCount:
	case k.t.format == "json" && k.several() && !out.begun:
		out.buf = append(out.buf, "[]\n"...)
	case k.t.format == "json" && k.several():
		out.buf = append(out.buf, "\n]\n"...)
	case k.t.format == "json" && out.begun:
		out.buf = append(out.buf, '\n')
	case k.t.format == "count":
		total := sourceCount{name: "total"}
		for _, c := range out.counts {
			out.buf = c.append(out.buf)
			total.tokens, total.docs, total.bytes = total.tokens+c.tokens, total.docs+c.docs, total.bytes+c.bytes
		}
		if len(out.counts) != 1 {
			out.buf = total.append(out.buf)
		}
	}
	if len(out.buf) == 0 {
		return nil
	}
	_, err := out.w.Write(out.buf)
	return err
}

func (c sourceCount) append(dst []byte) []byte {
	dst = fmt.Appendf(dst, "%8d %8d %10d", c.tokens, c.docs, c.bytes)
	if c.name != "" && c.name != "-" {
		dst = append(append(dst, ' '), c.name...)
	}
	return append(dst, '\n')
}

// packed writes a packed sequence.
func (out *textOut) packed(ids []engine.Token, _ int) error {
	out.buf = out.buf[:0]
	if out.k.t.format == "jsonl" {
		out.buf = fmt.Appendf(out.buf, `{"n_tokens":%d,"ids":[`, len(ids))
		out.buf = append(tokens.AppendIDs(out.buf, ids, ","), "]}\n"...)
	} else {
		out.buf = append(tokens.AppendIDs(out.buf, ids, " "), '\n')
	}
	_, err := out.w.Write(out.buf)
	out.buf = out.buf[:0]
	return err
}

// packer joins documents into sequences of n ids.
type packer struct {
	n     int
	ids   []engine.Token
	bytes int
	emit  func(ids []engine.Token, nBytes int) error
}

func (p *packer) add(ids []engine.Token, nBytes int) error {
	p.bytes += nBytes
	for len(ids) > 0 {
		part := ids[:min(len(ids), p.n-len(p.ids))]
		p.ids = append(p.ids, part...)
		ids = ids[len(part):]
		if len(p.ids) == p.n {
			if err := p.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *packer) flush() error {
	err := p.emit(p.ids, p.bytes)
	p.ids, p.bytes = p.ids[:0], 0
	return err
}

func (p *packer) end() error {
	if len(p.ids) == 0 {
		return nil
	}
	return p.flush()
}

// plot writes --plot.
func (k *tokenizer) plot(s *tokens.Stats) error {
	if k.t.plot == "" {
		return nil
	}
	f, err := pipeline.CreateAtomic(k.t.plot)
	if err == nil {
		defer f.Abort()
		if err = s.Plot(f, fmt.Sprintf("%d tokens of %d documents", s.Tokens, s.Documents)); err == nil {
			err = f.Commit()
		}
	}
	if err != nil {
		return &writeError{fmt.Errorf("--plot: %w", err)}
	}
	return nil
}

// toFile writes a token file.
func (k *tokenizer) toFile(ctx context.Context) error {
	man, err := k.manifest()
	if err != nil {
		return err
	}
	w, err := tokens.Create(k.o.OutFile, k.m.NTokens(), man)
	if err != nil {
		return &writeError{fmt.Errorf("--output: %w", err)}
	}
	defer w.Abort()
	add := func(ids []engine.Token, n int) error {
		if err := w.Add(ids, n); err != nil {
			return &writeError{fmt.Errorf("write %s: %w", k.o.OutFile, err)}
		}
		return nil
	}
	p := &packer{n: k.t.pack, emit: add}
	run := &tokens.Run{Model: k.m, Input: k.input(), Options: k.encoding(), Jobs: k.t.jobs, Emit: func(b *tokens.Batch) error {
		for i := range b.Results {
			r := &b.Results[i]
			k.note(r)
			if r.Err != nil {
				continue
			}
			if k.t.pack > 0 {
				if err := p.add(r.IDs, len(r.Text)); err != nil {
					return err
				}
				continue
			}
			n := len(r.Text)
			for _, part := range r.Parts(k.t.chunk, k.t.overlap) {
				if err := add(r.IDs[part.Lo:part.Hi], n); err != nil {
					return err
				}
				n = 0 // the text counts once
			}
		}
		return nil
	}}
	if err := run.Do(ctx); err != nil {
		return err
	}
	if err := p.end(); err != nil {
		return err
	}
	if err := k.conclude(); err != nil {
		k.l.warnf("%s is not written", k.o.OutFile)
		return err
	}
	if err := w.Commit(); err != nil {
		return &writeError{fmt.Errorf("write %s: %w", k.o.OutFile, err)}
	}
	return nil
}

// manifest returns what a token file says about itself before anything is
// counted.
func (k *tokenizer) manifest() (tokens.Manifest, error) {
	opt := k.t.encoding()
	man := tokens.Manifest{BOS: string(opt.BOS), EOS: string(opt.EOS), Special: k.t.special,
		Program: "gollama " + version, Engine: "llama.cpp " + ggml.BuildInfo().Pin, Command: k.env.args}
	man.Vocab.SHA256, man.Vocab.Type, man.Vocab.Pre = k.m.Hash(), k.m.Type, k.m.Pre
	bos, eos, err := k.m.Ends(opt)
	if bos != engine.TokenNull {
		man.BOSToken = &bos
	}
	if eos != engine.TokenNull {
		man.EOSToken = &eos
	}
	return man, err
}

// decode writes the bytes that ids stand for.
func (k *tokenizer) decode(ctx context.Context, w io.Writer) error {
	bos, eos, err := k.m.Ends(k.t.encoding())
	if err != nil {
		return err
	}
	write := func(ids []engine.Token) error {
		text := k.m.Decode(nil, ids, bos, eos)
		switch {
		case k.t.lines:
			text = append(text, '\n')
		case k.t.null:
			text = append(text, 0)
		}
		_, err := w.Write(text)
		return err
	}
	var rest []string
	for _, name := range k.t.files {
		f, err := tokens.OpenFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			rest = append(rest, name)
			continue
		}
		if err != nil {
			return &inputError{err: err}
		}
		if err := k.decodeFile(f, write); err != nil {
			return err
		}
	}
	in := k.input()
	in.Split, in.Files = tokens.ByLine, tokens.Names(rest)
	if k.t.stdin {
		in.Files = tokens.Names([]string{"-"})
	}
	in.Read(ctx, func(d tokens.Doc) bool {
		var ids []engine.Token
		r := tokens.Result{Doc: d}
		if d.Err == nil {
			ids, r.Err = k.parseIDs(&d)
		}
		k.note(&r)
		if r.Err == nil {
			err = write(ids)
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return k.conclude()
}

// decodeFile decodes a token file.
func (k *tokenizer) decodeFile(f *tokens.File, write func([]engine.Token) error) error {
	defer func() { _ = f.Close() }() // only read from
	if got := k.m.Hash(); f.Vocab.SHA256 != got {
		return &inputError{err: fmt.Errorf("the token file's vocabulary has the sum %.16s, that of %s has %.16s", f.Vocab.SHA256, k.o.Model, got),
			hint: "decode with the model that the file was made with"}
	}
	for i := range f.Len() {
		start, end := f.Bounds(i)
		ids := make([]engine.Token, end-start)
		if err := f.Read(ids, start); err != nil {
			return &inputError{err: err}
		}
		k.sum.docs++
		if err := write(ids); err != nil {
			return err
		}
	}
	return nil
}

// parseIDs reads numbers; what is between them may be blanks, commas and
// brackets.
func (k *tokenizer) parseIDs(d *tokens.Doc) ([]engine.Token, error) {
	var ids []engine.Token
	for _, f := range bytes.FieldsFunc(d.Text, func(r rune) bool { return bytes.ContainsRune([]byte(" \t\r\n,[]"), r) }) {
		id, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return nil, fmt.Errorf("%s line %d: %.40q is no token id", docName(&tokens.Doc{Source: d.Source}), d.Record+1, f)
		}
		if id < 0 || id > math.MaxInt32 || int(id) >= k.m.NTokens() {
			return nil, fmt.Errorf("%s line %d: token %s is not in the vocabulary, which has %d", docName(&tokens.Doc{Source: d.Source}), d.Record+1, f, k.m.NTokens())
		}
		ids = append(ids, engine.Token(id))
	}
	return ids, nil
}
