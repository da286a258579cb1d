package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// StreamConfig says how records become results.
type StreamConfig struct {
	In    *Reader
	Out   *Output
	Shard Shard

	// Unordered writes each result when it is there, and not in the order of the records.
	Unordered bool
	// Window is how many records may be begun and not yet written: it bounds
	// the memory that results take which wait for an earlier one. 0 is 1024.
	Window int
	// MaxErrors ends the stream after more failed records than this; negative is no limit.
	MaxErrors int

	// Key is of what a result depends on besides its record's id; a result
	// found by ResumeOutput with another is an error. It may be nil.
	Key func(r *Record) string
	// ErrorLine makes the result of a record that failed.
	ErrorLine func(r *Record, err error) ([]byte, error)
}

// Counts is what became of the records so far.
type Counts struct {
	Read    int // records of this shard
	Skipped int // that the output had already
	Written int // results, those of failed records included
	Failed  int // of both
}

// Errors of a Stream.
var (
	// ErrTooManyErrors says that more than StreamConfig.MaxErrors records failed.
	ErrTooManyErrors = errors.New("too many records failed")
	// ErrOtherRun says that the output was made with other settings or from another input.
	ErrOtherRun = errors.New("the output is of another run")
)

// Stream hands out records that are to be done and writes their results, in
// the records' order unless told otherwise. Each record gets exactly one. Its
// methods may be called from several goroutines.
type Stream struct {
	cfg StreamConfig

	reading sync.Mutex // held by Next
	seen    map[uint64]int
	next    int // of the record to be handed out

	mu      sync.Mutex
	room    *sync.Cond // the window moved, or all is over
	pending map[int][]byte
	head    int // the record whose result comes next
	counts  Counts
	err     error // of writing, or ErrTooManyErrors
}

// NewStream begins a stream.
func NewStream(cfg StreamConfig) *Stream {
	if cfg.Window == 0 {
		cfg.Window = 1024
	}
	s := &Stream{cfg: cfg, seen: map[uint64]int{}, pending: map[int][]byte{}}
	s.room = sync.NewCond(&s.mu)
	return s
}

// Next returns the next record to do, which is a good one: the results of the
// others are written by the stream itself. It waits while the window is full.
// The error is io.EOF after the last record and after too many failed, the
// cause of ctx, or that of reading or of an output that is of another run.
func (s *Stream) Next(ctx context.Context) (*Record, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.room.Broadcast()
	})
	defer stop()
	for {
		if err := s.wait(ctx); err != nil {
			return nil, err
		}
		r, err := s.cfg.In.Next(s.cfg.Shard)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		s.counts.Read++
		s.mu.Unlock()
		if r.Err == nil {
			r.Err = s.duplicate(r)
		}
		if done, err := s.skip(r); err != nil {
			return nil, err
		} else if done {
			continue
		}
		r.seq = s.next
		s.next++
		if r.Err == nil {
			return r, nil
		}
		if err := s.Fail(r, r.Err); err != nil {
			return nil, err
		}
	}
}

// wait returns when a record may be begun.
func (s *Stream) wait(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case errors.Is(s.err, ErrTooManyErrors):
			return io.EOF
		case s.err != nil:
			return s.err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case s.next-s.head < s.cfg.Window:
			return nil
		}
		s.room.Wait()
	}
}

// skip reports whether the output has the record's result.
func (s *Stream) skip(r *Record) (bool, error) {
	p := ParsedLine{ID: r.ID}
	var e *RecordError
	p.Duplicate = errors.As(r.Err, &e) && e.Code == CodeDuplicateID
	if s.cfg.Key != nil {
		p.Key = s.cfg.Key(r)
	}
	failed, ok, err := s.cfg.Out.took(p)
	if err != nil {
		return false, fmt.Errorf("record %s (line %d): %w", r.ID, r.Line, err)
	}
	if !ok {
		return false, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Skipped++
	if failed {
		s.counts.Failed++
	}
	return true, nil
}

// duplicate returns the error of a record whose id was there before.
func (s *Stream) duplicate(r *Record) error {
	if line, ok := s.seen[hash(r.ID)]; ok {
		return recordErrorf(CodeDuplicateID, "line %d: the id %s is that of line %d", r.Line, r.ID, line)
	}
	s.seen[hash(r.ID)] = r.Line
	return nil
}

// Done gives the result of a record, as a line of JSON without its end.
func (s *Stream) Done(r *Record, line []byte) error { return s.finish(r, line, false) }

// Fail gives the error of a record, which becomes its result.
func (s *Stream) Fail(r *Record, err error) error {
	line, err := s.cfg.ErrorLine(r, err)
	if err != nil {
		return err
	}
	return s.finish(r, line, true)
}

func (s *Stream) finish(r *Record, line []byte, failed bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil && !errors.Is(s.err, ErrTooManyErrors) {
		return s.err
	}
	if failed {
		s.counts.Failed++
		if s.cfg.MaxErrors >= 0 && s.counts.Failed > s.cfg.MaxErrors && s.err == nil {
			s.err = fmt.Errorf("%w: %d, the limit is %d", ErrTooManyErrors, s.counts.Failed, s.cfg.MaxErrors)
		}
	}
	defer s.room.Broadcast()
	if s.cfg.Unordered {
		s.head++ // only their number counts
		return s.write(line)
	}
	s.pending[r.seq] = line
	for {
		line, ok := s.pending[s.head]
		if !ok {
			return nil
		}
		delete(s.pending, s.head)
		s.head++
		if err := s.write(line); err != nil {
			return err
		}
	}
}

func (s *Stream) write(line []byte) error {
	if err := s.cfg.Out.write(line); err != nil {
		s.err = err
		return err
	}
	s.counts.Written++
	return nil
}

// Counts returns what became of the records so far.
func (s *Stream) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// Err returns the error of writing, or ErrTooManyErrors; nil if all went well.
func (s *Stream) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Each passes the records to f, in as many goroutines as workers, and writes
// what it returns as JSON. An error of f is the record's, but when ctx is done:
// then it ends the stream, as those of reading and writing do.
func Each(ctx context.Context, s *Stream, workers int, f func(ctx context.Context, r *Record) (any, error)) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	for range max(workers, 1) {
		wg.Go(func() {
			if err := s.work(ctx, f); err != nil {
				stop(err)
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return s.Err()
}

func (s *Stream) work(ctx context.Context, f func(ctx context.Context, r *Record) (any, error)) error {
	for {
		r, err := s.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		v, err := f(ctx, r)
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			err = s.Fail(r, err)
		} else {
			var line []byte
			if line, err = Marshal(v); err == nil {
				err = s.Done(r, line)
			}
		}
		if err != nil {
			return err
		}
	}
}
