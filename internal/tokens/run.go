package tokens

import (
	"context"
	"runtime"
)

// Batch is a number of documents that are encoded together. It is valid during
// a call only.
type Batch struct {
	Results []Result
	Out     []byte // what Format appended
	Ends    []int  // where in Out each result's part ends

	docs []Doc
	ids  []Token
	done chan struct{}
}

// batchBytes is how much text a batch takes in before it goes to a worker, and
// batchDocs how many documents.
const (
	batchBytes = 256 << 10
	batchDocs  = 2048
)

// Run encodes documents on several goroutines and hands them out in order.
type Run struct {
	Model   *Model
	Input   *Input
	Options Options
	Jobs    int // goroutines that encode; 0 is the number of CPUs
	// Format, if not nil, appends to dst what is to be written of a result. It
	// is called on several goroutines.
	Format func(dst []byte, r *Result) []byte
	// Emit takes the batches, in order; an error ends the run.
	Emit func(b *Batch) error
}

// Do runs. The memory it needs is bounded by the number of jobs and by the
// longest documents, not by the number of documents. The error is that of Emit,
// of ctx, or that of [Model.Ends]; what is wrong with a document is in its
// Result.
func (r *Run) Do(ctx context.Context) error {
	jobs := r.Jobs
	if jobs <= 0 {
		jobs = runtime.GOMAXPROCS(0)
	}
	workers := make([]*worker, jobs)
	for i := range workers {
		var err error
		if workers[i], err = r.Model.newWorker(r.Options); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n := 2*jobs + 2
	free, work, order := make(chan *Batch, n), make(chan *Batch, n), make(chan *Batch, n)
	for range n {
		free <- &Batch{}
	}
	go r.read(ctx, free, work, order)
	for _, w := range workers {
		go func() {
			for b := range work {
				w.batch(b, r.Format)
				close(b.done)
			}
		}()
	}
	// When ctx ends, nothing is waited for: the input may never give another byte.
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case b, more := <-order:
			if !more {
				return nil
			}
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-b.done:
			}
			if err := r.Emit(b); err != nil {
				return err
			}
			free <- b
		}
	}
}

// read fills batches until the input or ctx ends.
func (r *Run) read(ctx context.Context, free, work, order chan *Batch) {
	defer close(order)
	defer close(work)
	var b *Batch
	size := 0
	send := func() {
		if b != nil {
			order <- b
			work <- b
			b = nil
		}
	}
	r.Input.Read(ctx, func(d Doc) bool {
		if b == nil {
			select {
			case b = <-free:
			case <-ctx.Done():
				return false
			}
			b.docs, b.done, size = b.docs[:0], make(chan struct{}), 0
		}
		b.docs = append(b.docs, d)
		if size += len(d.Text); size >= batchBytes || len(b.docs) >= batchDocs {
			send()
		}
		return true
	})
	send()
}

func (w *worker) batch(b *Batch, format func([]byte, *Result) []byte) {
	b.Results, b.ids, b.Out, b.Ends = b.Results[:0], b.ids[:0], b.Out[:0], b.Ends[:0]
	for _, d := range b.docs {
		var r Result
		r, b.ids = w.do(d, b.ids)
		b.Results = append(b.Results, r)
		if format != nil {
			b.Out = format(b.Out, &b.Results[len(b.Results)-1])
		}
		b.Ends = append(b.Ends, len(b.Out))
	}
	clear(b.docs) // let go of the texts
}
