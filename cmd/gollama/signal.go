package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// signals are what becomes of SIGINT and SIGTERM.
type signals struct {
	mu     sync.Mutex
	divert func() // takes SIGINT; nil: it ends the run
}

// handleSignals returns a context that the first SIGINT or SIGTERM cancels,
// with the signal as its cause; a second one ends the process at once. SIGPIPE
// is turned into an error of the write.
func handleSignals(parent context.Context) (ctx context.Context, s *signals, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	s = &signals{}
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM)
	signal.Ignore(syscall.SIGPIPE)
	done := make(chan struct{})
	go func() {
		first := true
		for {
			select {
			case <-done:
				return
			case sig := <-ch:
				cause := errInterrupted
				if sig == syscall.SIGTERM {
					cause = errTerminated
				} else if s.diverted() {
					continue
				}
				if !first {
					os.Exit(cause.code)
				}
				first = false
				cancel(cause)
			}
		}
	}()
	return ctx, s, func() {
		signal.Stop(ch)
		close(done)
		cancel(nil)
	}
}

// diverted gives a SIGINT to whom it was diverted to, if there is one.
func (s *signals) diverted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.divert != nil {
		s.divert()
	}
	return s.divert != nil
}

// interrupts lets f take each SIGINT until back is called. s may be nil, in tests.
func (s *signals) interrupts(f func()) (back func()) {
	if s == nil {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.divert
	s.divert = f
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.divert = old
	}
}
