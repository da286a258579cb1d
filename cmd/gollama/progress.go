package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progressEvery is the pause between progress lines where there is no terminal.
const progressEvery = 10 * time.Second

// progress shows how far one step of the work is: a bar on a terminal, else a
// plain line at most every ten seconds.
type progress struct {
	m     *messages
	what  string
	unit  string
	mu    sync.Mutex
	bar   *progressbar.ProgressBar
	last  time.Time
	quiet bool
}

func (l *logging) progress(e *env, what, unit string) *progress {
	p := &progress{m: l.messages, what: what, unit: unit, last: time.Now(), quiet: l.quiet}
	f, ok := e.stderr.(*os.File)
	if !ok || l.quiet || l.json || !term.IsTerminal(int(f.Fd())) {
		return p
	}
	p.bar = progressbar.NewOptions(100,
		progressbar.OptionSetWriter(f),
		progressbar.OptionSetDescription(what),
		progressbar.OptionSetPredictTime(false),
		progressbar.OptionSetElapsedTime(false),
		progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)
	l.mu.Lock()
	l.beforeFn = func() { _ = p.bar.Clear() }
	l.mu.Unlock()
	return p
}

// set shows that the share done, 0 to 1, is reached.
func (p *progress) set(share float64, detail string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		p.bar.Describe(p.what + detail)
		_ = p.bar.Set(min(int(share*100), 99))
		return
	}
	if p.quiet || time.Since(p.last) < progressEvery {
		return
	}
	p.last = time.Now()
	p.m.message("info", fmt.Sprintf("%s: %.0f%%%s", p.what, share*100, detail))
}

// done takes the bar away.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar == nil {
		return
	}
	p.m.mu.Lock()
	p.m.beforeFn = nil
	p.m.mu.Unlock()
	_ = p.bar.Clear()
	p.bar = nil
}
