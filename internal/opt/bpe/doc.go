// Package bpe learns byte-level BPE vocabularies, for models that are trained from scratch.
//
// The algorithm is that of Sennrich et al., "Neural Machine Translation of Rare Words with Subword
// Units", 2016, over bytes as in GPT-2: text is divided into words by GPT-2's rule, and the most
// frequent pair of neighbours within words becomes a token, again and again. The result is the same
// on every machine and for every order of the texts.
package bpe
