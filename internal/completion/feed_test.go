package completion

import (
	"context"
	"io"
	"testing"
	"time"
)

// TestFeedBytes: requests wait as long as there is room for their media, one of any size may, and all come, in order.
func TestFeedBytes(t *testing.T) {
	const mib = 1 << 20
	sizes := []int64{100 * mib, 100 * mib, 100 * mib, 0, 1000 * mib, 1, 300 * mib, 0, 0, 200 * mib, 56 * mib, 1}
	read := 0
	next := func(context.Context) (*Request, error) {
		if read == len(sizes) {
			return nil, io.EOF
		}
		read++
		return &Request{Tag: read - 1}, nil
	}
	size := func(r *Request) int64 { return sizes[r.Tag.(int)] }
	f := newFeed(t.Context(), 8, next, func(*Request) {}, size)
	for i := range sizes {
		f.start(t.Context()) // time to get ahead
		r, err := f.next(t.Context(), true)
		if err != nil || r.Tag != i {
			t.Fatalf("request %d: got %v, %v", i, r, err)
		}
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			held, some, n := int64(0), 0, len(f.ch)
			for _, x := range sizes[i+1 : min(i+1+n, len(sizes))] {
				held += x
				if x > 0 {
					some++
				}
			}
			if some > 1 && held > MaxAhead {
				t.Fatalf("after request %d: %d wait, with %d MiB", i, n, held/mib)
			}
			k := i + 1 + n // the next that may wait, or not
			if k >= len(sizes) || n == 8 || held > 0 && held+sizes[k] > MaxAhead {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("after request %d: %d wait with %d MiB, and there is room for the next, of %d MiB", i, n, held/mib, sizes[k]/mib)
			}
		}
	}
	if _, err := f.next(t.Context(), true); err != io.EOF {
		t.Errorf("at the end: %v, want io.EOF", err)
	}
}

// TestFeedBytesCancelled: a feed that waits for room ends with its context.
func TestFeedBytesCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	next := func(context.Context) (*Request, error) { return &Request{}, nil }
	f := newFeed(ctx, 8, next, func(*Request) {}, func(*Request) int64 { return MaxAhead })
	if _, err := f.next(ctx, true); err != nil {
		t.Fatal(err)
	}
	cancel()
	for range 3 { // what waits, then the end
		if r, ok := <-f.ch; !ok {
			return
		} else if r == nil {
			t.Fatal("an empty request")
		}
	}
	t.Error("the feed has not ended")
}
