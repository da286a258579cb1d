package engine

import (
	"fmt"
	"slices"
	"strings"
)

// SpecType is a way to guess the tokens that come next, in the order of
// common_speculative_type.
type SpecType int

// The ways to guess. Those of draft models that read the hidden states of the
// target (EAGLE-3, MTP, DFlash, DSpark) are known by name only.
const (
	SpecNone        SpecType = 0
	SpecDraftSimple SpecType = 1  // a smaller model
	SpecDraftEagle3 SpecType = 2  // not supported
	SpecDraftMTP    SpecType = 3  // not supported
	SpecDraftDFlash SpecType = 4  // not supported
	SpecDraftDSpark SpecType = 5  // not supported
	SpecNgramSimple SpecType = 6  // what followed the last tokens when they came before
	SpecNgramMapK   SpecType = 7  // the same, with a table of the n-grams that came
	SpecNgramMapK4V SpecType = 8  // the same, with up to four continuations of each
	SpecNgramMod    SpecType = 9  // a table of hashes that all sequences share
	SpecNgramCache  SpecType = 10 // counts of what followed up to four tokens
)

var specTypes = []string{"none", "draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark",
	"ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"}

// String returns the name that ParseSpecTypes reads.
func (t SpecType) String() string {
	if t < 0 || int(t) >= len(specTypes) {
		return fmt.Sprintf("SpecType(%d)", int(t))
	}
	return specTypes[t]
}

// DraftModel reports whether the type needs a draft model.
func (t SpecType) DraftModel() bool { return t >= SpecDraftSimple && t <= SpecDraftDSpark }

// ParseSpecTypes reads names with commas between; none among them empties the list.
func ParseSpecTypes(s string) ([]SpecType, error) {
	var list []SpecType
	for name := range strings.SplitSeq(s, ",") {
		i := slices.Index(specTypes, name)
		t := SpecType(i)
		switch {
		case i < 0:
			return nil, fmt.Errorf("unknown type %q, want some of none, %s", name, strings.Join(append([]string{"draft-simple"}, specTypes[SpecNgramSimple:]...), ", "))
		case t == SpecNone:
			return nil, nil
		case t.DraftModel() && t != SpecDraftSimple:
			return nil, fmt.Errorf("%s is not supported: it reads the hidden states of the model", name)
		case !slices.Contains(list, t):
			list = append(list, t)
		}
	}
	return list, nil
}

// SpeculativeParams mirrors common_params_speculative: how tokens are guessed
// that the model then confirms or not, several in one evaluation.
type SpeculativeParams struct {
	Types       []SpecType // asked in llama.cpp's order until one has a guess; empty is none
	Draft       DraftParams
	NgramMod    NgramModParams
	NgramSimple NgramParams
	NgramMapK   NgramParams
	NgramMapK4V NgramParams
}

// DraftParams mirrors common_params_speculative_draft.
type DraftParams struct {
	Model          string // path of the draft model, may be empty
	NMax           int    // tokens guessed at once, at most
	NMin           int    // fewer are dropped
	PMin           float32
	NGPULayers     int // as Params.NGPULayers
	CacheTypeK     CacheType
	CacheTypeV     CacheType
	CPUParams      CPUParams // NThreads -1 means the target's; at most those, whose threads compute
	CPUParamsBatch CPUParams // the same for prompts
	Devices        []string  // empty means the target's
}

// NgramModParams mirrors common_params_speculative_ngram_mod, in tokens.
type NgramModParams struct{ NMatch, NMax, NMin int }

// NgramParams mirrors common_params_speculative_ngram_map: SizeN tokens are
// looked up, up to SizeM that followed them are the guess, if they came MinHits times.
type NgramParams struct{ SizeN, SizeM, MinHits int }

// DefaultSpeculativeParams returns common_params_speculative's defaults.
func DefaultSpeculativeParams() SpeculativeParams {
	n := NgramParams{SizeN: 12, SizeM: 48, MinHits: 1}
	cpu := DefaultCPUParams()
	return SpeculativeParams{
		Draft:    DraftParams{NMax: 3, NGPULayers: -1, CacheTypeK: CacheF16, CacheTypeV: CacheF16, CPUParams: cpu, CPUParamsBatch: cpu},
		NgramMod: NgramModParams{NMatch: 24, NMax: 64, NMin: 48}, NgramSimple: n, NgramMapK: n, NgramMapK4V: n,
	}
}

// Enabled reports whether tokens are guessed at all.
func (p *SpeculativeParams) Enabled() bool { return len(p.Types) > 0 }

// NeedsModel reports whether a type needs a draft model.
func (p *SpeculativeParams) NeedsModel() bool {
	return slices.ContainsFunc(p.Types, SpecType.DraftModel)
}

// ForDraft returns the settings of the draft model's load and context: the
// target's, but for what Speculative.Draft says, and without its adapters
// (common_base_params_to_speculative in llama.cpp's common/speculative.cpp).
func (p *Params) ForDraft() Params {
	d := p.Speculative.Draft
	q := *p
	q.Model, q.NGPULayers, q.CacheTypeK, q.CacheTypeV = d.Model, d.NGPULayers, d.CacheTypeK, d.CacheTypeV
	if len(d.Devices) > 0 {
		q.Devices = d.Devices
	}
	if d.CPUParams.NThreads > 0 {
		q.CPUParams.NThreads = d.CPUParams.NThreads
		q.CPUParamsBatch.NThreads = d.CPUParams.NThreads
	}
	if d.CPUParamsBatch.NThreads > 0 {
		q.CPUParamsBatch.NThreads = d.CPUParamsBatch.NThreads
	}
	q.LoRAAdapters, q.ControlVectors, q.TensorBuftOverrides = nil, nil, nil
	q.FitParams = false
	q.NOutputsMax, q.NOutputsMaxPerSeq = p.NParallel, 1
	q.PoolingType = PoolingUnspecified
	return q
}

// check says what is wrong with p; threads are those of the target.
func (p *SpeculativeParams) check(c *checks) {
	for _, t := range p.Types {
		if t != SpecDraftSimple && (t < SpecNgramSimple || int(t) >= len(specTypes)) {
			c.fail("--spec-type: %s is not supported", t)
		}
	}
	if p.NeedsModel() && p.Draft.Model == "" {
		c.fail("--spec-type: draft-simple needs a draft model (--spec-draft-model)")
	}
	c.between("--spec-draft-n-max", p.Draft.NMax, 1, MaxDraft)
	c.between("--spec-draft-n-min", p.Draft.NMin, 0, MaxDraft)
	known(c, "--spec-draft-type-k", p.Draft.CacheTypeK, cacheTypes)
	known(c, "--spec-draft-type-v", p.Draft.CacheTypeV, cacheTypes)
	for name, n := range map[string]NgramParams{"simple": p.NgramSimple, "map-k": p.NgramMapK, "map-k4v": p.NgramMapK4V} {
		c.between("--spec-ngram-"+name+"-size-n", n.SizeN, 1, MaxDraft)
		c.between("--spec-ngram-"+name+"-size-m", n.SizeM, 1, MaxDraft)
		c.between("--spec-ngram-"+name+"-min-hits", n.MinHits, 1, maxHits)
	}
	c.between("--spec-ngram-mod-n-match", p.NgramMod.NMatch, 1, MaxDraft)
	c.between("--spec-ngram-mod-n-min", p.NgramMod.NMin, 0, MaxDraft)
	c.between("--spec-ngram-mod-n-max", p.NgramMod.NMax, 0, MaxDraft)
}

// MaxDraft is the limit of lengths, of n-grams looked up and of guesses (llama.cpp, common/arg.cpp).
const MaxDraft = 1024

const maxHits = 1 << 15 // they are counted in 16 bits
