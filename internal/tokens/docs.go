package tokens

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"gollama/internal/pipeline"
)

// Doc is one text to encode.
type Doc struct {
	Source string          // file name; "-" is standard input; "" a text of the command line
	Record int             // number in its source from 0 on; of JSON records the line
	Unit   string          // what Record counts in a file that is split, "line" or "record"; "" of a whole one
	ID     json.RawMessage // "id" of a JSON record
	Text   []byte          // not changed
	// Messages is a conversation in place of a text: Options.Chat makes one of it.
	Messages json.RawMessage
	Err      error // why there is no text
}

// Split says what a document is within a file.
type Split int

// The ways to split a file.
const (
	Whole   Split = iota // the file
	ByLine               // each line, without its \n
	ByNull               // each part that ends with a zero byte, or with the file
	ByJSONL              // each JSON object: the text of a field
)

// Input is where documents come from, in order: Texts, then Files.
type Input struct {
	Texts []string
	Files func(yield func(name string, err error) bool) // "-" is Stdin
	Stdin io.Reader
	Split Split
	Field string // of a JSON record, with dots for objects within
}

// ErrNoInput is wrapped by the errors of documents whose file cannot be read.
var ErrNoInput = errors.New("cannot read the input")

// sourceError is an error of a whole source. It wraps ErrNoInput.
type sourceError struct{ err error }

func (e *sourceError) Error() string   { return e.err.Error() }
func (e *sourceError) Unwrap() []error { return []error{ErrNoInput, e.err} }

// Names makes a list of file names for Input.
func Names(names []string) func(yield func(string, error) bool) {
	return func(yield func(string, error) bool) {
		for _, n := range names {
			if !yield(n, nil) {
				return
			}
		}
	}
}

// Read calls yield with each document until it returns false. A file that
// cannot be read gives a document with an error, and the next file follows.
func (in *Input) Read(ctx context.Context, yield func(Doc) bool) {
	for i, text := range in.Texts {
		if !yield(Doc{Record: i, Text: []byte(text)}) {
			return
		}
	}
	if in.Files == nil {
		return
	}
	in.Files(func(name string, err error) bool {
		if ctx.Err() != nil {
			return false
		}
		more := true
		stop := errors.New("stop")
		if err == nil {
			err = in.file(name, func(d Doc) error {
				if more = ctx.Err() == nil && yield(d); !more {
					return stop
				}
				return nil
			})
		}
		if err != nil && more {
			more = yield(Doc{Source: name, Err: &sourceError{plainError(name, err)}})
		}
		return more
	})
}

// plainError names the file once.
func plainError(name string, err error) error {
	if name == "-" {
		name = "standard input"
	}
	return fmt.Errorf("%s: %w", name, pipeline.Cause(err))
}

func (in *Input) file(name string, yield func(Doc) error) error {
	var src io.Reader = in.Stdin
	size := 0
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // only read from
		if st, err := f.Stat(); err == nil && st.Mode().IsRegular() {
			size = int(st.Size())
		}
		src = f
	}
	r, err := pipeline.Decompress(src)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // only read from
	switch in.Split {
	case ByLine:
		return records(r, '\n', func(i int, rec []byte) error { return yield(Doc{Source: name, Record: i, Unit: "line", Text: rec}) })
	case ByNull:
		return records(r, 0, func(i int, rec []byte) error { return yield(Doc{Source: name, Record: i, Unit: "record", Text: rec}) })
	case ByJSONL:
		return records(r, '\n', func(i int, rec []byte) error { return in.jsonRecord(name, i, rec, yield) })
	}
	var text bytes.Buffer
	text.Grow(size + bytes.MinRead) // no second copy of a large file
	if _, err := text.ReadFrom(r); err != nil {
		return err
	}
	return yield(Doc{Source: name, Text: text.Bytes()})
}

// records cuts r after each sep. The last record may end with the input; one
// that would be empty does not count.
func records(r io.Reader, sep byte, yield func(i int, rec []byte) error) error {
	br := bufio.NewReaderSize(r, 1<<18)
	var block []byte // records lie in it one after the other
	for i := 0; ; i++ {
		start := len(block)
		for {
			part, err := br.ReadSlice(sep)
			if start > 0 && len(block)+len(part) > cap(block) {
				block = append(make([]byte, 0, max(1<<18, 2*(len(block)-start+len(part)))), block[start:]...)
				start = 0
			}
			block = append(block, part...)
			if err == nil {
				break
			}
			if errors.Is(err, bufio.ErrBufferFull) {
				continue
			}
			if !errors.Is(err, io.EOF) {
				return err
			}
			if len(block) > start {
				return yield(i, block[start:len(block):len(block)])
			}
			return nil
		}
		if err := yield(i, block[start:len(block)-1:len(block)-1]); err != nil {
			return err
		}
	}
}

// jsonRecord takes the text out of a JSON line; an empty line is none.
func (in *Input) jsonRecord(name string, i int, line []byte, yield func(Doc) error) error {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil
	}
	d := Doc{Source: name, Record: i, Unit: "line"}
	fail := func(format string, args ...any) error {
		d.Err = where(d, fmt.Errorf(format, args...))
		return yield(d)
	}
	var obj map[string]json.RawMessage
	if err := pipeline.Decode(line, &obj); err != nil {
		return fail("not a JSON object: %w", err)
	}
	d.ID = obj["id"]
	path := strings.Split(in.Field, ".")
	for _, key := range path[:len(path)-1] {
		var inner map[string]json.RawMessage
		if err := pipeline.Decode(obj[key], &inner); err != nil {
			return fail("field %q is not there", in.Field)
		}
		obj = inner
	}
	raw, ok := obj[path[len(path)-1]]
	if len(raw) > 0 && raw[0] == '[' {
		d.Messages = raw
		return yield(d)
	}
	var text *string
	switch err := pipeline.Decode(raw, &text); {
	case !ok:
		return fail("field %q is not there", in.Field)
	case err != nil || text == nil:
		return fail("field %q is no string", in.Field)
	}
	d.Text = []byte(*text)
	return yield(d)
}
