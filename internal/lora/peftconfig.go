package lora

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"

	"gollama/internal/pipeline"
)

// peftConfig is what adapter_config.json says about the meaning of the tensors. Source: PEFT's LoraConfig.
type peftConfig struct {
	PeftType         string   `json:"peft_type"`
	R                int      `json:"r"`
	Alpha            float64  `json:"lora_alpha"`
	RSLoRA           bool     `json:"use_rslora"`
	DoRA             bool     `json:"use_dora"`
	FanInFanOut      bool     `json:"fan_in_fan_out"`
	InitWeights      any      `json:"init_lora_weights"`
	LayerReplication any      `json:"layer_replication"`
	InvocationTokens []uint32 `json:"alora_invocation_tokens"`

	// Read once more, for the order of their members.
	Ranks  json.RawMessage `json:"rank_pattern"`
	Alphas json.RawMessage `json:"alpha_pattern"`

	RankPattern  patterns `json:"-"`
	AlphaPattern patterns `json:"-"`
}

// maxConfig is the size in bytes beyond which an adapter_config.json is not read.
const maxConfig = 16 << 20

func parsePEFTConfig(text []byte) (*peftConfig, error) {
	if len(text) > maxConfig {
		return nil, adapterErrorf("%d bytes, want at most %d", len(text), maxConfig)
	}
	c := &peftConfig{R: 8, Alpha: 8} // LoraConfig's defaults
	err := pipeline.Decode(text, c)
	if err == nil {
		c.RankPattern, err = parsePatterns("rank_pattern", c.Ranks)
	}
	if err == nil {
		c.AlphaPattern, err = parsePatterns("alpha_pattern", c.Alphas)
	}
	if err != nil {
		return nil, adapterErrorf("%s", err)
	}
	altered := []any{"pissa", "olora", "corda", "loftq", "lora_ga"}
	switch {
	case c.PeftType != "LORA":
		return nil, adapterErrorf("peft_type is %q, want LORA", c.PeftType)
	case c.DoRA:
		return nil, adapterErrorf("use_dora is set: DoRA's magnitudes are not supported")
	case c.FanInFanOut:
		return nil, adapterErrorf("fan_in_fan_out is set: transposed weights are not supported")
	case c.LayerReplication != nil:
		return nil, adapterErrorf("layer_replication is set: it makes another model than the base")
	case slices.Contains(altered, c.InitWeights):
		return nil, adapterErrorf("init_lora_weights is %q: the adapter belongs to a base that its training changed", c.InitWeights)
	case c.R < 1:
		return nil, adapterErrorf("r is %d, want 1 or more", c.R)
	case math.IsNaN(c.Alpha) || math.Abs(c.Alpha) > math.MaxFloat32:
		return nil, adapterErrorf("lora_alpha is %g, want a finite number", c.Alpha)
	}
	return c, nil
}

// pattern is a rank or an alpha for the modules whose name matches.
type pattern struct {
	re    *regexp.Regexp
	value float64
}

// patterns are in the order of the file: the first that matches counts.
type patterns []pattern

// parsePatterns reads the member called name, in the order of its keys. text is valid JSON, or empty without the member.
func parsePatterns(name string, text []byte) (patterns, error) {
	if len(text) == 0 || string(text) == "null" {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, pipeline.JSONAt(name, fmt.Errorf("got %s, want an object of patterns", pipeline.Kind(text)))
	}
	var list patterns
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, err
		}
		key, _ := tok.(string)
		bad := func(err error) (patterns, error) {
			return nil, pipeline.JSONAt(name, fmt.Errorf("pattern %q: %w", key, err))
		}
		var v float64
		if err := pipeline.DecodeNext(dec, &v); err != nil {
			return bad(err)
		}
		// Source: PEFT's get_pattern_key.
		re, err := regexp.Compile(`^(.*\.)?(` + key + `)$`)
		if err != nil {
			return bad(err)
		}
		list = append(list, pattern{re, v})
	}
	return list, nil
}

// of returns the value for a module, def if no pattern matches.
func (p patterns) of(module string, def float64) float64 {
	for _, x := range p {
		if x.re.MatchString(module) {
			return x.value
		}
	}
	return def
}

// scale returns what B * A of a module is multiplied with, given the rank of its matrices.
func (c *peftConfig) scale(module string, rank int) (float64, error) {
	if want := c.RankPattern.of(module, float64(c.R)); want != float64(rank) {
		return 0, adapterErrorf("module %q: the matrices have rank %d, adapter_config.json says %g", module, rank, want)
	}
	alpha := c.AlphaPattern.of(module, c.Alpha)
	if alpha == 0 {
		return 0, adapterErrorf("module %q: alpha is 0: the adapter has no effect", module)
	}
	if c.RSLoRA {
		return alpha / math.Sqrt(float64(rank)), nil
	}
	return alpha / float64(rank), nil
}
