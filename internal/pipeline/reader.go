package pipeline

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// MaxLine is how many bytes a line of records may have.
const MaxLine = 64 << 20

var errBufferFull = bufio.ErrBufferFull

type lineReader interface {
	ReadSlice(delim byte) ([]byte, error)
}

// Reader reads records, one a line.
type Reader struct {
	name string
	r    *bufio.Reader
	line int
}

// NewReader reads records from r, which Open gives for a file; name is for messages.
func NewReader(r io.Reader, name string) *Reader {
	return &Reader{name: name, r: bufio.NewReaderSize(r, 64<<10)}
}

// Next returns the next record of the shard; a line that is none has its Err
// set. The error is io.EOF after the last, or a *ReadError.
func (r *Reader) Next(shard Shard) (*Record, error) {
	for {
		raw, tooLong, err := readLine(r.r, MaxLine)
		if r.line == 0 {
			raw = bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf")) // a byte order mark is not JSON
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil, io.EOF
		case err != nil:
			return nil, &ReadError{Name: r.name, Line: r.line, Err: err}
		}
		r.line++
		if !shard.has(r.line - 1) {
			continue
		}
		if tooLong {
			return &Record{Line: r.line, ID: strconv.Itoa(r.line),
				Err: recordErrorf(CodeLineTooLong, "line %d has more than %d bytes", r.line, MaxLine)}, nil
		}
		return ParseRecord(r.line, raw), nil
	}
}

// ReadError says that the input cannot be read on.
type ReadError struct {
	Name string
	Line int // the last one read
	Err  error
}

func (e *ReadError) Error() string {
	return fmt.Sprintf("after line %d of %s: %s", e.Line, e.Name, e.Err)
}

// Unwrap returns Err.
func (e *ReadError) Unwrap() error { return e.Err }

// Shard is the part I of N of the input: every Nth line, from line I+1 on. The zero value is all of it.
type Shard struct{ I, N int }

func (s Shard) has(index int) bool { return s.N < 2 || index%s.N == s.I }

func (s Shard) String() string { return fmt.Sprintf("%d/%d", s.I, s.N) }

// ParseShard reads I/N with I from 0 to N-1.
func ParseShard(text string) (Shard, error) {
	a, b, ok := strings.Cut(text, "/")
	i, err := strconv.Atoi(a)
	n, err2 := strconv.Atoi(b)
	if !ok || err != nil || err2 != nil {
		return Shard{}, fmt.Errorf("%q: want I/N, such as 0/4", text)
	}
	if n < 1 || i < 0 || i >= n {
		return Shard{}, fmt.Errorf("%q: want I from 0 to N-1", text)
	}
	return Shard{i, n}, nil
}

// EnvShard returns the part that a Slurm array or a Kubernetes indexed Job
// gives this process, and the variables that say so; from is empty if none do.
// Kubernetes does not say how many there are: n does, 0 being not known, which
// makes the error.
func EnvShard(getenv func(string) string, n int) (s Shard, from string, err error) {
	if text := getenv("SLURM_ARRAY_TASK_ID"); text != "" {
		return slurmShard(getenv, text, n)
	}
	text := getenv("JOB_COMPLETION_INDEX")
	if text == "" {
		return Shard{}, "", nil
	}
	from = "JOB_COMPLETION_INDEX=" + text
	i, err := strconv.Atoi(text)
	if err != nil || n == 0 {
		return Shard{}, from, fmt.Errorf("%s does not say of how many", from)
	}
	s, err = ParseShard(fmt.Sprintf("%d/%d", i, n))
	return s, from, err
}

// slurmShard counts from the array's first task, whatever its number and step.
func slurmShard(getenv func(string) string, id string, n int) (Shard, string, error) {
	from := "SLURM_ARRAY_TASK_ID=" + id
	number := func(name string, otherwise int) int {
		if v, err := strconv.Atoi(getenv(name)); err == nil {
			return v
		}
		return otherwise
	}
	i, err := strconv.Atoi(id)
	if n == 0 {
		n = number("SLURM_ARRAY_TASK_COUNT", 0)
	}
	if err != nil || n == 0 {
		return Shard{}, from, fmt.Errorf("%s does not say of how many", from)
	}
	step := max(number("SLURM_ARRAY_TASK_STEP", 1), 1)
	i = (i - number("SLURM_ARRAY_TASK_MIN", 0)) / step
	s, err := ParseShard(fmt.Sprintf("%d/%d", i, n))
	return s, from, err
}

// Count returns how many of n lines the shard has.
func (s Shard) Count(n int) int {
	if s.N < 2 {
		return n
	}
	return (n - s.I + s.N - 1) / s.N
}

// CountLines returns how many lines a file has that Open opens.
func CountLines(path string) (int, error) {
	in, err := Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = in.Close() }() // it was read
	buf := make([]byte, 256<<10)
	n, last := 0, byte('\n')
	for {
		k, err := in.Read(buf)
		n += bytes.Count(buf[:k], []byte("\n"))
		if k > 0 {
			last = buf[k-1]
		}
		switch {
		case errors.Is(err, io.EOF) && last != '\n':
			return n + 1, nil
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return n, err
		}
	}
}
