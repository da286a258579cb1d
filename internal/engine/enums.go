package engine

import (
	"fmt"
	"sort"
	"strings"
)

type enum interface{ ~int }

var (
	splitModes    = map[string]SplitMode{"none": SplitNone, "layer": SplitLayer, "row": SplitRow, "tensor": SplitTensor}
	loadModes     = map[string]LoadMode{"auto": LoadAuto, "none": LoadNone, "mmap": LoadMmap, "mlock": LoadMlock, "mmap+mlock": LoadMmapMlock, "dio": LoadDirectIO}
	lazyModes     = map[string]LazyMode{"off": LazyOff, "auto": LazyAuto, "on": LazyOn}
	numaModes     = map[string]NUMAStrategy{"disabled": NUMADisabled, "distribute": NUMADistribute, "isolate": NUMAIsolate, "numactl": NUMANumactl}
	ropeScalings  = map[string]RopeScalingType{"unspecified": RopeScalingUnspecified, "none": RopeScalingNone, "linear": RopeScalingLinear, "yarn": RopeScalingYarn}
	poolings      = map[string]PoolingType{"unspecified": PoolingUnspecified, "none": PoolingNone, "mean": PoolingMean, "cls": PoolingCLS, "last": PoolingLast, "rank": PoolingRank}
	attentions    = map[string]AttentionType{"unspecified": AttentionUnspecified, "causal": AttentionCausal, "non-causal": AttentionNonCausal}
	flashAttns    = map[string]FlashAttnType{"auto": FlashAttnAuto, "off": FlashAttnOff, "on": FlashAttnOn}
	cacheTypes    = map[string]CacheType{"f32": CacheF32, "f16": CacheF16, "bf16": CacheBF16, "q8_0": CacheQ8_0, "q4_0": CacheQ4_0, "q4_1": CacheQ4_1, "iq4_nl": CacheIQ4NL, "q5_0": CacheQ5_0, "q5_1": CacheQ5_1}
	samplerTypes  = map[string]SamplerType{"dry": SamplerDRY, "top_k": SamplerTopK, "top_p": SamplerTopP, "min_p": SamplerMinP, "typ_p": SamplerTypicalP, "temperature": SamplerTemperature, "xtc": SamplerXTC, "infill": SamplerInfill, "penalties": SamplerPenalties, "top_n_sigma": SamplerTopNSigma, "adaptive_p": SamplerAdaptiveP}
	samplerChars  = map[string]SamplerType{"d": SamplerDRY, "k": SamplerTopK, "p": SamplerTopP, "m": SamplerMinP, "y": SamplerTypicalP, "t": SamplerTemperature, "x": SamplerXTC, "i": SamplerInfill, "e": SamplerPenalties, "s": SamplerTopNSigma, "a": SamplerAdaptiveP}
	dimreMethods  = map[string]DimreMethod{"pca": DimrePCA, "mean": DimreMean}
	optimizerList = map[string]Optimizer{"adamw": OptimizerAdamW, "sgd": OptimizerSGD}
)

func parseEnum[T enum](what, s string, names map[string]T) (T, error) {
	if v, ok := names[s]; ok {
		return v, nil
	}
	return 0, fmt.Errorf("unknown %s %q, want one of %s", what, s, strings.Join(enumNames(names), ", "))
}

// enumNames returns the names in the order of their values.
func enumNames[T enum](names map[string]T) []string {
	keys := make([]string, 0, len(names))
	for k := range names {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool { return names[keys[i]] < names[keys[j]] })
	return keys
}

func enumString[T enum](v T, names map[string]T) string {
	for name, x := range names {
		if x == v {
			return name
		}
	}
	return fmt.Sprintf("%d", int(v))
}

func (v SplitMode) String() string       { return enumString(v, splitModes) }
func (v LoadMode) String() string        { return enumString(v, loadModes) }
func (v LazyMode) String() string        { return enumString(v, lazyModes) }
func (v NUMAStrategy) String() string    { return enumString(v, numaModes) }
func (v RopeScalingType) String() string { return enumString(v, ropeScalings) }
func (v PoolingType) String() string     { return enumString(v, poolings) }
func (v AttentionType) String() string   { return enumString(v, attentions) }
func (v FlashAttnType) String() string   { return enumString(v, flashAttns) }
func (v CacheType) String() string       { return enumString(v, cacheTypes) }
func (v SamplerType) String() string     { return enumString(v, samplerTypes) }
func (v DimreMethod) String() string     { return enumString(v, dimreMethods) }
func (v Optimizer) String() string       { return enumString(v, optimizerList) }

// ParseSplitMode reads none, layer, row or tensor.
func ParseSplitMode(s string) (SplitMode, error) { return parseEnum("split mode", s, splitModes) }

// ParseLoadMode reads auto, none, mmap, mlock, mmap+mlock or dio.
func ParseLoadMode(s string) (LoadMode, error) { return parseEnum("load mode", s, loadModes) }

// ParseLazyMode reads off, auto or on.
func ParseLazyMode(s string) (LazyMode, error) { return parseEnum("lazy mode", s, lazyModes) }

// ParseNUMAStrategy reads disabled, distribute, isolate or numactl.
func ParseNUMAStrategy(s string) (NUMAStrategy, error) {
	return parseEnum("NUMA strategy", s, numaModes)
}

// ParseRopeScalingType reads unspecified, none, linear or yarn.
func ParseRopeScalingType(s string) (RopeScalingType, error) {
	return parseEnum("RoPE scaling", s, ropeScalings)
}

// ParsePoolingType reads unspecified, none, mean, cls, last or rank.
func ParsePoolingType(s string) (PoolingType, error) { return parseEnum("pooling", s, poolings) }

// ParseAttentionType reads unspecified, causal or non-causal.
func ParseAttentionType(s string) (AttentionType, error) {
	return parseEnum("attention", s, attentions)
}

// ParseFlashAttnType reads auto, off or on.
func ParseFlashAttnType(s string) (FlashAttnType, error) {
	return parseEnum("flash attention mode", s, flashAttns)
}

// ParseCacheType reads a KV cache type, such as f16 or q8_0.
func ParseCacheType(s string) (CacheType, error) { return parseEnum("cache type", s, cacheTypes) }

// ParseDimreMethod reads pca or mean.
func ParseDimreMethod(s string) (DimreMethod, error) { return parseEnum("method", s, dimreMethods) }

// ParseOptimizer reads adamw or sgd.
func ParseOptimizer(s string) (Optimizer, error) {
	return parseEnum("optimizer", strings.ToLower(s), optimizerList)
}

// ParseSamplers reads a chain's order by names: "top_k;top_p;temperature".
// An empty string is an empty chain, which draws from the plain distribution.
func ParseSamplers(s string) ([]SamplerType, error) {
	chain := []SamplerType{}
	for _, name := range strings.FieldsFunc(s, func(r rune) bool { return r == ';' }) {
		if alias, ok := samplerAliases[name]; ok {
			name = alias
		}
		t, err := parseEnum("sampler", name, samplerTypes)
		if err != nil {
			return nil, err
		}
		chain = append(chain, t)
	}
	return chain, nil
}

// samplerAliases are upstream's other spellings of the samplers' names.
var samplerAliases = map[string]string{
	"top-k": "top_k", "top-p": "top_p", "nucleus": "top_p", "typical-p": "typ_p", "typical": "typ_p",
	"typ-p": "typ_p", "typ": "typ_p", "min-p": "min_p", "temp": "temperature",
	"top-n-sigma": "top_n_sigma", "adaptive-p": "adaptive_p",
}

// ParseSamplerSequence reads a chain's order by letters: "edskypmxt".
func ParseSamplerSequence(s string) ([]SamplerType, error) {
	chain := []SamplerType{}
	for _, c := range s {
		t, err := parseEnum("sampler letter", string(c), samplerChars)
		if err != nil {
			return nil, err
		}
		chain = append(chain, t)
	}
	return chain, nil
}
