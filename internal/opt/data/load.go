package data

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
)

// Load reads documents, tokenizes them, and makes the examples of a training and a validation set.
// Documents, or pieces of a text file, that say the same are on the same side of that split.
//
// What was tokenized is kept in Options.CacheDir, and taken from there when the data, the
// vocabulary, the template and the options are the same. Without a cache all tokens are in memory;
// with one only about 40 bytes for each document. Close the datasets' cache file with Dataset.Close.
//
// The first record that cannot be used is an error that names the file and the line.
func Load(ctx context.Context, o Options) (train, val *Dataset, rep *Report, err error) {
	if err := o.check(); err != nil {
		return nil, nil, nil, err
	}
	c, rep, err := o.corpus(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	if rep.Documents == 0 {
		_ = c.close() // the error to report is the other one
		return nil, nil, nil, errors.New("the data has nothing to learn from: " + rep.nothing())
	}
	train, val = o.arrange(c)
	if train.Len() == 0 {
		_ = c.close() // as above
		return nil, nil, nil, fmt.Errorf("the data has %d documents and a validation share of %v leaves none for training", rep.Documents, o.ValShare)
	}
	rep.Train, rep.Val = train.stats, val.stats
	return train, val, rep, nil
}

// nothing says why there are no documents.
func (r *Report) nothing() string {
	switch {
	case r.NoLabels > 0:
		return fmt.Sprintf("%d records in which nothing is scored", r.NoLabels)
	case r.Empty > 0:
		return fmt.Sprintf("%d empty records", r.Empty)
	}
	return "it is empty"
}

// corpus tokenizes the sources, or opens the cache.
func (o *Options) corpus(ctx context.Context) (*corpus, *Report, error) {
	path, err := o.cachePath(ctx)
	if err != nil {
		return nil, nil, err
	}
	if path == "" {
		m := &memoryWriter{c: &corpus{}}
		rep, err := o.tokenize(ctx, m)
		return m.c, rep, err
	}
	if c, rep, err := openCache(path, o.Vocab.NTokens()); err == nil {
		rep.Cached = true
		return c, rep, nil
	}
	// It is not there, or of no use: made anew, it replaces what is there.
	w, err := createCache(path)
	if err != nil {
		return nil, nil, err
	}
	defer w.abort()
	rep, err := o.tokenize(ctx, w)
	if err != nil {
		return nil, nil, err
	}
	if err := w.commit(rep); err != nil {
		return nil, nil, err
	}
	c, _, err := openCache(path, o.Vocab.NTokens())
	return c, rep, err
}

// writer takes the pieces of all documents in order.
type writer interface {
	add(tokens []int32, runs []run, d doc) error
}

type memoryWriter struct{ c *corpus }

func (m *memoryWriter) add(tokens []int32, runs []run, d doc) error {
	m.c.add(tokens, runs, d)
	return nil
}

// job is a record on its way through the workers.
type job struct {
	rec  record
	out  encoded
	err  error
	done chan struct{}
}

// tokenize reads and encodes all sources, several records at a time, and writes them in order.
func (o *Options) tokenize(ctx context.Context, w writer) (*Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n := o.Threads
	if n < 1 {
		n = runtime.NumCPU()
	}
	// What waits is bounded: the queue of the workers, and as much that is done and not yet written.
	work, order := make(chan *job), make(chan *job, 4*n)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for j := range work {
				j.out, j.err = o.encode(&j.rec)
				close(j.done)
			}
		})
	}
	var readErr error
	wg.Go(func() {
		defer close(order)
		defer close(work)
		readErr = o.read(ctx, work, order)
	})
	rep := &Report{}
	for _, s := range o.Sources {
		rep.Sources = append(rep.Sources, SourceReport{Path: s.Path})
	}
	err := o.collect(order, w, rep)
	cancel()
	for range order { // so that the reader ends
	}
	wg.Wait()
	if err == nil {
		err = readErr
	}
	return rep, err
}

// read sends every record to the workers and, in order, to the collector.
func (o *Options) read(ctx context.Context, work, order chan<- *job) error {
	for i := range o.Sources {
		err := readSource(ctx, o, i, func(r record) error {
			j := &job{rec: r, done: make(chan struct{})}
			select {
			case order <- j:
			case <-ctx.Done():
				return ctx.Err()
			}
			select {
			case work <- j:
				return nil
			case <-ctx.Done():
				j.err = ctx.Err()
				close(j.done)
				return ctx.Err()
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// collect writes the pieces and counts. It returns the first error in the order of the data.
func (o *Options) collect(order <-chan *job, w writer, rep *Report) error {
	const often = 1000 // records
	n := 0
	for j := range order {
		<-j.done
		if j.err != nil {
			return j.err
		}
		e := &j.out
		count := func(n *int, yes bool) {
			if yes {
				*n++
			}
		}
		count(&rep.Empty, e.empty)
		count(&rep.NoLabels, e.noLabels)
		count(&rep.Truncated, e.truncated)
		count(&rep.Split, e.split)
		rep.CutTokens += e.cut
		for _, p := range e.pieces {
			if err := w.add(p.tokens, p.runs, doc{source: j.rec.source, hash: p.hash}); err != nil {
				return err
			}
			s := &rep.Sources[j.rec.source]
			s.Documents++
			s.Tokens += int64(len(p.tokens))
			labels := labelsOf(p.runs)
			s.Labels += labels
			rep.Documents, rep.Tokens, rep.Labels = rep.Documents+1, rep.Tokens+int64(len(p.tokens)), rep.Labels+labels
		}
		if n++; n%often == 0 && o.Progress != nil {
			o.Progress(rep.Documents, rep.Tokens)
		}
	}
	return nil
}

// labelsOf returns how many tokens of a document are scored: those of some weight, but the first.
func labelsOf(runs []run) (n int64) {
	for i, r := range runs {
		if r.w > 0 {
			n += int64(r.n)
			if i == 0 {
				n--
			}
		}
	}
	return n
}
