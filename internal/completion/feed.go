package completion

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"time"
)

// feed reads requests ahead of their evaluation, in a goroutine that ends with
// its context, or after the call of next that it is in.
type feed struct {
	ch    chan *Request
	full  chan struct{} // closed when it is as far ahead as it gets
	err   error         // what ended it other than io.EOF; valid once ended
	ended bool
	work  sync.Mutex // held while a request is prepared
}

// newFeed begins to read up to depth requests ahead and prepares each.
func newFeed(ctx context.Context, depth int, next func(context.Context) (*Request, error), prepare func(*Request)) *feed {
	f := &feed{ch: make(chan *Request, depth), full: make(chan struct{})}
	go func() {
		var once sync.Once
		full := func() { once.Do(func() { close(f.full) }) }
		defer full()
		defer close(f.ch)
		for {
			r, err := next(ctx)
			if err != nil {
				if !errors.Is(err, io.EOF) {
					f.err = err
				}
				return
			}
			if !f.prepare(ctx, r, prepare) {
				return
			}
			if len(f.ch) == depth {
				full()
			}
			select {
			case f.ch <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	return f
}

// prepare prepares r, unless ctx has ended: what that needs may be gone then.
func (f *feed) prepare(ctx context.Context, r *Request, prepare func(*Request)) bool {
	f.work.Lock()
	defer f.work.Unlock()
	if ctx.Err() != nil {
		return false
	}
	prepare(r)
	return true
}

// wait returns when nothing is prepared any more, once the feed's context has ended.
func (f *feed) wait() {
	f.work.Lock()
	defer f.work.Unlock()
}

// start waits a moment for the first requests, so that the first batch has as
// many as there are.
func (f *feed) start(ctx context.Context) {
	select {
	case <-f.full:
	case <-time.After(20 * time.Millisecond):
	case <-ctx.Done():
	}
}

// next returns the next request; nil if none is ready and wait is not set. At
// the end the error is io.EOF.
func (f *feed) next(ctx context.Context, wait bool) (*Request, error) {
	var r *Request
	ok := true
	if wait {
		select {
		case r, ok = <-f.ch:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	} else {
		select {
		case r, ok = <-f.ch:
		default:
		}
	}
	if ok {
		return r, nil
	}
	f.ended = true
	if f.err != nil {
		return nil, f.err
	}
	return nil, io.EOF
}

// SampleSeed returns the seed of text k of the request id under the run's
// seed: the same on every machine, whatever the order and number of requests.
func SampleSeed(seed uint32, id string, k int) uint32 {
	var b []byte
	b = binary.LittleEndian.AppendUint32(b, seed)
	b = binary.LittleEndian.AppendUint32(b, uint32(k))
	sum := sha256.Sum256(append(b, id...))
	// The largest value asks the engine for a random seed.
	return binary.LittleEndian.Uint32(sum[:]) & 0x7fffffff
}
