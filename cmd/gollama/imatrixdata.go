package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"gollama/internal/engine"
	"gollama/internal/imatrix"
	"gollama/internal/opt/data"
	"gollama/internal/pipeline"
)

// imatrixSource gives what is measured, in groups that are measured together or not at all.
type imatrixSource struct {
	dataset string // name
	hash    string // of the data, and of how it becomes tokens
	shard   pipeline.Shard
	text    string   // of -f or -p
	records *os.File // of --records

	m       *measuring
	pieces  []imatrix.Piece // windows of a text that are to be measured
	lines   []recordLine    // records that are, once prepared; before, all of the shard
	at      int             // of pieces or lines
	failed  int             // records
	chat    *engine.ChatTemplate
	current []imatrix.Piece
}

// openSource reads the data.
func (m *measuring) openSource() (*imatrixSource, error) {
	o := m.o
	s := &imatrixSource{m: m, dataset: o.PromptFile}
	var err error
	if s.shard, err = s.findShard(); err != nil {
		return nil, err
	}
	h := sha256.New()
	switch {
	case o.imx.records != "":
		s.dataset = o.imx.records
		h.Write([]byte("records "))
		err = s.indexRecords(o.imx.records, h)
	case o.promptGiven:
		s.dataset, s.text = "-p", o.Prompt
		if o.Escape {
			s.text = unescape(o.Prompt)
		}
		h.Write([]byte("text " + s.text))
	default:
		var data []byte
		data, err = readData(o.PromptFile)
		s.text = string(data)
		h.Write([]byte("text " + s.text))
	}
	if err != nil {
		return nil, &inputError{err: err}
	}
	if len(s.text) == 0 && s.records == nil {
		return nil, &inputError{err: fmt.Errorf("%s is empty", inputName(s.dataset))}
	}
	// What has other tokens is other data.
	_, _ = fmt.Fprint(h, o.ParseSpecial, o.imx.template, o.imx.templateFile) // a hash takes all
	s.hash = hex.EncodeToString(h.Sum(nil)[:16])
	return s, checkOutFolder(o.OutFile)
}

// close frees the template and the records.
func (s *imatrixSource) close() error {
	var err error
	if s.chat != nil {
		err = s.chat.Close()
	}
	if s.records != nil {
		err = errors.Join(err, s.records.Close())
	}
	return err
}

// readData reads a whole file or standard input, compressed or not.
func readData(path string) ([]byte, error) {
	in, err := pipeline.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(in)
	return data, errors.Join(err, in.Close())
}

// findShard returns the part of the data that this process does.
func (s *imatrixSource) findShard() (pipeline.Shard, error) {
	r := &recordsRun{e: s.m.e, l: s.m.l, o: s.m.o}
	r.o.shard = s.m.o.imx.shard
	return r.shard()
}

// checkShard checks the value of --shard.
func checkShard(text string) error {
	if text == "" || !strings.Contains(text, "/") {
		return nil
	}
	if _, err := pipeline.ParseShard(text); err != nil {
		return usagef("--shard: %s", err)
	}
	return nil
}

// prepare makes pieces once the model is there.
func (s *imatrixSource) prepare(ctx context.Context, m *measuring) error {
	if m.o.imx.records != "" {
		return s.prepareRecords()
	}
	return s.prepareText(ctx)
}

// prepareText cuts a text into windows as llama-imatrix does: of -c tokens each, the first of which is BOS where the
// model has one; what is left over at the end is left out.
func (s *imatrixSource) prepareText(ctx context.Context) error {
	o, v := s.m.o, s.m.model.Vocab()
	begin := time.Now()
	s.m.l.log.Info("tokenizing")
	tokens, err := data.NewTokenizer(ctx, o.Model, v).Tokenize(s.text, true, o.ParseSpecial)
	if err != nil {
		return err
	}
	s.text = ""
	s.m.l.log.Info(fmt.Sprintf("%d tokens in %.1f s", len(tokens), time.Since(begin).Seconds()))
	n := len(tokens) / o.NCtx
	if n <= o.IChunk {
		return &inputError{fmt.Errorf("the text has %d tokens, want %d at least, for %d chunks of -c %d", len(tokens), (o.IChunk+1)*o.NCtx, o.IChunk+1, o.NCtx), "lower -c, or give more text"}
	}
	if left := len(tokens) % o.NCtx; left > 0 {
		s.m.l.message("info", fmt.Sprintf("%d chunks of %d tokens; the last %d tokens make no chunk and are left out", n, o.NCtx, left))
	}
	first, last := o.IChunk, n
	if o.NChunks >= 0 {
		last = min(last, first+o.NChunks)
	}
	score := 0
	if o.ComputePPL && s.m.context.Causal() && o.NCtx >= 4 {
		score = o.NCtx/2 + 1
	}
	for i := first; i < last; i++ {
		if s.shard.N > 1 && i%s.shard.N != s.shard.I {
			continue
		}
		w := tokens[i*o.NCtx : (i+1)*o.NCtx : (i+1)*o.NCtx]
		if v.AddBOS() && v.BOS() != engine.TokenNull {
			w[0] = v.BOS()
		}
		s.pieces = append(s.pieces, imatrix.Piece{Tokens: w, Hash: s.hash, Span: imatrix.Span{From: int64(i * o.NCtx), To: int64((i + 1) * o.NCtx)}, From: score})
	}
	if o.imx.shuffle {
		shuffle(o.imx.seed, s.pieces)
	}
	return s.skipDone()
}

func shuffle[T any](seed int, list []T) {
	rng := rand.New(rand.NewPCG(uint64(seed), 0x696d6174726978))
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

// skipDone drops the windows that the file has: with --resume they are done, with --in-file they would count twice.
func (s *imatrixSource) skipDone() error {
	kept := s.pieces[:0]
	for _, p := range s.pieces {
		if !s.m.has(p.Span) {
			kept = append(kept, p)
		} else if !s.m.o.imx.resume {
			return &inputError{fmt.Errorf("chunk %d of the text is in a file of --in-file and would count twice", p.Span.From/int64(s.m.o.NCtx)), "--chunk N begins after N chunks"}
		}
	}
	if n := len(s.pieces) - len(kept); n > 0 {
		s.m.l.message("info", fmt.Sprintf("%d chunks are done", n))
	}
	s.pieces = kept
	return nil
}

// has reports whether the file has what is measured of the data's span.
func (m *measuring) has(span imatrix.Span) bool { return m.run.File.Ranges.Has(m.source.hash, span) }

// prepareRecords finds the lines of the shard.
func (s *imatrixSource) prepareRecords() error {
	o, m := s.m.o, s.m.model
	if m.ChatTemplate("") != "" || o.imx.template != "" || o.imx.templateFile != "" {
		opt := engine.ChatTemplateOptions{Source: o.imx.template}
		if o.imx.templateFile != "" {
			data, err := os.ReadFile(o.imx.templateFile)
			if err != nil {
				return &inputError{err: fmt.Errorf("--chat-template-file: %w", err)}
			}
			opt.Source = string(data)
		}
		var err error
		if s.chat, err = engine.NewChatTemplate(m, opt); err != nil {
			return err
		}
	}
	kept := s.lines[:0]
	for _, line := range s.lines {
		if !s.m.has(line.span()) {
			kept = append(kept, line)
		}
	}
	done := len(s.lines) - len(kept)
	s.lines = kept
	if done > 0 {
		s.m.l.message("info", fmt.Sprintf("%d records are done", done))
	}
	if o.imx.shuffle {
		shuffle(o.imx.seed, s.lines)
	}
	return nil
}

// next returns the next group, nil after the last.
func (s *imatrixSource) next(ctx context.Context) ([]imatrix.Piece, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	var err error
	if s.m.o.imx.records == "" {
		n := min(s.m.parallel(), len(s.pieces)-s.at)
		s.current = s.pieces[s.at : s.at+n]
		s.at += n
	} else if s.current, err = s.nextRecords(); err != nil {
		return nil, err
	}
	if len(s.current) == 0 {
		return nil, nil
	}
	if limit := s.m.o.imx.maxTokens; limit > 0 && s.m.o.imx.records == "" {
		left := max((limit-int(s.m.tokens))/s.m.o.NCtx, 0) // whole windows only
		s.current = s.current[:min(len(s.current), left)]
		if left == 0 {
			return nil, nil
		}
	}
	return s.current, nil
}

// nextRecords returns the pieces of records that fit into a batch together, or of one that is longer.
func (s *imatrixSource) nextRecords() ([]imatrix.Piece, error) {
	var group []imatrix.Piece
	total := 0
	for s.at < len(s.lines) {
		line := s.lines[s.at]
		tokens, err := s.encode(line)
		if err != nil {
			s.failed++
			s.at++
			s.m.l.warnf("record %d: %s", line.number, oneLine(err))
			continue
		}
		limit := s.m.o.imx.maxTokens
		over := limit > 0 && s.m.tokens+int64(total+len(tokens)) > int64(limit)
		if over && s.m.tokens+int64(total) == 0 {
			return nil, &inputError{err: fmt.Errorf("record %d has %d tokens, more than --max-tokens %d", line.number, len(tokens), limit)}
		}
		if len(group) > 0 && (total+len(tokens) > s.m.context.NUBatch() || over) || over {
			if over {
				s.at = len(s.lines)
			}
			break
		}
		s.at++
		span := line.span()
		total += len(tokens)
		for len(tokens) > 0 { // nothing is left out: what is longer than -c goes on with nothing before it
			n := min(len(tokens), s.m.o.NCtx)
			group = append(group, imatrix.Piece{Tokens: tokens[:n], Hash: s.hash, Span: span, From: s.scoreFrom(n)})
			tokens = tokens[n:]
		}
	}
	return group, nil
}

// scoreFrom is from where on a record's tokens count for the perplexity, which is only measured when asked for.
func (s *imatrixSource) scoreFrom(n int) int {
	if !s.m.o.isSet("ppl") || !s.m.o.ComputePPL || !s.m.context.Causal() || n < 2 {
		return 0
	}
	return 1
}

// encode returns the tokens of a record. Special tokens come from the chat template alone, unless --parse-special is
// given: their names in a record stay text.
func (s *imatrixSource) encode(line recordLine) ([]engine.Token, error) {
	raw, err := s.readLine(line)
	if err != nil {
		return nil, err
	}
	r := pipeline.ParseRecord(int(line.number), raw)
	if r.Err != nil {
		return nil, r.Err
	}
	var tokens []engine.Token
	switch {
	case r.Fields["messages"] != nil:
		tokens, err = s.encodeChat(r.Fields)
	case r.Fields["prompt"] != nil, r.Fields["text"] != nil:
		tokens, err = s.encodeText(r.Fields)
	default:
		err = errors.New("it has no text, no prompt and no messages")
	}
	if err == nil && len(tokens) == 0 {
		err = errors.New("it has no tokens")
	}
	return tokens, err
}

func (s *imatrixSource) encodeText(fields map[string]json.RawMessage) ([]engine.Token, error) {
	text := ""
	for _, name := range []string{"text", "prompt", "completion"} {
		if fields[name] == nil {
			continue
		}
		part, err := pipeline.Text(fields[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		text += part
	}
	return s.m.model.Vocab().Tokenize(text, true, s.m.o.ParseSpecial)
}

// chatClock is what templates that ask for the date are told: the same on every day, so that the tokens are.
var chatClock = time.Date(2025, 1, 1, 12, 0, 0, 0, time.UTC)

func (s *imatrixSource) encodeChat(fields map[string]json.RawMessage) ([]engine.Token, error) {
	if s.chat == nil {
		return nil, errors.New("messages: the model has no chat template (--chat-template, --chat-template-file)")
	}
	in := engine.ChatInput{Now: chatClock, ParseSpecial: s.m.o.ParseSpecial}
	if err := pipeline.DecodeList(fields["messages"], &in.Messages); err != nil {
		return nil, pipeline.JSONAt("messages", err)
	}
	if fields["tools"] != nil {
		if err := pipeline.DecodeList(fields["tools"], &in.Tools); err != nil {
			return nil, pipeline.JSONAt("tools", err)
		}
	}
	p, err := s.chat.Render(&in)
	if err != nil {
		return nil, err
	}
	return s.chat.Tokenize(p)
}

// progress says how far the run is.
func (s *imatrixSource) progress() (share float64, detail string) {
	total, what := len(s.pieces), "chunks"
	if s.m.o.imx.records != "" {
		total, what = len(s.lines), "records"
	}
	return float64(s.at) / float64(max(total, 1)), fmt.Sprintf(", %d of %d %s", s.at, total, what)
}

// name names a piece for a message.
func (s *imatrixSource) name(p imatrix.Piece) string {
	if s.m.o.imx.records != "" {
		return fmt.Sprintf("record %d", p.Span.To)
	}
	return fmt.Sprintf("chunk %d", p.Span.From/int64(s.m.o.NCtx))
}

// where names the group that is being measured.
func (s *imatrixSource) where() string {
	if len(s.current) == 0 {
		return "before the first chunk"
	}
	first, last := s.name(s.current[0]), s.name(s.current[len(s.current)-1])
	if first == last {
		return first
	}
	return first + " to " + last
}
