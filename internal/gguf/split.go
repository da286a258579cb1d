package gguf

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// The keys of a shard of a split model.
const (
	KeySplitNo      = "split.no"            // uint16, from 0
	KeySplitCount   = "split.count"         // uint16
	KeySplitTensors = "split.tensors.count" // int32, of all shards together
)

// SplitPath returns the path of shard no, counted from 0, of count: prefix-00001-of-00003.gguf for the first of 3.
// Source: llama_split_path in src/llama.cpp.
func SplitPath(prefix string, no, count int) string {
	return fmt.Sprintf("%s-%05d-of-%05d.gguf", prefix, no+1, count)
}

// OpenModel opens a model: the file at path or, if that is the first shard of a split, all shards as one. The keys of
// a split model are those of the first shard without the split's own; its tensors are those of all shards in order,
// each with the Offset it has in its shard. A later shard, a shard that is missing or one that does not belong is an
// error that names the file.
func OpenModel(path string) (*File, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	count, ok := f.Uint(KeySplitCount)
	if !ok || count <= 1 {
		f.KVs = f.Without(KeySplitNo, KeySplitCount, KeySplitTensors)
		return f, nil
	}
	if err := f.join(path, count); err != nil {
		_ = f.Close() // only read from
		return nil, err
	}
	return f, nil
}

// join adds the shards after the first.
func (f *File) join(path string, count uint64) error {
	if count > math.MaxUint16 {
		return fmt.Errorf("%s: %s: got %d, want at most %d", path, KeySplitCount, count, math.MaxUint16)
	}
	prefix, named := strings.CutSuffix(path, SplitPath("", 0, int(count)))
	if no, ok := f.Uint(KeySplitNo); !ok || no != 0 {
		return fmt.Errorf("%s: %s: got %d of %d, want the first shard, number 0", path, KeySplitNo, no, count)
	}
	if !named {
		return fmt.Errorf("%s: first shard of %d, want a name that ends in %q", path, count, SplitPath("", 0, int(count)))
	}
	f.holder = make([]int32, len(f.Tensors))
	for no := uint64(1); no < count; no++ {
		s, err := Open(SplitPath(prefix, int(no), int(count)))
		if err != nil {
			return err
		}
		f.shards = append(f.shards, s.shards...) // from here on f closes it
		if err := f.add(s, no, count); err != nil {
			return fmt.Errorf("%s: %w", s.Paths[0], err)
		}
	}
	if want, ok := f.Uint(KeySplitTensors); ok && want != uint64(len(f.Tensors)) {
		return fmt.Errorf("%s: %s: got %d, but the %d shards have %d tensors", path, KeySplitTensors, want, count, len(f.Tensors))
	}
	f.KVs = f.Without(KeySplitNo, KeySplitCount, KeySplitTensors)
	return nil
}

// add takes the tensors of s, which is to be shard no of count.
func (f *File) add(s *File, no, count uint64) error {
	if got, ok := s.Uint(KeySplitNo); !ok || got != no {
		return fmt.Errorf("%s: got %d, want %d", KeySplitNo, got, no)
	}
	if got, ok := s.Uint(KeySplitCount); ok && got != count {
		return fmt.Errorf("%s: got %d, want %d as in the first shard", KeySplitCount, got, count)
	}
	for _, t := range s.Tensors {
		if i, dup := f.byName[t.Name]; dup {
			return fmt.Errorf("tensor %q: also in %s", t.Name, f.Paths[f.holder[i]])
		}
		f.byName[t.Name] = len(f.Tensors)
		f.Tensors = append(f.Tensors, t)
		f.holder = append(f.holder, int32(no))
	}
	f.Paths = append(f.Paths, s.Paths...)
	return nil
}

// SplitLimits says when a split begins a new shard; 0 is no limit. A shard has one tensor at least.
type SplitLimits struct {
	Tensors int    // tensors per shard
	Bytes   uint64 // bytes of tensor data with padding per shard; the header is not counted
}

// CreateSplit is [Create] for a model split in shards called [SplitPath](prefix, 0, n) and so on, as
// llama-gguf-split does it: the first has all keys, and each has the keys of the split at the end. They appear
// together when [Writer.Close] succeeds; until then each shard written keeps a file open.
func CreateSplit(prefix string, kvs KVs, tensors []TensorInfo, limits SplitLimits) (*Writer, error) {
	whole, err := newPart(prefix, kvs, tensors) // checks across shards
	if err != nil {
		return nil, fmt.Errorf("%s: %w", prefix, err)
	}
	groups := limits.divide(whole.tensors)
	if len(groups) > math.MaxUint16 {
		return nil, fmt.Errorf("%s: got %d shards, want at most %d", prefix, len(groups), math.MaxUint16)
	}
	w := &Writer{}
	own := kvs.Without(KeySplitNo, KeySplitCount, KeySplitTensors)
	for no, group := range groups {
		p, err := newPart(SplitPath(prefix, no, len(groups)), slices.Concat(own, KVs{
			// The order in which llama-gguf-split leaves them.
			{KeySplitNo, ValueOf(uint16(no))},
			{KeySplitTensors, ValueOf(int32(len(tensors)))},
			{KeySplitCount, ValueOf(uint16(len(groups)))},
		}), group)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.path, err)
		}
		w.parts = append(w.parts, p)
		own = nil // so the alignment of later shards is the default, as upstream's
	}
	return begin(w)
}

// Count returns the number of shards that [CreateSplit] makes of these tensors.
func (l SplitLimits) Count(tensors []TensorInfo) int { return len(l.divide(tensors)) }

// divide returns the tensors of each shard, one shard at least.
func (l SplitLimits) divide(tensors []TensorInfo) [][]TensorInfo {
	var groups [][]TensorInfo
	first, bytes := 0, uint64(0)
	for i, t := range tensors {
		size, _ := pad(t.Size(), defaultAlignment)
		if i > first && (l.Tensors > 0 && i-first >= l.Tensors || l.Bytes > 0 && bytes+size > l.Bytes) {
			groups = append(groups, tensors[first:i])
			first, bytes = i, 0
		}
		bytes += size
	}
	return append(groups, tensors[first:])
}
