package completion

import (
	"gollama/internal/engine"
	"gollama/internal/gguf"
)

// ctxMultiple is what llama.cpp rounds the tokens of a sequence up to.
const ctxMultiple = 256

// CtxSeq returns how many tokens a sequence has that is to have n.
func CtxSeq(n int) int { return (n + ctxMultiple - 1) / ctxMultiple * ctxMultiple }

// KVBytes returns the bytes that the cache of a sequence of nCtx tokens takes,
// by the metadata of its model; less where layers have a sliding window or
// none. It is 0 for a model whose metadata do not tell.
func KVBytes(kvs gguf.KVs, nCtx int, k, v engine.CacheType) uint64 {
	arch, _ := kvs.Str("general.architecture")
	number := func(name string) uint64 { n, _ := kvs.Uint(arch + "." + name); return n }
	layers, heads := number("block_count"), number("attention.head_count")
	if heads == 0 {
		return 0
	}
	headsKV := heads * layers // of all layers
	if n, ok := kvs.Uint(arch + ".attention.head_count_kv"); ok {
		headsKV = n * layers
	} else if list, ok := kvs.Get(arch + ".attention.head_count_kv"); ok {
		each, _ := list.Values()
		headsKV = 0
		for _, e := range each {
			n, _ := e.Uint()
			headsKV += n
		}
	}
	length := func(name string) uint64 {
		if n := number(name); n > 0 {
			return n
		}
		return number("embedding_length") / heads
	}
	row := func(t engine.CacheType, n uint64) uint64 {
		size, ok := gguf.Type(t).RowSize(n)
		if !ok { // such a row is no cache of this type; the engine says so
			return 4 * n
		}
		return size
	}
	return uint64(nCtx) * (row(k, headsKV*length("attention.key_length")) + row(v, headsKV*length("attention.value_length")))
}

// FitParallel returns how many of want sequences of each bytes fit into free
// bytes, with extra more of them and a share left for everything else. It is at least 1.
func FitParallel(want, extra int, each, free uint64) int {
	if each == 0 || free == 0 {
		return want
	}
	return max(min(want, int(free/10*9/each)-extra), 1)
}
