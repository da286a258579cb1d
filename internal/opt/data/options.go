package data

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"gollama/internal/engine"
)

// Templater makes prompts of conversations. An [engine.ChatTemplate] is one.
type Templater interface {
	Render(*engine.ChatInput) (*engine.ChatPrompt, error)
	Tokenize(*engine.ChatPrompt) ([]engine.Token, error)
	Source(tools bool) string
}

// Source is a file of documents.
type Source struct {
	Path   string  // "-" is standard input; what is compressed with gzip or zstd is read as what it holds
	Format string  // one of Formats; "" and auto go by the name, or without a known one by the first byte
	Weight float64 // how often its documents stand in an epoch: 2 twice, 0.5 every other one; 0 is 1
}

// Formats are the values of Source.Format: plain text, JSON lines, and the token files of
// gollama tokenize.
var Formats = []string{"auto", "text", "jsonl", "tokens"}

// TooLong are the values of Options.TooLong.
var TooLong = []string{"error", "truncate", "split"}

// Options say what Load reads and what it makes of it.
type Options struct {
	Sources []Source
	Vocab   Tokenizer
	Chat    Templater // for records with messages; may be nil if there are none

	MaxLen   int     // positions of an example at most
	TooLong  string  // what is done with a longer record: one of TooLong, "" is error
	Pack     bool    // put several documents into one example
	ValShare float64 // share of the documents that is kept for validation, in [0, 1)

	TrainOn      []string // roles whose messages are learned; empty is assistant
	LastOnly     bool     // learn only the last such message of a conversation
	ParseSpecial bool     // let <|im_end|> and the like in the data become control tokens

	CacheDir  string // folder for what was tokenized; "" keeps it in memory
	VocabHash string // of the vocabulary, for the cache and to check token files; see VocabHash
	Threads   int    // that tokenize; below 1 is the number of CPUs

	Progress func(documents int, tokens int64) // called now and then; may be nil
}

func (o *Options) check() error {
	switch {
	case len(o.Sources) == 0:
		return errors.New("no data is given")
	case o.Vocab == nil:
		return errors.New("no vocabulary is given")
	case o.MaxLen < 2 || o.MaxLen >= math.MaxInt32:
		return fmt.Errorf("max_len %d: at least 2 are needed", o.MaxLen)
	case o.TooLong != "" && !slices.Contains(TooLong, o.TooLong):
		return fmt.Errorf("too_long %q, want %s", o.TooLong, strings.Join(TooLong, ", "))
	case !(o.ValShare >= 0 && o.ValShare < 1):
		return fmt.Errorf("a validation share of %v: it is at least 0 and below 1", o.ValShare)
	case o.CacheDir != "" && o.VocabHash == "":
		return errors.New("a cache needs the hash of the vocabulary")
	}
	stdin := 0
	for _, s := range o.Sources {
		if s.Format != "" && !slices.Contains(Formats, s.Format) {
			return fmt.Errorf("%s: format %q, want %s", s.Path, s.Format, strings.Join(Formats, ", "))
		}
		if !(s.Weight >= 0 && s.Weight <= maxWeight) {
			return fmt.Errorf("%s: a weight of %v: it is between 0 and %d", s.Path, s.Weight, maxWeight)
		}
		if s.Path == "-" {
			stdin++
		}
	}
	if stdin > 1 {
		return errors.New("standard input is given twice")
	}
	return nil
}

// maxWeight bounds how often a document is repeated in an epoch.
const maxWeight = 1000

// trains returns the weight of a message's tokens.
func (o *Options) trains(m *message) float32 {
	switch {
	case m.Weight != nil:
		return *m.Weight
	case slices.Contains(o.TrainOn, m.Role), len(o.TrainOn) == 0 && m.Role == "assistant":
		return 1
	}
	return 0
}

// Report says what Load has read.
type Report struct {
	Sources   []SourceReport `json:"sources"`
	Documents int            `json:"documents"`
	Tokens    int64          `json:"tokens"`
	Labels    int64          `json:"labels"`    // tokens that are scored
	Empty     int            `json:"empty"`     // records without text, left out
	NoLabels  int            `json:"no_labels"` // records of which nothing would be learned, left out
	Truncated int            `json:"truncated"` // records that were cut
	CutTokens int64          `json:"cut_tokens"`
	Split     int            `json:"split"` // records that were split
	Cached    bool           `json:"cached"`
	Train     Stats          `json:"train"`
	Val       Stats          `json:"val"`
}

// SourceReport counts what was read of one source.
type SourceReport struct {
	Path      string `json:"path"`
	Documents int    `json:"documents"`
	Tokens    int64  `json:"tokens"`
	Labels    int64  `json:"labels"`
}
