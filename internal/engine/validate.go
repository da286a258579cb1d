package engine

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// Limits of the pinned engine.
const (
	maxThreads    = 512     // GGML_MAX_N_THREADS, ggml/include/ggml.h
	maxSequences  = 256     // LLAMA_MAX_SEQ, src/llama-cparams.h
	maxDevices    = 16      // llama_max_devices
	maxOverrideKV = 127     // llama_model_kv_override's arrays, less the final 0
	maxTokens     = 1 << 30 // beyond any context; keeps sums below 2^31
	maxWindow     = 1 << 24 // of the samplers' ring buffers, which are allocated whole
)

// checks collects the first value that is out of its range.
type checks struct{ err error }

func (c *checks) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

func (c *checks) between(flag string, v, lo, hi int) {
	if v < lo || v > hi {
		c.fail("%s: %d is not in the range %d to %d", flag, v, lo, hi)
	}
}

func (c *checks) float(flag string, v float32, lo, hi float64) {
	x := float64(v)
	switch {
	case math.IsNaN(x) || math.IsInf(x, 0):
		c.fail("%s: %v is not a finite number", flag, v)
	case x < lo && math.IsInf(hi, 1):
		c.fail("%s: %v is below %v", flag, v, lo)
	case x < lo || x > hi:
		c.fail("%s: %v is not in the range %v to %v", flag, v, lo, hi)
	}
}

func (c *checks) any(flag string, v float32) { c.float(flag, v, math.Inf(-1), math.Inf(1)) }

func known[T enum](c *checks, flag string, v T, names map[string]T) {
	for _, x := range names {
		if x == v {
			return
		}
	}
	c.fail("%s: unknown value %d, want one of %s", flag, int(v), strings.Join(enumNames(names), ", "))
}

// Validate returns an error of one line for the first value that the engine
// cannot use, with the flag's name, the value and the limit. What depends on a
// model is checked when that is loaded.
func (p *Params) Validate() error {
	c := &checks{}
	p.checkSizes(c)
	p.checkRope(c)
	p.checkDevices(c)
	p.checkThreads(c)
	p.checkEnums(c)
	p.checkCacheTypes(c)
	p.checkOverrides(c)
	p.Speculative.check(c)
	if c.err == nil {
		c.err = p.Sampling.Validate()
	}
	return c.err
}

func (p *Params) checkSizes(c *checks) {
	c.between("--predict", p.NPredict, -2, maxTokens)
	if p.NCtx != 0 {
		c.between("--ctx-size", p.NCtx, 8, maxTokens)
	}
	c.between("--batch-size", p.NBatch, 1, maxTokens)
	c.between("--ubatch-size", p.NUBatch, 1, maxTokens)
	c.between("--keep", p.NKeep, -1, maxTokens)
	c.between("--chunks", p.NChunks, -1, maxTokens)
	c.between("--parallel", p.NParallel, 1, maxSequences)
	c.between("--sequences", p.NSequences, 1, maxTokens)
	c.between("outputs per batch", p.NOutputsMax, 0, maxTokens)
	c.between("outputs per sequence", p.NOutputsMaxPerSeq, 0, maxTokens)
	if p.NOutputsMax != 0 && p.NOutputsMax < p.NParallel {
		c.fail("outputs per batch: %d is below --parallel %d", p.NOutputsMax, p.NParallel)
	}
	if p.GrpAttnN != 1 {
		c.fail("--grp-attn-n: %d: self-extend is not supported, only 1", p.GrpAttnN)
	}
	c.between("--fit-ctx", p.FitParamsMinCtx, 0, maxTokens)
}

func (p *Params) checkRope(c *checks) {
	inf := math.Inf(1)
	c.float("--rope-freq-base", p.RopeFreqBase, 0, inf)
	c.float("--rope-freq-scale", p.RopeFreqScale, 0, inf)
	c.any("--yarn-ext-factor", p.YarnExtFactor)
	c.any("--yarn-attn-factor", p.YarnAttnFactor)
	c.any("--yarn-beta-fast", p.YarnBetaFast)
	c.any("--yarn-beta-slow", p.YarnBetaSlow)
	c.between("--yarn-orig-ctx", p.YarnOrigCtx, 0, maxTokens)
}

func (p *Params) checkDevices(c *checks) {
	c.between("--gpu-layers", p.NGPULayers, math.MinInt32, math.MaxInt32)
	c.between("--main-gpu", p.MainGPU, -1, maxDevices-1)
	if len(p.TensorSplit) > maxDevices {
		c.fail("--tensor-split: %d values, the limit is %d devices", len(p.TensorSplit), maxDevices)
	}
	for _, x := range p.TensorSplit {
		c.float("--tensor-split", x, 0, math.Inf(1))
	}
	for _, d := range p.Devices {
		if d == "none" && len(p.Devices) > 1 {
			c.fail("--device: none stands alone")
		}
		if d == "" || strings.ContainsRune(d, 0) {
			c.fail("--device: %q is no name", d)
		}
	}
	if len(p.FitParamsTarget) > maxDevices {
		c.fail("--fit-target: %d values, the limit is %d devices", len(p.FitParamsTarget), maxDevices)
	}
}

func (p *Params) checkThreads(c *checks) {
	for _, x := range []struct {
		suffix string
		cpu    CPUParams
	}{{"", p.CPUParams}, {"-batch", p.CPUParamsBatch}} {
		if x.cpu.NThreads != -1 {
			c.between("--threads"+x.suffix, x.cpu.NThreads, 1, maxThreads)
		}
		c.between("--prio"+x.suffix, x.cpu.Priority, -1, 3)
		c.between("--poll"+x.suffix, x.cpu.Poll, 0, 100)
		for _, n := range x.cpu.CPUMask {
			c.between("--cpu-mask"+x.suffix, n, 0, maxThreads-1)
		}
	}
}

func (p *Params) checkEnums(c *checks) {
	known(c, "--split-mode", p.SplitMode, splitModes)
	known(c, "--load-mode", p.LoadMode, loadModes)
	known(c, "--lazy-mode", p.LazyMode, lazyModes)
	known(c, "--numa", p.NUMA, numaModes)
	known(c, "--rope-scaling", p.RopeScalingType, ropeScalings)
	known(c, "--pooling", p.PoolingType, poolings)
	known(c, "--attention", p.AttentionType, attentions)
	known(c, "--flash-attn", p.FlashAttnType, flashAttns)
	known(c, "--cache-type-k", p.CacheTypeK, cacheTypes)
	known(c, "--cache-type-v", p.CacheTypeV, cacheTypes)
}

// quantized reports whether t is stored in blocks.
func (v CacheType) quantized() bool { return v != CacheF32 && v != CacheF16 && v != CacheBF16 }

// cacheBlock is the block size of every quantized cache type.
const cacheBlock = 32

func (p *Params) checkCacheTypes(c *checks) {
	if p.CacheTypeV.quantized() && p.FlashAttnType == FlashAttnOff {
		c.fail("--cache-type-v: %s needs flash attention, which is off", p.CacheTypeV)
	}
}

func (p *Params) checkOverrides(c *checks) {
	for _, o := range p.KVOverrides {
		if o.Key == "" || len(o.Key) > maxOverrideKV || strings.ContainsRune(o.Key, 0) {
			c.fail("--override-kv: the key %.40q must have 1 to %d bytes", o.Key, maxOverrideKV)
		}
		switch v := o.Value.(type) {
		case int64, bool:
		case float64:
			if math.IsNaN(v) || math.IsInf(v, 0) {
				c.fail("--override-kv: %s: %v is not a finite number", o.Key, v)
			}
		case string:
			if len(v) > maxOverrideKV || strings.ContainsRune(v, 0) {
				c.fail("--override-kv: %s: a string has at most %d bytes", o.Key, maxOverrideKV)
			}
		default:
			c.fail("--override-kv: %s: a value of type %T cannot be set", o.Key, o.Value)
		}
	}
	for _, l := range p.LoRAAdapters {
		c.any("--lora-scaled", l.Scale)
	}
	for _, v := range p.ControlVectors {
		c.any("--control-vector-scaled", v.Strength)
	}
	for _, o := range p.TensorBuftOverrides {
		if o.Pattern == "" || o.Buft == "" {
			c.fail("--override-tensor: %q=%q lacks a part", o.Pattern, o.Buft)
		}
	}
}

// Validate returns an error of one line for the first value that the samplers
// cannot use, with the flag's name, the value and the limit.
func (p *SamplingParams) Validate() error {
	c := &checks{}
	inf := math.Inf(1)
	c.between("--top-k", p.TopK, math.MinInt32, math.MaxInt32)
	c.float("--top-p", p.TopP, 0, 1)
	c.float("--min-p", p.MinP, 0, 1)
	c.float("--xtc-probability", p.XTCProbability, 0, 1)
	c.float("--xtc-threshold", p.XTCThreshold, 0, 1)
	c.float("--typical", p.TypP, 0, 1)
	c.any("--temp", p.Temp)
	c.float("--dynatemp-range", p.DynatempRange, 0, inf)
	c.float("--dynatemp-exp", p.DynatempExponent, 0, inf)
	c.between("--n-prev", p.NPrev, 0, maxWindow)
	c.between("--n-probs", p.NProbs, 0, math.MaxInt32)
	c.between("--min-keep", p.MinKeep, 0, math.MaxInt32)
	c.any("--top-n-sigma", p.TopNSigma)
	p.checkPenalties(c)
	c.any("--adaptive-target", p.AdaptiveTarget)
	if p.AdaptiveTarget > 1 {
		c.fail("--adaptive-target: %v is above 1", p.AdaptiveTarget)
	}
	c.float("--adaptive-decay", p.AdaptiveDecay, 0, 0.99)
	c.between("--mirostat", p.Mirostat, 0, 2)
	c.float("--mirostat-ent", p.MirostatTau, 0, inf)
	c.float("--mirostat-lr", p.MirostatEta, 0, inf)
	for _, t := range p.Samplers {
		known(c, "--samplers", t, samplerTypes)
	}
	for _, b := range p.LogitBias {
		if b.Token < 0 || math.IsNaN(float64(b.Bias)) || math.IsInf(float64(b.Bias), 1) {
			c.fail("--logit-bias: %d:%v: want a token's id and a number or -inf", b.Token, b.Bias)
		}
	}
	c.between("--reasoning-budget", p.ReasoningBudgetTokens, -1, math.MaxInt32)
	if c.err == nil && p.BackendSampling {
		c.err = errors.New("--backend-sampling: it is not supported")
	}
	if c.err == nil && p.Grammar != "" && p.JSONSchema != "" {
		c.err = errors.New("--grammar and --json-schema exclude each other")
	}
	return c.err
}

func (p *SamplingParams) checkPenalties(c *checks) {
	inf := math.Inf(1)
	c.between("--repeat-last-n", p.PenaltyLastN, -1, maxWindow)
	if c.float("--repeat-penalty", p.PenaltyRepeat, 0, inf); p.PenaltyRepeat == 0 || math.IsInf(float64(1/p.PenaltyRepeat), 0) {
		c.fail("--repeat-penalty: %v is not above 0", p.PenaltyRepeat)
	}
	c.any("--frequency-penalty", p.PenaltyFreq)
	c.any("--presence-penalty", p.PenaltyPresent)
	c.float("--dry-multiplier", p.DRYMultiplier, 0, inf)
	c.float("--dry-base", p.DRYBase, 0, inf)
	c.between("--dry-allowed-length", p.DRYAllowedLength, 0, maxWindow)
	c.between("--dry-penalty-last-n", p.DRYPenaltyLastN, -1, maxWindow)
	for _, s := range p.DRYSequenceBreakers {
		if strings.ContainsRune(s, 0) {
			c.fail("--dry-sequence-breaker: it has a NUL byte")
		}
	}
}
