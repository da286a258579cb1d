//go:build cgo

package engine

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// begunContext calls begun when its Done channel is first asked for, which the
// decode does right before it calls into C.
type begunContext struct {
	context.Context
	begun func()
}

func (c *begunContext) Done() <-chan struct{} {
	if f := c.begun; f != nil {
		c.begun = nil
		f()
	}
	return c.Context.Done()
}

func TestCancelInFlight(t *testing.T) {
	const n = 16384
	p := testParams(needStory(t))
	p.NCtx, p.NBatch, p.NUBatch = n, n, 64
	c := openContext(t, openModel(t, p), p)
	long := slices.Repeat([]Token{403}, n)
	parent, cancel := context.WithCancel(context.Background())
	defer cancel()
	asked := make(chan time.Time, 1)
	// One call of C takes all of the tokens, which lasts seconds.
	ctx := &begunContext{parent, func() {
		time.AfterFunc(300*time.Millisecond, func() { asked <- time.Now(); cancel() })
	}}
	err := c.DecodePrompt(ctx, long, 0, 0, nil)
	late := time.Since(<-asked)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, ErrCanceled) {
		t.Fatalf("DecodePrompt = %v, want context.Canceled", err)
	}
	// The flag is read between the nodes of the graph, a few ms each; the rest is for a busy machine.
	if late > 2*time.Second {
		t.Errorf("it took %v to end after the cancel", late)
	}
	last := c.SeqPosMax(0)
	t.Logf("ended %v after the cancel, at position %d", late, last)
	if last >= n-1 {
		t.Errorf("last position %d of %d: nothing was canceled", last, n)
	}
	if _, err := c.Logits(-1); err == nil {
		t.Error("a canceled decode has logits")
	}
	// What is in the memory is whole, and can be gone on with or dropped.
	if err := c.DecodePrompt(context.Background(), long[:3], last+1, 0, nil); err != nil || c.SeqPosMax(0) != last+3 {
		t.Errorf("going on after position %d: %v, last position %d", last, err, c.SeqPosMax(0))
	}
	if got := generate(t, c, &p.Sampling, "Once upon a time", 32); got != story {
		t.Errorf("after a cancel it generates %q, want %q", got, story)
	}
}
