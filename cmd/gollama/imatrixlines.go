package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"

	"gollama/internal/imatrix"
	"gollama/internal/pipeline"
)

// recordLine is where a record is: records are read when they are measured.
type recordLine struct {
	offset int64 // bytes
	size   int32 // bytes, with the newline
	number int32 // from 1
}

func (l recordLine) span() imatrix.Span {
	return imatrix.Span{From: int64(l.number) - 1, To: int64(l.number)}
}

// indexRecords finds the lines of the shard that are not blank, and passes all that it reads to sum. Without any byte,
// s.records stays nil.
func (s *imatrixSource) indexRecords(path string, sum io.Writer) error {
	f, err := pipeline.OpenAt(path)
	if err != nil {
		return err
	}
	s.records = f
	r := bufio.NewReaderSize(io.TeeReader(f, sum), 1<<18)
	for n, at := 0, int64(0); ; n++ {
		size, blank, err := skipLine(r)
		if errors.Is(err, io.EOF) && size == 0 {
			if at == 0 {
				s.records = nil
				return f.Close()
			}
			return nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n == math.MaxInt32 {
			return fmt.Errorf("%s has more than %d lines", inputName(path), math.MaxInt32)
		}
		if !blank && (s.shard.N < 2 || n%s.shard.N == s.shard.I) {
			s.lines = append(s.lines, recordLine{at, int32(min(size, math.MaxInt32)), int32(n + 1)})
		}
		at += size
	}
}

// skipLine reads a line and returns its size with the newline, and whether there is anything in it.
func skipLine(r *bufio.Reader) (size int64, blank bool, err error) {
	blank = true
	for {
		part, err := r.ReadSlice('\n')
		size += int64(len(part))
		blank = blank && len(bytes.TrimSpace(part)) == 0
		if !errors.Is(err, bufio.ErrBufferFull) {
			return size, blank, err
		}
	}
}

// readLine reads a record.
func (s *imatrixSource) readLine(line recordLine) ([]byte, error) {
	if line.size > pipeline.MaxLine {
		return nil, fmt.Errorf("it has more than %d bytes", pipeline.MaxLine)
	}
	raw := make([]byte, line.size)
	if _, err := s.records.ReadAt(raw, line.offset); err != nil {
		return nil, err
	}
	raw = bytes.TrimSuffix(raw, []byte("\n"))
	if line.number == 1 {
		raw = bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf")) // a byte order mark is not JSON
	}
	return raw, nil
}
