package engine

import (
	"fmt"
	"strconv"
	"strings"
)

// applyModelSampling takes the settings that the user did not name from the
// model's metadata. Source: common_init_sampler_from_model. meta is Model.Meta.
func applyModelSampling(p *SamplingParams, meta func(string) (string, bool)) error {
	get := func(config SamplingConfig, key string) (string, bool) {
		if p.UserSamplingConfig&config != 0 {
			return "", false
		}
		return meta("general.sampling." + key)
	}
	if s, ok := get(ConfigSamplers, "sequence"); ok && s != "" {
		chain, err := ParseSamplers(s)
		if err != nil {
			return fmt.Errorf("its key general.sampling.sequence: %w", err)
		}
		p.Samplers = chain
	}
	ints := []struct {
		config SamplingConfig
		key    string
		dst    *int
	}{
		{ConfigTopK, "top_k", &p.TopK}, {ConfigPenaltyLastN, "penalty_last_n", &p.PenaltyLastN},
		{ConfigMirostat, "mirostat", &p.Mirostat},
	}
	for _, x := range ints {
		if s, ok := get(x.config, x.key); ok {
			if v, err := strconv.ParseFloat(strings.TrimSpace(s), 64); err == nil {
				*x.dst = int(v)
			}
		}
	}
	floats := []struct {
		config SamplingConfig
		key    string
		dst    *float32
	}{
		{ConfigTopP, "top_p", &p.TopP}, {ConfigMinP, "min_p", &p.MinP}, {ConfigTemp, "temp", &p.Temp},
		{ConfigXTCProbability, "xtc_probability", &p.XTCProbability}, {ConfigXTCThreshold, "xtc_threshold", &p.XTCThreshold},
		{ConfigPenaltyRepeat, "penalty_repeat", &p.PenaltyRepeat},
		{ConfigMirostatTau, "mirostat_tau", &p.MirostatTau}, {ConfigMirostatEta, "mirostat_eta", &p.MirostatEta},
	}
	for _, x := range floats {
		if s, ok := get(x.config, x.key); ok {
			if v, err := strconv.ParseFloat(strings.TrimSpace(s), 32); err == nil {
				*x.dst = float32(v)
			}
		}
	}
	if err := p.Validate(); err != nil {
		return fmt.Errorf("its keys general.sampling.*: %w", err)
	}
	return nil
}
