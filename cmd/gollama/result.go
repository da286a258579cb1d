package main

import (
	"encoding/json"
	"fmt"
	"os"

	"gollama/internal/completion"
	"gollama/internal/pipeline"
)

// result is where the text goes: standard output, or a file that comes into
// being at the end.
type result struct {
	format string
	name   string
	out    *output
	file   *pipeline.File // nil for standard output
	device *os.File       // an output that is there already: a device or a pipe
}

func openResult(e *env, o *options) (*result, error) {
	r := &result{format: o.format, name: o.OutFile, out: e.out}
	if o.OutFile == "" || o.OutFile == "-" {
		return r, nil
	}
	r.out = &output{name: o.OutFile}
	if st, err := os.Stat(o.OutFile); err == nil && !st.IsDir() && !st.Mode().IsRegular() {
		f, err := os.OpenFile(o.OutFile, os.O_WRONLY, 0)
		if err != nil {
			return nil, &writeError{fmt.Errorf("--output: %w", err)}
		}
		r.device, r.out.w = f, f
		return r, nil
	}
	f, err := pipeline.CreateAtomic(o.OutFile)
	if err != nil {
		return nil, &writeError{fmt.Errorf("--output: %s: %w", o.OutFile, pipeline.Cause(err))}
	}
	r.file, r.out.w = f, f
	return r, nil
}

// checkOverwrite keeps a slip of the pen from replacing a model or adapter by a
// text, or the text by the log.
func checkOverwrite(o *options) error {
	read := []string{o.Model, o.sessionFile, o.Speculative.Draft.Model}
	for _, a := range o.LoRAAdapters {
		read = append(read, a.Path)
	}
	for _, v := range o.ControlVectors {
		read = append(read, v.Path)
	}
	for _, write := range []struct{ flag, path string }{{"-o", o.OutFile}, {"--log-file", o.logFile}, {"--transcript", o.transcriptFile}} {
		for _, path := range read {
			if sameFile(write.path, path) {
				return usagef("%s %s would replace a file that the run reads", write.flag, write.path)
			}
		}
	}
	if o.logFile != "" && (o.logFile == o.OutFile || sameFile(o.logFile, o.OutFile)) {
		return usagef("-o and --log-file are the same file, %s", o.OutFile)
	}
	return nil
}

// sameFile says whether both are names of one regular file.
func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil || !x.Mode().IsRegular() {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// delta writes a piece of text as it comes.
func (r *result) delta(d completion.Delta) error {
	switch r.format {
	case "json":
		return nil
	case "jsonl":
		return r.line(d)
	}
	return r.out.text(d.Text)
}

// end writes what comes after the text.
func (r *result) end(res completion.Result) error {
	if r.format != "text" {
		return r.line(res)
	}
	return r.out.endLine()
}

func (r *result) line(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = r.out.Write(append(b, '\n'))
	return err
}

// keep commits the text that there is when cause ended it early, and returns
// cause. Without any text, a file that was there before stays.
func (r *result) keep(l *logging, cause error) error {
	if r.file != nil && r.out.n == 0 {
		l.warnf("%s is not written: there is no text yet", r.name)
		return cause
	}
	if err := r.commit(); err != nil {
		return err
	}
	if r.file != nil {
		l.warnf("%s holds the text up to here", r.name)
	}
	return cause
}

// commit gives a file its name.
func (r *result) commit() error {
	var err error
	switch {
	case r.file != nil:
		err = r.file.Commit()
	case r.device != nil:
		err = r.device.Close()
		r.device = nil
	}
	if err != nil {
		return &writeError{fmt.Errorf("write %s: %w", r.name, err)}
	}
	return nil
}

func (r *result) abort() {
	r.file.Abort()
	if r.device != nil {
		_ = r.device.Close()
	}
}
