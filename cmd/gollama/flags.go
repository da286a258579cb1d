package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"gollama/internal/engine"
)

const (
	maxInt32   = math.MaxInt32
	maxFloat   = math.MaxFloat32
	maxCPUs    = 512 // GGML_MAX_N_THREADS
	maxDevices = 16  // GGML_SCHED_MAX_BACKENDS
)

// flagDef is one row of the flag table: everything the program knows about a
// flag. The key in a config file is the long name.
type flagDef struct {
	name   string            // long name, without dashes
	alias  []string          // other spellings, with dashes
	fixed  map[string]string // spellings that stand for one value: --no-warmup is --warmup=false
	env    string            // environment variable
	arg    string            // what the value is called in the help
	args   int               // values taken from the line when not 1 (0: by kind)
	def    string            // default in the help, where the value does not tell
	help   string
	in     string // subcommands that take it, with blanks around each
	group  string // section of the help
	share  string // flags with the same share set the same thing
	reject string // not "": the flag is refused, and this is the hint
	binding
}

// takenBy reports whether a subcommand takes the flag, or refuses it with a hint.
func (f *flagDef) takenBy(cmd string) bool { return strings.Contains(f.in, " "+cmd+" ") }

func (f *flagDef) takesValue() bool { return f.kind != kindBool }

func (f *flagDef) shareKey() string {
	if f.share != "" {
		return f.share
	}
	return f.name
}

// Sections of the help, in order.
const (
	groupPrompt   = "Prompt and output"
	groupRecords  = "Records"
	groupGenerate = "Generation"
	groupSampling = "Sampling"
	groupModel    = "Model"
	groupContext  = "Context"
	groupRope     = "Position encoding"
	groupAdapters = "Adapters"
	groupCPU      = "CPU"
	groupDevices  = "Devices"
	groupLogs     = "Messages and logs"
	groupSettings = "Settings"
)

var groups = []string{groupInput, groupTokens, groupEncoding, groupLimits, groupPrompt, groupMedia, groupFiles, groupChat, groupRecords, groupScore, groupGenerate, groupSpec, groupSampling, groupModel,
	groupContext, groupRope, groupAdapters, groupExport, groupImatrix, groupData, groupMethod, groupOptim, groupRunning, groupSave, groupServer, groupPairs, groupVector, groupReport, groupCPU, groupDevices,
	groupLogs, groupSettings}

const (
	inRun  = " run "
	inInfo = " version devices "
	inBoth = " run tokenize "
)

// samplingBit marks a setting as the user's, so that the model's own default
// does not replace it.
func samplingBit(c engine.SamplingConfig) func(*options) {
	return func(o *options) { o.Sampling.UserSamplingConfig |= c }
}

const (
	noDownload   = "gollama downloads nothing: give a file with -m FILE"
	noAffix      = "what stands before and after a message is the chat template's: --chat-template"
	noSelfExtend = "self-extend is not supported: use --rope-scaling yarn or --rope-scale for a longer context"
)

// rejected makes the row of a flag of llama-completion that is refused.
func rejected(name, arg, env, hint string, alias ...string) flagDef {
	k := kindBool
	if arg != "" {
		k = kindString
	}
	return flagDef{name: name, alias: alias, arg: arg, env: env, reject: hint, in: inRun,
		binding: binding{kind: k, set: func(*options, string) error { return nil }}}
}

// holds binds a flag that asks for what is always so; its opposite is refused.
func holds(value bool, hint string) binding {
	return binding{kind: kindBool, set: func(_ *options, s string) error {
		v, err := parseBool(s)
		if err == nil && v != value {
			return usagef("not supported").withHint("%s", hint)
		}
		return err
	}}
}

func setSamplers(o *options, chain []engine.SamplerType) {
	o.Sampling.Samplers = chain
	o.Sampling.UserSamplingConfig |= engine.ConfigSamplers
}

func joinSamplers(o *options) any {
	text := ""
	for i, s := range o.Sampling.Samplers {
		if i > 0 {
			text += ";"
		}
		text += s.String()
	}
	return text
}

func identity(s string) string { return s }

// flagTable is every flag of every subcommand. Names, aliases, environment
// names and defaults are those of llama-completion (llama.cpp v0.5.0,
// common/arg.cpp), but where the help says otherwise.
var flagTable []flagDef

func init() { flagTable = makeFlagTable() }

func makeFlagTable() []flagDef {
	type o = *options
	f32 := func(name, env, help string, p func(o) *float32, lo, hi float64) flagDef {
		return flagDef{name: name, env: env, arg: "N", help: help, in: inRun, binding: floatVar(p, lo, hi)}
	}
	rows := []flagDef{
		// Prompt and output.
		{name: "prompt", alias: []string{"-p"}, arg: "TEXT", help: "the prompt, used as it is", in: inRun, group: groupPrompt, share: "prompt", binding: promptVar()},
		{name: "file", alias: []string{"-f", "-bf", "--binary-file"}, arg: "FILE", help: "read the prompt from FILE, byte for byte; - is standard input", in: inRun, group: groupPrompt, share: "prompt",
			binding: withReset(fileVar(func(o o) *string { return &o.PromptFile }), func(o o) { o.PromptFile = "" })},
		{name: "escape", alias: []string{"-e"}, fixed: map[string]string{"--no-escape": "false"}, help: `replace \n, \r, \t, \\, \", \' and \xHH in the text of -p`, in: inRun, group: groupPrompt,
			binding: boolVar(func(o o) *bool { return &o.Escape })},
		{name: "echo", fixed: map[string]string{"--display-prompt": "true", "--no-display-prompt": "false"}, help: "write the prompt before the generated text", in: inRun, group: groupPrompt,
			binding: boolVar(func(o o) *bool { return &o.DisplayPrompt })},
		{name: "special", alias: []string{"-sp"}, help: "write the text of special tokens too", in: inRun, group: groupPrompt,
			binding: boolVar(func(o o) *bool { return &o.Special })},
		{name: "output", alias: []string{"-o"}, arg: "FILE", def: "standard output", help: "write the result to FILE, which appears when the run ends; if it fails, FILE stays as it was; - is standard output", in: inRun, group: groupPrompt,
			binding: fileVar(func(o o) *string { return &o.OutFile })},
		{name: "format", fixed: map[string]string{"--json": "json"}, arg: "FORMAT", help: "text, json (one object) or jsonl (pieces of text, then the object)", in: inRun, group: groupPrompt,
			binding: wordVar(func(o o) *string { return &o.format }, "text", "json", "jsonl")},
		{name: "logprobs", arg: "N", help: "report the log-probability of each token with N alternatives (json, jsonl); 0 is off", in: inRun, group: groupPrompt,
			binding: intVar(func(o o) *int { return &o.logprobs }, 0, 1000)},
		{name: "prompt-logprobs", help: "report the log-probability of each token of the prompt too (json, jsonl)", in: inRun, group: groupPrompt,
			binding: boolVar(func(o o) *bool { return &o.promptLogprobs })},
		{name: "require-complete", help: "fail with status 5 if the text ended by -n or by the context's end", in: inRun, group: groupPrompt,
			binding: boolVar(func(o o) *bool { return &o.requireComplete })},
		{name: "verbose-prompt", help: "list the prompt's tokens on standard error", in: inRun, group: groupPrompt,
			binding: boolVar(func(o o) *bool { return &o.VerbosePrompt })},

		// Generation.
		{name: "predict", alias: []string{"-n", "--n-predict"}, env: "LLAMA_ARG_N_PREDICT", arg: "N", help: "tokens to generate at most; -1 no limit, -2 until the context is full", in: inRun, group: groupGenerate,
			binding: intVar(func(o o) *int { return &o.NPredict }, -2, maxInt32)},
		{name: "stop", alias: []string{"-r", "--reverse-prompt"}, arg: "TEXT", def: "none", help: "end before TEXT would be written; may be given more than once", in: inRun, group: groupGenerate,
			binding: listVar(func(o o) *[]string { return &o.Antiprompt }, func(s string) ([]string, error) {
				if s == "" {
					return nil, errors.New("an empty stop text would end every answer at once")
				}
				return []string{s}, nil
			}, identity)},
		{name: "stop-token", arg: "TOKEN", def: "none", help: "end at this token, an id or the exact text of one token; may be given more than once", in: inRun, group: groupGenerate,
			binding: listVar(func(o o) *[]string { return &o.stopTokens }, func(s string) ([]string, error) {
				if s == "" {
					return nil, errors.New("the token is empty")
				}
				if v, err := strconv.ParseInt(s, 10, 64); err == nil && (v < 0 || v > maxInt32) {
					return nil, fmt.Errorf("%s is no token id", s)
				}
				return []string{s}, nil
			}, identity)},
		{name: "ignore-eos", help: "go on after the model's end token", in: inRun, group: groupGenerate,
			binding: boolVar(func(o o) *bool { return &o.Sampling.IgnoreEOS })},
		{name: "keep", arg: "N", help: "prompt tokens that shift and truncate keep; -1 all", in: inRun, group: groupGenerate,
			binding: intVar(func(o o) *int { return &o.NKeep }, -1, maxInt32)},
		{name: "on-overflow", fixed: map[string]string{"--context-shift": "shift", "--no-context-shift": "error"}, arg: "ACTION", help: "when the context is too small: error (a long prompt is refused, generation ends at the edge), shift (drop old tokens and go on) or truncate (cut a long prompt)", in: inRun, group: groupGenerate,
			binding: wordVar(func(o o) *string { return &o.overflow }, "error", "shift", "truncate")},

		// Sampling.
		{name: "seed", alias: []string{"-s"}, arg: "N", def: "-1", help: "seed of the random numbers; -1 takes a fresh one", in: inRun, group: groupSampling,
			binding: binding{kind: kindInt, set: func(o o, s string) (err error) {
				v, err := parseSeed(s)
				if err == nil {
					o.Sampling.Seed = v
				}
				return err
			}, get: func(o o) any {
				if o.Sampling.Seed == engine.RandomSeed {
					return -1
				}
				return int(o.Sampling.Seed)
			}}},
		{name: "samplers", arg: "NAMES", help: "the samplers in order, with ; between", in: inRun, group: groupSampling, share: "samplers",
			binding: binding{kind: kindString, set: func(o o, s string) error {
				chain, err := engine.ParseSamplers(s)
				if err == nil {
					setSamplers(o, chain)
				}
				return err
			}, get: joinSamplers}},
		{name: "sampler-seq", alias: []string{"--sampling-seq"}, arg: "LETTERS", def: "edskypmxt", help: "the samplers in order, a letter each", in: inRun, group: groupSampling, share: "samplers",
			binding: binding{kind: kindString, set: func(o o, s string) error {
				chain, err := engine.ParseSamplerSequence(s)
				if err == nil {
					setSamplers(o, chain)
				}
				return err
			}}},
	}
	rows = append(rows, inGroup(groupSampling,
		bit(f32("temp", "LLAMA_ARG_TEMPERATURE", "temperature; 0 always takes the likeliest token", func(o o) *float32 { return &o.Sampling.Temp }, 0, maxFloat), engine.ConfigTemp, "--temperature"),
		bit(flagDef{name: "top-k", env: "LLAMA_ARG_TOP_K", arg: "N", help: "keep the N likeliest tokens; 0 all", in: inRun, binding: intVar(func(o o) *int { return &o.Sampling.TopK }, -1, maxInt32)}, engine.ConfigTopK),
		bit(f32("top-p", "LLAMA_ARG_TOP_P", "keep the likeliest tokens that make up this probability; 1 all", func(o o) *float32 { return &o.Sampling.TopP }, 0, 1), engine.ConfigTopP),
		bit(f32("min-p", "LLAMA_ARG_MIN_P", "drop tokens below this share of the likeliest one's probability; 0 none", func(o o) *float32 { return &o.Sampling.MinP }, 0, 1), engine.ConfigMinP),
		bit(f32("top-n-sigma", "", "keep tokens within N standard deviations of the best; -1 is off", func(o o) *float32 { return &o.Sampling.TopNSigma }, -1, maxFloat), 0, "--top-nsigma"),
		bit(f32("xtc-probability", "", "chance of XTC at each token; 0 is off", func(o o) *float32 { return &o.Sampling.XTCProbability }, 0, 1), engine.ConfigXTCProbability),
		bit(f32("xtc-threshold", "", "probability above which XTC removes tokens; above 0.5 is off", func(o o) *float32 { return &o.Sampling.XTCThreshold }, 0, 1), engine.ConfigXTCThreshold),
		bit(f32("typical-p", "", "locally typical sampling; 1 is off", func(o o) *float32 { return &o.Sampling.TypP }, 0, 1), 0, "--typical"),
		bit(flagDef{name: "repeat-last-n", arg: "N", help: "tokens that the penalties look back on; 0 is off", in: inRun,
			binding: intVar(func(o o) *int { return &o.Sampling.PenaltyLastN }, 0, maxInt32).then(func(o o) { o.Sampling.NPrev = max(o.Sampling.NPrev, o.Sampling.PenaltyLastN) })}, engine.ConfigPenaltyLastN),
		bit(f32("repeat-penalty", "LLAMA_ARG_REPEAT_PENALTY", "penalty on repeated tokens; 1 is off", func(o o) *float32 { return &o.Sampling.PenaltyRepeat }, 1e-30, maxFloat), engine.ConfigPenaltyRepeat),
		f32("presence-penalty", "LLAMA_ARG_PRESENCE_PENALTY", "penalty on tokens seen before; 0 is off", func(o o) *float32 { return &o.Sampling.PenaltyPresent }, -maxFloat, maxFloat),
		f32("frequency-penalty", "LLAMA_ARG_FREQUENCY_PENALTY", "penalty that grows with each occurrence; 0 is off", func(o o) *float32 { return &o.Sampling.PenaltyFreq }, -maxFloat, maxFloat),
		f32("dry-multiplier", "", "strength of the DRY penalty on repeated sequences; 0 is off", func(o o) *float32 { return &o.Sampling.DRYMultiplier }, 0, maxFloat),
		f32("dry-base", "", "base of the DRY penalty", func(o o) *float32 { return &o.Sampling.DRYBase }, 1, maxFloat),
		flagDef{name: "dry-allowed-length", arg: "N", help: "length of a repetition that DRY lets pass", in: inRun, binding: intVar(func(o o) *int { return &o.Sampling.DRYAllowedLength }, 0, maxInt32)},
		flagDef{name: "dry-penalty-last-n", arg: "N", help: "tokens that DRY looks back on; 0 is off", in: inRun, binding: intVar(func(o o) *int { return &o.Sampling.DRYPenaltyLastN }, 0, maxInt32)},
		flagDef{name: "dry-sequence-breaker", arg: "TEXT", def: `newline, : " *`, help: "text that ends a sequence for DRY; replaces the default list; none empties it; may be given more than once", in: inRun, binding: dryBreakers()},
		f32("adaptive-target", "", "adaptive-p: probability to aim at; below 0 is off", func(o o) *float32 { return &o.Sampling.AdaptiveTarget }, -maxFloat, 1),
		f32("adaptive-decay", "", "adaptive-p: how slowly it adapts", func(o o) *float32 { return &o.Sampling.AdaptiveDecay }, 0, 0.99),
		f32("dynatemp-range", "", "half width of the dynamic temperature; 0 is off", func(o o) *float32 { return &o.Sampling.DynatempRange }, 0, maxFloat),
		f32("dynatemp-exp", "", "exponent of the dynamic temperature", func(o o) *float32 { return &o.Sampling.DynatempExponent }, 0, maxFloat),
		bit(flagDef{name: "mirostat", arg: "N", help: "0 off, 1 Mirostat, 2 Mirostat 2.0", in: inRun, binding: intVar(func(o o) *int { return &o.Sampling.Mirostat }, 0, 2)}, engine.ConfigMirostat),
		bit(f32("mirostat-lr", "", "Mirostat's learning rate", func(o o) *float32 { return &o.Sampling.MirostatEta }, 0, maxFloat), engine.ConfigMirostatEta),
		bit(f32("mirostat-ent", "", "Mirostat's target entropy", func(o o) *float32 { return &o.Sampling.MirostatTau }, 0, maxFloat), engine.ConfigMirostatTau),
		flagDef{name: "logit-bias", alias: []string{"-l"}, arg: "TOKEN±BIAS", def: "none", help: "add BIAS to a token id's logit, such as 317-100; may be given more than once", in: inRun,
			binding: listVar(func(o o) *[]engine.LogitBias { return &o.Sampling.LogitBias }, parseLogitBias, textLogitBias)},
		flagDef{name: "grammar", arg: "GBNF", def: "none", help: "let only text that this grammar allows through", in: inRun, share: "grammar",
			binding: withReset(stringVar(func(o o) *string { return &o.Sampling.Grammar }), resetGrammar).when(func(o o) bool { return o.grammarFile == "" && o.Sampling.Grammar != "" })},
		flagDef{name: "grammar-file", arg: "FILE", def: "none", help: "read the grammar from FILE", in: inRun, share: "grammar", binding: withReset(fileVar(func(o o) *string { return &o.grammarFile }), resetGrammar)},
		flagDef{name: "json-schema", alias: []string{"-j"}, arg: "SCHEMA", def: "none", help: "let only JSON that this schema allows through", in: inRun, share: "grammar",
			binding: withReset(stringVar(func(o o) *string { return &o.Sampling.JSONSchema }), resetGrammar).when(func(o o) bool { return o.schemaFile == "" && o.Sampling.JSONSchema != "" })},
		flagDef{name: "json-schema-file", alias: []string{"-jf"}, arg: "FILE", def: "none", help: "read the schema from FILE", in: inRun, share: "grammar", binding: withReset(fileVar(func(o o) *string { return &o.schemaFile }), resetGrammar)},
	)...)
	rows = append(rows, inGroup(groupModel,
		flagDef{name: "model", alias: []string{"-m"}, env: "LLAMA_ARG_MODEL", arg: "FILE", def: builtinDefault, help: "the GGUF file, or the first of a split model", in: inBoth, binding: fileVar(func(o o) *string { return &o.Model })},
		flagDef{name: "load-mode", alias: []string{"-lm"}, fixed: map[string]string{"--mmap": "mmap", "--no-mmap": "none", "--mlock": "mmap+mlock", "--direct-io": "dio", "-dio": "dio"}, env: "LLAMA_ARG_LOAD_MODE", arg: "MODE", help: "how the file is read: auto, none, mmap, mlock (keep in memory), mmap+mlock or dio", in: inRun,
			binding: enumVar(func(o o) *engine.LoadMode { return &o.LoadMode }, engine.ParseLoadMode)},
		flagDef{name: "lazy-mode", alias: []string{"-lzm"}, env: "LLAMA_ARG_LAZY_MODE", arg: "MODE", help: "read rows of very large tables on demand: on, off, or auto (tables above 4 GiB)", in: inRun,
			binding: enumVar(func(o o) *engine.LazyMode { return &o.LazyMode }, engine.ParseLazyMode)},
		flagDef{name: "check-tensors", help: "look for invalid values while loading", in: inRun, binding: boolVar(func(o o) *bool { return &o.CheckTensors })},
		flagDef{name: "override-kv", arg: "KEY=TYPE:VALUE,...", def: "none", help: "replace metadata of the model; TYPE is int, float, bool or str", in: inRun,
			binding: listVar(func(o o) *[]engine.KVOverride { return &o.KVOverrides }, parseOverrideKV, textOverrideKV)},
		flagDef{name: "repack", fixed: map[string]string{"--no-repack": "false", "-nr": "false"}, env: "LLAMA_ARG_REPACK", help: "rearrange weights for the CPU while loading", in: inRun, binding: notVar(func(o o) *bool { return &o.NoExtraBufts })},
		flagDef{name: "no-host", env: "LLAMA_ARG_NO_HOST", help: "bypass the host buffer", in: inRun, binding: boolVar(func(o o) *bool { return &o.NoHost })},
		flagDef{name: "warmup", fixed: map[string]string{"--no-warmup": "false"}, help: "run the model once before the prompt", in: inRun, binding: boolVar(func(o o) *bool { return &o.Warmup })},
		flagDef{name: "offline", env: "LLAMA_ARG_OFFLINE", help: "use no network to find a model; always so", in: inRun, binding: holds(true, noDownload)},
	)...)
	rows = append(rows, inGroup(groupContext,
		flagDef{name: "ctx-size", alias: []string{"-c"}, env: "LLAMA_ARG_CTX_SIZE", arg: "N", help: "tokens of context, rounded up to 256; 0 takes the model's training length", in: inRun, binding: intVar(func(o o) *int { return &o.NCtx }, 0, maxInt32-255)},
		flagDef{name: "batch-size", alias: []string{"-b"}, env: "LLAMA_ARG_BATCH", arg: "N", help: "prompt tokens handed over at once", in: inRun, binding: intVar(func(o o) *int { return &o.NBatch }, 1, maxInt32)},
		flagDef{name: "ubatch-size", alias: []string{"-ub"}, env: "LLAMA_ARG_UBATCH", arg: "N", help: "prompt tokens computed at once", in: inRun, binding: intVar(func(o o) *int { return &o.NUBatch }, 1, maxInt32)},
		flagDef{name: "flash-attn", alias: []string{"-fa"}, env: "LLAMA_ARG_FLASH_ATTN", arg: "on|off|auto", help: "flash attention", in: inRun, binding: flashAttn()},
		flagDef{name: "cache-type-k", alias: []string{"-ctk"}, env: "LLAMA_ARG_CACHE_TYPE_K", arg: "TYPE", help: "type of the keys in the cache: f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0 or q5_1", in: inRun, binding: enumVar(func(o o) *engine.CacheType { return &o.CacheTypeK }, engine.ParseCacheType)},
		flagDef{name: "cache-type-v", alias: []string{"-ctv"}, env: "LLAMA_ARG_CACHE_TYPE_V", arg: "TYPE", help: "type of the values in the cache, one of the same", in: inRun, binding: enumVar(func(o o) *engine.CacheType { return &o.CacheTypeV }, engine.ParseCacheType)},
		flagDef{name: "kv-offload", alias: []string{"-kvo"}, fixed: map[string]string{"--no-kv-offload": "false", "-nkvo": "false"}, env: "LLAMA_ARG_KV_OFFLOAD", help: "keep the cache on the device", in: inRun, binding: notVar(func(o o) *bool { return &o.NoKVOffload })},
		flagDef{name: "swa-full", env: "LLAMA_ARG_SWA_FULL", help: "full-size cache for sliding-window layers", in: inRun, binding: boolVar(func(o o) *bool { return &o.SWAFull })},
	)...)
	rows = append(rows, inGroup(groupRope,
		flagDef{name: "rope-scaling", env: "LLAMA_ARG_ROPE_SCALING_TYPE", arg: "TYPE", def: "the model's, or linear", help: "none, linear or yarn", in: inRun, binding: ropeScaling()},
		flagDef{name: "rope-scale", env: "LLAMA_ARG_ROPE_SCALE", arg: "N", def: "the model's", help: "make the context N times longer", in: inRun, share: "rope-freq-scale",
			binding: binding{kind: kindFloat, set: func(o o, s string) error {
				v, err := parseFloat(s, 1e-6, 1e6)
				if err == nil {
					o.RopeFreqScale = 1 / v
				}
				return err
			}}},
		f32("rope-freq-base", "LLAMA_ARG_ROPE_FREQ_BASE", "base frequency; 0 takes the model's", func(o o) *float32 { return &o.RopeFreqBase }, 0, maxFloat),
		f32("rope-freq-scale", "LLAMA_ARG_ROPE_FREQ_SCALE", "scale of the frequencies, 1/N for --rope-scale N; 0 takes the model's", func(o o) *float32 { return &o.RopeFreqScale }, 0, maxFloat),
		flagDef{name: "yarn-orig-ctx", env: "LLAMA_ARG_YARN_ORIG_CTX", arg: "N", help: "YaRN: context that the model was trained with; 0 takes the model's", in: inRun, binding: intVar(func(o o) *int { return &o.YarnOrigCtx }, 0, maxInt32)},
		f32("yarn-ext-factor", "LLAMA_ARG_YARN_EXT_FACTOR", "YaRN: share of extrapolation; -1 takes the model's", func(o o) *float32 { return &o.YarnExtFactor }, -1, maxFloat),
		f32("yarn-attn-factor", "LLAMA_ARG_YARN_ATTN_FACTOR", "YaRN: scale of the attention; -1 takes the model's", func(o o) *float32 { return &o.YarnAttnFactor }, -1, maxFloat),
		f32("yarn-beta-slow", "LLAMA_ARG_YARN_BETA_SLOW", "YaRN: high correction dimension; -1 takes the model's", func(o o) *float32 { return &o.YarnBetaSlow }, -1, maxFloat),
		f32("yarn-beta-fast", "LLAMA_ARG_YARN_BETA_FAST", "YaRN: low correction dimension; -1 takes the model's", func(o o) *float32 { return &o.YarnBetaFast }, -1, maxFloat),
	)...)
	newLoRA := func(path string, scale float32) engine.LoRAInfo {
		return engine.LoRAInfo{Path: path, Scale: scale}
	}
	newVector := func(path string, scale float32) engine.ControlVectorInfo {
		return engine.ControlVectorInfo{Path: path, Strength: scale}
	}
	loras := func(o o) *[]engine.LoRAInfo { return &o.LoRAAdapters }
	vectors := func(o o) *[]engine.ControlVectorInfo { return &o.ControlVectors }
	textLoRA := func(l engine.LoRAInfo) string { return textScaled(l.Path, l.Scale) }
	textVector := func(v engine.ControlVectorInfo) string { return textScaled(v.Path, v.Strength) }
	rows = append(rows, inGroup(groupAdapters,
		flagDef{name: "lora", arg: "FILE,...", def: "none", help: "apply LoRA adapters", in: inRun, share: "lora", binding: listVar(loras, parseScaled(false, newLoRA), textLoRA).unprinted()},
		flagDef{name: "lora-scaled", arg: "FILE:SCALE,...", def: "none", help: "apply LoRA adapters, each with its scale", in: inRun, share: "lora", binding: listVar(loras, parseScaled(true, newLoRA), textLoRA)},
		flagDef{name: "control-vector", arg: "FILE,...", def: "none", help: "apply control vectors", in: inRun, share: "control-vector", binding: listVar(vectors, parseScaled(false, newVector), textVector).unprinted()},
		flagDef{name: "control-vector-scaled", arg: "FILE:SCALE,...", def: "none", help: "apply control vectors, each with its strength", in: inRun, share: "control-vector", binding: listVar(vectors, parseScaled(true, newVector), textVector)},
		flagDef{name: "control-vector-layer-range", arg: "START END", args: 2, def: "all layers", help: "layers that control vectors apply to, both ends included", in: inRun, binding: layerRange()},
	)...)
	rows = append(rows, scoreFlags()...)
	rows = append(rows, chatFlags()...)
	rows = append(rows, specFlags()...)
	rows = append(rows, sessionFlags()...)
	rows = append(rows, recordFlags()...)
	rows = append(rows, cpuFlags()...)
	rows = append(rows, deviceFlags()...)
	rows = append(rows, logFlags()...)
	rows = append(rows, rejectedFlags()...)
	alsoIn(rows, inCVector, sharedWithCVector) // before the rows of other subcommands that have flags of these names
	rows = append(rows, exportLoRAFlags()...)
	rows = append(rows, rpcServerFlags()...)
	alsoIn(rows, inExportLoRA, sharedWithExportLoRA)
	alsoIn(rows, inFinetune, sharedWithFinetune)
	shareWithMTMD(rows)
	rows = append(rows, tokenizeFlags()...)
	rows = append(rows, finetuneFlags()...)
	rows = append(rows, mtmdFlags()...)
	alsoIn(rows, inRPCServer, sharedWithRPCServer)
	for _, in := range []string{inImatrixMerge, inImatrixConvert, inImatrixStats, inImatrixDiff, inImatrixCheck} {
		alsoIn(rows, in, sharedWithImatrixTools)
	}
	shareWithImatrix(rows)
	rows = append(rows, imatrixFlags()...)
	rows = append(rows, imatrixToolFlags()...)
	rows = append(rows, cvectorFileFlags()...)
	rows = append(rows, cvectorFlags()...)
	for _, cmd := range vectorFileCommands {
		alsoIn(rows, cmd, sharedWithVectorFiles)
	}
	return rows
}

func cpuFlags() []flagDef {
	type o = *options
	threads := func(p func(o) *int) binding {
		b := intVar(p, -1, maxCPUs)
		set := b.set
		b.set = func(o o, s string) error {
			if v, err := strconv.Atoi(s); err == nil && v == 0 {
				return fmt.Errorf("0 threads cannot work, want 1 to %d, or -1 for as many as fit", maxCPUs)
			}
			return set(o, s)
		}
		return b
	}
	priority := func(p func(o) *int) binding { return intVar(p, -1, 3) }
	return inGroup(groupCPU,
		flagDef{name: "threads", alias: []string{"-t"}, env: "LLAMA_ARG_THREADS", arg: "N", help: "threads to compute with; -1 takes the physical cores that this process may use", in: inRun, binding: threads(func(o o) *int { return &o.CPUParams.NThreads })},
		flagDef{name: "threads-batch", alias: []string{"-tb"}, arg: "N", def: "as --threads", help: "threads to compute many tokens at once with, such as a prompt", in: inRun, binding: threads(func(o o) *int { return &o.CPUParamsBatch.NThreads })},
		flagDef{name: "cpu-mask", alias: []string{"-C"}, arg: "HEX", def: "any CPU", help: "CPUs to run on, as a hexadecimal mask", in: inRun, share: "cpu-mask", binding: cpuVar(func(o o) *[]int { return &o.CPUParams.CPUMask }, parseCPUMask, true)},
		flagDef{name: "cpu-range", alias: []string{"-Cr"}, arg: "LO-HI", def: "any CPU", help: "CPUs to run on, as a range; adds to --cpu-mask", in: inRun, share: "cpu-mask", binding: cpuVar(func(o o) *[]int { return &o.CPUParams.CPUMask }, parseCPURange, false)},
		flagDef{name: "cpu-strict", arg: "0|1", help: "pin each thread to one CPU", in: inRun, binding: zeroOne(func(o o) *bool { return &o.CPUParams.StrictCPU })},
		flagDef{name: "prio", arg: "N", help: "priority: -1 low, 0 normal, 1 medium, 2 high, 3 realtime", in: inRun, binding: priority(func(o o) *int { return &o.CPUParams.Priority })},
		flagDef{name: "poll", arg: "N", help: "how hard idle threads poll for work, 0 to 100", in: inRun, binding: intVar(func(o o) *int { return &o.CPUParams.Poll }, 0, 100)},
		flagDef{name: "cpu-mask-batch", alias: []string{"-Cb"}, arg: "HEX", def: "as --cpu-mask", help: "the same for the threads of -tb", in: inRun, share: "cpu-mask-batch", binding: cpuVar(func(o o) *[]int { return &o.CPUParamsBatch.CPUMask }, parseCPUMask, true)},
		flagDef{name: "cpu-range-batch", alias: []string{"-Crb"}, arg: "LO-HI", def: "as --cpu-range", help: "the same for the threads of -tb", in: inRun, share: "cpu-mask-batch", binding: cpuVar(func(o o) *[]int { return &o.CPUParamsBatch.CPUMask }, parseCPURange, false)},
		flagDef{name: "cpu-strict-batch", arg: "0|1", def: "as --cpu-strict", help: "the same for the threads of -tb", in: inRun, binding: zeroOne(func(o o) *bool { return &o.CPUParamsBatch.StrictCPU })},
		flagDef{name: "prio-batch", arg: "N", def: "as --prio", help: "the same for the threads of -tb", in: inRun, binding: priority(func(o o) *int { return &o.CPUParamsBatch.Priority })},
		flagDef{name: "poll-batch", arg: "N", def: "as --poll", help: "the same for the threads of -tb", in: inRun, binding: intVar(func(o o) *int { return &o.CPUParamsBatch.Poll }, 0, 100)},
		flagDef{name: "numa", env: "LLAMA_ARG_NUMA", arg: "TYPE", def: "off", help: "threads on a NUMA machine: distribute, isolate or numactl", in: inRun, binding: enumVar(func(o o) *engine.NUMAStrategy { return &o.NUMA }, engine.ParseNUMAStrategy)},
	)
}

func deviceFlags() []flagDef {
	type o = *options
	buft := func(o o) *[]engine.TensorBuftOverride { return &o.TensorBuftOverrides }
	return inGroup(groupDevices,
		flagDef{name: "n-gpu-layers", alias: []string{"-ngl", "--gpu-layers"}, env: "LLAMA_ARG_N_GPU_LAYERS", arg: "N", def: "auto", help: "layers in device memory: a number, auto or all", in: inRun,
			binding: binding{kind: kindMixed, set: func(o o, s string) error {
				v, err := parseLayers(s)
				if err == nil {
					o.NGPULayers = v
				}
				return err
			}, get: func(o o) any { return textLayers(o.NGPULayers) }}},
		flagDef{name: "device", alias: []string{"-dev"}, env: "LLAMA_ARG_DEVICE", arg: "NAME,...", def: "all", help: "devices to use, as gollama devices lists them; none uses the CPU only", in: inRun, binding: commaVar(func(o o) *[]string { return &o.Devices }, parseList)},
		flagDef{name: "split-mode", alias: []string{"-sm"}, env: "LLAMA_ARG_SPLIT_MODE", arg: "MODE", help: "how a model is spread over devices: none, layer, row or tensor", in: inRun, binding: enumVar(func(o o) *engine.SplitMode { return &o.SplitMode }, engine.ParseSplitMode)},
		flagDef{name: "tensor-split", alias: []string{"-ts"}, env: "LLAMA_ARG_TENSOR_SPLIT", arg: "N,N,...", def: "by free memory", help: "share of each device", in: inRun, binding: numbersVar()},
		flagDef{name: "main-gpu", alias: []string{"-mg"}, env: "LLAMA_ARG_MAIN_GPU", arg: "N", help: "device for the whole model with --split-mode none", in: inRun, binding: intVar(func(o o) *int { return &o.MainGPU }, 0, maxDevices-1)},
		flagDef{name: "fit", alias: []string{"-fit"}, env: "LLAMA_ARG_FIT", arg: "on|off", def: "on", help: "lower settings that were not given until the model fits the devices", in: inRun, binding: onOff(func(o o) *bool { return &o.FitParams })},
		flagDef{name: "fit-target", alias: []string{"-fitt"}, env: "LLAMA_ARG_FIT_TARGET", arg: "MIB,...", def: "1024", help: "memory that --fit leaves free on each device, MiB", in: inRun, binding: mibVar()},
		flagDef{name: "fit-ctx", alias: []string{"-fitc"}, env: "LLAMA_ARG_FIT_CTX", arg: "N", help: "context that --fit never goes below", in: inRun, binding: intVar(func(o o) *int { return &o.FitParamsMinCtx }, 0, maxInt32)},
		flagDef{name: "op-offload", fixed: map[string]string{"--no-op-offload": "false"}, help: "run operations on host tensors on the device", in: inRun, binding: notVar(func(o o) *bool { return &o.NoOpOffload })},
		flagDef{name: "override-tensor", alias: []string{"-ot"}, env: "LLAMA_ARG_OVERRIDE_TENSOR", arg: "PATTERN=BUFFER,...", def: "none", help: "put tensors whose name matches into a buffer type", in: inRun, share: "override-tensor", binding: listVar(buft, parseOverrideTensor, textOverrideTensor)},
		flagDef{name: "cpu-moe", alias: []string{"-cmoe"}, env: "LLAMA_ARG_CPU_MOE", help: "keep all expert weights on the CPU", in: inRun, share: "override-tensor",
			binding: binding{kind: kindBool, set: func(o o, s string) error {
				v, err := parseBool(s)
				if err == nil && v {
					o.TensorBuftOverrides = append(o.TensorBuftOverrides, engine.TensorBuftOverride{Pattern: expertTensors, Buft: "CPU"})
				}
				return err
			}}},
		flagDef{name: "n-cpu-moe", alias: []string{"-ncmoe"}, env: "LLAMA_ARG_N_CPU_MOE", arg: "N", def: "0", help: "keep expert weights of the first N layers on the CPU", in: inRun, share: "override-tensor", binding: firstLayersOnCPU(expertTensors)},
		flagDef{name: "n-cpu-ffn", alias: []string{"-ncffn"}, env: "LLAMA_ARG_N_CPU_FFN", arg: "N", def: "0", help: "keep dense feed-forward weights of the first N layers on the CPU", in: inRun, share: "override-tensor", binding: firstLayersOnCPU(denseTensors)},
		flagDef{name: "rpc", env: "LLAMA_ARG_RPC", arg: "HOST:PORT,...", def: "none", help: "use remote devices that ggml's rpc-server offers", in: inRun, binding: commaVar(func(o o) *[]string { return &o.RPCServers }, parseEndpoints)},
	)
}

func logFlags() []flagDef {
	type o = *options
	rows := inGroup(groupLogs,
		flagDef{name: "quiet", alias: []string{"-q", "--log-disable"}, help: "no progress, no warnings, no logs; errors only", in: inBoth, binding: boolVar(func(o o) *bool { return &o.quiet })},
		flagDef{name: "verbosity", alias: []string{"-lv", "--log-verbosity"}, fixed: map[string]string{"-v": "5", "--verbose": "5", "--log-verbose": "5"}, env: "LLAMA_ARG_LOG_VERBOSITY", arg: "N", help: "what is told: 1 errors, 2 warnings, 3 the engine's log too, 4 more of it, 5 all; -v is 5", in: inBoth,
			binding: intVar(func(o o) *int { return &o.Verbosity }, 0, 5)},
		flagDef{name: "log-file", env: "LLAMA_ARG_LOG_FILE", arg: "FILE", def: "none", help: "write the log to FILE too", in: inBoth, binding: fileVar(func(o o) *string { return &o.logFile })},
		flagDef{name: "log-json", alias: []string{"--log-jsonl"}, fixed: map[string]string{"--no-log-json": "false", "--no-log-jsonl": "false"}, env: "LLAMA_ARG_LOG_JSONL", help: "messages as one JSON object a line, still on standard error", in: inBoth, binding: boolVar(func(o o) *bool { return &o.logJSON })},
		flagDef{name: "log-colors", env: "LLAMA_ARG_LOG_COLORS", arg: "on|off|auto", help: "colours for the log; auto on a terminal", in: inBoth, binding: mixed(wordVar(func(o o) *string { return &o.logColors }, "on", "off", "auto"))},
		flagDef{name: "log-prefix", fixed: map[string]string{"--no-log-prefix": "false"}, env: "LLAMA_ARG_LOG_PREFIX", help: "the level before each line of the log", in: inBoth, binding: boolVar(func(o o) *bool { return &o.logPrefix })},
		flagDef{name: "log-timestamps", fixed: map[string]string{"--no-log-timestamps": "false"}, env: "LLAMA_ARG_LOG_TIMESTAMPS", help: "the time before each line of the log", in: inBoth, binding: boolVar(func(o o) *bool { return &o.logTimestamps })},
		flagDef{name: "perf", fixed: map[string]string{"--no-perf": "false"}, env: "LLAMA_ARG_PERF", help: "measure timings; shown in json and at --verbosity 3", in: inRun,
			binding: notVar(func(o o) *bool { return &o.NoPerf }).then(func(o o) { o.Sampling.NoPerf = o.NoPerf })},
		flagDef{name: "simple-io", help: "plain input and output; always so", in: inRun, binding: holds(true, "run never does anything else")},
	)
	return append(rows, inGroup(groupSettings,
		flagDef{name: "config", arg: "FILE", def: "none", help: "read settings from a YAML file: long names as keys, at the top or under the subcommand's name", in: inBoth, binding: fileVar(func(o o) *string { return &o.config }).unprinted()},
		flagDef{name: "print-config", help: "write the settings that would be used as YAML, and end", in: inBoth, binding: boolVar(func(o o) *bool { return &o.printConfig }).unprinted()},
		flagDef{name: "model-info", help: "show what the header of the model, adapter or projector -m says, and end; nothing is loaded; with --json as one object", in: inRun, binding: boolVar(func(o o) *bool { return &o.modelInfo }).unprinted()},
		flagDef{name: "json", help: "write one JSON object", in: inInfo + "finetune cvector-generate cvector-generate-info ", binding: boolVar(func(o o) *bool { return &o.json })},
	)...)
}

func rejectedFlags() []flagDef {
	return []flagDef{
		rejected("model-url", "URL", "LLAMA_ARG_MODEL_URL", noDownload, "-mu"),
		rejected("docker-repo", "REPO", "LLAMA_ARG_DOCKER_REPO", noDownload, "-dr"),
		rejected("hf-repo", "REPO", "LLAMA_ARG_HF_REPO", noDownload, "-hf", "-hfr"),
		rejected("hf-file", "FILE", "LLAMA_ARG_HF_FILE", noDownload, "-hff"),
		rejected("hf-token", "TOKEN", "", noDownload, "-hft"),
		rejected("cache-list", "", "", "gollama downloads nothing and has no cache of models", "-cl"),
		rejected("version", "", "", "use gollama version"),
		rejected("list-devices", "", "", "use gollama devices"),
		rejected("completion-bash", "", "", "use gollama completion bash"),
		rejected("multiline-input", "", "", `at the prompt of -i, """ begins and ends a text of several lines`, "-mli"),
		rejected("in-prefix-bos", "", "", noAffix),
		rejected("in-prefix", "TEXT", "", noAffix),
		rejected("in-suffix", "TEXT", "", noAffix),
		rejected("print-token-count", "N", "", "see usage in the object that --format json writes", "-ptc"),
		rejected("backend-sampling", "", "LLAMA_ARG_BACKEND_SAMPLING", "sampling is done on the CPU: leave it out", "-bs"),
		rejected("color", "on|off|auto", "", "the output holds the bytes of the text only; --log-colors colours the log", "-co"),
		rejected("defrag-thold", "N", "LLAMA_ARG_DEFRAG_THOLD", "it has no effect in llama.cpp any more: leave it out", "-dt"),
		rejected("grp-attn-n", "N", "LLAMA_ARG_GRP_ATTN_N", noSelfExtend, "-gan"),
		rejected("grp-attn-w", "N", "LLAMA_ARG_GRP_ATTN_W", noSelfExtend, "-gaw"),
	}
}

// inGroup puts rows into a section of the help.
func inGroup(group string, rows ...flagDef) []flagDef {
	for i := range rows {
		rows[i].group = group
	}
	return rows
}

// bit adds aliases and marks the setting as the user's.
func bit(f flagDef, c engine.SamplingConfig, alias ...string) flagDef {
	f.alias = append(f.alias, alias...)
	f.binding = f.then(samplingBit(c))
	return f
}

func withReset(b binding, reset func(*options)) binding { b.reset = reset; return b }

// when returns b shown by --print-config only if cond holds.
func (b binding) when(cond func(*options) bool) binding {
	get := b.get
	b.get = func(o *options) any {
		if cond(o) {
			return get(o)
		}
		return nil
	}
	return b
}

func mixed(b binding) binding {
	b.kind = kindMixed
	set := b.set
	b.set = func(o *options, s string) error {
		if v, err := parseBool(s); err == nil {
			s = map[bool]string{true: "on", false: "off"}[v]
		}
		return set(o, s)
	}
	return b
}

func resetGrammar(o *options) {
	o.Sampling.Grammar, o.Sampling.JSONSchema, o.grammarFile, o.schemaFile = "", "", "", ""
}

func flashAttn() binding {
	return mixed(enumVar(func(o *options) *engine.FlashAttnType { return &o.FlashAttnType }, engine.ParseFlashAttnType))
}

func ropeScaling() binding {
	b := enumVar(func(o *options) *engine.RopeScalingType { return &o.RopeScalingType }, engine.ParseRopeScalingType)
	return b.when(func(o *options) bool { return o.RopeScalingType != engine.RopeScalingUnspecified })
}

func zeroOne(p func(*options) *bool) binding {
	b := boolVar(p)
	b.kind = kindMixed
	return b
}

func onOff(p func(*options) *bool) binding { return zeroOne(p) }

// commaVar binds a list that one value holds whole; a later value replaces it.
func commaVar(p func(*options) *[]string, parse func(string) ([]string, error)) binding {
	b := listVar(p, parse, identity)
	set := b.set
	b.set = func(o *options, s string) error {
		old := *p(o)
		*p(o) = nil
		if err := set(o, s); err != nil {
			*p(o) = old
			return err
		}
		return nil
	}
	b.kind = kindString
	get := b.get
	b.get = func(o *options) any {
		if len(*p(o)) == 0 {
			return nil
		}
		text := ""
		for i, s := range get(o).([]string) {
			if i > 0 {
				text += ","
			}
			text += s
		}
		return text
	}
	return b
}

func numbersVar() binding {
	return binding{kind: kindMixed, set: func(o *options, s string) error {
		v, err := parseNumbers(s)
		if err == nil {
			o.TensorSplit = v
		}
		return err
	}, get: func(o *options) any {
		text := ""
		for i, v := range o.TensorSplit {
			if i > 0 {
				text += ","
			}
			text += strconv.FormatFloat(float64(v), 'g', -1, 32)
		}
		if text == "" {
			return nil
		}
		return text
	}}
}

func mibVar() binding {
	return binding{kind: kindMixed, set: func(o *options, s string) error {
		v, err := parseMiB(s)
		if err == nil {
			o.FitParamsTarget = v
		}
		return err
	}, get: func(o *options) any {
		text := ""
		for i, v := range o.FitParamsTarget {
			if i > 0 {
				text += ","
			}
			text += strconv.FormatUint(v>>20, 10)
		}
		if text == "" {
			return nil
		}
		return text
	}}
}

func layerRange() binding {
	return binding{kind: kindString, set: func(o *options, s string) error {
		var lo, hi int
		a, b, ok := cutAny(s, ", ")
		if !ok {
			return fmt.Errorf("%q: want START END", s)
		}
		var err error
		if lo, err = parseInt(a, 1, 100000); err != nil {
			return err
		}
		if hi, err = parseInt(b, 1, 100000); err != nil {
			return err
		}
		if hi < lo {
			return fmt.Errorf("the range %d to %d is empty", lo, hi)
		}
		o.ControlVectorLayerStart, o.ControlVectorLayerEnd = lo, hi
		return nil
	}, get: func(o *options) any {
		if o.ControlVectorLayerStart < 0 {
			return nil
		}
		return fmt.Sprintf("%d,%d", o.ControlVectorLayerStart, o.ControlVectorLayerEnd)
	}}
}

// dryBreakers replaces the default list with the first value of a level.
func dryBreakers() binding {
	b := listVar(func(o *options) *[]string { return &o.Sampling.DRYSequenceBreakers }, func(s string) ([]string, error) {
		switch s {
		case "":
			return nil, errors.New("the text is empty")
		case "none":
			return nil, nil
		}
		return []string{s}, nil
	}, identity)
	set := b.set
	b.set = func(o *options, s string) error {
		if s == "none" {
			o.Sampling.DRYSequenceBreakers = nil
			return nil
		}
		return set(o, s)
	}
	get := b.get
	b.get = func(o *options) any {
		if len(o.Sampling.DRYSequenceBreakers) == 0 {
			return []string{"none"}
		}
		return get(o)
	}
	return b
}
