package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"

	"gollama/internal/engine"
	"gollama/internal/engine/ggml"
	"gollama/internal/gguf"
	"gollama/internal/opt/bpe"
	"gollama/internal/opt/data"
	"gollama/internal/opt/graph"
	"gollama/internal/pipeline"
)

// initName is the new model in a run folder.
const initName = "init.gguf"

// initConfig is the file of --init: a model to make. Sizes that are 0 get the
// architecture's usual values where there are any.
type initConfig struct {
	Name         string  `yaml:"name"` // of the model; the file's if not given
	Author       string  `yaml:"author"`
	License      string  `yaml:"license"` // SPDX expression
	Description  string  `yaml:"description"`
	ChatTemplate string  `yaml:"chat-template"` // file of a Jinja template, beside this one, or the template itself
	Architecture string  `yaml:"architecture"`
	Tokenizer    string  `yaml:"tokenizer"`  // GGUF file whose vocabulary is taken; else one is learned
	VocabSize    int     `yaml:"vocab-size"` // of the vocabulary that is learned
	Context      int     `yaml:"context"`
	Embedding    int     `yaml:"embedding"`
	Layers       int     `yaml:"layers"`
	Heads        int     `yaml:"heads"`
	KVHeads      int     `yaml:"kv-heads"`
	HeadDim      int     `yaml:"head-dim"`
	FeedForward  int     `yaml:"feed-forward"`
	Tied         bool    `yaml:"tied"`
	RopeBase     float32 `yaml:"rope-base"`
}

// readInit reads the file of --init.
func readInit(path string) (initConfig, error) {
	c := initConfig{Architecture: "llama"}
	text, err := os.ReadFile(path)
	if err != nil {
		return c, usagef("--init: %s", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil {
		text := strings.TrimPrefix(strings.TrimPrefix(oneLine(err), "yaml: "), "unmarshal errors:; ")
		return c, usagef("--init: %s: %s", path, yamlWords(text))
	}
	for _, v := range []struct {
		name string
		n    int
	}{{"context", c.Context}, {"embedding", c.Embedding}, {"layers", c.Layers}, {"heads", c.Heads}, {"feed-forward", c.FeedForward}} {
		if v.n < 1 || v.n > 1<<20 {
			return c, usagef("--init: %s: %s is %d, want 1 to %d", path, v.name, v.n, 1<<20)
		}
	}
	switch {
	case c.Tokenizer == "" && (c.VocabSize < 1 || c.VocabSize > 1<<20):
		return c, usagef("--init: %s: vocab-size is %d, want 1 to %d, or a tokenizer to take", path, c.VocabSize, 1<<20)
	case c.Tokenizer != "" && c.VocabSize != 0:
		return c, usagef("--init: %s: vocab-size is for a vocabulary that is learned, and a tokenizer is given", path)
	}
	return c, c.readTemplate(path)
}

// yamlMismatch is how the YAML library words a value of another kind: with its own tag and Go's type.
var yamlMismatch = regexp.MustCompile("cannot unmarshal !!(\\w+)( `[^`]*`)? into ([\\w.\\[\\]]+)")

// yamlWords words an error of the YAML library without Go's types.
func yamlWords(text string) string {
	text = strings.ReplaceAll(text, " in type main.initConfig", "")
	return yamlMismatch.ReplaceAllStringFunc(text, func(s string) string {
		m := yamlMismatch.FindStringSubmatch(s)
		got := map[string]string{"seq": "a list", "map": "keys and values"}[m[1]]
		if got == "" {
			got = strings.TrimSpace(m[2])
		}
		want := "keys and values"
		switch {
		case strings.HasPrefix(m[3], "int"), strings.HasPrefix(m[3], "uint"):
			want = "a whole number"
		case strings.HasPrefix(m[3], "float"):
			want = "a number"
		case m[3] == "string":
			want = "a text"
		case m[3] == "bool":
			want = "true or false"
		}
		return "got " + got + ", want " + want
	})
}

// readTemplate puts the chat template in the place of its file's name, and finds out whether it can be read as one.
func (c *initConfig) readTemplate(path string) error {
	if c.ChatTemplate == "" {
		return nil
	}
	name := path
	if !strings.Contains(c.ChatTemplate, "{%") && !strings.Contains(c.ChatTemplate, "{{") {
		if name = c.ChatTemplate; !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), name)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return usagef("--init: %s: chat-template: %s", path, err).withHint("the name goes from the folder of %s", filepath.Base(path))
		}
		c.ChatTemplate = string(text)
	}
	t, err := engine.NewChatTemplate(nil, engine.ChatTemplateOptions{Source: c.ChatTemplate})
	if err != nil {
		return usagef("--init: %s: chat-template: %s", name, oneLine(err))
	}
	return t.Close()
}

// specials returns the control tokens of a vocabulary that is learned: those of ChatML only where the template has them.
func (c *initConfig) specials() []string {
	if c.ChatTemplate == "" || strings.Contains(c.ChatTemplate, "<|im_start|>") {
		return bpe.DefaultSpecials
	}
	return bpe.DefaultSpecials[:2]
}

// about returns the metadata that say what the model is.
func (c *initConfig) about(file string) gguf.KVs {
	if c.Name == "" {
		c.Name = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	}
	var kvs gguf.KVs
	for _, kv := range []struct{ key, text string }{
		{"general.name", c.Name}, {"general.author", c.Author}, {"general.license", c.License},
		{"general.description", c.Description}, {"tokenizer.chat_template", c.ChatTemplate},
	} {
		if kv.text != "" {
			kvs = append(kvs, gguf.KV{Key: kv.key, Value: gguf.ValueOf(kv.text)})
		}
	}
	return kvs
}

// makeModel makes the model of --init, with random weights, in the run folder.
// It is the base of everything that follows.
func (t *tuning) makeModel(ctx context.Context) error {
	c, err := readInit(t.o.tune.init)
	if err != nil {
		return err
	}
	dir, _ := t.o.runDir()
	if t.o.tune.dryRun {
		if t.temp, err = pipeline.Scratch(""); err != nil {
			return &writeError{err}
		}
		t.o.Model = t.temp.Path()
	} else if done, err := t.initThere(dir); done || err != nil {
		return err
	}
	vocab, err := t.vocabulary(ctx, c)
	if err != nil {
		return err
	}
	return t.writeNew(c, vocab)
}

// initThere makes the run folder and sets the path of the model in it. It says whether a run that is resumed has it already.
func (t *tuning) initThere(dir string) (bool, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return false, &writeError{fmt.Errorf("--run-dir: %w", err)}
	}
	t.o.Model = filepath.Join(dir, initName)
	_, err := os.Stat(t.o.Model)
	if err == nil && !t.o.tune.resume {
		return false, usagef("%s: holds a run already", dir).withHint("--resume goes on with it; --run-dir DIR puts the new one elsewhere")
	}
	return err == nil, nil
}

// writeNew writes a model with random weights.
func (t *tuning) writeNew(c initConfig, vocab gguf.KVs) error {
	tokens, ok := vocab.Get("tokenizer.ggml.tokens")
	if !ok {
		return fmt.Errorf("%s: it has no vocabulary", c.Tokenizer)
	}
	h := graph.Hparams{Arch: c.Architecture, NVocab: tokens.Len(), NEmbd: c.Embedding, NLayer: c.Layers, NHead: c.Heads, NHeadKV: c.KVHeads,
		HeadDim: c.HeadDim, NFF: c.FeedForward, NCtxTrain: c.Context, Tied: c.Tied, RopeBase: c.RopeBase}
	m, err := graph.New(h, graph.Config{Seed: uint64(t.o.tune.seed), Threads: max(t.o.CPUParams.NThreads, 0)})
	if err != nil {
		return &hintedError{fmt.Errorf("--init: %w", err), "the sizes are in " + t.o.tune.init}
	}
	kvs := append(h.KVs(), vocab...)
	for _, kv := range c.about(t.o.tune.init) {
		kvs = kvs.With(kv.Key, kv.Value)
	}
	err = t.writeParams(m, kvs)
	return errors.Join(err, m.Close())
}

func (t *tuning) writeParams(m *graph.Model, kvs gguf.KVs) error {
	kvs = kvs.With("general.file_type", gguf.ValueOf(uint32(0))) // all F32
	var infos []gguf.TensorInfo
	for _, p := range m.Params() {
		infos = append(infos, gguf.TensorInfo{Name: p.Name, Type: gguf.TypeF32, Shape: matrixOf(p).Shape})
	}
	var w *gguf.Writer
	var err error
	if t.temp != nil {
		w, err = gguf.NewWriter(t.temp, kvs, infos)
	} else {
		w, err = gguf.Create(t.o.Model, kvs, infos)
	}
	if err != nil {
		return t.outputError("--run-dir", t.o.Model, err)
	}
	defer w.Abort()
	for _, p := range m.Params() {
		if err := w.WriteTensor(p.Name, bytes.NewReader(ggml.Bytes(p.Data))); err != nil {
			return t.outputError("--run-dir", t.o.Model, err)
		}
	}
	if err := w.Close(); err != nil {
		return t.outputError("--run-dir", t.o.Model, err)
	}
	return nil
}

// vocabulary takes the tokenizer of a model, or learns one on the data.
func (t *tuning) vocabulary(ctx context.Context, c initConfig) (gguf.KVs, error) {
	if c.Tokenizer != "" {
		f, err := gguf.OpenModel(c.Tokenizer)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // only read from
		var kvs gguf.KVs
		for _, kv := range f.KVs {
			if strings.HasPrefix(kv.Key, "tokenizer.") {
				kvs = append(kvs, kv)
			}
		}
		return kvs, nil
	}
	trainer := bpe.NewTrainer()
	if err := t.addTexts(ctx, trainer); err != nil {
		return nil, err
	}
	v, err := trainer.Train(c.VocabSize, bpe.Options{Specials: c.specials()})
	if err != nil {
		return nil, &inputError{err: err}
	}
	return v.KVs()
}

// addTexts gives the trainer the texts of the training data.
func (t *tuning) addTexts(ctx context.Context, trainer *bpe.Trainer) error {
	sources := withFormat(t.o.tune.data, t.o.tune.dataFormat)
	if t.o.PromptFile != "" {
		sources = append(sources, data.Source{Path: t.o.PromptFile, Format: "text"})
	}
	for _, s := range sources {
		if s.Path == "-" {
			return usagef("--init learns a vocabulary, so the data is read twice: give files, not standard input")
		}
		if err := data.Texts(ctx, s, trainer.Add); err != nil {
			return &inputError{err: fmt.Errorf("vocabulary: %w", err)}
		}
	}
	return nil
}
