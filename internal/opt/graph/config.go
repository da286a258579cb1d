package graph

import (
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
)

// ErrUnsupported is wrapped by the errors for models that cannot be trained
// here: another architecture, or a known one with parts that have no gradient.
var ErrUnsupported = errors.New("training is not supported")

// Config says what is trained and with what means.
type Config struct {
	Threads      int    // below 1: ggml.DefaultThreads()
	MemoryBudget int64  // bytes for activations kept for the way back; 0: 1 GiB; what does not fit is computed again
	Seed         uint64 // of LoRA's A matrices, dropout, and New's weights
	LoRA         *LoRA  // train an adapter; nil: train the weights themselves
	// Patterns choose the tensors of full training, as path.Match does, on the
	// name with and without ".weight": "blk.*.attn_?.weight", "output". Empty: all.
	Patterns []string
}

// LoRA describes an adapter: y = Wx + s*B(A*dropout(x)) for each target.
type LoRA struct {
	Rank    int     // 1 to 1024
	Alpha   float32 // s is Alpha/Rank; 0: s is 1, as llama.cpp reads it
	RSLoRA  bool    // s is Alpha/sqrt(Rank); Params carry on, the file's alpha is [Model.AdapterAlpha]
	Dropout float32 // 0 to below 1
	// Targets are patterns of tensors without block and ".weight": "attn_q",
	// "ffn_*", "output". Empty: every matrix in the blocks.
	Targets []string
	// Layers trained: First to Last, both included; Last 0 or less counts from
	// the end (0: the last layer), so the zero value is all layers.
	First, Last int
	Resume      string // adapter GGUF to go on with: its rank, alpha and targets replace those above; "" for a new one
}

const (
	defaultBudget = 1 << 30
	maxRank       = 1024 // far above any in use
)

func (c *Config) validate() error {
	if c.MemoryBudget < 0 {
		return fmt.Errorf("memory budget of %d bytes, want 0 or more", c.MemoryBudget)
	}
	for _, p := range c.Patterns {
		if _, err := path.Match(p, ""); err != nil {
			return fmt.Errorf("tensor pattern %q: %w", p, err)
		}
	}
	if c.LoRA == nil {
		return nil
	}
	if len(c.Patterns) > 0 {
		return errors.New("tensor patterns are for full training\nhint: choose the adapter's matrices by targets")
	}
	return c.LoRA.validate()
}

func (l *LoRA) validate() error {
	if l.Resume == "" && (l.Rank < 1 || l.Rank > maxRank) {
		return fmt.Errorf("lora: rank %d, want 1 to %d", l.Rank, maxRank)
	}
	if a := float64(l.Alpha); math.IsNaN(a) || math.IsInf(a, 0) || a < 0 {
		return fmt.Errorf("lora: alpha %g, want a finite number, 0 or more", l.Alpha)
	}
	if !(l.Dropout >= 0 && l.Dropout < 1) {
		return fmt.Errorf("lora: dropout %g, want 0 to below 1", l.Dropout)
	}
	for _, p := range l.Targets {
		if _, err := path.Match(p, ""); err != nil {
			return fmt.Errorf("lora: target %q: %w", p, err)
		}
	}
	return nil
}

// scale returns the factor of an adapter of this rank.
func (l *LoRA) scale(rank int) float32 {
	switch {
	case l.Alpha == 0:
		return 1
	case l.RSLoRA:
		return float32(float64(l.Alpha) / math.Sqrt(float64(rank)))
	}
	return l.Alpha / float32(rank)
}

// matches reports whether one of the patterns matches one of the names.
func matches(patterns []string, names ...string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		return slices.ContainsFunc(names, func(n string) bool {
			ok, err := path.Match(p, n)
			return err == nil && ok
		})
	})
}
