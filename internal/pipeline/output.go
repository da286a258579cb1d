package pipeline

import (
	"bufio"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
)

// ErrOutputExists is the cause of refusing an output that has content: it may be hours of work.
var ErrOutputExists = errors.New("it exists")

// Output is a file of results, one a line, which a process that dies leaves
// with whole lines but perhaps the last. Writes go straight to the file.
type Output struct {
	w    io.Writer
	file *os.File       // nil when w is somebody else's
	done map[uint64]int // results by id and key
	fail map[uint64]int // of them, those that say so
	ids  map[uint64]int // results by id
	n    int
}

// ParsedLine is what Resume reads in a result.
type ParsedLine struct {
	ID        string // as Record has it
	Key       string // see StreamConfig.Key
	Failed    bool
	Duplicate bool // it failed because an earlier line had its id
}

// hash stands for the result of a record. That two of a billion share one of
// its 2^64 values has a chance of 1 to 37.
func (p ParsedLine) hash() uint64 { return hash(fmt.Sprint(p.Duplicate, p.Key, p.ID)) }

// WriterOutput is an output that somebody else opened and closes, such as standard output.
func WriterOutput(w io.Writer) *Output { return &Output{w: w} }

// CreateOutput opens a new file, or one that is empty, a device or a pipe. A
// file with content is ErrOutputExists.
func CreateOutput(path string) (*Output, error) {
	f, err := openAppend(path, os.O_WRONLY)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && st.Mode().IsRegular() && st.Size() > 0 {
		err = &os.PathError{Op: "create", Path: path, Err: ErrOutputExists}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &Output{w: f, file: f}, nil
}

// openAppend opens a file to write at its end, and makes it if it is not there.
func openAppend(path string, mode int) (*os.File, error) {
	f, err := os.OpenFile(path, mode|os.O_CREATE|os.O_APPEND, 0o666)
	var pe *os.PathError
	if errors.As(err, &pe) {
		pe.Op = "create" // see Cause
	}
	return f, err
}

// ResumeOutput opens a file that an earlier run wrote, or makes it. parse reads
// a result. A last line that was torn is cut off. The error of parse names the line.
func ResumeOutput(path string, parse func(line []byte) (ParsedLine, error)) (*Output, error) {
	f, err := openAppend(path, os.O_RDWR)
	if err != nil {
		return nil, err
	}
	o := &Output{w: f, file: f, done: map[uint64]int{}, fail: map[uint64]int{}, ids: map[uint64]int{}}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		return o, nil
	}
	if err == nil {
		err = o.scan(parse)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return o, nil
}

// scan takes in the results there are and cuts off a torn line.
func (o *Output) scan(parse func(line []byte) (ParsedLine, error)) error {
	r := bufio.NewReaderSize(o.file, 64<<10)
	var whole int64
	for {
		line, torn, err := wholeLine(r)
		if errors.Is(err, io.EOF) {
			if torn {
				return o.file.Truncate(whole)
			}
			return nil
		}
		if err != nil {
			return err
		}
		o.n++
		p, err := parse(line)
		if err != nil {
			return fmt.Errorf("line %d: %w", o.n, err)
		}
		h := p.hash()
		o.done[h]++
		if p.Failed {
			o.fail[h]++
		}
		if !p.Duplicate {
			o.ids[hash(p.ID)]++
		}
		whole += int64(len(line)) + 1
	}
}

// wholeLine reads a line that has an end; torn says that bytes without one are left at io.EOF.
func wholeLine(r *bufio.Reader) (line []byte, torn bool, err error) {
	line, err = r.ReadBytes('\n')
	if err != nil {
		return nil, len(line) > 0, err
	}
	return line[:len(line)-1], false, nil
}

var hashSeed = maphash.MakeSeed()

func hash(s string) uint64 { return maphash.String(hashSeed, s) }

// took reports whether the output has the result of a record, which is taken
// then, and whether that failed. The error is ErrOtherRun if it has one of the
// same id that was made in another way.
func (o *Output) took(p ParsedLine) (failed, ok bool, err error) {
	h := p.hash()
	if o.done[h] == 0 {
		if !p.Duplicate && o.ids[hash(p.ID)] > 0 {
			return false, false, ErrOtherRun
		}
		return false, false, nil
	}
	failed = o.fail[h] > 0
	for _, m := range []map[uint64]int{o.done, o.fail} {
		if m[h]--; m[h] <= 0 {
			delete(m, h)
		}
	}
	if id := hash(p.ID); !p.Duplicate {
		if o.ids[id]--; o.ids[id] <= 0 {
			delete(o.ids, id)
		}
	}
	return failed, true, nil
}

// Lines returns how many results there were when the output was opened.
func (o *Output) Lines() int { return o.n }

// write appends one line, with its end, in one call: others may append to the same file.
func (o *Output) write(line []byte) error {
	_, err := o.w.Write(append(line, '\n'))
	return err
}

// Close brings what was written to disk.
func (o *Output) Close() error {
	if o.file == nil {
		return nil
	}
	f := o.file
	o.file = nil
	st, err := f.Stat()
	if err == nil && st.Mode().IsRegular() {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
