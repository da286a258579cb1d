package main

import "slices"

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
	for i := range flagTable {
		name := flagTable[i].name
		if s := ofSampler[name]; s != "" && o.isSet(name) && !slices.Contains(chain, s) && o.Sampling.Mirostat == 0 {
			warn(name, s+" is not in --samplers")
		}
	}
	// llama.cpp computes the factor itself then (llama-context.cpp).
	if o.isSet("yarn-attn-factor") && o.YarnExtFactor != 0 {
		warn("yarn-attn-factor", "it is for --yarn-ext-factor 0")
	}
}
