package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"

	"gollama/internal/engine"
	"gollama/internal/gguf"
	"gollama/internal/opt/data"
	"gollama/internal/pipeline"
)

// openData makes the examples.
func (t *tuning) openData(ctx context.Context) error {
	if t.o.PromptFile != "" {
		return t.openText(ctx)
	}
	return t.openExamples(ctx)
}

// openText cuts the text of -f into windows.
func (t *tuning) openText(ctx context.Context) error {
	f, err := pipeline.Open(t.o.PromptFile)
	if err != nil {
		return &inputError{err: fmt.Errorf("--file: %w", err)}
	}
	text, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return &inputError{err: fmt.Errorf("--file: %w", err)}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(text) == 0 {
		return &inputError{err: fmt.Errorf("--file: %s holds nothing", inputName(t.o.PromptFile))}
	}
	sum := sha256.Sum256(text)
	t.dataHash = hex.EncodeToString(sum[:])
	t.train, t.val, err = data.Windows(data.NewTokenizer(ctx, t.o.Model, t.vocab.Vocab()), string(text), t.nCtx, exact(t.o.tune.valSplit))
	if err != nil {
		return &inputError{err: fmt.Errorf("%s: %w", inputName(t.o.PromptFile), err), hint: "a smaller -c, or more text"}
	}
	if t.o.isSet("batch-size") && t.o.NBatch < t.nCtx {
		t.l.warnf("-b %d is below -c %d: an update takes one whole window", t.o.NBatch, t.nCtx)
	}
	return nil
}

// openExamples reads the files of --data.
func (t *tuning) openExamples(ctx context.Context) error {
	u := &t.o.tune
	opt := data.Options{
		Sources: withFormat(u.data, u.dataFormat), Vocab: data.NewTokenizer(ctx, t.o.Model, t.vocab.Vocab()), MaxLen: t.nCtx, TooLong: u.tooLong, Pack: u.pack,
		ValShare: exact(u.valSplit), TrainOn: u.trainOn, LastOnly: u.lastOnly, ParseSpecial: u.parseSpecial,
		CacheDir: u.cacheDir, Threads: max(t.o.CPUParams.NThreads, 0),
	}
	if len(u.valData) > 0 {
		opt.ValShare = 0
	}
	tmpl, err := t.openTemplate()
	if err != nil {
		return err
	}
	defer func() { _ = tmpl.Close() }() // only memory
	opt.Chat = tmpl
	if opt.VocabHash, err = data.VocabHash(t.o.Model); err != nil {
		return err
	}
	bar := t.l.progress(t.e, "reading the data", "")
	defer bar.done()
	opt.Progress = func(documents int, tokens int64) {
		bar.set(0, fmt.Sprintf(": %d documents, %d tokens", documents, tokens))
	}
	var rep *data.Report
	if t.train, t.val, rep, err = data.Load(ctx, opt); err != nil {
		return dataError(ctx, err)
	}
	if len(u.valData) > 0 {
		opt.Sources, opt.Progress = withFormat(u.valData, u.dataFormat), nil
		if t.val, _, _, err = data.Load(ctx, opt); err != nil {
			return dataError(ctx, err)
		}
	}
	bar.done()
	t.tellData(rep)
	if t.train.Len() == 0 {
		return &inputError{err: errors.New("--data: no example to train on"), hint: "more data, or a smaller --val-split"}
	}
	t.dataHash, err = hashExamples(t.train, t.val)
	return err
}

// checkTuneTemplate checks --chat-template but for what only the model tells.
func checkTuneTemplate(o *options) error {
	switch {
	case o.PromptFile != "" && max(o.given["chat-template"], o.given["chat-template-file"]) > levelEnv:
		return usagef("--chat-template goes with --data: -f is a text without conversations")
	case o.ChatTemplate == noTemplate:
		return usagef("--chat-template %s: a conversation needs a template", noTemplate).withHint(`records with "text" need none`)
	}
	return nil
}

// openTemplate opens the chat template that conversations are written in: that of the flags, or the
// model's, or ChatML if it has none. It is nil, with a warning, if the model's own is of no use.
func (t *tuning) openTemplate() (*engine.ChatTemplate, error) {
	f, err := gguf.Open(t.o.Model)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	opt, _, err := t.o.template(f)
	if err != nil && !errors.Is(err, errNoTemplate) {
		return nil, err
	}
	tmpl, err := engine.NewChatTemplate(t.vocab, opt)
	switch {
	case err != nil && opt.Source+opt.Name != "":
		return nil, &inputError{err: err}
	case err != nil:
		t.l.warnf("the model's chat template cannot be used: %s", oneLine(err))
		return nil, nil
	}
	return tmpl, nil
}

func withFormat(sources []data.Source, format string) []data.Source {
	list := make([]data.Source, len(sources))
	for i, s := range sources {
		s.Format = format
		list[i] = s
	}
	return list
}

// dataError tells bad data from a run that was stopped.
func dataError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	e := &inputError{err: fmt.Errorf("--data: %w", err)}
	var long *data.TooLongError
	if errors.As(err, &long) {
		e.hint = "a larger -c, or --too-long truncate or split"
	}
	return e
}

// tellData says what of the data is not learned as it stands.
func (t *tuning) tellData(rep *data.Report) {
	t.l.log.Info(fmt.Sprintf("%d documents, %d tokens, %d of them learned; %d examples", rep.Documents, rep.Tokens, rep.Labels, rep.Train.Examples))
	for _, c := range []struct {
		n    int
		what string
	}{
		{rep.Empty, "without text were left out"},
		{rep.NoLabels, "have nothing to learn and were left out"},
		{rep.Truncated, fmt.Sprintf("were longer than -c %d and were cut: %d tokens are lost", t.nCtx, rep.CutTokens)},
		{rep.Split, fmt.Sprintf("were longer than -c %d and were split", t.nCtx)},
	} {
		if c.n > 0 {
			t.l.warnf("%d of %d records %s", c.n, rep.Documents+rep.Empty+rep.NoLabels, c.what)
		}
	}
}

// hashExamples returns a hash over what is trained on, whatever it was read from.
func hashExamples(sets ...*data.Dataset) (string, error) {
	h := sha256.New()
	var b []byte
	for _, d := range sets {
		b = binary.LittleEndian.AppendUint64(b[:0], uint64(d.Len()))
		for i := range d.Len() {
			ex, err := d.Example(i)
			if err != nil {
				return "", err
			}
			b = binary.LittleEndian.AppendUint64(b, uint64(len(ex.Tokens)))
			for j := range ex.Tokens {
				b = binary.LittleEndian.AppendUint32(b, uint32(ex.Tokens[j]))
				b = binary.LittleEndian.AppendUint32(b, uint32(ex.Labels[j]))
			}
			for _, s := range ex.Segments {
				b = binary.LittleEndian.AppendUint32(b, uint32(s))
			}
			for _, w := range ex.Weights {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(w))
			}
			h.Write(b) // a hash never fails
			b = b[:0]
		}
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
