package completion

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"gollama/internal/engine"
)

// SlotContext is what Slots need of *engine.Context: a context of several sequences.
type SlotContext interface {
	Memory
	NSeqMax() int
	NBatch() int  // tokens in a batch at most
	NUBatch() int // tokens computed at once
	// Decode evaluates a batch of tokens of several sequences.
	Decode(ctx context.Context, b *engine.Batch) error
	// Logits returns those after token i of the last batch, valid until the next.
	Logits(i int) ([]float32, error)
	SeqCp(src, dst, p0, p1 int) bool
	SeqPosMin(seq int) int // the lowest position held, -1 if there is none
	ClearMemory()
}

// SlotSampler is a sampler of one request.
type SlotSampler[C any] interface {
	Sample(c C, i int) (engine.Token, error)
	Accept(t engine.Token, generated bool) error
	Seed() uint32
	Close() error
}

// Request asks for one or more texts that go on from a prompt. Progress of the
// Options is not used. Grammar says whether Sampling has one.
type Request struct {
	Options
	Sampling engine.SamplingParams // Seed is hashed with ID and the text's number: see SampleSeed
	N        int                   // texts; 0 is 1
	Tag      any                   // the caller's

	tokens []engine.Token // of the whole prompt, once prepared
	prompt []engine.Token // what of them fits the context
	err    error          // that preparing gave
}

// Reply is what became of a Request: N results, or an error.
type Reply struct {
	*Request
	Results []Result
	More    *More // for its result; may be nil
	Err     error

	Reading, Writing time.Duration // of its prompt and its texts, beside others
}

// SlotConfig says how Slots work.
type SlotConfig[C SlotContext] struct {
	Vocab      Vocab
	Context    C
	NewSampler func(p *engine.SamplingParams) (SlotSampler[C], error)
	Parallel   int // slots; the context has as many sequences, and one more with a Prefix

	// Prefix is the text that all prompts begin with. It is evaluated once, and
	// of each prompt only what differs from it.
	Prefix string

	// Media, which may be nil, reads images and sounds of prompts in Chunks. What such a prompt shares with one before is not
	// evaluated again, unless NoReuse says so.
	Media   SlotMedia[C]
	NoReuse bool

	Ahead int // requests that are read and prepared ahead; 0 is Parallel

	// Speculator, which may be nil, guesses tokens while there are few texts.
	Speculator Speculator

	// Deterministic evaluates every token in a shape that does not depend on
	// the other requests; see ARCHITECTURE.md, "Batches and rounding".
	Deterministic bool
}

// Slots make many texts at once in the sequences of one context: each step is
// one batch, with the next token of every text and parts of the prompts that
// are yet to be read. A slot that is done takes the next request at once.
type Slots[C SlotContext] struct {
	SlotConfig[C]
	slots   []slot[C]
	prefix  []engine.Token // evaluated in sequence Parallel
	waiting []*text[C]     // further texts of prompts that were evaluated, in order
	batch   engine.Batch
	stats   SlotStats
	guesses []engine.Guess
	turn    int // slot whose prompt is served first
}

// SlotStats counts what Slots did. Times are wall clock.
type SlotStats struct {
	Batches         int
	PromptTokens    int // evaluated, those of the prefix included
	CachedTokens    int // of prompts, not evaluated again
	GeneratedTokens int
	GuessedTokens   int // evaluated as guesses
	ConfirmedTokens int // of them, that came
	Requests        int
	Failed          int
	Decode          time.Duration // in the engine
	Sample          time.Duration // picking tokens
	Guess           time.Duration // guessing tokens, with the draft model if there is one
	Total           time.Duration
}

// text is one of the texts of a request.
type text[C SlotContext] struct {
	*sequence
	group   *group[C]
	index   int
	sampler SlotSampler[C]
	begun   bool // the Speculator knows it

	started, first time.Time // in its slot, and when its first token was there
}

// group is a request and its texts so far.
type group[C SlotContext] struct {
	req     *Request
	results []Result
	left    int   // texts not ended
	err     error // of the first text that failed
	begun   bool  // all its texts are, and not only the first
	home    int   // a slot that has the whole prompt while texts are waiting; -1 none
	nPos    int   // positions of the prompt

	reading, writing time.Duration
}

// slot is a sequence of the context and the text in it.
type slot[C SlotContext] struct {
	*text[C]
	rest  []engine.Token      // of the prompt, not evaluated; of one with media, up to the next chunk
	next  int                 // chunk of the prompt that comes after rest
	waits bool                // nothing of the chunks was looked at yet
	held  []engine.MediaChunk // what the sequence begins with, as far as it is whole chunks of a prompt with media
	row   int                 // of the batch, with the logits to sample from; -1 none
	first int                 // row of the batch of the first token of the prompt's part; -1 none
	part  int                 // tokens of the prompt in the batch
	clean int                 // tokens of the prefix held as the prefix's own evaluation left them
	used  int                 // tokens held while there is no text
}

// NewSlots returns slots over a context, whose memory is cleared when they run.
func NewSlots[C SlotContext](cfg SlotConfig[C]) (*Slots[C], error) {
	need := cfg.Parallel
	if cfg.Deterministic && cfg.Speculator != nil {
		return nil, errors.New("guesses change the shape of batches, which is to be pinned")
	}
	if cfg.Deterministic && need%PinnedRows != 0 {
		return nil, fmt.Errorf("%d slots: want a multiple of %d to pin the shape of batches", need, PinnedRows)
	}
	if cfg.Prefix != "" {
		need++
	}
	if cfg.Media != nil && (cfg.Prefix != "" || cfg.Speculator != nil) {
		return nil, errors.New("prompts with images or sounds have no shared prefix and are not guessed")
	}
	if cfg.Parallel < 1 || cfg.Context.NSeqMax() < need {
		return nil, fmt.Errorf("%d slots need %d sequences, the context has %d", cfg.Parallel, need, cfg.Context.NSeqMax())
	}
	s := &Slots[C]{SlotConfig: cfg, slots: make([]slot[C], cfg.Parallel)}
	for i := range s.slots {
		s.slots[i].row, s.slots[i].first = -1, -1
	}
	return s, nil
}

// Stats returns the counts so far. It may be called from the done callback of Run.
func (s *Slots[C]) Stats() SlotStats { return s.stats }

// Run makes the texts of all requests that next returns, until its io.EOF, and
// passes each to done when it is complete. next is called from a goroutine of
// its own and may block; done from Run's. An error of a request is its Reply's.
// Run returns the error of next, of done, of the engine or of ctx; the texts
// not yet complete are lost then.
func (s *Slots[C]) Run(ctx context.Context, next func(context.Context) (*Request, error), done func(Reply) error) error {
	begin := time.Now()
	defer func() { s.stats.Total += time.Since(begin) }()
	defer s.drop()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s.Context.ClearMemory()
	if err := s.readPrefix(ctx); err != nil {
		return err
	}
	ahead := s.Parallel
	if s.Ahead > 0 {
		ahead = s.Ahead - 1 // one more is in its hand
	}
	feed := newFeed(ctx, ahead, next, s.prepare, mediaBytes)
	defer feed.wait()
	defer stop()
	feed.start(ctx)
	for {
		if err := s.refill(ctx, feed, done); err != nil {
			return err
		}
		if s.active() == 0 {
			return nil
		}
		if err := s.step(ctx, done); err != nil {
			return err
		}
	}
}

// drop closes what an early end left open.
func (s *Slots[C]) drop() {
	for i := range s.slots {
		if t := s.slots[i].text; t != nil {
			_ = t.sampler.Close()
		}
		s.slots[i] = slot[C]{row: -1, first: -1}
	}
	for _, t := range s.waiting {
		_ = t.sampler.Close()
	}
	s.waiting = nil
}

func (s *Slots[C]) active() int {
	n := 0
	for i := range s.slots {
		if s.slots[i].text != nil {
			n++
		}
	}
	return n
}

// readPrefix evaluates the shared prefix in the last sequence.
func (s *Slots[C]) readPrefix(ctx context.Context) error {
	if s.Prefix == "" || s.prefix != nil {
		return nil
	}
	tokens, err := promptTokens(s.Vocab, &Options{Prompt: s.Prefix, ParseSpecial: true})
	if err != nil {
		return fmt.Errorf("shared prefix: %w", err)
	}
	if limit := promptLimit(s.Context.NCtxSeq(), OverflowError); len(tokens) > limit {
		return fmt.Errorf("shared prefix: %w", &PromptTooLongError{Tokens: len(tokens), Limit: limit})
	}
	for from := 0; from < len(tokens); from += s.chunk() {
		s.batch.Reset()
		for i := from; i < min(from+s.chunk(), len(tokens)); i++ {
			s.batch.Add(tokens[i], i, s.Parallel, false)
		}
		if err := s.decode(ctx); err != nil {
			return fmt.Errorf("evaluate the shared prefix: %w", err)
		}
	}
	s.prefix = tokens
	s.stats.PromptTokens += len(tokens)
	return nil
}

// chunk is how many tokens a step has at most. More than is computed at once
// would only make texts wait longer for a prompt.
func (s *Slots[C]) chunk() int { return max(min(s.Context.NUBatch(), s.Context.NBatch()), s.Parallel) }

func (s *Slots[C]) decode(ctx context.Context) error {
	s.stats.Batches++
	return s.timed(func() error { return s.Context.Decode(ctx, &s.batch) })
}

// timed runs what is the engine's work.
func (s *Slots[C]) timed(f func() error) error {
	begin := time.Now()
	err := f()
	s.stats.Decode += time.Since(begin)
	return err
}

// prepare does what a request needs before it has a slot; it runs ahead of the
// evaluation, in the feed's goroutine.
func (s *Slots[C]) prepare(r *Request) {
	if r.err = r.takeChunks(s.Vocab, s.Media != nil); r.err != nil || r.Chunks != nil {
		r.tokens = r.Tokens
		return
	}
	if r.Tokens != nil {
		r.tokens = slices.Concat(s.prefix, r.Tokens)
		return
	}
	// Prefix and prompt are one text: where they meet, a token may have parts of both.
	opt := r.Options
	opt.Prompt = s.Prefix + opt.Prompt
	r.tokens, r.err = promptTokens(s.Vocab, &opt)
}

// echo returns the text of a prompt that was asked to be repeated.
func (s *Slots[C]) echo(r *Request) []byte {
	switch {
	case !r.Echo:
		return nil
	case r.Tokens != nil:
		return detokenize(s.Vocab, r.Tokens)
	}
	return []byte(r.Prompt)
}

// refill gives free slots to waiting texts and new requests. It waits for a
// request only when there is nothing else to do.
func (s *Slots[C]) refill(ctx context.Context, feed *feed, done func(Reply) error) error {
	for i := range s.slots {
		for s.slots[i].text == nil {
			if s.nextWaiting(i) {
				continue
			}
			r, err := feed.next(ctx, s.active() == 0)
			if errors.Is(err, io.EOF) || r == nil && err == nil {
				break
			}
			if err != nil {
				return err
			}
			s.stats.Requests++
			if err := s.start(i, r); err != nil {
				s.stats.Failed++
				if err := done(Reply{Request: r, Err: err}); err != nil {
					return err
				}
			}
		}
	}
	if feed.ended && len(s.waiting) == 0 && !s.Deterministic {
		return s.compact()
	}
	return nil
}

// start puts a new request into slot i.
func (s *Slots[C]) start(i int, r *Request) error {
	if r.err != nil {
		return r.err
	}
	if r.N < 0 {
		return fmt.Errorf("number of texts: %d, want 1 or more", r.N)
	}
	g := &group[C]{req: r, home: i, left: max(r.N, 1)}
	g.results = make([]Result, g.left)
	t, prompt, err := s.newText(g, 0, i)
	if err != nil {
		return err
	}
	r.prompt = prompt
	sl := &s.slots[i]
	if r.Chunks != nil {
		sl.text, sl.next, sl.waits = t, 0, true
		return nil
	}
	keep := 0
	if s.prefix != nil && !r.PromptLogprobs {
		keep = s.share(i, min(commonPrefix(s.prefix, prompt), len(prompt)-1))
	}
	if keep == 0 {
		s.cut(i, 0)
	}
	sl.text, sl.rest = t, prompt[keep:]
	t.nPast = keep
	t.res.Usage.CachedTokens = keep
	s.stats.CachedTokens += keep
	return nil
}

// newText makes text k of a request, to live in slot i.
func (s *Slots[C]) newText(g *group[C], k, i int) (*text[C], []engine.Token, error) {
	opt := g.req.Options
	opt.Tokens, opt.Echo = g.req.tokens, false
	q, prompt, err := newSequence(s.Vocab, s.Context, i, opt)
	if err != nil {
		return nil, nil, err
	}
	p := g.req.Sampling
	p.Seed = SampleSeed(p.Seed, g.req.ID, k)
	sampler, err := s.NewSampler(&p)
	if err != nil {
		return nil, nil, err
	}
	q.text = s.echo(g.req)
	if err := q.begin(prompt, sampler.Accept); err != nil {
		_ = sampler.Close()
		return nil, nil, err
	}
	if g.nPos = len(prompt); opt.Chunks != nil {
		g.nPos = q.res.Usage.NPos
	}
	return &text[C]{sequence: q, group: g, index: k, sampler: sampler, started: time.Now()}, prompt, nil
}

// share leaves n tokens of the prefix in slot i, or none if the memory cannot do that.
func (s *Slots[C]) share(i, n int) int {
	sl := &s.slots[i]
	if n < 1 {
		return 0
	}
	// A cache of sliding windows lets go of the beginning: what is left may not reach back far enough.
	if sl.clean < n || s.Context.SeqPosMin(i) > 0 {
		if n < len(s.prefix) && s.Context.SeqPosMin(s.Parallel) > 0 || !s.Context.SeqCp(s.Parallel, i, -1, -1) {
			return 0
		}
		sl.clean = len(s.prefix)
	}
	s.cut(i, n)
	return min(n, sl.clean)
}

// nextWaiting gives slot i to a waiting text, if there is one: before all to
// one whose prompt it holds, so that no prompt is lost that is still needed.
func (s *Slots[C]) nextWaiting(i int) bool {
	if len(s.waiting) == 0 {
		return false
	}
	k := 0
	for j, t := range s.waiting {
		if t.group.home == i {
			k = j
			break
		}
	}
	t := s.waiting[k]
	s.waiting = append(s.waiting[:k], s.waiting[k+1:]...)
	g := t.group
	sl := &s.slots[i]
	ok := g.home >= 0 && s.hasPrompt(g)
	if ok && g.home != i {
		ok = s.Context.SeqCp(g.home, i, -1, -1)
		sl.clean, sl.held = s.slots[g.home].clean, slices.Clip(s.slots[g.home].held)
	}
	ok = ok && s.Context.SeqRm(i, g.nPos, -1)
	sl.text, sl.rest, sl.waits = t, nil, false
	sl.next = len(sl.list())
	t.seq = i
	if !ok {
		s.restart(i) // the memory cannot share a part: the prompt is read again
	}
	return true
}

// hasPrompt reports whether the home of g still has all of the prompt. Of a cache of sliding windows only that is certain
// before another token was evaluated.
func (s *Slots[C]) hasPrompt(g *group[C]) bool {
	t := s.slots[g.home].text
	return s.Context.SeqPosMin(g.home) <= 0 || t != nil && t.group == g && t.nPast == g.nPos
}

// compact moves texts from the last slots to free ones before them, once no
// request is left to fill those: the engine computes sequences together only
// when their numbers follow one another.
func (s *Slots[C]) compact() error {
	last := len(s.slots) - 1
	for i := range s.slots {
		if s.slots[i].text != nil {
			continue
		}
		for last > i && s.slots[last].text == nil {
			last--
		}
		if last <= i || !s.Context.SeqCp(last, i, -1, -1) {
			return nil
		}
		if s.slots[last].begun {
			if err := s.Speculator.Move(last, i); err != nil {
				return err
			}
		}
		s.Context.SeqRm(last, -1, -1)
		s.slots[i] = s.slots[last]
		s.slots[i].seq = i
		s.slots[last] = slot[C]{row: -1, first: -1}
	}
	return nil
}
