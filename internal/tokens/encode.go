package tokens

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"gollama/internal/engine"
)

// Policy is a choice that the model can be left to make.
type Policy string

// The policies.
const (
	ModelsOwn Policy = "auto"
	On        Policy = "on"
	Off       Policy = "off"
)

// Invalid says what happens to a text that is not valid UTF-8.
type Invalid string

// What can happen to invalid UTF-8.
const (
	KeepOrFail Invalid = "auto"    // kept by vocabularies that lose no byte, else an error
	Fail       Invalid = "error"   // an error
	Replace    Invalid = "replace" // each byte that belongs to no character becomes U+FFFD
)

// Options say how documents become ids.
type Options struct {
	BOS, EOS  Policy // a token before and after each document
	Parse     bool   // texts of special tokens become those tokens
	Invalid   Invalid
	MaxTokens int  // of a document, BOS and EOS included; 0 is no limit
	Truncate  bool // cut what is longer instead of failing
	// Chat writes a conversation in a chat template; nil refuses them. It is called on several goroutines.
	Chat func(messages json.RawMessage) (*Conversation, error)
}

// Result is an encoded document.
type Result struct {
	Doc
	IDs       []Token // BOS and EOS included
	Front     int     // tokens put before the text: 0 or 1
	Back      int     // tokens put after it: 0 or 1
	Cut       int     // tokens that MaxTokens took away
	Replaced  int     // bytes that became U+FFFD
	Dropped   int     // characters or bytes that the vocabulary has no token for
	DoubleBOS bool    // the text begins with a BOS token itself
}

// ErrTooLong is wrapped by the errors of documents with more than MaxTokens.
var ErrTooLong = errors.New("too many tokens")

// worker encodes documents for one goroutine.
type worker struct {
	m        *Model
	enc      Encoder
	opt      Options
	bos, eos Token // TokenNull: not added
}

// Ends returns the tokens that opt puts round a document, TokenNull for none.
// It is an error to ask for one that the vocabulary does not have.
func (m *Model) Ends(opt Options) (bos, eos Token, err error) {
	bos, eos = m.BOS, m.EOS
	addBOS, addEOS := m.AddBOS, m.AddEOS
	switch m.Type { // llama_vocab::impl::tokenize
	case "wpm": // always, whatever add_bos says; SEP stands for EOS
		addBOS, addEOS, eos = true, true, m.SEP
	case "rwkv", "plamo2", "test":
		addBOS, addEOS = false, false
	}
	for _, p := range []struct {
		policy Policy
		add    bool
		name   string
		tok    *Token
	}{{opt.BOS, addBOS, "BOS", &bos}, {opt.EOS, addEOS, "EOS", &eos}} {
		if p.policy == Off || p.policy != On && !p.add {
			*p.tok = engine.TokenNull
		} else if *p.tok == engine.TokenNull {
			return bos, eos, fmt.Errorf("%s: the vocabulary has no %s token", m.path, p.name)
		}
	}
	return bos, eos, nil
}

func (m *Model) newWorker(opt Options) (*worker, error) {
	bos, eos, err := m.Ends(opt)
	if err != nil {
		return nil, err
	}
	return &worker{m: m, enc: m.NewEncoder(), opt: opt, bos: bos, eos: eos}, nil
}

// Conversation is a chat as a template writes it.
type Conversation struct {
	Segments []engine.ChatSegment
	Open     bool // it ends where an answer is to begin
}

// conversation makes the text of a document that is one; nil for any other.
func (w *worker) conversation(r *Result) (*Conversation, error) {
	if r.Messages == nil {
		return nil, nil
	}
	if w.opt.Chat == nil {
		return nil, errors.New("it is an array and no string")
	}
	c, err := w.opt.Chat(r.Messages)
	if err != nil {
		return nil, err
	}
	r.Text = []byte{}
	for _, s := range c.Segments {
		r.Text = append(r.Text, s.Text...)
	}
	return c, nil
}

// encode appends the ids of a text, or of a conversation's pieces: what of these came from a message is text.
func (w *worker) encode(dst []Token, r *Result, c *Conversation) (_ []Token, err error) {
	if c == nil {
		return w.enc.Encode(dst, r.Text, w.opt.Parse)
	}
	for _, s := range c.Segments {
		if dst, err = w.enc.Encode(dst, []byte(s.Text), w.opt.Parse && !s.Literal); err != nil {
			break
		}
	}
	return dst, err
}

// do encodes d; the ids are appended to dst, which is returned.
func (w *worker) do(d Doc, dst []Token) (Result, []Token) {
	r := Result{Doc: d}
	if d.Err != nil {
		return r, dst
	}
	c, err := w.conversation(&r)
	if err != nil {
		r.Err = where(d, err)
		return r, dst
	}
	if r.Err = w.valid(&r); r.Err != nil {
		return r, dst
	}
	start := len(dst)
	fast, _ := w.enc.(*fastEncoder)
	if fast != nil {
		fast.dropped = 0
	}
	if w.bos != engine.TokenNull {
		dst = append(dst, w.bos)
		r.Front = 1
	}
	text := len(dst)
	if dst, r.Err = w.encode(dst, &r, c); r.Err != nil {
		r.Err = where(d, r.Err)
		return r, dst[:start]
	}
	if fast != nil {
		r.Dropped = fast.dropped
	}
	dst = w.close(&r, dst, start, text, c)
	if r.Err = w.cut(&r, &dst, start); r.Err != nil {
		return r, dst[:start]
	}
	r.IDs = dst[start:len(dst):len(dst)]
	return r, dst
}

// close puts the last token after a document, dst[start:] with the text from text on. A conversation whose template writes
// BOS or EOS itself gets no second one, and no EOS where an answer is to follow, as [engine.ChatTemplate.Tokenize] has it.
func (w *worker) close(r *Result, dst []Token, start, text int, c *Conversation) []Token {
	double := r.Front > 0 && len(dst) > text && dst[text] == w.bos
	if double && c != nil {
		dst = append(dst[:start], dst[text:]...)
		r.Front = 0
	}
	r.DoubleBOS = double && c == nil
	if w.eos == engine.TokenNull || c != nil && (c.Open || len(dst) > start && dst[len(dst)-1] == w.eos) {
		return dst
	}
	r.Back = 1
	return append(dst, w.eos)
}

// cut holds a document to MaxTokens.
func (w *worker) cut(r *Result, dst *[]Token, start int) error {
	n, limit := len(*dst)-start, w.opt.MaxTokens
	if limit == 0 || n <= limit {
		return nil
	}
	if !w.opt.Truncate {
		return where(r.Doc, fmt.Errorf("%w: %d, the limit is %d", ErrTooLong, n, limit))
	}
	r.Cut = n - limit
	*dst = (*dst)[:start+limit]
	if r.Back > 0 {
		(*dst)[len(*dst)-1] = w.eos
	}
	return nil
}

// where names the document in an error.
func where(d Doc, err error) error {
	if d.Unit != "" {
		err = fmt.Errorf("%s %d: %w", d.Unit, d.Record+1, err)
	}
	switch d.Source {
	case "":
		return err
	case "-":
		return fmt.Errorf("standard input: %w", err)
	}
	return fmt.Errorf("%s: %w", d.Source, err)
}

// valid checks or replaces what is not UTF-8.
func (w *worker) valid(r *Result) error {
	if w.opt.Invalid == KeepOrFail && w.m.keepsBytes() || utf8.Valid(r.Text) {
		return nil
	}
	if w.opt.Invalid != Replace {
		at := 0
		for {
			c, size := utf8.DecodeRune(r.Text[at:])
			if c == utf8.RuneError && size == 1 {
				break
			}
			at += size
		}
		return where(r.Doc, &InvalidError{Offset: at, Byte: r.Text[at]})
	}
	text := make([]byte, 0, len(r.Text)+len(r.Text)/8)
	for s := r.Text; len(s) > 0; {
		c, size := utf8.DecodeRune(s)
		if c == utf8.RuneError && size == 1 {
			r.Replaced++
		}
		text = utf8.AppendRune(text, c)
		s = s[size:]
	}
	r.Text = slices.Clip(text)
	return nil
}

// InvalidError is a text that is not valid UTF-8.
type InvalidError struct {
	Offset int // bytes from the start of the document
	Byte   byte
}

// Error names the offset and the byte.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("invalid UTF-8 at byte %d: %#02x", e.Offset, e.Byte)
}
