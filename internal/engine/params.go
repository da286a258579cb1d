package engine

// Params mirrors llama.cpp's common_params (common/common.h at v0.5.0) field
// by field: the same meaning, unit and default, in Go's spelling. A test
// parses the pinned header and fails on a field that is neither here nor in
// the list of those left out, so a new pin cannot add one unseen.
type Params struct {
	NPredict          int     // new tokens at most; -1 no limit, -2 until the context is full
	NCtx              int     // context, tokens; 0 means the model's training length
	NBatch            int     // logical batch, tokens
	NUBatch           int     // physical batch, tokens
	NKeep             int     // prompt tokens kept on a context shift; -1 all
	NChunks           int     // chunks to process; -1 all
	NParallel         int     // sequences decoded in parallel
	NSequences        int     // sequences to decode
	NOutputsMax       int     // outputs in a batch at most; 0 means NBatch
	NOutputsMaxPerSeq int     // outputs per sequence at most
	GrpAttnN          int     // self-extend factor; 1 is off
	GrpAttnW          int     // self-extend width, tokens
	RopeFreqBase      float32 // 0 means the model's
	RopeFreqScale     float32 // 0 means the model's
	YarnExtFactor     float32 // extrapolation mix; -1 means the model's
	YarnAttnFactor    float32 // magnitude scale; -1 means the model's
	YarnBetaFast      float32 // low correction dimension; -1 means the model's
	YarnBetaSlow      float32 // high correction dimension; -1 means the model's
	YarnOrigCtx       int     // original context, tokens; 0 means the model's

	Devices         []string  // names of the devices to offload to; empty means all, ["none"] none
	NGPULayers      int       // layers in device memory; -1 auto, -2 or less all
	MainGPU         int       // device for the whole model with SplitModeNone
	TensorSplit     []float32 // share of each device; empty means by free memory
	FitParams       bool      // lower unset parameters until the model fits device memory
	FitParamsMinCtx int       // tokens that fitting never goes below
	FitParamsTarget []uint64  // bytes left free on each device by fitting; empty means 1 GiB

	SplitMode SplitMode
	LoadMode  LoadMode
	LazyMode  LazyMode

	CPUParams      CPUParams // generation
	CPUParamsBatch CPUParams // prompts and batches; NThreads -1 means CPUParams'

	NUMA            NUMAStrategy
	RopeScalingType RopeScalingType
	PoolingType     PoolingType
	AttentionType   AttentionType
	FlashAttnType   FlashAttnType

	Sampling    SamplingParams
	Speculative SpeculativeParams

	Model           string // path of the GGUF file, or of the first of a split model
	Prompt          string
	SystemPrompt    string
	PromptFile      string // "-" is standard input
	PathPromptCache string
	InputPrefix     string
	InputSuffix     string
	Antiprompt      []string // stop strings, never printed
	InFiles         []string

	KVOverrides         []KVOverride
	TensorBuftOverrides []TensorBuftOverride

	LoRAAdapters            []LoRAInfo
	LoRAInitWithoutApply    bool // load adapters, apply none
	ControlVectors          []ControlVectorInfo
	ControlVectorLayerStart int // first layer, from 1; -1 means 1
	ControlVectorLayerEnd   int // last layer, inclusive; -1 means the last

	Verbosity int // 0 output, 1 errors, 2 warnings, 3 info, 4 trace, 5 debug

	Escape        bool // process \n, \t and the like in Prompt; off by default here, on upstream
	NoPerf        bool // measure no timings
	CtxShift      bool // shift the context when it is full instead of ending
	SWAFull       bool // full-size cache for sliding-window layers
	KVUnified     bool // one cache buffer for all sequences
	DisplayPrompt bool // print the prompt before the answer (--echo); off by default here, on upstream
	VerbosePrompt bool // log the prompt's tokens
	Special       bool // print special tokens
	NoKVOffload   bool // keep the KV cache in host memory
	Warmup        bool // run once before timing
	CheckTensors  bool // validate tensor data on load
	NoOpOffload   bool // keep operations on host tensors on the host
	NoExtraBufts  bool // no weight repacking
	NoHost        bool // bypass the host buffer
	NoAlloc       bool // load metadata, allocate nothing

	CacheTypeK CacheType // KV cache type of K
	CacheTypeV CacheType // KV cache type of V

	MMProj             string   // projector file of a multimodal model
	MMProjUseGPU       bool     // encode media on the GPU
	MMProjDevice       string   // device that encodes media; empty means the first
	NoMMProj           bool     // never use a projector
	Image              []string // media files, any kind
	ImageMinTokens     int      // -1 means the model's
	ImageMaxTokens     int      // -1 means the model's
	MTMDBatchMaxTokens int      // media tokens encoded together

	LR        LROpt     // finetune
	Optimizer Optimizer // finetune
	ValSplit  float32   // share of the data used for validation, in [0, 1)

	NOutFreq       int  // imatrix: write every n chunks
	NSaveFreq      int  // imatrix: keep a copy every n chunks; 0 never
	IChunk         int  // imatrix: first chunk
	ImatDat        int8 // imatrix: 1 writes the legacy format
	ProcessOutput  bool // imatrix: collect the output tensor too
	ComputePPL     bool // imatrix: compute perplexity
	ShowStatistics bool // imatrix: print statistics
	ParseSpecial   bool // imatrix: parse special tokens in the text

	NPCABatch           int // cvector-generate
	NPCAIterations      int // cvector-generate
	CVectorDimreMethod  DimreMethod
	CVectorPositiveFile string // empty means the built-in list
	CVectorNegativeFile string // empty means the built-in list

	TokenizeIDs       bool
	TokenizeStdin     bool
	TokenizeNoBOS     bool
	TokenizeShowCount bool

	ChatTemplate           string
	UseJinja               bool
	EnableChatTemplate     bool
	ForcePureContentParser bool
	EnableReasoning        int               // -1 auto, 0 off, 1 on
	PrefillAssistant       bool              // a trailing assistant message is continued
	DefaultTemplateKwargs  map[string]string // JSON values by name
	SingleTurn             bool

	OutFile string // "-" or empty is standard output

	// LoadProgressCallback gets values that rise from 0 to 1 while a model
	// loads; returning false cancels the load with ErrCanceled.
	LoadProgressCallback func(progress float32) bool

	// RPCServers and VocabOnly have no field in common_params: upstream acts
	// on --rpc while it parses, and sets vocab_only in the tools.
	RPCServers []string // host:port of each remote device
	VocabOnly  bool     // load the vocabulary and no weights
}

// CPUParams mirrors common_cpu_params.
type CPUParams struct {
	NThreads  int   // -1 means DefaultThreads
	CPUMask   []int // CPUs to run on; empty means any
	Priority  int   // -1 low, 0 normal, 1 medium, 2 high, 3 realtime
	StrictCPU bool  // pin each thread to one CPU of the mask
	Poll      int   // 0 sleeps while waiting for work, 100 spins
}

// SamplingParams mirrors common_params_sampling.
type SamplingParams struct {
	Seed             uint32  // RandomSeed means a fresh one
	NPrev            int     // tokens remembered
	NProbs           int     // alternatives reported with each token
	MinKeep          int     // candidates that each sampler leaves at least
	TopK             int     // 0 or less means all
	TopP             float32 // 1 is off
	MinP             float32 // 0 is off
	XTCProbability   float32 // 0 is off
	XTCThreshold     float32 // above 0.5 is off
	TypP             float32 // 1 is off
	Temp             float32 // 0 or less is greedy
	DynatempRange    float32 // 0 is off
	DynatempExponent float32
	PenaltyLastN     int // tokens looked back on; 0 is off, -1 the context
	PenaltyRepeat    float32
	PenaltyFreq      float32
	PenaltyPresent   float32
	DRYMultiplier    float32 // 0 is off
	DRYBase          float32
	DRYAllowedLength int
	DRYPenaltyLastN  int     // 0 is off, -1 the context
	AdaptiveTarget   float32 // negative is off
	AdaptiveDecay    float32 // 0 to 0.99
	Mirostat         int     // 0, 1 or 2
	TopNSigma        float32 // 0 or less is off
	MirostatTau      float32
	MirostatEta      float32
	IgnoreEOS        bool
	NoPerf           bool

	// UserSamplingConfig names, by flag, the samplers a user set: values in
	// the model's own metadata replace only the others.
	UserSamplingConfig SamplingConfig

	DRYSequenceBreakers []string
	Samplers            []SamplerType // order of the chain

	Grammar    string // GBNF; empty is none
	JSONSchema string // converted to a grammar; empty is none

	// What belongs to the answer to a conversation; ChatPrompt.Sampling sets it.
	GrammarOfChat   bool             // the grammar is the template's: it begins where GenerationPrompt does
	GrammarLazy     bool             // the grammar holds only after one of GrammarTriggers, outside of reasoning
	GrammarTriggers []GrammarTrigger //
	// GenerationPrompt is the end of the prompt, from where the assistant begins to speak.
	GenerationPrompt string
	// A reasoning that has begun with ReasoningBudgetStart is ended after that many tokens, by
	// ReasoningBudgetMessage and the first of ReasoningBudgetEnd. -1 is no limit.
	ReasoningBudgetTokens  int
	ReasoningBudgetStart   string   // e.g. <think>; empty: the template knows no reasoning
	ReasoningBudgetEnd     []string // e.g. </think>
	ReasoningBudgetMessage string

	LogitBias       []LogitBias
	BackendSampling bool // sample on the device
}

// RandomSeed asks for a fresh seed (LLAMA_DEFAULT_SEED).
const RandomSeed uint32 = 0xFFFFFFFF

// LogitBias adds Bias to one token's logit.
type LogitBias struct {
	Token Token
	Bias  float32
}

// LoRAInfo names an adapter file and its scale.
type LoRAInfo struct {
	Path  string
	Scale float32
}

// ControlVectorInfo names a control vector file and its strength.
type ControlVectorInfo struct {
	Path     string
	Strength float32
}

// KVOverride replaces one metadata value of the model: Value is an int64,
// float64, bool or string of at most 127 bytes.
type KVOverride struct {
	Key   string
	Value any
}

// TensorBuftOverride puts tensors whose name matches Pattern into the buffer
// type of that name.
type TensorBuftOverride struct {
	Pattern string
	Buft    string
}

// LROpt mirrors lr_opt, finetune's learning rate schedule.
type LROpt struct {
	LR0         float32 // at the first epoch
	LRMin       float32 // -1 means LR0
	DecayEpochs float32 // -1 means no decay
	WD          float32 // weight decay
	Epochs      uint
}

// Token is a token's id.
type Token int32

// TokenNull is no token (LLAMA_TOKEN_NULL).
const TokenNull Token = -1

// SamplingConfig is a set of sampler settings (common_params_sampling_config).
type SamplingConfig uint64

// The settings that a model's metadata may provide.
const (
	ConfigSamplers SamplingConfig = 1 << iota
	ConfigTopK
	ConfigTopP
	ConfigMinP
	ConfigXTCProbability
	ConfigXTCThreshold
	ConfigTemp
	ConfigPenaltyLastN
	ConfigPenaltyRepeat
	ConfigMirostat
	ConfigMirostatTau
	ConfigMirostatEta
)

// The enumerations below hold the C values; each has String and a Parse
// function that names the valid values in its error.
type (
	// SplitMode says how a model is spread over devices.
	SplitMode int
	// LoadMode says how a model file is read.
	LoadMode int
	// LazyMode says whether rows of marked tensors are read on demand.
	LazyMode int
	// NUMAStrategy says how threads are placed on NUMA nodes.
	NUMAStrategy int
	// RopeScalingType is the RoPE scaling method.
	RopeScalingType int
	// PoolingType says how embeddings are pooled.
	PoolingType int
	// AttentionType is the attention of an embedding model.
	AttentionType int
	// FlashAttnType says when flash attention is used.
	FlashAttnType int
	// CacheType is a KV cache type, with the value of its ggml_type.
	CacheType int
	// SamplerType is a link of the sampler chain (common_sampler_type).
	SamplerType int
	// DimreMethod is cvector-generate's method.
	DimreMethod int
	// Optimizer is finetune's optimizer.
	Optimizer int
)

// Values of the enumerations.
const (
	SplitNone   SplitMode = 0
	SplitLayer  SplitMode = 1
	SplitRow    SplitMode = 2
	SplitTensor SplitMode = 3

	LoadAuto      LoadMode = -1
	LoadNone      LoadMode = 0
	LoadMmap      LoadMode = 1
	LoadMlock     LoadMode = 2
	LoadMmapMlock LoadMode = 3
	LoadDirectIO  LoadMode = 4

	LazyOff  LazyMode = 0
	LazyAuto LazyMode = 1
	LazyOn   LazyMode = 2

	NUMADisabled   NUMAStrategy = 0
	NUMADistribute NUMAStrategy = 1
	NUMAIsolate    NUMAStrategy = 2
	NUMANumactl    NUMAStrategy = 3

	RopeScalingUnspecified RopeScalingType = -1
	RopeScalingNone        RopeScalingType = 0
	RopeScalingLinear      RopeScalingType = 1
	RopeScalingYarn        RopeScalingType = 2

	PoolingUnspecified PoolingType = -1
	PoolingNone        PoolingType = 0
	PoolingMean        PoolingType = 1
	PoolingCLS         PoolingType = 2
	PoolingLast        PoolingType = 3
	PoolingRank        PoolingType = 4

	AttentionUnspecified AttentionType = -1
	AttentionCausal      AttentionType = 0
	AttentionNonCausal   AttentionType = 1

	FlashAttnAuto FlashAttnType = -1
	FlashAttnOff  FlashAttnType = 0
	FlashAttnOn   FlashAttnType = 1

	CacheF32   CacheType = 0
	CacheF16   CacheType = 1
	CacheQ4_0  CacheType = 2
	CacheQ4_1  CacheType = 3
	CacheQ5_0  CacheType = 6
	CacheQ5_1  CacheType = 7
	CacheQ8_0  CacheType = 8
	CacheIQ4NL CacheType = 20
	CacheBF16  CacheType = 30

	SamplerDRY         SamplerType = 1
	SamplerTopK        SamplerType = 2
	SamplerTopP        SamplerType = 3
	SamplerMinP        SamplerType = 4
	SamplerTypicalP    SamplerType = 6
	SamplerTemperature SamplerType = 7
	SamplerXTC         SamplerType = 8
	SamplerInfill      SamplerType = 9
	SamplerPenalties   SamplerType = 10
	SamplerTopNSigma   SamplerType = 11
	SamplerAdaptiveP   SamplerType = 12

	DimrePCA  DimreMethod = 0
	DimreMean DimreMethod = 1

	OptimizerAdamW Optimizer = 0
	OptimizerSGD   Optimizer = 1
)

// DefaultParams returns common_params' defaults, but for Escape and
// DisplayPrompt: prompts are verbatim here and are not echoed.
func DefaultParams() Params {
	return Params{
		NPredict: -1, NBatch: 2048, NUBatch: 512, NChunks: -1,
		NParallel: 1, NSequences: 1, NOutputsMaxPerSeq: 1,
		GrpAttnN: 1, GrpAttnW: 512,
		YarnExtFactor: -1, YarnAttnFactor: -1, YarnBetaFast: -1, YarnBetaSlow: -1,
		NGPULayers: -1, FitParams: true, FitParamsMinCtx: 4096,
		SplitMode: SplitLayer, LoadMode: LoadAuto, LazyMode: LazyAuto,
		CPUParams: DefaultCPUParams(), CPUParamsBatch: DefaultCPUParams(),
		RopeScalingType: RopeScalingUnspecified, PoolingType: PoolingUnspecified,
		AttentionType: AttentionUnspecified, FlashAttnType: FlashAttnAuto,
		Sampling: DefaultSamplingParams(), Speculative: DefaultSpeculativeParams(),
		ControlVectorLayerStart: -1, ControlVectorLayerEnd: -1,
		Verbosity: 2,
		Warmup:    true, CacheTypeK: CacheF16, CacheTypeV: CacheF16,
		MMProjUseGPU: true, ImageMinTokens: -1, ImageMaxTokens: -1, MTMDBatchMaxTokens: 1024,
		LR:       LROpt{LR0: 1e-5, LRMin: -1, DecayEpochs: -1, Epochs: 2},
		ValSplit: 0.05, NOutFreq: 10, ComputePPL: true,
		NPCABatch: 100, NPCAIterations: 1000,
		UseJinja: true, EnableChatTemplate: true, EnableReasoning: -1, PrefillAssistant: true,
	}
}

// DefaultCPUParams returns common_cpu_params' defaults.
func DefaultCPUParams() CPUParams { return CPUParams{NThreads: -1, Poll: 50} }

// DefaultSamplingParams returns common_params_sampling's defaults.
func DefaultSamplingParams() SamplingParams {
	return SamplingParams{
		Seed: RandomSeed, NPrev: 64, TopK: 40, TopP: 0.95, MinP: 0.05, XTCThreshold: 0.1,
		TypP: 1, Temp: 0.8, DynatempExponent: 1, PenaltyLastN: 64, PenaltyRepeat: 1,
		DRYBase: 1.75, DRYAllowedLength: 2, DRYPenaltyLastN: 64,
		AdaptiveTarget: -1, AdaptiveDecay: 0.9, TopNSigma: -1, MirostatTau: 5, MirostatEta: 0.1, ReasoningBudgetTokens: -1,
		DRYSequenceBreakers: []string{"\n", ":", "\"", "*"},
		Samplers: []SamplerType{SamplerPenalties, SamplerDRY, SamplerTopNSigma, SamplerTopK,
			SamplerTypicalP, SamplerTopP, SamplerMinP, SamplerXTC, SamplerTemperature},
	}
}
