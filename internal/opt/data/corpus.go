package data

import (
	"encoding/binary"
	"fmt"
	"sync"
)

// corpus holds the tokens of documents, in memory or in a cache file, and in memory where each
// document stands and what is learned of it.
type corpus struct {
	docs   []doc
	runs   []run
	tokens []int32   // all tokens, if there is no file
	file   cacheFile // all tokens as little-endian u32
	nVocab int       // ids in the file are below it

	once     sync.Once // closes the file
	closeErr error
}

// doc is one document.
type doc struct {
	at     int64  // its first token
	n      int32  // tokens
	run    int32  // its first run
	source int32  // index in Options.Sources
	hash   uint64 // of the record that it comes from: the same for all pieces of one
}

// run is a stretch of tokens of equal weight as labels.
type run struct {
	n int32
	w float32
}

// add appends a document held in memory; d says which source and hash it has.
func (c *corpus) add(tokens []int32, runs []run, d doc) {
	d.at, d.n, d.run = int64(len(c.tokens)), int32(len(tokens)), int32(len(c.runs))
	c.docs, c.runs, c.tokens = append(c.docs, d), append(c.runs, runs...), append(c.tokens, tokens...)
}

// read fills tokens and weights, both of length s.n, with those of s.
func (c *corpus) read(s span, tokens []int32, weights []float32) error {
	d := c.docs[s.doc]
	if err := c.readTokens(tokens, d.at+int64(s.from)); err != nil {
		return err
	}
	i := -int(s.from) // of the first token of the run
	for r := int(d.run); i < int(s.n); r++ {
		for j := max(i, 0); j < min(i+int(c.runs[r].n), int(s.n)); j++ {
			weights[j] = c.runs[r].w
		}
		i += int(c.runs[r].n)
	}
	return nil
}

func (c *corpus) readTokens(dst []int32, at int64) error {
	if c.file == nil {
		copy(dst, c.tokens[at:])
		return nil
	}
	buf := make([]byte, 4*len(dst))
	if _, err := c.file.ReadAt(buf, 4*at); err != nil {
		return err
	}
	for i := range dst {
		dst[i] = int32(binary.LittleEndian.Uint32(buf[4*i:]))
		if dst[i] < 0 || int(dst[i]) >= c.nVocab {
			return fmt.Errorf("the cache is damaged: token %d of a vocabulary of %d", dst[i], c.nVocab)
		}
	}
	return nil
}

// labels returns how many tokens of document i are scored.
func (c *corpus) labels(i int) int64 {
	d := c.docs[i]
	end, n := int(d.run), int32(0)
	for n < d.n {
		n += c.runs[end].n
		end++
	}
	return labelsOf(c.runs[d.run:end])
}
