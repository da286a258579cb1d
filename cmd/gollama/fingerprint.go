package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	"gollama/internal/completion"
	"gollama/internal/engine"
	"gollama/internal/engine/ggml"
	"gollama/internal/pipeline"
)

// fingerprint stands for all that a result depends on besides its record.
type fingerprint struct {
	Type     string         `json:"type"` // "run"
	Version  string         `json:"version"`
	Engine   string         `json:"engine"`
	Command  []string       `json:"command"`
	Settings recordSettings `json:"settings"`
	sum      []byte
}

// recordSettings are the settings that change results: not how many threads or
// texts at once there are, and not where files lie.
type recordSettings struct {
	Model          string                `json:"model"` // sum of its header and samples of its data
	Adapters       []string              `json:"adapters,omitempty"`
	Overrides      []engine.KVOverride   `json:"overrides,omitempty"`
	Seed           uint32                `json:"seed"`
	Sampling       engine.SamplingParams `json:"sampling"`
	NPredict       int                   `json:"n_predict"`
	Texts          int                   `json:"n"`
	Stop           []string              `json:"stop,omitempty"`
	StopTokens     []string              `json:"stop_tokens,omitempty"`
	Keep           int                   `json:"keep"`
	Overflow       string                `json:"on_overflow"`
	Logprobs       int                   `json:"logprobs"`
	PromptLogprobs bool                  `json:"prompt_logprobs"`
	Echo           bool                  `json:"echo"`
	Special        bool                  `json:"special"`
	CtxSeq         int                   `json:"ctx_size"`
	Prefix         string                `json:"shared_prefix,omitempty"` // its sum
	Deterministic  bool                  `json:"deterministic"`
	Cache          []string              `json:"cache"`
	FlashAttn      string                `json:"flash_attn"`
	Rope           []float32             `json:"rope"`
	Chat           chatSettings          `json:"chat"`
	Media          *mediaSettings        `json:"media,omitempty"` // mtmd
}

// chatSettings are those of them that records with messages depend on.
type chatSettings struct {
	completion.ChatSettings
	Template     string `json:"template,omitempty"` // a name, or the sum of a text; empty is the model's
	System       string `json:"system,omitempty"`
	Converse     bool   `json:"conversation,omitempty"`
	SpecialInput string `json:"special_in_input,omitempty"`
}

func (o *options) chatFingerprint() (c chatSettings, err error) {
	if c.ChatSettings, err = o.chatSettings(); err != nil {
		return c, err
	}
	c.Template, c.System, c.Converse, c.SpecialInput = o.ChatTemplate, o.SystemPrompt, o.chatting(), o.specialInput
	path := o.templateFile
	if _, err := os.Stat(o.ChatTemplate); err == nil && o.ChatTemplate != noTemplate && !slices.Contains(engine.BuiltinChatTemplates(), o.ChatTemplate) {
		path = o.ChatTemplate
	}
	if path != "" {
		text, err := readTemplate(path)
		if err != nil {
			return c, err
		}
		sum := sha256.Sum256([]byte(text))
		c.Template = hex.EncodeToString(sum[:])
	}
	return c, nil
}

func (r *recordsRun) fingerprint() (*fingerprint, error) {
	o := r.o
	build := ggml.BuildInfo()
	fp := &fingerprint{Type: "run", Version: version, Engine: build.Pin, Command: r.e.args}
	s := recordSettings{
		Overrides: o.KVOverrides, Seed: o.Sampling.Seed, Sampling: o.Sampling, NPredict: o.NPredict, Texts: o.texts, Stop: o.Antiprompt,
		StopTokens: o.stopTokens, Keep: o.NKeep, Overflow: o.overflow, Logprobs: o.logprobs, PromptLogprobs: o.promptLogprobs,
		Echo: o.DisplayPrompt, Special: o.Special, CtxSeq: r.ctxSeq, Deterministic: o.deterministic,
		Cache: []string{o.CacheTypeK.String(), o.CacheTypeV.String()}, FlashAttn: o.FlashAttnType.String(),
		Rope: []float32{float32(o.RopeScalingType), o.RopeFreqBase, o.RopeFreqScale, o.YarnExtFactor, o.YarnAttnFactor,
			o.YarnBetaFast, o.YarnBetaSlow, float32(o.YarnOrigCtx)}, Media: r.mediaSettings,
	}
	if r.prefix != "" {
		sum := sha256.Sum256([]byte(r.prefix))
		s.Prefix = hex.EncodeToString(sum[:])
	}
	var err error
	if s.Chat, err = o.chatFingerprint(); err != nil {
		return nil, err
	}
	for _, path := range r.file.Paths {
		var sum string
		if sum, err = sampleSum(path); err != nil {
			return nil, err
		}
		s.Model += sum
	}
	for _, a := range o.LoRAAdapters {
		sum, err := sampleSum(a.Path)
		if err != nil {
			return nil, err
		}
		s.Adapters = append(s.Adapters, fmt.Sprintf("lora %s %g", sum, a.Scale))
	}
	for _, v := range o.ControlVectors {
		sum, err := sampleSum(v.Path)
		if err != nil {
			return nil, err
		}
		s.Adapters = append(s.Adapters, fmt.Sprintf("vector %s %g %d %d", sum, v.Strength, o.ControlVectorLayerStart, o.ControlVectorLayerEnd))
	}
	fp.Settings = s
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	fp.sum = sum[:]
	return fp, nil
}

// key returns what the result of a record carries: 16 hexadecimal digits.
func (fp *fingerprint) key(r *pipeline.Record) string {
	sum := sha256.Sum256(slices.Concat(fp.sum, r.Raw))
	return hex.EncodeToString(sum[:8])
}

// sidecar is the name of the file beside an output that says how it was made.
func sidecar(out string) string { return out + ".run.json" }

// save writes it beside an output.
func (fp *fingerprint) save(out string) error {
	data, err := json.MarshalIndent(fp, "", "  ")
	if err != nil {
		return err
	}
	return writeWhole("--output", sidecar(out), append(data, '\n'))
}

// sampleSum stands for a file: a sum of its size, its start and 256 pieces
// spread over it. Reading all of a large model would take longer than many runs.
func sampleSum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return "", err
	}
	const pieces, size = 256, 16 << 10
	h := sha256.New()
	_, _ = fmt.Fprintln(h, st.Size()) // a hash takes all
	for i := range int64(pieces) {
		if _, err := io.Copy(h, io.NewSectionReader(f, st.Size()/pieces*i, size)); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}
