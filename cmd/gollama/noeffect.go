package main

import (
	"reflect"
	"slices"
)

// ofSampler names the sampler that each setting is for.
var ofSampler = map[string]string{
	"top-k": "top_k", "top-p": "top_p", "min-p": "min_p", "typical-p": "typ_p", "top-n-sigma": "top_n_sigma",
	"xtc-probability": "xtc", "xtc-threshold": "xtc", "dynatemp-range": "temperature", "dynatemp-exp": "temperature",
	"repeat-penalty": "penalties", "presence-penalty": "penalties", "frequency-penalty": "penalties", "repeat-last-n": "penalties",
	"dry-multiplier": "dry", "dry-base": "dry", "dry-allowed-length": "dry", "dry-penalty-last-n": "dry", "dry-sequence-breaker": "dry",
	"adaptive-target": "adaptive_p", "adaptive-decay": "adaptive_p",
}

// warnNoEffect adds a warning for each flag that llama.cpp takes and then does
// not use, because of other flags.
func (o *options) warnNoEffect() {
	warn := func(name, why string) { o.warnings = append(o.warnings, "--"+name+" has no effect: "+why) }
	var chain []string
	for _, s := range o.Sampling.Samplers {
		chain = append(chain, s.String())
	}
	defaults := defaultOptions()
	for i := range flagTable {
		f := &flagTable[i]
		if !o.isSet(f.name) || f.get == nil || reflect.DeepEqual(f.get(o), f.get(defaults)) {
			continue // a printed config sets everything
		}
		switch s := ofSampler[f.name]; {
		case s != "" && !slices.Contains(chain, s) && o.Sampling.Mirostat == 0:
			warn(f.name, s+" is not in --samplers")
		case f.name == "yarn-attn-factor" && o.YarnExtFactor != 0: // llama.cpp computes it itself then (llama-context.cpp)
			warn(f.name, "it is for --yarn-ext-factor 0")
		}
	}
}
