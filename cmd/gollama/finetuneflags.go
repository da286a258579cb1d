package main

import (
	"fmt"
	"strconv"
	"strings"

	"gollama/internal/lora"
	"gollama/internal/opt"
	"gollama/internal/opt/data"
)

const (
	inFinetune   = " finetune "
	groupData    = "Training data"
	groupMethod  = "What is trained"
	groupOptim   = "Optimizer"
	groupRunning = "Run folder, evaluation and samples"
	groupSave    = "Result"
)

// tuneOptions are the settings of finetune that no other subcommand has.
type tuneOptions struct {
	data         []data.Source
	valData      []data.Source
	dataFormat   string
	valSplit     float32
	shuffle      bool
	pack         bool
	tooLong      string
	trainOn      []string
	lastOnly     bool
	parseSpecial bool
	cacheDir     string

	method      string // full or lora
	rank        int
	alpha       float32
	rsLoRA      bool
	dropout     float32
	targets     []string
	first, last int // layers; last 0: to the end
	adapter     string
	tensors     []string
	init        string

	kind                      opt.Kind
	lr, lrMin, decayEpochs    float32
	weightDecay, clip         float32
	beta1, beta2, eps         float32
	momentum, muonMomentum    float32
	nesterov                  bool
	schedule                  string // auto or a name of opt.Shape
	warmup, decay             float32
	epochs, maxSteps, batch   int
	seed                      int
	activations               int // MiB
	runDir                    string
	resume, dryRun, keepBest  bool
	evalEvery, patience       int
	reportEvery, saveEvery    int
	saveMinutes, keep         int
	sampleEvery, sampleTokens int
	samplePrompts             []string
	outType                   string // auto or a name of lora.OutType
	peft, merged              string
}

// tuneDefaults are the settings when no flag is given; those that llama-finetune
// has are its own.
func tuneDefaults() tuneOptions {
	p := opt.DefaultOptimizerParams()
	return tuneOptions{
		dataFormat: "auto", valSplit: 0.05, pack: true, tooLong: "error", trainOn: []string{"assistant"}, method: "full", rank: 16, alpha: 32,
		lr: 1e-5, lrMin: -1, decayEpochs: -1, beta1: float32(p.Beta1), beta2: float32(p.Beta2), eps: float32(p.Eps),
		muonMomentum: float32(p.MuonMomentum), schedule: "auto", decay: 0.2, epochs: 2, batch: 8, seed: 42,
		activations: 1024, reportEvery: 1, saveMinutes: 10, keep: 2, sampleTokens: 64, outType: "auto",
	}
}

// sharedWithFinetune are the flags of run that finetune takes too.
var sharedWithFinetune = []string{"model", "ctx-size", "batch-size", "ubatch-size", "threads", "quiet", "verbosity", "log-file", "log-json",
	"log-colors", "log-prefix", "log-timestamps", "config", "print-config",
	// They change how llama-finetune computes; here they change nothing (see noEffectInFinetune).
	"threads-batch", "load-mode", "flash-attn", "cache-type-k", "cache-type-v", "n-gpu-layers"}

// noEffectInFinetune are flags that calls of llama-finetune have and that change
// nothing here, with the reason.
var noEffectInFinetune = map[string]string{
	"threads-batch": "training has one number of threads, -t",
	"load-mode":     "weights that are not trained are mapped, the others read",
	"flash-attn":    "training computes attention in its own way",
	"cache-type-k":  "training has no cache",
	"cache-type-v":  "training has no cache",
	"n-gpu-layers":  "training runs on the CPU",
}

func finetuneFlags() []flagDef {
	var rows []flagDef
	rows = append(rows, inGroup(groupData, dataFlags()...)...)
	rows = append(rows, inGroup(groupMethod, methodFlags()...)...)
	rows = append(rows, inGroup(groupOptim, optimFlags()...)...)
	rows = append(rows, inGroup(groupRunning, runningFlags()...)...)
	rows = append(rows, inGroup(groupSave, saveFlags()...)...)
	for i := range rows {
		rows[i].in = inFinetune
	}
	return rows
}

func dataFlags() []flagDef {
	type o = *options
	sources := func(o o) *[]data.Source { return &o.tune.data }
	newSource := func(path string, weight float32) data.Source { return data.Source{Path: path, Weight: exact(weight)} }
	textSource := func(s data.Source) string { return textScaled(s.Path, float32(s.Weight)) }
	return []flagDef{
		{name: "file", alias: []string{"-f"}, arg: "FILE", def: "none", help: "text to train on, cut as llama-finetune does: windows of -c tokens that begin every -c/2, the last ones for validation; - is standard input",
			binding: fileVar(func(o o) *string { return &o.PromptFile })},
		{name: "data", arg: "FILE", def: "none", help: "examples to train on: text (a document each), JSON lines ({text}, {prompt, completion} or {messages, tools}) or token files of gollama tokenize, compressed or not; may be given more than once; - is standard input", share: "data",
			binding: listVar(sources, parseScaled(false, newSource), textSource).unprinted()},
		{name: "data-scaled", arg: "FILE:WEIGHT", def: "none", help: "the same with a weight: 2 takes its documents twice in an epoch, 0.5 every other one", share: "data",
			binding: listVar(sources, parseScaled(true, newSource), textSource)},
		{name: "val-data", arg: "FILE", def: "a share of the training data", help: "examples to validate with; may be given more than once",
			binding: listVar(func(o o) *[]data.Source { return &o.tune.valData }, parseScaled(false, newSource), func(s data.Source) string { return s.Path })},
		{name: "data-format", arg: "FORMAT", help: "what the files of --data hold: " + strings.Join(data.Formats, ", ") + "; auto goes by the name and the first byte", binding: wordVar(func(o o) *string { return &o.tune.dataFormat }, data.Formats...)},
		{name: "pack", fixed: map[string]string{"--no-pack": "false"}, help: "put several documents into one example of up to -c tokens; they do not see each other", binding: boolVar(func(o o) *bool { return &o.tune.pack })},
		{name: "too-long", arg: "ACTION", help: "what is done with a record of more than -c tokens: " + strings.Join(data.TooLong, ", "), binding: wordVar(func(o o) *string { return &o.tune.tooLong }, data.TooLong...)},
		{name: "train-on", arg: "ROLE,...", help: "roles whose messages are learned", binding: commaVar(func(o o) *[]string { return &o.tune.trainOn }, parseList)},
		{name: "last-only", help: "learn only the last such message of a conversation", binding: boolVar(func(o o) *bool { return &o.tune.lastOnly })},
		{name: "parse-special", help: "let the names of special tokens in the data become these tokens", binding: boolVar(func(o o) *bool { return &o.tune.parseSpecial })},
		{name: "cache-dir", arg: "DIR", def: "none", help: "keep what was tokenized in DIR for the next run with the same data, tokenizer and template", binding: fileVar(func(o o) *string { return &o.tune.cacheDir })},
		{name: "val-split", arg: "FRACTION", help: "share of the training data to validate with", binding: floatVar(func(o o) *float32 { return &o.tune.valSplit }, 0, 0.999)},
		{name: "shuffle", fixed: map[string]string{"--no-shuffle": "false"}, def: "on for --data, off for -f", help: "a new order of the examples in each epoch", binding: boolVar(func(o o) *bool { return &o.tune.shuffle }).when(func(o o) bool { return o.isSet("shuffle") })},
		{name: "epochs", arg: "N", help: "passes over the data", binding: intVar(func(o o) *int { return &o.tune.epochs }, 1, 1e6)},
		{name: "max-steps", arg: "N", help: "end after N updates; 0 is no limit", binding: intVar(func(o o) *int { return &o.tune.maxSteps }, 0, maxInt32)},
		{name: "batch", arg: "N", def: "8 for --data, 1 for -f", help: "examples (windows) in an update", binding: intVar(func(o o) *int { return &o.tune.batch }, 1, 1<<16).when(func(o o) bool { return o.isSet("batch") })},
		{name: "seed", alias: []string{"-s"}, arg: "N", help: "seed of order, adapters, dropout and samples", binding: intVar(func(o o) *int { return &o.tune.seed }, 0, maxInt32)},
	}
}

func methodFlags() []flagDef {
	type o = *options
	return []flagDef{
		{name: "method", arg: "METHOD", help: "full (the weights themselves) or lora (an adapter; the model may be quantized)", binding: wordVar(func(o o) *string { return &o.tune.method }, "full", "lora")},
		{name: "rank", arg: "N", help: "lora: rank", binding: intVar(func(o o) *int { return &o.tune.rank }, 1, 1024)},
		{name: "alpha", arg: "N", help: "lora: the adapter counts alpha/rank times", binding: floatVar(func(o o) *float32 { return &o.tune.alpha }, 1e-6, 1e6)},
		{name: "rslora", help: "lora: it counts alpha/sqrt(rank) times instead", binding: boolVar(func(o o) *bool { return &o.tune.rsLoRA })},
		{name: "dropout", arg: "P", help: "lora: chance that an input of the adapter is left out", binding: floatVar(func(o o) *float32 { return &o.tune.dropout }, 0, 0.99)},
		{name: "targets", arg: "NAME,...", def: "every matrix of the blocks", help: "lora: matrices that get an adapter, such as attn_q,attn_v or ffn_*", binding: commaVar(func(o o) *[]string { return &o.tune.targets }, parseList)},
		{name: "layers", arg: "A-B", def: "all", help: "lora: layers that get an adapter, from 0, both ends included", binding: layersVar()},
		{name: "lora", arg: "FILE", def: "none", help: "lora: go on with this adapter, with its rank, alpha and targets", binding: fileVar(func(o o) *string { return &o.tune.adapter })},
		{name: "train-tensors", arg: "PATTERN,...", def: "all", help: "full: tensors that are trained, such as blk.*.attn_?.weight", binding: commaVar(func(o o) *[]string { return &o.tune.tensors }, parseList)},
		{name: "init", arg: "FILE", def: "none", help: "make a new model instead of -m; FILE is YAML with architecture, context, embedding, layers, heads, kv-heads, head-dim, feed-forward, tied, rope-base, name, author, license, description, chat-template (a file, or the template itself), and tokenizer (a GGUF file to take it from) or vocab-size (of one that is learned on the data)", binding: fileVar(func(o o) *string { return &o.tune.init })},
		{name: "activations", arg: "MIB", help: "memory for activations that are kept for the way back; what does not fit is computed twice, to the same bits", binding: intVar(func(o o) *int { return &o.tune.activations }, 1, 1<<24)},
	}
}

func layersVar() binding {
	return spanVar(func(o *options) (*int, *int) { return &o.tune.first, &o.tune.last }, func(s string) (first, last int, err error) {
		a, b, ok := strings.Cut(s, "-")
		if !ok {
			return 0, 0, fmt.Errorf("%q: want A-B or all", s)
		}
		if first, err = parseInt(a, 0, 1e5); err != nil {
			return 0, 0, err
		}
		last, err = parseInt(b, 0, 1e5)
		switch {
		case err != nil:
			return 0, 0, err
		case last < first || last == 0:
			return 0, 0, fmt.Errorf("the range %d to %d is empty or ends at layer 0", first, last)
		}
		return first, last, nil
	})
}

// spanVar binds a range of layers that parse reads. It is kept in two numbers, of which the last is 0 for "all".
func spanVar(span func(o *options) (first, last *int), parse func(s string) (first, last int, err error)) binding {
	return binding{kind: kindString, set: func(o *options, s string) (err error) {
		a, b := 0, 0
		if s != "all" {
			if a, b, err = parse(s); err != nil {
				return err
			}
		}
		first, last := span(o)
		*first, *last = a, b
		return nil
	}, get: func(o *options) any {
		first, last := span(o)
		if *last == 0 {
			return nil
		}
		return fmt.Sprintf("%d-%d", *first, *last)
	}}
}

func optimFlags() []flagDef {
	type o = *options
	number := func(name, help string, p func(o) *float32, lo, hi float64, alias ...string) flagDef {
		return flagDef{name: name, alias: alias, arg: "N", help: help, binding: floatVar(p, lo, hi)}
	}
	t := func(p func(*tuneOptions) *float32) func(o) *float32 {
		return func(o o) *float32 { return p(&o.tune) }
	}
	return []flagDef{
		{name: "optimizer", alias: []string{"-opt"}, arg: "NAME", help: "adamw, sgd, or muon (for the matrices of the blocks, adamw for the rest)",
			binding: parsedVar(kindString, func(o o) *opt.Kind { return &o.tune.kind }, opt.ParseKind, func(k opt.Kind) any { return k.String() })},
		number("learning-rate", "learning rate", t(func(t *tuneOptions) *float32 { return &t.lr }), 0, 1e6, "-lr"),
		number("learning-rate-min", "last learning rate; -1 is none: the rate then stays, or falls to 0 with linear, cosine and wsd", t(func(t *tuneOptions) *float32 { return &t.lrMin }), -1, 1e6, "-lr-min"),
		number("learning-rate-decay-epochs", "halving: epochs after which -lr-min is reached; -1 is all", t(func(t *tuneOptions) *float32 { return &t.decayEpochs }), -1, 1e6, "-decay-epochs"),
		{name: "schedule", arg: "NAME", help: "how the rate changes: constant, linear, cosine, wsd (constant, then linear), halving (llama-finetune's, by epoch) or auto (halving with -lr-min, else constant)",
			binding: wordVar(func(o o) *string { return &o.tune.schedule }, "auto", "constant", "linear", "cosine", "wsd", "halving")},
		withFixed(number("warmup", "updates over which the rate rises at first; below 1 a share of all", t(func(t *tuneOptions) *float32 { return &t.warmup }), 0, maxInt32, "--warmup-steps"), "--no-warmup", "0"),
		number("decay", "wsd: updates over which the rate falls at the end; below 1 a share of all", t(func(t *tuneOptions) *float32 { return &t.decay }), 0, maxInt32),
		number("weight-decay", "weight decay, not for norms and biases", t(func(t *tuneOptions) *float32 { return &t.weightDecay }), 0, 1e6, "-wd"),
		number("beta1", "adamw: decay of the mean of the gradients", t(func(t *tuneOptions) *float32 { return &t.beta1 }), 0, 0.999999),
		number("beta2", "adamw: decay of the mean of their squares", t(func(t *tuneOptions) *float32 { return &t.beta2 }), 0, 0.999999),
		number("eps", "adamw: added to the root of the squares", t(func(t *tuneOptions) *float32 { return &t.eps }), 1e-30, 1),
		number("momentum", "sgd: momentum", t(func(t *tuneOptions) *float32 { return &t.momentum }), 0, 0.999999),
		{name: "nesterov", help: "sgd: look ahead", binding: boolVar(func(o o) *bool { return &o.tune.nesterov })},
		number("muon-momentum", "muon: momentum", t(func(t *tuneOptions) *float32 { return &t.muonMomentum }), 0, 0.999999),
		number("clip", "largest norm of all gradients together, which are then all kept until it is known; 0 is no limit", t(func(t *tuneOptions) *float32 { return &t.clip }), 0, 1e9),
	}
}

// withFixed adds a spelling that stands for a value.
func withFixed(f flagDef, name, value string) flagDef {
	f.fixed = map[string]string{name: value}
	return f
}

func runningFlags() []flagDef {
	type o = *options
	count := func(name, help string, p func(*tuneOptions) *int, lo int) flagDef {
		return flagDef{name: name, arg: "N", help: help, binding: intVar(func(o o) *int { return p(&o.tune) }, lo, maxInt32)}
	}
	return []flagDef{
		{name: "run-dir", arg: "DIR", def: "the name of -o with .run, taken away after success", help: "folder for metrics, the loss curve, samples and checkpoints", binding: fileVar(func(o o) *string { return &o.tune.runDir })},
		{name: "resume", help: "go on with the run in --run-dir, with its settings", binding: boolVar(func(o o) *bool { return &o.tune.resume }).unprinted()},
		{name: "dry-run", help: "check everything, measure a few steps, print what the run would take, and write nothing", binding: boolVar(func(o o) *bool { return &o.tune.dryRun }).unprinted()},
		count("eval-every", "updates between evaluations; 0 is one after each epoch", func(t *tuneOptions) *int { return &t.evalEvery }, 0),
		count("patience", "end after N evaluations without a better one; 0 is never", func(t *tuneOptions) *int { return &t.patience }, 0),
		{name: "keep-best", help: "write the state of the best evaluation, not the last one", binding: boolVar(func(o o) *bool { return &o.tune.keepBest })},
		count("report-every", "updates in one line of the metrics", func(t *tuneOptions) *int { return &t.reportEvery }, 1),
		count("save-every", "updates between checkpoints; 0 is one after each evaluation", func(t *tuneOptions) *int { return &t.saveEvery }, 0),
		count("save-minutes", "minutes between checkpoints at most; 0 is no limit", func(t *tuneOptions) *int { return &t.saveMinutes }, 0),
		count("keep", "checkpoints to keep, besides the best", func(t *tuneOptions) *int { return &t.keep }, 1),
		count("sample-every", "updates between samples; 0 is none", func(t *tuneOptions) *int { return &t.sampleEvery }, 0),
		count("sample-tokens", "tokens of a sample", func(t *tuneOptions) *int { return &t.sampleTokens }, 1),
		{name: "sample-prompt", arg: "TEXT", def: "an empty one", help: "prompt of a sample; may be given more than once", binding: listVar(func(o o) *[]string { return &o.tune.samplePrompts }, func(s string) ([]string, error) { return []string{s}, nil }, identity)},
	}
}

func saveFlags() []flagDef {
	type o = *options
	return []flagDef{
		{name: "output", alias: []string{"-o", "--output-file"}, arg: "FILE", def: "none, must be given", help: "the trained model, or with --method lora the adapter; it appears when training is done", binding: fileVar(func(o o) *string { return &o.OutFile })},
		{name: "out-type", arg: "TYPE", help: "types of the trained model: auto (those of the base; f16 for what was quantized), or " + strings.Join(lora.OutTypeNames(), ", "),
			binding: parsedVar(kindString, func(o o) *string { return &o.tune.outType }, parseOutTypeName, func(s string) any { return s })},
		{name: "peft", arg: "DIR", def: "none", help: "lora: write the adapter in PEFT's form too", binding: fileVar(func(o o) *string { return &o.tune.peft })},
		{name: "merged", arg: "FILE", def: "none", help: "lora: write the model with the adapter merged too, in the types of --out-type", binding: fileVar(func(o o) *string { return &o.tune.merged })},
	}
}

func parseOutTypeName(s string) (string, error) {
	if s == "auto" {
		return s, nil
	}
	t, err := lora.ParseOutType(s)
	if err != nil {
		return "", fmt.Errorf("%w, or auto", err)
	}
	return t.Name, nil
}

// exact gives a setting as the decimal number that it was written as.
func exact(v float32) float64 {
	x, err := strconv.ParseFloat(strconv.FormatFloat(float64(v), 'g', -1, 32), 64)
	if err != nil { // what FormatFloat writes can be parsed
		return float64(v)
	}
	return x
}
