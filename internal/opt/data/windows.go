package data

import (
	"fmt"
	"strings"

	"gollama/internal/engine"
)

// Tokenizer makes tokens of text. An [engine.Vocab] is one.
type Tokenizer interface {
	Tokenize(text string, addSpecial, parseSpecial bool) ([]engine.Token, error)
	NTokens() int
	BOS() engine.Token
	EOS() engine.Token
	AddBOS() bool
	IsEOG(engine.Token) bool
}

// Windows tokenizes text as one document and cuts it into windows of nCtx positions that begin
// every nCtx/2 tokens, as llama-finetune does: a line end that closes the text is dropped, BOS
// stands once at the start, and the last windows, a share of valShare in [0, 1) rounded up, are
// for validation. val has Len 0 where the share is 0.
//
// A text that gives no window for training is an error. Where llama-finetune makes no window at
// all of a text that has the tokens for one, it is made.
//
// Source: examples/training/finetune.cpp, and common_opt_dataset_init of common/common.cpp.
func Windows(t Tokenizer, text string, nCtx int, valShare float64) (train, val *Dataset, err error) {
	tokens, err := t.Tokenize(strings.TrimSuffix(text, "\n"), true, false)
	if err != nil {
		return nil, nil, err
	}
	return windows(ids(tokens), nCtx, valShare)
}

func ids(tokens []engine.Token) []int32 {
	out := make([]int32, len(tokens))
	for i, t := range tokens {
		out[i] = int32(t)
	}
	return out
}

func windows(tokens []int32, nCtx int, valShare float64) (train, val *Dataset, err error) {
	switch stride := nCtx / 2; {
	case stride < 1:
		return nil, nil, fmt.Errorf("windows of %d tokens: at least 2 are needed", nCtx)
	case !(valShare >= 0 && valShare < 1):
		return nil, nil, fmt.Errorf("a validation share of %v: it is at least 0 and below 1", valShare)
	case len(tokens) < nCtx+1:
		return nil, nil, fmt.Errorf("the text has %d tokens, a window of %d needs %d", len(tokens), nCtx, nCtx+1)
	default:
		n := max((len(tokens)-nCtx-1)/stride, 1)
		// In float32, as llama-finetune has it: the rounding decides where the split is.
		nTrain := int(float32(n) * (1 - float32(valShare)))
		if nTrain == 0 {
			return nil, nil, fmt.Errorf("the text gives %d windows of %d tokens and a validation share of %v leaves none for training", n, nCtx, valShare)
		}
		src := &corpus{}
		src.add(tokens, []run{{n: int32(len(tokens)), w: 1}}, doc{})
		train, val = &Dataset{src: src}, &Dataset{src: src}
		for i := range n {
			d := train
			if i >= nTrain {
				d = val
			}
			d.addRow(span{from: int32(i * stride), n: int32(nCtx + 1)})
		}
		for _, d := range []*Dataset{train, val} {
			d.stats.Labels = d.stats.Tokens
			d.stats.Documents = min(d.Len(), 1)
		}
		return train, val, nil
	}
}
