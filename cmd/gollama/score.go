package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"gollama/internal/builtin"
	"gollama/internal/completion"
	"gollama/internal/engine"
)

const groupScore = "Scoring"

// scoreOptions are the settings of --score.
type scoreOptions struct {
	score   bool
	windows bool
	chunks  int // windows at most; -1 all
	choices []string
}

func scoreFlags() []flagDef {
	type o = *options
	return inGroup(groupScore,
		flagDef{name: "score", help: "generate nothing: write how likely the model holds the prompt, token by token (json), in sum, and as perplexity; each token given all before it", in: inRun,
			binding: boolVar(func(o o) *bool { return &o.score })},
		flagDef{name: "windows", fixed: map[string]string{"--perplexity": "true"}, help: "with --score: for a text longer than the context; the second half of each window of -c tokens (512 if not given) is scored, as llama-perplexity does, and the number is its", in: inRun,
			binding: boolVar(func(o o) *bool { return &o.windows })},
		flagDef{name: "chunks", arg: "N", help: "with --windows: score the first N windows; -1 all", in: inRun,
			binding: intVar(func(o o) *int { return &o.chunks }, -1, maxInt32)},
		flagDef{name: "choice", arg: "TEXT", def: "none", help: "with --score: how likely TEXT is after the prompt, which is read once; may be given more than once", in: inRun,
			binding: listVar(func(o o) *[]string { return &o.choices }, func(s string) ([]string, error) {
				if s == "" {
					return nil, errors.New("the text is empty")
				}
				return []string{s}, nil
			}, identity)},
	)
}

// finishScore checks what belongs to --score.
func (o *options) finishScore() error {
	if !o.score {
		for _, name := range []string{"windows", "chunks", "choice"} {
			if o.isSet(name) && o.given[name] == levelArgs {
				return usagef("--%s goes with --score", name)
			}
		}
		return nil
	}
	switch {
	case o.windows && len(o.choices) > 0:
		return usagef("--windows and --choice: give one of them")
	case o.isSet("chunks") && !o.windows:
		return usagef("--chunks goes with --windows")
	case o.chunks == 0 && o.isSet("chunks"):
		return usagef("--chunks 0 scores nothing").withHint("-1 scores all windows")
	case o.isSet("logprobs") && o.logprobs > 0, o.promptLogprobs:
		return usagef("--score has no alternatives").withHint("-n 0 --prompt-logprobs --logprobs N --format json has them")
	case o.sessionFile != "":
		return usagef("--score keeps no session")
	case o.structured():
		return usagef("--score generates nothing: a grammar or schema has no effect")
	}
	return nil
}

// defaultWindow is llama-perplexity's --ctx-size.
const defaultWindow = 512

// choiceSequences is how many choices are scored at once.
const choiceSequences = 8

// scoreResult is what --score writes as JSON.
type scoreResult struct {
	Type       string           `json:"type"` // "score"
	Tokens     []engine.Token   `json:"tokens,omitempty"`
	Logprobs   []*float64       `json:"logprobs,omitempty"` // natural; of each token, null for those not scored
	Scored     int              `json:"scored"`             // tokens that have one
	Sum        *float64         `json:"sum,omitempty"`
	Perplexity *float64         `json:"perplexity,omitempty"` // exp(-sum/scored)
	Error      *float64         `json:"error,omitempty"`      // of the perplexity: --windows
	Windows    int              `json:"windows,omitempty"`    // scored
	Choices    []choiceResult   `json:"choices,omitempty"`
	Best       *int             `json:"best,omitempty"` // index of the likeliest choice
	NCtx       int              `json:"n_ctx"`          // tokens of a window, or of the context
	Model      completion.Model `json:"model"`
	LoadMS     float64          `json:"load_ms"`
	ScoreMS    float64          `json:"score_ms"`
}

type choiceResult struct {
	Text     string         `json:"text"`
	Tokens   []engine.Token `json:"tokens"` // that are scored
	Logprobs []float64      `json:"logprobs"`
	Sum      float64        `json:"sum"`
	Mean     float64        `json:"mean"` // for each token
}

// windowResult is a line of --windows --format jsonl: the total so far.
type windowResult struct {
	Type       string  `json:"type"` // "window"
	Window     int     `json:"window"`
	Scored     int     `json:"scored"`
	Sum        float64 `json:"sum"`
	Perplexity float64 `json:"perplexity"`
}

// runScore is gollama run --score once the prompt is there.
func runScore(ctx context.Context, e *env, l *logging, o *options, dst *result) error {
	s := &session{}
	defer s.close(l)
	if o.windows {
		engine.SetReference(true, true) // the number is llama-perplexity's
		defer engine.SetReference(false, false)
	}
	begin := time.Now()
	if err := s.loadModel(ctx, e, l, o); err != nil {
		return canceledBy(ctx, err)
	}
	info := s.model.Info()
	res := &scoreResult{Type: "score", Model: completion.Model{Path: builtin.Label(info.Path), Arch: info.Arch, Size: info.Size}}
	score := s.scoreText
	switch {
	case info.HasEncoder:
		return completion.ErrNotCausal
	case o.windows:
		score = s.scoreWindows
	case len(o.choices) > 0:
		score = s.scoreChoices
	}
	s.loadMS = msSince(begin)
	begin = time.Now()
	if err := score(ctx, e, l, o, dst, res); err != nil {
		return canceledBy(ctx, inputProblem(err))
	}
	res.LoadMS, res.ScoreMS = s.loadMS, msSince(begin)
	if err := dst.score(res); err != nil {
		return err
	}
	return dst.commit()
}

// inputProblem says what to do about a text that cannot be scored.
func inputProblem(err error) error {
	var short *completion.TooShortError
	var long *completion.PromptTooLongError
	switch {
	case errors.As(err, &short):
		return &inputError{err, "lower -c, or leave --windows out"}
	case errors.As(err, &long):
		return &inputError{err, "raise -c, or give --windows"}
	}
	return err
}

func (s *session) loadModel(ctx context.Context, e *env, l *logging, o *options) (err error) {
	bar := l.progress(e, "loading", "")
	defer bar.done()
	o.Params.LoadProgressCallback = func(share float32) bool {
		bar.set(float64(share), "")
		return ctx.Err() == nil
	}
	s.model, err = engine.LoadModel(ctx, &o.Params)
	return err
}

// scorer makes a context of parallel sequences of nCtx tokens each.
func (s *session) scorer(o *options, parallel, nCtx int) (*completion.Scorer[*engine.Context], error) {
	p := o.Params
	p.NParallel, p.NCtx, p.Warmup, p.KVUnified = parallel, parallel*((nCtx+255)&^255), false, false
	begin := time.Now()
	var err error
	if s.context, err = engine.NewContext(s.model, &p); err != nil {
		return nil, err
	}
	s.loadMS += msSince(begin)
	if !s.context.Causal() {
		return nil, completion.ErrNotCausal
	}
	return completion.NewScorer(s.context), nil
}

// limit is how many tokens a text may have: -c, or what the model was trained for.
func (s *session) limit(o *options) int {
	if o.NCtx > 0 {
		return (o.NCtx + 255) &^ 255 // as run's context
	}
	return (s.model.Info().NCtxTrain + 255) &^ 255
}

func (s *session) scoreText(ctx context.Context, _ *env, _ *logging, o *options, _ *result, res *scoreResult) error {
	tokens, err := s.model.Vocab().Tokenize(o.Prompt, true, o.specialInput != "literal")
	if err != nil {
		return err
	}
	if len(tokens) == 0 {
		return &inputError{err: completion.ErrEmptyPrompt, hint: "give some text"}
	}
	limit := s.limit(o)
	if len(tokens) > limit {
		return &completion.PromptTooLongError{Tokens: len(tokens), Limit: limit}
	}
	sc, err := s.scorer(o, 1, len(tokens))
	if err != nil {
		return err
	}
	var total completion.Score
	given := false
	next := func() (completion.Span, bool) {
		first := !given
		given = true
		return completion.Span{Tokens: tokens, From: 1}, first
	}
	res.NCtx, res.Tokens, res.Logprobs = limit, tokens, []*float64{nil}
	err = sc.Run(ctx, next, func(_ completion.Span, logprobs []float64) error {
		total.Add(logprobs...)
		for _, v := range logprobs {
			res.Logprobs = append(res.Logprobs, &v)
		}
		return nil
	})
	res.setTotal(total)
	return err
}

func (r *scoreResult) setTotal(t completion.Score) {
	ppl := t.Perplexity()
	r.Scored, r.Sum, r.Perplexity = t.N, &t.Sum, &ppl
}

func (s *session) scoreWindows(ctx context.Context, e *env, l *logging, o *options, dst *result, res *scoreResult) error {
	v := s.model.Vocab()
	// llama-perplexity reads control tokens in a text as text.
	tokens, err := v.Tokenize(o.Prompt, true, o.specialInput == "parse")
	if err != nil {
		return err
	}
	w := completion.Windows{Tokens: tokens, Size: o.NCtx, Limit: o.chunks, BOS: engine.TokenNull}
	switch {
	case !o.isSet("ctx-size"):
		w.Size = defaultWindow
	case w.Size == 0:
		w.Size = s.model.Info().NCtxTrain
	}
	if v.AddBOS() {
		w.BOS = v.BOS()
	}
	if len(tokens) < 2*w.Size {
		return &completion.TooShortError{Tokens: len(tokens), Window: w.Size}
	}
	sc, err := s.scorer(o, min(w.Parallel(o.NBatch), w.Count(), maxSequences), w.Size)
	if err != nil {
		return err
	}
	bar := l.progress(e, "scoring", "windows")
	defer bar.done()
	total, err := sc.Windows(ctx, w, func(i int, t completion.Score) error {
		bar.set(float64(i)/float64(w.Count()), fmt.Sprintf(" of %d windows, perplexity %.4f", w.Count(), t.Perplexity()))
		if dst.format != "jsonl" {
			return nil
		}
		return dst.line(windowResult{"window", i, t.N, t.Sum, t.Perplexity()})
	})
	dev := total.Error()
	res.NCtx, res.Windows, res.Error = w.Size, w.Count(), &dev
	res.setTotal(total)
	return err
}

// maxSequences is llama.cpp's LLAMA_MAX_SEQ.
const maxSequences = 256

func (s *session) scoreChoices(ctx context.Context, _ *env, _ *logging, o *options, _ *result, res *scoreResult) error {
	choices, err := completion.NewChoices(s.model.Vocab(), o.Prompt, o.choices, o.specialInput != "literal")
	if err != nil {
		return err
	}
	longest, limit := 0, s.limit(o)
	for _, c := range choices {
		longest = max(longest, len(c.Tokens))
	}
	if longest > limit {
		return &completion.PromptTooLongError{Tokens: longest, Limit: limit}
	}
	sc, err := s.scorer(o, min(len(choices), choiceSequences)+1, longest)
	if err != nil {
		return err
	}
	if err := sc.Choices(ctx, choices); err != nil {
		return err
	}
	res.NCtx = limit
	best := 0
	for i, c := range choices {
		t := c.Score()
		r := choiceResult{Text: o.choices[i], Tokens: c.Tokens[min(c.From, len(c.Tokens)):], Logprobs: c.Logprobs, Sum: t.Sum, Mean: t.Sum / float64(max(t.N, 1))}
		res.Choices = append(res.Choices, r)
		res.Scored += t.N
		if r.Sum > res.Choices[best].Sum {
			best = i
		}
	}
	res.Best = &best
	return nil
}

// score writes the result. As text it is a line a number, or a line a choice: sum, mean and text, with tabs between.
func (r *result) score(res *scoreResult) error {
	if r.format != "text" {
		return r.line(res)
	}
	text := ""
	for _, c := range res.Choices {
		text += fmt.Sprintf("%.4f\t%.4f\t%s\n", c.Sum, c.Mean, strconv.Quote(c.Text))
	}
	if len(res.Choices) > 0 {
		return r.out.text(text)
	}
	text = fmt.Sprintf("scored %d\nsum %.4f\nperplexity %.4f\n", res.Scored, *res.Sum, *res.Perplexity)
	if res.Error != nil {
		text += fmt.Sprintf("error %.5f\nwindows %d\n", *res.Error, res.Windows)
	}
	return r.out.text(text)
}
