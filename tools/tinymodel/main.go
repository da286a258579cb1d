// Command tinymodel writes the texts that the built-in model is trained on, and judges what the model makes of them.
//
//	go run ./tinymodel -n 20000 -seed 1 -o stories.jsonl
//	go run ./tinymodel -n 1000 -seed 2 -not stories.jsonl -o heldout.jsonl
//	go run ./tinymodel -check samples.jsonl
//	go run ./tinymodel -projector model.gguf -o mmproj.gguf
//
// The texts are JSON lines: {"text": ...} for a story and {"messages": [...]} for a conversation. The same seed writes
// the same bytes. -check reads such lines, or lines of plain text, and says of each whether it belongs to the language
// of the stories (package story), whether it is whole, and in which mood it is told. -projector makes the vision
// projector that goes with a model.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"gollama/internal/pipeline"
)

type options struct {
	corpus
	not, out string
	check    string
	model    string // to make a projector for
	judge
	least
}

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "tinymodel: error:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if o.check != "" {
		return checkFile(o, stdout)
	}
	if o.model != "" {
		return makeProjector(o)
	}
	if o.not != "" {
		if o.skip, err = readTexts(o.not); err != nil {
			return err
		}
	}
	if o.out == "-" {
		w := bufio.NewWriter(stdout)
		if err := o.write(w); err != nil {
			return err
		}
		return w.Flush()
	}
	f, err := pipeline.CreateAtomic(o.out)
	if err != nil {
		return err
	}
	defer f.Abort()
	w := bufio.NewWriter(f)
	if err := errors.Join(o.write(w), w.Flush()); err != nil {
		return err
	}
	return f.Commit()
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("tinymodel", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&o.n, "n", 20000, "number of texts")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the texts")
	f.Float64Var(&o.chats, "chats", 0.25, "share of conversations among the texts; the rest are stories")
	f.StringVar(&o.not, "not", "", "leave out the stories that are in this file, such as the training data when held-out texts are written")
	f.StringVar(&o.out, "o", "-", "file to write; - is standard output")
	f.StringVar(&o.check, "check", "", "judge the texts of this file instead; - is standard input")
	f.StringVar(&o.model, "projector", "", "make the vision projector of this model instead")
	f.StringVar(&o.prompt, "prompt", "", "-check: text that stood before each {\"text\"}, where the samples leave their prompt out")
	f.BoolVar(&o.json, "json", false, "-check: write JSON lines, a failure each and a summary at the end")
	f.Float64Var(&o.grammatical, "min-grammatical", 0, "-check: fail if a smaller share is grammatical")
	f.Float64Var(&o.complete, "min-complete", 0, "-check: fail if a smaller share is complete")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	for _, share := range []float64{o.chats, o.grammatical, o.complete} {
		if !(share >= 0 && share <= 1) {
			return o, fmt.Errorf("share %v: want 0 to 1", share)
		}
	}
	switch {
	case f.NArg() != 0:
		return o, fmt.Errorf("argument %q: want flags only", f.Arg(0))
	case o.model != "" && (o.out == "-" || o.check != ""):
		return o, errors.New("-projector: want -o FILE and no -check")
	case o.n < 1:
		return o, fmt.Errorf("-n %d: want at least 1", o.n)
	}
	return o, nil
}

// makeProjector makes the projector of o.model.
func makeProjector(o options) error {
	words, err := wordEmbeddings(o.model)
	if err != nil {
		return err
	}
	p, err := fitProjector(words, o.seed)
	if err != nil {
		return err
	}
	return p.write(o.out)
}

// checkFile judges o.check and writes the report to w.
func checkFile(o options, w io.Writer) error {
	in, err := pipeline.Open(o.check)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only read from
	buf := bufio.NewWriter(w)
	s, err := o.read(in, o.check, buf)
	if err := errors.Join(err, buf.Flush()); err != nil {
		return err
	}
	return o.verdict(s)
}
