package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"gollama/internal/engine"
)

// batchOnly are flags that say nothing without many files; dirOnly need --dir.
var (
	batchOnly = []string{"parallel", "deterministic", "ordered", "resume", "shard", "max-errors", "prompt-template", "sidecar", "prefetch"}
	dirOnly   = []string{"recursive", "glob", "order"}
)

// finishMTMD checks what single flags of mtmd cannot show.
func (o *options) finishMTMD() error {
	if o.media.caps {
		return o.finishCaps()
	}
	if o.isSet("prompt") && o.isSet("file") {
		return usagef("-p and -f both give a prompt: give one of them")
	}
	if o.Escape && o.isSet("file") && o.given["escape"] == levelArgs {
		return usagef("-e works on -p only; the bytes of -f are used as they are")
	}
	if o.Prompt == "-" && o.promptGiven { // llama-mtmd-cli has no such form, and a prompt of one dash no use
		o.Prompt, o.promptGiven, o.PromptFile = "", false, "-"
	}
	o.converse = true // what is asked is always a message
	for _, check := range []func() error{o.finishFiles, o.finishMedia, o.finishGrammar, o.checkJinja, o.readSystem, o.finishTalk} {
		if err := check(); err != nil {
			return err
		}
	}
	if o.mediaBatch() && o.recordsFile == "" && o.media.template == "" && !o.promptGiven && o.PromptFile == "" {
		return usagef("no prompt given").withHint(`-p TEXT, -f FILE or --prompt-template; -p "" asks nothing`)
	}
	text := o.format == "text" && !o.mediaBatch()
	if o.logprobs > 0 && text {
		return usagef("--logprobs needs a format that can show them").withHint("add --format json")
	}
	o.Sampling.NProbs = o.logprobs
	if !o.mediaBatch() {
		o.NParallel = 1
	}
	if o.mediaBatch() && !o.isSet("predict") {
		o.NPredict = batchPredict
	}
	if o.NUBatch > o.NBatch && o.isSet("ubatch-size") && o.isSet("batch-size") {
		return usagef("-ub %d is larger than -b %d", o.NUBatch, o.NBatch)
	}
	if err := o.Params.Validate(); err != nil {
		return usagef("%s", oneLine(err))
	}
	return nil
}

// finishTalk checks the settings of conversations.
func (o *options) finishTalk() error {
	if _, err := o.chatSettings(); err != nil {
		return usagef("--reasoning-effort: %s", err)
	}
	for _, name := range []string{"transcript", "prefill"} {
		if o.given[name] > levelEnv && o.mediaBatch() {
			return usagef("--%s does not go with many files", name)
		}
	}
	switch {
	case !o.interactive && o.transcriptFile != "":
		return usagef("--transcript goes with -i").withHint("--format json has the answer with all that belongs to it")
	case !o.interactive:
		return nil
	case o.mediaBatch():
		return usagef("-i does not go with many files")
	case o.media.countOnly:
		return usagef("-i and --count-only: give one of them").withHint("/tokens counts in a conversation")
	case o.promptGiven || o.PromptFile != "":
		return usagef("-i asks for the prompt: leave -p and -f out")
	case o.media.marker != "":
		return usagef("--media-marker does not go with -i")
	}
	return o.finishInteractive()
}

// finishCaps checks --caps, which needs a projector and nothing else.
func (o *options) finishCaps() error {
	if o.MMProj == "" && o.Model == "" {
		return usagef("--caps: no projector given").withHint("--mmproj FILE.gguf, or -m FILE.gguf to look beside")
	}
	return nil
}

// finishMedia checks media and projector.
func (o *options) finishMedia() error {
	many := o.mediaBatch()
	for _, path := range o.Image {
		if strings.HasPrefix(path, "http://") || strings.HasPrefix(path, "https://") {
			return usagef("--media %s: gollama downloads nothing", path).withHint("give a file")
		}
	}
	switch {
	case o.MMProj != "" && o.isSet("mmproj-auto") && !o.media.autoProj:
		return usagef("--mmproj and --no-mmproj: give one of them")
	case (len(o.Image) > 0 || o.media.dir != "" || o.media.filesFrom != "") && o.NoMMProj:
		return usagef("--no-mmproj: media need a projector").withHint("--mmproj FILE")
	case many && len(o.Image) > 0:
		return usagef("--media does not go with many files").withHint("--records FILE: a record can have several media")
	case o.ImageMinTokens > 0 && o.ImageMaxTokens > 0 && o.ImageMinTokens > o.ImageMaxTokens:
		return usagef("--image-min-tokens %d is more than the %d of --image-max-tokens", o.ImageMinTokens, o.ImageMaxTokens)
	}
	for _, path := range append([]string{o.MMProj}, o.Image...) {
		if sameFile(o.OutFile, path) || sameFile(o.logFile, path) {
			return usagef("%s would be replaced, and it is read", path)
		}
	}
	if o.MMProj == "" && !o.NoMMProj && (many || o.interactive || len(o.Image) > 0) {
		return o.findProjector()
	}
	return nil
}

// findProjector looks for the one file beside the model that can be its projector. In records and conversations there may be
// no media at all.
func (o *options) findProjector() error {
	found, err := filepath.Glob(filepath.Join(globQuote(filepath.Dir(o.Model)), "mmproj*.gguf"))
	if err != nil {
		return err
	}
	switch {
	case len(found) == 1:
		o.MMProj = found[0]
	case o.recordsFile != "", o.interactive && len(o.Image) == 0:
	case len(found) == 0:
		return usagef("no projector given, and there is no mmproj*.gguf beside %s", o.Model).withHint("--mmproj FILE.gguf")
	default:
		return usagef("no projector given, and there are %d beside %s", len(found), o.Model).withHint("--mmproj, one of %s", strings.Join(found, ", "))
	}
	return nil
}

// globQuote keeps a folder's name from being a pattern.
func globQuote(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

// finishFiles checks what belongs to many files.
func (o *options) finishFiles() error {
	m := &o.media
	var sources []string
	for _, name := range []string{"dir", "files-from", "records"} {
		if o.isSet(name) {
			sources = append(sources, "--"+name)
		}
	}
	if len(sources) > 1 {
		return usagef("%s: give one of them", strings.Join(sources, " and "))
	}
	for _, name := range batchOnly {
		if o.given[name] > levelEnv && !o.mediaBatch() {
			return usagef("--%s goes with --dir, --files-from or --records", name)
		}
	}
	for _, name := range dirOnly {
		if o.given[name] > levelEnv && m.dir == "" {
			return usagef("--%s goes with --dir", name)
		}
	}
	if _, err := filepath.Match(m.glob, ""); err != nil {
		return usagef("--glob %s: %s", m.glob, err)
	}
	toFile := o.OutFile != "" && o.OutFile != "-"
	switch {
	case m.null && m.filesFrom == "":
		return usagef("-0 goes with --files-from")
	case m.overwrite && m.sidecar == "":
		return usagef("--overwrite goes with --sidecar")
	case m.sidecar != "" && (!strings.HasPrefix(m.sidecar, ".") || len(m.sidecar) < 2 || strings.ContainsAny(m.sidecar, `/\`)):
		return usagef("--sidecar %q: want an extension, such as .txt", m.sidecar)
	case m.countOnly && m.sidecar != "":
		return usagef("--sidecar and --count-only: give one of them")
	case m.template != "" && (o.promptGiven || o.PromptFile != ""):
		return usagef("--prompt-template and a prompt: give one of them")
	case m.template != "" && o.recordsFile != "":
		return usagef("--prompt-template does not go with --records").withHint("a record has its own prompt")
	case o.resume && !toFile:
		return usagef("--resume needs the file that it goes on with").withHint("-o FILE")
	case o.resume && m.countOnly:
		return usagef("--resume and --count-only: give one of them")
	}
	if !o.mediaBatch() {
		return nil
	}
	return o.finishBatch(toFile)
}

// finishBatch checks the settings of a run over many files.
func (o *options) finishBatch(toFile bool) error {
	switch {
	case o.isSet("format") && o.format == "text":
		return usagef("--format text: the results of many files are lines of JSON").withHint("--sidecar .txt writes the text of each into a file of its own")
	case o.requireComplete:
		return usagef("--require-complete does not go with many files").withHint("each result has its finish_reason")
	case o.PromptFile == "-" && (o.media.filesFrom == "-" || o.recordsFile == "-"):
		return usagef("the prompt and the files both come from standard input")
	}
	if err := o.batchSeed(); err != nil {
		return err
	}
	if err := o.checkShard(); err != nil {
		return err
	}
	if o.media.template != "" {
		if _, err := promptTemplate(o.media.template); err != nil {
			return usagef("--prompt-template: %s", oneLine(err))
		}
	}
	for _, f := range []string{o.recordsFile, o.media.filesFrom} {
		if f == "" || f == "-" {
			continue
		}
		if toFile && sameFile(f, o.OutFile) {
			return usagef("-o %s would be written over what the run reads", o.OutFile)
		}
		if _, err := os.Stat(f); err != nil {
			return &inputError{err: err}
		}
	}
	if d := o.media.dir; d != "" {
		st, err := os.Stat(d)
		if err == nil && !st.IsDir() {
			err = fmt.Errorf("--dir %s: it is no folder", d)
		}
		if err != nil {
			return &inputError{err: err}
		}
	}
	return nil
}

// promptFields are what a prompt template sees of a file.
type promptFields struct {
	Path, Name, Stem, Dir string
	Index                 int // among all files, from 0
}

// promptTemplate compiles a template, and tries it, so that a field that it has wrong is found at once.
func promptTemplate(text string) (*template.Template, error) {
	t, err := template.New("prompt").Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, templateFault(err)
	}
	if err := t.Execute(new(strings.Builder), newPromptFields("d/a.png", 0)); err != nil {
		return nil, templateFault(err)
	}
	return t, nil
}

// templateFault takes away what text/template says of its own.
func templateFault(err error) error {
	return errors.New(strings.TrimPrefix(err.Error(), "template: "))
}

func newPromptFields(path string, index int) promptFields {
	name := filepath.Base(path)
	return promptFields{Path: path, Name: name, Stem: strings.TrimSuffix(name, filepath.Ext(name)), Dir: filepath.Dir(path), Index: index}
}

// projectorFlags are those that only a projector gives a meaning.
var projectorFlags = []string{"image-min-tokens", "image-max-tokens", "mmproj-device", "mtmd-batch-max-tokens"}

// warnProjector says which flags have no effect for want of a projector.
func warnProjector(l *logging, o *options) {
	if o.MMProj != "" {
		return
	}
	for _, name := range slices.Sorted(slices.Values(projectorFlags)) {
		if o.given[name] > levelEnv {
			l.warnf("--%s has no effect: there is no projector", name)
		}
	}
}

// mediaParams are the settings of the projector.
func (o *options) mediaParams() *engine.MediaParams {
	p := o.Media()
	p.CacheBytes = int64(o.media.cacheMiB) << 20
	if !o.media.reuse {
		p.CacheBytes = 0
	}
	return &p
}
