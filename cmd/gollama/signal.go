package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// handleSignals returns a context that the first SIGINT or SIGTERM cancels,
// with the signal as its cause; a second one ends the process at once. SIGPIPE
// is turned into an error of the write.
func handleSignals(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
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
			case s := <-ch:
				cause := errInterrupted
				if s == syscall.SIGTERM {
					cause = errTerminated
				}
				if !first {
					os.Exit(cause.code)
				}
				first = false
				cancel(cause)
			}
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		close(done)
		cancel(nil)
	}
}
