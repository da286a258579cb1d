//go:build cgo

package engine

import (
	"fmt"
	"strconv"
)

// checkCache refuses cache types that llama.cpp refuses or asserts on, in the
// user's words.
func checkCache(m *Model, p *Params) error {
	if p.NCtx == 0 && m.info.NCtxTrain == 0 {
		return fmt.Errorf("%s: the model does not say how long its context is: --ctx-size must be given", m.info.Path)
	}
	for _, x := range []struct {
		flag, key string
		t         CacheType
	}{{"--cache-type-k", "key_length", p.CacheTypeK}, {"--cache-type-v", "value_length", p.CacheTypeV}} {
		if !x.t.quantized() {
			continue
		}
		if n := headSize(m, x.key); n%cacheBlock != 0 {
			return fmt.Errorf("%s: %s needs heads of a multiple of %d elements, the model's have %d", x.flag, x.t, cacheBlock, n)
		}
	}
	return nil
}

// headSize returns the elements of an attention head's keys or values.
func headSize(m *Model, key string) int {
	if s, ok := m.Meta(m.info.Arch + ".attention." + key); ok {
		if n, err := strconv.Atoi(s); err == nil {
			return n
		}
	}
	if m.info.NHead > 0 {
		return m.info.NEmbd / m.info.NHead
	}
	return 0
}
