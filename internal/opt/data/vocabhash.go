package data

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"sort"
	"strings"

	"gollama/internal/gguf"
)

// VocabHash returns the hash of all that decides about the tokens of a text in a model file: its
// metadata under tokenizer.ggml.
func VocabHash(path string) (string, error) {
	f, err := gguf.OpenModel(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // nothing was written
	h := sha256.New()
	var keys []string
	for _, kv := range f.KVs {
		if strings.HasPrefix(kv.Key, "tokenizer.ggml.") {
			keys = append(keys, kv.Key)
		}
	}
	sort.Strings(keys)
	for _, k := range keys {
		v, _ := f.KVs.Get(k)
		h.Write(fmt.Appendf(nil, "%q %d %d ", k, v.Kind(), v.Len()))
		hashValue(h, v)
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// hashValue writes the value to h: a scalar, a string, or an array of them.
func hashValue(h hash.Hash, v gguf.Value) {
	if list, ok := v.Strings(); ok {
		for _, s := range list {
			h.Write(fmt.Appendf(nil, "%d:%s", len(s), s))
		}
		return
	}
	if list, ok := v.Values(); ok {
		for _, e := range list {
			hashValue(h, e)
		}
		return
	}
	h.Write(fmt.Appendf(nil, "%v;", scalar(v)))
}

func scalar(v gguf.Value) any {
	if s, ok := v.Str(); ok {
		return s
	}
	if b, ok := v.Bool(); ok {
		return b
	}
	if i, ok := v.Int(); ok {
		return i
	}
	f, _ := v.Float()
	return f
}
