package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"gollama/internal/completion"
	"gollama/internal/engine"
	"gollama/internal/engine/ggml"
	"gollama/internal/gguf"
	"gollama/internal/pipeline"
)

// sessionOptions are the settings of --session.
type sessionOptions struct {
	sessionFile string
	sessionRO   bool
	promptCache bool // the file was given with --prompt-cache
	cacheAll    bool // which keeps the answer, too
}

func sessionFlags() []flagDef {
	type o = *options
	empty := func(o o) { o.sessionFile, o.promptCache = "", false }
	file := func(cache bool) binding {
		b := fileVar(func(o o) *string { return &o.sessionFile }).then(func(o o) { o.promptCache = cache })
		return withReset(b, empty).when(func(o o) bool { return o.sessionFile != "" && o.promptCache == cache })
	}
	return inGroup(groupPrompt,
		flagDef{name: "session", arg: "FILE", def: "none", help: `keep what was evaluated in FILE, with the text, and do not evaluate again what a prompt shares with it; the output is the same as without; -p "" goes on with the text of FILE`, in: inRun, share: "session", binding: file(false)},
		flagDef{name: "prompt-cache", arg: "FILE", def: "none", help: "as --session, but keep the prompt only", in: inRun, share: "session", binding: file(true)},
		flagDef{name: "prompt-cache-all", help: "with --prompt-cache: keep the answer too", in: inRun,
			binding: boolVar(func(o o) *bool { return &o.cacheAll })},
		flagDef{name: "session-ro", alias: []string{"--prompt-cache-ro"}, help: "read the session and do not write it", in: inRun,
			binding: boolVar(func(o o) *bool { return &o.sessionRO })},
	)
}

// sessionFile is the session that a run goes on with, and how this run computes.
type sessionFile struct {
	path  string
	saved *completion.SavedSession // nil without one
	of    map[string]string
	shape map[string]string
	done  bool // written, or only read
}

// openSession reads o's session, if there is one, and checks that it is of this run's model and settings.
func openSession(o *options) (*sessionFile, error) {
	if o.sessionFile == "" {
		return nil, nil
	}
	f := &sessionFile{path: o.sessionFile}
	var err error
	if f.of, err = sessionOf(o); err != nil {
		return nil, err
	}
	b := ggml.BuildInfo()
	f.shape = map[string]string{
		"engine": b.Pin + " " + b.GGML + " " + b.Flags, "batch": strconv.Itoa(o.NBatch), "ubatch": strconv.Itoa(o.NUBatch),
		"threads": fmt.Sprint(o.CPUParams.NThreads, o.CPUParamsBatch.NThreads), "flash_attn": o.FlashAttnType.String(),
		"devices":  fmt.Sprint(o.Devices, o.RPCServers, o.NGPULayers, o.SplitMode, o.TensorSplit, o.NoKVOffload, o.NoOpOffload, o.NoExtraBufts, o.TensorBuftOverrides),
		"ctx":      strconv.Itoa(o.NCtx), // long-context models choose their position encoding by it
		"swa_full": fmt.Sprint(o.SWAFull),
	}
	data, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		if o.sessionRO {
			return nil, fmt.Errorf("--session: %w", err)
		}
		return f, f.tryWrite()
	}
	if err != nil {
		return nil, fmt.Errorf("--session: %w", err)
	}
	if f.saved, err = completion.DecodeSession(data); err == nil {
		err = f.saved.Check(f.of)
	}
	if err != nil {
		return nil, &hintedError{fmt.Errorf("--session %s: %w", f.path, err), "delete the file to begin anew"}
	}
	if o.sessionRO {
		return f, nil
	}
	return f, f.tryWrite()
}

// tryWrite finds out before the work whether the session can be written after it.
func (f *sessionFile) tryWrite() error {
	t, err := pipeline.CreateAtomic(f.path)
	if err != nil {
		return &writeError{fmt.Errorf("--session: %w", err)}
	}
	t.Abort()
	return nil
}

// sessionOf is what must be the same for a session to be of use.
func sessionOf(o *options) (map[string]string, error) {
	paths := []string{o.Model}
	if f, err := gguf.Open(o.Model); err == nil { // else the engine says more
		paths = f.Paths
		_ = f.Close()
	}
	sums := func(paths ...string) (string, error) {
		var list []string
		for _, p := range paths {
			sum, err := sampleSum(p)
			if err != nil {
				return "", err
			}
			list = append(list, sum)
		}
		return strings.Join(list, " "), nil
	}
	model, err := sums(paths...)
	if err != nil {
		return nil, err
	}
	var adapters, vectors []string
	for _, a := range o.LoRAAdapters {
		sum, err := sums(a.Path)
		if err != nil {
			return nil, err
		}
		adapters = append(adapters, fmt.Sprintf("%s %g", sum, a.Scale))
	}
	for _, v := range o.ControlVectors {
		sum, err := sums(v.Path)
		if err != nil {
			return nil, err
		}
		vectors = append(vectors, fmt.Sprintf("%s %g %d %d", sum, v.Strength, o.ControlVectorLayerStart, o.ControlVectorLayerEnd))
	}
	template := noTemplate
	if o.conversation != nil {
		c, err := o.chatFingerprint()
		if err != nil {
			return nil, err
		}
		template = "conversation " + c.Template // the model's own is part of the model
	}
	return map[string]string{
		"model": model, "lora": strings.Join(adapters, ", "), "control_vectors": strings.Join(vectors, ", "), "override_kv": fmt.Sprint(o.KVOverrides),
		"rope":         fmt.Sprint(o.RopeScalingType, o.RopeFreqBase, o.RopeFreqScale, o.YarnOrigCtx, o.YarnExtFactor, o.YarnAttnFactor, o.YarnBetaSlow, o.YarnBetaFast),
		"cache_type_k": o.CacheTypeK.String(), "cache_type_v": o.CacheTypeV.String(), "template": template,
	}, nil
}

// attach lets a completion take from the session and save to it.
func (f *sessionFile) attach(e *env, l *logging, o *options, s *session, opt *completion.Options) error {
	if s.model.Info().HasEncoder {
		return fmt.Errorf("--session: a model with an encoder has none")
	}
	c := s.context
	step := c.NUBatch()
	if c.NBatch()%step != 0 {
		step = c.NBatch()
	}
	goesOn := f.saved != nil && f.saved.Tokens > 0 && o.promptGiven && o.Prompt == "" && o.conversation == nil
	same := f.saved != nil && f.saved.Tokens > 0 && fmt.Sprint(f.saved.Shape) == fmt.Sprint(f.shape)
	if f.saved != nil && !same {
		l.warnf("--session %s was computed with other settings of batches, threads or devices: it is computed again", f.path)
	}
	if goesOn {
		opt.Tokens = f.saved.IDs
	}
	used := 0
	opt.Reuse = func(prompt []engine.Token) (n int, err error) {
		if !same {
			return 0, nil
		}
		if n = f.saved.Reusable(prompt, step); goesOn && len(prompt) == f.saved.Tokens {
			n = f.saved.Continued(step)
		}
		if used, err = f.restore(c, n); err != nil {
			return 0, err
		}
		return used, nil
	}
	opt.Ended = func(tokens []engine.Token, nPrompt, cells int) error {
		if f.done = true; o.sessionRO {
			return nil
		}
		out := &completion.SavedSession{IDs: tokens, SessionHeader: completion.SessionHeader{Program: version, Engine: ggml.BuildInfo().Pin,
			Command: e.args, Of: f.of, Shape: f.shape, Prompt: nPrompt, Cells: cells, Exact: nPrompt - nPrompt%step}}
		if goesOn && used >= f.saved.Prompt { // the prompt of this run was generated by one before
			out.Prompt, out.Exact = f.saved.Prompt, f.saved.Exact
		}
		if o.promptCache && !o.cacheAll && out.Prompt == nPrompt {
			out.IDs, out.Cells = tokens[:nPrompt], nPrompt
		}
		if o.promptLogprobs {
			out.Exact = 0 // read in other batches
		}
		return f.save(c, out)
	}
	return nil
}

// restore puts the first n tokens of the session into the context, and returns how many are there: none if this
// model's memory cannot remove those after them.
func (f *sessionFile) restore(c *engine.Context, n int) (int, error) {
	if n == 0 {
		return 0, nil
	}
	if err := c.SetSeqState(0, f.saved.Data); err != nil {
		return 0, fmt.Errorf("--session %s: %w", f.path, err)
	}
	cells := f.saved.Cells
	if c.SeqPosMax(0) != cells-1 {
		return 0, fmt.Errorf("--session %s: the state has %d tokens, want %d", f.path, c.SeqPosMax(0)+1, cells)
	}
	if c.SeqPosMin(0) > 0 && n < cells || !c.SeqRm(0, n, -1) {
		c.ClearMemory()
		return 0, nil
	}
	return n, nil
}

// save writes the context's state. It removes from the context what is not in s.
func (f *sessionFile) save(c *engine.Context, s *completion.SavedSession) error {
	if !c.SeqRm(0, s.Cells, -1) && c.SeqPosMax(0) != s.Cells-1 {
		return fmt.Errorf("--session %s: this model's memory cannot be cut to %d tokens", f.path, s.Cells)
	}
	var err error
	if s.Data, err = c.SeqState(0); err != nil {
		return fmt.Errorf("--session %s: %w", f.path, err)
	}
	return f.write(s)
}

func (f *sessionFile) write(s *completion.SavedSession) error {
	out, err := pipeline.CreateAtomic(f.path)
	if err == nil {
		defer out.Abort()
		if err = s.Encode(out); err == nil {
			err = out.Commit()
		}
	}
	if err != nil {
		return &writeError{fmt.Errorf("--session: write %s: %w", f.path, err)}
	}
	return nil
}
