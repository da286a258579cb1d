package main

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"gollama/internal/builtin"
	"gollama/internal/gguf"
)

// modelInfo is what run --model-info shows: the header of a GGUF file, or of all shards of one, as JSON names it.
type modelInfo struct {
	Type         string            `json:"type"` // model_info
	Paths        []string          `json:"paths"`
	Bytes        int64             `json:"bytes"` // of all files
	Version      uint32            `json:"version"`
	ByteOrder    string            `json:"byte_order"` // little or big
	Alignment    uint32            `json:"alignment"`
	Kind         string            `json:"kind"` // model, vocabulary, adapter, mmproj, ... or unknown
	Architecture string            `json:"architecture"`
	Name         string            `json:"name,omitempty"`
	Parameters   uint64            `json:"parameters"` // elements of all tensors
	Tensors      int               `json:"tensors"`
	DataBytes    uint64            `json:"data_bytes"`      // of all tensors, without padding
	BitsPerValue float64           `json:"bits_per_weight"` // 8 DataBytes / Parameters, 0 without tensors
	Types        []typeInfo        `json:"types"`           // most bytes first
	Sizes        map[string]any    `json:"sizes"`           // the numbers of sizeKeys that are there
	Vocabulary   *vocabInfo        `json:"vocabulary,omitempty"`
	Templates    map[string]string `json:"chat_templates,omitempty"` // "default" and the named ones
	Adapter      *adapterInfo      `json:"adapter,omitempty"`
	Keys         map[string]any    `json:"keys"` // all; of an array of more than maxElements its kind and length

	kvs gguf.KVs
}

// typeInfo is one bar of the histogram of tensor types.
type typeInfo struct {
	Type     string `json:"type"`
	Tensors  int    `json:"tensors"`
	Elements uint64 `json:"elements"`
	Bytes    uint64 `json:"bytes"`
}

type vocabInfo struct {
	Model   string               `json:"model"`
	Pre     string               `json:"pre,omitempty"`
	Tokens  int                  `json:"tokens"`
	Merges  int                  `json:"merges"`
	Special map[string]tokenInfo `json:"special"` // by role: bos, eos, ...
}

type tokenInfo struct {
	ID   uint64 `json:"id"`
	Text string `json:"text"`
}

type adapterInfo struct {
	Type  string  `json:"type"`
	Alpha float64 `json:"alpha"`
	Ranks []int   `json:"ranks"` // the different ones, ascending
	Pairs int     `json:"pairs"` // of lora_a and lora_b
}

// maxElements is how long an array may be to be written out.
const maxElements = 64

// sizeKeys are the numbers that people ask for, under the architecture's name; the second list is for projectors.
var sizeKeys = [][2]string{
	{"context_length", "context"}, {"block_count", "layers"}, {"embedding_length", "embedding"},
	{"feed_forward_length", "feed forward"}, {"attention.head_count", "heads"}, {"attention.head_count_kv", "key/value heads"},
	{"attention.key_length", "head size"}, {"attention.sliding_window", "sliding window"}, {"expert_count", "experts"},
	{"expert_used_count", "experts used"}, {"rope.freq_base", "rope base"}, {"rope.scaling.type", "rope scaling"},
	{"rope.scaling.factor", "rope factor"}, {"pooling_type", "pooling"}, {"image_size", "image size"},
	{"patch_size", "patch size"}, {"projection_dim", "projection"}, {"projector_type", "projector"}, {"num_mel_bins", "mel bins"},
}

// specialRoles are the roles of tokens and their keys' parts, tokenizer.ggml.X_token_id.
var specialRoles = [][2]string{{"bos", "bos"}, {"eos", "eos"}, {"eot", "eot"}, {"eom", "eom"}, {"unk", "unknown"},
	{"sep", "seperator"}, {"pad", "padding"}, {"mask", "mask"}} // the misspelling is the format's

// showModelInfo writes what the header of o.Model says. The engine is not asked: adapters, projectors, vocabularies
// and models that it cannot load have a header too.
func showModelInfo(e *env, o *options) error {
	if o.OutFile != "" && o.OutFile != "-" {
		return usagef("--model-info writes to standard output, -o is for generated text").withHint("> FILE")
	}
	info, err := readModelInfo(o.Model)
	if err != nil {
		return err
	}
	if o.format != "text" {
		enc := json.NewEncoder(e.out)
		enc.SetEscapeHTML(false) // <s> is a token
		return enc.Encode(info)
	}
	return e.out.text(info.text())
}

func readModelInfo(path string) (*modelInfo, error) {
	f, err := gguf.OpenModel(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	m := &modelInfo{Type: "model_info", Paths: f.Paths, Version: f.Version, ByteOrder: "little", Alignment: f.Alignment,
		Tensors: len(f.Tensors), Types: []typeInfo{}, Sizes: map[string]any{}, Keys: map[string]any{}, kvs: f.KVs}
	if f.ByteOrder == binary.BigEndian {
		m.ByteOrder = "big"
	}
	for _, p := range f.Paths {
		st, err := os.Stat(p)
		if err != nil {
			return nil, err
		}
		m.Bytes += st.Size()
	}
	for i, p := range m.Paths {
		m.Paths[i] = builtin.Label(p)
	}
	m.Architecture, _ = f.Str("general.architecture")
	m.Name, _ = f.Str("general.name")
	m.Kind = kindOf(f)
	m.count(f.Tensors)
	m.fillKeys()
	m.Vocabulary = vocabOf(f.KVs)
	if m.Kind == "adapter" {
		m.Adapter = adapterOf(f)
	}
	return m, nil
}

// kindOf says what the file is for.
func kindOf(f *gguf.File) string {
	kind, ok := f.Str("general.type")
	arch, _ := f.Str("general.architecture")
	switch {
	case ok && kind != "model":
		return kind
	case arch == "clip":
		return "mmproj"
	case arch == "imatrix", arch == "controlvector":
		return arch
	case len(f.Tensors) > 0:
		return "model"
	}
	if _, ok := f.Get("tokenizer.ggml.model"); ok {
		return "vocabulary"
	}
	return "unknown"
}

// count adds up the tensors.
func (m *modelInfo) count(tensors []gguf.TensorInfo) {
	byType := map[gguf.Type]*typeInfo{}
	for _, t := range tensors {
		b := byType[t.Type]
		if b == nil {
			b = &typeInfo{Type: t.Type.String()}
			byType[t.Type] = b
		}
		b.Tensors++
		b.Elements += t.Elements()
		b.Bytes += t.Size()
		m.Parameters += t.Elements()
		m.DataBytes += t.Size()
	}
	for _, b := range byType {
		m.Types = append(m.Types, *b)
	}
	slices.SortFunc(m.Types, func(a, b typeInfo) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Type, b.Type))
	})
	if m.Parameters > 0 {
		m.BitsPerValue = 8 * float64(m.DataBytes) / float64(m.Parameters)
	}
}

// sizePrefixes are what may stand before a size's key.
func (m *modelInfo) sizePrefixes() []string {
	if m.Architecture == "clip" {
		return []string{"clip.", "clip.vision.", "clip.audio."}
	}
	return []string{m.Architecture + "."}
}

// fillKeys fills Keys, Sizes and Templates.
func (m *modelInfo) fillKeys() {
	for _, kv := range m.kvs {
		m.Keys[kv.Key] = plain(kv.Value)
		if name, ok := templateName(kv.Key); ok {
			if s, ok := kv.Value.Str(); ok {
				if m.Templates == nil {
					m.Templates = map[string]string{}
				}
				m.Templates[name] = s
			}
		}
	}
	for _, prefix := range m.sizePrefixes() {
		for _, k := range sizeKeys {
			if v, ok := m.kvs.Get(prefix + k[0]); ok {
				m.Sizes[strings.TrimPrefix(prefix, m.Architecture+".")+k[0]] = plain(v)
			}
		}
	}
}

// templateName returns the name of the chat template that key holds.
func templateName(key string) (string, bool) {
	const prefix = "tokenizer.chat_template"
	if key == prefix {
		return "default", true
	}
	return strings.CutPrefix(key, prefix+".")
}

// plain returns v as a value that encoding/json takes.
func plain(v gguf.Value) any {
	if elem, ok := v.Elem(); ok {
		if v.Len() > maxElements {
			return map[string]any{"kind": elem.String(), "length": v.Len()}
		}
		list := []any{}
		vs, _ := v.Values()
		for _, e := range vs {
			list = append(list, plain(e))
		}
		return list
	}
	if s, ok := v.Str(); ok {
		return s
	}
	if b, ok := v.Bool(); ok {
		return b
	}
	if x, ok := v.Float(); ok && (math.IsNaN(x) || math.IsInf(x, 0)) {
		return v.String() // JSON has no such numbers
	}
	return json.Number(v.String()) // the shortest digits that give the same float32
}

func vocabOf(kvs gguf.KVs) *vocabInfo {
	model, ok := kvs.Str("tokenizer.ggml.model")
	if !ok {
		return nil
	}
	v := &vocabInfo{Model: model, Special: map[string]tokenInfo{}}
	v.Pre, _ = kvs.Str("tokenizer.ggml.pre")
	tokens, _ := kvs.Strings("tokenizer.ggml.tokens")
	merges, _ := kvs.Get("tokenizer.ggml.merges")
	v.Tokens, v.Merges = len(tokens), merges.Len()
	for _, role := range specialRoles {
		if id, ok := kvs.Uint("tokenizer.ggml." + role[1] + "_token_id"); ok {
			t := tokenInfo{ID: id}
			if id < uint64(len(tokens)) {
				t.Text = tokens[id]
			}
			v.Special[role[0]] = t
		}
	}
	return v
}

func adapterOf(f *gguf.File) *adapterInfo {
	a := &adapterInfo{Ranks: []int{}}
	a.Type, _ = f.Str("adapter.type")
	a.Alpha, _ = f.Float("adapter.lora.alpha")
	for _, t := range f.Tensors {
		if !strings.HasSuffix(t.Name, ".lora_b") || len(t.Shape) == 0 {
			continue
		}
		a.Pairs++
		if rank := int(t.Shape[0]); !slices.Contains(a.Ranks, rank) {
			a.Ranks = append(a.Ranks, rank)
		}
	}
	slices.Sort(a.Ranks)
	return a
}

// text returns the same for people, on one screen where the file has no more keys than fit.
func (m *modelInfo) text() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-14s %s\n", name, fmt.Sprintf(format, args...))
	}
	files := ""
	if len(m.Paths) > 1 {
		files = fmt.Sprintf(" and %d more", len(m.Paths)-1)
	}
	line("file", "%s%s, %s", m.Paths[0], files, byteText(uint64(m.Bytes)))
	line("format", "GGUF version %d, %s endian, alignment %d", m.Version, m.ByteOrder, m.Alignment)
	line("kind", "%s, architecture %q", m.Kind, m.Architecture)
	if m.Name != "" {
		line("name", "%q", cut(m.Name, 80))
	}
	if m.Tensors > 0 {
		line("parameters", "%s in %d tensors, %s, %.2f bits each", countText(m.Parameters), m.Tensors, byteText(m.DataBytes), m.BitsPerValue)
	}
	for _, t := range m.Types {
		line("  "+t.Type, "%d tensors, %s, %.1f %%", t.Tensors, byteText(t.Bytes), 100*float64(t.Bytes)/float64(max(m.DataBytes, 1)))
	}
	shown := m.textSizes(line)
	if v := m.Vocabulary; v != nil {
		line("vocabulary", "%d tokens, model %q, pre-tokenizer %q, %d merges", v.Tokens, v.Model, v.Pre, v.Merges)
		if s := v.specials(); s != "" {
			line("  special", "%s", s)
		}
	}
	for _, kv := range m.kvs {
		if name, ok := templateName(kv.Key); ok {
			line("chat template", "%s, %d bytes: %q", name, len(m.Templates[name]), cut(m.Templates[name], 60))
		}
	}
	if a := m.Adapter; a != nil {
		line("adapter", "%s, alpha %g, %d pairs, ranks %v", a.Type, a.Alpha, a.Pairs, a.Ranks)
	}
	b.WriteString("other keys\n")
	for _, kv := range m.kvs {
		if !shown[kv.Key] && !shownElsewhere(kv.Key) {
			fmt.Fprintf(&b, "  %s = %s\n", cut(kv.Key, 60), cut(kv.Value.String(), 80))
		}
	}
	return b.String()
}

// textSizes writes a line for each part of the model and returns the keys that are in them.
func (m *modelInfo) textSizes(line func(name, format string, args ...any)) map[string]bool {
	shown := map[string]bool{}
	for _, prefix := range m.sizePrefixes() {
		var list []string
		for _, k := range sizeKeys {
			if v, ok := m.kvs.Get(prefix + k[0]); ok {
				shown[prefix+k[0]] = true
				list = append(list, k[1]+" "+cut(v.String(), 60))
			}
		}
		if len(list) == 0 {
			continue
		}
		name := strings.TrimSuffix(strings.TrimPrefix(prefix, "clip."), ".")
		if name == "" || name == m.Architecture {
			name = "sizes"
		}
		line(name, "%s", strings.Join(list, ", "))
	}
	return shown
}

// specials lists the special tokens that the vocabulary has.
func (v *vocabInfo) specials() string {
	var list []string
	for _, role := range specialRoles {
		if t, ok := v.Special[role[0]]; ok && t.ID < uint64(v.Tokens) {
			list = append(list, fmt.Sprintf("%s %d %q", role[0], t.ID, t.Text))
		}
	}
	return strings.Join(list, ", ")
}

// shownElsewhere tells keys that have a line of their own.
func shownElsewhere(key string) bool {
	if _, ok := templateName(key); ok {
		return true
	}
	return slices.Contains([]string{"general.architecture", "general.name", "general.type", gguf.KeyAlignment, "tokenizer.ggml.model",
		"tokenizer.ggml.pre", "tokenizer.ggml.tokens", "tokenizer.ggml.merges", "adapter.type", "adapter.lora.alpha"}, key) ||
		strings.HasPrefix(key, "tokenizer.ggml.") && strings.HasSuffix(key, "_token_id")
}

// cut shortens s to n runes.
func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-3]) + "..."
}

// byteText returns n bytes with three digits.
func byteText(n uint64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	x, i := float64(n), 0
	for x >= 1000 && i < len(units)-1 {
		x, i = x/1024, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.3g %s", x, units[i])
}

// countText returns n with three digits.
func countText(n uint64) string {
	units := []string{"", " thousand", " million", " billion", " trillion"}
	x, i := float64(n), 0
	for x >= 999.5 && i < len(units)-1 {
		x, i = x/1000, i+1
	}
	if i == 0 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%.3g%s", x, units[i])
}
