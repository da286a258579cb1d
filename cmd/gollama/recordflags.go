package main

import (
	"math/rand/v2"
	"os"
	"strconv"

	"gollama/internal/engine"
	"gollama/internal/pipeline"
)

// recordsOptions are the settings of --records.
type recordsOptions struct {
	recordsFile   string
	prefixFile    string
	texts         int // for each record
	ordered       bool
	resume        bool
	dryRun        bool
	deterministic bool
	maxErrors     int    // -1 is no limit
	shard         string // I/N or N
}

// recordOnly are flags that say nothing without --records.
var recordOnly = []string{"parallel", "shared-prefix", "n", "ordered", "resume", "shard", "max-errors", "dry-run", "deterministic"}

func recordFlags() []flagDef {
	type o = *options
	return inGroup(groupRecords,
		flagDef{name: "records", arg: "FILE", def: "none", help: "do each record, a line of JSON, and write a line for each; .gz and .zst too; - is standard input", in: inRun,
			binding: fileVar(func(o o) *string { return &o.recordsFile })},
		flagDef{name: "parallel", alias: []string{"-np"}, env: "LLAMA_ARG_N_PARALLEL", arg: "N", def: "32, or as many as fit in half of the memory", help: "texts made at once; -c is the context of each of them", in: inRun,
			binding: intVar(func(o o) *int { return &o.NParallel }, 1, maxParallel).when(func(o o) bool { return o.isSet("parallel") })},
		flagDef{name: "shared-prefix", arg: "FILE", def: "none", help: "text that every prompt begins with; it is read once", in: inRun,
			binding: fileVar(func(o o) *string { return &o.prefixFile })},
		flagDef{name: "n", arg: "K", help: "texts for each record; its prompt is read once", in: inRun,
			binding: intVar(func(o o) *int { return &o.texts }, 1, 1024)},
		flagDef{name: "ordered", fixed: map[string]string{"--unordered": "false"}, help: "write results in the order of the records; --unordered writes each as it is done", in: inRun,
			binding: boolVar(func(o o) *bool { return &o.ordered })},
		flagDef{name: "resume", help: "go on with the output of an earlier run: what it has is not done again", in: inRun,
			binding: boolVar(func(o o) *bool { return &o.resume })},
		flagDef{name: "shard", arg: "I/N", def: "all, or what SLURM_ARRAY_TASK_ID and _COUNT say", help: "do every Nth record, from number I, counted from 0; N alone takes I from SLURM_ARRAY_TASK_ID or JOB_COMPLETION_INDEX; 0/1 is all", in: inRun,
			binding: stringVar(func(o o) *string { return &o.shard })},
		flagDef{name: "max-errors", arg: "N", help: "take no more records after N+1 have failed; -1 no limit", in: inRun,
			binding: intVar(func(o o) *int { return &o.maxErrors }, -1, maxInt32)},
		flagDef{name: "dry-run", help: "count the tokens of each record and say which do not fit, with the vocabulary alone", in: inRun,
			binding: boolVar(func(o o) *bool { return &o.dryRun })},
		flagDef{name: "deterministic", help: "let no text depend on -np and the other records by as much as a rounding; slower for few texts at once", in: inRun,
			binding: boolVar(func(o o) *bool { return &o.deterministic })},
	)
}

// maxParallel leaves one of llama.cpp's 256 sequences (LLAMA_MAX_SEQ) to the shared prefix.
const maxParallel = 255

// finishRecords checks what belongs to --records.
func (o *options) finishRecords() error {
	if o.recordsFile == "" {
		for _, name := range recordOnly {
			if o.given[name] > levelEnv {
				return usagef("--%s goes with --records", name)
			}
		}
		o.NParallel = 1
		return nil
	}
	for _, name := range []string{"prompt", "file"} {
		if o.given[name] > levelEnv {
			return usagef("--%s and --records: give one of them", name).withHint("a record has its own prompt; --shared-prefix FILE is for what all begin with")
		}
	}
	for _, name := range []string{"score", "session", "prompt-cache", "session-ro"} {
		if o.given[name] > levelEnv {
			return usagef("--%s does not go with --records", name)
		}
	}
	toFile := o.OutFile != "" && o.OutFile != "-"
	switch {
	case o.isSet("format") && o.format == "text":
		return usagef("--format text: the results of records are lines of JSON").withHint("take out a field with a tool such as jq")
	case o.requireComplete:
		return usagef("--require-complete does not go with --records").withHint("each result has its finish_reason")
	case o.VerbosePrompt:
		return usagef("--verbose-prompt does not go with --records")
	case o.resume && !toFile:
		return usagef("--resume needs the file that it goes on with").withHint("-o FILE")
	case o.resume && o.dryRun:
		return usagef("--resume and --dry-run: give one of them")
	}
	if err := o.batchSeed(); err != nil {
		return err
	}
	if err := o.checkShard(); err != nil {
		return err
	}
	for _, f := range []string{o.recordsFile, o.prefixFile} {
		if toFile && sameFile(f, o.OutFile) {
			return usagef("-o %s would be written over what the run reads", o.OutFile)
		}
		if _, err := os.Stat(f); f != "" && f != "-" && err != nil {
			return &inputError{err: err}
		}
	}
	return nil
}

// batchSeed sets the seed of a run that makes many texts.
func (o *options) batchSeed() error {
	switch {
	case o.resume && o.isSet("seed") && o.Sampling.Seed == engine.RandomSeed:
		return usagef("--resume and --seed -1: what is there was made with another seed").withHint("give the number of the run before")
	case o.isSet("seed") && o.Sampling.Seed == engine.RandomSeed:
		o.Sampling.Seed = rand.Uint32()
	case !o.isSet("seed"):
		o.Sampling.Seed = 0 // a batch is to give the same twice, unless told otherwise
	}
	return nil
}

// checkShard checks --shard as far as it can be without the environment.
func (o *options) checkShard() error {
	if o.shard == "" {
		return nil
	}
	if n, err := strconv.Atoi(o.shard); err == nil {
		if n < 1 {
			return usagef("--shard: %d, want 1 or more", n)
		}
		return nil
	}
	if _, err := pipeline.ParseShard(o.shard); err != nil {
		return usagef("--shard: %s", err)
	}
	return nil
}
