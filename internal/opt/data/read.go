package data

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"gollama/internal/pipeline"
)

const (
	// maxLine bounds a line of a JSONL file: 64 MiB is more than any context holds.
	maxLine = 64 << 20
	// maxText is where a text file is cut, at the next line end: what is tokenized at once.
	maxText = 8 << 20
)

var byteOrderMark = []byte("\xef\xbb\xbf")

// readSource calls emit with every record of source i, in order. Errors name the file and the line.
func readSource(ctx context.Context, o *Options, i int, emit func(record) error) error {
	s := o.Sources[i]
	format := s.Format
	if format == "" || format == "auto" {
		format = formatOf(s.Path)
	}
	give := func(r record) error {
		r.source = int32(i)
		if err := ctx.Err(); err != nil {
			return err
		}
		return emit(r)
	}
	if format == "tokens" {
		return o.readTokenFile(s.Path, give)
	}
	f, err := pipeline.Open(s.Path)
	if err != nil {
		return err
	}
	err = readText(bufio.NewReaderSize(f, 1<<16), s.Path, format, give)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// formatOf returns the format that a file's name tells, or "".
func formatOf(path string) string {
	name := strings.ToLower(path)
	for _, z := range []string{".gz", ".zst"} {
		name = strings.TrimSuffix(name, z)
	}
	switch filepath.Ext(name) {
	case ".jsonl", ".ndjson":
		return "jsonl"
	case ".txt", ".text", ".md":
		return "text"
	case ".bin", ".tok", ".tokens":
		return "tokens"
	}
	return ""
}

func readText(r *bufio.Reader, path, format string, emit func(record) error) error {
	if path == "-" {
		path = "standard input"
	}
	if head, _ := r.Peek(len(byteOrderMark)); bytes.Equal(head, byteOrderMark) {
		_, _ = r.Discard(len(byteOrderMark)) // they are there
	}
	if format == "" {
		format = "text"
		if head, _ := r.Peek(512); bytes.HasPrefix(bytes.TrimSpace(head), []byte("{")) {
			format = "jsonl"
		}
	}
	if format == "jsonl" {
		return readLines(r, path, emit)
	}
	return readPlain(r, path, emit)
}

// readLines reads a JSONL file.
func readLines(r *bufio.Reader, path string, emit func(record) error) error {
	for n := 1; ; n++ {
		line, err := readLine(r, maxLine)
		if err == io.EOF {
			return nil
		}
		where := fmt.Sprintf("%s:%d", path, n)
		if errors.Is(err, errLong) {
			return fmt.Errorf("%s: %w", where, err)
		}
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		rec, err := parseRecord(line)
		if err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		rec.where = where
		if err := emit(rec); err != nil {
			return err
		}
	}
}

var errLong = fmt.Errorf("the line is longer than %d bytes", maxLine)

// readLine returns the next line without its end, in memory of its own.
func readLine(r *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > most {
			return nil, errLong
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimSuffix(line, []byte("\n")), nil
		case err == bufio.ErrBufferFull:
		case err == io.EOF && len(line) > 0:
			return line, nil
		default:
			return nil, err
		}
	}
}

// readPlain reads a text file: one document, or several where it is longer than is tokenized at once.
func readPlain(r *bufio.Reader, path string, emit func(record) error) error {
	line := 1
	for {
		text, err := readChunk(r, maxText)
		if err != nil && err != io.EOF {
			return err
		}
		if bad := badUTF8(text); bad >= 0 {
			return fmt.Errorf("%s:%d: it is not UTF-8", path, line+bytes.Count(text[:bad], []byte("\n")))
		}
		if len(text) > 0 {
			if err := emit(record{hasText: true, text: string(text), where: fmt.Sprintf("%s:%d", path, line)}); err != nil {
				return err
			}
		}
		line += bytes.Count(text, []byte("\n"))
		if err == io.EOF {
			return nil
		}
	}
}

// badUTF8 returns where b stops to be UTF-8, or -1.
func badUTF8(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	i := 0
	for {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n <= 1 {
			return i
		}
		i += n
	}
}

// readChunk returns about most bytes, up to a line end, or with io.EOF the rest.
func readChunk(r *bufio.Reader, most int) ([]byte, error) {
	var text []byte
	for len(text) < most {
		part, err := r.ReadSlice('\n')
		text = append(text, part...)
		if err != nil && err != bufio.ErrBufferFull {
			return text, err
		}
		if err == nil && len(text) >= most {
			return text, nil
		}
	}
	// A line longer than the chunk: cut it, but not inside a character.
	for range utf8.UTFMax - 1 {
		if last, n := utf8.DecodeLastRune(text); last != utf8.RuneError || n != 1 {
			break
		}
		b, err := r.ReadByte()
		if err != nil {
			return text, err
		}
		text = append(text, b)
	}
	return text, nil
}
