package completion

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"sync/atomic"
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

	size  func(*Request) int64
	bytes atomic.Int64  // that the media of requests in ch take, by size
	taken chan struct{} // a request was taken from ch
}

// MaxAhead is how many bytes the media of requests that are prepared ahead may take, if they are of more than one request.
const MaxAhead = 256 << 20

// mediaBytes is what a prepared request holds of media.
func mediaBytes(r *Request) int64 {
	if r.Chunks == nil {
		return 0
	}
	return r.Chunks.NBytes()
}

// newFeed begins to read up to depth requests ahead, fewer if by size their media take more than MaxAhead, and prepares each.
func newFeed(ctx context.Context, depth int, next func(context.Context) (*Request, error), prepare func(*Request), size func(*Request) int64) *feed {
	f := &feed{ch: make(chan *Request, depth), full: make(chan struct{}), size: size, taken: make(chan struct{}, 1)}
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
			size := f.size(r)
			if len(f.ch) == depth || !f.room(size) {
				full()
			}
			if !f.push(ctx, r, size) {
				return
			}
		}
	}()
	return f
}

// room reports whether a request with media of size bytes may wait.
func (f *feed) room(size int64) bool {
	n := f.bytes.Load()
	return n == 0 || n+size <= MaxAhead
}

// push lets r wait, once there is room, unless ctx ends.
func (f *feed) push(ctx context.Context, r *Request, size int64) bool {
	for !f.room(size) {
		select {
		case <-f.taken:
		case <-ctx.Done():
			return false
		}
	}
	f.bytes.Add(size)
	select {
	case f.ch <- r:
		return true
	case <-ctx.Done():
		return false
	}
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
	if r != nil {
		f.bytes.Add(-f.size(r))
		select {
		case f.taken <- struct{}{}:
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
