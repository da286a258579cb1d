package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"gollama/internal/completion"
	"gollama/internal/engine"
	"gollama/internal/engine/ggml"
	"gollama/internal/gguf"
	"gollama/internal/pipeline"
)

// fitMemory lowers how many texts are made at once until their caches fit.
func (r *recordsRun) fitMemory(extra int) error {
	o := r.o
	each := completion.KVBytes(r.file.KVs, r.ctxSeq, o.CacheTypeK, o.CacheTypeV)
	paths := r.file.Paths
	if d := &o.Speculative.Draft; o.Speculative.NeedsModel() {
		f, err := gguf.Open(d.Model)
		if err != nil {
			return fmt.Errorf("draft model: %w", err)
		}
		each += completion.KVBytes(f.KVs, r.ctxSeq, d.CacheTypeK, d.CacheTypeV)
		paths = slices.Concat(paths, f.Paths)
		_ = f.Close() // it was read
	}
	free := ggml.AvailableMemory()
	if !o.NoKVOffload && o.NGPULayers != 0 && !slices.Equal(o.Devices, []string{"none"}) {
		var gpu uint64
		for _, d := range ggml.Devices() {
			if d.Type == "gpu" {
				gpu += d.MemFree
			}
		}
		if gpu > 0 {
			free = gpu
		}
	}
	taken := r.mediaBytes()
	for _, path := range paths { // the weights come first
		if st, err := os.Stat(path); err == nil {
			taken += uint64(st.Size())
		}
	}
	if free > 0 {
		free = max(free-min(free, taken), 1)
	}
	if !o.isSet("parallel") {
		free /= 2 // the user asked for nothing: leave something to others
	}
	n := completion.FitParallel(o.NParallel, extra, each, free)
	if o.isSet("parallel") && n < o.NParallel {
		r.l.warnf("-np %d is lowered to %d: the cache of a text of %d tokens takes %d MiB, and %d MiB are free", o.NParallel, n, r.ctxSeq, each>>20, free>>20)
	}
	if o.deterministic {
		n = min((n+completion.PinnedRows-1)/completion.PinnedRows, maxParallel/completion.PinnedRows) * completion.PinnedRows
	}
	o.NParallel = n
	return nil
}

// mediaBytes is what media take besides the caches of texts: the projector, what waits ahead and what is kept encoded.
func (r *recordsRun) mediaBytes() uint64 {
	o := r.o
	st, err := os.Stat(o.MMProj)
	if r.mediaSettings == nil || err != nil {
		return 0
	}
	return uint64(st.Size()) + completion.MaxAhead + uint64(o.mediaParams().CacheBytes)
}

// count is --dry-run: it does what can be done without the weights.
func (r *recordsRun) count(ctx context.Context) error {
	p := r.o.Params
	p.VocabOnly, p.LoRAAdapters, p.ControlVectors = true, nil, nil
	m, err := engine.LoadModel(ctx, &p)
	if err != nil {
		return err
	}
	defer func() {
		if err := m.Close(); err != nil {
			r.l.warnf("%s", err)
		}
	}()
	done, err := r.chat(m)
	if err != nil {
		return err
	}
	defer done()
	var tokens, most int
	bar := r.l.progress(r.e, "records", "")
	defer bar.done()
	// One worker: Parse keeps the grammars it has seen.
	err = pipeline.Each(ctx, r.stream, 1, func(_ context.Context, rec *pipeline.Record) (any, error) {
		req, err := r.reqs.Parse(rec)
		if err != nil {
			return nil, err
		}
		c, err := completion.CountTokens(m.Vocab(), r.ctxSeq, r.prefix, req)
		tokens += c.PromptTokens
		most = max(most, c.PromptTokens)
		share, detail := r.progress(completion.SlotStats{})
		bar.set(share, detail)
		return c, err
	})
	bar.done()
	n := r.stream.Counts()
	r.l.message("info", fmt.Sprintf("%d records: %d would be done, %d would fail; %d tokens of prompt, %d in the longest, contexts of %d",
		n.Read, n.Read-n.Failed, n.Failed, tokens, most, r.ctxSeq))
	return err
}

// progress says how far the run is.
func (r *recordsRun) progress(st completion.SlotStats) (share float64, detail string) {
	n := r.stream.Counts()
	done := n.Written + n.Skipped
	detail = fmt.Sprintf(", %d records", done)
	if n.Failed > 0 {
		detail += fmt.Sprintf(", %d failed", n.Failed)
	}
	d := time.Since(r.started)
	if st.GeneratedTokens > 0 {
		detail += fmt.Sprintf(", %.1f tokens/s", float64(st.GeneratedTokens)/d.Seconds())
	}
	if r.total == 0 {
		return 0, detail
	}
	if n.Written > 0 {
		left := time.Duration(float64(d) / float64(n.Written) * float64(r.total-done))
		detail += ", " + left.Round(time.Second).String() + " left"
	}
	return float64(done) / float64(r.total), detail
}

// summary tells what the run did, and what of the time was not the engine's.
func (r *recordsRun) summary(st completion.SlotStats) {
	n := r.stream.Counts()
	r.l.message("info", fmt.Sprintf("%d records: %d done, %d failed%s; %d tokens read, %d reused, %d generated in %.1f s (%.1f a second)%s",
		n.Read, n.Read-n.Failed, n.Failed, earlier(n), st.PromptTokens, st.CachedTokens, st.GeneratedTokens, st.Total.Seconds(),
		float64(st.GeneratedTokens)/max(st.Total.Seconds(), 1e-9), guessed(st.GuessedTokens, st.ConfirmedTokens)))
	r.times(st)
}

// earlier says how many of the records an earlier run did.
func earlier(n pipeline.Counts) string {
	if n.Skipped == 0 {
		return ""
	}
	return fmt.Sprintf(", %d of them in an earlier run", n.Skipped)
}

// times says in the log where the time went.
func (r *recordsRun) times(st completion.SlotStats) {
	r.l.log.Info(fmt.Sprintf("%d batches: %.3f s in the engine, %.3f s guessing, %.3f s sampling, %.3f s beside", st.Batches,
		st.Decode.Seconds(), st.Guess.Seconds(), st.Sample.Seconds(), (st.Total - st.Decode - st.Guess - st.Sample).Seconds()))
}

// end closes the output and says how the run ended.
func (r *recordsRun) end(ctx context.Context, err error) error {
	n := r.stream.Counts()
	werr := r.stream.Err()
	if cerr := r.out.Close(); werr == nil {
		werr = cerr
	}
	tooMany := errors.Is(werr, pipeline.ErrTooManyErrors)
	var write *writeError
	var read *pipeline.ReadError
	switch {
	case werr != nil && !tooMany:
		if !errors.As(werr, &write) && !errors.Is(werr, errBrokenPipe) {
			werr = &writeError{fmt.Errorf("write %s: %w", r.o.OutFile, werr)}
		}
		return werr
	case errors.Is(err, pipeline.ErrOtherRun):
		return usagef("--resume: %s", err).withHint("the settings, the model and the records must be those of %s", sidecar(r.o.OutFile))
	case ctx.Err() != nil:
		if r.o.OutFile != "" && r.o.OutFile != "-" {
			r.l.warnf("%s has %d results; --resume goes on", r.o.OutFile, n.Written+n.Skipped)
		}
		return canceledBy(ctx, context.Cause(ctx))
	case errors.As(err, &read):
		return &inputError{err: err}
	case err != nil:
		return err
	case r.readErr != nil:
		return &inputError{err: r.readErr}
	case tooMany:
		return &recordsError{werr.Error() + " (--max-errors)"}
	case n.Failed > 0:
		return &recordsError{fmt.Sprintf("%d of %d records failed", n.Failed, n.Read)}
	}
	return nil
}
