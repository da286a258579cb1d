package lora

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gollama/internal/pipeline"
)

// WritePEFT writes a as PEFT has it: adapter_config.json and adapter_model.safetensors (float32) in folder dir, which
// is made if it is not there. Each file appears when it is whole, the data first, and an old config goes before that
// ([pipeline.CommitAll]). Architectures and tensors that have no name in PEFT are errors, as are experts.
func WritePEFT(dir string, a *Adapter) error {
	arch, err := peftArchOf(a.Arch)
	if err != nil {
		return err
	}
	if err := a.check(); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	p := &peftWriter{adapter: a, arch: arch, ranks: map[string]int{}, alphas: map[string]float64{}}
	for i := range a.Tensors {
		if err := p.add(&a.Tensors[i]); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	config, err := p.config()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	data, err := pipeline.CreateAtomic(filepath.Join(dir, peftDataFile))
	if err != nil {
		return err
	}
	defer data.Abort()
	if err := writeSafetensors(data, filepath.Join(dir, peftDataFile), p.entries); err != nil {
		return err
	}
	head, err := pipeline.CreateAtomic(filepath.Join(dir, peftConfigFile))
	if err != nil {
		return err
	}
	defer head.Abort()
	if _, err := head.Write(config); err != nil {
		return err
	}
	return pipeline.CommitAll(head, data)
}

type peftWriter struct {
	adapter *Adapter
	arch    peftArch
	entries []safeEntry
	targets []string           // modules with a pair
	save    []string           // modules that are there whole
	ranks   map[string]int     // by module
	alphas  map[string]float64 // by module
}

func (p *peftWriter) add(t *Tensor) error {
	name, suffix := strings.TrimSuffix(t.Base, ".weight"), ".weight"
	if s, ok := strings.CutSuffix(t.Base, ".bias"); ok {
		name, suffix = s, ".bias"
	}
	module, ok := p.arch.fromGGUF(p.adapter.Arch, name)
	if !ok || t.hasExperts() {
		return adapterErrorf("tensor %q has no name in PEFT", t.Base)
	}
	full := "base_model.model." + module
	if t.Whole != nil {
		if t.A != nil {
			full += ".base_layer"
		} else if !slices.Contains(p.save, lastPart(module)) {
			p.save = append(p.save, lastPart(module))
		}
		width := int(t.Whole.dim(0))
		if len(t.Whole.Shape) == 1 {
			width = 1
		}
		p.entries = append(p.entries, safeEntry{full + suffix, reversed(t.Whole.Shape), func() ([]float32, error) {
			x, err := p.rows(t.Base, t.Whole, width)
			if err == nil && p.arch.normPlus && strings.Contains(t.Base, "norm.weight") {
				x = slices.Clone(x)
				for i := range x {
					x[i]--
				}
			}
			return x, err
		}})
	}
	if t.A == nil {
		return nil
	}
	if !slices.Contains(p.targets, lastPart(module)) {
		p.targets = append(p.targets, lastPart(module))
	}
	rank := t.Rank()
	p.ranks[module], p.alphas[module] = rank, p.adapter.scale(t)*float64(rank)
	full = "base_model.model." + module
	a := safeEntry{full + ".lora_A.weight", reversed(t.A.Shape), t.A.Floats}
	b := safeEntry{full + ".lora_B.weight", reversed(t.B.Shape), func() ([]float32, error) { return p.rows(t.Base, t.B, rank) }}
	if IsEmbedding(t.Base) {
		nVocab := int(t.A.dim(1))
		a = safeEntry{full + ".lora_embedding_A", []uint64{uint64(rank), uint64(nVocab)}, func() ([]float32, error) {
			x, err := t.A.Floats()
			return transpose(x, nVocab, rank), err
		}}
		b.name = full + ".lora_embedding_B"
	}
	p.entries = append(p.entries, a, b)
	return nil
}

// hasExperts reports whether t has experts, which PEFT names one by one.
func (t *Tensor) hasExperts() bool {
	for _, m := range []*Matrix{t.A, t.Whole} {
		if m != nil && m.dim(2) > 1 {
			return true
		}
	}
	return false
}

// rows reads m in the order of PEFT.
func (p *peftWriter) rows(base string, m *Matrix, width int) ([]float32, error) {
	x, err := m.Floats()
	if heads := headsOf(p.arch, base, p.adapter.Heads, p.adapter.KVHeads); err == nil && heads >= 0 {
		if x, err = permuteRows(x, heads, width, true); err != nil {
			err = fmt.Errorf("tensor %q: %w", base, err)
		}
	}
	return x, err
}

// config makes adapter_config.json. The rank and the alpha that most modules have are the common ones, the others are
// patterns.
func (p *peftWriter) config() ([]byte, error) {
	ranks := map[string]float64{}
	for m, r := range p.ranks {
		ranks[m] = float64(r)
	}
	rank, rankPattern := mostCommon(ranks)
	alpha, alphaPattern := mostCommon(p.alphas)
	c := map[string]any{
		"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": nil, "inference_mode": true,
		"r": max(int(rank), 1), "lora_alpha": alpha, "lora_dropout": 0.0, "bias": "none", "fan_in_fan_out": false,
		"use_rslora": false, "use_dora": false, "init_lora_weights": true,
		"target_modules": p.targets, "modules_to_save": nil, "rank_pattern": rankPattern, "alpha_pattern": alphaPattern,
	}
	if len(p.save) > 0 {
		c["modules_to_save"] = p.save
	}
	if len(p.adapter.InvocationTokens) > 0 {
		c["alora_invocation_tokens"] = p.adapter.InvocationTokens
	}
	text, err := json.MarshalIndent(c, "", "  ")
	return append(text, '\n'), err
}

// mostCommon returns the value that most modules have, and the modules that have another.
func mostCommon(of map[string]float64) (value float64, others map[string]float64) {
	count := map[float64]int{}
	for _, v := range of {
		count[v]++
	}
	best := 0
	for v, n := range count {
		if n > best || n == best && v < value {
			best, value = n, v
		}
	}
	others = map[string]float64{}
	for m, v := range of {
		if v != value {
			others[patternOf(m)] = v
		}
	}
	return value, others
}

// patternOf makes a pattern that matches the module only.
func patternOf(module string) string { return strings.ReplaceAll(module, ".", `\.`) }

func lastPart(module string) string { return module[strings.LastIndexByte(module, '.')+1:] }
