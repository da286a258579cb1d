// Command bench compares gollama with llama.cpp's own tools: it runs both on the same inputs, in turns, and makes a
// table of the ratios beside what they are to be.
//
//	go run ./peers/bench -list                          the cases and what they are for
//	go run ./peers/bench -quick -o quick.jsonl          small inputs, under ten minutes on two cores
//	go run ./peers/bench -o all.jsonl                   all cases at full size, a few hours
//	go run ./peers/bench -only 'run/.*/t1' -o all.jsonl some of them; the file grows,
//	                                                    and the table is of all that is in it
//	go run ./peers/bench -table all.jsonl               nothing is run: the table of a file
//	go run ./peers/bench -table all.jsonl -svg b.svg -markdown ../docs/benchmarks.md
//	go run ./peers/bench -only run/ -models /tmp/m.gguf a model of your own
//
// Models are of random weights, made by ../synth and llama-quantize, and kept in the cache folder. A ratio is that of
// the two runs of one round; the table has the median, the least and the most of the rounds. The file has a line of
// JSON for each case that was run, with every figure of every round; of one case the last line counts.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == spinArg {
		spin()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	if len(os.Args) > 1 && os.Args[1] == insideArg {
		err = inside(os.Args[2:], os.Stdout)
	} else {
		err = run(ctx, os.Args[1:])
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: error:", err)
		os.Exit(1)
	}
}

// settings are the options and what is to be done with them.
type settings struct {
	options
	list               bool
	only               *regexp.Regexp
	file, table        string // results to add to, or to read
	svg, markdown, dir string // dir: of temporary files
}

func run(ctx context.Context, args []string) (err error) {
	s, err := parse(args)
	if err != nil {
		return err
	}
	b := &bench{options: s.options}
	cases := selected(contests(b), s)
	switch {
	case s.list:
		for _, c := range cases {
			fmt.Printf("%-36s %s\n", c.name, c.about)
		}
		return nil
	case s.table != "":
		list, err := readResults(s.table)
		if err != nil {
			return err
		}
		return s.show(list)
	case len(cases) == 0:
		return errors.New("no such case; -list names them")
	}
	if b.work, err = os.MkdirTemp(s.dir, "bench-*"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.work)) }()
	if err := b.findText(); err != nil {
		return err
	}
	list, failed, err := s.runAll(ctx, b, cases)
	if err != nil {
		return err
	}
	if s.file != "" && len(list) > 0 {
		if list, err = readResults(s.file); err != nil {
			return err
		}
	}
	return errors.Join(s.show(list), failed)
}

// contests returns all cases.
func contests(b *bench) []contest {
	return slices.Concat(runCases(b), recordCases(b), tokenizeCases(b), finetuneCases(b), exportCases(b), imatrixCases(b), cvectorCases(b), mtmdCases(b))
}

func selected(all []contest, s settings) []contest {
	return slices.DeleteFunc(all, func(c contest) bool { return s.quick && !c.quick || !s.only.MatchString(c.name) })
}

// runAll runs cases and adds each to the file when it is done, or when it ends in the middle with the rounds that it
// has. A case that fails does not stop the others; failed says which did.
func (s *settings) runAll(ctx context.Context, b *bench, cases []contest) (list []*result, failed, err error) {
	for i, c := range cases {
		fmt.Fprintf(os.Stderr, "bench: %d of %d: %s: %s\n", i+1, len(cases), c.name, c.about)
		r, err := c.run(ctx, b)
		if r != nil {
			list = append(list, r)
			if s.file != "" {
				if err := appendResult(s.file, r); err != nil {
					return nil, nil, err
				}
			}
		}
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench: error:", err)
			failed = errors.Join(failed, err)
		}
	}
	return list, failed, nil
}

func parse(args []string) (settings, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return settings{}, err
	}
	var s settings
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.BoolVar(&s.list, "list", false, "name the cases")
	only := f.String("only", "", "run the cases whose name matches this regular expression")
	f.BoolVar(&s.quick, "quick", false, "small inputs and fewer cases")
	f.IntVar(&s.repeat, "n", 3, "rounds; some cases take fewer")
	f.StringVar(&s.file, "o", "", "file of results to add to")
	f.StringVar(&s.table, "table", "", "run nothing and show the results of this file")
	f.StringVar(&s.svg, "svg", "", "write a picture of the results to this file")
	f.StringVar(&s.markdown, "markdown", "", "put the table between the marks of this page")
	f.StringVar(&s.gollama, "gollama", "../gollama", "program to measure")
	f.StringVar(&s.peers, "peers", "../.peers", "folder with llama.cpp's tools")
	models := f.String("models", "", "GGUF files for the cases of run/, separated by commas, instead of the synthetic ones")
	f.StringVar(&s.text, "text", "../../shared/data/war-and-peace.txt", "English text; if it is not there, stories are drawn")
	f.StringVar(&s.options.dir, "cache", filepath.Join(cache, "gollama", "bench"), "where models are kept (3 GB)")
	f.StringVar(&s.dir, "tmp", "", "where outputs are written, 1 GB at a time; default: the system's temporary folder")
	f.IntVar(&s.procs, "procs", nRecords, "records/*/processes: how many to run, and to take for all 64")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if *models != "" {
		s.models = strings.Split(*models, ",")
	}
	if s.only, err = regexp.Compile(*only); err != nil {
		return s, fmt.Errorf("-only: %w", err)
	}
	if f.NArg() != 0 || s.repeat < 1 || s.procs < 1 || s.procs > nRecords {
		return s, fmt.Errorf("want no arguments, -n from 1, and -procs from 1 to %d", nRecords)
	}
	if s.quick {
		s.procs = min(s.procs, 8)
	}
	return s, nil
}
